"""Gives rows' questions to workers of a cluster, and takes their answers: one coordinator a map.

It is the asker of a `Job` on the engine's loop, so all else of a map is as in one process: rows,
budgets, the store of answers, the card. Workers connect to it. A worker holds the questions that
it may have under way and those of its next second; where it dies, another one gets them.
"""

import asyncio
import hmac
import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeAlias

from agent_magics._version import __version__
from agent_magics.listening import stop_listening
from agent_magics.protocol.errors import FatalError, clause, own_or_typed_message
from agent_magics.rows.asking import NotSent, Pace, RowAnswer, RowQuestion
from agent_magics.rows.engines.link import MOST_AT_FIRST, MOST_OF_WORKER, Link
from agent_magics.rows.engines.messages import (
    MALFORMED,
    MOST_OF_SENTENCE,
    checked,
    given,
    number_of,
    numbered,
    report_of,
)
from agent_magics.rows.engines.worker import GROUP, Assignment, Invitation
from agent_magics.rows.remote.client import CONCURRENCY
from agent_magics.rows.remote.gate import FIRST
from agent_magics.rows.remote.limits import Limits
from agent_magics.text.brief import brief_line

# Serves one connection until it ends; see `asyncio.start_server`.
Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Joined: TypeAlias = Callable[[int], Awaitable[None]]  # waits for the worker of a seat

# Seconds of work that a worker holds beyond what it has under way; for a first message; without a
# sign of life after which a worker is given up.
AHEAD, HELLO, SILENT = 1.0, 20.0, 30.0
# Seconds of each worker between two of its messages: all together send 1,000 a second at most.
EACH = 0.001
# Workers that a question may take with it, and that may refuse to ask while others ask.
MOST_LOST, MOST_REFUSING = 10, 20
# Questions that the coordinator holds in all; each is a task that waits.
MOST_HELD = 20_000

NO_PLACE = "This kernel cannot open a place to which the workers of engine= connect: {error}."
IS_CANCELLED = "its tasks were cancelled, as where it is shut down"
LOST = "its worker ended {count} times before it had an answer"
OTHER_VERSION = "a worker runs agent-magics {theirs}, and this kernel {ours}: install the same."


class OtherVersion(FatalError):
    """A worker runs another version of this package."""


async def read_invited(link: Link, token: str) -> int | None:
    """Return the number of the invitation that who connects shows first; None where it has none.

    Args:
        link: the new connection.
        token: see `Invitation`.

    Raises:
        OtherVersion: it runs another version.
        TimeoutError: it says nothing.
        EOFError, FatalError: see `Link.read`.
    """
    async with asyncio.timeout(HELLO):
        message = await link.read(MOST_AT_FIRST)
    match message:
        case ["hello", str() as shown, int() as number, version] if hmac.compare_digest(
            shown.encode("utf-8", "surrogatepass"), token.encode()
        ):
            if version != __version__:
                words = OTHER_VERSION.format(theirs=version, ours=__version__)
                link.send("end", words)
                raise OtherVersion(words)
            return number
    return None


class Engine(Protocol):
    """Starts tasks in other processes: the seats of a map, or one of another kind."""

    def workers(self) -> int:
        """Return the present number of workers; may wait for the cluster."""
        ...

    async def listen(self, serve: Serve) -> tuple[asyncio.Server, str]:
        """Open the place to which workers connect; return it as `Invitation.place`, too."""
        ...

    async def seat(self, invite: Callable[[], Invitation], joined: Joined) -> None:
        """Start seats, and others where they end, until it is cancelled.

        Raises:
            FatalError: no seat can be started.
        """
        ...

    async def start(
        self, task: Callable[..., str], invitation: Invitation, given: Any
    ) -> "asyncio.Future[str]":
        """Start one long task on any worker.

        Args:
            task: gets `invitation`, `given`, and as `tls` what it connects with.
            invitation: tells it where to connect.
            given: anything that can be pickled.

        Returns:
            What is done when it has ended.

        Raises:
            FatalError: it cannot be started.
        """
        ...

    async def close(self) -> None:
        """Cancel tasks that have not begun."""
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """One connected worker.

    Attributes:
        link: the connection to it.
        seat: the number of its seat.
        held: the numbers of the questions that it has been given and has not answered, oldest
            first; it asks them in this order.
        most: how many of them it may have begun; where that is 0, it is given none.
        answered: questions that it has answered.
        rate: answers a second.
        pace: how fast it says that it goes.
        heard: when its last message came (monotonic).
        own: waiting questions of rows that only it has read, by partition.
        gone: set when it has gone.
    """

    link: Link
    seat: int = 0
    held: dict[int, None] = field(default_factory=dict)
    most: int = CONCURRENCY
    answered: int = 0
    rate: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace(0, FIRST))
    heard: float = field(default_factory=time.monotonic)
    own: dict[int, deque[int]] = field(default_factory=dict)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _since: float = field(default_factory=time.monotonic)
    _counted: int = 0

    def room(self, hold: float) -> int:
        """Return how many more questions it may be given; it gives answers back each `hold`."""
        if not self.most:
            return 0
        at_once = min(self.pace.allowed or 1, self.most)  # 0 is of when it might have begun none
        return int(at_once + self.rate * (AHEAD + hold)) - len(self.held)

    @property
    def load(self) -> int:
        """The questions that it alone can answer or has been given."""
        return len(self.held) + sum(map(len, self.own.values()))

    def count(self, answers: int) -> None:
        """Count answers, and how many come a second."""
        self.heard = now = time.monotonic()
        self.answered += answers
        self._counted += answers
        elapsed = now - self._since
        if elapsed > AHEAD / 4:
            self.rate = (self.rate + self._counted / elapsed) / 2
            self._since, self._counted = now, 0


@dataclass(slots=True)
class Waiting:
    """A question without an answer, and how many workers it has outlived."""

    question: RowQuestion
    answer: asyncio.Future[RowAnswer]
    lost: int = 0


class Coordinator:
    """Asks through the workers of an engine; see `Asker`. Made and used on one event loop.

    Args:
        engine: starts them.
        assignment: what they need.
        limits: the server's limits, shared with the person's kernels.
        concurrency: the most requests side by side in all; None is `CONCURRENCY` for each worker.

    Attributes:
        place: where workers connect; see `Invitation.place`.
    """

    def __init__(
        self, engine: Engine, assignment: Assignment, limits: Limits, concurrency: int | None
    ) -> None:
        self._engine, self._assignment, self._limits = engine, assignment, limits
        self._concurrency = concurrency
        self._token = secrets.token_urlsafe(32)
        self._seats, self._questions = 0, 0
        self._waiting: dict[int, Waiting] = {}
        self._queue: deque[int] = deque()
        self._of_parts: dict[int, deque[int]] = {}  # waiting questions of partitions
        self._workers: list[Worker] = []
        self._joined: dict[int, asyncio.Event] = {}
        self._refused = 0
        self._failure: FatalError | None = None
        self._server: asyncio.Server | None = None
        self.place = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_dealing = False
        self._hold = GROUP
        self._dropped: set[int] = set()
        self._is_stopped = False

    async def open(self) -> None:
        """Accept connections of workers, and start seats.

        Raises:
            FatalError: they cannot.
        """
        try:
            self._server, self.place = await self._engine.listen(self._serve)
        except OSError as error:
            raise FatalError(NO_PLACE.format(error=clause(error))) from None
        for work in (self._seat(), self._watch()):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def ask(self, question: RowQuestion) -> RowAnswer:
        """See `Asker.ask`."""
        if self._failure is not None:
            raise self._failure
        if self._is_stopped:
            raise NotSent
        self._questions += 1
        number = self._questions
        waiting = Waiting(question, asyncio.get_running_loop().create_future())
        self._waiting[number] = waiting
        self._queue_of(question).append(number)
        self._deal_soon()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            self._dropped.add(number)
            self._deal_soon()
            raise

    def stop(self) -> None:
        """See `Asker.stop`."""
        self._is_stopped = True
        for queue in (self._queue, *self._of_parts.values()):
            while queue:
                self._drop_unsent(queue.popleft())
        for worker in self._workers:
            worker.link.send("stop")

    def settle(self, part: int, seat: int) -> Worker | None:
        """Have a partition's questions asked by the worker that has read it.

        Returns:
            That worker; None where it is not there any more.
        """
        worker = next((each for each in self._workers if each.seat == seat), None)
        if worker is not None:
            worker.own[part] = self._of_parts.setdefault(part, deque())
            self._deal_soon()
        return worker

    def release(self, part: int) -> None:
        """Let the worker that has read a partition forget it."""
        self._of_parts.pop(part, None)
        self._deal_soon()  # its place may be another worker's
        for worker in self._workers:
            if worker.own.pop(part, None) is not None:
                worker.link.send("release", part)

    @property
    def workers(self) -> int:
        """The number of workers that are connected."""
        return len(self._workers)

    def pace(self) -> Pace:
        """See `Asker.pace`."""
        paces = [worker.pace for worker in self._workers]
        if not paces:
            return Pace(0, 0, "no worker yet")
        limit = Counter(pace.limit for pace in paces).most_common(1)[0][0]
        in_flight = sum(pace.in_flight for pace in paces)
        return Pace(in_flight, sum(pace.allowed for pace in paces), limit, len(paces))

    async def close(self) -> None:
        """Close the connections to the workers."""
        self._failure = self._failure or FatalError("The connections to the workers were closed.")
        for worker in self._workers:
            worker.link.abort()
        if self._server is not None:
            await stop_listening(self._server)
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._engine.close()

    # -- workers -----------------------------------------------------------------------------------

    async def _seat(self) -> None:
        try:
            await self._engine.seat(self._invite, self._join)
        except Exception as error:  # of the cluster or the executor; without seats the map waits
            self._fail(FatalError(own_or_typed_message(error)))

    def _invite(self) -> Invitation:
        self._seats += 1
        self._joined[self._seats] = asyncio.Event()
        return Invitation(self.place, self._seats, self._token)

    async def _join(self, number: int) -> None:
        await self._joined[number].wait()

    async def _watch(self) -> None:
        """Give workers up that show no sign of life: their machine may be gone."""
        while True:
            await asyncio.sleep(SILENT / 10)
            for worker in self._workers:
                if time.monotonic() - worker.heard > SILENT:
                    worker.link.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the connection of one worker."""
        task = asyncio.current_task()
        assert task is not None  # this is a coroutine
        self._tasks.add(task)
        link = Link(reader, writer)
        try:
            if (seat := await self._is_welcome(link)) is not None:
                await self._work_with(Worker(link, seat))
        except (EOFError, FatalError, TimeoutError):
            pass  # its questions wait again
        except asyncio.CancelledError:
            pass  # by `close`; asyncio's own callback for connections would report it as a bug
        finally:
            link.close()
            self._tasks.discard(task)

    async def _is_welcome(self, link: Link) -> int | None:
        """Return the number of the seat of who connects; None where it gets nothing."""
        try:
            number = await read_invited(link, self._token)
        except OtherVersion as error:
            self._fail(error)
            return None
        if number is None:
            return None
        self._joined.setdefault(number, asyncio.Event()).set()
        return None if self._failure else number

    async def _work_with(self, worker: Worker) -> None:
        worker.link.send("begin", asdict(self._assignment))
        worker.link.send("hold", self._hold)
        self._workers.append(worker)
        self._spread()
        try:
            while True:
                await self._hear(worker, await worker.link.read(MOST_OF_WORKER))
        finally:
            self._workers.remove(worker)
            worker.gone.set()
            self._take_back(worker)
            self._spread()
            self._deal_soon()

    async def _hear(self, worker: Worker, message: Sequence[Any]) -> None:
        match message:
            case ["answers", list() as answers, [in_flight, allowed, limit]] if (
                len(answers) <= MOST_HELD
            ):
                pace = checked(Pace(in_flight, allowed, limit))
                read = list(map(numbered, answers))
                worker.count(len(read))
                worker.pace = pace
                for number, answer in read:
                    if number in worker.held:  # not a question of another worker
                        del worker.held[number]
                        self._settle(number, answer)
                self._deal_soon()
            case ["limits", dict() as report]:
                grant = await self._limits.share(report_of(report))
                worker.link.send("grant", grant.requests, grant.pause)
            case ["unsent", list() as numbers]:
                for number in worker.held.keys() & set(map(number_of, numbers)):
                    del worker.held[number]
                    self._drop_unsent(number)
            case ["failed", sentence]:
                words = brief_line(str(sentence), MOST_OF_SENTENCE)
                self._refuse(worker, FatalError(words))
            case _:
                raise FatalError(MALFORMED)

    def _spread(self) -> None:
        """Share a limit of requests among the workers, and the messages that the kernel takes."""
        if len(self._workers) * EACH > self._hold:
            self._hold *= 2
            for worker in self._workers:
                worker.link.send("hold", self._hold)
        if self._concurrency is None or not self._workers:
            return
        each, more = divmod(self._concurrency, len(self._workers))
        # A worker keeps its last place while it has questions, which it may have begun.
        by_need = sorted(self._workers, key=lambda worker: (not worker.load, not worker.most))
        for place, worker in enumerate(by_need):
            most = each + (place < more)
            if worker.most != most:
                worker.most = most
                worker.link.send("most", most)

    def _take_back(self, worker: Worker) -> None:
        """Let the questions wait again that a worker has not answered.

        Only those that it may have begun can be what ended it.
        """
        for place, number in reversed(list(enumerate(worker.held))):
            waiting = self._waiting.get(number)
            if waiting is None:
                continue
            waiting.lost += place < worker.most
            if waiting.lost >= MOST_LOST:
                error = LOST.format(count=waiting.lost)
                self._settle(number, RowAnswer(error=error, kind="its worker ended"))
            elif self._is_stopped:
                self._drop_unsent(number)
            else:
                self._queue_of(waiting.question).appendleft(number)

    def _refuse(self, worker: Worker, failure: FatalError) -> None:
        """End the map where no question can be answered, or one worker that cannot ask."""
        self._refused += 1
        others = any(each.answered for each in self._workers if each is not worker)
        if worker.answered or not others or self._refused >= MOST_REFUSING:
            self._fail(failure)

    def _fail(self, failure: FatalError) -> None:
        self._failure = self._failure or failure
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(self._failure)
        self._waiting.clear()

    # -- questions ---------------------------------------------------------------------------------

    def _queue_of(self, question: RowQuestion) -> deque[int]:
        """Return the queue of a question: all workers', or that of its partition."""
        if question.place is None:
            return self._queue
        return self._of_parts.setdefault(question.place.part, deque())

    def _settle(self, number: int, answer: RowAnswer) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _drop_unsent(self, number: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_exception(NotSent())

    def _deal_soon(self) -> None:
        """Deal when all that happens now has happened, so that questions travel together."""
        if not self._is_dealing:
            self._is_dealing = True
            asyncio.get_running_loop().call_soon(self._deal)

    def _deal(self) -> None:
        """Give waiting questions to the workers that have room, the same share to each."""
        self._is_dealing = False
        self._drop()
        if not (self._queue or any(self._of_parts.values())):
            return
        rooms = [(worker, worker.room(self._hold)) for worker in self._workers]
        able = [(worker, room) for worker, room in rooms if room > 0]
        for left, (worker, room) in zip(range(len(able), 0, -1), able, strict=True):
            share = -(-len(self._queue) // left)
            self._give(worker, min(share, room), room)
        waits = any(not worker.most and worker.load for worker in self._workers)
        if waits and any(worker.most and not worker.load for worker in self._workers):
            self._spread()
            self._deal_soon()

    def _give(self, worker: Worker, share: int, room: int) -> None:
        """Give a worker some of what all may ask, and what only it can ask."""
        questions: list[tuple[int, Any]] = []
        for queue, most in ((self._queue, share), *((own, room) for own in worker.own.values())):
            while queue and len(questions) < most:
                number = queue.popleft()
                waiting = self._waiting.get(number)
                if waiting is not None:
                    worker.held[number] = None
                    questions.append((number, given(waiting.question)))
        if questions:
            worker.link.send("ask", questions)

    def _drop(self) -> None:
        """Tell the workers which questions nobody waits for any more."""
        dropped, self._dropped = self._dropped, set()
        if not dropped:
            return
        for worker in self._workers:
            mine = [number for number in worker.held if number in dropped]
            if mine:
                for number in mine:
                    del worker.held[number]
                worker.link.send("drop", mine)
