"""Law: on a full disk a call is answered in a sentence, no file is half written, and it heals."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.config_files.places import state_folder
from agent_magics.tools import TOOL_SETS
from tests.support.needs import not_tested
from tests.support.turns import assert_valid, outputs

pytestmark = pytest.mark.needs("root", "program mount")

OLD = "old\n" * 30_000  # more than the blocks that are left
NEW = "new\n" * 60_000
PATCH = f"*** Begin Patch\n*** Add File: new.txt\n+{'x' * 99_999}\n*** End Patch"
DELETE = "*** Delete File: old.txt"
CALLS = {
    "a new file": ("write_file", {"path": "new.txt", "content": NEW}),
    "a file again": ("write_file", {"path": "old.txt", "content": NEW}),
    "an edit": ("edit_file", {"path": "old.txt", "old": OLD, "new": NEW}),
    "a patch": ("apply_patch", {"patch": PATCH}),
    "a patch of two": ("apply_patch", {"patch": PATCH.replace("*** End", f"{DELETE}\n*** End")}),
    "a new folder": ("write_file", {"path": "a/b/c/new.txt", "content": NEW}),
    "a note": ("remember", {"topic": "size", "text": "It is small. " * 1000, "scope": "project"}),
    "a command": ("shell", {"command": ["bash", "-c", "yes | head -c 3000000; echo end"]}),
    "a command that writes": ("shell", {"command": ["bash", "-c", "cp old.txt new.txt; echo end"]}),
    "scratch": ("python", {"code": "print('x' * 3_000_000)", "where": "scratch"}),
}  # fmt: skip


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A disk of 4 MB with the workspace, the records and the temporary files."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, text=True
    )
    if made.returncode:
        not_tested("a small disk", made.stderr.strip())
    try:
        (place / "work").mkdir()
        for name, folder in (("XDG_STATE_HOME", "state"), ("TMPDIR", "tmp")):
            (place / folder).mkdir()
            monkeypatch.setenv(name, str(place / folder))
        monkeypatch.chdir(place / "work")
        yield place
    finally:
        os.chdir(tmp_path)
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


@pytest.mark.soak
@pytest.mark.parametrize("case", CALLS)
def test_a_call_on_a_full_disk_is_answered_and_nothing_is_half_written(disk, case):
    name, arguments = CALLS[case]
    Path("old.txt").write_text(OLD, encoding="utf-8")
    tools = [*TOOL_SETS["data"], "write_file", "edit_file"]
    script = ["Hello.", Call(name, arguments), "Done.", Call(name, arguments), "Done."]
    with Agent(ScriptedModel(script), tools, approval="never") as agent:
        agent.run_sync("Begin.")
        filler = fill(disk)
        result = agent.run_sync("Go.")
        assert (result.status, result.error) == ("completed", None)
        assert_valid(agent)
        assert Path("old.txt").read_text(encoding="utf-8") == OLD
        if name not in ("shell", "python"):  # commands leave what they have written
            assert "No space left" in str(outputs(agent)[-1])
            assert [path.name for path in Path().rglob("*") if path.is_file()] == ["old.txt"]
        os.truncate(filler, 0)  # deleted, it would stay while Landlock's rules of scratch name it
        again = agent.run_sync("Go on.")
        assert (again.status, again.error) == ("completed", None)
        assert "No space" not in str(outputs(agent)[-1])
    assert any(state_folder().rglob("*.jsonl"))
