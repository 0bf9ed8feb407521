"""What a front end lends to all agents of its process: who answers, and the live kernel."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Lent(NamedTuple):
    """What a front end has to lend; all None in a plain program.

    `desk` makes, for an agent, what calls from outside need (`agent_magics.serve.place.Desk`).
    """

    host: Any = None
    live_kernel: Any = None
    desk: Any = None


class Surroundings:
    """Asks the front end when somebody first needs it, so that lending costs nothing before."""

    def __init__(self) -> None:
        self._lender: Callable[[], Lent] | None = None

    def lend(self, lender: Callable[[], Lent] | None) -> None:
        """Let `lender` be asked from now on; None takes it back."""
        self._lender = lender

    @property
    def has_kernel(self) -> bool:
        """Whether agents here can run code in a live kernel."""
        return self._lender is not None

    def borrow(self) -> Lent:
        """Return what there is."""
        return Lent() if self._lender is None else self._lender()


SURROUNDINGS = Surroundings()
