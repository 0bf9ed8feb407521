"""A sub-agent as programs see it: awaited for its result."""

import asyncio
from collections.abc import Generator
from concurrent.futures import Future

from agent_magics.delegation.child import SubAgent
from agent_magics.delegation.pool import AgentPool
from agent_magics.engine.results.run import RunResult, summarise
from agent_magics.engine.thread import EngineThread
from agent_magics.protocol.events import TURN_ENDS, TurnAborted, TurnFailed


class SubAgentHandle:
    """A sub-agent that a program has started with `Agent.spawn`; ``await`` it for its result.

    Attributes:
        name: its name, by which tools of its parent speak of it.
    """

    def __init__(self, agent: SubAgent, pool: AgentPool, engine: EngineThread) -> None:
        self.name = agent.name
        self._agent = agent
        self._pool = pool
        self._engine = engine
        self._result: Future[RunResult] = engine.spawn(self._outcome())

    async def _outcome(self) -> RunResult:
        await asyncio.shield(self._agent.ended)
        agent, events = self._agent, [*self._agent.events]
        if not any(isinstance(each, TURN_ENDS) for each in events):  # no turn of it has begun
            is_stopped = agent.status == "stopped"
            events += [
                TurnAborted(reason=agent.problem) if is_stopped else TurnFailed(error=agent.problem)
            ]
        return summarise(events, agent.turn_config.output)

    @property
    def status(self) -> str:
        """The sub-agent's state: "queued", "running", "completed", "failed" or "stopped"."""
        return self._agent.status

    @property
    def conversation_id(self) -> str:
        """The id of the sub-agent's own record."""
        return self._agent.id

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the sub-agent's end, blocking, and return the result.

        Args:
            timeout: the most seconds to wait.

        Raises:
            TimeoutError: it has not ended by then; it goes on.
        """
        return self._result.result(timeout)

    def __await__(self) -> Generator[None, None, RunResult]:
        return asyncio.shield(asyncio.wrap_future(self._result)).__await__()

    def close(self) -> None:
        """Stop the sub-agent; its result then says so."""
        self._engine.post(self._pool.stop, self._agent, "closed by the program")

    def __repr__(self) -> str:
        return f"<sub-agent {self.name}: {self.status}>"
