"""A process swaps a folder for a link, thousands of times, while files are read and patched.

The link leads to a protected folder outside of the workspace: nothing there may be read or changed.
The control does the same without what is tested (judge the path, then open it) and must be beaten.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_magics.approval.actions import ActionKind
from agent_magics.dispatch.context import ToolContext, TurnContext, status_of
from agent_magics.files.paths import is_denied_read, resolve_path
from agent_magics.patch.grammar import parse_patch
from agent_magics.patch.plan import plan_patch
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.listing import list_dir
from agent_magics.tools.files.patch import apply_patch, assess_patch
from agent_magics.tools.files.path_judge import PathJudge
from agent_magics.tools.files.reading import read_file
from agent_magics.tools.files.searching import grep_files

ROUNDS = 300
CONTROL_SECONDS = 60.0

# RENAME_EXCHANGE (linux/fs.h): both names exist at every moment, and what they mean changes.
SWAP = """
import ctypes, sys
folder, link = (name.encode() for name in sys.argv[1:])
libc = ctypes.CDLL(None)
print("swapping", flush=True)
while True:
    libc.renameat2(-100, folder, -100, link, 2)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a key in it, and a workspace in which `d` is swapped for a link to that."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/f").write_text("SECRET outside\n", encoding="utf-8")
    (tmp_path / ".ssh/only_outside").touch()
    (tmp_path / "project/d").mkdir(parents=True)
    (tmp_path / "project/d/f").write_text("inside\n", encoding="utf-8")
    (tmp_path / "project/l").symlink_to(tmp_path / ".ssh")
    names = [str(tmp_path / "project/d"), str(tmp_path / "project/l")]
    swapper = subprocess.Popen([sys.executable, "-c", SWAP, *names], stdout=subprocess.PIPE)
    assert swapper.stdout.readline() == b"swapping\n"
    yield tmp_path
    swapper.kill()
    swapper.wait()
    swapper.stdout.close()


def outside(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() if path.is_file() else b"a folder"
        for path in (home / ".ssh").iterdir()
    }


def context(home: Path) -> ToolContext:
    config = RunConfig(cwd=home / "project")
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="default",
        config=config,
        env={},
        emit=lambda *_, **__: None,
        ask=None,
        call=None,
        validate_path=PathJudge(config),
        messages=lambda: (),
        main_thread=None,
    )
    return ToolContext(turn, "call-1", "tool")


def until_beaten(attempt) -> bool:
    limit = time.monotonic() + CONTROL_SECONDS
    while time.monotonic() < limit:
        if attempt():
            return True
    return False


@pytest.mark.soak
def test_control_judging_and_then_opening_is_beaten(home):
    path = home / "project/d/f"

    def read() -> bool:
        try:
            return not is_denied_read(path) and "SECRET" in path.read_text(encoding="utf-8")
        except (OSError, RespondToModel):
            return False

    def write() -> bool:
        try:
            real = os.path.realpath(path)
            if real.startswith(f"{home}/project/"):
                # Written by a name beside it and a rename, as editors do.
                beside = Path(f"{real}.new")
                beside.write_text("EVIL\n", encoding="utf-8")
                os.replace(beside, real)
        except OSError:
            return False
        return outside(home).get("f") != b"SECRET outside\n" or "f.new" in outside(home)

    assert until_beaten(read)
    assert until_beaten(write)


@pytest.mark.soak
def test_reading_never_shows_what_is_outside(home):
    shown = []
    for number in range(ROUNDS):
        ctx = context(home)
        tool = (read_file, grep_files, list_dir)[number % 3]
        arguments = {
            read_file: {"path": "d/f"},
            grep_files: {"pattern": "inside|SECRET", "path": "."},
            list_dir: {"path": "d" if number % 2 else ".", "recursive": True},
        }[tool]
        try:
            for action in tool.tool_options.assess(arguments, ctx):
                if action.reason:
                    raise RespondToModel("the person would be asked")
            ctx.extra.clear()  # nobody was asked about a protected file
            status_of(ctx).judged = True
            shown.append(tool(**arguments, ctx=ctx).to_output(10_000).text)
        except RespondToModel:
            continue
    everything = "\n".join(shown)
    assert "SECRET outside" not in everything and "only_outside" not in everything
    assert "inside" in everything  # it was read, where it was there


@pytest.mark.soak
def test_patching_never_touches_what_is_outside(home):
    before, told = outside(home), []

    def patch(folder: str, number: int) -> None:
        ctx = context(home)
        text = (
            f"*** Begin Patch\n*** Add File: {folder}/f\n+inside {number}\n"
            f"*** Add File: {folder}/new{number}/g\n+x\n*** End Patch\n"
        )
        if any(action.reason for action in assess_patch({"patch": text}, ctx)):
            raise RespondToModel("the person would be asked")
        apply_patch(patch=text, ctx=ctx)

    for number in range(3 * ROUNDS):
        try:
            patch("d", number)
        except RespondToModel as refusal:
            told.append(str(refusal))
        assert outside(home) == before
    assert "SECRET" not in "\n".join(told)
    patch("stays", 0)  # where nothing is swapped it is applied
    assert (home / "project/stays/new0/g").read_text(encoding="utf-8") == "x\n"


def test_what_is_judged_is_what_was_found(home, monkeypatch):
    """A link led outside when the path was looked up, and inside when it was judged."""
    found = home / ".ssh" / "new"
    monkeypatch.setattr("agent_magics.tools.files.patch.resolve_path", lambda *_: found)
    text = "*** Begin Patch\n*** Add File: d/new\n+x\n*** End Patch\n"
    (action,) = assess_patch({"patch": text}, context(home))
    assert action.kind is ActionKind.WRITE_OUTSIDE
    # As written `d` may be the link just now, which has a reason of its own.
    assert action.reason in ("outside the workspace", "protected: SSH keys")


def test_a_plan_made_inside_is_not_applied_outside(home):
    """Read and judged while it is a folder, written when it may be a link."""
    before, outcomes = outside(home), set()

    def resolve(name: str) -> Path:
        path = resolve_path(name, home / "project")
        if not path.is_relative_to(home / "project"):
            raise RespondToModel("outside")
        return path

    for number in range(ROUNDS):
        text = f"*** Begin Patch\n*** Add File: d/h{number}\n+x\n*** End Patch\n"
        try:
            plan_patch(parse_patch(text), resolve).apply()
            outcomes.add("applied")
        except RespondToModel:
            outcomes.add("refused")
        assert outside(home) == before
    assert outcomes == {"applied", "refused"}
