"""Running real commands: output, deadlines, and that nothing stays behind."""

import os
import re
import shlex
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent_magics.exec import launcher_client
from agent_magics.exec.command import CommandResult, collect, run_command
from agent_magics.exec.launcher.wire import SpawnRequest
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.exec.processes import ProcessManager
from agent_magics.protocol.errors import RespondToModel
from tests.support.descriptors import none_left

MANAGER = ProcessManager()


def run(argv, cwd="/", timeout=20.0):
    return run_command(argv, cwd=cwd, env=os.environ, timeout=timeout, manager=MANAGER)


def followed(argv, on_output, cancelled=None, timeout=20.0):
    """The result of a command whose output is listened to, and that may be cancelled."""
    process = MANAGER.start(argv, cwd="/", env=os.environ)
    process.add_listener(on_output)
    if not process.wait(timeout, cancelled):
        process.end("time" if cancelled is None or not cancelled.is_set() else "cancel")
    return collect(process)[0]


def sh(script, **more):
    return run(["sh", "-c", script], **more)


def python(code, **more):
    return run([sys.executable, "-c", code], **more)


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def cancel_at(count):
    """A cancellation for when `count` words have been printed, and the listener that sets it."""
    cancelled, heard = threading.Event(), []

    def listen(stream, text):
        heard.append(text)
        if len("".join(heard).split()) >= count:
            cancelled.set()

    return listen, cancelled


def pids_in(text):
    return [int(word.removeprefix("pid=")) for word in text.split() if word.startswith("pid=")]


# -- what comes back ---------------------------------------------------------------------------


def test_output_exit_code_and_duration():
    result = sh("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert sorted(result.output.split()) == ["err", "out"]
    assert result.argv == ("sh", "-c", "echo out; echo err >&2; exit 3")
    assert 0 < result.duration < 20
    assert result.total_chars == 8 and result.omitted_chars == 0
    assert not (result.timed_out or result.cancelled or result.leftovers or result.lost)


def test_a_signal_is_told_as_a_shell_would():
    assert sh("kill -9 $$").exit_code == 137


def test_words_are_passed_as_they_are(tmp_path):
    words = ["a b", "*", "$HOME", "", "'", "é"]
    result = python("import sys; print(ascii(sys.argv[1:]))", cwd=tmp_path)
    assert result.stdout == "[]\n"
    result = run([sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words])
    assert result.stdout == ascii(words) + "\n"


def test_it_runs_in_its_folder_in_its_own_session_without_input(tmp_path):
    code = "import os, sys; print(os.getcwd(), os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"
    assert python(code, cwd=tmp_path).stdout == f"{os.path.realpath(tmp_path)} True ''\n"


def test_the_environment_is_exactly_the_one_given():
    result = run_command(["/usr/bin/env"], cwd="/", env={"A": "1"}, timeout=20, manager=MANAGER)
    assert result.stdout == "A=1\n"


def test_the_order_of_the_two_streams_is_kept(tmp_path):
    # A gate of its own for each step: a second reader of the same pipe could still meet the end
    # of the first writer, and go on too soon.
    gates = [tmp_path / "first", tmp_path / "second"]
    for gate in gates:
        os.mkfifo(gate)
    closed = list(gates)

    def go_on(stream, text):
        if closed:
            closed.pop(0).write_text("go\n", encoding="utf-8")

    first, second = (shlex.quote(str(gate)) for gate in gates)
    script = f"echo one; read x < {first}; echo two >&2; read x < {second}; echo three; echo last"
    result = followed(["sh", "-c", script], go_on)
    assert result.output == "one\ntwo\nthree\nlast\n"
    assert (result.stdout, result.stderr) == ("one\nthree\nlast\n", "two\n")


def test_invalid_utf8_and_nul_come_through():
    result = python("import os; os.write(1, b'a\\xffb\\0c \\xe2\\x82'); os.write(2, b'\\xc3')")
    assert result.stdout == "a\ufffdb\0c \ufffd"
    assert result.stderr == "\ufffd"


def test_a_character_cut_by_a_read_is_whole(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    seen = []

    def go_on(stream, text):
        seen.append(text)
        if text == "a":
            gate.write_text("go", encoding="utf-8")

    code = (
        f"import os; os.write(1, b'a\\xe2\\x82'); open({str(gate)!r}).read(); os.write(1, b'\\xac')"
    )
    assert followed([sys.executable, "-c", code], go_on).stdout == "a€"
    assert seen == ["a", "€"]


def test_fifty_megabytes_stay_bounded_and_are_counted():
    size = 50_000_000
    code = (
        "import os\nos.write(1, b'begin')\n"
        f"for _ in range({size} // 50_000): os.write(1, b'x' * 50_000)\nos.write(1, b'end')"
    )
    tracemalloc.start()
    try:
        result = python(code)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code == 0 and result.total_chars == size + 8
    assert peak < 16_000_000
    assert result.output.startswith("begin") and result.output.endswith("end")
    marker = f"\n… {result.omitted_chars} characters left out …\n"
    assert marker in result.output
    assert len(result.output) - len(marker) + result.omitted_chars == size + 8


def test_output_is_told_as_it_comes_and_not_too_often():
    calls = []
    code = "for n in range(20_000): print(n, flush=True)"
    argv = [sys.executable, "-c", code]
    result = followed(argv, lambda stream, text: calls.append((stream, text)))
    assert "".join(text for _, text in calls) == result.stdout
    assert {stream for stream, _ in calls} == {"stdout"}
    assert 1 <= len(calls) <= 3 + result.duration / 0.05


# -- time and cancelling -----------------------------------------------------------------------


def test_a_timeout_kills_and_keeps_the_output():
    result = sh("echo before; sleep 600 & echo pid=$!; wait", timeout=1.5)
    assert result.timed_out and result.exit_code is None and not result.cancelled
    assert result.output.startswith("before\n")
    assert not is_alive(*pids_in(result.output))
    assert result.duration >= 1.5


def test_grandchildren_and_those_in_sessions_of_their_own_are_killed():
    script = (
        "sleep 61 & echo pid=$!; setsid sh -c 'sleep 62 & echo pid=$!; echo pid=$$; wait' & "
        "(sleep 63 & echo pid=$!; exec sleep 64) & echo pid=$!; trap '' TERM; sleep 65"
    )
    result = followed(["sh", "-c", script], *cancel_at(5))
    pids = pids_in(result.output)
    assert result.cancelled and len(pids) == 5
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_program_that_ignores_the_request_is_killed():
    code = (
        "import signal, time, os\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(f'pid={os.getpid()}', flush=True)\nwhile True: time.sleep(600)"
    )
    result = followed([sys.executable, "-c", code], *cancel_at(1))
    assert result.cancelled
    assert not is_alive(*pids_in(result.output))


def test_what_a_program_says_when_asked_to_end_is_kept(monkeypatch):
    monkeypatch.setattr(launcher_client, "SpawnRequest", partial(SpawnRequest, grace=4.0))
    script = "trap 'echo bye; exit 0' TERM; echo hi; while :; do :; done"
    result = followed(["sh", "-c", script], *cancel_at(1))
    assert result.output == "hi\nbye\n"
    assert result.exit_code is None


def test_a_flood_of_output_does_not_hide_the_deadline():
    result = run(["yes"], timeout=0.5)
    assert result.timed_out and result.total_chars > 1000


def test_a_command_that_closes_its_output_still_has_a_deadline():
    result = sh("exec >&- 2>&-; sleep 600", timeout=0.5)
    assert result.timed_out


def test_cancelling_ends_it():
    cancelled = threading.Event()
    argv = ["sh", "-c", "echo pid=$$; sleep 600"]
    result = followed(argv, lambda *_: cancelled.set(), cancelled)
    assert result.cancelled and not result.timed_out and result.exit_code is None
    assert not is_alive(*pids_in(result.output))


def test_cancelling_from_another_thread():
    cancelled = threading.Event()
    timer = threading.Timer(0.2, cancelled.set)
    timer.start()
    result = followed(["sleep", "600"], lambda *_: None, cancelled)
    timer.join()
    assert result.cancelled


def test_what_it_leaves_in_the_background_ends_with_it_and_is_counted():
    result = sh("sleep 600 & echo pid=$!; setsid sleep 601 & echo pid=$!; echo done")
    assert result.exit_code == 0
    assert result.leftovers == 2 and not result.killed_for
    assert result.output.endswith("done\n")
    pids = pids_in(result.output)
    assert len(pids) == 2 and not [pid for pid in pids if is_alive(pid)]


def test_a_background_child_that_floods_the_output_does_not_hold_the_call(tmp_path):
    result = sh(f"yes & echo $! > {shlex.quote(str(tmp_path))}/pid")
    assert result.leftovers == 1 and result.exit_code == 0
    assert not is_alive(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_nothing_is_left_open():
    with none_left():
        for _ in range(5):
            sh("echo x")
            sh("sleep 60", timeout=0.05)
            with pytest.raises(RespondToModel):
                run(["no-such-program"])


# -- what cannot start --------------------------------------------------------------------------


def test_a_missing_program_is_named():
    with pytest.raises(RespondToModel, match="Command not found: 'no-such-program'"):
        run(["no-such-program"])


def test_a_file_that_is_no_program(tmp_path):
    (tmp_path / "notes").write_text("x", encoding="utf-8")
    with pytest.raises(RespondToModel, match=r"'\./notes' cannot be run: it is not an executable"):
        run(["./notes"], cwd=tmp_path)
    (tmp_path / "notes").chmod(0o755)
    with pytest.raises(RespondToModel, match="neither a program nor a script"):
        run(["./notes"], cwd=tmp_path)
    (tmp_path / "notes").write_text("#!/no/such/interpreter\n", encoding="utf-8")
    with pytest.raises(RespondToModel, match="interpreter that its first line names"):
        run(["./notes"], cwd=tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RespondToModel, match="does not exist or is not a folder"):
        run(["true"], cwd=tmp_path / "gone")


@pytest.mark.parametrize("argv", [[], [""]])
def test_an_empty_command(argv):
    with pytest.raises(RespondToModel, match="empty"):
        run(argv)


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_a_word_no_program_can_be_given(word):
    with pytest.raises(RespondToModel, match="remove it"):
        run(["echo", word])


def test_a_command_longer_than_the_system_takes():
    with pytest.raises(RespondToModel, match="too long"):
        run(["echo", "x" * 3_000_000])


# -- how it reads -------------------------------------------------------------------------------


def test_what_the_model_reads():
    output = sh("printf '\\033[31mred\\033[0m\\n'; exit 4").to_output(10_000)
    first, second, *rest = output.text.split("\n")
    assert first == "Exit code: 4"
    assert rest == ["Original token count: 1", "Output:", "red", ""]
    assert re.fullmatch(r"Wall time: \d+\.\d+ seconds", second)
    assert not output.success
    assert output.details["exit_code"] == 4 and output.details["output"] == "red\n"
    assert sh("true").to_output(10_000).success
    assert sh("true").to_output(10_000).text.endswith("Output:\n(no output)")


def test_a_long_output_is_cut_with_true_counts_and_fits():
    result = python("for n in range(1, 20_001): print('line', n)")
    text = result.to_output(2_000).text
    assert len(text) <= 2_000
    body = text.partition("Output:\n")[2]
    tokens, counts = text.split("\n")[2:4]
    total, omitted = (int(word) for word in counts.split() if word.isdigit())
    assert tokens == f"Original token count: {total // 4}"
    assert total == len(result.output)
    marker = f"… {omitted} characters left out …\n"
    assert marker in body and len(body) - len(marker) == total - omitted
    assert body.startswith("line 1\n") and body.endswith("line 20000\n")


def test_counts_are_true_where_most_was_never_kept():
    result = sh("seq 1000000 9999999 | head -c 3300000")
    text = result.to_output(5_000).text
    total, omitted = (int(word) for word in text.split("\n")[3].split() if word.isdigit())
    body = text.partition("Output:\n")[2]
    marker = f"… {omitted} characters left out …\n"
    assert total == 3_300_000 and text.count("left out …") == 1
    assert len(body) - len(marker) == total - omitted


def test_a_timeout_says_so_and_what_to_do():
    output = sh("echo begun; sleep 60", timeout=1.5).to_output(10_000)
    assert output.text.startswith("Exit code: 124\nTimed out after 1.5 s; the process tree was ")
    assert "killed. What came until then:\nbegun\n" in output.text
    assert output.text.endswith(
        "[A larger timeout_ms gives it more time; exec_command keeps a long command running as a "
        "session.]"
    )
    assert not output.success and output.details["exit_code"] is None


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "1 process it left in the background was ended; use exec_command for a server."),
        (3, "3 processes it left in the background were ended; use exec_command for a server."),
    ],
)
def test_what_was_left_behind_is_told(count, sentence):
    result = CommandResult(("x",), 0, 0.1, "up\n", "up\n", "", leftovers=count)
    output = result.to_output(1000)
    assert output.text.endswith(f"up\n[{sentence}]") and output.success


def test_where_the_whole_output_is_and_why_it_is_not():
    result = sh("yes 0123456789 | head -c 3300000")
    assert "the whole output" not in result.to_output(5_000).text
    kept = result.to_output(5_000, lambda: "@r3").text.split("\n")[3]
    assert kept.startswith("Total output: 3300000 characters, ")
    assert kept.endswith(" left out; the whole output: @r3")
    assert result.spool.path().read_bytes() == b"0123456789\n" * 300_000
    assert "the whole output" not in sh("echo x").to_output(5_000, lambda: "@r3").text


def test_a_session_that_runs_and_one_whose_end_was_not_seen():
    output = CommandResult(("x",), None, 1.5, "up\n", "up\n", "", session_id=12345).to_output(1000)
    assert output.text == (
        "Session 12345 is running.\nWall time: 1.500 seconds\n"
        "Original token count: 0\nOutput:\nup\n"
    )
    assert output.success and output.details["session_id"] == 12345
    lost = CommandResult(("x",), None, 1.5, "up\n", "up\n", "", lost="The launcher was killed.")
    assert lost.to_output(1000).text == "The launcher was killed. What came until then:\nup\n"
    assert not lost.to_output(1000).success and not lost.running
    killed = replace(lost, lost="", killed_for="kill", session_id=12345)
    assert killed.to_output(1000).text.startswith("Killed, with everything it had started. ")
    assert not killed.running


def test_a_part_of_what_a_process_says_and_where_to_go_on():
    process = shared_launcher().spawn(["cat"], cwd="/", env=os.environ, stdin=True)
    heard = threading.Event()
    process.add_listener(lambda stream, text: heard.set())
    process.write("one\n")
    assert heard.wait(20)
    first, position = collect(process, session_id=7)
    assert (first.output, first.running, first.exit_code) == ("one\n", True, None)
    process.write("two\n\x04")
    assert process.wait(20)
    second, position = collect(process, position, session_id=7)
    assert (second.output, second.running, second.exit_code) == ("two\n", False, 0)
    assert collect(process, position)[0].output == ""


def test_what_a_person_sees():
    result = sh("printf 'two\\nlines'")
    assert re.match(r"two\nlines\n\[exit code 0, \d+\.", repr(result))
    assert "timed out after 0.2 s" in repr(sh("sleep 60", timeout=0.2))
    assert len(repr(sh("yes | head -c 100000"))) < 11_000


def test_a_result_cannot_be_changed():
    with pytest.raises(AttributeError):
        sh("true").exit_code = 1


def test_no_zombie_is_left():
    sh("true")
    listed = subprocess.run(
        ["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True, text=True
    ).stdout
    assert not [state for state in listed.split() if state.startswith("Z")]


def test_equal_lines_are_read_once_and_all_are_counted():
    result = sh("yes 'warning: old' | head -n 500; echo done")
    text = result.to_output(10_000).text
    assert text.endswith("warning: old\n… 499 more lines like this one …\ndone\n")
    assert len(result.output) == 500 * len("warning: old\n") + len("done\n")
