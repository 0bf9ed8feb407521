"""Shows the wait before a retry: a countdown, then one quiet line."""

import math

from agent_magics.protocol.errors import clause
from agent_magics.protocol.events import ModelRetry
from agent_magics.protocol.items import Json


class Wait:
    """All retries of one model request, shown in one notice.

    Args:
        item: the notice (a saved item), changed in place.
    """

    def __init__(self, item: dict[str, Json]) -> None:
        self._item = item
        self._reason = ""
        self._attempt = 0
        self._tries = 0

    def begin(self, event: ModelRetry) -> None:
        """Record that the request has failed (again) and start its countdown."""
        self._reason = clause(event.reason)
        self._attempt, self._tries = event.attempt + 1, event.tries
        self.count_down(event.delay)

    def count_down(self, seconds: float) -> bool:
        """Update the countdown.

        Args:
            seconds: time until the next attempt.

        Returns:
            Whether the shown text has changed.
        """
        left = math.ceil(seconds)
        soon = f" in {left} s" if left > 0 else ""
        of = f" of {self._tries}" if self._tries else ""
        notice = f"Trying again{soon} (attempt {self._attempt}{of}): {self._reason}."
        return self._update("warning", notice)

    def end(self, how: str) -> None:
        """Replace the countdown by one line with the outcome.

        Args:
            how: "answered", "stopped" or "failed".
        """
        begins = {
            "answered": f"The model answered at attempt {self._attempt}; before that",
            "stopped": f"Stopped before attempt {self._attempt}",
        }
        # The error of a failed turn says why, and how often the model was asked.
        text = "Gave up." if how == "failed" else f"{begins[how]}: {self._reason}."
        self._update("info", text)

    def _update(self, level: str, text: str) -> bool:
        changed = self._item.get("text") != text
        self._item["level"], self._item["text"] = level, text
        return changed
