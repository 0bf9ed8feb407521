"""What a rename makes of the edits of a server, and by which names a module is known."""

from pathlib import Path

import pytest

from agent_magics.symbols.edits import apply_edits
from agent_magics.symbols.types import Position, Range, TextEdit
from agent_magics.tools.structure.renaming import module_of, of_names
from agent_magics.tools.structure.sources import SourceFile

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
