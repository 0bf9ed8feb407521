"""`symbols`, and the tools that need a server, as a person and as a model call them."""

import asyncio
import re
import threading
from dataclasses import replace

import pytest

from agent_magics.dispatch.context import status_of
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import parse_symbols
from agent_magics.symbols.types import Definition, Diagnostic, Location, Position, Range, SymbolCall
from agent_magics.tools import (
    call_graph,
    definition,
    diagnostics,
    edit_symbol,
    references,
    symbols,
)
from agent_magics.tools.structure import names, notebooks, relations, sources
from tests.support.contexts import in_turn, make_context

SHAPES = '''\
class Shape:
    """A shape."""

    def area(self) -> float:
        return 0.0


class Square(Shape):
    side: float = 1

    def area(self) -> float:
        return self.side**2
'''
USE = "from shapes import Square\n\nTOKEN = 1\ntotal = Square().area()\n"


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(work)
    (work / "shapes.py").write_text(SHAPES)
    (work / "use.py").write_text(USE)
    return make_context(work)


def read(function, ctx, budget=10_000, **arguments):
    """Return what the model reads of a call."""
    given = {"path": "."} | arguments if "paths" not in arguments else arguments
    function.tool_options.assess(given, ctx)
    status_of(ctx).judged = True
    return asyncio.run(function(**arguments, ctx=ctx)).to_output(budget).text


def refusal(function, ctx, **arguments):
    with pytest.raises(RespondToModel) as error:
        read(function, ctx, **arguments)
    return str(error.value)


# -- symbols --------------------------------------------------------------------------------------


def test_a_file_is_listed_with_what_is_inside(ctx):
    assert read(symbols, ctx, path="shapes.py") == (
        "shapes.py\n"
        "  1-5 class Shape\n"
        "    4-5 method area(self) -> float\n"
        "  8-12 class Square(Shape)\n"
        "    9 field side: float\n"
        "    11-12 method area(self) -> float"
    )


def test_a_folder_is_listed_without(ctx):
    assert read(symbols, ctx).split("\n") == [
        "shapes.py", "  1-5 class Shape", "  8-12 class Square(Shape)",
        "use.py", "  3 constant TOKEN", "  4 variable total",
    ]  # fmt: skip


def test_a_name_path_finds_one_with_its_body(ctx):
    for name in ("Square/area", "Square.area", "/Square/area"):
        assert read(symbols, ctx, name_path=name, detail_level="full") == (
            "shapes.py\n"
            "  11-12 method Square/area(self) -> float\n"
            "  11|     def area(self) -> float:\n"
            "  12|         return self.side**2"
        )


def test_a_query_finds_parts_of_names_in_all_files(ctx):
    assert read(symbols, ctx, query="TO").split("\n") == [
        "use.py", "  3 constant TOKEN", "  4 variable total",
    ]  # fmt: skip
    assert read(symbols, ctx, query="nowhere") == "No symbols for nowhere."


def test_a_missing_name_is_answered_with_the_nearest(ctx):
    assert refusal(symbols, ctx, name_path="Square/aera") == (
        "There is no symbol Square/aera. Did you mean Square/area or Square/side or Square?"
    )
    assert "symbols lists what there is" in refusal(symbols, ctx, name_path="zzz", path="use.py")


def test_equal_names_are_told_apart(ctx):
    (ctx.cwd / "many.py").write_text("if x:\n    def f(): pass\nelse:\n    def f(): return 2\n")
    assert "4 function f[2]()" in read(symbols, ctx, path="many.py")
    text = read(symbols, ctx, path="many.py", name_path="f[2]", detail_level="full")
    assert "return 2" in text and "pass" not in text


def test_pages_of_the_full_view(ctx):
    text = "".join(f"def f{n}():\n    return {n}\n" for n in range(120))
    (ctx.cwd / "long.py").write_text(text)
    page = read(symbols, ctx, path="long.py", detail_level="full")
    assert "return 49" in page and "return 50" not in page
    assert "50 of 120 shown; go on with offset=50." in page
    last = read(symbols, ctx, path="long.py", detail_level="full", offset=100)
    assert "return 119" in last and "shown" not in last
    few = read(symbols, ctx, path="long.py", limit=3)
    assert few.endswith("3 of 120 shown; narrow path or query for others.")


def test_a_budget_is_kept_and_what_is_left_out_is_said(ctx):
    text = "".join(f"def f{n}():\n    return '{'x' * 90}'\n" for n in range(60))
    (ctx.cwd / "long.py").write_text(text)
    page = read(symbols, ctx, budget=2_000, path="long.py", detail_level="full")
    assert len(page) <= 2_000 and "go on with offset=" in page
    (ctx.cwd / "one.py").write_text("def f():\n" + "    x = 1\n" * 2_000)
    page = read(symbols, ctx, budget=2_000, path="one.py", detail_level="full")
    assert len(page) <= 2_000 and "… cut: read_file shows the rest" in page


def test_what_does_not_parse_is_said_with_its_line(ctx, monkeypatch):
    monkeypatch.setattr("agent_magics.symbols.parsing.has_grammar", lambda suffix: False)
    (ctx.cwd / "bad.py").write_text("x = 1\ndef f(:\n")
    assert "bad.py is no Python" in refusal(symbols, ctx, path="bad.py")
    assert "line 2" in refusal(symbols, ctx, path="bad.py")
    assert "bad.py" not in read(symbols, ctx)  # the other files are listed


def test_a_file_that_nothing_knows(ctx):
    (ctx.cwd / "a.xyz").write_text("x")
    assert "neither a language server nor a grammar" in refusal(symbols, ctx, path="a.xyz")
    assert "There is no a.py" in refusal(symbols, ctx, path="a.py")


@pytest.mark.parametrize("name", ["a.xyz", "bad.py", "missing.py"])
def test_a_query_in_one_file_is_refused_as_a_listing_is(ctx, monkeypatch, name):
    monkeypatch.setattr("agent_magics.symbols.parsing.has_grammar", lambda suffix: False)
    (ctx.cwd / "a.xyz").write_text("thing = 1\n")
    (ctx.cwd / "bad.py").write_text("thing = 1\ndef f(:\n")
    assert refusal(symbols, ctx, path=name, query="thing") == refusal(symbols, ctx, path=name)


def test_protected_and_ignored_files_are_left_out(ctx):
    (ctx.cwd / "skip").mkdir()
    (ctx.cwd / "skip" / "s.py").write_text("def hidden_thing(): pass\n")
    (ctx.cwd / ".gitignore").write_text("skip/\n")
    secret = ctx.cwd / ".ssh"
    secret.mkdir()
    (secret / "id_rsa.py").write_text("def hidden_thing(): pass\n")
    assert read(symbols, ctx, query="hidden") == "No symbols for hidden."
    assert "hidden_thing" in read(symbols, ctx, path="skip/s.py")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: symbols(name_path=7), "name_path=7 does not fit; it takes text"),
        (lambda: symbols(query=b"x"), "query=b'x' does not fit; it takes text"),
        (lambda: references(7), "name_path=7 does not fit; it takes text"),
        (lambda: definition(None), "name=None does not fit; it takes text"),
        (lambda: definition("x", line=0), "line is 0"),
        (lambda: definition("x", line="1"), "line='1' does not fit; it takes a whole number"),
        (
            lambda: call_graph("x", direction="up"),
            "direction='up' does not fit; it takes",
        ),
        (lambda: call_graph("x", depth=0), "depth is 0"),
        (lambda: diagnostics("none.py"), "There is no none.py"),
    ],
)
def test_wrong_arguments_by_hand_are_one_sentence(tmp_path, monkeypatch, call, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RespondToModel, match=re.escape(said)):
        asyncio.run(call())


def test_by_hand_it_is_a_list(ctx):
    found = asyncio.run(symbols("shapes.py"))
    assert [each.name_path for each in found][:2] == ["Shape", "Shape/area"]
    assert len(found) == 5 and "class Square" in repr(found)
    assert [found[0], *found[1:]] == list(found)
    assert "return" not in repr(found[0])  # the file's text is not shown


# -- with a server --------------------------------------------------------------------------------


class Server:
    """Answers with what a test gave it."""

    name = "test server"
    language = ""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def given(self, texts):
        return self

    def __getattr__(self, name):
        async def ask(*args, **kwargs):
            self.asked.append((name, *args))
            answer = self.answers[name]
            return answer(*args) if callable(answer) else answer

        return ask


class Servers:
    spawn = None

    def __init__(self, server):
        self.server = server

    async def provider_for(self, path):
        return self.server if path.suffix != ".none" else None

    def missing(self, path):
        return ""

    async def providers(self):
        return [self.server]


def at(path, line, start=0, end=1):
    return Location(path, Range(Position(line, start), Position(line, end)))


def with_server(ctx, **answers):
    server = Server(**answers)
    return in_turn(ctx, symbols=lambda: Servers(server)), server


def test_without_a_server_is_said_what_there_is(ctx):
    for function, arguments in (
        (references, {"name_path": "Square"}),
        (definition, {"name": "Square", "path": "use.py", "line": 1}),
        (call_graph, {"name_path": "Square/area"}),
        (diagnostics, {"paths": ["use.py"]}),
    ):
        assert "needs a language server, and none is set up for" in refusal(
            function, ctx, **arguments
        )


def test_references_name_lines_and_files(ctx):
    use, shapes = ctx.cwd / "use.py", ctx.cwd / "shapes.py"
    ctx, server = with_server(ctx, references=(at(shapes, 7), at(use, 0), at(use, 3)))
    assert read(references, ctx, name_path="Square").split("\n") == [
        "shapes.py:8-12 Square is used in 3 places of 2 files:",
        "shapes.py:8: class Square(Shape):",
        "use.py:1: from shapes import Square",
        "use.py:4: total = Square().area()",
    ]
    assert server.asked == [("references", shapes, Position(7, 6))]


def test_places_in_files_that_may_not_be_read_are_counted_alone(ctx):
    secret = ctx.cwd / ".env"
    secret.write_text("KEY=1\n")
    ctx, _ = with_server(ctx, references=(at(secret, 0), at(ctx.cwd / "use.py", 0)))
    text = read(references, ctx, name_path="Square")
    assert "KEY" not in text and ".env" not in text
    assert text.endswith("1 place in protected files left out.")


def test_many_references_are_paged(ctx):
    use = ctx.cwd / "use.py"
    ctx, _ = with_server(ctx, references=tuple(at(use, 0, n, n + 1) for n in range(300)))
    text = read(references, ctx, 100_000, name_path="Square")
    assert '200 of 300 shown; detail_level="full" shows pages.' in text
    text = read(references, ctx, name_path="Square", detail_level="full", offset=50)
    assert "50 of 300 shown; go on with offset=100." in text


def test_definition_tells_place_and_type(ctx):
    shapes = ctx.cwd / "shapes.py"
    text = "(method) def area() -> float"
    ctx, server = with_server(ctx, definition=Definition((at(shapes, 10, 8, 12),), text))
    assert read(definition, ctx, name="area", path="use.py", line=4).split("\n") == [
        "area is defined at:",
        "shapes.py:11: def area(self) -> float:",
        "(method) def area() -> float",
    ]
    assert server.asked[0] == ("definition", ctx.cwd / "use.py", Position(3, 17))
    assert refusal(definition, ctx, name="aera", path="use.py", line=4) == (
        "'aera' does not stand in line 4 of use.py. It has: total, Square, area."
    )
    assert "It has no names" in refusal(definition, ctx, name="x", path="use.py", line=99)


def test_definition_by_name_is_the_symbol_and_its_type(ctx):
    found = "shapes.py:8-12 Square is defined at:\nshapes.py:8: class Square(Shape):\n"
    assert read(definition, ctx, name="Square") == f"{found}class Square(Shape)"
    ctx, _ = with_server(ctx, definition=Definition((), "(class) class Square"))
    assert read(definition, ctx, name="Square") == f"{found}(class) class Square"


def test_what_is_defined_in_a_protected_file_is_not_described(ctx):
    secret = ctx.cwd / ".env"
    secret.write_text("KEY=1\n")
    ctx, _ = with_server(ctx, definition=Definition((at(secret, 0),), "KEY = 's3cret'"))
    text = read(definition, ctx, name="total", path="use.py", line=4)
    assert "s3cret" not in text and "1 place in protected files" in text


def test_a_call_graph_follows_callers_and_stops_at_circles(ctx):
    shapes = ctx.cwd / "shapes.py"
    tree = parse_symbols(shapes, SHAPES, "shapes.py")
    first, second = tree[0].children[0], tree[1].children[1]

    def calls(path, position):
        symbol = second if position == first.selection.start else first
        return (SymbolCall(symbol, (at(shapes, 4).range,)),)

    ctx, _ = with_server(ctx, incoming_calls=calls)
    text = read(call_graph, ctx, name_path="Shape/area", path="shapes.py", depth=3)
    assert text.split("\n") == [
        "callers of shapes.py:4-5 Shape/area:",
        "  shapes.py:11-12 Square/area (called in line 5)",
        "    shapes.py:4-5 Shape/area (called in line 5) …",
    ]
    assert "depth is 9" in refusal(call_graph, ctx, name_path="Square/area", depth=9)


def test_diagnostics_show_errors_first_of_all(ctx):
    place = at(ctx.cwd / "use.py", 3).range
    report = Diagnostic(ctx.cwd / "use.py", place, "error", "No\n  such name", "undefined")
    ctx, _ = with_server(
        ctx, diagnostics=(report, replace(report, severity="hint", message="Unused"))
    )
    assert read(diagnostics, ctx, paths=["use.py"]).split("\n") == [
        "use.py:4: error: No such name (undefined)",
        '1 hint left out; detail_level="full" has them.',
    ]
    assert "hint: Unused" in read(diagnostics, ctx, paths=["use.py"], detail_level="full")
    ctx, _ = with_server(ctx, diagnostics=())
    text = read(diagnostics, ctx, paths=["use.py", "shapes.py"])
    assert text == "No errors or warnings in 2 files."
    assert "give 1 to 50" in refusal(diagnostics, ctx, paths=[])


def test_symbols_of_other_languages_come_from_their_server(ctx):
    other = ctx.cwd / "a.xyz"
    other.write_text("thing\n")
    symbol = replace(parse_symbols(other.with_suffix(".py"), "x = 1", "")[0], path=other)
    ctx, _ = with_server(ctx, document_symbols=(symbol,), find=(replace(symbol, name="xyz_thing"),))
    assert read(symbols, ctx, path="a.xyz") == "a.xyz\n  1 variable x"
    assert "a.xyz\n  1 variable xyz_thing" in read(symbols, ctx, query="xyz")
    assert read(symbols, ctx, path="a.xyz", query="X") == "a.xyz\n  1 variable x"
    assert read(symbols, ctx, path="a.xyz", query="y") == "No symbols for y."


def test_what_servers_find_is_below_the_path_and_holds_the_query(ctx, monkeypatch):
    inside, beside = ctx.cwd / "sub" / "a.xyz", ctx.cwd / "b.xyz"
    inside.parent.mkdir()
    for file in (inside, beside):
        file.write_text("thing\n")
    symbol = parse_symbols(ctx.cwd / "x.py", "x = 1", "")[0]
    ctx, _ = with_server(
        ctx,
        find=tuple(
            replace(symbol, path=file, name=name)
            for file in (inside, beside)
            for name in ("thing", "other_thing", "near")  # servers match letters apart
        ),
    )
    readers = []

    def reading(paths, ctx, read=names.read_results):
        readers.append(threading.current_thread())
        return read(paths, ctx)

    monkeypatch.setattr(names, "read_results", reading)
    assert read(symbols, ctx, path="sub", query="Thing") == (
        "sub/a.xyz\n  1 variable thing\n  1 variable other_thing"
    )
    assert len(readers) == 1 and threading.current_thread() not in readers
    assert "sub/a.xyz:1 thing" in refusal(references, ctx, name_path="thing")
    assert "There is no symbol thing in docs" in _nothing_in(ctx, "docs")


def _nothing_in(ctx, name):
    (ctx.cwd / name).mkdir()
    return refusal(references, ctx, name_path="thing", path=name)


# -- limits of time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (symbols, {"path": ".", "name_path": "area"}),
        (definition, {"name": "Square"}),
        (references, {"name_path": "Square"}),
        (call_graph, {"name_path": "Square"}),
        (edit_symbol, {"name_path": "Square", "action": "remove"}),
    ],
)
def test_a_search_that_takes_too_long_ends_with_a_sentence(ctx, monkeypatch, function, arguments):
    ctx, _ = with_server(ctx)
    assert read(symbols, ctx, query="Square")
    monkeypatch.setattr(sources.scan, "__defaults__", (*sources.scan.__defaults__[:-1], 0.0))
    why = "The search below . was stopped after 0 s, before its end. Give a file or a smaller"
    assert why in refusal(function, ctx, **arguments)
    assert why in read(symbols, ctx) and why in read(symbols, ctx, query="area")


def test_a_list_shows_what_was_found_in_the_first_files(ctx, monkeypatch):
    for number in range(sources._MOST_AT_ONCE):
        (ctx.cwd / f"a{number}.py").write_text("def f(): pass\n")
    monkeypatch.setattr(sources, "_MOST_FILES", sources._MOST_AT_ONCE)
    limit = "The search below . was stopped after 50 files, before its end. Give a file or"
    assert f"  1 function f()\n{limit}" in read(symbols, ctx)
    assert f"  1 function f()\n{limit}" in read(symbols, ctx, query="f")
    assert f"No symbols for Square.\n{limit}" in read(symbols, ctx, query="Square")
    assert limit in refusal(references, ctx, name_path="f")


def test_what_completes_an_answer_is_cut_with_a_note(ctx, monkeypatch):
    monkeypatch.setattr(names, "SECONDS_BESIDE", 0.0)
    assert refusal(definition, ctx, name="sqare").endswith("symbols lists what there is.")
    monkeypatch.setattr(notebooks, "SECONDS_BESIDE", 0.0)
    ctx, _ = with_server(ctx, references=())
    note = "Notebooks were sought for 0 s: there may be more."
    assert note in read(references, ctx, name_path="Square", path="shapes.py")


def test_calls_are_followed_for_a_limited_time(ctx, monkeypatch):
    monkeypatch.setattr(relations, "_SECONDS", -1.0)
    ctx, _ = with_server(ctx, incoming_calls=())
    assert "Stopped after" in read(call_graph, ctx, name_path="Square/area")
