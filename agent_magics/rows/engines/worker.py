"""Runs in a worker: takes questions from the coordinator, asks them, and gives the answers back.

A seat is one call of `sit`, which lasts as long as the map. The key of the model server comes over
the connection and stays in the memory of this process; a task has only an `Invitation`.
"""

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics._version import __version__
from agent_magics.files.locks import thread_lock
from agent_magics.models.recordings.replay import ReplayModel
from agent_magics.protocol.codec import from_json
from agent_magics.protocol.errors import FatalError, short_message, typed_message
from agent_magics.protocol.items import Content, Item, UserMessage
from agent_magics.rows.askers.models import ModelAsker
from agent_magics.rows.asking import Asker, NotSent, Pace, RowAnswer, RowQuestion, Terms
from agent_magics.rows.engines.link import Link
from agent_magics.rows.engines.messages import encoded
from agent_magics.rows.garbage import collects_seldom
from agent_magics.rows.remote.client import CONCURRENCY, RowClient
from agent_magics.rows.remote.gate import FIRST
from agent_magics.rows.remote.limits import MINUTE, Allowance, Report

# Characters of answers that are given back at once; JSON takes up to six bytes for one.
FULL = 1 << 23
# Seconds in which few workers gather answers, between signs of life, and to connect.
GROUP, TICK, CONNECT = 0.02, 0.5, 20.0

NOT_REACHED = (
    "{place} cannot be reached from the worker on {host} ({error}). Workers of an executor run on "
    "the machine of the kernel; those of a Dask cluster must be able to connect to it."
)


@dataclass(frozen=True, slots=True)
class Invitation:
    """Tells a worker where the coordinator is; the only argument of a task.

    Attributes:
        place: ``tcp://HOST:PORT``, ``tls://HOST:PORT``, or the path of a local socket.
        number: counts the seats of a map.
        token: shows that a connection is from an invited worker.
    """

    place: str
    number: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a worker's model is; sent to it, and never written anywhere.

    Attributes:
        address: of the model server; "" with a recording.
        key: the key for it.
        wire_api: see `open_model`.
        recording: the file to play instead of asking a server; "" for none.
        cwd: the value of that file's placeholder {cwd}.
        strict: whether an output that differs from the recorded one is an error.
    """

    address: str = ""
    key: str = field(default="", repr=False)
    wire_api: str = "auto"
    recording: str = ""
    cwd: str = ""
    strict: bool = False

    def replayed(self) -> ReplayModel | None:
        """Return the model that plays the recording; None where a server answers."""
        if not self.recording:
            return None
        return ReplayModel(Path(self.recording), cwd=Path(self.cwd), strict=self.strict)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker needs to ask; sent to it, and never written anywhere.

    Attributes:
        terms: what all questions share.
        source: the model.
        minute: seconds of the server's minute.
    """

    terms: Terms
    source: ModelSource = ModelSource()
    minute: float = MINUTE

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Assignment":
        """Return the assignment that was sent as a dict."""
        return cls(Terms(**data["terms"]), ModelSource(**data["source"]), data["minute"])


def sit(invitation: Invitation, tls: ssl.SSLContext | None = None) -> str:
    """Ask what the coordinator gives this worker, until the map ends.

    Returns:
        Why this worker could not ask; "" where the coordinator ended it.

    Raises:
        FatalError: the coordinator cannot be reached.
    """
    # A thread of its own, since some executors run tasks inside an event loop.
    outcome: Future[str] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(_sit(invitation, tls)))
        except BaseException as error:  # told to who waits
            outcome.set_exception(error)

    threading.Thread(target=run, name="agent-rows", daemon=True).start()
    return outcome.result()


async def _sit(invitation: Invitation, tls: ssl.SSLContext | None) -> str:
    link = await join(invitation, tls)
    try:
        word, data = await link.read()
        if word != "begin":
            return str(data)
        session = WorkerSession(link, Assignment.read(data), invitation.number)
        with _found_at(invitation.place, session), collects_seldom():
            return await session.run()
    except EOFError:
        return ""
    finally:
        await link.end()


_SESSIONS: dict[str, list["WorkerSession"]] = {}
_CHANGED = threading.Condition(thread_lock())


@contextmanager
def _found_at(place: str, session: "WorkerSession") -> Iterator[None]:
    """Let `session_at` find a session meanwhile."""
    with _CHANGED:
        _SESSIONS.setdefault(place, []).append(session)
        _CHANGED.notify_all()
    try:
        yield
    finally:
        with _CHANGED:
            _SESSIONS[place].remove(session)
            if not _SESSIONS[place]:
                del _SESSIONS[place]


def session_at(place: str, longest: float = CONNECT) -> "WorkerSession | None":
    """Return this process's part of the map whose coordinator is at `place`; wait for one.

    Args:
        place: see `Invitation.place`.
        longest: seconds; None is returned after them.
    """
    with _CHANGED:
        _CHANGED.wait_for(lambda: place in _SESSIONS, longest)
        return _SESSIONS[place][-1] if place in _SESSIONS else None


async def join(invitation: Invitation, tls: ssl.SSLContext | None) -> Link:
    """Connect to the coordinator that sent an invitation, and show the invitation.

    Raises:
        FatalError: the place cannot be reached.
    """
    link = await _connect(invitation.place, tls)
    link.send("hello", invitation.token, invitation.number, __version__)
    return link


async def _connect(place: str, tls: ssl.SSLContext | None) -> Link:
    scheme, found, rest = place.partition("://")
    try:
        async with asyncio.timeout(CONNECT):
            if not found:
                return Link(*await asyncio.open_unix_connection(place))
            host, _, port = rest.rpartition(":")
            host = host.strip("[]")
            secure = tls if scheme == "tls" else None
            return Link(*await asyncio.open_connection(host, int(port), ssl=secure))
    except (OSError, TimeoutError) as error:
        words = {"place": place, "host": socket.gethostname(), "error": typed_message(error)}
        raise FatalError(NOT_REACHED.format(**words)) from None


class CoordinatorLimits:
    """The server's limits as the coordinator shares them among all workers; see `Limits`."""

    def __init__(self, link: Link, minute: float) -> None:
        self._link, self.minute = link, minute
        self.hold, self._reported_at = 0.0, 0.0
        self._reply: asyncio.Future[Allowance] | None = None

    async def share(self, report: Report) -> Allowance:
        """See `Limits.share`; reports are at least `hold` seconds apart."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._reported_at + self.hold - loop.time())
        self._reported_at = loop.time()
        self._reply = loop.create_future()
        self._link.send("limits", asdict(report))
        return await self._reply

    def receive(self, grant: Allowance) -> None:
        """Take the coordinator's reply."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(grant)


class WorkerSession:
    """One worker's part of a map; made and used on one event loop.

    It has at most `most` questions whose answers it has not given back: those are all that a
    killed worker loses, and may have paid for.

    Attributes:
        number: of its seat.
        parts: the prompts of the partitions that this worker has read, each until the coordinator
            releases it; put there by any thread.
    """

    def __init__(self, link: Link, assignment: Assignment, number: int = 0) -> None:
        self.number, self.parts = number, dict[int, list[Content]]()
        self._link, self._terms = link, assignment.terms
        self._limits = CoordinatorLimits(link, assignment.minute)
        self._asker = _asker(assignment, self._limits)
        self._most, self._hold = CONCURRENCY, GROUP
        self._backlog: deque[tuple[int, Any]] = deque()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._begun = 0
        self._group: list[tuple[Any, ...]] = []
        self._size = 0  # characters of the group
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[str]

    async def run(self) -> str:
        """Ask until the coordinator closes the connection; see `sit`."""
        self._ended = asyncio.get_running_loop().create_future()
        ticking = asyncio.create_task(self._tick())
        reading = asyncio.create_task(self._read())
        try:
            failure = await self._ended
            self._flush()
            if failure:
                self._link.send("failed", failure)
            return failure
        finally:
            tasks = [ticking, reading, *self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._asker.close()

    def _end(self, failure: str = "") -> None:
        if not self._ended.done():
            self._ended.set_result(failure)

    async def _read(self) -> None:
        """Do what the coordinator says, until it is gone."""
        try:
            while True:
                self._hear(await self._link.read())
        except EOFError:
            self._end()
        except FatalError as error:
            self._end(short_message(error))

    def _hear(self, message: list[Any]) -> None:
        match message:
            case ["ask", questions]:
                self._backlog.extend(questions)
                self._start()
            case ["grant", requests, pause]:
                self._limits.receive(Allowance(requests, pause))
            case ["hold", hold]:
                self._hold = self._limits.hold = hold
            case ["most", most]:
                self._most = most
                self._start()
            case ["drop", numbers]:
                self._drop(frozenset(numbers))
            case ["release", part]:
                self.parts.pop(part, None)
            case ["stop"]:
                backlog, self._backlog = self._backlog, deque()
                self._link.send("unsent", [number for number, _ in backlog])
                self._asker.stop()

    def _drop(self, numbers: frozenset[int]) -> None:
        """Ask these no longer."""
        self._backlog = deque(each for each in self._backlog if each[0] not in numbers)
        for number in numbers & self._running.keys():
            self._running[number].cancel()

    def _start(self) -> None:
        """Ask as many of what waits as may be under way."""
        while self._backlog and self._begun < self._most and not self._ended.done():
            number, given = self._backlog.popleft()
            self._begun += 1
            task = self._running[number] = asyncio.create_task(self._ask(number, given))
            # A callback also hears of a task that was cancelled before its first step.
            task.add_done_callback(partial(self._note_end, number))

    def _note_end(self, number: int, task: "asyncio.Task[None]") -> None:
        """Note the end of a question; let another begin in place of one that was dropped."""
        del self._running[number]
        if task.cancelled():
            self._begun -= 1
            self._start()

    async def _ask(self, number: int, given: Any) -> None:
        try:
            answer = await self._asker.ask(RowQuestion("", self._items(given), self._terms))
        except FatalError as error:
            self._end(short_message(error))
            return
        except NotSent:
            self._link.send("unsent", [number])
            return
        except Exception as error:  # a bug of ours must not leave the row without an outcome
            answer = RowAnswer(error=typed_message(error), kind=type(error).__name__)
        self._group.append((number, *encoded(answer)))
        self._size += len(answer.text)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._sent_at + self._hold), self._flush)
        if self._size > FULL:
            self._flush()

    def _items(self, given: Any) -> tuple[Item, ...]:
        """Return the messages of a question: see `messages.given`."""
        match given:
            case str():
                return (UserMessage(given),)
            case [[int() as part, int() as row], *more]:
                return UserMessage(self.parts[part][row]), *map(from_json, more)
            case _:
                return tuple(map(from_json, given))

    def _flush(self) -> None:
        """Give all answers back that came since the last time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._sent_at = None, asyncio.get_running_loop().time()
        group, self._group, self._size = self._group, [], 0
        self._begun -= len(group)
        self._link.send("answers", group, self._pace())
        self._start()

    async def _tick(self) -> None:
        """Show the coordinator that this worker lives, and how fast it goes."""
        while True:
            self._link.send("answers", [], self._pace())
            await asyncio.sleep(max(TICK, self._hold))

    def _pace(self) -> tuple[int, int, str]:
        pace: Pace = self._asker.pace()
        limit = pace.limit or ("your limit" if self._begun >= self._most < CONCURRENCY else "")
        return pace.in_flight, min(pace.allowed or FIRST, self._most), limit


def _asker(assignment: Assignment, limits: CoordinatorLimits) -> Asker:
    source = assignment.source
    if model := source.replayed():
        return ModelAsker(model)
    return RowClient(source.wire_api, api_key=source.key, base_url=source.address, limits=limits)
