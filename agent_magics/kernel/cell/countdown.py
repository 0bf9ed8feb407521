"""Updates the countdown to a request's next attempt, on the thread that waits for the run."""

from time import monotonic

from agent_magics.render.blocks.display import DisplayBlock
from agent_magics.render.view import WAIT, TurnView


class Countdown:
    """A countdown in `view`, in whole seconds, so that it is drawn once a second at most."""

    def __init__(self, view: TurnView) -> None:
        self._view = view
        self._end = 0.0

    def begin(self, delay: float) -> None:
        """Start the countdown.

        Args:
            delay: seconds until the next attempt.
        """
        self._end = monotonic() + delay

    def tick(self) -> list[DisplayBlock]:
        """Return the blocks that must be drawn again."""
        return self._view.count_down(self._end - monotonic()) if self._view.waits else []


def is_wait(block: DisplayBlock) -> bool:
    """Return whether `block` shows the countdown."""
    return block.key.startswith(f"{WAIT}#")
