"""Attacks that go through the tools a model has, where the operating system's sandbox is not alone.

The numbers B1-B40 are those of docs/security.md, which also says where the others are tested.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import agent_magics
from agent_magics import Agent, Call, ScriptedModel
from tests.support.turns import run_script, scripted

ROOT = str(Path(agent_magics.__file__).parents[1])
HOOK = "#!/bin/sh\ntouch escaped\n"
READERS = ("read_file", "grep_files", "list_dir")


def agent(*tools, **options):
    return scripted(tools=tools or ("shell_command",), **options)


def run(model, script, **more):
    return model.call_sync("shell_command", {"command": script, **more})


def git(*words):
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *words], check=True)


@pytest.fixture(params=[1, 2])
def tier(request, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", str(request.param))
    return request.param


@pytest.fixture
def repository(tmp_path):
    git("init", "-q", "-b", "main", ".")
    git("commit", "-q", "--allow-empty", "-m", "one")
    return tmp_path


@pytest.fixture
def home(tmp_path_factory, monkeypatch):
    """A home with secrets, outside of the workspace."""
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(place))
    for name in (".ssh/id_rsa", ".aws/credentials", ".local/share/jupyter/runtime/kernel-1.json"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("a secret\n", encoding="utf-8")
    return place


# -- rows 45, 46, 93, 95, B5, B6: what git would run later ----------------------------------------

PLANTED = {
    "45-hook": ("printf '{hook}' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", "hooks"),
    "46-fsmonitor": ("printf '[core]\\n fsmonitor = touch escaped\\n' >> .git/config", "config"),
    "93-git-made-anew": (
        "mv .git old; cp -r old .git; printf '{hook}' > .git/hooks/pre-commit;"
        " chmod +x .git/hooks/pre-commit",
        ".git",
    ),
    "95-commondir": (
        "cp -r .git evil; printf '[core]\\n fsmonitor = touch escaped; false\\n' >> evil/config;"
        " echo ../evil > .git/commondir",
        "commondir",
    ),
    "B5-link-to-hooks": (
        "mkdir own; printf '{hook}' > own/pre-commit; chmod +x own/pre-commit;"
        " mv .git/hooks old; ln -s ../own .git/hooks",
        "hooks",
    ),
}


def use_git():
    """What the person does next: both would run what was planted."""
    subprocess.run(["git", "status"], capture_output=True, check=False)
    commit = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--allow-empty"]
    subprocess.run([*commit, "-m", "two"], capture_output=True, check=False)


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_for_git_does_not_run(case, tier, repository):
    script = PLANTED[case][0].replace("{hook}", HOOK.replace("\n", "\\n"))
    with agent(approval="never") as model:
        output = run(model, script)
    use_git()
    assert not (repository / "escaped").exists()
    assert PLANTED[case][1] in output.text and "protected" in output.text.lower(), output.text


@pytest.mark.parametrize("case", PLANTED)
def test_without_a_sandbox_it_runs(case, repository):
    script = PLANTED[case][0].replace("{hook}", HOOK.replace("\n", "\\n"))
    subprocess.run(["bash", "-c", script], check=True)
    use_git()
    assert (repository / "escaped").exists()


BARE = (
    "mkdir -p objects refs/heads; echo 'ref: refs/heads/main' > HEAD;"
    " printf '[core]\\n repositoryformatversion = 0\\n bare = false\\n' > config;"
    " printf ' worktree = .\\n fsmonitor = \"touch escaped; false\"\\n' >> config"
)


def test_b6_a_workspace_that_becomes_a_bare_repository(tier, tmp_path):
    with agent(approval="never") as model:
        output = run(model, BARE)
    use_git()
    assert not (tmp_path / "escaped").exists(), output.text
    assert "HEAD" in output.text


def test_b6_without_a_sandbox_it_becomes_one(tmp_path):
    subprocess.run(["bash", "-c", BARE], check=True)
    use_git()
    assert (tmp_path / "escaped").exists()


def test_row_51_the_open_notebook(tier, tmp_path, monkeypatch):
    notebook = tmp_path / "open.ipynb"
    notebook.write_text("{}", encoding="utf-8")
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    with agent(approval="never") as model:
        output = run(model, "echo changed > open.ipynb")
    assert "open.ipynb" in output.text
    # In tier 1 it is told and left: the front end may have saved it in the same moment.
    assert tier == 1 or notebook.read_text(encoding="utf-8") == "{}"


# -- B19, B20: files by the tools of the kernel process --------------------------------------------


def reading(tool, path):
    return {"path": str(path)} | ({"pattern": "."} if tool == "grep_files" else {})


@pytest.mark.parametrize("tool", READERS)
@pytest.mark.parametrize(
    "path",
    [
        "{home}/.ssh/id_rsa",
        "{home}/.aws",
        "{home}/.local/share/jupyter/runtime/kernel-1.json",
        "/proc/self/environ",
        "/proc/{pid}/environ",
        "/proc/self/root{home}/.ssh/id_rsa",
        "/proc/self/cwd/link",
        "link",
        ".env",
    ],
)
def test_b19_b20_no_tool_reads_a_secret_unasked(tool, path, home, tmp_path):
    (tmp_path / "link").symlink_to(home / ".ssh/id_rsa")
    (tmp_path / ".env").write_text("a secret\n", encoding="utf-8")
    path = path.format(home=home, pid=os.getpid())
    with agent(*READERS, approval="never") as model:
        output = model.call_sync(tool, reading(tool, path))
    assert "a secret" not in output.text and "HOME=" not in output.text
    assert not output.success


def test_what_is_no_secret_is_read(home, tmp_path):
    (tmp_path / "plain").write_text("a secret\n", encoding="utf-8")
    with agent(*READERS, approval="never") as model:
        for tool in ("read_file", "grep_files"):
            assert "a secret" in model.call_sync(tool, reading(tool, "plain")).text


# -- B2, B3: files that change between the check and the deed --------------------------------------


def test_b2_a_folder_that_turns_into_a_link_while_patches_apply(tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "f").write_text("old\n", encoding="utf-8")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/f").write_text("old\n", encoding="utf-8")
    stop, swaps = threading.Event(), 0

    def swap():
        nonlocal swaps
        while not stop.is_set():
            os.rename(tmp_path / "inside", tmp_path / "aside")
            os.symlink(outside, tmp_path / "inside")
            os.unlink(tmp_path / "inside")
            os.rename(tmp_path / "aside", tmp_path / "inside")
            swaps += 1

    thread = threading.Thread(target=swap)
    thread.start()
    old, new = "old", "new"
    with agent("apply_patch", approval="never") as model:
        tried = 0
        while tried < 60 or swaps < 100:  # a busy machine lets the other thread make fewer
            tried += 1
            patch = f"*** Begin Patch\n*** Update File: inside/f\n@@\n-{old}\n+{new}\n*** End Patch"
            if model.call_sync("apply_patch", {"patch": patch}).success:
                old, new = new, old
    stop.set()
    thread.join()
    assert [path.name for path in outside.iterdir()] == ["f"]
    assert (outside / "f").read_text(encoding="utf-8") == "old\n"


def test_b3_a_hard_link_of_an_outside_file_keeps_its_other_name_as_it_was(
    tmp_path, tmp_path_factory
):
    outside = tmp_path_factory.mktemp("outside") / "f"
    outside.write_text("old\n", encoding="utf-8")
    os.link(outside, tmp_path / "f")
    patch = "*** Begin Patch\n*** Update File: f\n@@\n-old\n+new\n*** End Patch"
    with agent("apply_patch", approval="never") as model:
        model.call_sync("apply_patch", {"patch": patch})
    assert outside.read_text(encoding="utf-8") == "old\n"


# -- B15, B16: what a command prints ---------------------------------------------------------------

FLOOD = """
import json, resource, sys
from agent_magics import Agent, ScriptedModel
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
with Agent(ScriptedModel([]), ["shell_command"], approval="never") as agent:
    agent.call_sync("shell_command", {"command": "true"})
    before = resident()
    lines = agent.call_sync("shell_command", {"command": "yes 0123456789 | head -c 60000000"})
    script = "yes 0123456789 | tr -dc 0-9 | head -c 60000000"
    line = agent.call_sync("shell_command", {"command": script})
    print(json.dumps([resident() - before, len(lines.text), len(line.text)]))
"""


def test_b15_sixty_megabytes_cost_neither_memory_nor_the_models_window(tmp_path):
    grown, lines, line = json.loads(run_script(FLOOD))
    assert grown < 50 << 20
    assert lines < 20_000 and line < 20_000


def test_b16_bytes_that_are_no_text_become_text(tmp_path):
    with agent(approval="never") as model:
        text = run(model, r"printf 'a\xff\xfeb\x00c\xed\xa0\x80d\n'").text
    assert json.loads(json.dumps(text)) == text
    text.encode("utf-8")
    assert "\0" not in text and "a" in text and "d" in text


# -- B21, B35: the environment ---------------------------------------------------------------------


def test_b21_a_key_is_in_no_artefact(tmp_path, monkeypatch):
    key = f"sk-canary-{secrets.token_hex(16)}"
    state = Path(os.environ["XDG_STATE_HOME"])
    monkeypatch.setenv("OPENAI_API_KEY", key)
    for name in ("MY_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, key)
    script = (
        "env; cat /proc/self/environ; for p in /proc/[0-9]*; do"
        " tr '\\0' ' ' < $p/cmdline; tr '\\0' ' ' < $p/environ; done 2>/dev/null; true"
    )
    calls = [Call("shell_command", {"command": script}), Call("read_file", {"path": "leaked"})]
    (tmp_path / "leaked").write_text(f"a file with {key}\n", encoding="utf-8")
    model = Agent(
        ScriptedModel([calls, f"The key is {key}"]),
        ["shell_command", "read_file"],
        approval="never",
        api_key=key,
    )
    with model:
        result = model.run_sync("Go")
    assert [call.success for call in result.calls] == [True, True]
    assert key not in repr(model) and key not in repr(result.events)
    assert key not in result.calls[0].output
    records = [path for path in state.rglob("*") if path.is_file()]
    assert records
    assert not [path for path in records if key.encode() in path.read_bytes()]


def test_b35_variables_that_run_code_do_not_reach_the_launcher_or_a_command(tmp_path):
    code = """
import os, sys
from agent_magics import Agent, ScriptedModel
with Agent(ScriptedModel([]), ["shell_command"], approval="never") as agent:
    print(agent.call_sync("shell_command", {"command": "python3 -c 'print(6 * 7)'; env"}).text)
"""
    (tmp_path / "sitecustomize.py").write_text("open('escaped', 'w')", encoding="utf-8")
    (tmp_path / "start.sh").write_text("touch escaped-shell", encoding="utf-8")
    hostile = {
        "BASH_ENV": str(tmp_path / "start.sh"),
        "ENV": str(tmp_path / "start.sh"),
        "PROMPT_COMMAND": "touch escaped-prompt",
        "PYTHONSTARTUP": str(tmp_path / "sitecustomize.py"),
        "GIT_SSH_COMMAND": "touch escaped-git",
        "NODE_OPTIONS": "--require ./evil.js",
        "LD_AUDIT": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **hostile, "PYTHONPATH": ROOT},
    )
    assert "42" in done.stdout, done.stderr
    assert not [name for name in hostile if f"\n{name}=" in done.stdout]
    assert not list(tmp_path.glob("escaped*"))


# -- B24, B33: what was approved opens nothing else ------------------------------------------------


def test_b24_approved_network_does_not_reach_this_machine(tier):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        with agent(approval="on-request", on_question=lambda question: "approve") as model:
            output = run(
                model, script, sandbox_permissions="require_network", justification="to try"
            )
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "not permitted" in output.text or "denied" in output.text, output.text


def test_b33_what_left_the_sandbox_with_approval_is_ended_too(tmp_path):
    leash = tmp_path / "leash"
    os.mkfifo(leash)
    reading_end = os.open(leash, os.O_RDONLY | os.O_NONBLOCK)
    with agent(approval="on-request", on_question=lambda question: "approve") as model:
        output = run(
            model,
            "exec 9> leash; (setsid sleep 100 > /dev/null 2>&1 &); echo started",
            sandbox_permissions="require_escalated",
            justification="to try",
        )
        assert "started" in output.text
        assert os.read(reading_end, 1) == b""  # its end of file: nobody holds it
    os.close(reading_end)


# -- B37, B38: where there is no sandbox, or hardly any --------------------------------------------


@pytest.mark.parametrize("variable", ["AGENT_MAGICS_TIER", "AGENT_MAGICS_TEST_ABI"])
def test_b38_without_a_sandbox_nothing_runs_unasked(variable, tmp_path):
    code = """
from agent_magics import Agent, ScriptedModel
asked = []
with Agent(ScriptedModel([]), ["shell"], approval="never") as agent:
    print(agent.call_sync("shell", {"command": ["touch", "made"]}).success)
with Agent(ScriptedModel([]), ["shell"], on_question=lambda q: asked.append(1) or "deny") as agent:
    print(agent.call_sync("shell", {"command": ["touch", "made"]}).success, len(asked))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT, variable: "0"},
    )
    assert done.stdout.split() == ["False", "False", "1"], done.stdout + done.stderr
    assert not (tmp_path / "made").exists()


def test_b37_a_home_as_the_workspace_keeps_its_start_files(tier, home, monkeypatch):
    (home / ".bashrc").write_text("# the person's\n", encoding="utf-8")
    monkeypatch.chdir(home)
    with agent(approval="never", cwd=str(home)) as model:
        output = run(
            model, "echo evil >> .bashrc; echo evil > .profile; cat .ssh/id_rsa; touch plain"
        )
    assert (home / "plain").exists(), output.text
    assert (home / ".bashrc").read_text(encoding="utf-8") == "# the person's\n"
    assert not (home / ".profile").exists() or "evil" not in (home / ".profile").read_text()
    assert tier == 1 or "a secret" not in output.text


def test_b37_a_home_as_the_workspace_keeps_our_own_settings(tier, home, monkeypatch):
    """Servers, rules and tools that stand there need no trust: they would run unconfined."""
    monkeypatch.chdir(home)
    settings, trust = ".config/agent-magics/config.toml", ".local/state/agent-magics/trusted-mcp/x"
    evil = f"mkdir -p $(dirname {settings}) $(dirname {trust}); echo evil > {settings}; "
    evil += f"echo evil > {trust}; "
    moved = "mv .config .moved; mv .local .moved-too; "
    with agent(approval="never", cwd=str(home)) as model:
        run(model, evil + moved + evil + "touch plain")
    assert (home / "plain").exists()
    for path in (settings, trust):
        assert not (home / path).exists()
