"""Shows a status line at the foot of a running cell, with controls, through the page's extension.

Status comes from the engine's thread, and the person's input from any thread that receives the
page's messages: both work while the model's own code holds the main thread. The line is no output,
so nothing of it is saved.
"""

import asyncio
import time
from collections.abc import Callable

from agent_magics.engine.session import Session
from agent_magics.kernel.lab.link import LabLink, Page
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import TURN_ENDS, Event
from agent_magics.protocol.ops import DropPrompt
from agent_magics.render.status import TurnStatus

# Seconds between two updates.
INTERVAL = 0.1


class CellFoot:
    """The status line of one cell.

    Args:
        lab: the connected pages.
        cell: the cell's id; "" where no page shows it.
        session: the session whose turn runs there.
        stop: stops the turn; from any thread.

    Attributes:
        status: the present activity of the turn.
    """

    def __init__(
        self, lab: LabLink, cell: str, session: Session, stop: Callable[[], object]
    ) -> None:
        self._lab = lab
        self._cell = cell
        self._session = session
        self.stop = stop
        self.status = TurnStatus()
        self._shown_at = 0.0
        self._later: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Show the line on all pages, and accept their input."""
        if self._cell:
            self._lab.feet[self._cell] = self
            self._show_all()

    @property
    def _is_there(self) -> bool:
        return self._lab.feet.get(self._cell) is self

    @property
    def activity(self) -> str:
        """The present activity of the turn in a few words."""
        return self.status.doing

    @property
    def doing(self) -> str:
        """The present activity of the turn, with its duration in seconds."""
        return f"{self.status.doing}, {self.status.phase_seconds:.0f} s"

    def end(self) -> None:
        """Remove the line, unless it is that of a later run of the cell."""
        if self._is_there:
            del self._lab.feet[self._cell]
            for page in self._lab.pages:
                page.say("foot", cell=self._cell, done=True)

    def hear(self, event: Event) -> None:
        """Apply an event; on the engine's thread."""
        self.status.apply(event)
        if isinstance(event, TURN_ENDS) or self._later is not None or not self._cell:
            return
        wait = max(0.0, self._shown_at + INTERVAL - time.monotonic())
        self._later = asyncio.get_running_loop().call_later(wait, self._show_all)

    def _show_all(self) -> None:
        self._later, self._shown_at = None, time.monotonic()
        if self._is_there:
            for page in self._lab.pages:
                self.show(page)

    def show(self, page: Page) -> None:
        """Show the line on one page."""
        status = self.status
        page.say(
            "foot",
            cell=self._cell,
            doing=status.doing,
            questions=status.questions,
            phase=status.phase_seconds,
            call=status.call_seconds,
            elapsed=status.seconds,
            tokens=status.usage.input_tokens + status.usage.output_tokens,
            cost=status.cost,
            said=list(self._session.additions.words),
            queued=[{"id": each.id, "text": each.text} for each in status.queued],
        )

    # -- what pages say ---------------------------------------------------------------------------

    def say(self, page: Page, which: str, text: str, *, now: bool) -> None:
        """Add the person's message: for the running prompt, or as the next prompt."""
        additions = self._session.additions
        try:
            if now:
                additions.steer(text)
            else:
                additions.queue(which, text)
        except FatalError:
            page.say("unheard", cell=self._cell, text=text)
        else:
            self._session.engine.post(self._show_all)  # which has recorded it by then

    def drop(self, which: str) -> None:
        """Remove a queued prompt."""
        self._session.submit(DropPrompt(prompt_id=which))
