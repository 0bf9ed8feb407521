"""Sends requests to a server: key, address, connections, choice of the wire API.

The request is sent as bytes that are mostly encoded already, and the answer is read as bytes, of
which only needed events are parsed. A client library would walk the whole history on every request,
build a model object for every streamed event, and repeat requests without showing it (`retry`).
"""

import asyncio
import difflib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import ClassVar, Protocol

from agent_magics.models.access import ServerAccess
from agent_magics.models.base import ModelEvent, ModelRequest, RetryWait
from agent_magics.models.environment import values_read
from agent_magics.models.error_redaction import shown_address, without_keys
from agent_magics.models.faults import Fault, UnknownModel, UnsupportedWire, brief
from agent_magics.models.providers import credentials
from agent_magics.models.providers.endpoints import (
    WireName,
    endpoint_of,
    has_better_wire,
    remember_wire,
    split_query,
    wires_of,
)
from agent_magics.models.providers.keys import way_to_mend
from agent_magics.models.refusals import StatusError, explain_status
from agent_magics.models.retry import RetryPolicy, stream_with_retries
from agent_magics.models.transport import Reply, Streamed, Transport, await_aiohttp, open_transport
from agent_magics.models.wire_capture import WireCapture
from agent_magics.models.wires.answer import AnswerDecoder, read_answer
from agent_magics.models.wires.answer_schema import is_refusal
from agent_magics.protocol.errors import FatalError, clause, short_message
from agent_magics.protocol.items import JsonMapping, Usage, json_or

# Seconds for the list of a server's models.
MODELS_TIMEOUT = 5.0
# Limit on the names read of such a list.
MOST_MODELS = 2000


class Wire(Protocol):
    """One wire API: its path, the encoding of requests, the decoding of answers.

    Attributes:
        name: "responses" or "chat".
        api: its name for people.
        path: its path below the server's address.
    """

    name: WireName
    api: str
    path: str

    def body(self, request: ModelRequest, address: str) -> bytes:
        """Encode the request's body for the server at `address`."""

    def decoder(self, request: ModelRequest, address: str) -> AnswerDecoder:
        """Return a decoder for the answer to `request`."""

    def plain_answer(self, document: JsonMapping) -> tuple[str, Usage] | None:
        """Return text and usage of an answer that was not streamed and is complete.

        None for any other than one text, and reasoning before it: what a decoder makes of these.
        """


class RemoteModel:
    """A model client for a server that has one of `WIRES`; with several, it detects which.

    Args:
        api_key: the key; see `ServerAccess`.
        base_url: the server's address; see `ServerAccess`.
        timeout: longest wait for the next byte, in seconds.
        retries: number of and waits between repeated requests.
    """

    WIRES: ClassVar[tuple[type[Wire], ...]] = ()

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 300.0,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._wires: dict[WireName, Wire] = {wire.name: wire() for wire in self.WIRES}
        self._access = ServerAccess(api_key, base_url)
        self._timeout = timeout
        self._retries = retries or RetryPolicy()
        self._without_schema: set[tuple[str, str]] = set()
        self._transports: dict[asyncio.AbstractEventLoop, dict[tuple[object, ...], Transport]] = {}

    @property
    def source(self) -> str:
        """Where the answers come from: "OpenAI" or the server's address."""
        address = self._access.address
        return endpoint_of(address).name or shown_address(split_query(address)[0])

    def secrets(self) -> tuple[str, ...]:
        """Return the keys in use, which must not be written anywhere."""
        return self._access.secrets()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send `request`; see `Model.stream`.

        Raises:
            FatalError: no key, wrong key, unknown model, no answer: one sentence for the person.
        """
        ask = self._ask if request.output_schema is None else self._ask_with_schema
        events = stream_with_retries(lambda: ask(request), self._retries)
        try:
            async with aclosing(events):
                async for event in events:
                    yield self._shown(event) if isinstance(event, RetryWait) else event
        except UnknownModel as fault:
            raise self._access.without_key(await self._name_models(fault, request)) from None
        except FatalError as fault:
            raise self._access.without_key(fault) from None

    def _shown(self, wait: RetryWait) -> RetryWait:
        """Return a wait whose reason has no key."""
        return replace(wait, reason=without_keys(wait.reason, self.secrets()))

    async def close(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        for transport in self._transports.pop(asyncio.get_running_loop(), {}).values():
            await transport.close()

    # -- one request ------------------------------------------------------------------------------

    async def _ask_with_schema(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request; if the server refuses the schema of its answer, repeat it without."""
        place = (self._access.address, request.model)
        answered = False
        if place not in self._without_schema:
            try:
                async with aclosing(self._ask(request)) as events:
                    async for event in events:
                        answered = True
                        yield event
                return
            except Fault as fault:
                if answered or not is_refusal(fault):
                    raise
            self._without_schema.add(place)
            if request.capture is not None:
                request.capture.answers.pop()  # refused requests are not recorded
        async with aclosing(self._ask(replace(request, output_schema=None))) as events:
            async for event in events:
                yield event

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request, on the first wire API that the server has."""
        address = self._access.address
        # All of them: where one has answered, there may be another server by now.
        names = sorted(self._wires, key=lambda name: name != wires_of(address)[0])
        answered = False
        for name in names:
            wire = self._wires[name]
            try:
                chunks = self._post(wire, request)
                decoder = wire.decoder(request, address)
                async with aclosing(read_answer(chunks, decoder)) as events:
                    async for event in events:
                        answered = True
                        yield event
            except UnsupportedWire as fault:
                if answered or name == names[-1]:
                    raise Fault(short_message(fault)) from None
            else:
                if len(self._wires) > 1:
                    remember_wire(address, name)
                return

    async def _post(self, wire: Wire, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Post the request and yield the answer's bytes as they arrive."""
        capture = request.capture or WireCapture()
        answer = await self._answer_to(wire, request, capture)
        try:
            self._check_wire(wire, self._access.address, answer.headers)
            capture.begin(wire.name, answer.status, answer.headers)
            try:
                async with aclosing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        capture.feed(chunk)
                        yield chunk
            except Fault as fault:
                capture.end("silent" if fault.kind == "timed out" else "cut")
                raise
        finally:
            answer.close()

    async def _answer_to(self, wire: Wire, request: ModelRequest, capture: WireCapture) -> Streamed:
        """Post the request and return the answer, of which the headers have arrived."""
        transport = await self._transport()
        address = transport.address
        try:
            answer = await transport.stream(transport.url(wire.path), wire.body(request, address))
        except Fault as fault:
            capture.begin(wire.name, 0)
            capture.end("silent" if fault.kind == "timed out" else "unreachable")
            raise
        if isinstance(answer, Streamed):
            return answer
        capture.begin(wire.name, answer.status, answer.headers)
        capture.feed(answer.content)
        capture.end("error")
        refusal = refusal_of(answer, address, request.model, wire.api)
        self._check_wire(wire, address, answer.headers)
        raise refusal

    def _check_wire(self, wire: Wire, address: str, headers: Mapping[str, str]) -> None:
        """Reject a wire API that was only tried if the server is known to have a better one.

        Raises:
            UnsupportedWire: it has.
        """
        if len(self._wires) > 1 and has_better_wire(wire.name, address, headers):
            raise UnsupportedWire(f"{address} is better asked on another wire than the {wire.api}.")

    # -- connections ------------------------------------------------------------------------------

    async def _transport(self) -> Transport:
        """Return the connections of this event loop for the present key, address and environment,
        which the person may have mended since an error said so.
        """
        await await_aiohttp()
        key, loop = await self._access.key(), asyncio.get_running_loop()
        if loop not in self._transports:
            for each in [*self._transports]:
                if each.is_closed():
                    self._transports.pop(each, None)
        opened = self._transports.setdefault(loop, {})
        place = (key, self._access.address, *values_read())
        if place not in opened:
            opened[place] = open_transport(self._access, key, self._timeout)
        return opened[place]

    # -- errors -----------------------------------------------------------------------------------

    async def _name_models(self, fault: UnknownModel, request: ModelRequest) -> Fault:
        """Return the error with names of the server's models that resemble the requested one."""
        names = await self._models()
        near = difflib.get_close_matches(request.model, names, n=3, cutoff=0.5)
        if not near and len(names) <= 5:
            near = names
        known = f" It has: {', '.join(near)}." if near else ""
        return Fault(f"{clause(fault)}.{known}")

    async def _models(self) -> list[str]:
        """Return the names of the server's models, [] if it does not list them in time."""
        try:
            async with asyncio.timeout(MODELS_TIMEOUT):
                transport = await self._transport()
                reply = await transport.get(transport.url("/models"))
        except (FatalError, TimeoutError):
            return []
        listed = json_or(reply.content, None)
        rows = listed.get("data") if isinstance(listed, dict) else None
        rows = rows if isinstance(rows, list) else []
        names = (row.get("id") for row in rows[:MOST_MODELS] if isinstance(row, dict))
        return [brief(name) for name in names if isinstance(name, str)]


def refusal_of(reply: Reply, address: str, model: str, api: str) -> FatalError:
    """Return the error for an answer with an error status; a key that was refused is forgotten."""
    if reply.status == 401:
        credentials.forget_key(address)
    return explain_status(
        StatusError(reply.status, reply.headers, reply.content),
        address=address,
        model=model,
        api=api,
        key_way=way_to_mend(address),
    )
