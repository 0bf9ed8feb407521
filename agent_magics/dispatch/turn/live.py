"""Defines the interfaces to the person's kernel and open notebook, as tools use them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # which imports this module
    from agent_magics.dispatch.context import ToolContext


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


class LiveKernel(Protocol):
    """The person's own namespace, in which code runs; used only on the thread that waits.

    Attributes:
        document: the open notebook; None where there is none.
    """

    document: LiveDocument | None

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The variables, by name."""

    def keep_code(self, code: str, session_id: str, copied: Sequence[str]) -> None:
        """Record code that runs in scratch, for the person to read; thread-safe.

        Args:
            code: the code.
            session_id: the conversation.
            copied: names of the variables that were copied to scratch.
        """

    async def run(self, code: str, context: "ToolContext") -> LiveResult:
        """Run `code` as a cell, showing its output as it arrives.

        It suspends only if the code itself awaits at top level.
        """
