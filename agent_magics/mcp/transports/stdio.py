"""Starts a server program and exchanges messages with it over pipes.

The launcher starts and supervises it, so that it ends with the kernel in any case; the
pipes are served here, on the event loop. It is not sandboxed: it is the person's program.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

from agent_magics.approval.commands.danger import loose_commands_of, words_that_run
from agent_magics.approval.commands.place import Effort, TooLongToJudge
from agent_magics.approval.commands.words import program_of
from agent_magics.config_files.places import state_folder
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.exec.process import Process
from agent_magics.exec.servers import LogRing, connect_pipes, describe_exit, started
from agent_magics.mcp.transports.asked import Unanswered
from agent_magics.mcp.transports.incoming import Incoming, Noise
from agent_magics.mcp.transports.outgoing import Outgoing
from agent_magics.protocol.mcp import McpServerConfig

_END_LIMIT = 1.0  # seconds for a server to end after its input was closed
_KILL_LIMIT = 3.0  # seconds to wait for the end of a killed server
_LATE_LIMIT = 0.5  # seconds for output still in the pipe when the server has ended

# The SDK's list, and variables for certificates, which company networks need.
_PASSED = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    "NODE_EXTRA_CA_CERTS",
)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def server_environment(config: McpServerConfig, source: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a server: a few allowed variables, and those of its
    configuration.

    Args:
        config: the server.
        source: the environment to take from.
    """
    names = (*_PASSED, *config.env_vars)
    passed = {name: source[name] for name in names if name in source}
    if config.cwd is None and _looks_in_its_folder(config):
        passed["PYTHONSAFEPATH"] = "1"
    return {"PATH": _DEFAULT_PATH, **passed, **config.env}


def _looks_in_its_folder(config: McpServerConfig) -> bool:
    """Tell whether Python would import modules from the workspace, which the model can write."""
    commands = _commands_of(config)
    return any(_takes_a_module(each[at:]) for each in commands for at in range(len(each)))


def _takes_a_module(words: Sequence[str]) -> bool:
    if not program_of(words[0]).startswith(("python", "pypy")):
        return False
    is_value = False
    for arg in words[1:]:
        if not (is_value or arg.startswith("-")):
            return False  # a script, which finds the modules beside it
        if not is_value and _MODULE_OPTION.match(arg):
            return True
        is_value = not is_value and arg in ("-X", "-W")
    return False


# Python's own options, one or several letters; a module's name may follow at once: -umserver.
_MODULE_OPTION = re.compile("-[bBdEiIOPqRsSuvVx]*[mc]")


# Programs that download a server and run it. They read files in their folder and above: .npmrc sets
# the registry, and programs in node_modules/.bin take precedence over the server and `node`.
_PROGRAM_ENDING = re.compile(r"\.(exe|cmd|bat|ps1)\Z")
_FETCHING = frozenset({"npx", "pnpx", "bunx", "uvx", "pipx"})
_FETCHING_WITH = frozenset(
    {("npm", "exec"), ("npm", "x"), ("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x"), ("uv", "tool")}
)


def _fetches(config: McpServerConfig) -> bool:
    """Tell whether a server is downloaded, also by a command behind a wrapper or in a script."""
    commands = _commands_of(config)
    return any(_is_fetching(each[at:]) for each in commands for at in words_that_run(each))


def _commands_of(config: McpServerConfig) -> list[Sequence[str]]:
    """Return a server's command line, and the commands in it behind wrappers or in a script."""
    words = [config.command or "", *config.args]
    try:
        return [words, *loose_commands_of(words, Effort())]
    except TooLongToJudge:  # it may be any
        return [words, ["npx"], ["python", "-m"]]


def _is_fetching(words: Sequence[str]) -> bool:
    name = _PROGRAM_ENDING.sub("", program_of(words[0]))
    return name in _FETCHING or any((name, word) in _FETCHING_WITH for word in _subcommands(words))


def _subcommands(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that may be a program's subcommand: one behind an option may be its value."""
    for before, word in pairwise(words):
        if not word.startswith("-"):
            yield word
            if not before.startswith("-"):
                return


def start_of(config: McpServerConfig, workspace: Path) -> tuple[Path, list[str]]:
    """Return the folder that a server starts in, and its arguments.

    A downloaded one starts in a folder of ours, since the model can write the workspace; then
    arguments such as "." and "./data" become absolute.
    """
    if config.cwd is not None or not _fetches(config):
        return config.cwd or workspace, list(config.args)
    folder = state_folder() / "fetched-servers"
    folder.mkdir(parents=True, exist_ok=True)
    # npm does not search parent folders
    (folder / "package.json").write_text("{}\n", encoding="utf-8")
    relative = re.compile(r"\.{1,2}(/.*)?", re.DOTALL)
    args = [f"{workspace}/{arg}" if relative.fullmatch(arg) else arg for arg in config.args]
    return folder, args


class StdioTransport:
    """A running server program with the SDK's interface: two streams of messages.

    Attributes:
        ending: how it ended, in a few words; "" while it runs.
        unauthorized, status: constants here; see `HttpTransport`.
    """

    unauthorized = False
    status = ""

    def __init__(
        self,
        config: McpServerConfig,
        environment: Mapping[str, str],
        folder: Path,
        log: LogRing,
        on_over: Callable[[], None],
        sift: Callable[[Any], None],
    ) -> None:
        self._sift = sift
        self._config = config
        self._environment = environment
        self._workspace = folder
        self._log = log
        self._on_over = on_over
        self.ending = ""

    async def __aenter__(self) -> "tuple[Incoming, Outgoing]":
        """Start the program.

        Raises:
            RespondToModel: it cannot be started; the sentence says why.
        """
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._open: set[Any] = set()  # ids of open requests
        self._process = await started(self._start)
        try:
            streams = await self._connect()
        except BaseException:
            self._process.kill(at_once=True)
            raise
        self._process.on_end(self._on_end)
        return streams

    async def _connect(self) -> "tuple[Incoming, Outgoing]":
        unanswered = Unanswered(self._log)
        self._incoming = Incoming(self._log, self._open, self._on_over, unanswered, self._sift)
        self._outgoing = Outgoing(self._open, unanswered)
        self._noise = Noise(self._log)
        await connect_pipes(self._process, self._outgoing, self._incoming, self._noise)
        return self._incoming, self._outgoing

    async def __aexit__(self, *_: object) -> None:
        """Stop it: close its input, then SIGTERM, then SIGKILL, each with a time limit."""
        with anyio.CancelScope(shield=True):
            self._outgoing.close()
            try:
                if not await self._wait_for_end(_END_LIMIT):
                    self._process.kill()
                    await self._wait_for_end(_KILL_LIMIT)
            finally:  # also where the task is cancelled, from which no scope protects it
                self._process.kill(at_once=True)
                self._note_end()
                self._outgoing.abort()
                self._noise.close()
                self._incoming.close()

    def _start(self) -> Process:
        config = self._config
        folder, args = start_of(config, self._workspace)
        return shared_launcher().spawn(
            [config.command or "", *args],
            cwd=folder,
            env=server_environment(config, self._environment),
            stdin=True,
            held=True,
        )

    async def _wait_for_end(self, limit: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), limit)
        return self._ended.is_set()

    def _on_end(self, process: Process) -> None:
        """On the launcher's thread: schedule the handling of its end."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._see_end)

    def _see_end(self) -> None:
        self._ended.set()
        self._note_end()
        # Its last output may still be in the pipe.
        self._loop.call_later(_LATE_LIMIT, self._incoming.end)

    def _note_end(self) -> None:
        if not self.ending:
            self.ending = describe_exit(self._process)
