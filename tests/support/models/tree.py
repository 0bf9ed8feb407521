"""A model whose answers are given in advance for each agent of a tree."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from agent_magics import ScriptedModel
from agent_magics.models.base import ModelEvent, ModelRequest, ResponseDone
from agent_magics.protocol.items import Usage

_PATH = re.compile(r"You are the sub-agent \S+/(\S+)\.")


class TreeModel:
    """Gives each agent the next of its own answers.

    Args:
        scripts: the answers of sub-agents, by their names; those of the parent are named "main".
        usage: of each answer.
    """

    source, name = "script", "gpt-5.5"

    def __init__(self, usage: Usage = Usage(), **scripts: Any) -> None:
        self.models = {name: ScriptedModel(turns) for name, turns in scripts.items()}
        self._usage = usage

    def requests(self, name: str) -> list[ModelRequest]:
        """Return the requests of an agent."""
        return self.models[name].requests

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send the next answer to the agent that asks."""
        found = _PATH.search(request.instructions)
        model = self.models[found[1].replace("-", "_") if found else "main"]
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                yield ResponseDone(self._usage) if isinstance(event, ResponseDone) else event

    async def close(self) -> None:
        """Do nothing."""
