"""The way to a server: key, address, connections, and which wire; the openai package has the bytes.

Of the package we keep authentication, time-outs and error classes. We step around two of its slow
paths: it would walk the whole history on every request, and build a model object for every streamed
event. So the request is bytes that are mostly there already, and the answer is read as bytes, of
which only the used events are parsed. Its own retries are off: ours are seen (`retry`).
"""

import asyncio
import difflib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

from agent_magics.models import credentials
from agent_magics.models.answer import AnswerDecoder, read_answer
from agent_magics.models.answer_schema import is_refusal
from agent_magics.models.base import ModelEvent, ModelRequest
from agent_magics.models.endpoints import (
    WireName,
    endpoint_of,
    has_better_wire,
    remember_wire,
    server_address,
    split_query,
    wires_of,
)
from agent_magics.models.faults import (
    Fault,
    NoSuchDoor,
    UnknownModel,
    brief,
    cut_short,
    silent,
)
from agent_magics.models.hiding import keys_in_address
from agent_magics.models.keys import (
    is_local,
    key_of,
    shared_key_of,
    way_to_mend,
    ways_to_give,
)
from agent_magics.models.refusals import explain_connection, explain_status
from agent_magics.models.retry import RetryPolicy, stream_with_retries
from agent_magics.models.sdk import (
    connect_timeouts,
    load_openai,
    loaded_openai,
    timeout_errors,
    transport_errors,
)
from agent_magics.models.tape import Tape
from agent_magics.protocol.errors import FatalError

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
# No redirects: a key in a header of its own (Azure's) would go along to another host.
OPTIONS = {"headers": HEADERS, "follow_redirects": False}


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
    """A model at a server that speaks one of `WIRES`, or both; then which one is found out.

    Args:
        api_key: the key; None takes the one that the environment, a login or the keyring has for
            the server's host, at the time of the request.
        base_url: the address up to ``/v1``; None takes OPENAI_BASE_URL, else OpenAI's own.
        timeout: longest wait for the next byte, in seconds.
        retries: how often and after which waits a request is repeated.
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
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._retries = retries or RetryPolicy()
        self._without_schema: set[tuple[str, str]] = set()
        self._clients: WeakKeyDictionary[Any, dict[tuple[str, str], Any]] = WeakKeyDictionary()

    @property
    def source(self) -> str:
        """Where the answers come from: "OpenAI" or the server's address."""
        address = self._address()
        return endpoint_of(address).name or split_query(address)[0]

    def secrets(self) -> tuple[str, ...]:
        """What must not be written anywhere."""
        address = self._address()
        key = self._api_key or key_of(address) or shared_key_of(address)
        held = (*credentials.held_keys(), *keys_in_address(address))
        return (key, *held) if key else held

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
            raise self._without_key(await self._name_models(fault, request)) from None
        except FatalError as fault:
            raise self._without_key(fault) from None

    async def close(self) -> None:
        """Close this loop's connections; the next request opens new ones."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()

    # -- one request ------------------------------------------------------------------------------

    async def _ask_with_schema(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make one request; where the server refuses the schema of its answer, without."""
        place = (self._address(), request.model)
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
            if request.tape is not None:
                request.tape.answers.pop()  # of a recording only what was of use
        async with aclosing(self._ask(replace(request, output_schema=None))) as events:
            async for event in events:
                yield event

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
        key, address = await self._key(), self._address()
        # Off the loop, which serves running commands and questions meanwhile; also where another
        # thread is half-way through the import.
        loop = asyncio.get_running_loop()
        openai = loaded_openai() or await loop.run_in_executor(None, load_openai)
        tape = request.tape or Tape()
        try:
            response = await self._client(openai, key, address).post(
                wire.path,
                cast_to=object,
                content=wire.body(request, address),
                options=OPTIONS,
                stream=True,
            )
        except openai.APIError as error:
            if getattr(error, "status_code", None) == 401:
                credentials.forget_key(address)
            how = "silent" if isinstance(error, openai.APITimeoutError) else "unreachable"
            tape.refuse(wire.name, error, how)
            if isinstance(error, openai.APIStatusError):
                self._check_wire(wire, address, error.response.headers)
            raise self._explain(openai, error, wire, request) from None
        try:
            self._check_wire(wire, address, response.http_response.headers)
            tape.begin(
                wire.name, response.http_response.status_code, response.http_response.headers
            )
            async for chunk in response.http_response.aiter_bytes():
                tape.feed(chunk)
                yield chunk
        except timeout_errors():
            tape.end("silent")
            raise silent(address, self._timeout) from None
        except transport_errors() as error:
            tape.end("cut")
            reason = brief(str(error)) or type(error).__name__
            raise cut_short(f"the connection to {address} broke: {reason}") from None
        finally:
            await response.close()

    def _check_wire(self, wire: Wire, address: str, headers: Mapping[str, str]) -> None:
        """Leave a wire that was only tried, where the server says that it has a better one.

        Raises:
            NoSuchDoor: it has.
        """
        tried = len(self._wires) > 1 and len(wires_of(address)) > 1
        if tried and has_better_wire(wire.name, headers):
            raise NoSuchDoor(f"{address} is better asked on another wire than the {wire.api}.")

    # -- key, address, connections ----------------------------------------------------------------

    def _address(self) -> str:
        return server_address(self._base_url)

    async def _key(self) -> str:
        """Return the key for the server; where it is kept is asked off the loop, since it may wait.

        Raises:
            FatalError: there is none, or it is kept where it cannot be read.
        """
        address = self._address()
        key = self._api_key or key_of(address)
        if key:
            return key
        if credentials.knows_about(address):
            found = credentials.stored_key(address)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(None, credentials.stored_key, address)
        if found is not None:
            return found.value
        if key := shared_key_of(address):
            return key
        if is_local(address):
            return PLACEHOLDER_KEY
        credentials.forget_key(address)
        raise FatalError(f"No API key for {address}: {ways_to_give(address)}.")

    def _client(self, openai: ModuleType, key: str, address: str) -> Any:
        """Return this loop's client; a changed key or address makes another one."""
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        if (key, address) not in clients:
            bare, query = split_query(address)
            header = endpoint_of(address).key_header
            clients[key, address] = openai.AsyncOpenAI(
                api_key=key,
                base_url=bare,
                timeout=openai.Timeout(self._timeout, connect=min(CONNECT_TIMEOUT, self._timeout)),
                max_retries=0,
                default_query=query or None,
                default_headers={header: key} if header else None,
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
                key_way=way_to_mend(address),
            )
        connected = not isinstance(error.__cause__, connect_timeouts())
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
        openai = loaded_openai() or load_openai()
        client = self._client(openai, await self._key(), self._address())
        try:
            async with asyncio.timeout(MODELS_TIMEOUT):
                listed = await client.get(
                    "/models", cast_to=object, options={"follow_redirects": False}
                )
        except (openai.OpenAIError, TimeoutError, ValueError):
            return []
        rows = listed.get("data") if isinstance(listed, dict) else None
        rows = rows if isinstance(rows, list) else []
        return [
            row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)
        ]
