"""A cell in a terminal: its last line says what the turn waits for, and is gone afterwards."""

import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

from agent_magics.kernel.cell import console
from agent_magics.kernel.cell.console import ConsoleOutputs
from agent_magics.render.status import TurnStatus
from tests.support.gates import Gate

CLEAR = "\r\x1b[K"
CODE = """
get_ipython().run_line_magic("load_ext", "agent_magics")
from agent_magics import Agent, Call, ScriptedModel, tool

@tool(mutating=False, parallel=True)
def look(what: str) -> str:
    "Look."
    return open(what).read()

notebook = get_ipython().magics_manager.registry["AgentMagics"].notebook
model = ScriptedModel([Call("look", {"what": "gate"}), "It is done."])
notebook.agents["default"] = Agent(model, [look], name="default")
get_ipython().run_cell_magic("agent", "", "Go.")
print("The", "end.")
"""


def read_until(terminal: int, is_there: Callable[[str], object], shown: str = "") -> str:
    while not is_there(shown):
        shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_it_says_what_it_waits_for(tmp_path, term):
    gate = Gate(tmp_path / "gate")
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", CODE]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "TERM": term, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        try:
            if term == "dumb":
                shown = read_until(terminal, lambda text: "… running look" in text)
            else:
                waits = re.compile(r"\r\x1b\[K… Runs look: [^\r]*, [1-9]\d* s")
                shown = read_until(terminal, waits.search)
            gate.open()
            shown = read_until(terminal, lambda text: "The end." in text, shown)
        finally:
            process.kill()
            os.close(terminal)
    left = re.sub(r"[^\r\n]*\r\x1b\[K", "", shown)  # as the terminal shows it
    assert "It is done." in left
    assert "Runs look" not in left
    assert ("\x1b[K" in shown) == (term == "xterm")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_stage_is_shown_once_it_lasts(capsys, monkeypatch, is_terminal):
    outputs = ConsoleOutputs(publisher=None)
    outputs._is_terminal = is_terminal
    monkeypatch.setattr(console.shutil, "get_terminal_size", lambda: os.terminal_size((20, 24)))
    clock = [1000.0]
    status = TurnStatus(lambda: clock[0])
    shown = []
    for clock[0], doing in ((1000.2, "Waits for 水水水水"), (1000.5, "Waits"), (1002.4, "Waits")):
        status.doing = doing
        outputs.show_activity(status)
        shown.append(capsys.readouterr().out)
    clock[0], status.doing = 1002.5, "Waits for 水水水水"
    outputs.show_activity(status)
    outputs.clear_activity()
    shown.append(capsys.readouterr().out)
    long = "… Waits for 水水水" if is_terminal else "… Waits for 水水水水\n"
    if is_terminal:
        later = [f"{CLEAR}… Waits, 0 s", f"{CLEAR}… Waits, 2 s", f"{CLEAR}{long}{CLEAR}"]
    else:
        later = ["… Waits\n", "", long]
    assert shown == ["", *later]
