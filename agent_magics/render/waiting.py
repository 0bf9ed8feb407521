"""The wait before a request is made again: a countdown first, then one quiet line."""

import math

from agent_magics.protocol.events import ModelRetry
from agent_magics.protocol.items import Json


class Wait:
    """All waits of one request, told in one notice.

    Args:
        item: the notice that is changed as time goes on.
    """

    def __init__(self, item: dict[str, Json]) -> None:
        self._item = item
        self._reason = ""
        self._attempt = 0
        self._tries = 0

    def begin(self, event: ModelRetry) -> None:
        """The request has failed (again)."""
        self._reason = event.reason.rstrip(".")
        self._attempt, self._tries = event.attempt + 1, event.tries
        self.count_down(event.delay)

    def count_down(self, seconds: float) -> bool:
        """Tell how long it takes still; return whether that changes what is read.

        Args:
            seconds: until the next attempt.
        """
        left = math.ceil(seconds)
        soon = f" in {left} s" if left > 0 else ""
        of = f" of {self._tries}" if self._tries else ""
        said = f"Trying again{soon} (attempt {self._attempt}{of}): {self._reason}."
        return self._say("warning", said)

    def end(self, how: str) -> None:
        """Say in one line what came of it.

        Args:
            how: "answered", "stopped" or "failed".
        """
        begins = {
            "answered": f"The model answered at attempt {self._attempt}; before that",
            "stopped": f"Stopped before attempt {self._attempt}",
            "failed": f"Gave up after attempt {self._attempt}",
        }
        self._say("info", f"{begins[how]}: {self._reason}.")

    def _say(self, level: str, text: str) -> bool:
        changed = self._item.get("text") != text
        self._item["level"], self._item["text"] = level, text
        return changed
