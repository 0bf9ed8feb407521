"""Symbols of Python source, without a server."""

import ast
import gc
from pathlib import Path

import pytest

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import holds_source, parse_symbols
from agent_magics.symbols.python_syntax import parse_python
from agent_magics.symbols.text import SourceText

PATH = Path("/x/a.py")
TEXT = '''\
"""Ä module."""
import os
LIMIT: int = 3
größe, other = 1, 2
größe = 4
if os.name == "posix":
    def only_there(): return 1
else:
    def only_there():
        return 2
@overload
def f(a: int) -> int: ...
@overload
def f(a: str,
      *, b: int = (1 + 2)) -> str: ...
class Straße(Base, metaclass=Meta):
    """Doc."""
    x = 1; y = 2
    @property
    def weg(self): return "ö"
    async  def geh(self, /, *args: int, **more: str) -> None:
        def inner(): pass
        local = 1
    class Inner: pass
match LIMIT:
    case 3:
        def in_case(): pass
try:
    import fast
except ImportError:
    def in_except(): pass
'''


def flat(symbols):
    for each in symbols:
        yield each
        yield from flat(each.children)


def named(text=TEXT):
    found = {}
    for each in flat(parse_symbols(PATH, text, "a.py")):
        found.setdefault(f"{each.container}/{each.name}".lstrip("/"), []).append(each)
    return found


def test_each_symbol_has_its_kind_and_name():
    kinds = {name: [each.kind for each in symbols] for name, symbols in named().items()}
    assert kinds == {
        "LIMIT": ["constant"],
        "größe": ["variable"],
        "other": ["variable"],
        "only_there": ["function", "function"],
        "f": ["function", "function"],
        "Straße": ["class"],
        "Straße/x": ["field"],
        "Straße/y": ["field"],
        "Straße/weg": ["property"],
        "Straße/geh": ["method"],
        "Straße/geh/inner": ["function"],
        "Straße/Inner": ["class"],
        "in_case": ["function"],
        "in_except": ["function"],
    }


@pytest.mark.parametrize("breaks", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_ranges_are_exact(breaks):
    text = TEXT.replace("\n", breaks)
    source = SourceText(text)
    for each in flat(parse_symbols(PATH, text, "a.py")):
        assert source.part(each.selection) == each.name
        assert each.range.start <= each.selection.start < each.selection.end <= each.range.end
    by_name = named(text)
    f = by_name["f"][1]
    assert source.part(f.range).startswith("@overload") and source.part(f.range).endswith("...")
    assert source.part(by_name["Straße/weg"][0].range).endswith('return "ö"')
    assert source.part(by_name["Straße/y"][0].range) == "y = 2"
    assert source.part(by_name["größe"][0].range) == "größe, other = 1, 2"


def test_the_detail_is_the_signature_on_one_line():
    found = named()
    assert found["f"][1].detail == "(a: str, *, b: int = (1 + 2)) -> str"
    assert found["Straße/geh"][0].detail == "(self, /, *args: int, **more: str) -> None"
    assert found["Straße"][0].detail == "(Base, metaclass=Meta)"
    assert found["Straße/Inner"][0].detail == ""
    assert found["LIMIT"][0].detail == ": int"


def test_an_error_names_the_line():
    with pytest.raises(RespondToModel, match=r"a\.xyz is no Python.*line 2"):
        parse_python("x = 1\ndef (:\n", "a.xyz")


@pytest.mark.soak
def test_parsing_goes_on_where_another_parse_disturbs_it():
    parsed = []

    def parse_too(*_: object) -> None:  # as another thread may, in the middle of ours
        if not parsed:
            parsed.append(ast.parse("x = [1, (2, 3)]\n"))

    thresholds = gc.get_threshold()
    gc.callbacks.append(parse_too)
    gc.set_threshold(100)
    gc.enable()
    try:
        for _ in range(20):
            parsed.clear()
            tree = parse_python("def f(a):\n    return [a, (1, {2: 3})]\n" * 200, "a.py")
            assert len(tree.body) == 200 and parsed
    finally:
        gc.disable()
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(parse_too)


@pytest.mark.parametrize("text", ["", "\n", "x", "# only a comment", "\ufeff"])
def test_files_without_symbols(text):
    assert parse_symbols(PATH, text, "a.py") == ()


def test_a_folder_holds_source_if_a_file_in_it_does(tmp_path):
    assert not holds_source(tmp_path)
    assert not holds_source(tmp_path / "missing")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.py").touch()
    (tmp_path / "data.csv").touch()
    assert not holds_source(tmp_path)
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "a.TS").touch()
    assert holds_source(tmp_path)


def test_a_chain_of_a_thousand_branches_has_its_symbols():
    branches = "".join(f"elif x == {n}:\n    a{n} = 1\n" for n in range(1_500))
    found = parse_symbols(PATH, f"if x:\n    pass\n{branches}", "a.py")
    assert [symbol.name for symbol in found] == [f"a{n}" for n in range(1_500)]
