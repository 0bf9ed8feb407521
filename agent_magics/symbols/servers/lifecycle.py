"""Runs one language server for one folder: start, questions with a limit, restart, end.

Law: nobody waits for a server longer than the limit of the question, and no lock is held meanwhile.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics.exec.process import Process
from agent_magics.exec.servers import Deaths, LogRing, describe_exit, started
from agent_magics.protocol.errors import FatalError, RespondToModel, clause, short_message
from agent_magics.symbols.servers.process import Workplace, memory_of, start_process
from agent_magics.symbols.servers.specs import ServerSpec, client_is_missing

if TYPE_CHECKING:  # these import lsprotocol and pygls, which takes 0.4 s and 24 MB
    from agent_magics.symbols.servers.session import RunningServer

START_LIMIT = 30.0  # seconds from a server's start to its first answer
_MOST_LATE = 2  # questions in a row that are not answered in time, before it is restarted
_LONGEST_WAIT = 2.0  # seconds that a start waits after an end
_REST = 60.0  # seconds without a start after too many ends
_KILL_LIMIT = 3.0  # seconds to wait for the end of a killed server


class LanguageServerState(StrEnum):
    """What a server does at the moment."""

    OFF = "not running"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server as people see it.

    Attributes:
        name: the program's name.
        language: its language.
        root: the folder it works in.
        state: what it does.
        memory: bytes that it holds with all it has started.
        restarts: how often it was started again.
        idle: seconds since its last question.
        problem: why it failed, as a sentence; "" where it did not.
    """

    name: str
    language: str
    root: Path
    state: LanguageServerState
    memory: int = 0
    restarts: int = 0
    idle: float = 0.0
    problem: str = ""


class LanguageServer:
    """One server; on the event loop. It is started when a session is asked for.

    Args:
        spec: how it is started.
        language: its language.
        root: the folder it works in.
        place: the workspace around it.
    """

    def __init__(self, spec: ServerSpec, language: str, root: Path, place: Workplace) -> None:
        self.spec, self.language, self.root = spec, language, root
        self.log = LogRing(lambda text: text)
        self.last_used = time.monotonic()
        self.busy = 0  # questions that wait for it
        self._place = place
        self._session: RunningServer | None = None
        self._process: Process | None = None
        self._starting: asyncio.Task[RunningServer] | None = None
        self._deaths = Deaths()
        self._not_before = 0.0
        self._starts = 0
        self._late = 0
        self._problem = ""

    @property
    def state(self) -> ServerState:
        """The server's present state."""
        if self._session is not None:
            state = LanguageServerState.READY
        elif self._starting is not None:
            state = LanguageServerState.STARTING
        else:
            state = LanguageServerState.FAILED if self._problem else LanguageServerState.OFF
        return ServerState(
            self.spec.name,
            self.language,
            self.root,
            state,
            self.memory(),
            max(self._starts - 1, 0),
            time.monotonic() - self.last_used,
            self._problem,
        )

    @property
    def is_running(self) -> bool:
        """Whether the server's process runs, or is being started."""
        return self._process is not None or self._starting is not None

    def memory(self) -> int:
        """Return the bytes of memory that the server holds."""
        return 0 if self._process is None else memory_of(self._process)

    # -- start and end -----------------------------------------------------------------------------

    @property
    def running(self) -> "RunningServer | None":
        """The session of a server that is ready; None where it would have to be started."""
        return self._session

    async def session(self, limit: float = START_LIMIT) -> "RunningServer":
        """Return the running server, started where it does not run.

        Raises:
            RespondToModel: it cannot be started, or is not ready within `limit` seconds; then its
                start goes on.
        """
        self.last_used = time.monotonic()
        if self._session is not None:
            return self._session
        starting = self._starting
        if starting is None:
            starting = asyncio.create_task(self._start(), name=f"lsp {self.spec.name}")
            starting.add_done_callback(self._note_start)
            self._starting = starting
        await asyncio.wait({starting}, timeout=limit)  # whose cancellation is not that of this task
        if not starting.done():
            raise RespondToModel(
                self._sentence(f"is still starting after {limit:g} s; ask again later.")
            )
        if starting.cancelled():
            raise RespondToModel(self._sentence("was ended while it started; ask again."))
        return starting.result()

    def _note_start(self, task: "asyncio.Task[RunningServer]") -> None:
        if self._starting is task:
            self._starting = None
        if not task.cancelled():
            error = task.exception()  # retrieved, also where nobody waits any more
            self._problem = "" if error is None else str(error)

    async def _start(self) -> "RunningServer":
        if missing := client_is_missing():
            raise RespondToModel(missing)
        wait = self._not_before - time.monotonic()
        if wait > _LONGEST_WAIT:
            raise RespondToModel(
                self._sentence(
                    f"ended {self._deaths.number} times within a minute{self.log.last_words()}. It "
                    f"is not started for {wait:.0f} s more, but by %agent lsp restart."
                )
            )
        await asyncio.sleep(max(wait, 0.0))
        module = await asyncio.to_thread(_load_session)
        try:
            process = await started(lambda: start_process(self.spec, self.root, self._place))
        except (FatalError, OSError) as error:
            raise RespondToModel(
                self._sentence(f"could not be started: {short_message(error)}")
            ) from None
        self._process, self._starts, self._late = process, self._starts + 1, 0
        session: RunningServer = module.RunningServer(
            self.spec, self.language, self.root, process, self.log, self.ended
        )
        try:
            async with asyncio.timeout(START_LIMIT):
                await session.open()
        except TimeoutError:
            await self._drop(session, process)
            raise self._failed(f"was not ready within {START_LIMIT:g} s") from None
        except (*module.ASKING_FAILED, OSError) as error:
            process.wait(0)
            await self._drop(session, process)
            how = short_message(error) or describe_exit(process)
            raise self._failed(f"could not be started: {how}{self.log.last_words()}") from None
        except BaseException:
            await asyncio.shield(self._drop(session, process))
            raise
        self._session = session
        return session

    def _failed(self, how: str) -> RespondToModel:
        self._count_death()
        return RespondToModel(self._sentence(f"{how}."))

    def _count_death(self) -> None:
        wait = self._deaths.count()
        self._not_before = time.monotonic() + (_REST if wait is None else wait)

    def ended(self, session: "RunningServer") -> None:
        """Handle the end of a session that ended by itself."""
        if self._session is not session or self._process is None:
            return
        process, self._session = self._process, None
        self._count_death()
        self.log.note("it ended by itself")
        task = asyncio.create_task(self._drop(session, process))
        _KEPT.add(task)
        task.add_done_callback(_KEPT.discard)

    async def _drop(self, session: "RunningServer", process: Process) -> None:
        session.close()
        process.kill(at_once=True)
        if self._process is process:
            self._process = None
        with suppress(RuntimeError):  # when the program ends, no thread can begin
            ended = await asyncio.to_thread(process.wait, _KILL_LIMIT)
            self.log.note(f"ended: {describe_exit(process)}" if ended else "its end was not seen")

    async def stop(self) -> None:
        """End the server; the next question starts it again."""
        starting, self._starting = self._starting, None
        session, self._session = self._session, None
        process, self._process = self._process, None  # at once, so that it counts no more
        if starting is not None:
            starting.cancel()
        # First: a start that has just come to its end leaves them to whoever has taken them.
        if session is not None and process is not None:
            await self._drop(session, process)
        if starting is not None:
            await asyncio.wait({starting})
        self._problem = ""

    def forgive(self) -> None:
        """Reset the count of the server's ends, so that it may be started at once."""
        self._deaths, self._not_before = Deaths(), 0.0

    def _sentence(self, what: str) -> str:
        return f"The language server {self.spec.name} {what}"

    # -- questions ---------------------------------------------------------------------------------

    async def ask(
        self, question: "Callable[[RunningServer], Any]", limit: float, *, starts: bool = True
    ) -> Any:
        """Return the answer to a question.

        Args:
            question: an async function of the session; it is repeated once where the server ends.
            limit: seconds for the start and the answer.
            starts: whether it is started where it does not run.

        Raises:
            RespondToModel: it does not answer; the sentence says why.
        """
        self.busy += 1
        self.last_used = time.monotonic()
        deadline = time.monotonic() + limit
        try:
            for _ in range(2):
                if self._session is None and not starts:
                    raise RespondToModel(self._sentence("does not run."))
                session = await self.session(max(deadline - time.monotonic(), 0.01))
                lost = _load_session().ServerLost
                try:
                    return await self._asked(question(session), session, deadline)
                except lost:
                    self.ended(session)
            raise RespondToModel(self._sentence(f"ended twice{self.log.last_words()}; ask again."))
        finally:
            self.busy -= 1
            self.last_used = time.monotonic()

    async def _asked(self, answer: Any, session: "RunningServer", deadline: float) -> Any:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                found = await answer
        except TimeoutError:
            self._late += 1
            if self._late < _MOST_LATE or self._session is not session:
                raise RespondToModel(self._sentence("did not answer in time; ask again.")) from None
            self.ended(session)
            raise RespondToModel(
                self._sentence(f"did not answer {_MOST_LATE} times and was ended; ask again.")
            ) from None
        except _load_session().RequestFailed as error:
            raise RespondToModel(self._sentence(f"cannot answer: {clause(error)}.")) from None
        self._late = 0
        return found


_KEPT: set["asyncio.Task[None]"] = set()


def _load_session() -> Any:
    """Return the module of sessions, which imports lsprotocol and pygls."""
    from agent_magics.symbols.servers import session  # noqa: PLC0415 - 0.4 s and 24 MB

    return session
