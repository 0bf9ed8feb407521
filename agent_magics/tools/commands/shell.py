"""``shell``, ``shell_command`` and ``local_shell``: one command, run to its end."""

import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict

from agent_magics.approval.actions import Action
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.exec.command import CommandResult, run_command
from agent_magics.files.paths import typed_path
from agent_magics.patch.plan import PatchResult
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.commands.approval import Permissions, assess_command
from agent_magics.tools.commands.run import (
    CommandReport,
    own_processes,
    start_confined,
)
from agent_magics.tools.commands.scripted_patch import apply_found, find_patch
from agent_magics.tools.files.patch import assess_operations

LONGEST_TIMEOUT = 3_600_000  # milliseconds
_SHELLS = ("bash", "sh", "dash", "zsh", "ksh", "fish")


class WritePermission(TypedDict):
    """More paths to write."""

    write: list[str]


SandboxPermissions = (
    Literal["use_default", "require_network", "require_escalated"] | WritePermission
)


# -- what a call would do --------------------------------------------------------------------------


def assess_shell(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the approval actions of a call of `shell`."""
    command = arguments["command"]
    check_words(command)
    return assess_argv(command, arguments, ctx)


def assess_shell_command(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the approval actions of a call of `shell_command`."""
    argv = shell_argv(arguments["command"], arguments.get("login", False), ctx)
    return assess_argv(argv, arguments, ctx)


def assess_argv(
    argv: Sequence[str], arguments: Mapping[str, Any], ctx: ToolContext
) -> list[Action]:
    """Return the approval actions of running `argv` with the other arguments of a call."""
    patch = find_patch(argv, arguments.get("workdir"), ctx.env)
    if patch is not None:
        return assess_operations(patch, arguments, ctx)
    return assess_command(
        argv,
        folder(arguments.get("workdir"), ctx),
        arguments.get("sandbox_permissions") or "use_default",
        arguments.get("justification", ""),
        ctx,
        arguments.get("prefix_rule") or (),
    )


def in_own_words(given: dict[str, Any]) -> dict[str, Any]:
    """Accept the argument by which models of other agents ask for escalated rights."""
    if given.pop("with_escalated_permissions", False):
        given["sandbox_permissions"] = "require_escalated"
    return given


# -- the tools -------------------------------------------------------------------------------------


@tool(name="shell", parallel=True, mutating=True, assess=assess_shell, in_own_words=in_own_words)
def shell(
    command: list[str],
    workdir: str | None = None,
    timeout_ms: int = 30_000,
    sandbox_permissions: SandboxPermissions = "use_default",
    justification: str = "",
    *,
    ctx: ToolContext | None = None,
) -> "CommandResult | CommandReport | PatchResult":
    """Run a program, without a shell, terminal or input; return its output.

    For pipes, redirections, wildcards or variables pass ["bash", "-c", "the script"].

    Args:
        command: program and arguments.
        timeout_ms: then all of it is killed; at most 3600000.
        sandbox_permissions: more only where needed.
        justification: why more, for the person.
    """
    check_words(command)
    return _run(command, workdir, timeout_ms, sandbox_permissions, ctx)


@tool(
    name="shell_command",
    parallel=True,
    mutating=True,
    assess=assess_shell_command,
    in_own_words=in_own_words,
)
def shell_command(
    command: str,
    workdir: str | None = None,
    timeout_ms: int = 30_000,
    login: bool = False,
    sandbox_permissions: SandboxPermissions = "use_default",
    justification: str = "",
    *,
    ctx: ToolContext | None = None,
) -> "CommandResult | CommandReport | PatchResult":
    """Run a script in a shell (bash, else sh) and return its output.

    There is no terminal and no input.

    Args:
        command: the script.
        workdir: else the workspace.
        timeout_ms: milliseconds until all of it is killed, at most 3600000.
        login: run it in a login shell, which reads the profile first.
        sandbox_permissions: more only where the command needs it.
        justification: why more: a sentence for the person.
    """
    argv = shell_argv(command, login, ctx)
    return _run(argv, workdir, timeout_ms, sandbox_permissions, ctx)


@tool(name="local_shell", parallel=True, mutating=True, native=True, assess=assess_shell)
def local_shell(
    command: list[str],
    workdir: str | None = None,
    timeout_ms: int = 30_000,
    *,
    ctx: ToolContext | None = None,
) -> "CommandResult | CommandReport | PatchResult":
    """Run a command that the model asks for with the Responses API's own shell call.

    Args:
        command: program and arguments, each a string of its own.
        workdir: else the workspace.
        timeout_ms: milliseconds until all of it is killed, at most 3600000.
    """
    check_words(command)
    return _run(command, workdir, timeout_ms, "use_default", ctx)


def _run(
    argv: Sequence[str],
    workdir: str | None,
    timeout_ms: int,
    permissions: Permissions,
    ctx: ToolContext | None,
) -> "CommandResult | CommandReport | PatchResult":
    check_timeout(timeout_ms)
    patch = find_patch(argv, workdir, os.environ if ctx is None else ctx.env)
    if patch is not None:
        return apply_found(patch, ctx)
    cwd, timeout = folder(workdir, ctx), timeout_ms / 1000
    if ctx is None:
        return run_command(argv, cwd=cwd, env=os.environ, timeout=timeout, manager=own_processes())
    command = start_confined(ctx, argv, cwd, permissions)
    try:
        if not command.wait(timeout):
            command.process.end("time")
    except BaseException:
        command.abandon()
        raise
    return command.finish(timeout)


# -- what arguments mean ---------------------------------------------------------------------------


def shell_argv(
    script: str, login: bool, ctx: ToolContext | None, shell_name: str | None = None
) -> list[str]:
    """Return the argument list that runs `script` in a shell.

    Args:
        script: the shell script.
        login: whether it is a login shell.
        ctx: the call, whose PATH is searched; None for one by hand.
        shell_name: the shell's name or path; None means bash, else sh.

    Raises:
        RespondToModel: there is no such shell, or the script is empty.
    """
    require(str, command=script)
    require(bool, login=login)
    require(str | None, shell=shell_name)
    if not script.strip():
        raise RespondToModel("The command is empty; pass the script to run.")
    search = (os.environ if ctx is None else ctx.env).get("PATH")
    name = shell_name or next((s for s in _SHELLS if shutil.which(s, path=search)), "sh")
    is_known = os.path.basename(name) in _SHELLS
    if shell_name and not (is_known and shutil.which(name, path=search)):
        there = [each for each in _SHELLS if shutil.which(each, path=search)]
        raise RespondToModel(
            f"There is no shell {shell_name!r} here; there are: {', '.join(there)}."
        )
    return [name, "-lc" if login else "-c", script]


def check_timeout(timeout_ms: int) -> None:
    """Check that a deadline in milliseconds is in range.

    Raises:
        RespondToModel: it is out of range.
    """
    require(int, timeout_ms=timeout_ms)
    if not 1 <= timeout_ms <= LONGEST_TIMEOUT:
        raise RespondToModel(
            f"timeout_ms must be from 1 to {LONGEST_TIMEOUT} milliseconds, not {timeout_ms}."
        )


def check_words(command: Sequence[str]) -> None:
    """Check that a command is a list of words.

    Raises:
        RespondToModel: it is one string, or empty; the sentence says how to write it.
    """
    require(str | Sequence[str], command=command)
    if isinstance(command, str) or len(command) == 1:
        line = command if isinstance(command, str) else command[0]
        if isinstance(command, str) or (" " in line.strip() and not os.path.exists(line)):
            raise RespondToModel(
                f"command must be a list of words, and {line!r} is one string: pass "
                f"{_as_words(line)}, or {json.dumps(['bash', '-c', line])} to have a shell read it."
            )
    if not command or not command[0].strip():
        raise RespondToModel("command is empty; pass the program and its arguments as a list.")


def _as_words(line: str) -> str:
    try:
        return json.dumps(shlex.split(line))
    except ValueError:  # a quote without its partner
        return json.dumps(line.split())


def folder(workdir: str | None, ctx: ToolContext | None) -> Path:
    """Return the folder in which a command is to run.

    Raises:
        RespondToModel: the folder may not be read.
    """
    if ctx is None:
        require(str | Path | None, workdir=workdir)
        return typed_path(workdir) if workdir else Path.cwd()
    return ctx.validate_path(workdir or ".", "read")
