"""What the turn tests with MCP servers share: an agent with real servers that plays scripts."""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from turns import scripted

from agent_magics.engine.result import RunResult
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.items import UserMessage, text_of

SERVER = str(Path(__file__).with_name("things_server.py"))
PATIENCE = 60  # seconds until a test that hangs says so


def things(*options: str, **settings: Any) -> dict[str, Any]:
    """Return how the server of `things_server.py` is configured."""
    return {
        "command": sys.executable,
        "args": [SERVER, *options],
        "startup_timeout_sec": PATIENCE,
        **settings,
    }


def offered(agent: Any) -> list[list[str]]:
    """Return the names of the tools that each request offered."""
    requests = agent._given_model.requests
    return [[each.spec.name for each in request.tools] for request in requests]


def told(agent: Any) -> list[str]:
    """Return what the model was told without having asked."""
    items = agent.session.history.items
    notes = (i for i in items if isinstance(i, UserMessage) and i.role == "developer")
    return [text_of(item.content) for item in notes]


class answers:
    """Answers every question alike, and remembers them."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.seen: list[Any] = []

    def __call__(self, question: Any) -> str:
        self.seen.append(question)
        return self.decision


class World:
    """An agent whose servers have started, for several scripts."""

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
        """Have the model say `turns` next; see `play`."""
        model = self.agent._given_model
        model._turns[:] = turns
        model.requests.clear()
        self.agent._on_question = settings.pop("on_question", None)
        approval = ApprovalPolicy(settings.pop("approval", "never"))
        features = settings.pop("features", {})
        self.agent.config = replace(self.agent.config, approval=approval, features=features)
        if settings.pop("reset", True):
            self.agent.reset()

    def play(self, *turns: Any, **settings: Any) -> RunResult:
        """Run a conversation of its own in which the model says `turns`.

        Args:
            turns: as `ScriptedModel` takes them.
            settings: `approval`, `features`, `on_question`; `reset=False` goes on.
        """
        self.script(*turns, **settings)
        return self.agent.run_sync("Go.")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what servers tell by themselves, and until what they offer then is known."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), "it did not happen"
        spawn = self.agent.session.engine.spawn
        spawn(self.tools.settled()).result(PATIENCE)

    def _hear(self, *change: str) -> None:
        self.agent.session.tell_server(*change)
        with self._changed:
            self._changed.notify_all()
