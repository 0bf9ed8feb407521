"""Sends requests to a server over aiohttp; the only module that imports aiohttp."""

import asyncio
import io
import os
import threading
import weakref
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magics._version import __version__
from agent_magics.models.access import ServerAccess
from agent_magics.models.bounds import DOCUMENT_BYTES, EVENT_BYTES, check_encoding, too_large
from agent_magics.models.environment import account_headers, trust, usable_proxy
from agent_magics.models.faults import ALL_TRIES, Fault, cut_short, silent
from agent_magics.models.providers.endpoints import NO_ADDRESS, check_address, split_query
from agent_magics.models.refusals import explain_connection
from agent_magics.protocol.errors import FatalError, clause

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

CONNECT_TIMEOUT = 10.0  # seconds for establishing a connection
IDLE = 60.0  # seconds that an unused connection stays open
_LARGE = 1 << 20  # bytes of a body above which aiohttp warns that it is sent in one part
MOST_SAVED = 4 << 30  # bytes of a file that is fetched
# Seconds for a file, sent or fetched, and of silence meanwhile.
FILE, FILE_SILENT = 4 * 3600.0, 600.0

_is_loaded = False  # aiohttp
NOT_SAVED = "{path} cannot be written ({reason})."


class Reply(NamedTuple):
    """An HTTP answer; names of headers in any case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Streamed:
    """An HTTP answer whose body is read as it arrives; close it.

    Args:
        response: the answer, of which the headers have arrived.
        transport: the connection's own.

    Attributes:
        status: its status.
        headers: its headers; their names in any case.
    """

    def __init__(self, response: "aiohttp.ClientResponse", transport: "Transport") -> None:
        self._response, self._transport = response, transport
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body's bytes, each time all that have arrived.

        Raises:
            Fault: they are compressed without a bound, stop coming, or the connection breaks.
        """
        with self._transport.reading():
            async for chunk in _unpacked(self._response):
                yield chunk

    def close(self) -> None:
        """Close the connection, unless the whole body was read: then another request uses it."""
        self._response.close()


class _Headers(dict[str, str]):
    """The headers of a request; their repr, which tracebacks and debuggers show, has no values."""

    def __repr__(self) -> str:
        return f"<{len(self)} headers>"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Transport:
    """Open connections to one server.

    Attributes:
        address: the server's address.
        key: the key, to tell keys apart.
        timeout: longest wait for an answer, in seconds.
    """

    address: str = field(repr=False)  # it may hold a login
    key: str = field(repr=False)
    timeout: float
    # Sent with each request: those of a session go to the proxy too, and so would the key.
    _headers: "_Headers" = field(repr=False)
    _session: "aiohttp.ClientSession" = field(repr=False)
    # Those that may be read yet.
    _answers: "weakref.WeakSet[aiohttp.ClientResponse]" = field(
        repr=False, default_factory=weakref.WeakSet
    )

    def url(self, path: str) -> "URL":
        """Return the address of a wire API below the server's address, as `post` takes it."""
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        bare, query = split_query(self.address)
        return URL(bare + path).with_user(None).with_query(query)

    async def post(self, url: "URL", body: bytes, *, again: bool = False) -> Reply:
        """Send a body and return the answer.

        Args:
            again: whether to send it again over another connection where one that was kept open
                breaks. The server may have acted on it, so not what begins something (RFC 9110,
                9.2.2).

        Raises:
            Fault: there is none.
        """
        return await self._send("POST", url, body=body, again=again)

    async def stream(self, url: "URL", body: bytes) -> Streamed | Reply:
        """Send a body and return the answer when its headers have arrived, one with an error status
        when it has arrived as a whole.

        Here the longest wait is that for the next bytes, not for the whole answer.

        Raises:
            Fault: there is none.
        """
        headers = _Headers(self._headers, Accept="text/event-stream")
        limits = _limits(None, self.timeout)
        # The limits hold for each read; this one also ends what arrives byte by byte.
        longest = self.timeout + CONNECT_TIMEOUT
        try:
            async with asyncio.timeout(longest):
                response = await self._open(
                    "POST", url, body, again=True, headers=headers, timeout=limits
                )
        except TimeoutError:
            raise silent(self.address, self.timeout) from None
        if _is_success(response.status):
            return Streamed(response, self)
        async with response:
            return Reply(response.status, response.headers, await _read(response, longest))

    async def get(self, url: "URL", to: Path | None = None) -> Reply:
        """Fetch a document; a successful one goes into the file `to`, where that is given.

        Raises:
            Fault: there is none.
            FatalError: the file cannot be written.
        """
        options = {"timeout": _limits(FILE, FILE_SILENT)} if to else {}
        return await self._send("GET", url, to, **options)

    async def upload(self, url: "URL", file: Path, fields: Mapping[str, str]) -> Reply:
        """Send a file, read as it goes, with some fields as a form.

        Raises:
            Fault: there is no answer.
            OSError: the file cannot be read.
        """
        import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

        with aiohttp.MultipartWriter("form-data") as form, file.open("rb") as content:
            for name, value in fields.items():
                form.append(value).set_content_disposition("form-data", name=name)
            part = form.append(content, {"Content-Type": "application/jsonl"})
            part.set_content_disposition("form-data", name="file", filename="rows.jsonl")
            headers = _Headers(self._headers, **form.headers)
            limits = _limits(FILE, FILE_SILENT)
            return await self._send("POST", url, data=form, headers=headers, timeout=limits)

    async def _send(self, method: str, url: "URL", to: Path | None = None, **options: Any) -> Reply:
        with self.reading():
            async with await self._open(method, url, **options) as response:
                if to is not None and _is_success(response.status):
                    content = await _save(response, to)
                else:
                    content = await _read(response)
                return Reply(response.status, response.headers, content)

    async def _open(
        self,
        method: str,
        url: "URL",
        body: bytes | None = None,
        *,
        again: bool = False,
        **options: Any,
    ) -> "aiohttp.ClientResponse":
        """Send a request and return the answer, of which the headers have arrived."""
        import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

        options = {"headers": self._headers, "allow_redirects": False, **options}
        try:
            if body is None:
                response = await self._session.request(method, url, **options)
            else:
                response = await self._post(url, body, again, options)
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.ClientResponseError,
        ) as error:
            raise explain_connection(error, self.address) from None
        except TimeoutError:
            raise silent(self.address, self.timeout) from None
        except (aiohttp.ClientError, OSError) as error:  # of a server that was reached
            raise explain_connection(error, self.address, tries=ALL_TRIES) from None
        self._answers.add(response)
        return response

    async def _post(
        self, url: "URL", body: bytes, again: bool, options: Mapping[str, Any]
    ) -> "aiohttp.ClientResponse":
        """Send a body; if `again`, once more for each kept connection that breaks before an answer.

        A server may close a kept connection at any time (RFC 9112, 9.5), so also just before a
        request reaches it.
        """
        import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

        while True:
            kept: list[bool] = []
            sending = self._session.post(
                url, data=_payload(body), trace_request_ctx=kept, **options
            )
            try:
                return await sending
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                if not (again and kept):
                    raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise errors of the network inside, where an answer is read, as faults."""
        import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

        try:
            yield
        except TimeoutError:
            raise silent(self.address, self.timeout) from None
        except (aiohttp.ClientError, OSError):
            # The error's own text may hold the request, with the key.
            raise cut_short(f"the connection to {self.address} broke") from None

    async def close(self) -> None:
        """Close the connections; answers that are being read end in a fault."""
        for each in self._answers:  # which aiohttp would let wait for ever
            each.close()
        await self._session.close()


def _is_success(status: int) -> bool:
    """Return whether an HTTP status is one of success."""
    return 200 <= status < 300


def _limits(total: float | None, silence: float) -> "aiohttp.ClientTimeout":
    """Return limits of time, in seconds.

    Args:
        total: for the whole exchange, or None.
        silence: for each read, and for a connection if that is less than its own limit.
    """
    import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

    # With the answer of a proxy and TLS, which `sock_connect` leaves out.
    connect = min(CONNECT_TIMEOUT, silence)
    return aiohttp.ClientTimeout(total=total, connect=connect, sock_read=silence)


class _Whole(io.BytesIO):
    """A body that is sent in one part: after a part that a server no longer takes, aiohttp would
    not read what it had answered (413).
    """

    def read(self, _size: int | None = None, /) -> bytes:
        return super().read()


def _payload(body: bytes) -> bytes | io.BytesIO:
    """Return a body as aiohttp takes it: of large ones in bytes it would warn."""
    return body if len(body) <= _LARGE else _Whole(body)


def _note_reuse() -> "aiohttp.TraceConfig":
    """Return what notes in a request's list that it is sent over a connection that was kept."""
    import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

    async def note(_session: Any, trace: Any, _params: Any) -> None:
        if trace.trace_request_ctx is not None:
            trace.trace_request_ctx.append(True)

    watch = aiohttp.TraceConfig()
    watch.on_connection_reuseconn.append(note)
    return watch


def load_aiohttp() -> ModuleType:
    """Import aiohttp (0.1 s the first time); callable from any thread."""
    global _is_loaded
    import aiohttp  # noqa: PLC0415 - heavy, and not needed before the first request

    _is_loaded = True
    return aiohttp


async def await_aiohttp() -> None:
    """Import aiohttp in a thread: the event loop serves running commands and questions meanwhile.

    So also where another thread has begun to import it.
    """
    if not _is_loaded:
        await asyncio.get_running_loop().run_in_executor(None, load_aiohttp)


async def connect(access: ServerAccess, longest: float) -> Transport:
    """Return connections to the server of `access`; each is opened when it is needed.

    Args:
        access: its address and key.
        longest: longest wait for an answer, in seconds.

    Raises:
        FatalError: there is no key for it, or its address is none.
    """
    await await_aiohttp()
    return open_transport(access, await access.key(), longest)


def open_transport(access: ServerAccess, key: str, longest: float) -> Transport:
    """Do the same as `connect` with a key that is known; on the loop that is to use it."""
    aiohttp, address = load_aiohttp(), access.address
    try:
        check_address(address)
    except ValueError:
        raise FatalError(f"{address} {NO_ADDRESS}") from None
    headers = _Headers(
        {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"agent-magics/{__version__}",
        }
        | account_headers()
        | access.key_headers(key)
    )
    proxy = usable_proxy(address)
    # Reading all certificates takes 50 ms.
    tls = trust() if proxy or address.lower().startswith("https:") else True
    session = aiohttp.ClientSession(
        # As many as the gate lets through.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, ssl=tls),
        timeout=_limits(longest, longest),
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy or None,
        auto_decompress=False,  # without a bound; see `_unpacked`
        trace_configs=[_note_reuse()],
    )
    transport = Transport(address, key, longest, headers, session)
    weakref.finalize(transport, _drop, session, asyncio.get_running_loop(), os.getpid())
    return transport


def _drop(session: "aiohttp.ClientSession", loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Close the connections of a transport that nobody has closed; aiohttp would complain."""
    if session.closed or os.getpid() != process:  # in a forked process no loop runs
        return
    if loop.is_closed():
        with suppress(StopIteration):  # without anything to wait for
            session.close().send(None)
    elif loop.is_running():
        closing = asyncio.run_coroutine_threadsafe(session.close(), loop)
        if not threading.main_thread().is_alive():  # the program ends: nothing runs after this
            with suppress(TimeoutError):
                closing.result(1.0)


async def _save(response: "aiohttp.ClientResponse", to: Path) -> bytes:
    """Write an answer's body into a file that only the person can read; return b"".

    Raises:
        Fault: it is larger than any batch's results.
        FatalError: the file cannot be written.
    """
    import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

    size = 0
    try:
        with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            async for part in _unpacked(response):
                size += len(part)
                if size > MOST_SAVED:
                    raise too_large("a document", MOST_SAVED)
                file.write(part)
    except (aiohttp.ClientError, ConnectionError, TimeoutError):
        raise  # also an OSError, but the network's
    except OSError as error:
        raise FatalError(NOT_SAVED.format(path=to, reason=clause(error))) from None
    return b""


async def _read(response: "aiohttp.ClientResponse", longest: float | None = None) -> bytes:
    """Return an answer's body; of one with an error status the beginning, up to an error while
    reading: the status matters more.

    Args:
        longest: seconds that it may take, besides the limits of the request.

    Raises:
        Fault: it is larger than any answer.
    """
    import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

    is_error = not _is_success(response.status)
    limit = DOCUMENT_BYTES if is_error else EVENT_BYTES
    content = bytearray()
    try:
        async with asyncio.timeout(longest):
            async for chunk in _unpacked(response):
                content += chunk
                if len(content) > limit:
                    break
    except (Fault, aiohttp.ClientError, OSError):
        if not is_error:
            raise
    if len(content) > limit and not is_error:
        raise too_large("a document", EVENT_BYTES)
    return bytes(content[:limit])


# How a member of gzip begins: several may follow each other (RFC 1952, 2.2).
_MEMBER = b"\x1f\x8b"


async def _unpacked(response: "aiohttp.ClientResponse") -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a body, unpacked, each time all that have arrived.

    Raises:
        Fault: they are packed in a way without a bound, or unpack to more than any event.
    """
    encoding = ", ".join(response.headers.getall("content-encoding", ())).strip().lower()
    check_encoding(encoding)
    unpacker, packed = None, b""
    while chunk := await response.content.readany():
        if encoding in ("", "identity"):
            yield chunk
            continue
        packed += chunk
        while packed:
            if unpacker is None:
                # Either header, or, as some servers send "deflate", none.
                is_bare = encoding == "deflate" and packed[0] & 15 != zlib.DEFLATED
                unpacker = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)
            elif unpacker.eof:
                if not _MEMBER.startswith(packed[:2]):
                    return
                if len(packed) < 2:
                    break
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield unpacker.decompress(packed, EVENT_BYTES)
            except zlib.error as error:
                raise cut_short(f"it cannot be unpacked: {clause(error)}") from None
            if unpacker.unconsumed_tail:
                raise too_large("a part", EVENT_BYTES)
            packed = unpacker.unused_data
