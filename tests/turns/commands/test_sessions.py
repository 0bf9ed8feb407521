"""Sessions across turns: how their end reaches the model and people, and what ends with what."""

import os
import time
from pathlib import Path

import pytest

from agent_magics import Call, tool
from agent_magics.dispatch.context import ToolContext
from agent_magics.protocol.codec import to_json
from agent_magics.protocol.events import (
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ModelInformed,
    ToolCallCompleted,
    ToolCallFailed,
    TurnCompleted,
)
from agent_magics.protocol.items import LocalShellCall, ToolCallOutput, UserMessage
from agent_magics.protocol.ops import StartTurn, new_turn_id
from tests.support.turns import assert_valid, of_kind, outputs, scripted

PATIENCE = 60.0
SETTINGS = {"sandbox": "danger-full-access", "tools": ["coding"]}


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def started(cmd: str, **more) -> Call:
    return Call("exec_command", {"cmd": cmd, "yield_time_ms": 250, **more})


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A fifo that a command waits at; opening it lets the command go on."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def pid_in(file: Path) -> int:
    """Return the process id that a shell writes into a file, once it is there."""
    wait_for(lambda: file.is_file() and file.read_text().endswith("\n"))
    return int(file.read_text())


def open_gate(gate: Path) -> None:
    gate.write_text("", encoding="utf-8")


def session_of(agent):
    (session,) = agent.session.conversation.processes.sessions()
    return session


def told(agent) -> list[str]:
    items = agent.session.conversation.history.items
    return [i.content for i in items if isinstance(i, UserMessage) and i.role == "developer"]


def test_the_end_of_a_session_is_pushed_into_the_next_request(gate):
    def then(request):
        open_gate(gate)
        wait_for(lambda: session_of(agent).ended)
        return Call("list_dir", {})

    call = started("echo a; cat gate; echo b; exit 3", yield_time_ms=2_000)  # "a" has come by then
    agent = scripted(call, then, "Done.", **SETTINGS)
    result = agent.run_sync("Go.")
    session = session_of(agent)
    (note,) = told(agent)
    assert note == (
        f"Session {session.id} (echo a; cat gate; echo b; exit 3) ended with exit code 3 after "
        f"{session.seconds:.1f} s; its last lines:\nb"
    )
    (event,) = of_kind(result, ModelInformed)
    assert event.message == note
    assert event.shown == "Session `echo a; cat gate; echo b; exit 3` ended with exit code 3."
    # Told before the last request, after the outputs that came before it.
    kinds = [type(item).__name__ for item in agent._models.given.requests[-1].history.items]
    assert kinds[-2:] == ["ToolCallOutput", "UserMessage"]
    assert_valid(agent)
    agent.close()


def test_between_turns_it_is_told_before_the_next_prompt(gate):
    agent = scripted(started("cat gate"), "Done.", "Well.", "And?", **SETTINGS)
    agent.run_sync("Go.")
    assert told(agent) == []
    open_gate(gate)
    wait_for(lambda: session_of(agent).ended)
    agent.run_sync("What now?")
    items = agent.session.conversation.history.items
    note, prompt = items[-3:-1]
    assert note.role == "developer" and "ended with exit code 0" in note.content
    assert note.content.endswith("it printed nothing more.")
    assert prompt == UserMessage("What now?")
    agent.run_sync("And now?")
    assert len(told(agent)) == 1  # once
    agent.close()


def test_what_a_poll_has_told_is_not_told_again(gate):
    def poll(request):
        open_gate(gate)
        return Call("write_stdin", {"session_id": session_of(agent).id, "yield_time_ms": 20_000})

    agent = scripted(started("cat gate; echo b"), poll, "Done.", "Well.", **SETTINGS)
    agent.run_sync("Go.")
    agent.run_sync("And?")
    assert told(agent) == []
    assert outputs(agent)[1][1].endswith("Output:\nb\n")
    agent.close()


def test_much_output_is_told_by_its_end(gate):
    agent = scripted(started("cat gate; seq 1000"), "Done.", "Well.", **SETTINGS)
    agent.run_sync("Go.")
    open_gate(gate)
    wait_for(lambda: session_of(agent).ended)
    agent.run_sync("And?")
    (note,) = told(agent)
    assert f"(write_stdin with session_id={session_of(agent).id} returns all):\n981\n" in note
    assert note.endswith("\n1000")
    agent.close()


def test_what_a_session_does_after_its_turn_is_recorded_under_that_turn(gate):
    agent = scripted(started("cat gate; echo later"), "Done.", **SETTINGS)
    late = []
    foreground = agent.foreground(after=late.append)

    events = foreground.wait_blocking(
        StartTurn(turn_id=new_turn_id(), content="Go."), agent.turn_config()
    )
    assert isinstance(events[-1], TurnCompleted) and late == []
    open_gate(gate)
    wait_for(lambda: late and isinstance(late[-1], ExecCommandEnd))
    assert [type(event) for event in late] == [ExecCommandOutputDelta, ExecCommandEnd]
    assert late[0].text == "later\n"
    assert {event.turn_id for event in late} == {events[-1].turn_id}
    assert late[0].seq > events[-1].seq
    path = agent.session.outbox._rollout.path
    agent.close()
    recorded = path.read_text(encoding="utf-8").splitlines()
    assert len(recorded) >= len(events) - 1
    assert '"later\\n"' in recorded[-2] and to_json(late[1])["type"] in recorded[-1]


def test_keys_are_taken_out_of_what_a_session_prints_after_its_turn(gate, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-canary")
    late = []
    agent = scripted(
        started("cat gate; printf 'sk-canary-'; echo canary"), "Done.", "Well.", **SETTINGS
    )

    op = StartTurn(turn_id=new_turn_id(), content="Go.")
    agent.foreground(after=late.append).wait_blocking(op, agent.turn_config())
    open_gate(gate)
    wait_for(lambda: late and isinstance(late[-1], ExecCommandEnd))
    assert "canary" not in "".join(getattr(event, "text", "") for event in late)
    agent.run_sync("And?")
    assert "canary" not in told(agent)[0].partition("; its last lines")[2]
    agent.close()


def test_sessions_belong_to_their_conversation(gate):
    first = scripted(started("cat gate"), "Done.", name="first", **SETTINGS)
    first.run_sync("Go.")
    session_id = session_of(first).id
    second = scripted(name="second", **SETTINGS)
    answer = second.call_sync("write_stdin", {"session_id": session_id})
    assert not answer.success and "There is no session" in answer.text
    assert second.call_sync("list_sessions").text == "There are no sessions."
    assert f"Session {session_id}: cat gate" in first.call_sync("list_sessions").text
    first.close()
    second.close()


@pytest.mark.parametrize("end", ["close", "reset"])
def test_the_end_of_a_conversation_ends_its_sessions(tmp_path, end):
    agent = scripted(started("echo $$ > pid; exec sleep 600"), "Done.", "Well.", **SETTINGS)
    agent.run_sync("Go.")
    pid = pid_in(tmp_path / "pid")
    assert is_alive(pid)
    getattr(agent, end)()
    wait_for(lambda: not is_alive(pid))
    if end == "reset":
        assert agent.call_sync("list_sessions").text == "There are no sessions."
        agent.run_sync("Go on.")
        assert told(agent) == []
        agent.close()


def test_an_interrupt_ends_the_running_call_and_not_the_sessions_before_it(tmp_path):
    """A session is the person's by then, like a server they had started; %agent can end it."""
    agent = scripted(
        started("echo $$ > first; exec sleep 600"),
        started("echo $$ > second; exec sleep 600", yield_time_ms=300_000),
        **SETTINGS,
    )

    def interrupt_when_both_run(event):
        if isinstance(event, ExecCommandBegin) and "second" in event.command[-1]:
            pid_in(tmp_path / "second")
            raise KeyboardInterrupt

    op = StartTurn(turn_id=new_turn_id(), content="Go.")
    with pytest.raises(KeyboardInterrupt):
        agent.foreground(interrupt_when_both_run).wait_blocking(op, agent.turn_config())
    first, second = (pid_in(tmp_path / name) for name in ("first", "second"))
    wait_for(lambda: not is_alive(second))
    assert is_alive(first)
    assert_valid(agent)
    agent.close()
    wait_for(lambda: not is_alive(first))


def test_what_was_left_out_can_be_read_by_its_name():
    agent = scripted(
        Call("exec_command", {"cmd": "seq 20000"}),
        Call("grep_files", {"pattern": "^1777$", "path": "@r1"}),
        Call("read_file", {"path": "@r1", "start_line": 19_999}),
        Call("read_file", {"path": "@r7"}),
        "Done.",
        **SETTINGS,
    )
    agent.run_sync("Go.")
    (_, first), (_, found), (_, page), (_, unknown) = outputs(agent)
    assert "the whole output: @r1 (20,000 lines; " in first
    assert "1777" in found
    assert "19999| 19999\n20000| 20000\n" in page
    assert "There is no @r7 in this conversation; there are: @r1." in unknown
    path = agent.session.conversation.handles.path_of("@r1")
    agent.close()
    assert not path.exists()


def test_tools_can_leave_word_for_the_model():
    @tool(mutating=False)
    def remember(ctx: ToolContext) -> str:
        """Leave word."""
        ctx.turn.tell_later("The backup is done.")
        return "Begun."

    agent = scripted(Call("remember"), "Done.", tools=[remember])
    agent.run_sync("Go.")
    assert told(agent) == ["The backup is done."]


# -- the API's own shell call --------------------------------------------------------------------


def test_the_native_shell_call_runs_and_is_answered_in_kind():
    call = LocalShellCall("call_7", ("sh", "-c", "echo hi; exit 2"), timeout_ms=20_000)
    agent = scripted([call], "Done.", tools=["local_shell"], sandbox="danger-full-access")
    result = agent.run_sync("Go.")
    (output,) = (
        i for i in agent.session.conversation.history.items if isinstance(i, ToolCallOutput)
    )
    assert (output.call_id, output.kind) == ("call_7", "local_shell")
    assert output.output.startswith("Exit code: 2\n") and output.output.endswith("Output:\nhi\n")
    (failed,) = of_kind(result, ToolCallFailed)
    assert failed.name == "local_shell" and failed.details["exit_code"] == 2
    assert [spec.spec.kind for spec in agent._models.given.requests[0].tools] == ["local_shell"]


def test_a_native_shell_call_without_an_id_is_told_and_not_run(tmp_path):
    agent = scripted(
        [LocalShellCall(None, ("touch", "made"))],
        "Done.",
        tools=["local_shell"],
        sandbox="danger-full-access",
    )
    result = agent.run_sync("Go.")
    assert result.status == "completed"
    assert told(agent) == ["The local_shell call has no call_id, so it was not run; send it again."]
    assert not (tmp_path / "made").exists()


def test_it_takes_its_folder_and_can_be_called_as_a_function_too(tmp_path):
    (tmp_path / "sub").mkdir()
    calls = [
        [LocalShellCall("a", ("pwd",), workdir="sub"), LocalShellCall("b", ())],
        Call("local_shell", {"command": ["pwd"]}),
    ]
    agent = scripted(*calls, "Done.", tools=["local_shell"], sandbox="danger-full-access")
    result = agent.run_sync("Go.")
    completed = [event.output for event in of_kind(result, ToolCallCompleted)]
    assert completed[0].endswith(f"\n{tmp_path}/sub\n") and completed[1].endswith(f"\n{tmp_path}\n")
    (failed,) = of_kind(result, ToolCallFailed)
    assert "command is empty" in failed.output
