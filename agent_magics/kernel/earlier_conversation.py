"""Finds this notebook's conversation of an earlier kernel, and says once that it can be resumed."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial

from agent_magics.app import Agent, conversations
from agent_magics.dispatch.pool import POOL
from agent_magics.files.paths import open_notebook
from agent_magics.kernel.cell.run import CellRun
from agent_magics.kernel.lab.link import LabLink
from agent_magics.records.index import RecordedConversation
from agent_magics.render.markdown import code_span
from agent_magics.text.brief import number_of

# Seconds for which a cell waits for the list of conversations, before it begins without.
PATIENCE = 0.1


class EarlierConversation:
    """This notebook's last conversation of an earlier kernel.

    Args:
        lab: the connected pages, which know the conversations that the notebook names.
        agents: the agents of this kernel by name.
    """

    def __init__(self, lab: LabLink, agents: Mapping[str, Agent]) -> None:
        self._lab = lab
        self._agents = agents
        self._was_offered = False

    def find(self) -> RecordedConversation | None:
        """Return it; None where none is recorded."""
        return self._find_in(conversations())

    def _find_in(self, recorded: Sequence[RecordedConversation]) -> RecordedConversation | None:
        here = open_notebook()
        named = {page.conversation for page in self._lab.pages if page.conversation}
        now = {agent.session.conversation.id for agent in self._agents.values()}
        for each in recorded:
            is_ours = each.id in named or (here is not None and each.notebook == str(here))
            if is_ours and each.turns and each.id not in now:
                return each
        return None

    def offer(self, run: CellRun, *, can_be_shown: bool) -> None:
        """Show a notice in the kernel's first cell that it can be resumed.

        Thousands of records are listed in a second, on another thread: the turn goes on.

        Args:
            run: the cell's run, before its turn begins.
            can_be_shown: False where a recording is played or nobody watches, so that those outputs
                stay unchanged.
        """
        is_first, self._was_offered = not self._was_offered, True
        has_turns = bool(run.agent.session.conversation.history.turns)
        if not can_be_shown or not is_first or has_turns:
            return
        listing = POOL.submit(conversations)
        try:
            self._tell(run, listing.result(PATIENCE))
        except TimeoutError:
            loop, context = asyncio.get_running_loop(), copy_context()  # by which the cell is found

            def tell_later(done: Future[list[RecordedConversation]]) -> None:
                tell = partial(self._tell, run, done.result())
                loop.call_soon_threadsafe(tell, context=context)

            listing.add_done_callback(tell_later)

    def _tell(self, run: CellRun, recorded: Sequence[RecordedConversation]) -> None:
        earlier = self._find_in(recorded)
        if earlier is not None:
            run.note(
                f"This notebook has an earlier conversation ({code_span(earlier.title)}, "
                f"{number_of(earlier.turns, 'turn')}), which this cell does not know: "
                f"`%agent resume {earlier.id[:8]}` goes on with it."
            )
