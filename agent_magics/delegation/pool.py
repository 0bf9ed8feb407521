"""Starts the sub-agents of an agent, a limited number at a time, and ends them with it.

A place is free as soon as a sub-agent ends, so that the next one begins: none waits for a whole
group. What a sub-agent has to say goes to the model with the next request, without being asked for.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.delegation.admission import MOST, check_kernel, chosen_name, chosen_type
from agent_magics.delegation.budgets import budget_of, checked_budget, completed, is_used_up, least
from agent_magics.delegation.child import SubAgent, bring_results, report
from agent_magics.delegation.parent import AnswerBlocking, ParentLink, ParentTurn, PresentTurns
from agent_magics.delegation.rights import narrowed
from agent_magics.delegation.sharing import shared
from agent_magics.delegation.types import EXPLORE, AgentPlace, AgentType
from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.cost import Spending
from agent_magics.engine.results.structured import OutputType
from agent_magics.engine.session import Session
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.protocol.errors import AgentMagicsError, FatalError, RespondToModel, short_message
from agent_magics.protocol.events import Event, SubAgentChanged
from agent_magics.protocol.items import Usage
from agent_magics.protocol.records import RecordBegun
from agent_magics.time_limit import TimeLimit

# Sub-agents that work at the same time. They have none of their own.
AT_A_TIME = 4
# Seconds that closing waits for calls that clean up; each has one, and a busy machine takes longer.
_MOST_CLOSING = 5.0
KERNEL_ENDED = "its kernel has ended"


class AgentPool:
    """The sub-agents of one agent; used on the engine's loop.

    Args:
        session: the agent's.
        folder: where conversations are recorded; None records none.
        types: returns the types that sub-agents can have, by name.
    """

    def __init__(
        self, session: Session, folder: Path | None, types: Callable[[], Mapping[str, AgentType]]
    ) -> None:
        self._session = session
        session.replaced = self._present_conversation
        self._folder = folder
        self.types = types
        self.agents: dict[str, SubAgent] = {}
        self._conversation: Conversation | None = None
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._turns = PresentTurns()
        self._work: dict[SubAgent, asyncio.Task[None]] = {}
        self._closing: dict[SubAgent, asyncio.Task[None]] = {}

    # -- the turns of the agent --------------------------------------------------------------------

    def begin_turn(self, turn: ParentTurn) -> None:
        """Add a turn that begins, in which sub-agents may ask."""
        self._turns.begin(turn)

    def end_turn(self, turn_id: str, stopped: str) -> None:
        """Handle the end of a turn: stop the sub-agents that must not outlive it."""
        turn = self._turns.end(turn_id)
        if stopped:
            self.stop_all(f"the agent it works for was stopped ({stopped})")
        elif turn is not None and turn.budget.reached:
            self._stop_turn(turn, turn.budget.reached)

    def _stop_turn(self, turn: ParentTurn, budget: str) -> None:
        reason = f"the budget of the agent it works for ({budget}) is used up"
        for agent in self._present():
            if agent.link.turn is turn:
                self.stop(agent, reason)

    # -- a sub-agent's life ------------------------------------------------------------------------

    def start(
        self,
        request: SubAgentRequest,
        turn_config: TurnConfig,
        turn: ParentTurn | None = None,
        *,
        output: OutputType | None = None,
        answer: AnswerBlocking | None = None,
        place: AgentPlace | None = None,
    ) -> SubAgent:
        """Start a sub-agent.

        Args:
            request: what it is asked to do.
            turn_config: the configuration that bounds its rights: that of `turn`, or of the agent.
            turn: the turn whose model asks for it; None where a program does, whose budgets may
                exceed those of the type.
            output: the type of its answer; None is text.
            answer: answers its questions; None asks in the agent's turns.
            place: makes its session, which works in another process; None means this one.

        Raises:
            RespondToModel: it cannot be started; the message says why, with the limits.
        """
        conversation = self._present_conversation()
        kind = chosen_type(request, self.types())
        check_kernel(kind, request, self._present(), of_program=answer is not None)
        name = chosen_name(request, kind, self.names)
        wanted = completed(request.budget, kind.budget)
        budget = wanted if turn is None else least(wanted, kind.budget)
        budget = checked_budget(budget)
        agent = self._made(name, kind, request, budget, turn_config, output, answer, place)
        prompt = shared(request, conversation, agent.session.conversation, agent.path)
        self.agents[name] = agent
        if turn is None:
            agent.link.record_changes(turn_config.config, f"work of {agent.id}", request.task)
        self._begin(agent, turn, request.call_id, agent.work(self._places, lambda: prompt))
        return agent

    def _made(
        self,
        name: str,
        kind: AgentType,
        request: SubAgentRequest,
        budget: AgentBudget,
        turn_config: TurnConfig,
        output: OutputType | None = None,
        answer: AnswerBlocking | None = None,
        place: AgentPlace | None = None,
    ) -> SubAgent:
        """Make a sub-agent that has not begun."""
        path = f"{self._session.agent}/{name}"
        clock = TimeLimit(budget.seconds or math.inf, lambda: self._late(agent))
        link = ParentLink(path, self._present_conversation(), self._turns, clock, answer)
        own = narrowed(turn_config, kind, request, budget, path, link, output)
        if place is None:
            session = self._made_session(path, turn_config)
        else:
            begin = self._begin_record(path, turn_config)
            session = place.session(self._session.engine, self._folder, begin, own, request)
        agent = SubAgent(name, kind, request, budget, link, clock, session, own)
        return agent

    def _made_session(self, path: str, turn_config: TurnConfig) -> Session:
        begin = self._begin_record(path, turn_config)
        return Session(self._session.engine, path, self._folder, begin)

    async def start_for_program(
        self,
        request: SubAgentRequest,
        turn_config: TurnConfig,
        answer: AnswerBlocking,
        place: AgentPlace | None = None,
    ) -> SubAgent:
        """Start a sub-agent whose events a program reads; for the arguments see `start`."""
        agent = self.start(
            request, turn_config, output=turn_config.output, answer=answer, place=place
        )
        agent.keeps_events = agent.is_silent = True
        return agent

    def _begin(
        self,
        agent: SubAgent,
        turn: ParentTurn | None,
        call_id: str,
        work: Coroutine[Any, Any, None],
    ) -> None:
        """Begin the present work of a sub-agent, which counts for a turn."""
        agent.link.turn, agent.call_id = turn, call_id
        agent.status, agent.problem = "queued", ""
        if agent.ended.done():
            agent.ended = asyncio.get_running_loop().create_future()
        if turn is None:
            agent.link.emit = partial(self._record, agent.link.conversation)
        else:
            agent.link.emit = turn.context.emit
            agent.link.on_overspent = lambda budget: self._stop_turn(turn, budget)
        agent.tell()
        task = asyncio.create_task(work, name=f"sub-agent {agent.name}")
        self._work[agent] = task
        task.add_done_callback(lambda _: self._finish(agent))

    def _record(self, parent: Conversation, /, kind: type[Event], **state: Any) -> None:
        """Record the state of a sub-agent that a program began, while its conversation goes on."""
        if parent is self._session.conversation:
            self._session.outbox.emit("", kind, **state)

    def _finish(self, agent: SubAgent) -> None:
        """Release what a sub-agent held, and report its end if nothing follows."""
        del self._work[agent]
        if not agent.is_over:  # it was stopped before its first step
            agent.end("stopped", agent.problem or "stopped before it began")
        conversation = agent.link.conversation
        names = bring_results(agent, conversation)
        agent.tell()
        self._release(agent)
        if self._follows(agent):
            return
        if not agent.is_silent:
            conversation.tell(report(agent, names))
        agent.is_silent = False
        agent.ended.set_result(None)

    def _release(self, agent: SubAgent) -> None:
        """Close the session of a sub-agent that has ended, beside everything else."""
        if agent not in self._closing:  # else its further work ended before it began
            closing = self._closing[agent] = asyncio.create_task(agent.close())
            closing.add_done_callback(lambda _: self._closing.pop(agent))

    def _follows(self, agent: SubAgent) -> bool:
        """Begin what follows the work that has ended; return whether there is any."""
        following, agent.following = agent.following, None
        if following is None:
            return False
        agent.is_silent = False
        try:
            following()
        except AgentMagicsError as refusal:  # no call is there to read it, so the report says it
            agent.problem = short_message(refusal)
            return False
        return True

    def go_on(self, agent: SubAgent, turn: ParentTurn, call_id: str, *messages: str) -> None:
        """Continue the conversation of a sub-agent that has ended, with what it has not read.

        Args:
            agent: the sub-agent.
            turn: the turn whose model lets it go on.
            call_id: of the call that does.
            messages: what it is told now.

        Raises:
            RespondToModel: nothing of it is recorded, or its budget is used up.
        """
        # Bounded by the turn that lets it go on, which may be stricter than the one before.
        agent.turn_config = self._narrowed_again(agent, turn)
        # Once: a sub-agent may be told to go on again and again before it does.
        agent.unread += [each for each in messages if each not in agent.unread]
        if agent in self._work:  # which `_finish` is about to end
            agent.following = lambda: self.go_on(agent, turn, call_id)
        else:
            self._begin(agent, turn, call_id, self._go_on(agent))

    def _narrowed_again(self, agent: SubAgent, turn: ParentTurn) -> TurnConfig:
        """Return the configuration with which a sub-agent can go on; raise where it cannot."""
        if self._folder is None:
            raise RespondToModel(f"{agent.name} cannot go on: conversations are not recorded here.")
        budget = agent.budget_left
        if is_used_up(replace(budget, seconds=agent.clock.left)):
            raise RespondToModel(f"{agent.name} cannot go on: its budget is used up.")
        others = [each for each in self._present() if each is not agent]
        check_kernel(agent.kind, agent.request, others)
        return narrowed(
            turn.turn_config,
            agent.kind,
            agent.request,
            checked_budget(budget),
            agent.path,
            agent.link,
            agent.turn_config.output,
        )

    def redirect(self, agent: SubAgent, turn: ParentTurn, call_id: str, message: str) -> None:
        """Stop a sub-agent's present work, and continue its conversation with a message.

        Raises:
            RespondToModel: it could not go on; it was not stopped.
        """
        self._narrowed_again(agent, turn)
        self.stop(agent, "interrupted by a message")
        agent.unread.append(message)
        agent.following = lambda: self.go_on(agent, turn, call_id)

    async def _go_on(self, agent: SubAgent) -> None:
        closing = self._closing.get(agent)
        if closing is not None:
            await asyncio.shield(closing)  # a stop ends this wait, and not the closing

        def begin() -> str:
            return agent.take_up(self._made_session(agent.path, agent.turn_config))

        await agent.work(self._places, begin)

    def stop(self, agent: SubAgent, reason: str) -> None:
        """Stop the work of a sub-agent, also where it waits for a place, and what follows it."""
        agent.following = None
        if agent.status == "queued":
            agent.problem = reason
            self._work[agent].cancel()
        else:
            agent.stop(reason)

    def stop_by_person(self, name: str) -> None:
        """Stop the sub-agent that has this name, or whose record has this id, if it is at work."""
        for agent in self._present():
            if name in (agent.name, agent.id):
                self.stop(agent, "stopped by the person")

    def stop_all(self, reason: str) -> None:
        """Stop the present work of all sub-agents."""
        for agent in self._present():
            self.stop(agent, reason)

    def shut_down(self) -> None:
        """Stop all sub-agents, and wait a moment while they clean up; from any thread."""
        with suppress(FatalError, TimeoutError):  # in a forked child there are none
            closing = self._session.engine.spawn(self._close())
            if not self._session.engine.is_current():
                closing.result(_MOST_CLOSING)

    async def _close(self) -> None:
        self.stop_all("the agent it works for was closed")
        while waiting := [*self._work.values(), *self._closing.values()]:
            await asyncio.wait(waiting)

    def _late(self, agent: SubAgent) -> None:
        self.stop(agent, f"its budget (seconds={agent.budget.seconds:g}) is used up")

    # -- which there are ---------------------------------------------------------------------------

    @property
    def waiting(self) -> str:
        """A sentence about the sub-agents that wait for a place; "" where none does."""
        if len(self._present()) <= AT_A_TIME:
            return ""
        names = ", ".join(each.name for each in self._present() if each.status == "queued")
        return f" {AT_A_TIME} sub-agents work at a time, so these wait for a place: {names}."

    @property
    def limits(self) -> str:
        """A sentence about the limits and how much of each is used."""
        return (
            f"{len(self._present())} at work, {AT_A_TIME} at a time; {len(self.names)} started of "
            f"{MOST} in a conversation; depth 1: they have none of their own."
        )

    def _present(self) -> list[SubAgent]:
        """Return the sub-agents that are at work, or wait for a place."""
        return [agent for agent in self.agents.values() if not agent.is_over]

    def _present_conversation(self) -> Conversation:
        """Return the agent's conversation; a new one has no sub-agents yet, and those of the one
        before end.
        """
        conversation = self._session.conversation
        if conversation is not self._conversation:
            self.stop_all("its conversation has ended")
            self._conversation, self.agents = conversation, {}
        return conversation

    def find(self, name: str, turn: ParentTurn) -> SubAgent | None:
        """Return a sub-agent, also one of an earlier kernel; None where there is none."""
        earlier = self._present_conversation().sub_agents
        if name in earlier and name not in self.agents:
            self.agents[name] = self._revived(earlier[name], turn)
        return self.agents.get(name)

    def _revived(self, last: SubAgentChanged, turn: ParentTurn) -> SubAgent:
        """Return a sub-agent of an earlier kernel, which can go on from its record."""
        last, kind = _ended(last), self.types().get(last.agent_type, EXPLORE)
        request = SubAgentRequest(
            task=last.task,
            agent_type=kind.name,
            name=last.sub_agent,
            tools=last.tools,
            model=last.model,
        )
        budget = budget_of(last.budget) if last.budget else kind.budget
        agent = self._made(last.sub_agent, kind, request, budget, turn.turn_config)
        agent.session.conversation.spending = _spent(last)
        agent.id, agent.text, agent.link.turn = last.conversation, last.text, turn
        agent.end(last.status, last.problem)
        agent.clock.add(last.seconds)
        return agent

    @property
    def names(self) -> list[str]:
        """The names of all sub-agents, also of those of an earlier kernel."""
        return [each.sub_agent for each in self.states]

    @property
    def states(self) -> list[SubAgentChanged]:
        """The last states of all sub-agents, also of those of an earlier kernel; thread-safe."""
        conversation = self._session.conversation
        earlier = {name: _ended(last) for name, last in tuple(conversation.sub_agents.items())}
        own = tuple(self.agents.items()) if conversation is self._conversation else ()
        return [*{**earlier, **{name: agent.state for name, agent in own}}.values()]

    def _begin_record(self, path: str, turn_config: TurnConfig) -> Callable[[str], RecordBegun]:
        """Return what makes the first line of a sub-agent's record."""
        parent = self._session.conversation.id
        cwd = str(turn_config.config.cwd)
        return lambda conversation: RecordBegun(
            conversation=conversation, agent=path, at=time.time(), cwd=cwd, parent=parent
        )


def _ended(last: SubAgentChanged) -> SubAgentChanged:
    """Return the state of a sub-agent of an earlier kernel, which has ended with it."""
    if last.is_over:
        return last
    return replace(last, status="stopped", doing="", problem=KERNEL_ENDED)


def _spent(last: SubAgentChanged) -> Spending:
    """Return what a sub-agent of an earlier kernel had spent when it was last reported."""
    return Spending(
        requests=last.requests,
        usage=Usage(input_tokens=last.tokens),
        known_cost=last.cost or 0.0,
        unpriced=("",) if last.requests and last.cost is None else (),
    )
