"""Reads the lines of a batch's results: the key of a row, and its answer or error."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from agent_magics.models.bounds import EVENT_BYTES
from agent_magics.models.faults import Fault, brief
from agent_magics.models.wires.remote import Wire
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.rows.asking import RowAnswer, Terms
from agent_magics.rows.batches.api import Batch, BatchApi
from agent_magics.rows.batches.ledger import Ledger
from agent_magics.rows.remote.exchange import read_answer, request_of

FETCHED = "fetched"  # the state in a ledger of what `fetch_results` has fetched


class Result(NamedTuple):
    """One line of results: the row's key, and its answer or error."""

    key: bytes
    answer: RowAnswer


async def fetch_results(api: BatchApi, ledger: Ledger, token: str, batch: Batch) -> list[Path]:
    """Return the files of a batch's results; what was fetched before is not fetched again.

    Raises:
        FatalError: the server does not give them.
        OSError: they cannot be written.
    """
    folder = await asyncio.to_thread(ledger.folder)
    for number, file_id in enumerate(batch.files):
        path = folder / f"{token}.{number}.results"
        if not path.exists():
            # Of one name for each who fetches: two kernels may.
            beside = path.with_suffix(f".{uuid.uuid4().hex}.part")
            try:
                await api.download(file_id, beside)
                beside.replace(path)
            finally:
                with suppress(OSError):
                    beside.unlink()
    return sorted(folder.glob(f"{token}.*.results"))


def read_results(path: Path, wire: Wire, terms: Terms, address: str) -> Iterator[list[Result]]:
    """Yield the results of a file in lists; malformed lines are left out.

    Args:
        path: the file of results, or of errors.
        wire: the wire API of the requests.
        terms: what all questions share.
        address: the server's address.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        group: list[Result] = []
        while line := file.readline(EVENT_BYTES + 1):
            result = _result(line, wire, terms, address)
            if result is not None:
                group.append(result)
            if len(group) == 200:
                yield group
                group = []
        yield group


def _result(line: bytes, wire: Wire, terms: Terms, address: str) -> Result | None:
    try:
        document = json.loads(line)
        key = bytes.fromhex(document["custom_id"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return Result(key, _answer(document, wire, terms, address))


def _answer(document: Any, wire: Wire, terms: Terms, address: str) -> RowAnswer:
    response, error = document.get("response"), document.get("error")
    status = response.get("status_code") if isinstance(response, dict) else None
    status = status if type(status) is int and 0 <= status < 1_000 else None
    body = response.get("body") if isinstance(response, dict) else None
    if status == 200:
        content = json.dumps(body).encode()
        request = request_of(terms, ())
        try:
            return read_answer(content, wire, request, address, batched=True)
        except FatalError as fault:
            kind = fault.kind if isinstance(fault, Fault) else "refused"
            return RowAnswer(error=short_message(fault), kind=kind, cost=0.0)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        error = body["error"]
    said = error if isinstance(error, dict) else {}
    named = brief(str(said.get("code") or "no answer"))
    kind = f"status {status}" if status is not None else named
    reason = brief(str(said.get("message") or "no reason given"))
    return RowAnswer(error=f"{kind.replace('_', ' ')}: {reason}", kind=kind, cost=0.0)
