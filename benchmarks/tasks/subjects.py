"""The clients: how a step becomes a call of each one's tools, and how it runs one prompt.

Peers run as their documentation says, without questions, telemetry and looks for updates, with a
configuration and a home of their own; a second prompt resumes the conversation.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MODEL = "gpt-5.5"
LIMIT = 120  # seconds for one prompt
Call = tuple[str, dict | str]
Changes = Sequence[tuple[str, str]]


class Client(Protocol):
    """One client in one repository."""

    def prompt(self, text: str, *, is_first: bool) -> None:
        """Run a prompt to its end, in the conversation of the ones before."""


class Dialect(Protocol):
    """What each step is called by a client; text in place of arguments is a freeform call."""

    def read(self, path: str, first: int, last: int) -> Call: ...
    def search(self, pattern: str, path: str) -> Call: ...
    def listing(self, path: str) -> Call: ...
    def find(self, pattern: str) -> Call: ...
    def run(self, command: str) -> Call: ...
    def edit(self, path: str, changes: Changes) -> Call: ...
    def write(self, path: str, text: str) -> Call: ...


def patch(path: str, changes: Changes) -> str:
    """Return a patch in the format of ``apply_patch`` that replaces lines."""
    hunks = "".join(f"@@\n{_signed('-', old)}{_signed('+', new)}" for old, new in changes)
    return f"*** Begin Patch\n*** Update File: {path}\n{hunks}*** End Patch\n"


def new_file(path: str, text: str) -> str:
    """Return a patch that adds a file."""
    added = _signed("+", text)
    return f"*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch\n"


def _signed(sign: str, text: str) -> str:
    return "".join(f"{sign}{line}\n" for line in text.splitlines())


class ByShell:
    """The steps of clients that look by commands, as their instructions tell the model."""

    def read(self, path: str, first: int, last: int) -> Call:
        return self.run(f"sed -n '{first},{last}p' {path}" if first else f"cat {path}")

    def search(self, pattern: str, path: str) -> Call:
        return self.run(f"rg -n {shlex.quote(pattern)} {path}")

    def listing(self, path: str) -> Call:
        return self.run(f"ls {path}")

    def find(self, pattern: str) -> Call:
        return self.run(f"rg --files -g {shlex.quote(pattern)}")


class Codex(ByShell):
    """Codex: one tool for commands, one for patches."""

    def run(self, command: str) -> Call:
        return "exec_command", {"cmd": command}

    def edit(self, path: str, changes: Changes) -> Call:
        return "apply_patch", patch(path, changes)

    def write(self, path: str, text: str) -> Call:
        return "apply_patch", new_file(path, text)


class Pi(ByShell):
    """pi: read, bash, edit, write."""

    def read(self, path: str, first: int, last: int) -> Call:
        window = {"offset": first, "limit": last - first + 1} if first else {}
        return "read", {"path": path, **window}

    def run(self, command: str) -> Call:
        return "bash", {"command": command}

    def edit(self, path: str, changes: Changes) -> Call:
        edits = [{"oldText": old, "newText": new} for old, new in changes]
        return "edit", {"path": path, "edits": edits}

    def write(self, path: str, text: str) -> Call:
        return "write", {"path": path, "content": text}


@dataclass
class OpenCode:
    """opencode: a tool for each kind of step; paths of files are absolute."""

    folder: Path

    def read(self, path: str, first: int, last: int) -> Call:
        window = {"offset": first, "limit": last - first + 1} if first else {}
        return "read", {"filePath": str(self.folder / path), **window}

    def search(self, pattern: str, path: str) -> Call:
        return "grep", {"pattern": pattern, "path": str(self.folder / path)}

    def listing(self, path: str) -> Call:
        return "read", {"filePath": str(self.folder / path)}

    def find(self, pattern: str) -> Call:
        return "glob", {"pattern": pattern}

    def run(self, command: str) -> Call:
        return "bash", {"command": command}

    def edit(self, path: str, changes: Changes) -> Call:
        return "apply_patch", {"patchText": patch(path, changes)}

    def write(self, path: str, text: str) -> Call:
        return "apply_patch", {"patchText": new_file(path, text)}


class Ours(Codex):
    """agent-magics, with the tools of the set "coding": commands and patches as in Codex."""

    def read(self, path: str, first: int, last: int) -> Call:
        window = {"start_line": first, "end_line": last} if first else {}
        return "read_file", {"path": path, **window}

    def search(self, pattern: str, path: str) -> Call:
        return "grep_files", {"pattern": pattern, **({"path": path} if path != "." else {})}

    def listing(self, path: str) -> Call:
        return "list_dir", {"path": path} if path != "." else {}

    def find(self, pattern: str) -> Call:
        return "glob", {"pattern": pattern}


# -- running them ----------------------------------------------------------------------------------


@dataclass
class Program:
    """A client that is a program: `first` and `later` are its arguments before the prompt."""

    folder: Path
    env: dict[str, str]
    first: list[str]
    later: list[str]

    def prompt(self, text: str, *, is_first: bool) -> None:
        argv = [*(self.first if is_first else self.later), text]
        with Path(self.env["HOME"], "log").open("ab") as log:
            subprocess.run(
                argv,
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=LIMIT,
                check=True,
            )


def _program(folder: Path, home: Path, first: list[str], again: list[str], **env: str) -> Program:
    # opencode works in PWD, whatever its folder is.
    env = {**os.environ, "HOME": str(home), "PWD": str(folder), "LOCAL_KEY": "x", **env}
    return Program(folder, env, first, again)


@contextmanager
def codex(peers: Path, folder: Path, home: Path, base_url: str) -> Iterator[Client]:
    """Codex over the Responses API."""
    settings = f"""
model = "{MODEL}"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics.enabled = false
[model_providers.local]
name = "local"
base_url = "{base_url}"
wire_api = "responses"
env_key = "LOCAL_KEY"
"""
    (home / "config.toml").write_text(settings, encoding="utf-8")
    argv = [str(peers / "node_modules/.bin/codex"), "exec"]
    yield _program(folder, home, argv, [*argv, "resume", "--last"], CODEX_HOME=str(home))


@contextmanager
def opencode(peers: Path, folder: Path, home: Path, base_url: str) -> Iterator[Client]:
    """Opencode over Chat Completions."""
    options = {"baseURL": base_url, "apiKey": "x"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {MODEL: {}}}
    settings = {
        "model": f"local/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "provider": {"local": provider},
    }
    place = home / ".config/opencode/opencode.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(settings), encoding="utf-8")
    argv = [str(peers / "node_modules/opencode-linux-x64/bin/opencode"), "run"]
    names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    off = {f"OPENCODE_DISABLE_{name}": "1" for name in names}
    yield _program(folder, home, argv, [*argv, "--continue"], **off)


@contextmanager
def pi(peers: Path, folder: Path, home: Path, base_url: str) -> Iterator[Client]:
    """pi over Chat Completions."""
    local = {
        "baseUrl": base_url,
        "api": "openai-completions",
        "apiKey": "x",
        "models": [{"id": MODEL}],
    }
    place = home / ".pi/agent/models.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"providers": {"local": local}}), encoding="utf-8")
    program = str(peers / "node_modules/.bin/pi")
    argv = [program, "--offline", "--provider", "local", "--model", MODEL, "-p"]
    yield _program(folder, home, argv, [*argv, "--continue"], PI_TELEMETRY="0")


@dataclass
class Session:
    """Our agent in this process."""

    agent: object

    def prompt(self, text: str, *, is_first: bool) -> None:
        result = self.agent.run_sync(text)
        assert result.status == "completed", result.error


@contextmanager
def ours(peers: Path, folder: Path, home: Path, base_url: str) -> Iterator[Client]:
    """agent-magics over the Responses API."""
    from agent_magics import Agent  # noqa: PLC0415 - the peers run without it

    with Agent(
        MODEL, ["coding"], base_url=base_url, api_key="x", cwd=folder, approval="never"
    ) as agent:
        yield Session(agent)


@contextmanager
def ours_plain(peers: Path, folder: Path, home: Path, base_url: str) -> Iterator[Client]:
    """The same with what most tasks need: files, commands, patches."""
    from agent_magics import Agent  # noqa: PLC0415

    names = ["read_file", "list_dir", "grep_files", "glob", "exec_command", "apply_patch"]
    with Agent(MODEL, names, base_url=base_url, api_key="x", cwd=folder, approval="never") as agent:
        yield Session(agent)


# Name -> its steps, what runs it, and the npm package that it needs.
SUBJECTS = {
    "ours": (lambda _: Ours(), ours, ""),
    "ours, 6 tools": (lambda _: Ours(), ours_plain, ""),
    "codex": (lambda _: Codex(), codex, "@openai/codex"),
    "opencode": (OpenCode, opencode, "opencode-ai"),
    "pi": (lambda _: Pi(), pi, "@earendil-works/pi-coding-agent"),
}
