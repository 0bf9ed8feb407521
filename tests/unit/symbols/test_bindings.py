"""Which names a module, a class or a function binds."""

import pytest

from agent_magics.symbols.bindings import bound_names

BINDINGS = [
    "import name",
    "import name.part",
    "import other as name",
    "from other import name",
    "from other import there as name",
    "if 1:\n    from other import name",
    "name = 1",
    "name: int",
    "a, (b, *name) = c",
    "name += 1",
    "for a, name in b: pass",
    "with a as name: pass",
    "try: pass\nexcept OSError as name: pass",
    "print(name := 1)",
    "[(name := a) for a in b]",
    "match a:\n    case [1, *name]: pass",
    "match a:\n    case {1: 2, **name}: pass",
    "match a:\n    case int() as name: pass",
    "def name(): pass",
    "class name: pass",
    "try: pass\nfinally:\n    async def name(): pass",
]
OTHERS = [
    "print(name)",
    "other.name = 1",
    "import other.name",
    "from name import other",
    "import name as other",
    "[name for name in a]",
    "lambda name: 1",
    "def f(name): pass",
    "def f():\n    name = 1",
    "class A:\n    name = 1",
    "f(name=1)",
    "'name'",
]


def inside(code, *heads):
    """Indent code below lines that open a block each."""
    for head in reversed(heads):
        code = f"{head}\n" + "\n".join(f"    {line}" for line in code.split("\n"))
    return code


@pytest.mark.parametrize("heads", [(), ("class A:",), ("def A(x):",)], ids=str)
@pytest.mark.parametrize("code", BINDINGS)
def test_each_way_to_bind_a_name_is_seen(code, heads):
    assert "name" in bound_names(inside(code, *heads), "A" if heads else "", "a.py")


@pytest.mark.parametrize("heads", [(), ("class A:",), ("def A(x):",)], ids=str)
@pytest.mark.parametrize("code", OTHERS)
def test_what_binds_another_name_or_in_another_scope_is_not(code, heads):
    assert "name" not in bound_names(inside(code, *heads), "A" if heads else "", "a.py")


def test_a_function_binds_names_of_the_module_by_global():
    code = "def f():\n    def g():\n        global name\n        name = 1"
    assert bound_names(code, "", "a.py") == {"f", "name"}


@pytest.mark.parametrize("code", ["self.name = 1", "self.name: int = 1", "for self.name in a: 1"])
@pytest.mark.parametrize("head", ["def f(self, a):", "async def f(self, /):"])
def test_a_class_has_what_its_methods_set(code, head):
    found = bound_names(inside(code, "class A:", head, "if 1:"), "A", "a.py")
    assert found == {"f", "name"}
    assert bound_names(inside("other.name = self.gone", "class A:", head), "A", "a.py") == {"f"}


def test_a_name_path_leads_through_classes_and_functions():
    code = inside("x = 1", "class A:", "def f(self):", "class B:")
    assert bound_names(code, "A/f/B", "a.py") == {"x"}
    assert not bound_names(code, "B", "a.py")
