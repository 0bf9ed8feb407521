"""The corpus of command lines through real calls: nothing unsafe runs unasked, all safe ones do."""

import shlex
import subprocess

import pytest

from agent_magics import Call
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested, ExecCommandBegin
from tests.support.corpora.commands import corpus
from tests.support.needs import require
from tests.support.turns import of_kind, scripted

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]


@pytest.fixture
def workspace(tmp_path):
    """A small project, with a repository where git is asked."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "src").mkdir()
    for name in ("README.md", "a.txt", "b.txt", "names.txt", "data.txt", "src/app.py", "a", "b"):
        (tmp_path / name).write_text("one foo\ntwo\n", encoding="utf-8")
    return tmp_path


def run_all(lines, workspace, policy):
    """Return (line, asked, run) of each command, every question being denied."""
    asked = []

    def on_question(question):
        asked.append(question.call_id)
        return "deny"

    agent = scripted(
        *([Call("shell", {"command": argv}, call_id=f"c{n}")] for n, argv in enumerate(lines)),
        "Done.",
        tools=["shell"],
        approval=policy,
        cwd=workspace,
        on_question=on_question,
        max_turns=len(lines) + 1,
    )
    # Questions in a row that are denied end the asking; here each is a case of its own.
    result = agent.run_sync("Go")
    assert result.status == "completed", result.error
    ran = {event.call_id for event in of_kind(result, ExecCommandBegin)}
    agent.close()
    return [(shlex.join(argv), f"c{n}" in asked, f"c{n}" in ran) for n, argv in enumerate(lines)]


def in_groups(lines, size=20):
    return [lines[start : start + size] for start in range(0, len(lines), size)]


@pytest.mark.parametrize("policy", ["untrusted", "on-request"])
def test_every_safe_command_runs_without_a_question(workspace, policy, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    outcomes = run_all(corpus("safe"), workspace, policy)
    assert [line for line, asked, ran in outcomes if asked or not ran] == []


@pytest.mark.parametrize("lines", in_groups([*corpus("unsafe"), *corpus("confined")]))
def test_no_unsafe_command_runs_without_a_question(workspace, monkeypatch, lines):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    outcomes = run_all(lines, workspace, "on-request")
    assert [line for line, _, ran in outcomes if ran] == []


@pytest.mark.parametrize("lines", in_groups(corpus("unsafe"), 24))
def test_in_a_sandbox_untrusted_asks_about_every_unsafe_command(workspace, lines):
    require("tier 1")
    outcomes = run_all(lines, workspace, "untrusted")
    assert [line for line, _, ran in outcomes if ran] == []


@pytest.mark.soak
def test_in_a_sandbox_untrusted_lets_git_and_rg_read(workspace):
    require("tier 1")
    outcomes = run_all(corpus("confined"), workspace, "untrusted")
    assert [line for line, asked, ran in outcomes if asked or not ran] == []


def test_every_decision_about_a_command_is_recorded(workspace):
    agent = scripted(
        [Call("shell", {"command": ["ls"]}), Call("shell", {"command": ["touch", "x"]})],
        "Done.",
        tools=["shell"],
        approval="untrusted",
        cwd=workspace,
        on_question=lambda question: "deny",
    )
    result = agent.run_sync("Go")
    read, write = of_kind(result, ApprovalDecided)
    assert (read.decision, read.by, read.basis, read.target) == ("run", "policy", "untrusted", "ls")
    assert (write.decision, write.by, write.target) == ("deny", "program", "touch x")
    assert len(of_kind(result, ApprovalRequested)) == 1
    assert all(event.fingerprints and event.sandbox for event in (read, write))
