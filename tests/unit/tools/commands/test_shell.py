"""The `shell` tool: what it asks for, what it runs, what it tells."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_magics.approval.actions import ActionKind
from agent_magics.exec.environment import command_environment
from agent_magics.exec.spool import Spool
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import (
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
)
from agent_magics.tools.commands.run import LIVE_MESSAGE, LiveFeed, WholeOutput
from agent_magics.tools.commands.shell import (
    assess_shell,
    assess_shell_command,
    shell,
    shell_command,
)
from tests.support.contexts import make_context


@pytest.fixture(autouse=True)
def _without_a_sandbox(monkeypatch):
    """What is asked for and told here does not depend on what this machine can confine."""
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")


def assess(ctx, command, **more):
    return assess_shell({"command": command, **more}, ctx)


# -- what it asks for ---------------------------------------------------------------------------


def test_a_reading_command_is_safe(tmp_path):
    (action,) = assess(make_context(tmp_path), ["ls", "-la"])
    assert action.kind is ActionKind.COMMAND_SAFE and action.target == "ls -la"


def test_any_other_command_has_no_sandbox(tmp_path):
    (action,) = assess(make_context(tmp_path), ["python3", "x y.py"])
    assert action.kind is ActionKind.COMMAND_UNSANDBOXED
    assert action.target == "python3 'x y.py'"
    assert action.reason.startswith("no sandbox is available here")


def test_full_access_is_its_own_row(tmp_path):
    ctx = make_context(tmp_path, sandbox=SandboxPolicy.DANGER_FULL_ACCESS)
    assert assess(ctx, ["make"])[0].kind is ActionKind.COMMAND_FULL_ACCESS
    assert assess(ctx, ["ls"])[0].kind is ActionKind.COMMAND_SAFE


def test_a_dangerous_command_is_asked_about_every_time(tmp_path):
    ctx = make_context(tmp_path, sandbox=SandboxPolicy.DANGER_FULL_ACCESS)
    (action,) = assess(ctx, ["rm", "-rf", str(tmp_path)])
    assert action.kind is ActionKind.COMMAND_DANGEROUS and action.fingerprint == ""
    assert "workspace" in action.reason


def test_secrets_are_not_read_unasked(tmp_path):
    (tmp_path / ".env").write_text("KEY=1", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / ".env")
    (tmp_path / "notes").write_text("x", encoding="utf-8")
    ctx = make_context(tmp_path)
    for command in (["cat", ".env"], ["cat", "link"], ["bash", "-c", "cat ./.env"]):
        assert assess(ctx, command)[0].kind is ActionKind.COMMAND_UNSANDBOXED
    assert assess(ctx, ["cat", "notes"])[0].kind is ActionKind.COMMAND_SAFE


def write_program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho evil\n", encoding="utf-8")
    path.chmod(0o755)


def kind_in(cwd, search_path, command, **config):
    ctx = make_context(cwd, {"PATH": search_path}, **config)
    return assess(ctx, command)[0].kind


ASKED, RUN = ActionKind.COMMAND_UNSANDBOXED, ActionKind.COMMAND_SAFE


@pytest.mark.parametrize(
    "command", [["ls"], ["bash", "-c", "ls"], ["sh", "-c", "cat a | ls && pwd"]], ids=str
)
def test_a_program_of_the_workspace_is_not_the_one_it_is_named_after(tmp_path, command):
    write_program(tmp_path / "bin/ls")
    (tmp_path / "later").symlink_to(tmp_path / "bin")
    assert kind_in(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin", command) is ASKED
    assert kind_in(tmp_path, f"/nowhere:{tmp_path}/later:/usr/bin:/bin", command) is ASKED
    assert kind_in(tmp_path, f"/usr/bin:/bin:{tmp_path}/bin", command) is RUN
    (tmp_path / "bin/ls").chmod(0o644)  # which nothing starts
    assert kind_in(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin", command) is RUN


def test_a_shell_of_the_workspace_is_not_the_one_it_is_named_after(tmp_path):
    write_program(tmp_path / "bin/bash")
    assert kind_in(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin", ["bash", "-c", "ls"]) is ASKED
    assert kind_in(tmp_path, f"{tmp_path}/bin:/usr/bin:/bin", ["/bin/bash", "-c", "ls"]) is RUN


def test_no_link_from_or_into_a_writable_folder_stands_for_a_program(tmp_path):
    ws, other, outside = tmp_path / "ws", tmp_path / "other", tmp_path / "outside"
    write_program(other / "evil")
    for folder in (ws, outside):
        folder.mkdir()
    (outside / "ls").symlink_to(other / "evil")
    (ws / "cat").symlink_to("/usr/bin/env")
    (outside / "into").symlink_to(ws)
    config = {"writable_roots": (other,)}
    assert kind_in(ws, f"{outside}:/usr/bin:/bin", ["ls"], **config) is ASKED
    assert kind_in(ws, f"{ws}:/usr/bin:/bin", ["cat", "a"], **config) is ASKED
    assert kind_in(ws, f"{outside}/into:/usr/bin:/bin", ["cat", "a"], **config) is ASKED
    assert kind_in(ws, f"{outside}:/usr/bin:/bin", ["cat", "a"], **config) is RUN


@pytest.mark.parametrize("search_path", ["", ".:/bin", "bin:/bin", ":/bin", "~/bin:/bin", "/none"])
def test_a_search_that_starts_where_the_command_runs_or_finds_nothing_is_asked(
    tmp_path, search_path
):
    assert kind_in(tmp_path, search_path, ["ls"]) is ASKED
    assert kind_in(tmp_path, "/bin:.", ["ls"]) is RUN


def test_a_shell_gets_no_file_to_read_before_its_script(tmp_path):
    (tmp_path / "rc").write_text("echo evil", encoding="utf-8")
    names = ("BASH_ENV", "ENV", "CDPATH", "SHELLOPTS", "BASHOPTS", "LD_PRELOAD", "ZDOTDIR")
    risky = {name: str(tmp_path / "rc") for name in names} | {"BASH_FUNC_ls%%": "() { echo evil; }"}
    env = command_environment({**os.environ, **risky, "HOME": str(tmp_path)})
    assert not risky.keys() & env.keys()
    for profile in (".profile", ".bash_profile", ".bashrc", ".bash_login"):
        (tmp_path / profile).write_text("echo evil", encoding="utf-8")
    ctx = make_context(tmp_path, env)
    for name in ("bash", "sh"):
        assert assess(ctx, [name, "-c", "true"])[0].kind is RUN
        assert shell([name, "-c", "true"], ctx=ctx).result.output == ""
        assert assess(ctx, [name, "-lc", "true"])[0].kind is ASKED


def test_what_no_program_can_be_given_is_not_called_safe(tmp_path):
    assert assess(make_context(tmp_path), ["cat", "\ud800"])[0].kind is ASKED


def test_more_rights_need_a_reason(tmp_path):
    ctx = make_context(tmp_path)
    with pytest.raises(RespondToModel, match="needs a justification"):
        assess(ctx, ["ls"], sandbox_permissions="require_network", justification=" ")
    action, *_ = assess(
        ctx, ["ls"], sandbox_permissions="require_network", justification="to download"
    )
    assert action.kind is ActionKind.COMMAND_NETWORK
    assert "network" in action.reason and "to download" in action.reason


def test_a_dangerous_command_with_more_rights_is_both(tmp_path):
    kinds = [
        action.kind
        for action in assess(
            make_context(tmp_path),
            ["sudo", "reboot"],
            sandbox_permissions="require_escalated",
            justification="x",
        )
    ]
    assert kinds == [ActionKind.COMMAND_DANGEROUS, ActionKind.COMMAND_ESCALATED]


def test_more_rights_have_several_names(tmp_path):
    ctx = make_context(tmp_path)
    asked = [
        assess(ctx, ["make"], justification="x", **more)[0]
        for more in (
            {"sandbox_permissions": "require_escalated"},
            {"sandbox_permissions": {"write": ["/opt/x"]}},
        )
    ]
    assert [action.kind for action in asked] == [ActionKind.COMMAND_ESCALATED] * 2
    assert asked[0] != asked[1]
    assert "/opt/x" in asked[1].reason
    with pytest.raises(RespondToModel, match="needs a justification"):
        assess(ctx, ["make"], sandbox_permissions="require_escalated")


def test_always_binds_to_words_folder_and_rights(tmp_path):
    (tmp_path / "sub").mkdir()
    ctx = make_context(tmp_path)
    asked = {"sandbox_permissions": "require_network", "justification": "x"}
    prints = [
        assess(ctx, ["touch", "a"])[0].fingerprint,
        assess(ctx, ["touch", "a", "x"])[0].fingerprint,
        assess(ctx, ["touch", "a x"])[0].fingerprint,
        assess(ctx, ["touch", "a"], workdir="sub")[0].fingerprint,
        assess(ctx, ["touch", "a"], **asked)[0].fingerprint,
    ]
    assert len(set(prints)) == 5
    assert all(one.startswith("command:") for one in prints)
    assert assess(ctx, ["touch", "a"], workdir=".")[0].fingerprint == prints[0]


def test_another_folder_is_part_of_what_is_asked(tmp_path):
    (tmp_path / "sub").mkdir()
    ctx = make_context(tmp_path)
    assert assess(ctx, ["make"], workdir="sub")[0].target == f"make (in {tmp_path}/sub)"
    assert assess(ctx, ["rm", "-rf", "../"], workdir="sub")[0].kind is ActionKind.COMMAND_DANGEROUS
    with pytest.raises(RespondToModel, match="may not be read"):
        assess(ctx, ["ls"], workdir="/home/ada/.ssh")


@pytest.mark.parametrize("call", [shell, lambda command: assess_shell({"command": command}, None)])
def test_a_command_in_one_string_gets_told_how(call):
    with pytest.raises(RespondToModel) as caught:
        call(["ls -la 'a b'"])
    assert '["ls", "-la", "a b"]' in str(caught.value)
    assert """["bash", "-c", "ls -la 'a b'"]""" in str(caught.value)
    with pytest.raises(RespondToModel, match="list of words"):
        call("ls")
    with pytest.raises(RespondToModel, match="list of words"):
        call(["echo 'oops"])
    with pytest.raises(RespondToModel, match="empty"):
        call([])


# -- what it runs and tells ---------------------------------------------------------------------


def test_a_call_by_the_model_is_told_as_events(tmp_path):
    ctx = make_context(tmp_path)
    result = shell(["sh", "-c", "echo out; echo err >&2; exit 2"], ctx=ctx)
    (first, begin), *deltas, (last, end) = ctx.extra["events"]
    assert first is ExecCommandBegin and last is ExecCommandEnd
    assert begin["cwd"] == str(tmp_path) and begin["command"][0] == "sh"
    assert {kind for kind, _ in deltas} == {ExecCommandOutputDelta}
    told = {fields["stream"]: fields["text"] for _, fields in deltas}
    assert told == {"stdout": "out\n", "stderr": "err\n"}
    assert end["exit_code"] == 2 == result.result.exit_code
    assert end["duration"] == result.result.duration
    assert all(fields["call_id"] == "call_1" for _, fields in ctx.extra["events"])


def test_the_model_gets_the_scrubbed_environment_and_the_person_all(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "canary")
    monkeypatch.chdir(tmp_path)
    code = [sys.executable, "-c", "import os; print(os.environ.get('MY_API_KEY'))"]
    assert shell(code, ctx=make_context(tmp_path)).result.stdout == "None\n"
    assert shell(code).stdout == "canary\n"


def test_it_runs_in_the_workspace_or_the_folder_named(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    ctx = make_context(tmp_path)
    assert shell(["pwd"], ctx=ctx).result.stdout == f"{tmp_path}\n"
    assert shell(["pwd"], "sub", ctx=ctx).result.stdout == f"{tmp_path}/sub\n"
    monkeypatch.chdir(tmp_path)
    assert shell(["pwd"]).stdout == f"{tmp_path}\n"
    assert shell(["pwd"], workdir="sub").stdout == f"{tmp_path}/sub\n"


def test_the_deadline_is_in_milliseconds(tmp_path):
    report = shell(["sleep", "60"], timeout_ms=300, ctx=make_context(tmp_path))
    assert report.result.timed_out and 0.3 <= report.result.duration < 5
    told = report.to_output(1000)
    assert not told.success
    assert "Timed out after 0.3 s" in told.text and "exec_command" in told.text
    assert told.details["note"] == "timed out after 0.3 s, killed"  # what the person sees


@pytest.mark.parametrize("timeout_ms", [0, -1, 3_600_001])
def test_a_deadline_out_of_range_is_refused(timeout_ms):
    with pytest.raises(RespondToModel, match="timeout_ms must be from 1 to 3600000"):
        shell(["true"], timeout_ms=timeout_ms)


def test_an_interrupted_turn_ends_the_command(tmp_path):
    ctx = make_context(tmp_path)
    timer = threading.Timer(0.2, ctx.cancelled.set)
    timer.start()
    report = shell(["sleep", "60"], ctx=ctx)
    timer.join()
    assert report.result.cancelled and report.result.duration < 5
    assert "Cancelled" in report.to_output(1000).text


def test_a_command_that_cannot_start_is_ended_in_the_events_too(tmp_path):
    ctx = make_context(tmp_path)
    with pytest.raises(RespondToModel, match="Command not found"):
        shell(["no-such-program"], ctx=ctx)
    assert [kind for kind, _ in ctx.extra["events"]] == [ExecCommandBegin, ExecCommandEnd]
    assert ctx.extra["events"][-1][1]["exit_code"] is None


def test_a_flood_is_shown_live_only_in_part(tmp_path):
    ctx = make_context(tmp_path)
    result = shell(["sh", "-c", "yes | head -c 2000000"], ctx=ctx).result
    texts = [
        fields["text"] for kind, fields in ctx.extra["events"] if kind is ExecCommandOutputDelta
    ]
    assert result.total_chars == 2_000_000
    assert sum(map(len, texts)) < 300_000
    assert "not shown live" in texts[-1]


@pytest.mark.parametrize("size", [LIVE_MESSAGE, LIVE_MESSAGE + 4_000, 3_000_000])
def test_what_had_ended_before_anybody_could_listen_is_shown_as_far_as_one_message(tmp_path, size):
    ctx = make_context(tmp_path)
    process = ctx.processes.start(
        ["sh", "-c", f"yes | head -c {size}"], cwd=str(tmp_path), env={"PATH": os.environ["PATH"]}
    )
    assert process.wait(30)
    feed = LiveFeed(process, ctx)
    process.remove_listener(feed._send_for_call)
    feed.end()
    [text] = [each["text"] for kind, each in ctx.extra["events"] if kind is ExecCommandOutputDelta]
    missed = size - LIVE_MESSAGE
    told = f"\n… {missed} characters are not shown live …\n" if missed else ""
    assert text == told + "y\n" * (LIVE_MESSAGE // 2)


def test_a_script_runs_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # what a person's profile does takes any time
    ctx = make_context(tmp_path)
    assert shell_command("echo a | tr a b; exit 3", ctx=ctx).result.output == "b\n"
    assert shell_command("exit 3", ctx=ctx).result.exit_code == 3
    assert shell_command("pwd", login=True, ctx=ctx).result.argv[1] == "-lc"
    with pytest.raises(RespondToModel, match="The command is empty"):
        shell_command("  ", ctx=ctx)
    (action,) = assess_shell_command({"command": "cat a | wc -l"}, ctx)
    assert action.kind is ActionKind.COMMAND_SAFE
    (action,) = assess_shell_command({"command": "make"}, ctx)
    assert action.target == "bash -c make"


def test_what_does_not_fit_is_kept_whole_under_a_handle(tmp_path):
    ctx = make_context(tmp_path)
    script = r"printf '\033[31mred\033[0m\0\377\n'; seq 30000; echo last"
    told = shell(["bash", "-c", script], ctx=ctx).to_output(2000)
    assert len(told.text) <= 2000
    assert "the whole output: @r1 (30,002 lines; read_file and grep_files take it as" in told.text
    whole = ctx.validate_path("@r1").read_text(encoding="utf-8")
    lines = whole.splitlines()
    assert lines[0] == "red\ufffd" and lines[30_000] == "30000" and lines[-1] == "last"
    assert len(lines) == 30_002
    with pytest.raises(RespondToModel, match="it can be read, not written"):
        ctx.validate_path("@r1", "write")
    with pytest.raises(RespondToModel, match=r"There is no @r2 .* there are: @r1"):
        ctx.validate_path("@r2")


@pytest.mark.parametrize(
    ("size", "extent"), [(30_000, "1 line"), (3_000_000, "3,000,000 characters")]
)
def test_one_long_line_is_kept_whole_too(tmp_path, size, extent):
    ctx = make_context(tmp_path)
    script = f"head -c {size} /dev/zero | tr '\\0' x"
    told = shell(["bash", "-c", script], ctx=ctx).to_output(2000)
    assert f"@r1 ({extent}; " in told.text
    assert ctx.validate_path("@r1").read_text(encoding="utf-8") == "x" * size


def test_people_see_colours_and_the_model_none(tmp_path):
    script = r"printf '\033[1;31mred\033[0m \033[2Jplain\n'"
    told = shell(["bash", "-c", script], ctx=make_context(tmp_path)).to_output(2000)
    assert told.text.endswith("Output:\nred plain\n")
    assert told.details["output"] == "\x1b[1;31mred\x1b[0m plain\n"


def test_the_schema_names_the_parameters_but_not_the_context():
    parameters = shell.spec.parameters
    assert set(parameters["properties"]) == {
        *("command", "workdir", "timeout_ms", "sandbox_permissions", "justification"),
    }
    assert parameters["properties"]["command"]["items"] == {"type": "string"}


@pytest.mark.soak
def test_importing_it_loads_nothing_heavy():
    code = (
        "import sys, agent_magics.tools.commands.shell\n"
        "print([n for n in ('pydantic', 'openai', 'mcp', 'IPython') if n in sys.modules])"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout == "[]\n", done.stderr


def test_a_long_line_is_stored_without_a_cut_character():
    spool, text = Spool(), "€" * 700_000
    spool.add("stdout", text.encode())
    spool.finish()
    assert "".join(WholeOutput(SimpleNamespace(output=spool)).pieces()) == text
