"""Conversations in a real kernel: listed, taken up after a restart, named in the saved file."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernels.cells import AGENTS, GATE, scripted
from tests.support.kernels.driver import Kernel

ID = f"{AGENTS}['default'].session.conversation.id"
WORKS_IN = f"{AGENTS}['default'].config.cwd"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.ipynb").write_text("{}")
    return tmp_path


def kernel_in(place: Path, name: str = "mine.ipynb") -> Kernel:
    return Kernel(cwd=str(place), env={"JPY_SESSION_NAME": str(place / name)})


def named(outcome) -> list[str]:
    """Return the conversations that the saved outputs name."""
    messages = [m["content"] for m in outcome.messages if m["msg_type"] == "display_data"]
    found = [m["metadata"].get("agent_magics", {}).get("conversation") for m in messages]
    return [each for each in found if each]


@pytest.mark.parametrize("instructions", [None, "Be brief."], ids=["alone", "in a project"])
def test_a_notebook_goes_on_where_its_killed_kernel_was(
    place: Path, instructions: str | None
) -> None:
    if instructions:  # which the first cell of an agent names
        (place / "AGENTS.md").write_text(instructions)
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'"))
        first = kernel.run("%%agent\nCount.\n", notebook=True, allow_stdin=True)
        conversation = kernel.value(ID).strip("'")
        assert named(first) == [conversation]
        assert "earlier conversation" not in first.text
    with kernel_in(place) as kernel:
        kernel.run(scripted("'Who?'", "'Two.'") + "import asyncio\n")
        said: list[dict[str, Any]] = []
        cell = kernel.run("%%agent\nGo on.\n", notebook=True, allow_stdin=True)
        # A cell of a busy machine ends before the conversations are listed.
        while "earlier conversation" not in (told := cell.text + str(said)):
            kernel.run("await asyncio.sleep(0.05)", on_other=said.append)
        assert "This notebook has an earlier conversation (`Count.`, 1 turn)" in told
        assert f"%agent resume {conversation[:8]}" in told
        resumed = kernel.run("%agent resume")
        assert resumed.status == "ok", resumed.text
        assert "Resumed: `Count.`, 1 turn." in resumed.text
        assert kernel.value(ID).strip("'") == conversation
        again = kernel.run("%%agent\nGo on.\n", notebook=True, allow_stdin=True).text
        assert "earlier conversation" not in again
        listed = kernel.run("%agent history").text
        assert "One." in listed and "Two." in listed


def test_a_long_list_of_conversations_holds_no_cell_up(place: Path) -> None:
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'"))
        kernel.run("%%agent\nCount.\n", notebook=True, allow_stdin=True)
    slowly = (
        "import threading\nfrom agent_magics.kernel import earlier_conversation as earlier\n"
        "listed, list_all = threading.Event(), earlier.conversations\n"
        "def conversations():\n    listed.wait(60)\n    return list_all()\n"
        "earlier.conversations = conversations\n"
    )
    with kernel_in(place) as kernel:
        kernel.run(scripted("'Two.'") + slowly)
        cell = kernel.run("%%agent\nGo on.\n", notebook=True, allow_stdin=True)
        assert "Two." in cell.text and "earlier conversation" not in cell.text
        said: list[dict[str, Any]] = []
        kernel.run("import asyncio\nlisted.set()", on_other=said.append)
        while "earlier conversation" not in str([message["content"] for message in said]):
            kernel.run("await asyncio.sleep(0.05)", on_other=said.append)
        parents = {message["parent_header"]["msg_id"] for message in said}
        assert parents == {cell.messages[0]["parent_header"]["msg_id"]}


def test_they_are_listed_found_kept_and_deleted(place: Path) -> None:
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'", "'Two.'", "'Three.'"))
        kernel.run("%%agent\nLook at | apples.\n")
        kernel.run("%%agent --new\nLook at pears.\n")
        listed = kernel.run("%agent sessions").text
        assert listed.index("pears") < listed.index("apples")
        assert "mine.ipynb" in listed
        assert "pears" not in kernel.run("%agent sessions Apples look").text
        assert "No conversation" in kernel.run("%agent sessions plums").text
        assert "pears" in kernel.run("%agent sessions 'look AT p' mine").text
        assert "No conversation" in kernel.run('%agent sessions "at look"').text
        kernel.run("%agent sessions apples")
        kernel.run("%agent sessions pin 1")
        assert "(pinned)" in kernel.run("%agent sessions apples").text
        refused = kernel.run("%agent sessions pears\n%agent sessions delete 1")
        assert "is open; close it first" in refused.text
        own = kernel.run("%agent sessions pears\n%agent resume 1").text
        assert "the conversation of agent 'default' here" in own
        assert "Resumed: `Look at | apples.`" in kernel.run("%agent resume last").text
        kernel.run("%agent sessions pears")
        assert "delete: `Look at pears.`" in kernel.run("%agent sessions delete 1").text
        assert "No conversation" in kernel.run("%agent sessions pears").text
        assert kernel.run("%agent resume nonsense").error == "UsageError"


def test_without_a_number_no_conversation_of_another_project_is_taken_up(
    place: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'"))
        kernel.run("%%agent\nCount.\n")
    with kernel_in(other, "theirs.ipynb") as kernel:
        kernel.run(scripted("'Two.'"))
        for words in ("resume", "resume last"):
            refused = kernel.run(f"%agent {words}")
            assert refused.error == "UsageError", refused.text
            assert "No earlier conversation of this project" in refused.text
        assert "Resumed: `Count.`" in kernel.run("%agent sessions\n%agent resume 1").text
    with kernel_in(place, "second.ipynb") as kernel:  # of the same project
        kernel.run(scripted("'Two.'"))
        assert "Resumed: `Count.`" in kernel.run("%agent resume").text


def test_nothing_of_it_stands_in_what_a_recording_plays_or_holds(place: Path) -> None:
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'"))
        assert kernel.run("%%agent --record r.agent.jsonl\nCount.\n", notebook=True).status == "ok"
    play = ("%load_ext agent_magics", "--replay r.agent.jsonl")
    for set_up, options in (play, play, (scripted("'Two.'"), "--record s.agent.jsonl")):
        with kernel_in(place) as kernel:
            kernel.run(set_up)
            cell = f"%%agent {options}\nCount.\n"
            played = kernel.run(cell, notebook=True, allow_stdin=True)
            assert played.status == "ok", played.text
            assert named(played) == []
            assert "earlier conversation" not in played.text


def test_a_fork_goes_on_beside_its_parent(place: Path) -> None:
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'", "'Two.'", "'Mine.'", "'Theirs.'"))
        kernel.run("%%agent\nfirst\n")
        kernel.run("%%agent\nsecond\n")
        made = kernel.run("%agent fork 1")
        assert made.status == "ok", made.text
        assert "`%%agent --name default-2` goes on with a fork" in made.text
        kernel.run("%%agent\nthird\n")
        assert "Theirs." in kernel.run("%%agent --name default-2\nother\n").text
        mine, theirs = (kernel.run(f"%agent history {n}").text for n in ("", "default-2"))
        assert "second" in mine and "third" in mine and "other" not in mine
        assert "first" in theirs and "other" in theirs and "second" not in theirs
        assert "`%%agent --name it's` goes on" in kernel.run("%agent fork --name it's").text
        assert kernel.run("%agent fork 9").error == "UsageError"
        assert kernel.run("%agent fork one").error == "UsageError"


WRITE = """
[Call("python", {"code": "made = %s"}), Call("write_file", {"path": "a.txt", "content": "%s"})]
"""


REFUSE_ONCE = """
import os
real = os.replace
def refuse(old, new, **folders):
    if new != "a.txt":
        return real(old, new, **folders)
    os.replace = real
    raise OSError(28, "No space left on device")
os.replace = refuse
"""


def test_back_to_before_a_turn_after_one_question(place: Path) -> None:
    with kernel_in(place) as kernel:
        turns = [each for n in "123" for each in (WRITE % (n, n), "'Ok.'")]
        kernel.run(scripted(*turns, "'More.'"))
        cell = "%%agent --approval never --tools python write_file"
        for number in "123":
            assert kernel.run(f"{cell}\nwrite {number}\n").status == "ok"
        refused = kernel.run("%agent rewind 2", allow_stdin=True, answers=["n"]).text
        assert "the model forgets `write 2`, `write 3`" in refused
        assert "Files: `a.txt`" in refused and "Variables: `made`" in refused
        assert "Nothing was changed." in refused
        assert (place / "a.txt").read_text() == "3"
        assert "Nobody can be asked" in kernel.run("%agent rewind 2").text
        done = kernel.run("%agent rewind 2", allow_stdin=True, answers=["y"])
        assert "Back to before turn 2" in done.text
        assert ((place / "a.txt").read_text(), kernel.value("made")) == ("1", "1")
        assert "write 2" not in kernel.run("%agent history").text
        (place / "a.txt").write_text("mine")
        assert "Nothing was changed" in kernel.run("%agent undo").text
        (place / "a.txt").write_text("1")
        kernel.run(REFUSE_ONCE)
        assert "No space left" in kernel.run("%agent redo").text
        forth = kernel.run("%agent redo").text  # neither has made it forget the way
        assert "Forth again: turn 2" in forth and "Variables: `made`" in forth
        assert ((place / "a.txt").read_text(), kernel.value("made")) == ("3", "3")
        assert "write 3" in kernel.run("%agent history").text
        kept = kernel.run("%agent rewind 3 --no-files --no-variables --yes")
        assert kept.status == "ok", kept.text
        assert ((place / "a.txt").read_text(), kernel.value("made")) == ("3", "3")
        assert "More." in kernel.run(f"{cell}\nmore\n").text
        said = [kernel.run("%agent redo").text for _ in range(2)]
        assert "More was said" in said[0] and "More was said" not in said[1]
        assert kernel.run("%agent rewind soon").error == "UsageError"


def test_a_redo_takes_back_what_was_undone_last(place: Path) -> None:
    file = place / "a.txt"
    with kernel_in(place) as kernel:
        turns = [each for n in "123" for each in (WRITE % (n, n), "'Ok.'")]
        kernel.run(scripted(*turns))
        cell = "%%agent --approval never --tools python write_file"
        for number in "12":
            assert kernel.run(f"{cell}\nwrite {number}\n").status == "ok"
        assert kernel.run("%agent rewind 2 --yes").status == "ok"
        assert "Undone: `write 1`" in kernel.run("%agent undo").text
        assert not file.exists()
        assert "Done again: `write 1`" in kernel.run("%agent redo").text
        assert "Forth again: turn 2" in kernel.run("%agent redo").text
        assert file.read_text() == "2"
        assert kernel.run("%agent rewind 2 --yes").status == "ok"
        assert kernel.run(f"{cell}\nwrite 3\n").status == "ok"
        kernel.run(f"{AGENTS}['default'].undo()")  # as a page does
        assert file.read_text() == "1"
        assert "Done again: `write 3`" in kernel.run("%agent redo").text
        assert file.read_text() == "3"


REFUSED = [
    "%%agent --new --replay none.agent.jsonl\nthe second\n",
    "%%agent --new --output NoType\nthe second\n",
    "%%agent --new --tools nonsense\nthe second\n",
    "%%agent --new --model no-such --max-cost 1\nthe second\n",
    "%%agent --new\nthe second ![](bad.png)\n",
    "%agent project activate /usr",
]
TURNS = f"[each.turns for each in conversations() if each.id == {ID}]"


def test_a_cell_that_is_refused_begins_no_new_conversation(place: Path) -> None:
    (place / "bad.png").write_bytes(b"no picture")
    with kernel_in(place) as kernel:
        kernel.run(scripted("'Ok.'", "'Still.'", "'New.'"))
        assert kernel.run("%%agent\nthe first\n").status == "ok"
        first = kernel.value(ID)
        for refused in REFUSED:
            assert kernel.run(refused).error == "UsageError", refused
        kernel.run("%config AgentMagics.cwd = '/usr'\nfrom agent_magics.app import conversations")
        assert kernel.run("%%agent --new\nthe second\n").error == "UsageError"
        kernel.run("%config AgentMagics.cwd = '.'")
        assert kernel.run("%%agent\nthe next\n").status == "ok"
        assert kernel.value(f"{ID}, {TURNS}") == f"{first} [2]"
        assert kernel.run("%%agent --new\nthe last ![](gone.png)\n").text.count("gone.png") == 1
        assert kernel.value(TURNS) == "[1]"


def test_a_conversation_of_another_workspace_goes_on_there(place: Path) -> None:
    there = place / "there"
    there.mkdir()
    other = f"Agent(ScriptedModel(['Seen.']), cwd={str(there)!r})"
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'") + scripted("'Two.'", name="trial"))
        kernel.run(f"other = {other}\nother.run_sync('Look.')\nfound = other.conversation_id")
        kernel.run(f"%config AgentMagics.cwd = {str(place)!r}")
        assert kernel.run("%%agent\nCount.\n").status == "ok"
        mine, found = (kernel.value(each).strip("'") for each in (ID, "found"))
        assert "is open in another kernel" in kernel.run(f"%agent resume {found}").text
        assert kernel.value(ID).strip("'") == mine
        kernel.run("other.close()")
        assert "Resumed: `Look.`" in kernel.run(f"%agent resume {found}").text
        kernel.run(f"{AGENTS}['default']._models.given = ScriptedModel(['More.'])")
        assert "More." in kernel.run("%%agent\nGo on.\n").text
        agent = f"{AGENTS}['default']"
        assert (
            kernel.value(f"{agent}.conversation_id, str({agent}.config.cwd)") == f"{found} {there}"
        )
        assert "Two." in kernel.run("%%agent --name trial\nCount.\n").text  # where it was
        assert kernel.run("%agent fork --name other").status == "ok"
        assert kernel.run("%agent status other").status == "ok"
        assert "Resumed: `Count.`" in kernel.run(f"%agent resume {mine}").text


def test_the_next_conversation_begins_in_the_workspace_of_the_notebook(place: Path) -> None:
    there = place / "there"
    there.mkdir()
    other = f"Agent(ScriptedModel(['Seen.']), cwd={str(there)!r})"
    with kernel_in(place) as kernel:
        kernel.run(scripted("'One.'"))
        kernel.run(f"with {other} as other:\n    other.run_sync('Look.')")
        found = kernel.value("other.conversation_id").strip("'")
        for setting in ("", f"%config AgentMagics.cwd = {str(place)!r}"):
            kernel.run(setting)
            for new in ("%agent reset", "%%agent --new --name default\nGo on.\n"):
                assert "Resumed: `Look.`" in kernel.run(f"%agent resume {found}").text
                assert kernel.value(WORKS_IN) == str(there)
                kernel.run(new)  # the cell ends without a model
                assert kernel.value(WORKS_IN) == str(place), (setting, new)
                assert found not in kernel.value(ID)


# Notes of each agent that is closed, where it works.
NOTE_CLOSED = """
closed, close = [], Agent.close

def note(agent):
    closed.append(str(agent.config.cwd))
    close(agent)

Agent.close = note
"""


def test_a_new_agent_of_a_cell_that_never_began_is_closed(place: Path) -> None:
    there = place / "there"
    there.mkdir()
    (there / "bad.png").write_bytes(b"no picture")
    elsewhere = f"%config AgentMagics.cwd = {str(there)!r}"
    with kernel_in(place) as kernel:
        kernel.run(scripted("Call('wait_for_gate')", "'Ok.'") + GATE + NOTE_CLOSED)
        cell = "%%agent --tools wait_for_gate --approval never --background"
        assert kernel.run(f"{cell}\nWait.\n").status == "ok"
        kernel.run(f"await reached.wait()\n{elsewhere}")
        refused = kernel.run("%%agent --new\nLook ![](bad.png)\n")
        assert "bad.png" in refused.text and kernel.value("closed") == f"[{str(there)!r}]"
        assert kernel.run(f"{cell} --new\nNever.\n").status == "ok"
        kernel.run("%config AgentMagics.cwd = '.'")
        assert kernel.value("closed") == f"[{str(there)!r}]"
        kernel.run("%agent stop --all")
        assert kernel.run("%%agent\nGo on.\n").status == "ok"
        assert kernel.value("closed") == str([str(there)] * 2)
        kernel.run(f"{elsewhere}\n%config AgentMagics.hooks = ['none.py']")
        assert kernel.run("%%agent --name trial\nGo on.\n").error == "UsageError"
        assert kernel.value("closed") == str([str(there)] * 3)


def test_a_rewind_of_another_conversation_is_not_redone(place: Path) -> None:
    with kernel_in(place) as kernel:
        kernel.run(scripted(WRITE % (1, 1), "'Ok.'", "'New.'"))
        assert kernel.run("%%agent --approval never --tools python write_file\nwrite\n").text
        assert kernel.run("%agent rewind --yes").status == "ok"
        assert not (place / "a.txt").exists()
        assert kernel.run("%agent reset").status == "ok"
        told = kernel.run("%agent redo").text
        assert "Done again" in told and "Forth again" not in told, "its files alone"
        assert "write" not in kernel.run("%agent history").text


def test_files_of_which_no_copy_is_left_are_named_as_such(place: Path) -> None:
    with kernel_in(place) as kernel:
        kernel.run(scripted(WRITE % (1, 1), "'Ok.'", "'New.'"))
        assert kernel.run("%%agent --approval never --tools python write_file\nwrite\n").text
        conversation = kernel.value(ID).strip("'")
        assert kernel.run("%agent reset").status == "ok"
        lost = "from agent_magics.config_files.places import state_folder\nimport shutil\n"
        lost += f"shutil.rmtree(state_folder() / 'changes' / {conversation!r})"
        assert kernel.run(lost).status == "ok"
        assert kernel.run(f"%agent resume {conversation}").status == "ok"
        told = kernel.run("%agent rewind --yes").text
        assert told.count("Left alone: files that these turns changed") == 2, "before and after"
        assert (place / "a.txt").read_text() == "1"


def test_a_rewind_names_the_folders_that_stay(place: Path) -> None:
    write = "Call('write_file', {'path': 'd/a.txt', 'content': '1'})"
    with kernel_in(place) as kernel:
        kernel.run(scripted(f"[{write}]", "'Ok.'"))
        assert kernel.run("%%agent --approval never --tools write_file\nwrite\n").status == "ok"
        (place / "d/mine.txt").write_text("mine")
        told = kernel.run("%agent rewind --yes").text
        assert not (place / "d/a.txt").exists() and (place / "d/mine.txt").exists()
        assert "Left alone, since something is in it: `d`." in told


def test_a_rewind_of_many_files_says_how_many_it_does_not_name(place: Path) -> None:
    writes = [f"Call('write_file', {{'path': 'f{n:02}', 'content': '1'}})" for n in range(23)]
    with kernel_in(place) as kernel:
        kernel.run(scripted(f"[{', '.join(writes)}]", "'Ok.'"))
        assert kernel.run("%%agent --approval never --tools write_file\nwrite\n").status == "ok"
        told = kernel.run("%agent rewind --yes").text
        assert told.count(" and 3 more.") == 2, "before and after"
        assert not list(place.glob("f??"))


@pytest.mark.parametrize(("command", "times"), [("rewind --yes", 2), ("undo --force", 1)])
def test_of_many_files_in_the_way_it_says_how_many_it_does_not_name(
    place: Path, command: str, times: int
) -> None:
    writes = [f"Call('write_file', {{'path': 'f{n:02}', 'content': '1'}})" for n in range(24)]
    with kernel_in(place) as kernel:
        kernel.run(scripted(f"[{', '.join(writes)}]", "'Ok.'"))
        assert kernel.run("%%agent --approval never --tools write_file\nwrite\n").status == "ok"
        for number in range(23):
            (place / f"f{number:02}").write_text("mine")
        told = kernel.run(f"%agent {command}").text
        assert told.count("Left alone: `f") == 20 * times
        assert told.count("\n- and 3 more") == times
        assert not (place / "f23").exists() and (place / "f00").read_text() == "mine"


LOOK = """
[Call("python", {"code": "total = sum(numbers)"}), Call("python", {"code": "'x' * 20_000"})]
"""


def test_after_a_restart_it_knows_what_is_gone(place: Path) -> None:
    cell = "%%agent --approval never --tools python\n"
    with kernel_in(place) as kernel:
        kernel.run(scripted(LOOK, "[Call('python', {'code': 'same, numbers'})]", "'Six.'"))
        kernel.run("numbers = [1, 2, 3]", notebook=True)
        kernel.run("same = {'a': 1}", notebook=True)
        assert kernel.run(f"{cell}Add them.\n", notebook=True).status == "ok"
        known = f"{AGENTS}['default'].session.conversation.variables"
        assert kernel.value(f"sorted({known})") == "['numbers', 'same', 'total']"
    with kernel_in(place) as kernel:
        kernel.run("same = {'a': 2}")
        kernel.run(scripted("'I see.'"))
        told = kernel.run("%agent resume").text
        rows = {line.split()[0]: line for line in told.splitlines() if line.strip()}
        assert "gone" in rows["numbers"] and "list, 3 elements" in rows["numbers"]
        assert "[2] (cell" in rows["numbers"] and "the agent in [4]" in rows["total"]
        assert "gone" not in rows["same"] and "changed" not in rows["same"]
        assert "To run again:" in told
        kernel.run(f"{cell}Go on.\n", notebook=True)
        items = f"{AGENTS}['default'].session.conversation.history.items"
        model = kernel.value(
            f"[i.content for i in {items} if getattr(i, 'role', '') == 'developer']"
        )
        assert "The kernel was restarted" in model
        assert "numbers: gone (it was list, 3 elements, made by [2]" in model
        assert "As you know them: same." in model


KEY = "sk-" + "a1B2c3D4" * 5


def test_stored_texts_bytes_and_tables_are_there_after_a_restart_and_others_are_gone(
    place: Path,
) -> None:
    session = f"{AGENTS}['default'].session"
    store = f"{session}.conversation.handles"
    with kernel_in(place) as kernel:  # which is killed at its end
        kernel.run(scripted("'Kept.'"))
        kernel.run(f"%%agent\nKeep. My key is {KEY}.\n")
        values = "[1, 2]", "b'\\xff'", "pandas.DataFrame({'a': [0.5]})", f"b'key {KEY}'"
        kept = "\n".join(f"{store}.keep_value({value})" for value in values)
        kernel.run(f"import pandas\n{store}.keep('long text ' * 10)\n{kept}")
        kernel.run(f"{session}.outbox.record()")
    records = [*Path(os.environ["XDG_STATE_HOME"]).rglob("*.jsonl")]
    assert records and not any(KEY in each.read_text() for each in records)
    with kernel_in(place) as kernel:
        kernel.run(scripted("'Here.'"))
        told = kernel.run("%agent resume").text
        assert "`@r2` (list, 2 elements" in told and "`@r5` (bytes, 47 bytes" in told
        assert "`@r3`" not in told and "`@r4`" not in told
        assert kernel.value(f"{store}.value_of('@r1')").startswith("long text long text")
        assert kernel.value(f"{store}.value_of('@r3')") == "b'\\xff'"
        assert kernel.value(f"{store}.value_of('@r4').to_dict('list')") == "{'a': [0.5]}"
        assert kernel.value(f"{store}.keep('new')") == "@r6"
        refused = kernel.run(f"{store}.value_of('@r2')").text
        assert "was kept in a kernel that has ended, and is gone" in refused
