"""Lists, fetches and cancels the batches that were sent and not taken in yet."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.batches.api import Batch, BatchApi, open_api
from agent_magics.rows.batches.ledger import Ledger, Sent
from agent_magics.rows.batches.results import FETCHED, fetch_results


async def refresh(settings: Settings, path: Path) -> list[Sent]:
    """Look at all batches of the settings' server once, and fetch the results of those that ended.

    Args:
        settings: name the server and the key.
        path: the file of answers.

    Returns:
        All batches that were not taken in yet, of any server.

    Raises:
        FatalError: the server does not answer, or the file cannot be used.
    """
    ledger = await asyncio.to_thread(Ledger, path)
    async with _opened(settings) as api:
        for sent in await asyncio.to_thread(ledger.all):
            if sent.server == api.address and sent.state != FETCHED:
                await _refresh(api, ledger, sent)
    return await asyncio.to_thread(ledger.all)


async def cancel(settings: Settings, path: Path, token: str) -> Sent:
    """End a batch at the provider; the next call of its map takes in what was answered.

    Args:
        settings, path: see `refresh`.
        token: our name of the batch, or its beginning.

    Raises:
        FatalError: there is no such batch, or the server does not end it.
    """
    ledger = await asyncio.to_thread(Ledger, path)
    named = [each for each in await asyncio.to_thread(ledger.all) if each.token.startswith(token)]
    if len(named) != 1:
        raise FatalError(f"{token!r} names {len(named)} batches; %agent map lists them.")
    (sent,) = named
    async with _opened(settings) as api:
        if sent.server != api.address:
            raise FatalError(f"This batch is at {sent.server}; the agent asks {api.address}.")
        batch = await _found(api, sent)
        if batch is not None and not batch.has_ended:
            batch = await api.cancel(batch.id)
        if batch is not None:
            update = ledger.update
            await asyncio.to_thread(update, sent.token, batch.id, batch.state, batch.completed)
    return sent


async def _refresh(api: BatchApi, ledger: Ledger, sent: Sent) -> None:
    batch = await _found(api, sent)
    if batch is None:  # the kernel ended before the provider had it
        await asyncio.to_thread(ledger.remove, sent.token)
        return
    state = batch.state
    if batch.has_ended and batch.files:
        await fetch_results(api, ledger, sent.token, batch)
        state = FETCHED
    await asyncio.to_thread(ledger.update, sent.token, batch.id, state, batch.completed)


async def _found(api: BatchApi, sent: Sent) -> Batch | None:
    return await (api.state(sent.id) if sent.id else api.find(sent.token))


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[BatchApi]:
    api = await open_api(settings)
    try:
        yield api
    finally:
        await api.close()
