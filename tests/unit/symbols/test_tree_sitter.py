"""Symbols of other languages, and of Python that does not parse."""

from pathlib import Path

import pytest

from agent_magics.symbols.parsing import can_parse, parse_symbols
from agent_magics.symbols.text import SourceText

TYPESCRIPT = """\
// Ünïcode
export const größe = 1, other = 2;
export interface Shape { area(): number }
type Pair = [number, number];
export default class Square implements Shape {
  side = 1;
  constructor(private x: { y: number }) { const local = 1; }
  area(): number { return this.side ** 2; }
}
enum Colour { Red }
function* walk(a: string): Iterable<string> { function inner() {} }
"""


def flat(symbols):
    for each in symbols:
        yield each
        yield from flat(each.children)


@pytest.mark.parametrize("breaks", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_typescript(breaks):
    text = TYPESCRIPT.replace("\n", breaks)
    source, path = SourceText(text), Path("/x/a.ts")
    found = {
        f"{each.container}/{each.name}".lstrip("/"): each
        for each in flat(parse_symbols(path, text, "a.ts"))
    }
    assert {name: each.kind for name, each in found.items()} == {
        "größe": "variable",
        "other": "variable",
        "Shape": "interface",
        "Shape/area": "method",
        "Pair": "type",
        "Square": "class",
        "Square/side": "field",
        "Square/constructor": "method",
        "Square/area": "method",
        "Colour": "enum",
        "walk": "function",
        "walk/inner": "function",
    }
    assert all(source.part(each.selection) == each.name for each in found.values())
    assert source.part(found["Square"].range).startswith("export default class Square")
    assert source.part(found["Square"].range).endswith("}")
    assert found["walk"].detail == "(a: string): Iterable<string>"


NAMES = {
    ("const a = (b, c) => 1, d = async function e() {};", "js"): "function a(b, c), function d()",
    ("class K { #a = 1; static b; c = x => x }", "js"):
        "class K, field #a, field b, method c",
    ("const {a, b: c, d = 1, ...e} = f, [g, [h]] = i;", "js"): "variable a, variable c, "
        "variable d, variable e, variable g, variable h",
    ("const { a: b = C, d: {e} = F } = g;", "js"): "variable b, variable e",
    ("class A:\n    x = 1\nself.a, c = 1, 2\na[i], [d] = e\n(", "py"): "class A, variable x, "
        "variable c, variable d",
    ("namespace N { const a = 1; if (b) { const c = 1 } }", "ts"): "module N, variable a",
    ("a.b = c = 1\nd: int = 2\nd = 3\ndef e(:\n", "py"): "variable c, variable d, function e(",
    ("def a[T](): ...\nb, (c, *d) = e\n(", "py"): "function a[T](), variable b, variable c, "
        "variable d",
}  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), NAMES.items())
def test_names_of_each_form(given, wanted):
    text, ending = given
    found = flat(parse_symbols(Path(f"/x/a.{ending}"), text, "a"))
    assert ", ".join(f"{each.kind} {each.name}{each.detail}" for each in found) == wanted


def test_python_with_a_mistake_is_read_all_the_same():
    text = "@one\ndef a(x):\n    return 1\n\ndef (:\n\nclass B:\n    def c(self): pass\n"
    names = [each.name for each in flat(parse_symbols(Path("/x/a.py"), text, "a.py"))]
    assert names[0] == "a" and {"B", "c"} <= set(names)


def test_which_files_are_known():
    known = [
        name for name in ("a.py", "a.PYI", "a.tsx", "a.mjs", "a.txt", "a") if can_parse(Path(name))
    ]
    assert known == ["a.py", "a.PYI", "a.tsx", "a.mjs"]
