"""Protected files and refusals as a call meets them, in each tier that this machine has."""

import logging
import os
import re
import subprocess
import threading

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.exec.launcher_client import current_tier, shared_launcher

TIERS = range(1, shared_launcher().capabilities().tier + 1)


@pytest.fixture(params=[1, 2])
def tier(request, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", str(request.param))
    return request.param


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@pytest.fixture
def run(tier, workspace):
    """Run a script as a model would; return what the model reads."""
    asked = []

    def on_question(question):
        asked.append(question)
        return "approve"

    with Agent(tools=["shell"], cwd=workspace, on_question=on_question) as agent:

        def script(text, **arguments):
            output = agent.call_sync("shell", {"command": ["bash", "-c", text], **arguments})
            return output.text

        script.asked = asked
        yield script


GIT = "git -c user.name=n -c user.email=e"


def test_a_commit_works_and_nothing_is_told(run):
    said = run(f"echo x > a; {GIT} add a && {GIT} commit -qm x && git log --oneline | wc -l")
    assert "Exit code: 0" in said and "\n1\n" in said
    assert "[" not in said and not run.asked


@pytest.mark.parametrize(
    "script",
    [
        "echo evil > .git/hooks/post-commit",
        "printf '[core]\\nfsmonitor=evil\\n' >> .git/config",
        "echo '* filter=x' > .git/info/attributes",
        "mkdir -p .agent_magics/tools; echo evil > .agent_magics/tools/x.py",
        "mv .git .git2; mkdir -p .git/hooks; echo evil > .git/hooks/post-commit",
        "mv .git .git2; mkdir -p own/hooks; echo evil > own/hooks/x; ln -s own .git",
    ],
)
def test_what_would_run_later_is_not_there_afterwards(script, run, workspace):
    control = workspace.parent / "control"  # the script does what it is to be kept from
    subprocess.run(["git", "init", "-q", control], check=True)
    subprocess.run(["bash", "-c", script], cwd=control, check=True)
    planted = "grep -rlE 'evil|filter=x' .git .agent_magics 2>/dev/null"
    assert subprocess.run(["bash", "-c", planted], cwd=control, capture_output=True).stdout
    said = run(f"{script}; echo ran")
    assert "ran" in said
    after = subprocess.run(["bash", "-c", planted], cwd=workspace, capture_output=True, text=True)
    assert after.stdout == ""
    assert "protected" in said.lower() or "Read-only file system" in said or "busy" in said


@pytest.mark.parametrize("place", ["a/b/c/d/e/f", "zz"])
def test_a_repository_anywhere_is_protected(place, run, workspace):
    for number in range(300):
        (workspace / f"a{number}").mkdir()
    subprocess.run(["git", "init", "-q", workspace / place], check=True)
    (workspace / place / ".env").write_text("KEY=SECRET", encoding="utf-8")
    said = run(f"echo evil > {place}/.git/hooks/post-commit; cat {place}/.env; echo ran")
    assert "ran" in said and ("Protected files" in said or "Read-only file system" in said)
    assert not (workspace / place / ".git/hooks/post-commit").exists()
    assert "SECRET" not in said or current_tier() < 2


@pytest.mark.parametrize(
    "script",
    [
        "git init -q x && echo evil > x/.git/hooks/post-commit",
        "git init -q --bare x && printf '[core]\\nfsmonitor=evil\\n' >> x/config",
        "cp -r .git .git2 && mkdir x && mv .git2 x/.git && echo evil > x/.git/hooks/post-commit",
    ],
)
def test_a_repository_that_the_command_makes_is_told(script, run):
    said = run(script)
    assert "Protected files: " in said and "look at" in said


@pytest.mark.soak
def test_a_session_cannot_plant_anything_after_its_call(tier, workspace):
    """What it writes later is put back while it lives, and both the person and the model hear."""
    script = "read line; echo evil > .git/hooks/post-commit && echo planted; read line"
    with Agent(tools=["exec_command", "write_stdin"], cwd=workspace) as agent:
        call = {"cmd": script, "yield_time_ms": 250, "tty": True}
        started = agent.call_sync("exec_command", call)
        session = int(re.search(r"Session (\d+)", started.text)[1])
        more = {"session_id": session, "chars": "\n", "yield_time_ms": 3000}
        said = agent.call_sync("write_stdin", more).text
    assert not (workspace / ".git/hooks/post-commit").exists()
    if tier == 1:
        assert "planted" in said and "Protected files: moved" in said
    else:
        assert "Read-only file system" in said


def test_an_approved_escalation_may_change_them(run, workspace):
    run(
        "git config core.pager less",
        sandbox_permissions="require_escalated",
        justification="the person wants less",
    )
    assert len(run.asked) == 1
    assert "less" in (workspace / ".git/config").read_text(encoding="utf-8")
    assert "[" not in run("true")


def test_a_refusal_says_what_holds_and_how_to_ask(run, workspace):
    outside = workspace.parent / "outside"
    said = run(f"echo x > {outside}")
    assert f"The sandbox may have refused it something: workspace-write: {workspace} and" in said
    assert 'sandbox_permissions="require_escalated"' in said
    assert not outside.exists()
    assert not run.asked


def test_a_key_is_hidden(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_x").write_text("SECRET", encoding="utf-8")
    said = run(f"cat {tmp_path}/.ssh/id_x; echo ran; false")
    assert "ran" in said and "SECRET" not in said
    assert subprocess.run(["cat", tmp_path / ".ssh/id_x"], capture_output=True).stdout == b"SECRET"


@pytest.mark.needs("tier 1")
def test_what_a_session_plants_after_its_run_goes_to_the_log(monkeypatch, workspace):
    """A program that has its result listens no more."""
    monkeypatch.setenv("AGENT_MAGICS_TIER", "1")
    os.mkfifo(workspace / "gate")
    script = "cat gate; echo evil > .git/hooks/post-commit"
    call = Call("exec_command", {"cmd": script, "yield_time_ms": 250})
    heard = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record):
            if "Protected files: moved" in record.getMessage():
                heard.set()

    handler = Heard()
    logging.getLogger("agent_magics").addHandler(handler)
    try:
        with Agent(ScriptedModel([call, "Done."]), ["exec_command"], cwd=workspace) as agent:
            agent.run_sync("Go.")
            (workspace / "gate").write_text("", encoding="utf-8")
            assert heard.wait(30)
    finally:
        logging.getLogger("agent_magics").removeHandler(handler)
    assert not (workspace / ".git/hooks/post-commit").exists()
