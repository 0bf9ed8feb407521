"""What a call's commands are confined to, and how a refusal of the sandbox is recognised."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent_magics.dispatch.context import ToolContext, TurnContext, status_of
from agent_magics.exec.environment import command_environment
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.tripwire import Tripwire
from agent_magics.protocol.config import RunConfig, SandboxPolicy
from agent_magics.protocol.errors import RespondToModel, SandboxDenial, SandboxDenied
from agent_magics.protocol.events import Warned
from agent_magics.tools.code.scratch_process import ScratchProcess
from agent_magics.tools.commands import confinement as confining
from agent_magics.tools.commands.confinement import (
    ProtectedFiles,
    confinement_for,
    current_tier,
    environment_for,
    explain_denial,
)
from agent_magics.tools.commands.run import start_confined
from tests.support.contexts import in_turn, make_context

PATIENCE = 60.0


@dataclass
class Ended:
    """A command that has ended."""

    output: str
    exit_code: int | None = 1
    refused: tuple[str, ...] = ()


@dataclass
class Processes:
    """As much of a conversation's commands as is looked at here."""

    tmpdir: Path


@pytest.fixture
def events():
    return []


@pytest.fixture
def ctx(tmp_path, events):
    config = RunConfig(cwd=tmp_path / "project")
    config.cwd.mkdir()
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="default",
        config=config,
        env=command_environment(os.environ),
        emit=lambda kind, **fields: events.append(kind(**fields)),
        ask=None,
        call=None,
        validate_path=None,
        messages=lambda: (),
        main_thread=None,
        processes=Processes(tmp_path / "tmp"),
    )
    return ToolContext(turn, "call-1", "shell")


def configured(ctx: ToolContext, **settings) -> ToolContext:
    return in_turn(ctx, config=replace(ctx.turn.config, **settings))


needs_tier = pytest.mark.needs("tier 1")


# -- what a call is confined to --------------------------------------------------------------------


@needs_tier
def test_the_default_is_the_workspace_without_network(ctx, tmp_path):
    confinement = confinement_for(ctx)
    assert confinement.writable == (f"{tmp_path}/project", f"{tmp_path}/tmp")
    assert confinement.network is False
    assert confinement.tier == current_tier()
    assert f"{tmp_path}/project/.agent_magics" in confinement.protected


@needs_tier
def test_network_comes_by_setting_or_by_approval(ctx):
    assert confinement_for(ctx, "require_network").network
    assert confinement_for(configured(ctx, network=True)).network


@needs_tier
def test_more_to_write_comes_by_approval(ctx, tmp_path):
    status_of(ctx).writes = (f"{tmp_path}/out", "/srv/x")
    confinement = confinement_for(ctx)
    assert confinement.writable[1:3] == (f"{tmp_path}/out", "/srv/x")


@needs_tier
def test_reading_commands_and_the_read_only_policy_write_nothing(ctx, tmp_path):
    status_of(ctx).read_only = True
    assert confinement_for(ctx).writable == (f"{tmp_path}/tmp",)
    status_of(ctx).read_only = False
    ctx = configured(ctx, sandbox=SandboxPolicy.READ_ONLY)
    assert confinement_for(ctx).writable == (f"{tmp_path}/tmp",)


def test_what_was_let_out_runs_free(ctx):
    status_of(ctx).bypass_sandbox = True
    assert confinement_for(ctx) is None
    status_of(ctx).bypass_sandbox = False
    assert confinement_for(configured(ctx, sandbox=SandboxPolicy.DANGER_FULL_ACCESS)) is None


def test_a_lower_tier_can_be_tried(ctx, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    assert current_tier() == 0 and confinement_for(ctx) is None
    monkeypatch.setenv("AGENT_MAGICS_TIER", "9")
    assert current_tier() <= 2


@needs_tier
def test_a_confined_command_has_its_own_temporary_folder(ctx, tmp_path):
    assert environment_for(ctx, confinement_for(ctx))["TMPDIR"] == f"{tmp_path}/tmp"
    assert environment_for(ctx, None) == dict(ctx.env)


@pytest.mark.parametrize("tier", [1, 2])
def test_commands_compile_nothing_where_they_may_write_the_kernels_modules(
    ctx, tmp_path, monkeypatch, tier
):
    confinement = replace(confinement_for(ctx), tier=tier)
    assert "PYTHONDONTWRITEBYTECODE" not in environment_for(ctx, confinement)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "project" / ".venv"))
    compiles = "PYTHONDONTWRITEBYTECODE" not in environment_for(ctx, confinement)
    assert compiles is (tier == 2), "there it is mounted read-only"


@pytest.mark.needs("tier 2")
def test_what_was_moved_before_it_could_be_hidden_is_looked_for_again(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.env").write_text("KEY=1", encoding="utf-8")
    ctx = make_context(tmp_path)
    start = ctx.processes.start

    def start_later(*words, **options):
        if (tmp_path / "sub").exists():
            (tmp_path / "sub").rename(tmp_path / "moved")  # as a session may, just then
        return start(*words, **options)

    monkeypatch.setattr(ctx.processes, "start", start_later)
    command = start_confined(ctx, ["cat", "moved/.env"], tmp_path, "use_default")
    assert command.wait(PATIENCE)
    text = command.finish().to_output(1000).text
    assert "Permission denied" in text and "KEY" not in text
    ctx.processes.close()


# -- refusals --------------------------------------------------------------------------------------


@pytest.fixture
def held(tmp_path):
    """A confinement, with files of this user on both of its sides."""
    for folder in ("project/.git/hooks", "out", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "out/file").touch()
    (tmp_path / "secret/key").touch()
    return Confinement(
        tier=1,
        writable=(f"{tmp_path}/project", f"{tmp_path}/tmp"),
        protected=(f"{tmp_path}/project/.git/hooks",),
        hidden=(f"{tmp_path}/secret",),
    )


WRITING = (
    "touch: cannot touch '{}': Permission denied",
    "touch: cannot touch '{}': Read-only file system",
    "cp: cannot create regular file ‘{}’: Permission denied",  # noqa: RUF001
    "mkdir: cannot create directory `{}': Operation not permitted",
    "bash: line 1: {}: Permission denied",
    "sh: 1: cannot create {}: Permission denied",
    "PermissionError: [Errno 13] Permission denied: '{}'",
    'OSError: [Errno 30] Read-only file system: "{}"',
    "Error: EACCES: permission denied, open '{}'",
    "Error: EROFS: read-only file system, open '{}'",
    "java.io.FileNotFoundException: {} (Permission denied)",
    "/usr/bin/ld: cannot open output file {}: Permission denied",
    "error: could not lock config file {}: Permission denied",
    "tar: {}: Cannot open: Permission denied",
    "rm: cannot remove '{}': Permission denied\nmake: *** [Makefile:2: all] Error 1",
)


@pytest.mark.parametrize("line", WRITING)
@pytest.mark.parametrize("name", ["out/file", "out/new", "out/new/deeper"])
def test_a_refused_write_is_recognised(line, name, held, tmp_path):
    for path in (f"{tmp_path}/{name}", f"../{name}"):
        denial = explain_denial(Ended(f"before\n{line.format(path)}\n"), held, tmp_path / "project")
        assert (denial.action, denial.target, denial.reported) == ("write", "", False), path
        assert name not in denial.sentence, "it says nothing but the sandbox's own rules"
        assert denial.permission == "require_escalated"
        assert f"{tmp_path}/project" in denial.sentence and "workspace-write" in denial.sentence
        assert 'sandbox_permissions="require_escalated" and a justification' in denial.sentence


def test_a_refused_read_is_recognised(held, tmp_path):
    denial = explain_denial(
        Ended(f"cat: {tmp_path}/secret/key: Permission denied"), held, tmp_path / "project"
    )
    assert not denial.reported and "keys not read" in denial.sentence


@pytest.mark.parametrize(
    "line",
    [
        "curl: (6) Could not resolve host: example.com",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "ping: connect: Network is unreachable",
        "OSError: [Errno 101] ENETUNREACH",
        "npm error code EAI_AGAIN",
        "Failed to establish a new connection: [Errno 1] Operation not permitted",
        "ssh: Could not resolve hostname example.com: Name or service not known",
    ],
)
def test_a_refused_network_is_recognised(line, held, tmp_path):
    denial = explain_denial(Ended(line), held, tmp_path)
    assert (denial.action, denial.permission) == ("network", "require_network")
    assert "network is off" in denial.sentence
    assert explain_denial(Ended(line), replace(held, network=True), tmp_path) is None


def test_what_the_supervisor_says_comes_first(held, tmp_path):
    ended = Ended("x: Permission denied", refused=("connect 10.0.0.1:22", "chmod /etc/passwd"))
    denial = explain_denial(ended, held, tmp_path)
    assert (denial.action, denial.target) == ("network", "10.0.0.1:22")
    assert denial.permission == "require_network"
    with_network = explain_denial(ended, replace(held, network=True), tmp_path)
    assert "80 and 443" in with_network.sentence
    assert with_network.permission == "require_escalated"
    chmod = explain_denial(replace(ended, refused=("chmod /etc/passwd",)), held, tmp_path)
    assert (chmod.action, chmod.target) == ("write", "/etc/passwd")
    other = explain_denial(replace(ended, refused=("kill 4711",)), held, tmp_path)
    assert other.action == "other" and "kill 4711" in other.sentence


def test_a_protected_file_is_the_sandboxs_doing_only_in_tier_2(held, tmp_path):
    work = tmp_path / "project"
    for line in (
        "bash: line 1: .git/hooks/pre-commit: Read-only file system",
        "error: could not write config file .git/hooks/x: Device or resource busy",
    ):
        assert explain_denial(Ended(line), held, work) is None
        denial = explain_denial(Ended(line), replace(held, tier=2), work)
        assert not denial.reported and "protected files" in denial.sentence


@pytest.mark.parametrize(
    "output",
    [
        "",
        "make: *** [all] Error 1",
        "bash: ./run.sh: Permission denied",  # inside the workspace: not executable
        "umount: /: device or resource busy",
        "error: linking with `cc` failed",
        "AssertionError: 'permission denied' not in 'x'",
        "rm: cannot remove 'work': Device or resource busy",
        ": Permission denied",
        "\x00 '\x00': Permission denied",
        "'" + "x" * 10_000 + "': Permission denied",
    ],
)
def test_what_is_no_refusal_is_not_taken_for_one(output, held, tmp_path):
    assert explain_denial(Ended(output), held, tmp_path / "project") is None


def test_success_a_kill_and_free_commands_are_never_refusals(held, tmp_path):
    refused = Ended(f"touch: cannot touch '{tmp_path}/out/x': Permission denied")
    assert explain_denial(refused, held, tmp_path)
    assert explain_denial(replace(refused, exit_code=0), held, tmp_path) is None
    assert explain_denial(replace(refused, exit_code=None), held, tmp_path) is None
    assert explain_denial(replace(refused, exit_code=126), held, tmp_path) is None
    assert explain_denial(refused, None, tmp_path) is None


def test_a_long_output_is_looked_at_from_its_end(held, tmp_path):
    told = f"touch: cannot touch '{tmp_path}/out/x': Permission denied\n"
    noise = "an ordinary line\n" * 100_000
    assert explain_denial(Ended(noise + told), held, tmp_path)
    many = "touch: cannot touch 'in/the/workspace': Permission denied\n" * 100_000
    assert explain_denial(Ended(many), held, tmp_path / "project") is None


@pytest.mark.parametrize(
    "printed",
    ["/proc/1/cwd", "/root/.ssh/id_rsa", "~nobody/x", "/nowhere", "link/x", "/etc/shadow"],
)
def test_what_a_command_prints_is_never_looked_up(printed, held, tmp_path, monkeypatch):
    """Whatever stands at a printed path, the hint is the same, and nobody has looked."""
    (tmp_path / "project/link").symlink_to("/root")
    hints = set()
    for path in (printed, "/one/thing", "/another"):
        ended = Ended(f"cat: cannot open '{path}': Permission denied")
        for name in ("stat", "lstat", "readlink", "access", "scandir", "listdir"):
            monkeypatch.setattr(os, name, forbidden)
        denial = explain_denial(ended, held, tmp_path / "project")
        monkeypatch.undo()
        hints.add(denial.sentence if denial else "")
    assert len(hints - {""}) == 1


def forbidden(*arguments, **options):
    raise AssertionError(f"the file system was asked: {arguments}")


def test_a_denial_that_is_raised_loses_nothing():
    denial = SandboxDenial("write", "/x", "The sandbox refused writing /x.")
    raised = SandboxDenied(denial, "Exit code: 1\nall of it")
    assert isinstance(raised, RespondToModel)
    assert str(raised) == "Exit code: 1\nall of it\n[The sandbox refused writing /x.]"


# -- protected files -------------------------------------------------------------------------------


def test_what_was_put_back_is_told_to_model_and_person(ctx, events, tmp_path):
    work = str(tmp_path / "project")
    held = Confinement(1, (work, f"{tmp_path}/tmp"), protected=(f"{work}/.agent_magics",))
    files = ProtectedFiles(ctx, held)
    (tmp_path / "project/.agent_magics").mkdir()
    told = files.finish()
    assert told.startswith("[Protected files: moved ") and "require_escalated" in told
    (warned,) = events
    assert isinstance(warned, Warned) and ".agent_magics" in warned.message
    assert files.finish() == ""


class Broken:
    """A tracker of changes that cannot look."""

    def watch(self):
        raise OSError("no space left")


@pytest.fixture
def tripwire(tmp_path, monkeypatch):
    made = Tripwire(str(tmp_path / "quarantine"), every=None)
    monkeypatch.setattr(confining, "shared_tripwire", lambda: made)
    return made


def test_an_error_before_its_start_leaves_no_watch(ctx, held, tripwire):
    with pytest.raises(OSError, match="no space left"):
        ProtectedFiles(in_turn(ctx, diff_tracker=Broken()), held)
    assert not tripwire._calls and not any(p.holders for p in tripwire._places.values())


def test_a_scratch_process_without_room_is_told_and_leaves_no_watch(ctx, held, tripwire):
    with pytest.raises(RespondToModel, match="could not be started: No such file"):
        ScratchProcess(in_turn(ctx, processes=Processes(Path("/nowhere"))), held)
    assert not tripwire._calls and not any(p.holders for p in tripwire._places.values())


def test_a_free_command_has_nothing_to_be_told(ctx, events, tmp_path):
    files = ProtectedFiles(ctx, None)
    (tmp_path / "project/.agent_magics").mkdir()
    assert files.check() == files.finish() == "" and events == []
