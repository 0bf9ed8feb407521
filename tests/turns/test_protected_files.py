"""Protected files and refusals as a call meets them, in each tier that this machine has."""

import subprocess

import pytest

from agent_magics import Agent
from agent_magics.backends.exec.launcher import shared_launcher

TIERS = range(1, shared_launcher().capabilities().tier + 1)


@pytest.fixture(params=TIERS or [pytest.param(0, marks=pytest.mark.skip("tier 0: no sandbox"))])
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


def test_an_approved_escalation_may_change_them(run, workspace):
    run(
        "git config core.pager less",
        sandbox_permissions="require_escalated",
        justification="the person wants less",
    )
    assert len(run.asked) == 1
    assert "less" in (workspace / ".git/config").read_text(encoding="utf-8")
    assert "[" not in run("true")


def test_a_refusal_names_what_and_how_to_ask(run, workspace):
    outside = workspace.parent / "outside"
    said = run(f"echo x > {outside}")
    assert f"The sandbox refused writing {outside}" in said
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
