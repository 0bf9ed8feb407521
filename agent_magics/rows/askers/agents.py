"""Asks each row by a small agent run: a conversation of its own, in which the model may call tools.

A run is that of a sub-agent, without a place among those of the agent and without a record.
"""

import asyncio
import json
from dataclasses import dataclass

from agent_magics import tools as builtin
from agent_magics.delegation.child import SubAgent
from agent_magics.delegation.parent import ParentLink, PresentTurns
from agent_magics.delegation.rights import narrowed
from agent_magics.delegation.types import AgentType
from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest
from agent_magics.engine.results.structured import OutputType
from agent_magics.engine.session import Session
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.models.wires.responses.items import encode_tools
from agent_magics.protocol.items import UserMessage
from agent_magics.protocol.ops import denied
from agent_magics.rows.asking import GIVEN_UP, Pace, RowAnswer, RowQuestion
from agent_magics.time_limit import TimeLimit

# Runs side by side, and requests of one.
AT_ONCE, REQUESTS = 16, 10
# Seconds of one.
LONGEST = 900.0

ABOUT = "You answer about one row of a table. Your last message is the answer, and nothing else."


@dataclass(frozen=True, slots=True)
class RowRuns:
    """What the agent runs about the rows of a map have in common.

    Attributes:
        turn_config: the configuration that bounds their rights.
        reads_only: whether they get only tools that change nothing.
        requests: the most requests of one run.
    """

    turn_config: TurnConfig
    reads_only: bool
    requests: int

    def described(self) -> dict[str, object]:
        """Return the part of an answer's key that describes them: limits, rights, offered tools.

        The workspace and its instructions are not in it, so an answer is found again elsewhere. Nor
        are the descriptions of built-in tools: another wording in a release would have all paid for
        again.
        """
        config = self.turn_config
        offered = config.specs if config.offer is None else config.offer.now().all
        own = [each for each in offered if each.spec.name not in builtin.__all__]
        ours = encode_tools([each for each in offered if each.spec.name in builtin.__all__])
        tools = (json.loads(ours, object_hook=_undescribed), encode_tools(own).decode())
        return {"requests": self.requests, "reads_only": self.reads_only, "tools": tools}


class AgentAsker:
    """Asks by runs of agents; see `Asker`. Made and used on one event loop.

    Args:
        parent: the session of the agent whose map it is; requests are charged to it.
        runs: what the runs have in common.
        output: the type of the answers; None is text.
        at_once: the most runs side by side.

    Raises:
        FatalError: the configuration of the runs allows none.
    """

    def __init__(
        self, parent: Session, runs: RowRuns, output: OutputType | None, at_once: int
    ) -> None:
        self._parent, self._turn_config, self._output = parent, runs.turn_config, output
        self._kind = AgentType("row", "", reads_only=runs.reads_only, instructions=ABOUT)
        self._budget = AgentBudget(requests=runs.requests)
        self._places, self._allowed = asyncio.Semaphore(at_once), at_once
        self._in_flight = 0
        self._closing: set[asyncio.Task[None]] = set()

    async def ask(self, question: RowQuestion) -> RowAnswer:
        """See `Asker.ask`: the run itself asks again for an answer that does not fit."""
        first = question.items[0]
        assert isinstance(first, UserMessage)  # see `RowQuestion.items`
        agent = self._made()
        self._in_flight += 1
        working = asyncio.ensure_future(agent.work(self._places, lambda: first.content))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError as cancelled:
            agent.stop("the map has ended")
            if agent.status == "queued":
                working.cancel()
            if cancelled.args != (GIVEN_UP,):
                raise
            spent = agent.spending
            return RowAnswer(usage=spent.usage, cost=spent.cost, error=GIVEN_UP, kind=GIVEN_UP)
        finally:
            self._in_flight -= 1
            self._close_soon(agent, working)
        usage, cost = agent.spending.usage, agent.spending.cost
        if agent.status == "completed" and not agent.problem:
            return RowAnswer(agent.text, usage, cost)
        kind = "its run was not whole" if agent.status == "completed" else f"its run {agent.status}"
        return RowAnswer(usage=usage, cost=cost, error=agent.problem, kind=kind)

    def _made(self) -> SubAgent:
        session = Session(self._parent.engine, f"{self._parent.agent}/row", None)
        clock = TimeLimit(LONGEST, lambda: agent.stop(f"it took more than {LONGEST:g} seconds"))
        link = ParentLink(
            session.agent,
            self._parent.conversation,
            PresentTurns(),
            clock,
            lambda question: denied(question.question_id),
        )
        request = SubAgentRequest(task="")
        own = narrowed(
            self._turn_config, self._kind, request, self._budget, session.agent, link, self._output
        )
        agent = SubAgent("row", self._kind, request, self._budget, link, clock, session, own)
        return agent

    def _close_soon(self, agent: SubAgent, working: "asyncio.Future[None]") -> None:
        async def close() -> None:
            await asyncio.wait({working})
            await agent.close()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def stop(self) -> None:
        """Do nothing: runs under way go on, since what they have paid for is to be an answer."""

    def pace(self) -> Pace:
        """See `Asker.pace`."""
        running = min(self._in_flight, self._allowed)
        return Pace(running, self._allowed, "your limit" if running == self._allowed else "")

    async def close(self) -> None:
        """Wait until all runs have released what they held."""
        while self._closing:
            await asyncio.wait(self._closing)


def _undescribed(part: dict[str, object]) -> dict[str, object]:
    """Return an object of JSON without its description; a parameter of that name is no text."""
    return {k: each for k, each in part.items() if k != "description" or not isinstance(each, str)}
