"""Files that change in any order: a server that runs answers as one would that begins now."""

import os
import random
import re

import pytest

from agent_magics.symbols.provider import Position
from tests.support.language_servers.project import Project, project, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

FILES = ("a.py", "b.py", "deep/c.py", "deep/er/d.py", "ünï.py")
NAMES = ("alpha", "gamma", "delta")  # of one length: a file's size tells nothing
STEPS = 1_000


def _change(draw: random.Random, found: Project) -> None:
    """Change one file in one of the ways in which people and programs do."""
    path, other = (found.folder / name for name in draw.sample(FILES, 2))
    text = "".join(
        f"def {draw.choice(NAMES)}():\n    '🐍'; {draw.choice(NAMES)}\n" for _ in range(2)
    )
    match draw.choice(("write", "write", "put", "append", "delete", "move")):
        case "write":
            found.write(str(path), text)
        case "put":  # as editors and git do
            os.replace(found.write("new.tmp", text), path)
        case "append" if path.exists():
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        case "delete":
            path.unlink(missing_ok=True)
        case "move" if path.exists():
            os.replace(path, other)


def _files(found: Project) -> dict:
    return {path: path.read_text("utf-8") for path in sorted(found.folder.rglob("*.py"))}


async def _compare(draw: random.Random, found: Project) -> None:
    """Ask one question, and compare the answer with what stands in the files."""
    files = _files(found)
    path = draw.choice(list(files)) if files else None
    name = draw.choice(NAMES)
    match draw.choice(("symbols", "find", "references")):
        case "symbols" if path is not None:
            answer = await found.provider.document_symbols(path)
            assert [each.name for each in answer] == re.findall(r"def (\w+)", files[path])
        case "references" if path is not None:
            row = files[path].split("\n")[0]
            answer = await found.provider.references(path, Position(0, len("def ")))
            assert [(each.path, each.range.start) for each in answer] == [
                (file, Position(number, match.start()))
                for file, text in files.items()
                for number, line in enumerate(text.split("\n"))
                for match in re.finditer(rf"\b{row[4:9]}\b", line)
            ]
        case _:
            answer = await found.provider.find(name)
            assert sorted(each.path for each in answer) == sorted(
                file for file, text in files.items() for _ in re.findall(f"def {name}", text)
            )


@pytest.mark.parametrize("seed", range(4))
def test_changes_and_questions_in_any_order(tmp_path, seed):
    draw = random.Random(seed)

    async def work():
        async with project(tmp_path) as found:
            for name in FILES:
                found.write(name, "def alpha():\n    beta\n")
            for _ in range(STEPS // 4):
                for _ in range(draw.randrange(3)):
                    _change(draw, found)
                await _compare(draw, found)
            assert found.server.state.restarts == 0

    run(work())
