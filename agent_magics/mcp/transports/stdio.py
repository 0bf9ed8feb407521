"""A server that is a program: our own way to start it and to speak with it.

The launcher starts and supervises it, so that it ends with the kernel, whatever ends that; the
pipes are here, on the loop. It is not confined: it is the person's program.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio

from agent_magics.backends.exec.launcher import shared_launcher
from agent_magics.backends.exec.process import Process
from agent_magics.backends.mcp.incoming import Incoming, Noise
from agent_magics.backends.mcp.logs import LogRing
from agent_magics.backends.mcp.outgoing import Outgoing
from agent_magics.protocol.mcp import McpServerConfig

_END_LIMIT = 1.0  # seconds a server has to end when its input has closed
_KILL_LIMIT = 3.0  # seconds until the end of a killed one is no longer waited for
_LATE_LIMIT = 0.5  # seconds for output that is still on its way when the server has ended

# The SDK's own list, and what finds certificates: without it nothing reaches a company's servers.
_PASSED = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    "NODE_EXTRA_CA_CERTS",
)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def server_environment(
    config: McpServerConfig, source: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the whole environment of a server: a few variables, and what its entry names.

    Args:
        config: the server.
        source: where the variables come from.
        folder: the workspace.
    """
    names = (*_PASSED, *config.env_vars)
    passed = {name: source[name] for name in names if name in source}
    # `python -m` looks for every module in its folder first: in a workspace that nobody has
    # trusted, for a server that the person named elsewhere.
    projects = (f"{folder}/.agent_magics/", f"{folder}/.mcp.json")
    elsewhere = config.source.startswith("/") and not config.source.startswith(projects)
    if elsewhere and config.cwd is None and "-m" in config.args:
        passed["PYTHONSAFEPATH"] = "1"
    return {"PATH": _DEFAULT_PATH, **passed, **config.env}


class StdioTransport:
    """A running server as the SDK wants to see it: two streams of messages.

    Attributes:
        ending: how it ended, in a few words; "" while it runs.
        unauthorized, status: nothing, here; see `HttpTransport`.
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
        self._folder = config.cwd or folder
        self._log = log
        self._on_over = on_over
        self._process: Process | None = None
        self.ending = ""

    async def __aenter__(self) -> "tuple[Incoming, Outgoing]":
        """Start the program.

        Raises:
            RespondToModel: it cannot be started; the sentence says why.
        """
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._open: set[Any] = set()  # ids of requests that were not answered
        self._process = await self._spawn()
        try:
            return await self._connect(*self._process.pipes)
        except BaseException:
            self._process.kill(at_once=True)
            raise

    async def _connect(self, stdin: int, stdout: int, stderr: int) -> "tuple[Incoming, Outgoing]":
        files = [os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0), os.fdopen(stdin, "wb", 0)]
        with ExitStack() as failing:
            for file in files:
                failing.callback(file.close)
            incoming = Incoming(self._log, self._open, self._on_over)
            incoming.sift = self._sift
            outgoing = Outgoing(self._open)
            noise = Noise(self._log)
            await self._loop.connect_read_pipe(lambda: incoming, files[0])
            await self._loop.connect_read_pipe(lambda: noise, files[1])
            await self._loop.connect_write_pipe(lambda: outgoing, files[2])
            failing.pop_all()
        self._incoming, self._outgoing, self._noise = incoming, outgoing, noise
        self._process.on_end(self._hear_end)
        return incoming, outgoing

    async def __aexit__(self, *_: object) -> None:
        """End it: its input closes, then it is asked to end, then it is killed; all bounded."""
        with anyio.CancelScope(shield=True):
            self._outgoing.close()
            if not await self._wait_for_end(_END_LIMIT):
                self._process.kill()
                await self._wait_for_end(_KILL_LIMIT)
            self._note_end()
            self._outgoing.abort()
            self._noise.close()
            self._incoming.close()

    async def _spawn(self) -> Process:
        """Have it started in a thread; one that nobody waits for any more is ended."""
        config = self._config
        spawning = self._loop.run_in_executor(
            None,
            lambda: shared_launcher().spawn(
                [config.command or "", *config.args],
                cwd=self._folder,
                env=server_environment(config, self._environment, self._folder),
                stdin=True,
                held=True,
            ),
        )
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            spawning.add_done_callback(_end_unwanted)
            raise

    async def _wait_for_end(self, limit: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), limit)
        return self._ended.is_set()

    def _hear_end(self, process: Process) -> None:
        """On the launcher's thread: it has ended."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._see_end)

    def _see_end(self) -> None:
        self._ended.set()
        self._note_end()
        # Its last words may still be in the pipe, and end with it.
        self._loop.call_later(_LATE_LIMIT, self._incoming.end)

    def _note_end(self) -> None:
        if not self.ending:
            self.ending = _how(self._process)


def _how(process: Process) -> str:
    """Say how a server ended, in a few words."""
    code = process.exit_code
    if code is None:
        return process.lost.rstrip(".") or "its output was closed, and it was ended"
    if code > 128:
        with suppress(ValueError):
            return f"signal {signal.Signals(code - 128).name}"
    return f"exit code {code}"


def _end_unwanted(spawning: "asyncio.Future[Process]") -> None:
    if not spawning.cancelled() and spawning.exception() is None:
        process = spawning.result()
        process.kill(at_once=True)
        for fd in process.pipes:
            os.close(fd)
