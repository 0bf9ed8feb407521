"""Calls a provider's batch API: files and batches, as OpenAI documents them.

https://developers.openai.com/api/docs/guides/batch has the limits, the states, and the forms of
requests and results.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magics.models.access import ServerAccess
from agent_magics.models.error_redaction import shown_address
from agent_magics.models.faults import Fault, UnsupportedWire, brief
from agent_magics.models.provider import MODEL_CLASSES
from agent_magics.models.providers.endpoints import wires_of
from agent_magics.models.retry import RetryPolicy
from agent_magics.models.transport import Reply, Transport, connect
from agent_magics.models.wires.remote import Wire, refusal_of
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.remote.client import TIMEOUT

WINDOW = "24h"
ENDED = frozenset(("completed", "failed", "expired", "cancelled"))
# What the batches of this package carry, by which one is found whose id could not be recorded.
TOKEN = "agent_magics_batch"
_PAGES = 20  # of 100 batches, in which one is looked for

NO_BATCHES = "{address} has no batch API: leave out batch=True. Nothing was asked."
FULL = "token_limit_exceeded"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the provider reports it.

    Attributes:
        id: its id at the provider.
        state: "validating", "in_progress", "finalizing", "cancelling", or one of `ENDED`.
        completed, failed, total: requests, as far as the provider has counted them.
        files: ids of the files with results: answers, then errors.
        problem: why it failed; "" where it did not.
        is_full: whether it failed since too much of the person's waits already.
        expires_at: seconds since the epoch; 0 where it is not known.
    """

    id: str
    state: str
    completed: int = 0
    failed: int = 0
    total: int = 0
    files: tuple[str, ...] = ()
    problem: str = ""
    is_full: bool = False
    expires_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether its results are final."""
        return self.state in ENDED


class BatchApi:
    """The batch API of one server.

    Args:
        access: its address and key.
        transport: connections to it.
        wire: the wire API of the requests in batches.

    Attributes:
        address: the server's, without a login, since batches are written down with it.
    """

    def __init__(self, access: ServerAccess, transport: Transport, wire: Wire) -> None:
        self._access, self._transport, self.wire = access, transport, wire
        self._retries = RetryPolicy()
        self.address = shown_address(transport.address)

    def without_key(self, text: str) -> str:
        """Return a text of the server without our key, which providers quote."""
        return str(self._access.without_key(FatalError(text)))

    async def check(self) -> None:
        """Find out whether the server has a batch API; costs nothing.

        Raises:
            FatalError: it has none, or does not let us use it.
        """
        try:
            await self._list("")
        except UnsupportedWire:
            raise FatalError(NO_BATCHES.format(address=self.address)) from None

    async def upload(self, file: Path) -> str:
        """Send a file of requests; return its id.

        Raises:
            FatalError: the server does not take it.
        """
        url = self._transport.url("/files")
        reply = await self._repeat(lambda: self._transport.upload(url, file, {"purpose": "batch"}))
        return _text(_document(reply), "id")

    async def create(self, file_id: str, token: str) -> Batch:
        """Begin a batch of an uploaded file; one that was begun under `token` is returned.

        Raises:
            FatalError: the server does not begin it.
        """
        asked = {
            "input_file_id": file_id,
            "endpoint": f"/v1{self.wire.path}",
            "completion_window": WINDOW,
            "metadata": {TOKEN: token},
        }
        url, body = self._transport.url("/batches"), json.dumps(asked).encode()
        tries = 0

        async def create() -> Reply:
            nonlocal tries
            tries += 1
            # The answer to the first try may have been lost, though not the batch.
            if tries > 1 and (there := await self.find(token)) is not None:
                there_url = self._transport.url(f"/batches/{_part(there.id)}")
                return await self._transport.get(there_url)
            return await self._transport.post(url, body)

        return _batch(_document(await self._repeat(create)))

    async def state(self, batch_id: str) -> Batch:
        """Return the present state of a batch.

        Raises:
            FatalError: the server does not say.
        """
        batch = await self.seen(batch_id, "")
        if batch is None:
            raise FatalError(f"{self.address} has no batch {batch_id}.")
        return batch

    async def seen(self, batch_id: str, token: str) -> Batch | None:
        """Return the present state of a batch, by its id or, where that is "", by `token`.

        Returns:
            None where the server has none, or none that this key may see.

        Raises:
            FatalError: the server does not say.
        """
        if not batch_id:
            return await self.find(token)
        url = self._transport.url(f"/batches/{_part(batch_id)}")
        reply = await self._repeat(lambda: self._transport.get(url), also=404)
        return None if reply.status == 404 else _batch(_document(reply))

    async def cancel(self, batch_id: str) -> Batch:
        """End a batch; requests that were answered stay answered, and are charged.

        Raises:
            FatalError: the server does not.
        """
        url = self._transport.url(f"/batches/{_part(batch_id)}/cancel")
        return _batch(_document(await self._repeat(lambda: self._transport.post(url, b""))))

    async def find(self, token: str) -> Batch | None:
        """Return the batch that was begun under `token`; None where there is none.

        Raises:
            FatalError: the server does not list its batches.
        """
        after = ""
        for _ in range(_PAGES):
            document = await self._list(after)
            batches = _objects(document.get("data"))
            for each in batches:
                if _object(each.get("metadata")).get(TOKEN) == token:
                    return _batch(each)
            if not document.get("has_more") or not batches:
                break
            after = _text(batches[-1], "id")
        return None

    async def download(self, file_id: str, to: Path) -> None:
        """Fetch a file of results.

        Raises:
            FatalError: the server does not give it, or the file `to` cannot be written.
        """
        url = self._transport.url(f"/files/{_part(file_id)}/content")
        await self._repeat(lambda: self._transport.get(url, to))

    async def close(self) -> None:
        """Close connections."""
        await self._transport.close()

    async def _list(self, after: str) -> Mapping[str, Any]:
        url = self._transport.url("/batches").update_query({"limit": "100"})
        if after:
            url = url.update_query({"after": after})
        return _document(await self._repeat(lambda: self._transport.get(url)))

    async def _repeat(self, send: Callable[[], Awaitable[Reply]], also: int = 200) -> Reply:
        """Return a successful answer, or one with the status `also`; ask again what may succeed."""
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = await send()
                if reply.status < 300 or reply.status == also:
                    return reply
                raise refusal_of(reply, self.address, "", "batch API")
            except Fault as fault:
                delay = self._retries.delay(attempt, fault)
                if delay is None:
                    raise self._access.without_key(fault) from None
            await self._retries.wait(delay)


async def open_api(settings: Settings) -> BatchApi:
    """Return the batch API of the server of some settings.

    Raises:
        FatalError: there is no key, or its address is none.
    """
    access = ServerAccess(settings.api_key, settings.base_url)
    transport = await connect(access, TIMEOUT)
    wires = {wire.name: wire for wire in MODEL_CLASSES[settings.wire_api].WIRES}
    known = [name for name in wires_of(transport.address) if name in wires]
    return BatchApi(access, transport, wires[(known or list(wires))[0]]())


def _document(reply: Reply) -> Mapping[str, Any]:
    try:
        document = json.loads(reply.content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        beginning = brief(reply.content[:60].decode("utf-8", "replace"))
        raise FatalError(f"The batch API gave an answer that is none: {beginning!r}.")
    return document


def _batch(document: Mapping[str, Any]) -> Batch:
    counts = _object(document.get("request_counts"))
    errors = _objects(_object(document.get("errors")).get("data"))
    files = (document.get("output_file_id"), document.get("error_file_id"))
    return Batch(
        _text(document, "id"),
        _text(document, "status"),
        _count(counts.get("completed")),
        _count(counts.get("failed")),
        _count(counts.get("total")),
        tuple(each for each in files if isinstance(each, str) and each),
        brief("; ".join(str(each.get("message", "")) for each in errors[:3])),
        any(each.get("code") == FULL for each in errors),
        _count(document.get("expires_at")),
    )


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not (value and value.isprintable() and len(value) <= 200):
        raise FatalError(f"The batch API gave an answer without {name!r}.")
    return value


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 53 else 0


def _part(given: str) -> str:
    """Return an id as a part of an address; a server's text must not choose another address."""
    if not given.replace("-", "").replace("_", "").isalnum() or len(given) > 200:
        raise FatalError(f"The batch API gave an id that is none: {brief(given)!r}.")
    return given


def hours_left(batch: Batch) -> str:
    """Return how long a batch may still take, for people."""
    left = batch.expires_at - time.time() if batch.expires_at else 24 * 3600.0
    return f"at most {max(left, 0) / 3600:.0f} h"
