"""Tools called by hand take a `Path` where a model gives a text, and nothing that is no path."""

from pathlib import Path

import pytest

from agent_magics import RespondToModel
from agent_magics.tools import edit_file, glob, grep_files, list_dir, read_file, write_file


def test_a_path_is_as_good_as_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file(Path("a.txt"), "words\n")
    edit_file(Path("a.txt"), "words", "more words")
    assert read_file(Path("a.txt")) == "more words\n"
    assert [each.path for each in list_dir(Path())] == ["a.txt"]
    assert [each.path for each in glob("*.txt", Path())] == ["a.txt"]
    assert [each.line for each in grep_files("more", Path("a.txt"))] == [1]


@pytest.mark.parametrize("path", [5, None, b"a.txt", ["a.txt"]])
def test_what_is_no_path_is_told_in_one_sentence(path: object) -> None:
    with pytest.raises(RespondToModel, match="is no path"):
        read_file(path)
