"""Imports the openai package when it is needed, and names the errors of its HTTP transport."""

import asyncio
import gc
import logging
import os
import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from agent_magics.models.bounds import DOCUMENT_BYTES, is_bounded_encoding
from agent_magics.models.error_redaction import NO_KEY, keys_in_address, without_keys
from agent_magics.models.providers.credentials import held_keys
from agent_magics.models.providers.keys import environment_keys, given_keys
from agent_magics.protocol.errors import short_message
from agent_magics.text.secrets import KEY_SHAPES

# The loggers that write the addresses of requests, which may hold a key.
_LOGGERS = ("httpx2", "openai._base_client")
_ADDRESS = re.compile(r"(?<!\w)\w++://\S+")
_KEY = re.compile(KEY_SHAPES)
_openai: ModuleType | None = None


def loaded_openai() -> ModuleType | None:
    """Return the openai package if it has been imported."""
    return _openai


def load_openai() -> ModuleType:
    """Import the openai package (about half a second the first time); callable from any thread."""
    global _openai
    with _uncollected():
        import httpcore2  # noqa: F401, PLC0415 - else its client does when it is made, on the loop
        import openai  # noqa: PLC0415 - heavy, and not needed before the first request

    _openai = openai
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(hide_keys)  # a second time changes nothing
    return openai


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile: an import makes hundreds of thousands of objects that last, at
    which each collection would look anew.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def hide_keys(record: logging.LogRecord) -> bool:
    """Remove keys from a log record, whatever its arguments are (a filter): those in addresses, and
    those that a server repeats in its headers.
    """
    try:
        known = (*given_keys, *environment_keys(os.environ), *held_keys())
        text = _KEY.sub(NO_KEY, without_keys(record.getMessage(), known))
        record.msg = _ADDRESS.sub(_without_keys, text)
    except Exception:  # logging would print the arguments
        record.msg = "A log record could not be formatted."
    record.args = ()
    return True


def _without_keys(address: re.Match[str]) -> str:
    try:
        return without_keys(address[0], keys_in_address(address[0]))
    except ValueError:  # no address, but perhaps with a key
        return "[address]"


def is_timeout(error: BaseException) -> bool:
    """Return whether a connected server was silent for too long.

    The openai package's client over aiohttp calls it a `ConnectTimeout` that a connection was
    refused, broke, or was not accepted in time.
    """
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    is_named_so = isinstance(error, httpx2.TimeoutException)
    return is_named_so and not isinstance(error, httpx2.ConnectTimeout)


def transport_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a connection that breaks while an answer is read."""
    import httpx2  # noqa: PLC0415 - comes with openai, which is loaded by now

    return (httpx2.RequestError, httpx2.StreamError, OSError)


# Headers that describe the original body, which is replaced here.
_ABOUT_BODY = ("content-type", "content-length", "content-encoding", "transfer-encoding")


def bounded_client(openai: ModuleType) -> Any:
    """Return an HTTP client that reads at most `DOCUMENT_BYTES` of an answer that is not a stream.

    It is the package's own over aiohttp, whose parser is C: a turn takes a quarter less of a
    processor than over its other one.

    The openai package would read errors and lists whole, decompress them, and decode them as their
    headers say (``charset=zlib``); here they are truncated, and decoded as UTF-8. Streams are not
    affected.
    """
    import aiohttp  # noqa: PLC0415 - imported by openai, which is loaded by now
    import httpx2  # noqa: PLC0415 - comes with openai

    class Client(openai.DefaultAioHttpClient):  # type: ignore[misc, name-defined] # imported late
        async def send(self, request: object, *, stream: bool = False, **options: Any) -> Any:
            try:
                response = await super().send(request, stream=True, **options)
            except aiohttp.ClientResponseError as error:  # which the package does not translate
                raise httpx2.RemoteProtocolError(error.message) from None
            except httpx2.ConnectTimeout as error:
                raise httpx2.ConnectError(short_message(error)) from error.__cause__
            if stream and response.is_success:
                return response
            is_json = "json" in response.headers.get("content-type", "")
            headers = {k: v for k, v in response.headers.items() if k not in _ABOUT_BODY}
            headers["content-type"] = "application/json" if is_json else "text/plain"
            return httpx2.Response(
                response.status_code,
                headers=headers,
                content=await _read_some(response),
                request=response.request,
            )

    return Client()


def close_at_end(owner: object, client: Any) -> None:
    """Close an HTTP client when its owner is dropped or the program ends.

    aiohttp complains about connections that nobody has closed.
    """
    weakref.finalize(owner, _close, client, asyncio.get_running_loop())


def _close(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    if client.is_closed or not loop.is_running():
        return
    closing = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
    if not threading.main_thread().is_alive():  # the program ends: nothing runs after this
        with suppress(TimeoutError):
            closing.result(1.0)


async def _read_some(response: Any) -> bytes:
    """Return the beginning of a response's body, up to an error while reading."""
    content = bytearray()
    try:
        if not is_bounded_encoding(response.headers):
            return b""
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) >= DOCUMENT_BYTES:
                break
    except transport_errors():
        pass  # the status matters more than the body
    finally:
        await response.aclose()
    return bytes(content[:DOCUMENT_BYTES])
