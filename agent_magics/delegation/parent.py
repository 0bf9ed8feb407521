"""Connects a sub-agent to its parent: questions, the person's thread, clients and costs."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agent_magics.dispatch.context import Emit, TurnContext
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.budget import Budget
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.file_changes.turn import DiffTracker
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.file_history.writers import Writers
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import Event
from agent_magics.protocol.items import Usage
from agent_magics.protocol.ops import Answer, DynamicToolResponse
from agent_magics.time_limit import TimeLimit

# Answers a question where no turn of the parent is there to ask in.
AnswerBlocking = Callable[[Any], Answer]

_TURN_ENDED = (
    "Not run to its end: it needs the person's own thread, and the run that lent it has ended."
)


@dataclass(slots=True)
class ParentTurn:
    """A turn of the parent, in which sub-agents were started or may ask.

    Attributes:
        over: is done when the turn has ended.
    """

    turn_config: TurnConfig
    context: TurnContext
    budget: Budget
    over: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class PresentTurns:
    """The running turns of the parent; a sub-agent asks in the newest."""

    def __init__(self) -> None:
        self._turns: dict[str, ParentTurn] = {}
        self._begun = asyncio.Event()

    def begin(self, turn: ParentTurn) -> None:
        """Add a turn that begins."""
        self._turns[turn.context.turn_id] = turn
        self._begun.set()

    def end(self, turn_id: str) -> ParentTurn | None:
        """Remove a turn that has ended, and return it."""
        turn = self._turns.pop(turn_id, None)
        if turn is not None:
            turn.over.set_result(None)
        if not self._turns:
            self._begun.clear()
        return turn

    async def present(self) -> ParentTurn:
        """Return the newest running turn; wait for the next one where none is running."""
        while not self._turns:
            await self._begun.wait()
        return next(reversed(self._turns.values()))


class ParentLink:
    """The parent of one sub-agent, as the turns of the sub-agent use it.

    Args:
        path: the names of the parent and the sub-agent, for the person.
        conversation: the parent's, to which requests are charged.
        turns: the running turns of the parent.
        clock: the time of the sub-agent, which stands still while a question waits.
        answer: answers questions; None asks in the parent's turns.

    Attributes:
        conversation: the parent's conversation.
        clock: the same.
        turn: the turn whose budget counts the requests; None where a program began the work.
        emit: shows and records the sub-agent's state, where its work has begun.
        on_overspent: called with the budget of `turn` when it is used up.
    """

    def __init__(
        self,
        path: str,
        conversation: Conversation,
        turns: PresentTurns,
        clock: TimeLimit,
        answer: AnswerBlocking | None = None,
    ) -> None:
        self._path = path
        self.conversation = conversation
        self._turns = turns
        self.clock = clock
        self._answer = answer
        self.turn: ParentTurn | None = None
        self.emit: Emit = _show_nothing
        self._tracker: DiffTracker | None = None
        self.on_overspent: Callable[[str], None] = lambda budget: None

    async def ask(self, kind: Any, **fields: Any) -> Answer:
        """Ask the person in a turn of the parent, or in its next one where this one ends first."""
        for text in ("reason", "message"):  # of a question about a call, and of a server's form
            if text in fields:
                fields[text] = f"{self._path} asks: {fields[text]}"
        fields["call_id"] = f"{self._path}/{fields['call_id']}"
        with self.clock.stopped():
            if self._answer is not None:
                question = kind(question_id=self._path, agent=self._path, **fields)
                return await asyncio.wrap_future(POOL.submit(self._answer, question))
            while True:
                turn = await self._turns.present()
                answer = await _while_running(turn, turn.context.ask(kind, **fields))
                if isinstance(answer, Answer):
                    return answer

    @property
    def main_thread(self) -> Callable[..., Awaitable[Any]] | None:
        """Runs work on the thread that waits for the parent's run."""
        return None if self._answer is not None else self._on_main_thread

    async def _on_main_thread(self, kind: str, call_id: str, name: str, run: Any) -> Any:
        turn = await self._turns.present()
        if turn.context.main_thread is None:
            raise RespondToModel(_TURN_ENDED)
        done: list[Any] = []

        async def work() -> bool:
            assert turn.context.main_thread is not None
            done.append(await turn.context.main_thread(kind, call_id, name, run))
            return True

        if not await _while_running(turn, work()):
            raise RespondToModel(_TURN_ENDED)
        return done[0]

    @property
    def ask_client(self) -> Callable[..., Awaitable[DynamicToolResponse]] | None:
        """Lets an outside client of the parent run a call."""
        return None if self._answer is not None else self._ask_client

    async def _ask_client(self, call_id: str, *call: Any) -> DynamicToolResponse:
        turn = await self._turns.present()
        if turn.context.ask_client is None:
            raise RespondToModel("Not run: no client is there to run it.")
        return await turn.context.ask_client(f"{self._path}/{call_id}", *call)

    @property
    def writers(self) -> Writers:
        """The last writers of files, among the parent and its sub-agents."""
        return self.conversation.files.writers

    def record_changes(self, config: RunConfig, work_id: str, title: str) -> None:
        """Record changes of files in the parent's journal as a turn of their own.

        That is for work that a program begins: no turn of the parent shows them, and undo needs
        them.
        """
        files = self.conversation.files
        journal = files.journal_in(config.cwd)
        self._tracker = DiffTracker(
            journal, work_id, config.cwd, config.roots, _show_nothing, set(), writers=files.writers
        )
        self._tracker.title = title

    def find_tracker(self) -> DiffTracker | None:
        """Return the tracker of the turn that began the work, or of work that a program began."""
        tracker = self._tracker if self.turn is None else self.turn.context.diff_tracker
        return tracker if isinstance(tracker, DiffTracker) else None

    def charge(self, model: str, usage: Usage) -> None:
        """Charge a request to the parent's conversation and to the run that began the work."""
        self.conversation.charge(model, usage, of_sub_agent=True)
        if self.turn is None:
            return
        budget = self.turn.budget
        budget.include(model, usage)
        if budget.is_spent():
            self.on_overspent(budget.reached)


def _show_nothing(kind: type[Event], **fields: Any) -> None:
    """Take an event of a tracker whose changes no turn shows."""


async def _while_running(turn: ParentTurn, work: Awaitable[Any]) -> Any:
    """Return the result of work that needs a turn; None where the turn ends first."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait([doing, turn.over], return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() and not doing.cancelled() else None
    finally:
        doing.cancel()
