"""Sends requests to a server over aiohttp; the only module that imports aiohttp."""

import asyncio
import io
import os
import ssl
import sys
import threading
import weakref
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magics._version import __version__
from agent_magics.models.access import ServerAccess
from agent_magics.models.bounds import DOCUMENT_BYTES, EVENT_BYTES, check_encoding, too_large
from agent_magics.models.faults import Fault, brief, cut_short, silent
from agent_magics.models.providers.endpoints import check_address, split_query
from agent_magics.models.refusals import explain_connection, proxy_to
from agent_magics.protocol.errors import FatalError, clause

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

CONNECT_TIMEOUT = 10.0  # seconds for establishing a connection
IDLE = 60.0  # seconds that an unused connection stays open
_LARGE = 1 << 20  # bytes of a body above which aiohttp warns that the event loop would wait for it
MOST_SAVED = 4 << 30  # bytes of a file that is fetched
# Seconds for a file, sent or fetched, and of silence meanwhile.
FILE, FILE_SILENT = 4 * 3600.0, 600.0

_is_loaded = False  # aiohttp

# Where distributions of Linux keep the certificates that they trust.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

OTHER_PROXY = (
    "Cannot connect to {address}: the environment names a proxy of the kind {kind}, and only those "
    "of http and https are used; name another one, or the server in NO_PROXY."
)
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
        with self._transport.explaining():
            async for chunk in _unpacked(self._response):
                yield chunk

    async def whole(self) -> Reply:
        """Return the answer with the beginning of its body, up to an error while reading."""
        content = bytearray()
        try:
            async with aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    content += chunk
                    if len(content) >= DOCUMENT_BYTES:
                        break
        except Fault:
            pass  # the status matters more than the body
        return Reply(self.status, self.headers, bytes(content[:DOCUMENT_BYTES]))

    def close(self) -> None:
        """Close the connection, unless the whole body was read: then another request uses it."""
        self._response.close()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Transport:
    """Open connections to one server.

    Attributes:
        address: the server's address.
        key: the key, to tell keys apart.
        timeout: longest wait for an answer, in seconds.
    """

    address: str
    key: str = field(repr=False)
    timeout: float
    # Sent with each request: those of a session go to the proxy too, and so would the key.
    _headers: Mapping[str, str] = field(repr=False)
    _session: "aiohttp.ClientSession" = field(repr=False)

    def url(self, path: str) -> "URL":
        """Return the address of a wire API below the server's address, as `post` takes it."""
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        bare, query = split_query(self.address)
        return URL(bare + path).with_query(query)

    async def post(self, url: "URL", body: bytes) -> Reply:
        """Send a body and return the answer.

        Raises:
            Fault: there is none.
        """
        return await self._send("POST", url, data=_payload(body))

    async def stream(self, url: "URL", body: bytes) -> Streamed:
        """Send a body and return the answer when its headers have arrived.

        Here the longest wait is that for the next bytes, not for the whole answer.

        Raises:
            Fault: there is none.
        """
        import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

        limits = aiohttp.ClientTimeout(
            sock_connect=min(CONNECT_TIMEOUT, self.timeout), sock_read=self.timeout
        )
        headers = {**self._headers, "Accept": "text/event-stream"}
        with self.explaining(before_answer=True):
            # The limits hold for each read; this one also ends headers that arrive byte by byte.
            async with asyncio.timeout(self.timeout + CONNECT_TIMEOUT):
                response = await self._session.post(
                    url,
                    data=_payload(body),
                    headers=headers,
                    allow_redirects=False,
                    timeout=limits,
                )
        return Streamed(response, self)

    async def get(self, url: "URL", to: Path | None = None) -> Reply:
        """Fetch a document; a successful one goes into the file `to`, where that is given.

        Raises:
            Fault: there is none.
            FatalError: the file cannot be written.
        """
        return await self._send("GET", url, to, **(_patient() if to else {}))

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
            headers = {**self._headers, **form.headers}
            return await self._send("POST", url, data=form, headers=headers, **_patient())

    async def _send(self, method: str, url: "URL", to: Path | None = None, **options: Any) -> Reply:
        options = {"headers": self._headers, "allow_redirects": False, **options}
        with self.explaining():
            async with self._session.request(method, url, **options) as response:
                if to is not None and response.status < 300:
                    content = await _save(response, to)
                else:
                    content = await _read(response)
                return Reply(response.status, response.headers, content)

    @contextmanager
    def explaining(self, *, before_answer: bool = False) -> Iterator[None]:
        """Raise errors of the network inside as faults.

        Args:
            before_answer: whether a connection that breaks now has brought nothing of an answer.
        """
        import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise explain_connection(error, self.address) from None
        except TimeoutError:
            raise silent(self.address, self.timeout) from None
        except (aiohttp.ClientError, OSError) as error:
            if before_answer:
                raise explain_connection(error, self.address) from None
            # The error's own text may hold the request, with the key.
            reason = brief(getattr(error, "message", "") or type(error).__name__)
            raise cut_short(f"the connection to {self.address} broke: {reason}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def _payload(body: bytes) -> bytes | io.BytesIO:
    """Return a body as aiohttp takes it: a large one as a file, so that it is sent in parts."""
    return body if len(body) <= _LARGE else io.BytesIO(body)


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
    except ValueError as error:
        raise FatalError(f"{address} {clause(error)}.") from None
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": f"agent-magics/{__version__}",
        **access.key_headers(key),
        **_account_headers(),
    }
    proxy = proxy_to(address) or None
    if proxy and not proxy.startswith(("http://", "https://")):
        raise FatalError(OTHER_PROXY.format(address=address, kind=proxy.partition(":")[0]))
    # Reading all certificates takes 50 ms.
    tls = _tls() if proxy or address.startswith("https://") else True
    session = aiohttp.ClientSession(
        # As many as the gate lets through.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, ssl=tls),
        timeout=aiohttp.ClientTimeout(total=longest, sock_connect=CONNECT_TIMEOUT),
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy,
        auto_decompress=False,  # without a bound; see `_unpacked`
    )
    transport = Transport(address, key, longest, headers, session)
    weakref.finalize(transport, _drop, session, asyncio.get_running_loop())
    return transport


def _drop(session: "aiohttp.ClientSession", loop: asyncio.AbstractEventLoop) -> None:
    """Close the connections of a transport that nobody has closed; aiohttp would complain."""
    if session.closed or not loop.is_running():
        return
    closing = asyncio.run_coroutine_threadsafe(session.close(), loop)
    if not threading.main_thread().is_alive():  # the program ends: nothing runs after this
        with suppress(TimeoutError):
            closing.result(1.0)


def _account_headers() -> dict[str, str]:
    """Return the headers that name the organization and the project, as OpenAI reads them."""
    names = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    return {header: os.environ[name] for header, name in names.items() if os.environ.get(name)}


def _tls() -> ssl.SSLContext:
    """Return the settings of TLS: certificates of this machine are trusted.

    SSL_CERT_FILE or SSL_CERT_DIR names others.
    """
    is_chosen = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    if sys.platform in ("darwin", "win32") and not is_chosen:
        import truststore  # noqa: PLC0415 - installed and needed only there

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    if not (is_chosen or ssl.get_default_verify_paths().cafile):
        # This Python may have been built for another distribution.
        bundle = next((each for each in _BUNDLES if Path(each).exists()), None)
        if bundle is not None:
            context.load_verify_locations(bundle)
    return context


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


def _patient() -> dict[str, Any]:
    """Return the limits of time for a file: a row's would be too short for it."""
    import aiohttp  # noqa: PLC0415 - imported by `load_aiohttp`

    limits = aiohttp.ClientTimeout(total=FILE, sock_connect=CONNECT_TIMEOUT, sock_read=FILE_SILENT)
    return {"timeout": limits}


async def _read(response: "aiohttp.ClientResponse") -> bytes:
    """Return an answer's body; of one with an error status its beginning.

    Raises:
        Fault: it is larger than any answer.
    """
    is_error = response.status >= 300
    limit = DOCUMENT_BYTES if is_error else EVENT_BYTES
    content = bytearray()
    async for chunk in _unpacked(response):
        content += chunk
        if len(content) > limit:
            break
    if len(content) > limit and not is_error:
        raise too_large("a document", EVENT_BYTES)
    return bytes(content[:limit])


async def _unpacked(response: "aiohttp.ClientResponse") -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a body, unpacked, each time all that have arrived.

    Raises:
        Fault: they are packed in a way without a bound, or unpack to more than any event.
    """
    check_encoding(response.headers)
    encoding = response.headers.get("content-encoding", "").strip().lower()
    unpacker = None
    while chunk := await response.content.readany():
        if encoding in ("", "identity"):
            yield chunk
            continue
        if unpacker is None:
            # Either header, or, as some servers send "deflate", none.
            is_bare = encoding == "deflate" and chunk[0] & 15 != zlib.DEFLATED
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)
        try:
            yield unpacker.decompress(chunk, EVENT_BYTES)
        except zlib.error as error:
            raise cut_short(f"it cannot be unpacked: {clause(error)}") from None
        if unpacker.unconsumed_tail:
            raise too_large("a part", EVENT_BYTES)
