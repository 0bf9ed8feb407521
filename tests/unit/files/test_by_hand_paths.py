"""Tools called by hand take a `Path` where a model gives a text; what does not fit is told."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from agent_magics import RespondToModel, tools
from agent_magics.tools import edit_file, glob, grep_files, list_dir, read_file, symbols, write_file


def test_a_path_is_as_good_as_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file(Path("a.txt"), "words\n")
    edit_file(Path("a.txt"), "words", "more words")
    assert read_file(Path("a.txt")) == "more words\n"
    assert [each.path for each in list_dir(Path())] == ["a.txt"]
    assert [each.path for each in glob("*.txt", Path())] == ["a.txt"]
    assert [each.line for each in grep_files("more", Path("a.txt"))] == [1]
    Image.new("RGB", (2, 2)).save("a.png")
    assert str(tools.view_image(Path("a.png"))).startswith("a.png: 2 x 2")


@pytest.mark.parametrize("path", [5, None, b"a.txt", ["a.txt"]])
def test_what_is_no_path_is_told_in_one_sentence(path: object) -> None:
    with pytest.raises(RespondToModel, match="is no path"):
        read_file(path)


@pytest.mark.parametrize("value", ["x", 1.5, [], {}, True, b"1", float("nan")])
@pytest.mark.parametrize(
    ("tool", "name"),
    [
        *((read_file, name) for name in ("start_line", "end_line", "max_lines", "offset_bytes")),
        *((list_dir, name) for name in ("max_depth", "offset", "limit")),
        *((grep_files, name) for name in ("max_results", "context")),
        (glob, "limit"),
        (symbols, "depth"),
    ],
)
def test_what_is_no_number_is_told_in_one_sentence(
    tool: Callable[..., object], name: str, value: object
) -> None:
    Path("a.txt").touch()
    first = {read_file: "a.txt", list_dir: ".", grep_files: "x", glob: "*", symbols: "."}[tool]
    with pytest.raises(RespondToModel, match=f"{name}=.* does not fit; it takes a whole number"):
        asyncio.run(_called(tool, first, **{name: value}))


async def _called(tool: Callable[..., Any], *first: str, **given: object) -> None:
    result = tool(*first, **given)
    if inspect.isawaitable(result):
        await result


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the parameters that take text, with their tools."""
    for name in tools.__all__:
        for each in inspect.signature(getattr(tools, name)).parameters.values():
            if each.annotation in (str, str | None):
                yield name, each.name


TEXTS: dict[str, object] = {"path": "a.txt", "topic": "a", "command": "true"}
OTHERS: dict[str, object] = {"command": ["true"], "session_id": 1}
# What a model says for approval, or of the plan, and what it searches: by hand nobody reads it.
UNREAD = {("tool_search", "query"), ("update_plan", "explanation")}
UNREAD |= {(each, "justification") for each in ("exec_command", "shell", "shell_command")}


@pytest.mark.parametrize(("name", "parameter"), sorted({*_texts()} - UNREAD))
@pytest.mark.parametrize("value", [5, b"x", [1]])
def test_what_is_no_text_is_told_in_one_sentence(name: str, parameter: str, value: object) -> None:
    Path("a.txt").write_text("x")
    tool = getattr(tools, name)
    signature = inspect.signature(tool).parameters.values()
    needed = [each for each in signature if each.default is each.empty]
    kinds = {
        each.name: TEXTS if each.annotation in (str, str | Path) else OTHERS for each in needed
    }
    given = {each: kinds[each].get(each, "x") for each in kinds} | {parameter: value}
    with pytest.raises(RespondToModel):
        asyncio.run(_called(tool, **given))


@pytest.mark.parametrize("value", ["sise", "", 1, [], None])
def test_a_choice_that_there_is_not_is_told_in_one_sentence(value: Any) -> None:
    with pytest.raises(RespondToModel, match=r"sort=.* does not fit; it takes 'name' or 'size'"):
        list_dir(".", sort=value)
    with pytest.raises(RespondToModel, match=r"output_mode=.* does not fit; it takes 'content'"):
        grep_files("x", output_mode=value)
