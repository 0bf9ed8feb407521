"""Symbols of notebooks, and names that exist in the live kernel."""

import asyncio
import json
import os
import types
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from agent_magics.dispatch.context import status_of
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.python_syntax import NotPython, parse_python
from agent_magics.symbols.types import Diagnostic, Location, Position, Range
from agent_magics.tools import definition, diagnostics, edit_symbol, references, symbols
from agent_magics.tools.structure.live import find_live
from agent_magics.tools.structure.notebooks import read_notebook
from tests.support.contexts import in_turn, make_context

CELLS = [
    ("markdown", "aaaa", "# Title"),
    ("code", "bbbb", "%load_ext x\nimport os\nfiles = !ls\n\ndef größe(a, *, b=1):\n    return a"),
    ("code", "cccc", "%%agent\ndef not_python(: 1"),
    ("code", "dddd", "%%time\nclass Shape:\n    def area(self): return await_me"),
    ("code", "eeee", "broken ((("),
    ("code", "ffff", "total = größe(1)\ntotal?"),
]  # fmt: skip


def notebook(path):
    cells = [
        {"cell_type": kind, "id": name, "source": text.splitlines(keepends=True), "metadata": {}}
        for kind, name, text in CELLS
    ]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}))


@dataclass
class Kernel:
    """A live kernel of given variables, and the notebook as a page would answer for it."""

    namespace: dict
    document: object = None


class Page:
    is_open = True

    def __init__(self, cells=CELLS):
        self.cells = cells

    async def request(self, turn_id, op, start, limit, cell):
        found = [
            {"index": n, "type": kind, "id": name, "source": text}
            for n, (kind, name, text) in enumerate(self.cells)
        ]
        return {"path": "nb.ipynb", "total": len(found), "cells": found[start : start + 2]}


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JPY_SESSION_NAME", str(work / "nb.ipynb"))
    monkeypatch.chdir(work)
    notebook(work / "nb.ipynb")
    return make_context(work)


def read(function, ctx, **arguments):
    function.tool_options.assess({"path": "."} | arguments, ctx)
    status_of(ctx).judged = True
    return asyncio.run(function(**arguments, ctx=ctx)).to_output(10_000).text


LISTED = (
    "nb.ipynb\n"
    "  cell 2 (bbbb):3 variable files\n"
    "  cell 2 (bbbb):5-6 function größe(a, *, b=1)\n"
    "  cell 4 (dddd):2-3 class Shape\n"
    "    cell 4 (dddd):3 method area(self)\n"
    "  cell 6 (ffff):1 variable total"
)


def test_a_saved_notebook_is_one_document_of_its_cells(ctx):
    assert read(symbols, ctx, path="nb.ipynb") == LISTED
    assert read(symbols, ctx, path="nb.ipynb", query="area") == (
        "nb.ipynb\n  cell 4 (dddd):3 method Shape/area(self)"
    )


def test_a_line_names_no_place_in_a_notebook(ctx):
    with pytest.raises(RespondToModel, match=r"nb\.ipynb is a notebook.*leave line out"):
        read(definition, ctx, name="größe", path="nb.ipynb", line=6)


def test_the_open_one_is_read_from_its_page(ctx):
    page = Page([*CELLS, ("code", "gggg", "unsaved = 1")])
    ctx = in_turn(ctx, live_kernel=Kernel({}, page))
    text = read(symbols, ctx, path="nb.ipynb")
    assert text == f"{LISTED}\n  cell 7 (gggg):1 variable unsaved"
    assert "cell 7 (gggg):1 variable unsaved" in read(symbols, ctx, query="saved")
    body = read(symbols, ctx, name_path="größe", detail_level="full")
    assert "def größe(a, *, b=1):" in body


class Server:
    """A language server that finds one use in each notebook that it is given, and a stale one."""

    name = "test server"
    texts: dict = {}  # noqa: RUF012

    def given(self, texts):
        made = Server()
        made.texts = {**self.texts, **texts}
        return made

    async def references(self, path, position, declaration):
        line = self.texts[path].split("\n").index("total = größe(1)")
        place = Range(Position(line, 8), Position(line, 13))
        before = Range(Position(0, 0), Position(0, 7))  # what no cell holds
        stale = Location(path.with_name("gone.ipynb"), place)
        return (*(Location(e, p) for e in self.texts for p in (before, place)), stale)

    async def diagnostics(self, path):
        line = self.texts[path].split("\n").index("total = größe(1)")
        places = (Range(Position(each, 0), Position(each, 5)) for each in (0, line))
        return tuple(Diagnostic(path, each, "error", "No.") for each in places)


class Servers:
    async def provider_for(self, path):
        assert path.suffix == ".py"
        return Server()


def test_uses_are_found_in_the_cells_as_the_page_has_them(ctx):
    page = Page([("code", "new", "import json"), *CELLS])
    ctx = in_turn(ctx, symbols=Servers, live_kernel=Kernel({}, page))
    text = read(references, ctx, name_path="größe")
    assert text.endswith("1 place of 1 file:\nnb.ipynb:cell 7 (ffff):1: total = größe(1)")


def test_reports_name_the_cells_as_the_page_has_them(ctx):
    page = Page([("code", "new", "import json"), *CELLS])
    ctx = in_turn(ctx, symbols=Servers, live_kernel=Kernel({}, page))
    assert read(diagnostics, ctx, paths=["nb.ipynb"]).split("\n") == [
        "nb.ipynb:cell 6 (eeee):1: error: the cell does not parse: line 1: '(' was never closed",
        "nb.ipynb:cell 7 (ffff):1: error: No.",
    ]


def test_cells_are_changed_by_the_notebook_tools(ctx):
    with pytest.raises(RespondToModel, match="notebook_edit_cell"):
        asyncio.run(edit_symbol("größe", "remove", path="nb.ipynb", ctx=ctx))


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": [1]}', "[" * 100_000])
def test_what_is_no_notebook_is_said(ctx, text):
    (ctx.cwd / "nb.ipynb").write_text(text)
    with pytest.raises(RespondToModel, match="no notebook that can be read"):
        read(symbols, ctx, path="nb.ipynb")


def test_a_notebook_of_another_language_is_none_of_ours(ctx):
    path = ctx.cwd / "nb.ipynb"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "metadata": {"language_info": {"name": "R"}}})
    )
    with pytest.raises(RespondToModel, match="a notebook of R, and only Python is read"):
        read(symbols, ctx, path="nb.ipynb")


# -- magics ---------------------------------------------------------------------------------------


def code_of(cell, folder):
    """Return what the structure tools take a cell for."""
    path = folder / "one.ipynb"
    made = {"cell_type": "code", "id": "a", "source": cell, "metadata": {}}
    path.write_text(json.dumps({"cells": [made], "nbformat": 4, "nbformat_minor": 5}), "utf-8")
    return asyncio.run(read_notebook(str(path), None)).cells[0].text


@pytest.mark.parametrize(
    "cell",
    [
        "label = (\n    '%s has %d values'\n    % (name, n)\n)",
        "changed = [\n    key\n    for key in new\n    if old[key]\n    != new[key]\n]",
        'DOC = """\n% LaTeX\n! bang\nf?\nx = !ls\n"""',
        "total = 7 \\\n  % 2",
    ],
)
def test_python_that_looks_like_magics_is_left_as_it_is(ctx, cell):
    assert code_of(cell, ctx.cwd) == cell
    wanted = f"pass\n{cell}\npass"
    assert code_of(f"%time 1\n{cell}\n!ls", ctx.cwd) == wanted
    assert code_of(f"%%time\n{cell}", ctx.cwd) == f"\n{cell}"


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("files = !ls (\nx = [\n1]", "files = get_ipython()\nx = [\n1]"),
        ("a, b = %sql 'it''s\nx = 1", "a, b = get_ipython()\nx = 1"),
        ('!echo """\nif x:\n    %cd "a\n    y = 1', "pass\nif x:\n    pass\n    y = 1"),
        ("!ls \\\n  -l \\\n  -a\nx = 1", "pass\n\n\nx = 1"),
        ("x = 1  # it's (\nx?\n?x\nx.y[0]??", "x = 1  # it's (\npass\npass\npass"),
        ("/f 1\n,f a b\n;f a b", "pass\npass\npass"),
    ],
)
def test_magics_are_blank_statements_of_as_many_lines(ctx, cell, code):
    assert code_of(cell, ctx.cwd) == code


# None ends with `?`, for which IPython also drops the lines of a bracket in front of it.
LINES = ["% a", "!= b", "!ls '(", "x = %time f(", "?f", "x = (", ")", "# (", "'''", '"', "[", "]",
         "x", "y = 1 \\", "x # '''", "!ls \\"]  # fmt: skip


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=7).map("\n".join))
def test_what_ipython_makes_python_of_is_python(ctx, cell):
    code = code_of(cell, ctx.cwd)
    assert code.count("\n") == cell.count("\n")
    try:
        parse_python(TransformerManager().transform_cell(cell), "a cell")
    except (NotPython, SyntaxError):
        return
    parse_python(code, "a cell")


# -- the live kernel ------------------------------------------------------------------------------


class Hostile:
    """A class all of whose code counts that it ran."""

    ran: list = []  # noqa: RUF012
    __slots__ = ("__dict__",)

    def __getattribute__(self, name):
        Hostile.ran.append(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        Hostile.ran.append(name)

    def __repr__(self):
        Hostile.ran.append("repr")
        return "x"

    @property
    def __class__(self):
        Hostile.ran.append("class")
        return int

    @property
    def costly(self) -> int:
        """Costs."""
        Hostile.ran.append("property")

    @classmethod
    def make(cls, *args, key="k", **more):
        """Make one."""

    __call__ = __eq__ = __hash__ = __len__ = __iter__ = __getattr__


def sample(a, /, b=2, *rest, c, d="x" * 100, **more):
    """Sample it.

    More.
    """


@pytest.fixture
def live(ctx):
    held = Hostile()
    object.__getattribute__(held, "__dict__")["own"] = sample
    kernel = Kernel(
        {"held": held, "Hostile": Hostile, "sample": sample, "number": 3, "os": os,
         "json": json, "_hidden": 1, "module": types.ModuleType("m", "Doc.")}
    )  # fmt: skip
    Hostile.ran.clear()
    return in_turn(ctx, live_kernel=kernel)


def test_names_are_described_without_running_their_code(live):
    for name in ("held", "held.costly", "held.make", "held.own", "held.nothing", "Hostile.make"):
        find_live(name, live)
    assert Hostile.ran == []
    assert find_live("held.nothing", live) is find_live("missing.x", live) is None
    assert find_live("held.costly", live).kind == "property"
    assert str(find_live("held.make", live)).startswith(
        "live kernel: function held.make(cls, *args, key='k', **more)\ndefined in "
    )


def test_signatures_are_read_from_code(live):
    found = find_live("sample", live)
    assert found.detail == f"(a, /, b=2, *rest, c, d='{'x' * 60}'…, **more)"
    assert found.doc == "Sample it.\n\nMore."
    assert found.where.startswith(__file__)
    assert find_live("json.dumps", live).detail.startswith("(obj, *, skipkeys=False")
    assert find_live("number", live).detail == "int = 3"
    assert find_live("os/path/join", live).kind == "function"
    assert str(find_live("module", live)) == "live kernel: module module: module\nDoc."


def test_definition_tells_what_exists_in_the_kernel_alone(live):
    assert read(definition, live, name="number") == (
        "number exists in the live kernel alone.\nlive kernel: variable number: int = 3"
    )
    with pytest.raises(RespondToModel, match="There is no symbol numbr"):
        read(definition, live, name="numbr")
    with pytest.raises(RespondToModel, match="no symbol number: it exists in the live kernel alon"):
        read(references, live, name_path="number")


def test_where_a_cell_defined_something_is_words(live):
    code = compile("class Made:\n    def f(self): ...\n", "/tmp/ipykernel_7/1.py", "exec")
    exec(code, held := {"__name__": "__main__"})
    live.turn.live_kernel.namespace.update(made=held["Made"](), Made=held["Made"])
    assert find_live("made", live).where == "a cell of the notebook, its class"
    assert find_live("Made", live).where == "a cell of the notebook"
    assert find_live("Made.f", live).where == "a cell of the notebook, line 2"


def test_what_both_know_is_joined_and_marked(live):
    live.turn.live_kernel.namespace["größe"] = sample
    text = read(definition, live, name="größe", path="nb.ipynb")
    assert text.split("\n")[:4] == [
        "nb.ipynb:cell 2 (bbbb):5-6 größe is defined at:",
        "nb.ipynb:cell 2 (bbbb):5: def größe(a, *, b=1):",
        "function größe(a, *, b=1)",
        f"live kernel: function größe(a, /, b=2, *rest, c, d='{'x' * 60}'…, **more)",
    ]


def test_a_query_finds_live_names_too(live):
    assert read(symbols, live, query="numb") == "live kernel: variable number: int = 3"
    assert read(symbols, live, query="hidden") == "No symbols for hidden."
