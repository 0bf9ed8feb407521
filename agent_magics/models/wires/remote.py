"""Sends requests to a server: key, address, connections, choice of the wire API.

Of the openai package we use authentication, time-outs and error classes. Two of its slow paths are
bypassed: it would walk the whole history on every request, and build a model object for every
streamed event. So the request is sent as bytes that are mostly encoded already, and the answer is
read as bytes, of which only needed events are parsed. Its own retries are off, because ours are
shown (`retry`).
"""

import asyncio
import difflib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

from agent_magics.models.access import ServerAccess
from agent_magics.models.base import ModelEvent, ModelRequest
from agent_magics.models.bounds import check_encoding
from agent_magics.models.faults import (
    Fault,
    UnknownModel,
    UnsupportedWire,
    brief,
    cut_short,
    silent,
)
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
from agent_magics.models.refusals import explain_connection, explain_status
from agent_magics.models.retry import RetryPolicy, stream_with_retries
from agent_magics.models.sdk import (
    bounded_client,
    close_at_end,
    is_timeout,
    load_openai,
    loaded_openai,
    transport_errors,
)
from agent_magics.models.wire_capture import Ending, WireCapture
from agent_magics.models.wires.answer import AnswerDecoder, read_answer
from agent_magics.models.wires.answer_schema import is_refusal
from agent_magics.protocol.errors import FatalError, clause, short_message
from agent_magics.protocol.items import JsonMapping, Usage

# Seconds for establishing a connection, and for the list of a server's models.
CONNECT_TIMEOUT = 10.0
MODELS_TIMEOUT = 5.0
# Limit on the names read of such a list.
MOST_MODELS = 2000

# The first header makes the package return the unread response, as its `with_streaming_response`
# does.
HEADERS = {
    "X-Stainless-Raw-Response": "stream",
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
}
# No redirects: they would send a key in a non-standard header (Azure's) to another host.
OPTIONS = {"headers": HEADERS, "follow_redirects": False}


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
        self._clients: WeakKeyDictionary[Any, dict[tuple[str, str], Any]] = WeakKeyDictionary()

    @property
    def source(self) -> str:
        """Where the answers come from: "OpenAI" or the server's address."""
        address = self._access.address
        return endpoint_of(address).name or split_query(address)[0]

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
                    yield event
        except UnknownModel as fault:
            raise self._access.without_key(await self._name_models(fault, request)) from None
        except FatalError as fault:
            raise self._access.without_key(fault) from None

    async def close(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

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
        names = [name for name in wires_of(address) if name in self._wires] or list(self._wires)
        for name in names:
            wire = self._wires[name]
            try:
                chunks = self._post(wire, request)
                decoder = wire.decoder(request, address)
                async with aclosing(read_answer(chunks, decoder)) as events:
                    async for event in events:
                        yield event
            except UnsupportedWire as fault:
                if name == names[-1]:
                    raise Fault(short_message(fault)) from None
            else:
                if len(self._wires) > 1:
                    remember_wire(address, name)
                return

    async def _post(self, wire: Wire, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Post the request and yield the answer's bytes as they arrive."""
        capture = request.capture or WireCapture()
        response = await self._answer_to(wire, request, capture)
        answer, address = response.http_response, self._access.address
        try:
            self._check_wire(wire, address, answer.headers)
            capture.begin(wire.name, answer.status_code, answer.headers)
            check_encoding(answer.headers)
            async for chunk in answer.aiter_bytes():
                capture.feed(chunk)
                yield chunk
        except transport_errors() as error:
            if is_timeout(error):
                capture.end("silent")
                raise silent(address, self._timeout) from None
            capture.end("cut")
            reason = brief(short_message(error)) or type(error).__name__
            raise cut_short(f"the connection to {address} broke: {reason}") from None
        finally:
            await response.close()

    async def _answer_to(self, wire: Wire, request: ModelRequest, capture: WireCapture) -> Any:
        """Post the request and return the response, of which the headers have arrived."""
        key, address = await self._access.key(), self._access.address
        # Imported in a thread, since the loop serves running commands and questions meanwhile; also
        # if another thread has begun the import.
        loop = asyncio.get_running_loop()
        openai = loaded_openai()
        if openai is None:
            openai = await loop.run_in_executor(None, load_openai)
        try:
            # The client's time-outs are per read; this one also ends headers that arrive byte by
            # byte.
            async with asyncio.timeout(self._timeout + CONNECT_TIMEOUT):
                return await self._client(openai, key, address).post(
                    wire.path,
                    cast_to=object,
                    content=wire.body(request, address),
                    options=OPTIONS,
                    stream=True,
                )
        except TimeoutError:
            capture.refuse(wire.name, None, "silent")
            raise silent(address, self._timeout) from None
        except openai.APIError as error:
            if getattr(error, "status_code", None) == 401:
                credentials.forget_key(address)
            how: Ending = "silent" if isinstance(error, openai.APITimeoutError) else "unreachable"
            capture.refuse(wire.name, error, how)
            if isinstance(error, openai.APIStatusError):
                self._check_wire(wire, address, error.response.headers)
            raise self._explain(openai, error, wire, request) from None

    def _check_wire(self, wire: Wire, address: str, headers: Mapping[str, str]) -> None:
        """Reject a wire API that was only tried if the server is known to have a better one.

        Raises:
            UnsupportedWire: it has.
        """
        tried = len(self._wires) > 1 and len(wires_of(address)) > 1
        if tried and has_better_wire(wire.name, headers):
            raise UnsupportedWire(f"{address} is better asked on another wire than the {wire.api}.")

    # -- connections ------------------------------------------------------------------------------

    def _client(self, openai: ModuleType, key: str, address: str) -> Any:
        """Return the HTTP client of this event loop for a key and an address."""
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        if (key, address) not in clients:
            bare, query = split_query(address)
            connections = bounded_client(openai)
            close_at_end(self, connections)
            clients[key, address] = openai.AsyncOpenAI(
                api_key=key,
                base_url=bare,
                timeout=openai.Timeout(self._timeout, connect=min(CONNECT_TIMEOUT, self._timeout)),
                max_retries=0,
                default_query=query or None,
                default_headers=self._access.key_headers(key),
                http_client=connections,
            )
        return clients[key, address]

    # -- errors -----------------------------------------------------------------------------------

    def _explain(
        self, openai: ModuleType, error: Any, wire: Wire, request: ModelRequest
    ) -> FatalError:
        address = self._access.address
        if isinstance(error, openai.APIStatusError):
            return explain_status(
                error,
                address=address,
                model=request.model,
                api=wire.api,
                key_way=way_to_mend(address),
            )
        if isinstance(error, openai.APITimeoutError):
            return silent(address, self._timeout)
        return explain_connection(error, address)

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
        openai = loaded_openai() or load_openai()
        client = self._client(openai, await self._access.key(), self._access.address)
        try:
            async with asyncio.timeout(MODELS_TIMEOUT):
                listed = await client.get(
                    "/models", cast_to=object, options={"follow_redirects": False}
                )
        except (openai.OpenAIError, TimeoutError, ValueError, RecursionError):
            return []
        rows = listed.get("data") if isinstance(listed, dict) else None
        rows = rows if isinstance(rows, list) else []
        names = (row.get("id") for row in rows[:MOST_MODELS] if isinstance(row, dict))
        return [brief(name) for name in names if isinstance(name, str)]
