r"""A cell's text and the fields of its prompt reach the model as they were written."""

from pathlib import Path

import pytest

from agent_magics.config_files.places import config_folder
from agent_magics.kernel.cell.request.reading import read_prompt, split_prompt, text_of
from agent_magics.kernel.typed_words import split_words
from tests.support.skills import home

__all__ = ["home"]


@pytest.fixture
def workspace(home: object, tmp_path: Path) -> Path:
    """Return a workspace where the person's own prompt `of` has one field."""
    folder = config_folder() / "prompts"
    folder.mkdir(parents=True)
    (folder / "of.md").write_text("<{{field}}>\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"C:\data\new.csv", r"C:\data\new.csv"),
        (r'"C:\data  of\new.csv"', r"C:\data  of\new.csv"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"'^\d+\s\"x\"$'", r"^\d+\s\"x\"$"),
        ('{{months["the last"]}}', "May"),
        ('"in {{months["the last"]}} only"', "in May only"),
        ("O'Brien", "O'Brien"),
    ],
)
def test_a_field_of_a_prompt_is_what_was_written(workspace: Path, written: str, read: str) -> None:
    namespace: dict[str, object] = {"months": {"the last": "May"}}
    line = f"of field={written}"
    words, text = split_prompt(f"/{line}\n\n  more\n", workspace)
    assert words == split_words(line) and text == "  more"
    assert read_prompt(words, workspace, namespace).strip() == f"<{read}>"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("    def f():\n        return 1\n", "    def f():\n        return 1"),
        ("\n  \n\t- a\n  - b  \n\n", "\t- a\n  - b"),
        ("  \n ", ""),
        ("  ", ""),
        ("a\n\nb", "a\n\nb"),
    ],
)
def test_the_first_line_keeps_its_margin(cell: str, text: str) -> None:
    assert text_of(cell) == text
