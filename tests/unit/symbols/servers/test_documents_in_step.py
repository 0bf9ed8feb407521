"""Files that change in any order: a server that runs answers as one would that begins now."""

import ast
import asyncio
import os
import random
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from lsprotocol import types

from agent_magics import Agent, ScriptedModel
from agent_magics.symbols.servers import documents
from agent_magics.symbols.servers.specs import find_server
from agent_magics.symbols.types import Position
from tests.support.language_servers.project import Project, project, run
from tests.support.rows.watchers import wait_until

pytestmark = pytest.mark.timeout(900)

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


@pytest.mark.soak
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
)
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


def test_a_question_that_is_given_up_loses_no_change(tmp_path):
    async def work():
        async with project(tmp_path) as found:
            found.write("a.py", "def alpha(): pass\n")
            await found.provider.find("alpha")
            path = found.write("b.py", "def gamma(): pass\n")
            _wait_until_old(path)
            session = found.server.running
            seen = session._documents._seen
            asking = asyncio.create_task(found.provider.find("gamma"))
            await _until(session._looking.locked)
            asking.cancel()
            await _until(lambda: session._documents._seen is not seen)
            assert [each.path for each in await found.provider.find("gamma")] == [path]

    run(work())


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)


def _wait_until_old(path: Path) -> None:
    """Wait until any later change gives a file or folder another status."""
    wait_until(lambda: time.time_ns() > path.stat().st_ctime_ns + 2 * documents._TICK_NS)


def test_a_folder_is_listed_again_after_every_change(tmp_path, monkeypatch):
    folder, kinds = tmp_path / "deep", types.FileChangeType
    folder.mkdir()
    files = documents.Documents(None, tmp_path, "python")
    files.look()
    path, other, inner = folder / "a.py", folder / "other.py", folder / "inner"
    monkeypatch.setattr(documents, "_FOLDER_TICK_NS", 10**9 * 3_600)
    path.touch()
    assert files.look() == {str(path): kinds.Created}
    assert not files._folders[str(folder)].stamp  # so recent that a later one may be the same
    monkeypatch.setattr(documents, "_FOLDER_TICK_NS", documents._TICK_NS)
    for change, seen in (
        (partial(path.rename, other), {path: kinds.Deleted, other: kinds.Created}),
        (inner.mkdir, {}),
        ((inner / "x.py").touch, {inner / "x.py": kinds.Created}),
        (partial(inner.rename, folder / "new"), {inner / "x.py": kinds.Deleted}),
        (other.unlink, {other: kinds.Deleted}),
    ):
        for each in (folder, *folder.iterdir()):
            _wait_until_old(each)
        files.look()
        listed = files._folders[str(folder)]
        files.look()
        assert files._folders[str(folder)] is listed
        change()
        assert files.look().items() >= {str(path): how for path, how in seen.items()}.items()


# -- basedpyright ---------------------------------------------------------------------------------

MODULES = ("a", "b", "deep/c", "ünï")


def _module(draw: random.Random) -> str:
    """Return Python that uses names of other modules, which may be gone, and has errors."""
    other, name = draw.choice(MODULES).replace("/", "."), draw.choice(NAMES)
    parts = [f"from {other} import {draw.choice(NAMES)}"]
    parts += [f"class Box:\n    '🐍'; {draw.choice(NAMES)} = {name} = 1"] * draw.randrange(2)
    parts += [f"def {draw.choice(NAMES)}(x: int = {draw.choice(('1', chr(34) * 2))}): {name}(x)"]
    return "\n".join(parts) + "\n"


async def _edit(draw: random.Random, agent: Agent, folder: Path, git: list[str]) -> None:
    """Change files by a tool, a command, git, or as a person does."""
    path, other = (folder / f"{name}.py" for name in draw.sample(MODULES, 2))
    text = _module(draw)
    path.parent.mkdir(exist_ok=True)  # git takes empty folders away
    match draw.choice(("tool", "command", "git", "commit", "person", "person", "delete")):
        case "tool":
            await agent.call("write_file", {"path": str(path), "content": text})
        case "command":
            words = draw.choice((f"mv {path} {other}", f"cp {other} {path}", f"echo >> {path}"))
            await agent.call("shell", {"command": words})
        case "git":
            _git(folder, "checkout", "-qf", draw.choice(git))
        case "commit":
            _git(folder, "add", "-A")
            _git(folder, "commit", "-q", "--allow-empty", "-m", "x")
            git.append(_git(folder, "rev-parse", "HEAD"))
        case "person":
            path.write_text(text, "utf-8")
        case "delete":
            path.unlink(missing_ok=True)


def _git(folder, *words: str) -> str:
    names = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=m")
    command = ["git", *names, *words]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


async def _answers(found: Project) -> dict:
    """Return all that a server knows of the files: symbols, errors, uses."""
    answers = {}
    for path, text in _files(found).items():
        tree = await found.provider.document_symbols(path)
        answers[path] = tree, await found.provider.diagnostics(path)
        assert {each.name for each in tree} >= {
            each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)
        }
        for each in tree:
            start = each.selection.start
            answers[path, start] = await found.provider.references(path, start)
    return answers


@pytest.mark.needs("program git")
@pytest.mark.parametrize(
    ("steps", "between"),
    [
        pytest.param(24, 12, marks=pytest.mark.soak),
        # Four minutes, under load fifteen, with twenty other servers.
        pytest.param(1_000, 50, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_a_real_server_answers_as_one_that_begins_now(tmp_path, steps, between):
    draw = random.Random(steps)
    server = find_server("python", {})

    async def work():
        async with project(tmp_path / "work", server) as found:
            for name in MODULES:
                found.write(f"{name}.py", _module(draw))
            _git(found.folder, "init", "-q")
            _git(found.folder, "add", "-A")
            _git(found.folder, "commit", "-q", "-m", "x")
            git = [_git(found.folder, "rev-parse", "HEAD")]
            options = {"approval": "never", "sandbox": "danger-full-access", "cwd": found.folder}
            with Agent(ScriptedModel([]), tools=["write_file", "shell"], **options) as agent:
                for step in range(1, steps + 1):
                    await _edit(draw, agent, found.folder, git)
                    if paths := list(_files(found)):
                        await found.provider.document_symbols(draw.choice(paths))
                    if step % between == 0:
                        async with project(found.folder, server) as new:
                            ours, theirs = await _answers(found), await _answers(new)
                            for key in {*ours, *theirs}:
                                assert ours.get(key) == theirs.get(key), (step, key)
            assert found.server.state.restarts == 0

    (tmp_path / "work").mkdir()
    run(work())
