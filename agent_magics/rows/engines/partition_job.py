"""Runs a map over the partitions of a Dask frame: their rows stay with the workers that hold them.

The kernel gets the digest of each row's prompt. By it the job finds what is answered already, and
the rows that ask the same; what it then asks is a place, whose worker has the prompt. Where that
worker dies, another one reads the partition again.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from agent_magics.protocol.errors import FatalError
from agent_magics.rows.asking import RowPlace
from agent_magics.rows.engines.coordinator import Coordinator, Worker
from agent_magics.rows.engines.partition_answers import SPAN, CollectedPartitions, PartitionFiles
from agent_magics.rows.engines.partitions import MOST_LOST, Partitions
from agent_magics.rows.engines.reading import KEY_BYTES, ReadPart
from agent_magics.rows.job import BY_PERSON, Job
from agent_magics.rows.outcomes import Plain
from agent_magics.rows.prompts import Asked
from agent_magics.rows.tables.sources import BATCH, Row

# Partitions of each worker that are read and not answered whole.
AT_ONCE = 2

CHANGED = (
    "Partition {number} of the frame has other rows now that it was computed again: persist() the "
    "frame, or make it of what does not change."
)


class AskedPartition:
    """A partition whose rows are being asked.

    Attributes:
        worker: has read it last.
        rows: those that were not handed to the job yet.
        left: the number of rows without an outcome.
        over: set when there are none.
        digest: of the keys of its rows.
    """

    def __init__(self, number: int, read: ReadPart, worker: Worker) -> None:
        self.worker, self.digest = worker, keys_digest(read)
        self.left = len(read.keys) // KEY_BYTES
        self.over = asyncio.Event()
        self.rows = deque(_asked(number, row, read) for row in range(self.left))
        if not self.left:
            self.over.set()


def keys_digest(read: ReadPart) -> bytes:
    """Return a digest of all that a partition's rows ask."""
    return blake2b(read.keys, digest_size=16).digest()


def _asked(number: int, row: int, read: ReadPart) -> Asked:
    """Return a row as the job asks it: its worker has the content of its question."""
    key = read.keys[row * KEY_BYTES : (row + 1) * KEY_BYTES]
    return Asked(number * SPAN + row, key, "", read.errors.get(row, ""), RowPlace(number, row))


class PartitionJob(Job):
    """A map over the partitions of a Dask frame; see `Job`, and `connect`."""

    def connect(self, partitions: Partitions, coordinator: Coordinator) -> None:
        """Set where the rows are, for a sink of partitions; called once, before `run`."""
        self._partitions, self._coordinator = partitions, coordinator
        self._open: dict[int, AskedPartition] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._more = asyncio.Event()

    async def run(self) -> None:
        """See `Job.run`."""
        try:
            await super().run()
        finally:
            lives = list(self._lives.values())
            for life in lives:
                life.cancel()
            if lives:
                await asyncio.wait(lives)

    def stop(self, reason: str = BY_PERSON) -> None:
        """See `Job.stop`."""
        super().stop(reason)
        self._more.set()

    async def _read(self, _: Iterator[tuple[Sequence[int], list[Row]]]) -> None:
        """See `Job._read`: rows come from the partition whose worker has the least to do."""
        order = deque(await self._partitions.order())
        while not self.stopped and (order or self._lives):
            while order and len(self._lives) < AT_ONCE * max(self._coordinator.workers, 1):
                number = order.popleft()
                self._lives[number] = asyncio.create_task(self._ask_part(number))
            unread = [part for part in self._open.values() if part.rows]
            if unread:
                if not await self._may_read():
                    break
                part = min(unread, key=lambda part: part.worker.load)
                count = min(BATCH, len(part.rows))
                batch = [part.rows.popleft() for _ in range(count)]
                self._fresh.clear()
                keys = [asked.key for asked in batch if not asked.error]
                await self._enter(batch, await asyncio.to_thread(self._store.find, keys))
            elif order or len(self._open) < len(self._lives):
                self._more.clear()
                await self._more.wait()
            else:
                break

    async def _ask_part(self, number: int) -> None:
        """Have a partition read, and again where its worker dies, until all its rows are over."""
        try:
            for _ in range(MOST_LOST):
                plan = self.plan
                how = (plan.prompt, plan.digest, plan.most_characters)
                read = await self._partitions.read(number, self._coordinator.place, how)
                worker = self._coordinator.settle(number, read.seat)
                if worker is None or await self._is_left(self._begin(number, read, worker)):
                    continue
                return
            raise FatalError(f"Partition {number} was lost with {MOST_LOST} workers.")
        except FatalError as error:
            self._fail(error)
        finally:
            self._coordinator.release(number)
            self._open.pop(number, None)
            self._lives.pop(number, None)
            self._more.set()

    def _begin(self, number: int, read: ReadPart, worker: Worker) -> AskedPartition:
        """Take a partition that was read, for the first time or again.

        Raises:
            FatalError: it has other rows than at first.
        """
        part = self._open.get(number)
        if part is None:
            part = self._open[number] = AskedPartition(number, read, worker)
            assert isinstance(self._sink, CollectedPartitions | PartitionFiles)  # see `connect`
            self._sink.expect(number, part.left)
            self._more.set()
        elif part.digest != keys_digest(read):
            raise FatalError(CHANGED.format(number=number))
        part.worker = worker
        return part

    async def _is_left(self, part: AskedPartition) -> bool:
        """Wait for the end of a partition's rows; return True where its worker dies before."""
        events = part.over, part.worker.gone
        waiting = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        return not part.over.is_set()

    def _hand_on(self, position: int, outcome: Plain, kind: str) -> None:
        """See `Job._hand_on`."""
        super()._hand_on(position, outcome, kind)
        part = self._open.get(position // SPAN)
        if part is not None:
            part.left -= 1
            if not part.left:
                part.over.set()
