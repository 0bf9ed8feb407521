"""A turn's changes of files, by patches, commands and nested calls: told, undone, made again."""

import json
import os
import struct
from pathlib import Path

import pytest

from agent_magics import Agent, Call, tool
from agent_magics.config_files.places import state_folder
from agent_magics.dispatch.context import ToolContext
from agent_magics.file_history.journal import FILE
from agent_magics.files.trusted_imports import _distrusted, distrust
from agent_magics.protocol.codec import from_json
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import ModelInformed, TurnDiffUpdated
from agent_magics.protocol.items import UserMessage
from agent_magics.records.places import rollout_folder
from tests.support.turns import of_kind, scripted

TOOLS = ["apply_patch", "write_file", "shell_command", "exec_command", "write_stdin"]
PATCH = """*** Begin Patch
*** Update File: a.txt
@@
-one
+two
*** Add File: made/b.txt
+new
*** End Patch
"""


# An access list as Linux keeps it: the user 12345 may read, the group may nothing.
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, rights, who)
    for tag, rights, who in (
        *((1, 6, 0xFFFFFFFF), (2, 4, 12345), (4, 0, 0xFFFFFFFF)),
        *((16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)),
    )
)
ATTRIBUTES = {"user.xdg.origin.url": b"https://x", "system.posix_acl_access": ACL}


def attributes_of(path: str) -> dict[str, bytes]:
    """The attributes of a file, and its mode beside them."""
    found = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return {**found, "mode": oct(os.stat(path).st_mode)}


def command(line: str, **more) -> Call:
    return Call("shell_command", {"command": line, **more})


def changed(result) -> list[str]:
    return [file.path for file in of_kind(result, TurnDiffUpdated)[-1].files]


@pytest.fixture
def agent():
    made: list[Agent] = []

    def make(*turns, **more) -> Agent:
        more = {"sandbox": "danger-full-access", "tools": TOOLS, **more}
        made.append(scripted(*turns, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def tree() -> dict[str, str]:
    return {str(p): p.read_text() for p in sorted(Path().rglob("*")) if p.is_file()}


def test_no_name_of_what_is_stored_holds_a_key(agent):
    key = f"sk-proj-{'aB3dE5fG' * 4}"
    one = agent(Call("write_file", {"path": "a.txt", "content": "a"}), "Done.")
    one.run_sync(f"Use {key}.")
    one.session.rename(one.session.conversation.id, f"with {key}")
    forked = one.session.fork(name=f"from {key}")
    one.session.rename(forked, f"as {key[:-1]}X")
    one.close()
    stored = [each for each in state_folder().rglob("*.jsonl") if each.is_file()]
    assert len(stored) >= 3
    assert [each.name for each in stored if key[:-1] in each.read_text("utf-8")] == []


def test_patches_and_commands_of_a_turn_are_one_diff_and_undone_together(agent):
    Path("a.txt").write_text("one\n")
    before = tree()
    line = "echo more >> a.txt; echo x > c.txt; chmod 600 c.txt"
    one = agent([Call("apply_patch", {"patch": PATCH}), command(line)], "Done.")
    result = one.run_sync("Change it.")
    assert changed(result) == ["a.txt", "c.txt", "made/b.txt"]
    # One for each call that changed something, and one at the end.
    assert len(of_kind(result, TurnDiffUpdated)) == 3
    assert "-one\n+two\n+more\n" in result.diff
    assert one.diff() == result.diff
    after = tree()
    assert not one.undo().obstacles
    assert tree() == before and not Path("made").exists()
    one.redo()
    assert tree() == after and Path("c.txt").stat().st_mode & 0o777 == 0o600


def test_the_record_has_what_a_turn_changed_once_however_many_files_it_changed(agent):
    files = [Call("write_file", {"path": f"{n}.txt", "content": "1\n"}) for n in range(5)]
    one = agent(files, "Done.")
    told = of_kind(one.run_sync("Write."), TurnDiffUpdated)
    assert [len(each.files) for each in told] == [1, 2, 3, 4, 5, 5]
    (record,) = rollout_folder().rglob(f"{one.conversation_id}.jsonl")
    lines = map(json.loads, record.read_text().splitlines())
    recorded = [from_json(line) for line in lines if line["type"] == "TurnDiffUpdated"]
    assert recorded == told[-1:]


def test_the_model_is_told_at_its_next_request(agent):
    one = agent([Call("write_file", {"path": "a.txt", "content": "1\n"})], "Done.", "Next.")
    one.run_sync("Write.")
    one.undo()
    result = one.run_sync("Go on.")
    (told,) = of_kind(result, ModelInformed)
    assert told.message.startswith("The person undid the changes to files of your last turn")
    assert "a.txt" in told.message
    items = one.session.conversation.history.items
    said = [each.role for each in items if isinstance(each, UserMessage)]
    assert said == ["user", "developer", "user"]


def test_a_turn_that_changes_nothing_is_not_told(agent):
    one = agent([command("true")], "Done.")
    result = one.run_sync("Do nothing.")
    assert not of_kind(result, TurnDiffUpdated) and result.diff == ""
    with pytest.raises(FatalError, match="No turn of this conversation changed files"):
        one.undo()
    with pytest.raises(FatalError, match="No turn of this conversation changed files"):
        one.diff()


def test_a_single_call_is_a_turn_of_its_own(agent):
    one = agent()
    one.call_sync("write_file", {"path": "a.txt", "content": "1\n"})
    one.call_sync("shell_command", {"command": "echo 2 > b.txt"})
    assert "+2" in one.diff(1) and "+1" in one.diff(2)
    one.undo()
    assert list(tree()) == ["a.txt"]


def test_what_a_nested_call_changes_belongs_to_the_turn(agent):
    @tool
    async def both(*, ctx: ToolContext) -> str:
        """Do two things."""
        await ctx.call("write_file", {"path": "a.txt", "content": "1\n"})
        await ctx.call("shell_command", {"command": "echo 2 > b.txt"})
        return "done"

    one = agent([Call("both", {})], "Done.", tools=[*TOOLS, both])
    assert changed(one.run_sync("Go.")) == ["a.txt", "b.txt"]
    one.undo()
    assert tree() == {}


def test_a_failed_patch_changes_nothing_and_is_not_told(agent):
    one = agent([Call("apply_patch", {"patch": PATCH})], "Done.")
    assert not of_kind(one.run_sync("Go."), TurnDiffUpdated)
    assert not Path("made").exists()


def test_a_refused_command_is_not_watched(agent):
    one = agent([command("echo 1 > a.txt", justification="x")], "Done.", approval="untrusted")
    assert not of_kind(one.run_sync("Go."), TurnDiffUpdated)


def test_the_persons_edit_is_in_the_way_and_stays(agent):
    one = agent([command("echo 1 > a.txt; echo 1 > b.txt")], "Done.")
    one.run_sync("Go.")
    Path("a.txt").write_text("mine")
    way = one.undo()
    assert [each.reason for each in way.obstacles] == ["you changed it since"]
    assert tree() == {"a.txt": "mine", "b.txt": "1\n"}
    assert "-1\n+mine" in one.session.conversation.files.conflict(one.config.cwd, way).diff
    one.undo(force=True)
    assert tree() == {"a.txt": "mine"}


def test_files_that_run_by_themselves_are_named_at_the_end(agent):
    made = "conftest.py .github/workflows/ci.yml plain.py"
    line = f"mkdir -p .github/workflows; for f in {made}; do echo x > $f; done"
    one = agent([command(line)], "Done.")
    events = of_kind(one.run_sync("Go."), TurnDiffUpdated)
    assert [event.runs for event in events[:-1]] == [()]
    assert [words.partition(":")[0] for words in events[-1].runs] == [
        ".github/workflows/ci.yml runs by itself", "conftest.py runs by itself",
    ]  # fmt: skip


def test_what_a_session_writes_after_its_turn_is_told_in_the_turn_that_sees_it(agent):
    os.mkfifo("gate")
    os.mkfifo("done")
    line = "echo 1 > a.txt; cat gate; echo 2 > b.txt; echo > done; cat gate"
    started = Call("exec_command", {"cmd": line, "yield_time_ms": 250})
    one = agent([started], "Started.", [command("echo 3 > c.txt")], "Done.")
    first = one.run_sync("Start.")
    # A slow machine may begin it only after its call.
    seen = changed(first) if of_kind(first, TurnDiffUpdated) else []
    Path("gate").write_text("go\n")
    Path("done").read_text()
    second = one.run_sync("Go on.")
    assert sorted(seen + changed(second)) == ["a.txt", "b.txt", "c.txt"]
    assert "background sessions" in of_kind(second, TurnDiffUpdated)[-1].notes[0]
    way = one.undo()
    assert "b.txt" in [Path(path).name for path in way.doubtful]
    assert not Path("c.txt").exists() and Path("b.txt").exists()
    one.session.conversation.processes.close()


def test_a_confined_command_that_may_only_read_is_not_watched(agent):
    one = agent([command("cat a.txt")], "Done.", sandbox="read-only")
    Path("a.txt").write_text("1")
    assert not of_kind(one.run_sync("Go."), TurnDiffUpdated)


def test_a_kernel_that_was_started_again_can_undo_the_last_ones_turns(agent):
    one = agent([Call("write_file", {"path": "a.txt", "content": "1\n"})], "Done.")
    one.run_sync("Go.")
    with pytest.raises(FatalError, match="No turn"):
        agent().undo()  # the first one is alive
    one.close()
    assert not agent().undo().obstacles
    assert tree() == {}


@pytest.mark.parametrize("forged", ["others may write", "a link", "commands may write"])
def test_a_journal_that_somebody_else_may_have_written_is_not_believed(
    agent, forged, request, tmp_path_factory
):
    one = agent([Call("write_file", {"path": "a.txt", "content": "1\n"})], "Done.")
    one.run_sync("Go.")
    folder = Path(one.session.conversation.files.journal_in(one.config.cwd).folder)
    one.close()
    if forged == "others may write":
        (folder / FILE).chmod(0o666)
    elif forged == "a link":
        real = folder.rename(tmp_path_factory.mktemp("elsewhere") / "real")
        folder.symlink_to(real)
    else:
        distrust([folder.parent])
        request.addfinalizer(lambda: _distrusted.discard(str(folder.parent)))
    with pytest.raises(FatalError, match="No turn"):
        agent().undo()


def test_an_undo_waits_for_no_turn(agent):
    refused: list[str] = []

    @tool
    def undo_now() -> str:
        """Try it."""
        with pytest.raises(FatalError) as caught:
            one.undo()
        refused.append(str(caught.value))
        return "no"

    one = agent([Call("undo_now", {})], "Done.", tools=[undo_now])
    one.run_sync("Go.")
    assert "is at work" in refused[0]


@pytest.mark.needs("machine Linux")
@pytest.mark.parametrize(
    "call",
    [
        Call("apply_patch", {"input": PATCH}),
        Call("edit_file", {"path": "a.txt", "old": "one", "new": "two"}),
        Call("write_file", {"path": "a.txt", "content": "two\n"}),
    ],
    ids=lambda call: call.name,
)
def test_a_changed_file_keeps_its_rights_and_attributes(agent, call):
    Path("a.txt").write_text("one\n")
    for name, value in ATTRIBUTES.items():
        os.setxattr("a.txt", name, value)
    before = attributes_of("a.txt")
    mine = agent(call, "Done.", tools=["apply_patch", "edit_file", "write_file"])
    for act, content in ((lambda: mine.run_sync("Go."), "two\n"), (mine.undo, "one\n")):
        act()
        assert Path("a.txt").read_text() == content
        assert attributes_of("a.txt") == before
