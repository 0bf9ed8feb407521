"""Scratch python: a process beside the kernel, in the sandbox, that keeps its variables."""

import gc
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from html import escape
from pathlib import Path

import matplotlib
import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ExecCommandOutputDelta,
    LiveOutput,
)
from agent_magics.protocol.items import InputImage, InputText, ToolCallOutput
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.code import scratch
from tests.support.descriptors import none_left

pytestmark = pytest.mark.needs("tier 1")


@pytest.fixture(scope="module")
def agent_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One agent, and so one scratch process at a time, for most tests."""
    with Agent(ScriptedModel([]), ["python"], cwd=tmp_path_factory.mktemp("scratch")) as agent:
        yield agent


@pytest.fixture
def agent(agent_of_all: Agent) -> Agent:
    """Have a scratch process, whatever tests before have made of theirs: a new one is told of."""
    run(agent_of_all, "pass")
    return agent_of_all


def run(agent: Agent, code: str, **arguments) -> ToolOutput:
    return agent.call_sync("python", {"code": code, "where": "scratch", **arguments})


def test_it_is_a_cell_with_variables_that_stay(agent):
    output = run(agent, "import asyncio\nx = 40\nprint('said')\nawait asyncio.sleep(0)\nx + 2")
    assert (output.success, output.text) == (True, "said\n42\n")
    assert run(agent, "x").text == "40\n"
    assert run(agent, "x;").text == "(no output)"


def test_what_children_print_stands_in_its_place(agent):
    code = "import os, sys\nprint('one')\nos.system('echo two')\n"
    code += "print('three', file=sys.stderr)\n!echo four"
    assert run(agent, code).text == "one\ntwo\nthree\nfour\n"


def test_an_error_is_told_as_in_the_kernel(agent):
    output = run(agent, "def deep():\n    1 / 0\ndeep()")
    assert not output.success
    assert output.text.splitlines() == [
        "Traceback (most recent call last):",
        "  line 3 of the code, in <module>",
        "    deep()",
        "  line 2 of the code, in deep",
        "    1 / 0",
        "ZeroDivisionError: division by zero",
    ]
    assert run(agent, "a b").text.endswith("SyntaxError: invalid syntax")
    assert run(agent, "frame").text.endswith(
        "[This ran in scratch: pass variables of the notebook with values.]"
    )
    for ending in ("exit()", "import sys; sys.exit(1)", "input('name? ')"):
        assert not run(agent, ending).success
    run(agent, "import sys\nsys.stdout.close()\nsys.stderr = None")
    assert run(agent, "print(40)").text == "40\n"


@pytest.mark.soak
def test_a_value_whose_repr_fails_is_named(agent):
    assert "<an int of 33,220 bits>" in run(agent, "10**10_000").text


def test_figures_come_back(agent):
    output = run(
        agent, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')\nplt.show()"
    )
    words, picture = output.content
    assert isinstance(words, InputText) and words.text.startswith("drawn\n[figure: ")
    assert isinstance(picture, InputImage) and picture.image_url.startswith("data:image/png")


@pytest.mark.needs("program fc-list")
def test_fonts_are_found_without_a_word_where_their_cache_cannot_be_written(tmp_path, monkeypatch):
    fonts, given = tmp_path / "a & b", tmp_path / "<c>.conf"
    shutil.copytree(Path(matplotlib.get_data_path(), "fonts/ttf"), fonts)
    text = f"<dir>{escape(str(fonts))}</dir><cachedir>/proc/nowhere</cachedir>"
    given.write_text(f"<fontconfig>{text}</fontconfig>")
    monkeypatch.setenv("FONTCONFIG_FILE", str(given))
    listed = ["fc-list", "--format=%{file}\n"]  # as matplotlib asks
    control = subprocess.run(listed, capture_output=True, text=True, check=True)
    assert "No writable cache directories" in control.stderr
    with Agent(ScriptedModel([]), ["python"], cwd=tmp_path) as agent:
        said = run(agent, f"import subprocess\nsubprocess.run({listed}, check=True);").text
    assert sorted(said.split("\n")) == sorted(control.stdout.split("\n"))


def test_it_is_confined_as_commands_are(agent, tmp_path):
    outside = tmp_path / "outside.txt"
    output = run(agent, f"open('inside.txt', 'w').write('x')\nopen({str(outside)!r}, 'w')")
    assert not output.success and not outside.exists()
    assert "[The sandbox may have refused it something." in output.text
    assert (agent.config.cwd / "inside.txt").read_text() == "x"
    code = "import socket\nsocket.create_connection(('127.0.0.1', 9))"
    assert "Operation not permitted" in run(agent, code).text
    assert "OPENAI" not in run(agent, "import os\nsorted(os.environ)").text


def test_what_it_changes_of_protected_files_is_undone_at_each_call(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "1")
    code = "import os; os.makedirs('.agent_magics/tools', exist_ok=True)"
    with Agent(ScriptedModel([]), ["python"], cwd=tmp_path) as agent:
        for _ in range(2):
            assert "moved" in run(agent, code).text
            assert not (tmp_path / ".agent_magics").exists()


RULE = '[[rule]]\npermission = "read"\npattern = "payroll/**"\ndecision = "forbid"\n'


def forbid(folder: Path) -> None:
    (folder / ".agent_magics").mkdir(exist_ok=True)
    (folder / ".agent_magics/rules.toml").write_text(RULE, encoding="utf-8")


@pytest.mark.needs("tier 2")
def test_what_a_rule_forbids_by_now_is_not_read(tmp_path):
    (tmp_path / "payroll").mkdir()
    (tmp_path / "payroll/a.txt").write_text("hunter2", encoding="utf-8")
    code = "print(open('payroll/' + 'a.txt').read())"
    with Agent(ScriptedModel([]), ["python"], cwd=tmp_path) as agent:
        assert run(agent, code).text == "hunter2\n"
        forbid(tmp_path)
        said = run(agent, code).text
        assert "settings have changed" in said and "hunter2" not in said
        assert "A new scratch process" not in run(agent, "1").text


@pytest.mark.parametrize("tool", ["python", "exec_command"])
def test_rules_that_cannot_be_kept_are_told(tool, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "1")
    (tmp_path / "payroll").mkdir()
    forbid(tmp_path)
    arguments = {"cmd": "echo; read x", "yield_time_ms": 250, "tty": True}
    with Agent(ScriptedModel([]), ["python", "exec_command"], cwd=tmp_path) as agent:
        output = run(agent, "1") if tool == "python" else agent.call_sync(tool, arguments)
        assert "Rules about reading payroll/** cannot be kept" in output.text


def test_what_it_takes_too_long_for_is_stopped_and_variables_stay(agent):
    output = run(agent, "x = 1\nimport time\nwhile True:\n    time.sleep(0.01)", timeout_ms=1_000)
    assert "The code was stopped after 1 s (timeout_ms)" in output.text
    assert run(agent, "x").text == "1\n"
    endless = run(agent, "while True:\n    print('again ' * 100)", timeout_ms=1_000)
    assert not endless.success and "The code was stopped" in endless.text
    assert len(endless.text) < 20_000
    assert run(agent, "x").text == "1\n"


@pytest.mark.soak
def test_where_it_dies_that_is_told_and_a_new_one_comes(agent):
    run(agent, "x = 5")
    output = run(agent, "import os\nos._exit(3)")
    assert "The scratch process has ended (exit code 3): its variables are gone" in output.text
    output = run(agent, "'x' in globals()")
    assert output.text.startswith("False\n[A new scratch process: the one before has ended;")
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert "killed, its variables are gone" in run(agent, stubborn, timeout_ms=1_000).text


FORGED = """
import json, os, pickle, struct

class Evil:
    def __reduce__(self):
        return os.mkdir, ({path!r},)

{send}
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    "send",
    [
        "data = pickle.dumps(Evil())",
        "data = b'[' * 100_000",
        "data = json.dumps(['no', 'object']).encode()",
        "data = json.dumps({'mime': 'image/png', 'image': 'no picture'}).encode()",
        "data = None",
    ],
    ids=["pickle", "deep", "list", "picture", "length"],
)
def test_what_it_sends_is_never_trusted(agent, tmp_path, send):
    """Code that has the whole process speaks to the kernel itself."""
    there = tmp_path / "unpickled"
    forged = FORGED.format(path=str(there), send=send) + (
        "head = struct.pack('!I', len(data) if data else 2**31)\n"
        "for fd in range(3, 50):\n"
        "    try:\n"
        "        if os.readlink(f'/proc/self/fd/{fd}').endswith('/answers'):\n"
        "            os.write(fd, head + (data or b''))\n"
        "    except OSError:\n"
        "        pass\n"
    )
    output = run(agent, forged)
    if "image" in send:
        assert (output.success, output.content) == (True, "(no output)")
    else:
        assert not output.success
        assert "and was ended" in output.text or "at once" in output.text
    assert not there.exists()
    assert run(agent, "1 + 1").text.startswith("2\n")


SPOKEN = """
import json, os, struct
data = json.dumps({message}).encode()
for fd in range(3, 50):
    try:
        if os.readlink(f'/proc/self/fd/{{fd}}').endswith('/answers'):
            os.set_blocking(fd, True)
            for part in [struct.pack('!I', len(data)) + data] * {times}:
                left = memoryview(part)
                while left:
                    left = left[os.write(fd, left):]
    except OSError:
        pass
os._exit(0)
"""


@pytest.mark.parametrize(
    "message",
    ["{'end': '', 'failed': {'x': 'long ' * 1_000_000}}", "{'end': 'long ' * 1_000_000}"],
    ids=["failed", "error"],
)
def test_what_it_says_of_a_failure_does_not_fill_the_conversation(tmp_path, message):
    with Agent(ScriptedModel([]), ["python"], cwd=tmp_path) as agent:
        output = run(agent, SPOKEN.format(message=message, times=1))
    assert not output.success
    assert "long long" in output.text
    assert len(output.text) < 300_000


def test_a_flood_that_it_forges_is_cut_where_it_comes_in(tmp_path):
    code = SPOKEN.format(message="{'text': 'flood ' * 500_000}", times=5)
    call = Call("python", {"code": code, "where": "scratch"})
    with Agent(ScriptedModel([call, "Done."]), ["python"], cwd=tmp_path) as agent:
        result = agent.run_sync("Go.")
    shown = [e.text for e in result.events if isinstance(e, ExecCommandOutputDelta)]
    assert 0 < sum(map(len, shown)) <= 2_000_000


def test_half_characters_in_what_it_sends_are_made_whole(tmp_path):
    picture = "{'mime': 'image/png', 'image': 'iVBORw0KGgo=', 'plain': 'half \\ud800'}"
    code = SPOKEN.format(message=picture, times=1)
    call = Call("python", {"code": code, "where": "scratch"})
    with Agent(ScriptedModel([call, "Done."]), ["python"], cwd=tmp_path) as agent:
        result = agent.run_sync("Go.")
    (shown,) = [e for e in result.events if isinstance(e, LiveOutput)]
    assert shown.data["text/plain"] == "half ?"


def test_values_must_be_there_and_of_a_size(agent, monkeypatch):
    assert "there is no variable frame" in run(agent, "1", values=["frame"]).text
    handle = agent.session.conversation.handles.keep_value({"a": [1, 2]})
    assert run(agent, f"_{handle[1:]}", values=[handle]).text == "{'a': [1, 2]}\n"
    monkeypatch.setattr(scratch, "MOST_PASSED", 1_000)
    large = agent.session.conversation.handles.keep_value(bytes(2_000))
    assert "the most that is copied to scratch" in run(agent, "1", values=[large]).text
    odd = agent.session.conversation.handles.keep_value(threading.Lock())
    assert "cannot be copied to scratch (TypeError" in run(agent, "1", values=[odd]).text


def test_what_it_says_is_shown_as_events(tmp_path):
    call = Call("python", {"code": "print('live')", "where": "scratch"})
    with Agent(ScriptedModel([call, "Done."]), ["python"], cwd=tmp_path) as agent:
        result = agent.run_sync("Go.")
        process = next(iter(agent.session.conversation.processes._running))
    shown = [e.text for e in result.events if isinstance(e, ExecCommandOutputDelta)]
    assert "".join(shown) == "live\n"
    assert not [e for e in result.events if isinstance(e, (ApprovalRequested, LiveOutput))]
    (decided,) = (e for e in result.events if isinstance(e, ApprovalDecided))
    assert decided.decision == "run"
    assert process.ended, "it ends with the conversation"


def test_an_interrupt_ends_the_code_and_the_turn(tmp_path):
    sign = tmp_path / "at-work"
    code = f"import time\nopen({str(sign)!r}, 'w')\nprint('at work')\ntime.sleep(600)"
    model = ScriptedModel([Call("python", {"code": code, "where": "scratch"}), "Done."])

    class Stops:
        def on_event(self, event):
            if isinstance(event, ExecCommandOutputDelta):
                raise_signal.set()

    raise_signal = threading.Event()

    def press():
        if raise_signal.wait(60):
            os.kill(os.getpid(), 2)

    presser = threading.Thread(target=press)
    presser.start()
    with Agent(model, ["python"], cwd=tmp_path, hooks=[Stops()]) as agent:
        with pytest.raises(KeyboardInterrupt):
            agent.run_sync("Go.")
        presser.join()
        outputs = [
            i for i in agent.session.conversation.history.items if isinstance(i, ToolCallOutput)
        ]
        assert len(outputs) == 1


@pytest.mark.soak
def test_settings_that_change_make_a_new_one(tmp_path):
    with Agent(ScriptedModel([]), ["python"], cwd=tmp_path) as agent:
        run(agent, "x = 1")
        agent.configure(sandbox="read-only")
        output = run(agent, "'x' in globals(), open('a.txt', 'w')")
        assert "the sandbox's settings have changed" in output.text
        assert not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize(
    ("python", "where", "told"),
    [
        ("scratch", None, "7"),
        ("scratch", "live", "is switched off here"),
        ("live", None, "needs a notebook kernel"),
        ("off", "scratch", "python is switched off here"),
    ],
)
def test_the_policy_says_where(tmp_path, python, where, told):
    with Agent(
        ScriptedModel([]), ["python"], cwd=tmp_path, python=python, approval="never"
    ) as agent:
        assert told in agent.call_sync("python", {"code": "3 + 4", "where": where}).text


@pytest.mark.parametrize(
    ("approval", "tier", "asked"),
    [("untrusted", "", True), ("on-request", "", False), ("on-request", "0", True)],
)
def test_who_is_asked(tmp_path, monkeypatch, approval, tier, asked):
    monkeypatch.setenv("AGENT_MAGICS_TIER", tier)
    questions = []

    def answer(question):
        questions.append(question)
        return "deny"

    call = Call("python", {"code": "1", "where": "scratch"})
    model = ScriptedModel([call, "Done."])
    with Agent(model, ["python"], cwd=tmp_path, approval=approval, on_question=answer) as agent:
        agent.run_sync("Go.")
    assert bool(questions) == asked


@pytest.mark.soak
def test_nothing_is_left_behind(tmp_path):
    with none_left(most=2):
        for _ in range(3):
            with Agent(ScriptedModel([]), ["python"], cwd=tmp_path) as agent:
                run(agent, "1")
                folder = agent.session.conversation.processes.tmpdir
            assert not folder.exists()
        gc.collect()
