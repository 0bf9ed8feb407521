"""Defines the results of live code, and the interface to the open notebook, as tools use them."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The result of live code.

    Attributes:
        output: stdout and stderr, the displayed values as text and the last expression, in order.
        images: ``data:`` URLs of the figures and images it displayed.
        error: the trimmed traceback, or "".
        notes: text for the model below the output: stored results, changes of the namespace.
    """

    output: str
    images: tuple[str, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()


class LiveDocument(Protocol):
    """The notebook that is open in the front end; used on the engine's loop.

    A cell is named by its id, and its text as the model read it by a version, so that nothing is
    overwritten that a person types meanwhile.
    """

    @property
    def is_open(self) -> bool:
        """Whether a front end is connected."""

    def asker(self, turn_id: str) -> str:
        """Return the id of the cell that a turn runs in; "" where there is no such cell."""

    def remember(self, cell_id: str, source: str, kind: str) -> str:
        """Record a cell's text as the model reads it, and return the id of that version."""

    def read_as(self, cell_id: str, version: str) -> str:
        """Return a cell's text in a version that the model has read."""

    def kind_of(self, cell_id: str) -> str:
        """Return the cell's type when the model read it: "code", "markdown" or "raw"."""

    def as_written(self, kind: str, source: str, before: str = "") -> str:
        """Return a model's text in the form safe for a cell whose text was `before`."""

    async def request(self, turn_id: str, op: str, **fields: Any) -> Any:
        """Send a request to the front end; raise `RespondToModel` where it fails."""
