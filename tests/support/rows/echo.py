"""A model for maps: it answers each prompt by a function, and counts what it was asked."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable

from agent_magics.models.base import ItemDone, ModelEvent, ModelRequest, ResponseDone
from agent_magics.protocol.items import AssistantMessage, Usage

INPUT, OUTPUT = 100, 20


class Echo:
    """Answers with what `say` returns for a prompt, or raises what that raises.

    Attributes:
        asked: how often each prompt was asked.
        requests: all requests.
        most: the most that waited side by side.
    """

    def __init__(
        self, say: Callable[[str], str] = lambda prompt: prompt, name: str = "echo-1"
    ) -> None:
        self.name, self.source = name, "echo"
        self._say = say
        self.asked: Counter[str] = Counter()
        self.requests: list[ModelRequest] = []
        self.most = self._now = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked[request.prompt] += 1
        self.requests.append(request)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(0)
            yield ItemDone(AssistantMessage(self._say(request.prompt)))
            yield ResponseDone(Usage(INPUT, OUTPUT))
        finally:
            self._now -= 1

    async def close(self) -> None:
        """Hold nothing."""
