"""Asks rows' questions of a model server: a request and a whole answer for each, not streamed.

Addresses, keys, connections, the forms of requests and answers, errors and waits are those of
``models``.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magics.models.access import ServerAccess
from agent_magics.models.base import ContextOverflow, ModelRequest
from agent_magics.models.faults import Fault, UnknownModel, UnsupportedWire, retry_after
from agent_magics.models.provider import MODEL_CLASSES
from agent_magics.models.providers.endpoints import has_better_wire, remember_wire, wires_of
from agent_magics.models.retry import RetryPolicy, counted, too_long
from agent_magics.models.transport import Reply, Transport, connect
from agent_magics.models.wires.answer_schema import is_refusal
from agent_magics.models.wires.remote import Wire, refusal_of
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.rows.asking import NotSent, Pace, RowAnswer, RowQuestion, Terms
from agent_magics.rows.remote.exchange import RequestForm, read_answer
from agent_magics.rows.remote.gate import Gate
from agent_magics.rows.remote.limits import MINUTE, Limits, limits_of

if TYPE_CHECKING:
    from yarl import URL

# Seconds for one answer; it comes only when the model has written all of it.
TIMEOUT = 600.0
# Requests side by side where nobody names a number.
CONCURRENCY = 500

# Kinds of lasting errors that all rows will get: the key is wrong, the account is empty.
FOR_ALL = frozenset(("status 401", "status 402", "status 429"))
# And where no row was answered before: key, address, model may not be used, or nobody answers.
AT_FIRST = frozenset(
    ("no connection", *(f"status {n}" for n in (301, 302, 303, 307, 308, 403, 404)))
)
BUSY = frozenset((503, 529))  # 529 is Anthropic's
# Seconds after which a server that has not refused a request is answering it.
TAKEN = 1.0
# Seconds after which what a map has learned of a server is forgotten, and servers in all.
KEPT, MOST_LEARNED = 600.0, 100


STOPPED = "stopped"  # why a task is cancelled


class Learned(NamedTuple):
    """What a map has learned of a server, for the next one of this process.

    Attributes:
        width: the requests that it answers side by side.
        refuses_schema: whether it refuses the schema of answers.
        at: when that was (monotonic).
    """

    width: float
    refuses_schema: bool
    at: float


_learned: dict[int, Learned] = {}
"""By the hash of address, model and key, so that no key is kept; the latest is the last."""


class RowClient:
    """Sends rows' questions to a model server; see `Asker`.

    Args:
        wire_api: "responses", "chat", or "auto"; see `open_model`.
        api_key: the key; see `ServerAccess`.
        base_url: the server's address; see `ServerAccess`.
        concurrency: the most requests side by side; None is `CONCURRENCY`.
        timeout: longest wait for an answer, in seconds.
        retries: number of and waits between repeated requests.
        minute: seconds of the server's minute; tests shorten it.
        limits: the server's limits; None shares them with the person's other kernels.
    """

    def __init__(
        self,
        wire_api: str = "auto",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        concurrency: int | None = None,
        timeout: float = TIMEOUT,
        retries: RetryPolicy | None = None,
        minute: float = MINUTE,
        limits: Limits | None = None,
    ) -> None:
        self._wires: dict[str, Wire] = {wire.name: wire() for wire in MODEL_CLASSES[wire_api].WIRES}
        self._access = ServerAccess(api_key, base_url)
        self._concurrency = concurrency or CONCURRENCY
        self._timeout = timeout
        self._retries = retries or RetryPolicy()
        self._minute, self._limits = minute, limits
        self._server: OpenServer | None = None
        self._place = 0  # of this server in `_learned`
        self._form: RequestForm | None = None
        self._beginning = asyncio.Lock()
        self._is_begun = False
        self._failure: FatalError | None = None
        self._is_answered = False
        self._refuses_schema = False
        self._is_stopped = False
        self._unsent: set[asyncio.Task[Any]] = set()  # whose questions wait for their turn
        self._sent: dict[asyncio.Task[Any], float] = {}  # since when each waits; oldest first

    async def ask(self, question: RowQuestion) -> RowAnswer:
        """Return the answer to a question; see `Asker.ask`.

        The first question goes alone: it finds out which wire API the server has, whether that
        accepts the schema, and what limits it states. A server that has just answered another map
        of this process is asked as then, at once.

        Raises:
            FatalError: no question can be answered; the sentence says why.
            NotSent: see `stop`.
        """
        self._unsent.add(task := current_task())
        try:
            if not self._is_begun:
                async with self._beginning:
                    if not self._is_begun and self._failure is None:
                        answer = await self._begin(question)
                        if answer is not None:
                            return answer
            if self._failure is not None:
                raise self._failure
            return await self._ask(question)
        except FatalError as fault:
            self._failure = self._access.without_key(fault)
            raise self._failure from None
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (STOPPED,) or task.uncancel():
                raise
            raise NotSent from None
        finally:
            self._unsent.discard(task)

    def stop(self) -> None:
        """See `Asker.stop`."""
        self._is_stopped = True
        for task in self._unsent:
            task.cancel(STOPPED)

    def pace(self) -> Pace:
        """Return the present speed."""
        if self._server is None:
            return Pace(0, 0)
        gate = self._server.gate
        return Pace(gate.in_flight, int(gate.width.allowed), gate.limit())

    async def close(self) -> None:
        """Close connections; no question can be asked any more."""
        self._failure = self._failure or FatalError("The model server's connections were closed.")
        if self._server is not None and self._is_answered:
            width = self._server.gate.width.allowed
            _learned.pop(self._place, None)
            _learned[self._place] = Learned(width, self._refuses_schema, time.monotonic())
            if len(_learned) > MOST_LEARNED:
                del _learned[next(iter(_learned))]
        await self._disconnect()

    async def _disconnect(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.gate.close()
            await server.transport.close()

    # -- one question, until it is answered or given up -------------------------------------------

    async def _begin(self, question: RowQuestion) -> RowAnswer | None:
        """Connect, and ask the first question on the first wire API that the server has.

        None: it was not asked, since what the first answer tells is known.

        Raises:
            FatalError: no question can be answered.
        """
        await self._disconnect()  # of a first question that was cancelled
        transport = await connect(self._access, self._timeout)
        limits = self._limits or limits_of(
            transport.address, question.terms.model, transport.key, self._minute
        )
        known = wires_of(transport.address)
        wires = sorted(self._wires.values(), key=lambda wire: wire.name != known[0])
        self._place = hash((transport.address, question.terms.model, transport.key))
        learned = _learned.get(self._place)
        is_known = len(known) == 1 or len(wires) == 1
        if learned and is_known and time.monotonic() - learned.at < KEPT:
            gate = Gate(self._concurrency, limits, learned.width)
            self._server = OpenServer(transport, gate, wires[0], transport.url(wires[0].path))
            self._refuses_schema, self._is_begun = learned.refuses_schema, True
            return None
        gate = Gate(self._concurrency, limits)
        for wire in wires:
            self._server = OpenServer(transport, gate, wire, transport.url(wire.path))
            try:
                answer = await self._ask(question)
            except UnsupportedWire as fault:
                if wire is wires[-1]:
                    raise FatalError(short_message(fault)) from None
                continue
            if len(wires) > 1 and self._is_answered:
                remember_wire(transport.address, wire.name)
            break
        self._is_begun = True
        return answer

    async def _ask(self, question: RowQuestion) -> RowAnswer:
        """Ask until there is an answer, or nothing more to expect.

        Raises:
            FatalError: no question can be answered.
        """
        attempt, again = 0, False
        while True:
            try:
                return await self._exchange(question, again=again)
            except ContextOverflow as fault:
                return self._failed(fault, "too long")
            except Fault as fault:
                again = True
                if fault.passing and fault.kind == "status 429":
                    self._check_patience(fault)
                    continue  # the gate makes it wait; a busy server is no fault of this row
                if self._drops_schema(fault, question):
                    continue
                attempt += 1
                delay = self._retries.delay(attempt, fault)
                if delay is None:
                    self._check_others(fault)
                    return self._failed(counted(fault, attempt), fault.kind)
            self._unsent.add(current_task())
            await self._retries.wait(delay)

    def _check_patience(self, fault: Fault) -> None:
        """Give all up where the server refuses for longer than anybody waits.

        Raises:
            FatalError: it does.
        """
        longest, now = self._retries.longest_asked, time.monotonic()
        is_at_work = now - next(iter(self._sent.values()), now) > TAKEN * self._minute / MINUTE
        refused = 0.0 if is_at_work else self._open.gate.refused_for()
        if max(fault.retry_after or 0.0, refused) > longest:
            raise FatalError(str(too_long(fault, self._retries) or fault))

    def _drops_schema(self, fault: Fault, question: RowQuestion) -> bool:
        """Tell whether the server refuses the schema of its answers; it is not sent again then."""
        if question.schema is None or self._refuses_schema or not is_refusal(fault):
            return False
        self._refuses_schema = True
        return True

    def _check_others(self, fault: Fault) -> None:
        """Give all up for an error that every row would get.

        Raises:
            FatalError: it is one.
        """
        if isinstance(fault, UnsupportedWire) and not self._is_begun:
            raise fault
        first = not self._is_answered and (
            fault.kind in AT_FIRST or isinstance(fault, UnknownModel | UnsupportedWire)
        )
        if first or fault.kind in FOR_ALL:
            raise FatalError(short_message(fault))

    def _failed(self, fault: FatalError, kind: str) -> RowAnswer:
        return RowAnswer(
            error=short_message(self._access.without_key(fault)), kind=kind or "refused"
        )

    # -- one request ------------------------------------------------------------------------------

    async def _exchange(self, question: RowQuestion, *, again: bool) -> RowAnswer:
        """Make one request when its turn comes.

        Raises:
            FatalError: it was not answered.
        """
        if self._is_stopped:
            raise NotSent
        server = self._open
        form = self._form_of(server, question.terms)
        request, body = form.request, form.body(question.items)
        self._unsent.add(task := current_task())
        await server.gate.enter(again=again)
        self._unsent.discard(task)
        self._sent[task] = time.monotonic()
        try:
            reply = await server.transport.post(server.url, body, again=True)
        except BaseException as error:
            server.gate.fail(is_busy=isinstance(error, Fault) and error.kind == "timed out")
            raise
        finally:
            del self._sent[task]
        server.report(reply)
        several = not self._is_begun and len(self._wires) > 1
        if several and has_better_wire(server.wire.name, server.address, reply.headers):
            raise UnsupportedWire(f"{server.address} is better asked on another wire.")
        if reply.status >= 300:
            raise refusal_of(reply, server.address, request.model, server.wire.api)
        return self._decoded(reply, request)

    def _form_of(self, server: "OpenServer", terms: Terms) -> RequestForm:
        """Return what makes the bodies of requests with these terms, the same for all of a map."""
        form, has_schema = self._form, not self._refuses_schema
        is_same = form and form.wire is server.wire and form.terms is terms
        if form is None or not is_same or form.has_schema != has_schema:
            form = RequestForm(server.wire, terms, server.address, has_schema=has_schema)
            self._form = form
        return form

    def _decoded(self, reply: Reply, request: ModelRequest) -> RowAnswer:
        """Return the answer that a body holds.

        Raises:
            FatalError: it holds none, or an error.
        """
        server = self._open
        answer = read_answer(reply.content, server.wire, request, server.address)
        self._is_answered = True
        server.gate.count_tokens(answer.usage.input_tokens + answer.usage.output_tokens)
        return answer

    @property
    def _open(self) -> "OpenServer":
        if self._server is None:
            raise FatalError("The connections to the model server were closed.")
        return self._server


def current_task() -> asyncio.Task[Any]:
    """Return the task that is running."""
    task = asyncio.current_task()
    assert task is not None  # only coroutines ask
    return task


@dataclass(frozen=True, slots=True)
class OpenServer:
    """An open connection to a server.

    Attributes:
        transport: posts the requests.
        gate: decides when each may be sent.
        wire: the wire API that the server has.
        url: the address of that API.
    """

    transport: Transport
    gate: Gate
    wire: Wire
    url: "URL"

    @property
    def address(self) -> str:
        """The server's address."""
        return self.transport.address

    def report(self, reply: Reply) -> None:
        """Tell the gate how a request ended."""
        status, headers = reply.status, reply.headers
        if status < 300:
            self.gate.accept(headers)
            return
        asked = retry_after(headers) if status == 429 or status in BUSY else None
        if status == 429 or asked is not None:
            self.gate.refuse(headers, asked)
        else:
            self.gate.fail(is_busy=status in BUSY)
