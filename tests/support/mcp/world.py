"""Shared by turn tests with MCP servers: an agent with real servers that plays scripts."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_magics.engine.results.run import RunResult
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.items import UserMessage, text_of
from tests.support.mcp import PROGRAMS
from tests.support.turns import scripted

SERVER = str(PROGRAMS / "things_server.py")
PATIENCE = 60  # seconds until a test that hangs fails


def things(*options: str, **settings: Any) -> dict[str, Any]:
    """Return the configuration of `things_server.py`."""
    return {
        "command": sys.executable,
        "args": [SERVER, *options],
        "startup_timeout_sec": PATIENCE,
        **settings,
    }


def offered(agent: Any) -> list[list[str]]:
    """Return the names of the tools that each request offered."""
    requests = agent._models.given.requests
    return [[each.spec.name for each in request.tools] for request in requests]


def told(agent: Any) -> list[str]:
    """Return the notifications that the model was sent."""
    items = agent.session.conversation.history.items
    notes = (i for i in items if isinstance(i, UserMessage) and i.role == "developer")
    return [text_of(item.content) for item in notes]


class answers:
    """Gives every question the same answer, and records the questions."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.seen: list[Any] = []

    def __call__(self, question: Any) -> str:
        self.seen.append(question)
        return self.decision


class World:
    """An agent with started servers, for several scripts."""

    def __init__(self, folder: Path, servers: dict[str, Any]) -> None:
        self.folder = folder
        self._changed = threading.Condition()
        self.agent = scripted(tools=["read_file"], mcp_servers=servers, cwd=folder)
        self.agent._servers._changed = self._hear

    def __enter__(self) -> "World":
        self.script("Ready.")
        self.agent.run_sync("Start.")
        spawn = self.agent.session.engine.spawn
        spawn(self.tools.settled()).result(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.close()

    @property
    def tools(self) -> Any:
        """The `McpTools` of the agent."""
        return self.agent._servers.tools(files=False)

    def script(self, *turns: Any, **settings: Any) -> None:
        """Set the model's next responses; see `play`."""
        model = self.agent._models.given
        model._turns[:] = turns
        model.requests.clear()
        on_question = settings.pop("on_question", None)
        approval = ApprovalPolicy(settings.pop("approval", "never"))
        features = settings.pop("features", {})
        self.agent.configure(approval=approval, features=features, on_question=on_question)
        if settings.pop("reset", True):
            self.agent.reset()

    def play(self, *turns: Any, **settings: Any) -> RunResult:
        """Run a conversation of its own in which the model responds with `turns`.

        Args:
            turns: as `ScriptedModel` takes them.
            settings: `approval`, `features`, `on_question`; `reset=False` continues.
        """
        self.script(*turns, **settings)
        return self.agent.run_sync("Go.")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that servers' notifications cause, and for their parsed lists."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), "it did not happen"
        spawn = self.agent.session.engine.spawn
        spawn(self.tools.settled()).result(PATIENCE)

    def _hear(self, *change: str) -> None:
        self.agent.session.turns.tell_server(*change)
        with self._changed:
            self._changed.notify_all()
