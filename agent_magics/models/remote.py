"""The way to a server: key, address, connections, and which wire; the openai package has the bytes.

Of the package we keep authentication, time-outs and error classes. We step around two of its slow
paths: it would walk the whole history on every request, and build a model object for every streamed
event. So the request is bytes that are mostly there already, and the answer is read as bytes, of
which only the used events are parsed. Its own retries are off: ours are seen (`retry`).
"""

import asyncio
import difflib
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agent_magics.models.answer import AnswerDecoder, read_answer
from agent_magics.models.base import ModelEvent, ModelRequest
from agent_magics.models.endpoints import (
    LOOPBACK,
    OPENAI_ADDRESS,
    WireName,
    endpoint_of,
    is_azure,
    key_name_of,
    key_of,
    remember_wire,
    split_query,
    whole_address,
    wires_of,
)
from agent_magics.models.faults import (
    Fault,
    NoSuchDoor,
    UnknownModel,
    brief,
    cut_short,
    explain_connection,
    explain_status,
    silent,
)
from agent_magics.models.responses_wire import encode_answer
from agent_magics.models.retry import RetryPolicy, stream_with_retries
from agent_magics.protocol.errors import FatalError

WAYS_OUT = (
    "set OPENAI_API_KEY, or point OPENAI_BASE_URL at a local OpenAI-compatible server, "
    "or play a recording (replay=FILE)"
)
PLACEHOLDER_KEY = "local-server-needs-no-key"

# Seconds for a connection to come about, and for the list of a server's models.
CONNECT_TIMEOUT = 10.0
MODELS_TIMEOUT = 5.0

# The first is how the package's own `with_streaming_response` asks for the response unread.
HEADERS = {
    "X-Stainless-Raw-Response": "stream",
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
}


_openai: ModuleType | None = None


def load_openai() -> ModuleType:
    """Import the openai package (about half a second the first time); any thread may call this."""
    global _openai
    import openai  # noqa: PLC0415 - heavy, and not needed before the first request

    _openai = openai
    return openai


class Wire(Protocol):
    """One API: where it is, how a request is written, how an answer is read.

    Attributes:
        name: "responses" or "chat".
        api: its name for people.
        path: its address below the server's.
    """

    name: WireName
    api: str
    path: str

    def body(self, request: ModelRequest, address: str) -> bytes:
        """Return the request's body for the server at `address`."""
        ...

    def decoder(self, request: ModelRequest, address: str) -> AnswerDecoder:
        """Return what reads the answer to `request`."""
        ...


class RemoteModel:
    """A model at a server that speaks one of `wires`, or both.

    Args:
        wires: the wires that may be used; with both, which one is found out.
        api_key: the key; None takes the server's own variable, else OPENAI_API_KEY, at the time of
            the request.
        base_url: the address up to ``/v1``; None takes OPENAI_BASE_URL, else OpenAI's own.
        timeout: longest wait for the next byte, in seconds.
        retries: how often and after which waits a request is repeated.
    """

    def __init__(
        self,
        wires: Mapping[WireName, Wire],
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 300.0,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._wires = wires
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._retries = retries or RetryPolicy()
        self._clients: WeakKeyDictionary[Any, dict[tuple[str, str], Any]] = WeakKeyDictionary()

    @property
    def source(self) -> str:
        """Where the answers come from: "OpenAI" or the server's address."""
        address = self._address()
        return endpoint_of(address).name or split_query(address)[0]

    def secrets(self) -> tuple[str, ...]:
        """What must not be written anywhere."""
        key = self._api_key or key_of(self._address())
        return (key,) if key else ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send `request`; see `Model.stream`.

        Raises:
            FatalError: no key, wrong key, unknown model, no answer: one sentence for the person.
        """
        events = stream_with_retries(lambda: self._ask(request), self._retries)
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except UnknownModel as fault:
            raise self._without_key(await self._name_models(fault, request)) from None
        except FatalError as fault:
            raise self._without_key(fault) from None

    async def stream_bytes(self, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Send `request` and yield the answer as a Responses stream, for recording it.

        The same form for both wires; retries happen, but are not part of the answer.
        """
        async with aclosing(self.stream(request)) as events:
            async for event in events:
                data = encode_answer(event)
                if data:
                    yield data

    async def close(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

    # -- one request ------------------------------------------------------------------------------

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request, on the first wire that the server has."""
        address = self._address()
        names = [name for name in wires_of(address) if name in self._wires] or list(self._wires)
        for name in names:
            wire = self._wires[name]
            try:
                chunks = self._post(wire, request)
                decoder = wire.decoder(request, address)
                async with aclosing(read_answer(chunks, decoder)) as events:
                    async for event in events:
                        yield event
            except NoSuchDoor as fault:
                if name == names[-1]:
                    raise Fault(str(fault)) from None
            else:
                if len(self._wires) > 1:
                    remember_wire(address, name)
                return

    async def _post(self, wire: Wire, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Post the request and yield the answer's bytes as they come."""
        key, address = self._key(), self._address()
        # Off the loop, which serves running commands and questions meanwhile; also where another
        # thread is half-way through the import.
        loop = asyncio.get_running_loop()
        openai = _openai or await loop.run_in_executor(None, load_openai)
        try:
            response = await self._client(openai, key, address).post(
                wire.path,
                cast_to=object,
                content=wire.body(request, address),
                options={"headers": HEADERS},
                stream=True,
            )
        except openai.APIError as error:
            raise self._explain(openai, error, wire, request) from None
        try:
            async for chunk in response.http_response.aiter_bytes():
                yield chunk
        except _timeout_errors():
            raise silent(address, self._timeout) from None
        except _transport_errors() as error:
            reason = brief(str(error)) or type(error).__name__
            raise cut_short(f"the connection to {address} broke: {reason}") from None
        finally:
            await response.close()

    # -- key, address, connections ----------------------------------------------------------------

    def _address(self) -> str:
        return whole_address(self._base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_ADDRESS)

    def _key(self) -> str:
        address = self._address()
        key = self._api_key or key_of(address)
        if key:
            return key
        if urlsplit(address).hostname in LOOPBACK:
            return PLACEHOLDER_KEY
        raise FatalError(f"No API key for {address}: {_ways_out(address)}.")

    def _client(self, openai: ModuleType, key: str, address: str) -> Any:
        """Return this loop's client; a changed key or address makes another one."""
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        if (key, address) not in clients:
            bare, query = split_query(address)
            clients[key, address] = openai.AsyncOpenAI(
                api_key=key,
                base_url=bare,
                timeout=openai.Timeout(self._timeout, connect=min(CONNECT_TIMEOUT, self._timeout)),
                max_retries=0,
                default_query=query or None,
                # Azure takes its keys here, and only tokens in the usual header.
                default_headers={"api-key": key} if is_azure(address) else None,
            )
        return clients[key, address]

    # -- errors -----------------------------------------------------------------------------------

    def _explain(
        self, openai: ModuleType, error: Any, wire: Wire, request: ModelRequest
    ) -> FatalError:
        address = self._address()
        if isinstance(error, openai.APIStatusError):
            return explain_status(
                error,
                address=address,
                model=request.model,
                api=wire.api,
                key_name=key_name_of(address),
            )
        connected = not isinstance(error.__cause__, _connect_timeouts())
        if isinstance(error, openai.APITimeoutError) and connected:
            return silent(address, self._timeout)
        return explain_connection(error, address)

    def _without_key(self, fault: FatalError) -> FatalError:
        """Take the key out of what is said; providers quote a wrong one."""
        for secret in self.secrets():
            fault.args = tuple(
                part.replace(secret, "[API key]") if isinstance(part, str) else part
                for part in fault.args
            )
        return fault

    async def _name_models(self, fault: UnknownModel, request: ModelRequest) -> Fault:
        """Return the fault with the names of models there that are like the one asked for."""
        names = await self._models()
        near = difflib.get_close_matches(request.model, names, n=3, cutoff=0.5)
        if not near and len(names) <= 5:
            near = names
        known = f" It has: {', '.join(near)}." if near else ""
        return Fault(f"{fault}{'' if str(fault).endswith('.') else '.'}{known}")

    async def _models(self) -> list[str]:
        """Return the names of the server's models, [] where it does not say in time."""
        openai = _openai or load_openai()
        client = self._client(openai, self._key(), self._address())
        try:
            async with asyncio.timeout(MODELS_TIMEOUT):
                listed = await client.get("/models", cast_to=object)
        except (openai.OpenAIError, TimeoutError, ValueError):
            return []
        rows = listed.get("data") if isinstance(listed, dict) else None
        rows = rows if isinstance(rows, list) else []
        return [
            row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)
        ]


def _ways_out(address: str) -> str:
    name = key_name_of(address)
    return WAYS_OUT if name == "OPENAI_API_KEY" else f"set {name}, or {WAYS_OUT}"


def _connect_timeouts() -> tuple[type[Exception], ...]:
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.ConnectTimeout,)


def _timeout_errors() -> tuple[type[Exception], ...]:
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.TimeoutException,)


def _transport_errors() -> tuple[type[Exception], ...]:
    """What breaks while an answer is read comes from the package's transport, as its own errors."""
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.RequestError, httpx2.StreamError, OSError)
