"""What a rename makes of the edits of a server, and which texts name a symbol of a module."""

import asyncio
from pathlib import Path

import pytest

from agent_magics.dispatch.context import status_of
from agent_magics.symbols.edits import apply_edits
from agent_magics.symbols.types import Definition, Position, Range, TextEdit
from agent_magics.tools.structure.names import find_one
from agent_magics.tools.structure.renaming import module_of, of_names, renaming
from agent_magics.tools.structure.sources import SourceFile
from tests.support.contexts import in_turn, make_context

OLD = "def f(a):\n    return a\n\n\nprint(f(1), 'f')\n"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_an_edit_of_a_whole_file_is_one_of_its_names(ends):
    file = SourceFile(Path("/a.py"), "a.py", OLD.replace("\n", ends))
    new = OLD.replace("f(", "other(")
    whole = TextEdit(Range(Position(0, 0), Position(5, 0)), new)
    edits = of_names(file, [whole])
    assert [each.text for each in edits] == ["other", "other"]
    assert apply_edits(file.source, edits) == new.replace("\n", ends)


@pytest.mark.parametrize("text", ["g", "f as g", "", "(f)"])
def test_another_edit_stays(text):
    file = SourceFile(Path("/a.py"), "a.py", OLD)
    edit = TextEdit(Range(Position(0, 4), Position(0, 5)), text)
    assert of_names(file, [edit]) == [edit]


def test_a_module_is_named_by_the_packages_around_it(tmp_path):
    inner = tmp_path / "src" / "pack" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    names = {module_of(each) for each in (inner / "a.py", inner / "__init__.py", tmp_path / "b.py")}
    assert names == {"pack.inner.a", "pack.inner", "b"}


class Server:
    """A language server that renames a definition alone, and knows nothing of texts."""

    name = "test server"

    def given(self, texts):
        return self

    async def rename(self, path, position, name):
        end = Position(position.line, position.character + len("db"))
        return {path: (TextEdit(Range(position, end), name),)}

    async def definition(self, path, position):
        return Definition((), "")


class Servers:
    async def provider_for(self, path):
        return Server()


TEXTS = {  # by the module: texts that can mean nothing else, and those that can
    "app/__init__.py": (
        [
            "patch('app.db')",
            'mocker.patch( "app.db.session")',
            "monkeypatch.setattr('app.db', 1)",
            "patch.dict('app.db', a=1)",
            "resolve_name('app.db')",
        ],
        ["'app.db'", "open('app.db')", "join(A, 'app.db')", "despatch('app.db')", "'app.db.old'"],
    ),
    "app/store/__init__.py": (
        ["'app.store.db'", "open('app.store.db')", "patch('app.store.db.csv')"],
        ["'store.db'", "'app.store.db.csv'"],
    ),
    "app.py": (["patch('app.db')"], ["'app.db'"]),
}  # fmt: skip


@pytest.mark.parametrize("module", TEXTS)
def test_a_text_that_may_be_the_name_of_a_file_is_a_doubt(tmp_path, monkeypatch, module):
    work = tmp_path / "work"
    (work / module).parent.mkdir(parents=True)
    for folder in (work / module).parents:
        if folder.is_relative_to(work / "app"):
            (folder / "__init__.py").touch()
    (work / module).write_text("db = 1\n")
    certain, doubtful = TEXTS[module]
    (work / "config.py").write_text("\n".join(certain + doubtful))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(work)
    ctx = in_turn(make_context(work), symbols=Servers)
    status_of(ctx).judged = True

    async def rename():
        return await renaming(await find_one("db", module, None), "database", ctx)

    changes, _, doubts = asyncio.run(rename())
    found = {file.shown: apply_edits(file.source, edits) for file, edits in changes}
    wanted = [text.replace("db", "database") for text in certain]
    assert found == {module: "database = 1\n", "config.py": "\n".join(wanted + doubtful)}
    lines = ",".join(str(len(certain) + number) for number in range(1, len(doubtful) + 1))
    assert f"does not know what db is in config.py:{lines}: edit the lines that" in doubts
