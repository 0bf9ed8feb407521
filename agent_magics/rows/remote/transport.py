"""Posts requests over aiohttp and reads whole answers; the only module that imports aiohttp."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magics.models.access import ServerAccess
from agent_magics.models.bounds import DOCUMENT_BYTES, EVENT_BYTES, check_encoding, too_large
from agent_magics.models.faults import brief, cut_short, silent
from agent_magics.models.providers.endpoints import split_query
from agent_magics.models.refusals import explain_connection, proxy_to
from agent_magics.models.wires.remote import CONNECT_TIMEOUT
from agent_magics.protocol.errors import FatalError, clause

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

IDLE = 60.0  # seconds that an unused connection stays open
MOST_SAVED = 4 << 30  # bytes of a file that is fetched
# Seconds for a file, sent or fetched, and of silence meanwhile.
FILE, FILE_SILENT = 4 * 3600.0, 600.0

NOT_SAVED = "{path} cannot be written ({reason})."


class Reply(NamedTuple):
    """An HTTP answer; names of headers in any case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Transport:
    """Open connections to one server; the key stands only in the session's headers.

    Attributes:
        address: the server's address.
        key: the key, to tell keys apart.
        timeout: longest wait for an answer, in seconds.
    """

    address: str
    key: str = field(repr=False)
    timeout: float
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
        return await self._send("POST", url, data=body)

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
        import aiohttp  # noqa: PLC0415 - imported by `connect`

        with aiohttp.MultipartWriter("form-data") as form, file.open("rb") as content:
            for name, value in fields.items():
                form.append(value).set_content_disposition("form-data", name=name)
            part = form.append(content, {"Content-Type": "application/jsonl"})
            part.set_content_disposition("form-data", name="file", filename="rows.jsonl")
            return await self._send("POST", url, data=form, headers=form.headers, **_patient())

    async def _send(self, method: str, url: "URL", to: Path | None = None, **options: Any) -> Reply:
        import aiohttp  # noqa: PLC0415 - imported by `connect`

        try:
            async with self._session.request(
                method, url, allow_redirects=False, **options
            ) as response:
                check_encoding(response.headers)
                if to is not None and response.status < 300:
                    content = await _save(response, to)
                else:
                    content = await _read(response)
                return Reply(response.status, response.headers, content)
        except aiohttp.ClientConnectorError as error:
            raise explain_connection(error, self.address) from None
        except aiohttp.ConnectionTimeoutError as error:
            raise explain_connection(error, self.address) from None
        except TimeoutError:
            raise silent(self.address, self.timeout) from None
        except (aiohttp.ClientError, OSError) as error:
            # The error's own text may hold the request, with the key.
            reason = brief(getattr(error, "message", "") or type(error).__name__)
            raise cut_short(f"the connection to {self.address} broke: {reason}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def connect(access: ServerAccess, longest: float) -> Transport:
    """Return connections to the server of `access`; each is opened when it is needed.

    Args:
        access: its address and key.
        longest: longest wait for an answer, in seconds.

    Raises:
        FatalError: there is no key for it, or its address is none.
    """
    import aiohttp  # noqa: PLC0415 - 0.1 s, and not needed before the first map

    address, key = access.address, await access.key()
    if not split_query(address)[0].startswith(("http://", "https://")):
        raise FatalError(
            f"{address} is no address of a server: it begins with https:// or http://."
        )
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
        **access.key_headers(key),
    }
    proxy = proxy_to(address) or None
    # Reading all certificates takes 50 ms.
    tls = _tls() if proxy or address.startswith("https://") else True
    session = aiohttp.ClientSession(
        # As many as the gate lets through.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, ssl=tls),
        timeout=aiohttp.ClientTimeout(total=longest, sock_connect=CONNECT_TIMEOUT),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        proxy=proxy,
    )
    return Transport(address, key, longest, session)


def _tls() -> ssl.SSLContext:
    """Return the settings of TLS that the openai package has: the same certificates are trusted."""
    import httpx2  # noqa: PLC0415 - comes with openai

    return httpx2.create_ssl_context()


async def _save(response: "aiohttp.ClientResponse", to: Path) -> bytes:
    """Write an answer's body into a file that only the person can read; return b"".

    Raises:
        Fault: it is larger than any batch's results.
        FatalError: the file cannot be written.
    """
    import aiohttp  # noqa: PLC0415 - imported by `connect`

    size = 0
    try:
        with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            async for part in response.content.iter_chunked(1 << 20):
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
    import aiohttp  # noqa: PLC0415 - imported by `connect`

    limits = aiohttp.ClientTimeout(total=FILE, sock_connect=CONNECT_TIMEOUT, sock_read=FILE_SILENT)
    return {"timeout": limits}


async def _read(response: "aiohttp.ClientResponse") -> bytes:
    """Return an answer's body; of one with an error status its beginning.

    Raises:
        Fault: it is larger than any answer.
    """
    is_error = response.status >= 300
    limit = DOCUMENT_BYTES if is_error else EVENT_BYTES
    content = await response.content.readany()
    while not response.content.at_eof():
        if len(content) > limit:
            break
        content += await response.content.readany()
    if len(content) > limit and not is_error:
        raise too_large("a document", EVENT_BYTES)
    return content[:limit]
