"""Reports the provider's own web searches as tool calls: they run at the provider, not here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_magics.dispatch.context import Emit
from agent_magics.models.base import SearchProgress
from agent_magics.protocol.events import (
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
)

NAME = "web_search"
FAILED = "The provider says that this search failed."
CUT_OFF = "The answer ended before this search did."


@dataclass(slots=True)
class WebSearches:
    """The web searches of one request.

    Args:
        emit: sends the events.
        request: the number of the request in its turn; part of the ids of its searches.
    """

    emit: Emit
    request: int
    _begun: int = 0
    _open: dict[str, str] = field(default_factory=dict)

    def receive(self, progress: SearchProgress) -> None:
        """Emit the begin or the end of a search."""
        action = dict(progress.action)
        call_id = self._open.get(progress.call_id) or self._begin(progress)
        if progress.status == "running":
            return
        del self._open[progress.call_id]
        ended, text = (
            (ToolCallFailed, FAILED)
            if progress.status == "failed"
            else (ToolCallCompleted, _sources(action))
        )
        self.emit(ended, call_id=call_id, name=NAME, output=text, details={"action": action})

    def _begin(self, progress: SearchProgress) -> str:
        self._begun += 1
        call_id = self._open[progress.call_id] = f"{NAME}_{self.request}_{self._begun}"
        arguments = json.dumps(dict(progress.action), ensure_ascii=False)
        self.emit(ToolCallPending, call_id=call_id, name=NAME, arguments=arguments)
        self.emit(ToolCallRunning, call_id=call_id, name=NAME)
        return call_id

    def close(self) -> None:
        """End the open searches: the response has ended, or is requested again."""
        for call_id in self._open.values():
            self.emit(ToolCallFailed, call_id=call_id, name=NAME, output=CUT_OFF)
        self._open.clear()


def _sources(action: Mapping[str, object]) -> str:
    """Return the addresses that were searched, one per line, if the provider reports them."""
    sources = action.get("sources")
    rows = sources if isinstance(sources, list) else []
    return "\n".join(str(row["url"]) for row in rows if isinstance(row, dict) and row.get("url"))
