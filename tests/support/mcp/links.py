"""Servers for tests of MCP connections: started on the engine's loop, and ended with the test."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from agent_magics.engine.thread import shared_engine
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.protocol.mcp import (
    Elicitation,
    ElicitationAnswer,
    McpResult,
    McpServerConfig,
    McpServerState,
    McpStatus,
    Sampling,
)
from tests.support.mcp import PROGRAMS

LIMIT = 90  # seconds a step of a test may take, on a machine that is busy


class Callbacks:
    """Callbacks that record a server's requests, and answer as the test wants."""

    def __init__(self, answer: ElicitationAnswer | None = None, words: str | None = None) -> None:
        self.answer = answer or ElicitationAnswer("decline")
        self.words = words
        self.progressed: list[tuple[float, float | None, str]] = []
        self.logged: list[tuple[str, str]] = []
        self.asked: list[Elicitation] = []
        self.sampled: list[Sampling] = []
        self.before_answer: Callable[[], Any] | None = None

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Record it."""
        self.progressed.append((done, total, message))

    def log(self, level: str, text: str) -> None:
        """Record it."""
        self.logged.append((level, text))

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Record it and return the test's answer."""
        self.asked.append(question)
        if self.before_answer is not None:
            await self.before_answer()
        return self.answer

    async def sample(self, request: Sampling) -> str | None:
        """Record it and return the test's answer."""
        self.sampled.append(request)
        return self.words


class McpWorld:
    """A connection manager with its servers; each method blocks until the loop has done it."""

    def __init__(
        self,
        *servers: McpServerConfig,
        environment: Mapping[str, str] = os.environ,
        roots: tuple[Path, ...] = (),
    ) -> None:
        self.history: list[McpServerState] = []
        self._news = asyncio.Event()
        self.manager = McpConnectionManager(
            servers,
            spawn=shared_engine().spawn,
            roots=roots or (Path.cwd(),),
            environment=environment,
            changed=self._changed,
        )
        self.name = servers[0].name if servers else ""

    def __enter__(self) -> Self:
        """Start all servers."""
        self.manager.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self.run(self.manager.close())

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the loop."""
        return shared_engine().spawn(asyncio.wait_for(coroutine, LIMIT)).result(LIMIT + 5)

    @property
    def state(self) -> McpServerState:
        """The state of the first server."""
        return self.manager.states()[0]

    def ready(self, name: str = "") -> McpServerState:
        """Wait until a server is ready."""
        return self.run(self.manager.server(name or self.name).standing.ready())

    def call(self, tool: str, callbacks: Callbacks | None = None, **arguments: Any) -> McpResult:
        """Call a tool of the first server."""
        return self.run(
            self.manager.server(self.name).call_tool(tool, arguments, callbacks or Callbacks())
        )

    def until(self, test: Callable[[McpServerState], bool]) -> McpServerState:
        """Wait until the first server's state passes `test`."""

        async def wait() -> McpServerState:
            while not test(self.state):
                await self._news.wait()  # on the loop that changes it, so that no state is missed
            return self.state

        return self.run(wait())

    def until_status(self, status: McpStatus) -> McpServerState:
        """Wait until the first server has this status."""
        return self.until(lambda state: state.status is status)

    def _changed(self, state: McpServerState) -> None:
        self.history.append(state)
        news, self._news = self._news, asyncio.Event()
        news.set()


def chaos(mode: str, folder: Path, **more: Any) -> McpServerConfig:
    """Return the configuration of `chaos_server.py` in a mode."""
    program = str(PROGRAMS / "chaos_server.py")
    fields = {"startup_timeout_sec": 40.0, "tool_timeout_sec": 40.0, **more}
    arguments = ("-S", program, mode, str(folder))
    return McpServerConfig("chaos", sys.executable, arguments, **fields)


def words_of(result: McpResult) -> str:
    """Return the text of a result."""
    return "\n".join(part.text for part in result.content)


def pids(folder: Path) -> list[int]:
    """Return the ids of the server's processes of this folder, and of those it started."""
    return [int(path.stem) for path in folder.glob("*.pid")]


def ended(pid: int) -> bool:
    """Return whether a process has ended, even if it was not waited for yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
