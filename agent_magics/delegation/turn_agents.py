"""Starts and asks sub-agents for the tools of one turn; each answer is text for the model."""

import asyncio

from agent_magics.delegation.child import SubAgent
from agent_magics.delegation.parent import ParentTurn
from agent_magics.delegation.pool import AgentPool
from agent_magics.delegation.rights import gets_kernel
from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.turn import SubAgentRequest
from agent_magics.engine.budget import Budget
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import SubAgentChanged
from agent_magics.text.brief import meant

_GO_ON = "Go on with your task."


class PoolDelegates:
    """The sub-agents of an agent, as its session uses them; see `engine.turn_config.Delegates`."""

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool
        self.end_turn = pool.end_turn

    def of_turn(
        self, turn_config: TurnConfig, context: TurnContext, budget: Budget
    ) -> "TurnAgents":
        """Return the sub-agents as the tools of a turn that begins see them."""
        turn = ParentTurn(turn_config, context, budget)
        self._pool.begin_turn(turn)
        return TurnAgents(self._pool, turn)


class TurnAgents:
    """The sub-agents of an agent, for the calls of one of its turns.

    Args:
        pool: the sub-agents.
        turn: the turn, against whose budget their requests count.
    """

    def __init__(self, pool: AgentPool, turn: ParentTurn) -> None:
        self._pool = pool
        self._turn = turn

    def gets_kernel(self, request: SubAgentRequest) -> bool:
        """Tell whether the Python of such a sub-agent would run in the live kernel."""
        kind = self._pool.types().get(request.agent_type)
        return kind is not None and gets_kernel(kind, request)

    def spawn(self, request: SubAgentRequest) -> str:
        """Start a sub-agent, or queue it where all places are taken."""
        agent = self._pool.start(request, self._turn.turn_config, self._turn)
        waiting = self._pool.waiting
        return f"{agent.name} has started.{waiting} Its report comes by itself when it ends."

    def send(self, name: str, message: str, call_id: str, *, interrupt: bool) -> str:
        """Send a message to a sub-agent; one that has ended goes on with it."""
        agent = self._find(name)
        if agent.status == "queued" or agent.following is not None:
            raise RespondToModel(f"{name} waits for a place, and reads no message yet.")
        if agent.is_over:
            self._pool.go_on(agent, self._turn, call_id, message)
            return f"{name} goes on with your message."
        if interrupt:
            self._pool.redirect(agent, self._turn, call_id, message)
            return f"{name} was stopped, and goes on with your message."
        agent.add(message)
        return f"{name} reads your message next."

    async def wait(self, names: tuple[str, ...], seconds: float) -> str:
        """Wait until one of the sub-agents ends."""
        named = [self._find(name) for name in names] or [*self._pool.agents.values()]
        running = [agent for agent in named if not agent.is_over]
        over = [agent for agent in named if agent.is_over]
        if names and over:
            return f"{_listed(over)} ended already.{_still(running)}"
        if not running:
            return "No sub-agent is at work."
        ends = [agent.ended for agent in running]
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended = [agent for agent in running if agent.is_over]
        rest = _still([agent for agent in running if not agent.is_over])
        if not ended:
            return f"None has ended within {seconds:g} s.{rest}"
        return f"{_listed(ended)} ended; what was reported follows.{rest}"

    def resume(self, name: str, call_id: str) -> str:
        """Continue the task of a sub-agent that was stopped."""
        agent = self._find(name)
        if not agent.is_over:
            raise RespondToModel(f"{name} is at work; send_input speaks to it.")
        self._pool.go_on(agent, self._turn, call_id, _GO_ON)
        return f"{name} goes on with its task."

    def close(self, name: str) -> str:
        """Stop a sub-agent for good."""
        agent = self._find(name)
        if agent.is_over:
            return f"{name} has ended already."
        agent.is_silent = True
        self._pool.stop(agent, "closed by the agent it works for")
        return f"{name} is stopped."

    def list(self) -> str:
        """Return one line about each sub-agent, the limits, and the types."""
        types = [f"{each.name} ({each.description})" for each in self._pool.types().values()]
        lines = map(_line, self._pool.states)
        return "\n".join([*lines, self._pool.limits, f"Types: {'; '.join(types)}."])

    def _find(self, name: str) -> SubAgent:
        agent = self._pool.find(name, self._turn)
        if agent is None:
            known = meant(name, self._pool.names)
            raise RespondToModel(f"There is no sub-agent {name!r}; {known}")
        return agent


def _line(agent: SubAgentChanged) -> str:
    spent = f"{agent.requests} requests, {agent.tokens:,} tokens"
    doing = f"; now: {agent.doing}" if agent.doing else ""
    why = f" ({agent.problem})" if agent.problem else ""
    return f"{agent.sub_agent}: {agent.status}{why}; {spent}, {agent.seconds:.0f} s{doing}"


def _listed(agents: list[SubAgent]) -> str:
    names = ", ".join(f"{agent.name} ({agent.status})" for agent in agents)
    return f"{names} {'has' if len(agents) == 1 else 'have'}"


def _still(agents: list[SubAgent]) -> str:
    return f" At work: {', '.join(agent.name for agent in agents)}." if agents else ""
