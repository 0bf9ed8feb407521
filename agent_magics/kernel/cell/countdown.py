"""The countdown to the next attempt of a request, on the clock of the thread that waits."""

from time import monotonic

from agent_magics.render.view import WAIT, Block, TurnView


class Countdown:
    """Counts down in `view`, in whole seconds: it is drawn once a second, not at every look-up."""

    def __init__(self, view: TurnView) -> None:
        self._view = view
        self._end = 0.0

    def begin(self, delay: float) -> None:
        """Count from now on.

        Args:
            delay: seconds until the next attempt.
        """
        self._end = monotonic() + delay

    def tick(self) -> list[Block]:
        """Return what has to be drawn anew."""
        return self._view.count_down(self._end - monotonic()) if self._view.waits else []


def is_wait(block: Block) -> bool:
    """Tell whether `block` is the one with the countdown."""
    return block.key.startswith(f"{WAIT}#")
