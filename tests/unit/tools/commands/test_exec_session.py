"""`exec_command` and its sessions: real processes that outlive their call."""

import os
import re
import shlex
import signal
import sys
import threading
import time

import pytest

from agent_magics.approval.actions import ActionKind
from agent_magics.exec.processes import MOST_SESSIONS
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import (
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
)
from agent_magics.tools.commands.run import LIVE_BURST
from agent_magics.tools.commands.sessions import (
    assess_exec_command,
    assess_write_stdin,
    exec_command,
    kill_session,
    list_sessions,
    write_stdin,
)
from tests.support.contexts import make_context

PATIENCE = 60.0
PRINTED = 1_500  # milliseconds in which a command has begun and printed, on a machine that is busy
BUDGET = 10_000


@pytest.fixture(autouse=True)
def _without_a_sandbox(monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # what a person's profile does takes any time
    context = make_context(tmp_path)
    yield context
    context.processes.close()


def text_of(report, budget=BUDGET):
    return report.to_output(budget).text


def start(ctx, cmd, **options):
    """Start a session; return its id and what it had printed by then."""
    report = exec_command(cmd, **{"yield_time_ms": 250, **options}, ctx=ctx)
    assert report.result.running, text_of(report)
    return report.result.session_id, report.result.output


def read_until(ctx, session_id, expected, **options):
    """Poll until `expected` has come; return all that came."""
    seen, deadline = "", time.monotonic() + PATIENCE
    while expected not in seen:
        assert time.monotonic() < deadline, seen
        seen += write_stdin(session_id, yield_time_ms=250, ctx=ctx, **options).result.output
    return seen


def events_of(ctx, kind):
    return [fields for what, fields in ctx.extra["events"] if what is kind]


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


# -- a command within its call ---------------------------------------------------------------------


def test_a_command_that_ends_returns_at_once(ctx):
    told = exec_command("echo out; echo err >&2; exit 3", yield_time_ms=300_000, ctx=ctx)
    output = told.to_output(BUDGET)
    assert re.fullmatch(
        r"Exit code: 3\nWall time: \d+\.\d{3} seconds\n"
        r"Original token count: 2\nOutput:\nout\nerr\n",
        output.text,
    )
    assert not output.success and output.details["exit_code"] == 3
    assert ctx.processes.sessions() == []
    (end,) = events_of(ctx, ExecCommandEnd)
    assert end["exit_code"] == 3 and "session_id" not in end


def test_the_shell_is_the_one_that_was_asked_for(ctx):
    assert exec_command("echo $0", shell="sh", ctx=ctx).result.output == "sh\n"
    assert exec_command("echo $0", ctx=ctx).result.argv[:2] == ("bash", "-c")
    assert exec_command("echo $0", login=True, ctx=ctx).result.argv[:2] == ("bash", "-lc")
    for shell in ("nosh", "/bin/nosh", "python3"):
        with pytest.raises(RespondToModel, match=f"no shell '{shell}' here; there are: bash, sh"):
            exec_command("true", shell=shell, ctx=ctx)
    with pytest.raises(RespondToModel, match="empty"):
        exec_command(" \n", ctx=ctx)


def test_a_deadline_kills_the_tree_and_keeps_the_output(ctx):
    report = exec_command("echo begun; sleep 600 & sleep 600", timeout_ms=1_500, ctx=ctx)
    assert report.result.timed_out and report.result.output == "begun\n"
    assert "Timed out after 1.5 s; the process tree was killed" in text_of(report)
    assert ctx.processes.sessions() == []


def test_a_deadline_reaches_a_session_too(ctx):
    session_id, _ = start(ctx, "echo begun; sleep 600", timeout_ms=800)
    report = write_stdin(session_id, yield_time_ms=20_000, ctx=ctx)
    assert report.result.timed_out


def test_an_interrupt_kills_the_command_of_the_call(ctx):
    threading.Timer(0.2, ctx.cancelled.set).start()
    report = exec_command("sleep 600", yield_time_ms=300_000, ctx=ctx)
    assert report.result.cancelled
    assert ctx.processes.sessions() == []


def test_times_out_of_range_are_taken_as_the_nearest_and_that_is_told(ctx):
    told = text_of(exec_command("sleep 0.3", yield_time_ms=1, ctx=ctx))
    assert told.endswith("[yield_time_ms=1 was taken as 250, the least.]")
    told = text_of(exec_command("true", yield_time_ms=10**9, ctx=ctx))
    assert told.endswith("[yield_time_ms=1000000000 was taken as 300000, the most.]")
    with pytest.raises(RespondToModel, match="timeout_ms must be from 1"):
        exec_command("true", timeout_ms=0, ctx=ctx)


@pytest.mark.soak
def test_the_budget_may_be_up_to_four_times_what_holds_for_all(ctx):
    def told(tokens):
        report = exec_command("seq 100000", max_output_tokens=tokens, ctx=ctx)
        return report.to_output(report.output_budget or BUDGET).text

    assert 1_500 < len(told(500)) <= 2_000
    assert 20_000 < len(told(6_000)) <= 24_000
    most = told(100_000)
    assert 30_000 < len(most) <= 40_000
    assert most.endswith("[max_output_tokens=100000 was taken as 10000, the most.]")
    with pytest.raises(RespondToModel, match="at least 1"):
        told(0)


def test_a_word_of_more_rights_and_the_rule_go_to_the_assessment(ctx):
    (action,) = assess_exec_command(
        {
            "cmd": "make all",
            "sandbox_permissions": "require_escalated",
            "justification": "because",
        },
        ctx,
    )
    assert action.kind is ActionKind.COMMAND_ESCALATED
    assert action.target == "bash -c 'make all'"
    (action,) = assess_exec_command({"cmd": "cat a", "prefix_rule": None}, ctx)
    assert action.kind is ActionKind.COMMAND_SAFE


# -- a command that goes on ------------------------------------------------------------------------


def test_past_the_wait_it_goes_on_as_a_session(ctx, tmp_path):
    os.mkfifo(tmp_path / "gate")
    report = exec_command("echo one; cat gate; echo three", yield_time_ms=PRINTED, ctx=ctx)
    session_id = report.result.session_id
    output = report.to_output(BUDGET)
    assert output.success and output.details["exit_code"] is None
    assert output.text.startswith(f"Session {session_id} is running.\nWall time: ")
    assert "Output:\none\n[write_stdin with this session_id waits" in output.text
    assert write_stdin(session_id, yield_time_ms=250, ctx=ctx).result.output == ""
    (tmp_path / "gate").write_text("two\n", encoding="utf-8")
    report = write_stdin(session_id, yield_time_ms=20_000, ctx=ctx)
    assert report.result.output == "two\nthree\n" and report.result.exit_code == 0
    assert text_of(report).startswith("Exit code: 0\n")
    assert report.to_output(BUDGET).details["session"] == "echo one; cat gate; echo three"
    # Its end was told: nobody hears of it again, and there is nothing new.
    assert ctx.processes.take_ended() == []
    assert write_stdin(session_id, ctx=ctx).result.output == ""


def test_people_see_each_word_once_first_of_the_call_and_then_of_the_session(ctx, tmp_path):
    os.mkfifo(tmp_path / "gate")
    cmd = "echo one; echo two >&2; cat gate; echo four; exit 5"
    session_id, said = start(ctx, cmd, yield_time_ms=PRINTED)
    assert said == "one\ntwo\n"
    (tmp_path / "gate").write_text("three\n", encoding="utf-8")
    wait_for(lambda: len(events_of(ctx, ExecCommandEnd)) == 1)
    begun, goes_on = events_of(ctx, ExecCommandBegin)
    assert "session_id" not in begun and goes_on["session_id"] == str(session_id)
    assert goes_on["command"] == begun["command"] and goes_on["cwd"] == begun["cwd"]
    deltas = events_of(ctx, ExecCommandOutputDelta)
    later = [each["text"] for each in deltas if each.get("session_id") == str(session_id)]
    assert "".join(later) == "three\nfour\n"
    end = ctx.extra["events"][-1]
    assert end[0] is ExecCommandEnd
    assert end[1]["session_id"] == str(session_id) and end[1]["exit_code"] == 5


def test_a_terminal_can_be_typed_to(ctx):
    python = f"{shlex.quote(sys.executable)} -q -i"
    session_id, said = start(ctx, python, tty=True)
    if ">>>" not in said:
        read_until(ctx, session_id, ">>>")
    write_stdin(session_id, "6 * 7\n", ctx=ctx)
    write_stdin(session_id, "import time; time.sleep(60)\n", yield_time_ms=300, ctx=ctx)
    write_stdin(session_id, "\x03", yield_time_ms=300, ctx=ctx)
    said = write_stdin(session_id, "print('still' + ' here')\n", ctx=ctx).result.output
    if "still here" not in said:
        read_until(ctx, session_id, "still here")
    whole = ctx.processes.get(session_id).process.output.text()
    assert "42" in whole and "KeyboardInterrupt" in whole and "still here" in whole
    report = write_stdin(session_id, "exit(4)\n", yield_time_ms=20_000, ctx=ctx)
    assert report.result.exit_code == 4


def test_without_a_terminal_ctrl_c_is_a_signal_and_words_are_refused(ctx):
    session_id, said = start(ctx, "trap 'echo caught; exit 7' INT; echo set; while :; do :; done")
    if "set" not in said:
        read_until(ctx, session_id, "set")
    with pytest.raises(RespondToModel, match=r"input .* closed; start it with a terminal \(tty\)"):
        write_stdin(session_id, "words\n", ctx=ctx)
    report = write_stdin(session_id, "\x03", yield_time_ms=20_000, ctx=ctx)
    assert report.result.exit_code == 7
    assert report.result.output.endswith("caught\n")


def test_ctrl_c_ends_what_does_not_catch_it(ctx):
    session_id, _ = start(ctx, "sleep 60")
    report = write_stdin(session_id, "\x03", yield_time_ms=20_000, ctx=ctx)
    assert report.result.exit_code == 128 + signal.SIGINT


def test_an_interrupt_while_waiting_leaves_the_session_alone(ctx):
    session_id, _ = start(ctx, "sleep 600")
    threading.Timer(0.2, ctx.cancelled.set).start()
    report = write_stdin(session_id, yield_time_ms=300_000, ctx=ctx)
    assert report.result.running


def test_killing_ends_the_tree_and_returns_what_came(ctx, tmp_path):
    session_id, said = start(ctx, "sleep 60 & echo $! > child; echo up; wait")
    if "up" not in said:
        read_until(ctx, session_id, "up")
    report = kill_session(session_id, ctx=ctx)
    output = report.to_output(BUDGET)
    assert output.success and output.text.startswith("Killed")
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    with pytest.raises(RespondToModel, match=f"Session {session_id} is not running any more: kill"):
        kill_session(session_id, ctx=ctx)
    assert ctx.processes.take_ended() == []


def test_sessions_are_listed_with_their_state(ctx):
    assert list_sessions(ctx=ctx).to_output(BUDGET).text == "There are no sessions."
    first, _ = start(ctx, "sleep 60")
    second, _ = start(ctx, "sleep 1; exit 2")
    write_stdin(second, yield_time_ms=20_000, ctx=ctx)
    output = list_sessions(ctx=ctx).to_output(BUDGET)
    lines = output.text.split("\n")
    assert re.fullmatch(rf"Session {first}: sleep 60, running for \d+\.\d s", lines[0])
    assert re.fullmatch(
        rf"Session {second}: sleep 1; exit 2, ended with exit code 2 after \d+\.\d s", lines[1]
    )
    assert output.details["output"] == "sleep 60: running\nsleep 1; exit 2: ended with exit code 2"


def test_unknown_ids_are_told_with_those_there_are(ctx, tmp_path):
    with pytest.raises(RespondToModel, match="no session 4711 in this conversation; no session"):
        write_stdin(4711, ctx=ctx)
    session_id, _ = start(ctx, "sleep 60")
    other = make_context(tmp_path)
    with pytest.raises(RespondToModel, match=f"no session {session_id} in this conversation"):
        write_stdin(session_id, ctx=other)
    with pytest.raises(RespondToModel, match=rf"no session 4711 .* {session_id} \(sleep 60\)"):
        kill_session(4711, ctx=ctx)


@pytest.mark.soak
def test_a_full_table_is_an_error_that_names_the_sessions_and_kills_none(ctx):
    kept = [
        ctx.processes.start_session(["sleep", "60"], cwd=ctx.cwd, env=ctx.env)
        for _ in range(MOST_SESSIONS)
    ]
    with pytest.raises(RespondToModel, match=rf"64 sessions are open.* {kept[0].id} \(sleep 60\)"):
        exec_command("true", ctx=ctx)
    assert not any(session.ended for session in kept)
    assert events_of(ctx, ExecCommandEnd) == [
        {"call_id": "call_1", "exit_code": None, "duration": 0.0}
    ]
    kill_session(kept[0].id, ctx=ctx)
    assert exec_command("true", ctx=ctx).result.exit_code == 0


def test_the_whole_output_of_a_session_is_one_handle_that_grows(ctx, tmp_path):
    os.mkfifo(tmp_path / "gate")
    report = exec_command("seq 5000; cat gate; seq 5001 9000", yield_time_ms=PRINTED, ctx=ctx)
    assert "@r1 (5,000 lines; " in text_of(report, 2000)
    whole = ctx.validate_path("@r1")
    assert whole.read_text(encoding="utf-8").splitlines()[-1] == "5000"
    (tmp_path / "gate").write_text("", encoding="utf-8")
    report = write_stdin(report.result.session_id, yield_time_ms=20_000, ctx=ctx)
    assert "@r1 (9,000 lines; " in text_of(report, 2000)
    assert len(ctx.validate_path("@r1").read_text(encoding="utf-8").splitlines()) == 9000


def test_a_flood_is_shown_live_in_bounds_and_its_end_is_shown(ctx, tmp_path):
    os.mkfifo(tmp_path / "gate")
    session_id, _ = start(ctx, "cat gate; yes | head -c 60000000; echo the last line")
    (tmp_path / "gate").write_text("", encoding="utf-8")
    write_stdin(session_id, yield_time_ms=40_000, ctx=ctx)
    wait_for(lambda: events_of(ctx, ExecCommandEnd))
    texts = [
        each["text"] for each in events_of(ctx, ExecCommandOutputDelta) if each.get("session_id")
    ]
    assert sum(map(len, texts)) < 2 * LIVE_BURST
    assert any("characters are not shown live" in text for text in texts)
    assert texts[-1].endswith("the last line\n")


# -- who is asked about typing ---------------------------------------------------------------------


def kind_of_typing(ctx, session_id, chars):
    action, *_ = assess_write_stdin({"session_id": session_id, "chars": chars}, ctx)
    return action.kind


def test_typing_into_what_is_not_confined_is_asked_about(ctx):
    session_id, _ = start(ctx, "bash", tty=True)
    assert kind_of_typing(ctx, session_id, "rm x\n") is ActionKind.COMMAND_UNSANDBOXED
    assert kind_of_typing(ctx, session_id, "") is ActionKind.COMMAND_SAFE
    assert kind_of_typing(ctx, session_id, "\x03") is ActionKind.COMMAND_SAFE
    kill_session(session_id, ctx=ctx)
    assert kind_of_typing(ctx, session_id, "x\n") is ActionKind.COMMAND_SAFE  # told: it has ended


def test_typing_into_what_is_confined_is_an_ordinary_command(ctx, monkeypatch):
    monkeypatch.delenv("AGENT_MAGICS_TIER")
    session_id, _ = start(ctx, "bash", tty=True)
    assert kind_of_typing(ctx, session_id, "rm x\n") is ActionKind.COMMAND_SANDBOXED


def test_typing_with_full_access_is_a_row_of_its_own(tmp_path):
    ctx = make_context(tmp_path, sandbox=SandboxPolicy.DANGER_FULL_ACCESS)
    session_id, _ = start(ctx, "bash", tty=True)
    assert kind_of_typing(ctx, session_id, "rm x\n") is ActionKind.COMMAND_FULL_ACCESS
    ctx.processes.close()


# -- by hand ---------------------------------------------------------------------------------------


def test_by_hand_they_are_functions_that_return_results(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = exec_command("echo hi")
    assert result.stdout == "hi\n" and result.exit_code == 0 and result.session_id is None
    result = exec_command("read line; echo got $line", tty=True, yield_time_ms=250)
    assert result.running and "running as session" in repr(result)
    result = write_stdin(result.session_id, "x\n", yield_time_ms=20_000)
    assert "got x" in result.output and result.exit_code == 0
    result = exec_command("sleep 60", yield_time_ms=250)
    assert f"Session {result.session_id}: sleep 60, running" in repr(list_sessions())
    assert kill_session(result.session_id).killed_for == "kill"
    assert exec_command("sleep 60", timeout_ms=300).timed_out
