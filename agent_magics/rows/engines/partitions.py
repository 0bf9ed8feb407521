"""Has the workers of a Dask cluster read the partitions of a frame, each where it lies."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agent_magics.protocol.errors import FatalError, clause, own_or_typed_message
from agent_magics.rows.engines.dask import LOOK, DaskEngine
from agent_magics.rows.engines.reading import ReadPart, read_part
from agent_magics.rows.prompts import Prompt

# Workers that a partition may take with it.
MOST_LOST = 10

NOT_THERE = "The partitions of the frame cannot be found: {error}."
NOT_READ = "Partition {number} of the frame cannot be read: {error}."


class Partitions:
    """The partitions of a Dask frame.

    Args:
        frame: a `dask.dataframe.DataFrame`.
        engine: the cluster whose workers read them. Those of a persisted frame are where they lie;
            of another one the cluster computes each when its turn comes.
    """

    def __init__(self, frame: Any, engine: DaskEngine) -> None:
        self.frame, self._engine, self.client = frame, engine, engine.client
        self._parts: list[Any] = []
        self._is_held = False

    @property
    def count(self) -> int:
        """The number of partitions."""
        return int(self.frame.npartitions)

    async def order(self) -> Sequence[int]:
        """Return the partitions' numbers, so that neighbours lie on different workers."""
        order: list[int] = await self._asked(NOT_THERE, self._order)
        return order

    def _order(self) -> list[int]:
        from distributed import futures_of  # noqa: PLC0415 - an extra; whoever has a client has it

        there, graph = {each.key: each for each in futures_of(self.frame)}, self.frame.dask
        # A persisted partition is another name of its future; what is made of one is a task.
        names = (getattr(graph[key], "target", None) for key in self.frame.__dask_keys__())
        held = [there.get(name) for name in names]
        if None in held:
            self._parts = list(self.frame.to_delayed())
            return list(range(self.count))
        self._parts, self._is_held = held, True
        on_worker: defaultdict[str, int] = defaultdict(int)
        ranks = []
        for future in held:
            holder = self._holder(future)
            ranks.append(on_worker[holder])
            on_worker[holder] += 1
        return sorted(range(self.count), key=lambda number: ranks[number])

    def _holder(self, future: Any) -> str:
        """Return the address of a worker that holds a partition; "" for none."""
        ask = self.client.scheduler.who_has
        found = self.client.sync(ask, keys=[future.key], asynchronous=False)
        return next(iter(found.get(future.key, ())), "")

    async def read(self, number: int, place: str, how: tuple[Prompt, bytes, int]) -> ReadPart:
        """Have a partition read by the worker that holds it; see `read_part`.

        Raises:
            FatalError: it cannot be read.
        """
        sentence = NOT_READ.replace("{number}", str(number))
        for _ in range(MOST_LOST):
            part = self._parts[number]
            if not self._is_held:
                part = await self._asked(sentence, self.client.compute, part)
            await self._ended(part, sentence)
            holder = await self._asked(sentence, self._holder, part)
            if not holder:  # it has just died; Dask computes the partition again
                await asyncio.sleep(LOOK / 10)
                continue
            reading = await self._asked(sentence, self._submit, part, holder, number, place, how)
            if await self._ended(reading, sentence, holder):
                result = await self._result_of(reading, sentence, holder)
                if result is not None:
                    return result
        raise FatalError(sentence.format(error=f"its worker ended {MOST_LOST} times"))

    async def _asked(self, sentence: str, function: Callable[..., Any], *given: object) -> Any:
        """Call something that waits for the cluster, on a thread.

        Raises:
            FatalError: it raised something; in `sentence` with {error}.
        """
        try:
            return await asyncio.to_thread(function, *given)
        except Exception as error:  # of the client when it is closed, or of what makes the frame
            raise FatalError(sentence.format(error=clause(own_or_typed_message(error)))) from None

    def _submit(self, part: Any, holder: str, *rest: object) -> Any:
        return self.client.submit(
            read_part,
            part,
            *rest,
            key=(f"{self._engine.name} rows", uuid.uuid4().hex),
            workers=[holder],
            allow_other_workers=False,
            pure=False,
        )

    def _result(self, future: Any) -> Any:
        return self.client.gather(future, asynchronous=False)

    async def _result_of(self, reading: Any, sentence: str, holder: str) -> ReadPart | None:
        """Return the result of a task; None where `holder`, which alone has it, has ended.

        Dask would compute it again, for which that worker alone is allowed, and wait for ever.
        """
        getting = asyncio.create_task(self._asked(sentence, self._result, reading))
        try:
            while not (await asyncio.wait({getting}, timeout=LOOK))[0]:
                if holder not in await self._asked(sentence, self._engine.addresses):
                    cancel = partial(self.client.cancel, asynchronous=False, force=True)
                    await self._asked(sentence, cancel, [reading])
                    await asyncio.wait({getting})
            is_there = holder in await self._asked(sentence, self._engine.addresses)
            if not is_there and (getting.cancelled() or getting.exception() is not None):
                return None
            result: ReadPart = await getting
            return result
        finally:
            getting.cancel()

    async def _ended(self, future: Any, sentence: str, holder: str = "") -> bool:
        """Wait until a task has ended; return False where its result was lost with its worker.

        Raises:
            FatalError: it failed.
        """
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await ended.wait()
            if holder and not ended.is_set():
                there = await self._asked(sentence, self._engine.addresses)
                if holder not in there:
                    return False
        if future.status in ("lost", "pending"):  # with the worker that had it, a moment ago
            return False
        if future.status not in ("finished", "error"):
            raise FatalError(sentence.format(error=f"the cluster says that it is {future.status}"))
        if future.status == "error" and holder:
            error = await self._asked(sentence, partial(future.exception, asynchronous=False))
            return type(error).__name__ != "KilledWorker"
        if future.status == "error":
            await self._asked(sentence, self._result, future)
        return True
