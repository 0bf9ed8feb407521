"""Watchers of a map that act at a moment of it: kill a worker, stop it."""

import threading
import time
from collections.abc import Callable, Sequence

from agent_magics import Agent
from agent_magics.rows.batches.job import BatchJob
from agent_magics.rows.job import Job
from agent_magics.rows.planning import Watcher


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what other processes do, of which no event comes here."""
    while not holds():
        time.sleep(0.01)


class When(Watcher):
    """Calls a function with a map's job, on a thread, at some moments.

    Args:
        moments: calls it at each of these, in order: when so many rows are done, or when what
            stands there returns true for the job.
        act: the function.
    """

    def __init__(
        self, moments: Sequence[int | Callable[[Job], bool]], act: Callable[[Job], object]
    ) -> None:
        self._moments, self._act = moments, act
        self._over = threading.Event()

    def begin(self, job: Job) -> None:
        self._thread = threading.Thread(target=self._wait, args=(job,))
        self._thread.start()

    def end(self, *, has_result: bool) -> None:
        self._over.set()
        self._thread.join()

    def _wait(self, job: Job) -> None:
        for moment in self._moments:
            while not (job.progress.done >= moment if isinstance(moment, int) else moment(job)):
                if self._over.wait(0.01):
                    return
            self._act(job)


def stop_at(agent: Agent, state: str) -> When:
    """Return what stops a map when a batch of it is in a state at the provider."""

    def is_there(job: Job) -> bool:
        assert isinstance(job, BatchJob)
        return any(batch.state == state for batch in list(job._batches.values()))

    return When([is_there], lambda job: agent.session.engine.post(job.stop))
