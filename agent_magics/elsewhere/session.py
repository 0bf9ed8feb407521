"""A sub-agent's session whose turn runs in a worker, as its parent's pool uses it.

The events and entries of the worker are emitted and recorded here as if they had happened here, and
charged; questions are asked as those of any sub-agent.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from agent_magics.delegation.parent import ParentLink
from agent_magics.dispatch.turn import SubAgentRequest
from agent_magics.elsewhere.description import Description, describe
from agent_magics.elsewhere.worker import SILENT, attend, tick
from agent_magics.engine.channels.outbox import Listener
from agent_magics.engine.session import Session
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn_config import Parent, TurnConfig
from agent_magics.model_clients import ModelClients
from agent_magics.protocol.codec import to_json
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError, own_or_typed_message, typed_message
from agent_magics.protocol.events import (
    TURN_ENDS,
    ApprovalRequested,
    ElicitationRequested,
    Event,
    Question,
    TurnAborted,
    TurnFailed,
    UserInputRequested,
)
from agent_magics.protocol.ops import CallTool, Compact, Interrupt, Op, StartTurn, Steer
from agent_magics.protocol.records import Entry, RecordBegun, RequestCharged
from agent_magics.rows.engines.choice import check_portable, engine_of, source_of
from agent_magics.rows.engines.coordinator import IS_CANCELLED, Engine, OtherVersion, read_invited
from agent_magics.rows.engines.link import MOST_OF_WORKER, Link
from agent_magics.rows.engines.messages import (
    MALFORMED,
    MOST_OF_SENTENCE,
    counted,
    noun_of,
    number_of,
)
from agent_magics.rows.engines.worker import Invitation
from agent_magics.text.brief import brief_line

# Seconds in which a worker stops its sub-agent; then it is let go as it is.
STOPPING = 10.0

NO_WORKER = "No worker of engine= has taken it: {error}."
LOST = (
    "The worker it was in has ended, or cannot be reached any more; what it did there stays as it "
    "is."
)
# What a worker may ask: none of its code runs on this kernel's main thread. How many questions may
# be open; of how many events the engine lets others have their turn.
QUESTIONS = (ApprovalRequested, UserInputRequested, ElicitationRequested)
MOST_OPEN, AT_ONCE = 32, 100
_STAMP = frozenset(field.name for field in fields(Event))


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where `Agent.spawn(engine=...)` lets a sub-agent work.

    Args:
        given: a `distributed.Client` or a `concurrent.futures.Executor`.
        settings: of the agent.
        models: its clients.

    Raises:
        FatalError: nothing can work there; the sentence says why.
    """

    given: Any
    settings: Settings
    models: ModelClients

    def __post_init__(self) -> None:
        engine_of(self.given, "")
        check_portable(self.settings, self.models)

    def session(
        self,
        engine: EngineThread,
        folder: Path | None,
        begin: Callable[[str], RecordBegun],
        turn_config: TurnConfig,
        request: SubAgentRequest,
    ) -> Session:
        """Return the session of a sub-agent; see `delegation.types.AgentPlace`."""
        description = describe(turn_config, request.tools, request.share)
        return SessionElsewhere(engine, folder, begin, self, description)


class SessionElsewhere(Session):
    """The session of one sub-agent whose turn runs in a worker; used on the engine's loop.

    Args:
        engine, folder, begin: see `Session`.
        place: where it works.
        description: what the worker makes it from.
    """

    def __init__(
        self,
        engine: EngineThread,
        folder: Path | None,
        begin: Callable[[str], RecordBegun],
        place: "Elsewhere",
        description: Description,
    ) -> None:
        super().__init__(engine, description.path, folder, begin)
        self._place, self._description = place, description
        self._link: Link | None = None
        self._early: list[Steer] = []  # for the worker, which is not there yet
        self._visiting: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._reason = ""

    def begin(
        self,
        op: StartTurn | CallTool | Compact,
        turn_config: TurnConfig,
        listener: Listener,
        after: Listener | None = None,
    ) -> None:
        """Start the turn in a worker; see `Session.begin`."""
        self.outbox.listen(op.turn_id, listener, turn_config.secrets, after)
        engine = engine_of(self._place.given, f"agent.spawn {self.agent}")
        # Only this is cancelled: the worker is released whatever happens.
        self._visiting = asyncio.create_task(self._visit(engine, op, turn_config))
        self._task = asyncio.create_task(self._work(engine, op), name=f"elsewhere {self.agent}")

    def submit(self, op: Op) -> None:
        """Send an operation to the worker; a stop also ends the wait for one, and messages wait."""
        self.engine.post(self._send, op)

    def _send(self, op: Op) -> None:
        if isinstance(op, Interrupt) and self._visiting is not None:
            self._reason = op.reason
            wait = STOPPING if self._link is not None else 0.0
            asyncio.get_running_loop().call_later(wait, self._visiting.cancel)
        if self._link is not None:
            self._link.send("op", to_json(op))
        elif isinstance(op, Steer):
            self._early.append(op)

    def close(self) -> None:
        """Release the worker, and close the record; on a thread."""
        self._on_engine(self._leave())
        super().close()

    async def _leave(self) -> None:
        if self._task is not None and self._visiting is not None:
            self._visiting.cancel()
            await asyncio.wait({self._task})

    # -- its turn ----------------------------------------------------------------------------------

    async def _work(self, engine: Engine, op: StartTurn | CallTool | Compact) -> None:
        """Run the turn, and emit its end where the worker does not."""
        kind: type[Event] | None = None
        words: dict[str, str] = {}
        assert self._visiting is not None
        try:
            await self._visiting
        except asyncio.CancelledError:
            kind, words = TurnAborted, {"reason": self._reason or "the agent was closed"}
        except Exception as error:  # also a bug of ours must not leave the turn without an end
            kind, words = TurnFailed, {"error": own_or_typed_message(error)}
        finally:
            for task in self._asking.values():
                task.cancel()
            if self._link is not None:
                self._link.abort()
                self._link = None
        if kind is not None:
            self.outbox.emit(op.turn_id, kind, **words)
        await engine.close()

    async def _visit(
        self, engine: Engine, op: StartTurn | CallTool | Compact, turn_config: TurnConfig
    ) -> None:
        """Have a worker run the turn, and take all that happens there.

        Raises:
            FatalError: no worker does, or it is lost.
        """
        source = await source_of(self._place.settings)
        self.outbox.hide((source.key,) if source.key else ())
        parent = turn_config.parent
        assert isinstance(parent, ParentLink)  # as every sub-agent here has one
        with parent.clock.stopped():
            link = self._link = await self._worker(engine)
        begun = {"conversation": self.conversation.id, "op": to_json(op), "model": asdict(source)}
        self._open(link, begun)
        ticking = asyncio.create_task(tick(link))
        try:
            while True:
                async with asyncio.timeout(SILENT):
                    message = await link.read(MOST_OF_WORKER)
                match message:
                    case ["happened", list() as happened]:
                        if await self._take(op.turn_id, happened, parent):
                            return
                    case ["ask", number, question]:
                        self._begin_to_ask(link, number_of(number), question, parent)
                    case ["withdraw", number]:
                        # At once, since the task may not have begun to run, and then never will.
                        if (asking := self._asking.pop(number_of(number), None)) is not None:
                            asking.cancel()
                    case ["failed", sentence]:
                        raise FatalError(brief_line(str(sentence), MOST_OF_SENTENCE))
                    case ["alive"]:
                        pass
                    case _:
                        raise FatalError(MALFORMED)
        except (EOFError, TimeoutError):
            raise FatalError(LOST) from None
        finally:
            ticking.cancel()

    def _open(self, link: Link, begun: dict[str, Any]) -> None:
        """Let the worker begin, and send what was said before it was there."""
        link.send("begin", begun)
        for op in self._early:
            link.send("op", to_json(op))

    async def _worker(self, engine: Engine) -> Link:
        """Return the connection of the worker that takes it.

        Raises:
            FatalError: none does.
        """
        token = secrets.token_urlsafe(32)
        came: asyncio.Future[Link] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = Link(reader, writer)
            try:
                invited = await read_invited(link, token)
                if invited is not None and not came.done():
                    came.set_result(link)
                    return
            except OtherVersion as error:
                if not came.done():
                    came.set_exception(error)
            except (EOFError, FatalError, TimeoutError):
                pass  # it was no worker of ours
            link.close()

        server, place = await engine.listen(serve)
        try:
            task = await engine.start(attend, Invitation(place, 1, token), self._description)
            both: list[asyncio.Future[Any]] = [task, came]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not came.done():
                if task.cancelled():
                    raise FatalError(NO_WORKER.format(error=IS_CANCELLED))
                error = task.exception()
                raise FatalError(
                    NO_WORKER.format(error=typed_message(error) if error else "it ended")
                )
            return came.result()
        except asyncio.CancelledError:
            if came.done() and not came.exception():
                came.result().close()
            raise
        finally:
            came.cancel()  # a worker that comes now is sent away, since nobody would take it
            server.close()

    async def _take(self, turn_id: str, happened: list[Any], parent: Parent) -> bool:
        """Emit, record and charge what happened in the worker; return whether the turn ended.

        Raises:
            FatalError: it is something that happens in no worker.
        """
        for place, data in enumerate(happened):
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            each = noun_of(data, (Event, Entry))
            if isinstance(each, Question | RecordBegun):
                raise FatalError(MALFORMED)
            if isinstance(each, RequestCharged):
                counted(each.usage)
                self.conversation.charge(each.model, each.usage)
                parent.charge(each.model, each.usage)
            elif isinstance(each, Event):
                own = {f.name: getattr(each, f.name) for f in fields(each) if f.name not in _STAMP}
                self.outbox.emit(turn_id, type(each), **own)
                if isinstance(each, TURN_ENDS):
                    return True
            else:
                self.outbox.keep(each)
        return False

    def _begin_to_ask(self, link: Link, number: int, data: Any, parent: Parent) -> None:
        if number in self._asking or len(self._asking) >= MOST_OPEN:
            raise FatalError(MALFORMED)
        asking = self._ask(link, number, noun_of(data, QUESTIONS), parent)
        self._asking[number] = asyncio.create_task(asking)

    async def _ask(self, link: Link, number: int, question: Any, parent: Parent) -> None:
        """Ask the person what the worker asks, and send the answer."""
        own = {f.name: getattr(question, f.name) for f in fields(question)}
        asked = {name: value for name, value in own.items() if name not in {*_STAMP, "question_id"}}
        try:
            answer = await parent.ask(type(question), **asked)
            link.send("answer", number, to_json(answer))
        except Exception as error:  # a person's own function may have been asked
            link.send("unanswered", number, typed_message(error))
        finally:
            self._asking.pop(number, None)
