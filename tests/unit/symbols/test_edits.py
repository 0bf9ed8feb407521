"""Edits by symbol: what is not edited keeps every byte."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.edits import (
    apply_edits,
    insert_at_symbol,
    remove_symbol,
    replace_symbol,
)
from agent_magics.symbols.parsing import parse_symbols
from agent_magics.symbols.text import SourceText
from agent_magics.symbols.types import Symbol

PATH = Path("/x/a.py")
JS, TS, RS = Path("/x/a.js"), Path("/x/a.ts"), Path("/x/a.rs")

TEXTS = st.sampled_from(['"é"', "1", '"""a\n  b\nc"""', "[\n    1,\n]", "f'''{1}\n x'''"])
NAMES = st.sampled_from(["a", "größe", "名前", "B"])
COMMENTS = st.sampled_from(["", "  # note", " "])


@st.composite
def blocks(draw, depth=0):
    """Return the lines of a few statements, with a level of indentation for each `depth`."""
    indent = draw(st.sampled_from(["    ", "  "])) if depth == 0 else ""
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(["value", "def", "class", "decorated", "wide", "pair", "if", "comment"])
        )
        name, value, note = draw(NAMES), draw(TEXTS), draw(COMMENTS)
        if kind == "value" or depth > 2:
            lines += f"{name} = {value}{note}".split("\n")
        elif kind == "pair":
            lines.append(f"{name} = 1; b = 2{note}")
        elif kind == "comment":
            lines.append(draw(st.sampled_from(["# éin comment", "# %% éin cell"])))
        else:
            inner = draw(blocks(depth + 1))
            inner = [*inner, f"{draw(NAMES)} = 1"]
            head = {"class": f"class {name}:", "if": "if True:"}.get(kind, f"def {name}(x=1):")
            if kind == "decorated":
                lines += ["@one", "@two(", "    3)"]
            if kind == "wide":
                lines += [f"def {name}(", "    x=1,"]
                head = "):"
            lines.append(head + note)
            if kind != "if" and draw(st.booleans()):
                lines += ['__step__"""Doc.', "", '  more."""']
            lines += [
                f"__step__{line}" if line and _starts(line, inner, n) else line
                for n, line in enumerate(inner)
            ]
        lines += [""] * draw(st.integers(0, 2))
    if depth == 0:
        lines = [line.replace("__step__", indent or "    ") for line in lines]
    return lines


def _starts(line, lines, number):
    """Return whether a line does not begin inside a string of three quotes."""
    before = "\n".join(lines[:number])
    return (before.count('"""') + before.count("'''")) % 2 == 0


@st.composite
def modules(draw):
    text = "\n".join(draw(blocks()))
    text += draw(st.sampled_from(["", "\n"]))
    try:
        ast.parse(text)
    except SyntaxError:  # a block of comments alone
        text = "x = 1\n"
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


def flat(symbols):
    for each in symbols:
        yield each
        yield from flat(each.children)


def whole_lines(source, symbol):
    lines = range(symbol.range.start.line, symbol.range.end.line + 1)
    return "\n".join(source.line(n) for n in lines)


def same(text, other):
    return text.replace("\r\n", "\n") == other.replace("\r\n", "\n")


@given(modules())
def test_a_symbol_replaced_by_its_own_text_changes_nothing(text):
    source = SourceText(text)
    for symbol in flat(parse_symbols(PATH, text, "a.py")):
        own = [source.part(symbol.range)]
        if ";" not in source.line(symbol.range.start.line):
            own.append(whole_lines(source, symbol))
        for each in own:
            # The line breaks of a file are those of its own, which the patch engine keeps.
            assert same(apply_edits(source, [replace_symbol(source, symbol, each)]), text)


@given(modules(), st.sampled_from(["", "  ", "    ", "\t"]))
def test_a_new_definition_gets_the_indentation_of_its_place(text, margin):
    source = SourceText(text)
    new = "def new(y):\n    return '''\nno'''"
    shifted = f"{margin}def new(y):\n{margin}    return '''\nno'''"
    for symbol in flat(parse_symbols(PATH, text, "a.py")):
        if symbol.kind in ("constant", "variable", "field"):
            continue
        for edit in (
            replace_symbol(source, symbol, shifted),
            insert_at_symbol(source, symbol, shifted, after=True),
            insert_at_symbol(source, symbol, shifted, after=False),
        ):
            after = apply_edits(source, [edit])
            tree = ast.parse(after)
            made = [n for n in ast.walk(tree) if getattr(n, "name", "") == "new"]
            assert [ast.unparse(node) for node in made] == [ast.unparse(ast.parse(new))]


@given(modules())
def test_removing_leaves_the_rest_as_it_was(text):
    source = SourceText(text)
    for symbol in flat(parse_symbols(PATH, text, "a.py")):
        try:
            after = apply_edits(source, [remove_symbol(source, symbol)])
        except RespondToModel:
            assert ";" in text
            continue
        ast.parse(after)
        start, end = source.offset(symbol.range.start), source.offset(symbol.range.end)
        above = text[:start].split("\n")  # whose last line is the symbol's indentation
        while above[-2:-1] and above[-2].startswith(f"{above[-1]}#") and "%%" not in above[-2]:
            del above[-2]
        _, _, below = text[end:].partition("\n")  # a comment behind it goes, too
        rest = [w for w in after.split() if w != "pass"]
        assert rest == [w for w in (*" ".join(above).split(), *below.split()) if w != "pass"]


def one(text, name, path=PATH):
    return next(e for e in flat(parse_symbols(path, text, path.name)) if e.name == name)


def edited(text, name, do, path=PATH):
    source = SourceText(text)
    return apply_edits(source, [do(source, one(text, name, path))])


MODULE = """\
import os

# About f.
def f():
    return 1


class C:
    x = 1

    def g(self):
        return 2

    def h(self):
        return 3
"""


def test_insert_before_goes_above_the_comment_of_a_symbol():
    new = edited(MODULE, "f", lambda s, f: insert_at_symbol(s, f, "def e(): ...", after=False))
    assert new.startswith("import os\n\ndef e(): ...\n\n\n# About f.\ndef f():")


def test_insert_after_keeps_the_distance_of_methods():
    new = edited(MODULE, "g", lambda s, g: insert_at_symbol(s, g, "def n(self): ...", after=True))
    assert "        return 2\n\n    def n(self): ...\n\n    def h(self):" in new


def test_insert_after_the_last_line_without_a_break():
    new = edited("x = 1", "x", lambda s, x: insert_at_symbol(s, x, "y = 2", after=True))
    assert new == "x = 1\ny = 2"


def test_removing_takes_one_of_two_gaps():
    assert "    x = 1\n\n    def h(self):" in edited(MODULE, "g", remove_symbol)
    assert edited(MODULE, "h", remove_symbol).endswith("        return 2\n")
    assert "class C:\n    def g" in edited(MODULE, "x", remove_symbol)


def test_removing_the_only_statement_leaves_pass():
    assert (
        edited("class C:\n    x = 1\ny = 2\n", "x", remove_symbol) == "class C:\n    pass\ny = 2\n"
    )


def test_what_shares_its_line_is_not_removed():
    with pytest.raises(RespondToModel, match="shares its line"):
        edited("a = 1; b = 2\n", "a", remove_symbol)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (JS, "const b = 1,\n  a = 2\nf()\n"),
        (TS, "let b = 1,\n  a = 2;\n"),
        (PATH, "b = 1; \\\na = 2\nc = 3\n"),
        (PATH, "if b: c = 1; \\\na = 2\nd = 3\n"),
    ],
)
def test_what_is_declared_together_with_the_line_above_is_not_removed(path, text):
    with pytest.raises(RespondToModel, match=r"so it is not removed; edit "):
        edited(text, "a", remove_symbol, path)


@pytest.mark.parametrize(
    ("path", "text"),
    [(PATH, "class C: a = 1\n"), (PATH, "if b: a = 1\n"), (TS, "class C { a = 1 }\n")],
)
@pytest.mark.parametrize("after", [False, True])
def test_nothing_is_inserted_beside_what_shares_its_line(path, text, after):
    with pytest.raises(RespondToModel, match="shares its line"):
        edited(text, "a", lambda s, a: insert_at_symbol(s, a, "x = 2", after=after), path)


def test_decorators_in_front_of_a_method_belong_to_it():
    text = "class C {\n  b = 1;\n  @one\n  @two()\n  a() {}\n}\n"
    assert edited(text, "a", remove_symbol, TS) == "class C {\n  b = 1;\n}\n"


def test_decorators_above_a_comment_belong_to_it_too():
    text = "class C {\n  b = 1;\n  @one()\n  /** doc */\n  a() {}\n\n  c() {}\n}\n"
    assert edited(text, "a", remove_symbol, TS) == "class C {\n  b = 1;\n\n  c() {}\n}\n"
    new = edited(text, "a", lambda s, a: insert_at_symbol(s, a, "x() {}", after=False), TS)
    assert new.index("x() {}") < new.index("@one()")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (PATH, 'T = """\n# Heading"""\ndef f():\n    pass\n'),
        (PATH, 'class A:\n    """Doc.\n\n    # Notes"""\n    def f(self):\n        pass\n'),
        (JS, "const s = `\n// hi`;\nfunction f() {}\n"),
    ],
)
def test_the_end_of_a_text_is_no_comment(path, text):
    new_one = "g = 1" if path == PATH else "const g = 1;"
    new = edited(text, "f", lambda s, f: insert_at_symbol(s, f, new_one, after=False), path)
    assert new.index("g = 1") > max(new.find('"""', 12), new.find("hi`"))


def test_an_empty_text_is_refused():
    with pytest.raises(RespondToModel, match="text is empty"):
        edited(MODULE, "f", lambda s, f: replace_symbol(s, f, " \n"))


def test_a_method_written_from_its_first_letter():
    new = edited(MODULE, "g", lambda s, g: replace_symbol(s, g, "def g(self):\n        return 9"))
    assert "    def g(self):\n        return 9\n\n    def h" in new


FROM_THE_FIRST_LETTER = {
    "signature over lines": (PATH, "def a(\n        self,\n    ) -> int:\n        return 1"),
    "closing bracket": (PATH, "a = [\n        1,\n    ]"),
    "decorated, with a string": (PATH, "@b\n    def a(self):\n        return '''\nx\n'''"),
    "template": (TS, "a() {\n        return `\nx\n`;\n    }"),
}
OF_ITS_OWN = {
    "Python": (PATH, "def a(\n    self,\n):\n    return [\n        1,\n    ]", ()),
    "Python with a string": (PATH, "@b\ndef a(self):\n    return '''\nx\n'''", (3, 4)),
    "template": (TS, "a() {\n    return `\nx${`\n`}\n`;\n}", (2, 3, 4)),
}
IN_A_CLASS = {PATH: "class C:\n    {}\n", TS: "class C {{\n    {}\n}}\n"}


@pytest.mark.parametrize(
    ("path", "text"), FROM_THE_FIRST_LETTER.values(), ids=FROM_THE_FIRST_LETTER
)
def test_a_text_cut_out_from_the_first_letter_stays_as_it_is(path, text):
    before = IN_A_CLASS[path].format("a = 1")
    new = edited(before, "a", lambda s, a: replace_symbol(s, a, text), path)
    assert new == IN_A_CLASS[path].format(text)
    assert edited(new, "a", lambda s, a: replace_symbol(s, a, text), path) == new


@pytest.mark.parametrize(("path", "text", "inside"), OF_ITS_OWN.values(), ids=OF_ITS_OWN)
def test_a_text_on_its_own_is_shifted_but_for_strings(path, text, inside):
    before = IN_A_CLASS[path].format("a = 1")
    new = edited(before, "a", lambda s, a: replace_symbol(s, a, text), path)
    rows = enumerate(text.split("\n"))
    shifted = "\n".join(row if n in inside else f"    {row}" for n, row in rows)
    assert new == IN_A_CLASS[path].format(shifted.removeprefix("    "))


def test_spaces_go_into_a_file_of_tabs():
    text = "class C:\n\tdef a(self):\n\t\treturn 1\n"
    new = edited(text, "a", lambda s, a: replace_symbol(s, a, "def a(self):\n    return 2"))
    assert ast.unparse(ast.parse(new)) == "class C:\n\n    def a(self):\n        return 2"


def test_a_string_over_lines_keeps_its_value():
    text = 'def n(self):\n    return """a\nb"""'
    new = edited(MODULE, "g", lambda s, g: replace_symbol(s, g, text))
    assert '    def n(self):\n        return """a\nb"""\n\n    def h' in new


# A string over several lines, as (text, lines of it that begin inside a string).
STRINGS = {
    "parts": ('(\n    "a"\n    "b"\n)', ()),
    "parts and formats": ('(\n    f"{1}"\n    "b"\n    f"{2}"\n)', ()),
    "bytes": ('(\n    b"a"\n    b"b"\n)', ()),
    "long": ('"""a\n  b\nc"""', (1, 2)),
    "long format": ('f"""{1}\n  b{2}\nc"""', (1, 2)),
    "long in parts": ('(\n    "a"\n    """b\n  c"""\n    "d"\n)', (3,)),
    "continued": ('"a\\\n  b"', (1,)),
    "in a call": ('f(\n    """a\nb""",\n    "c",\n)', (2,)),
}


@pytest.mark.parametrize("margin", ["", "  ", "\t"])
@pytest.mark.parametrize("string", STRINGS.values(), ids=STRINGS)
def test_only_what_begins_inside_a_string_keeps_its_indentation(string, margin):
    text, inside = string
    rows = ["def n(self):", *f"    return {text}".split("\n")]
    kept = {number + 1 for number in inside}
    given = "\n".join(row if n in kept else margin + row for n, row in enumerate(rows))
    wanted = "\n".join(row if n in kept else f"    {row}" for n, row in enumerate(rows))
    new = edited(MODULE, "g", lambda s, g: replace_symbol(s, g, given))
    assert f"    x = 1\n\n{wanted}\n\n    def h" in new


# -- what stands beside a symbol ------------------------------------------------------------------

BESIDE = [
    # (before, the symbol's new text, after)
    ("a = 1  # kept\n", "a = 2", "a = 2  # kept\n"),
    ("a = 1  # kept\n", "a = 2  # kept", "a = 2  # kept\n"),
    ("a = 1  # old\n", "a = 2  # new", "a = 2  # new\n"),
    ("a = 1  # kept\n", "a = '# x'", "a = '# x'  # kept\n"),
    ("a = 1  # kept\n", "a = [  # one\n    2,\n]", "a = [  # one\n    2,\n]  # kept\n"),
    ("a = 1;\n", "a = 2", "a = 2;\n"),
    ("a = 1;\n", "a = 2;", "a = 2;\n"),
    ("a = 1;  # kept\n", "a = 2", "a = 2;  # kept\n"),
    ("a = 1; b = 2\n", "a = 3", "a = 3; b = 2\n"),
    ("def a():\n    return 1  # kept\n", "def a(): ...", "def a(): ...  # kept\n"),
]


@pytest.mark.parametrize(("before", "text", "after"), BESIDE)
def test_what_stands_behind_a_replaced_symbol_stays(before, text, after):
    assert edited(before, "a", lambda s, a: replace_symbol(s, a, text)) == after


def test_a_comment_may_not_hide_what_stands_behind():
    with pytest.raises(RespondToModel, match="shares its line"):
        edited("a = 1; b = 2\n", "a", lambda s, a: replace_symbol(s, a, "a = 3  # new"))


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("class C {\n  a = 1; // kept\n}\n", "a = 2", "class C {\n  a = 2; // kept\n}\n"),
        ("class C {\n  a = 1;\n}\n", "a = 2;", "class C {\n  a = 2;\n}\n"),
        ("const a = 1; // kept\n", "const a = '//';", "const a = '//'; // kept\n"),
        ("const a = 1; // old\n", "const a = 2; // new", "const a = 2; // new\n"),
        ("const a = 1; /* kept */\n", "const a = 2;", "const a = 2; /* kept */\n"),
        ("class C {\n  a() {} // old\n}\n", "a() {} // new", "class C {\n  a() {} // new\n}\n"),
        (
            "interface C {\n  a(): void;\n}\n",
            "a(): string; // new",
            "interface C {\n  a(): string; // new\n}\n",
        ),
    ],
)
def test_other_languages_keep_it_too(before, text, after):
    assert edited(before, "a", lambda s, a: replace_symbol(s, a, text), TS) == after


COMMENTS_ABOVE = [
    (PATH, "x = 1\n\n\n# One.\n# Two.\ndef a(): ...\n"),
    (JS, "let x = 1;\n\n/** One. */\nfunction a() {}\n"),
    (JS, "let x = 1;\n\n/**\n * One.\n */\n// Two.\nfunction a() {}\n"),
    (JS, "let x = 1;\n\n/*\n  One.\n\n  Two. */\nfunction a() {}\n"),
]


@pytest.mark.parametrize(("path", "text"), COMMENTS_ABOVE)
def test_comments_above_a_symbol_belong_to_it(path, text):
    head, _, _ = text.partition("\n")
    gap = "\n\n" if path == PATH else "\n"
    comments = text.removeprefix(f"{head}\n{gap}")
    above = edited(text, "a", lambda s, a: insert_at_symbol(s, a, "new", after=False), path)
    assert above == f"{head}\n{gap}new\n{gap}{comments}"
    assert edited(text, "a", remove_symbol, path) == f"{head}\n"


@pytest.mark.parametrize(
    ("above", "own"),
    [
        ("", "#[derive(A)]\n#[cfg_attr(\n    test,\n    derive(B)\n)]\n// One.\n"),
        ("const X: &[i32] = &[\n    1\n];\n", ""),
        ("x![\n    1 // #[b]\n]\n", ""),
    ],
)
def test_attributes_of_rust_belong_to_it_over_several_lines(above, own):
    source = SourceText(f"{above}{own}fn a() {{}}\n")
    start = len(above) + len(own)
    whole = source.range(start, len(source.text) - 1)
    symbol = Symbol("a", "function", RS, whole, source.range(start + 3, start + 4))
    assert apply_edits(source, [remove_symbol(source, symbol)]) == above


@pytest.mark.parametrize("line", ["#!/usr/bin/python", "# -*- coding: utf-8 -*-"])
def test_comments_of_the_file_are_not_those_of_its_first_symbol(line):
    assert edited(f"{line}\na = 1\nb = 2\n", "a", remove_symbol) == f"{line}\nb = 2\n"


MARKS = [
    "# %%",
    "#%% [markdown]",
    "# In[3]:",
    "# In [ ]:",
    "# <codecell>",
    "#region b",
    "# endregion",
]
MARKS_OF_SECTIONS = [*((PATH, mark) for mark in MARKS), (JS, "// %% b"), (TS, "//#endregion")]


@pytest.mark.parametrize(("path", "mark"), MARKS_OF_SECTIONS)
@pytest.mark.parametrize("comment", ["", " About a.\n"])
def test_what_marks_a_section_is_no_comment_of_its_first_symbol(path, mark, comment):
    var, sign = ("", "#") if path == PATH else ("var ", "//")
    head, own = f"{var}c = 0\n{mark}\n", f"{comment and sign}{comment}{var}a = 1\n"
    text = f"{head}{own}{var}b = 2\n"
    above = edited(text, "a", lambda s, a: insert_at_symbol(s, a, "new", after=False), path)
    assert above == f"{head}new\n{own}{var}b = 2\n"
    assert edited(text, "a", remove_symbol, path) == f"{head}{var}b = 2\n"


DECLARED = [
    *(
        "function a(b: string): void;",
        "const a: number;",
        "let a: string",
        "class a {\n  b(): void;\n}",
    ),
    *("abstract class a {}", "enum a { B }", "const enum a { B }", "type a = string;"),
    *("interface a { b: string }", "namespace a {\n  const b: number;\n}"),
]


@pytest.mark.parametrize("words", ["", "export ", "declare ", "export declare "])
@pytest.mark.parametrize("declared", DECLARED)
def test_the_words_before_a_declaration_are_part_of_it(words, declared):
    text = f"type before = 1;\n{words}{declared}\ntype behind = 2;\n"
    own = one(text, "a", TS)
    assert SourceText(text).part(own.range).rstrip(";") == f"{words}{declared}".rstrip(";")
    again = edited(text, "a", lambda s, a: replace_symbol(s, a, f"{words}{declared}"), TS)
    assert again == text
    assert edited(text, "a", remove_symbol, TS) == "type before = 1;\ntype behind = 2;\n"
