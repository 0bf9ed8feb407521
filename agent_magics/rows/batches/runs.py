"""Lists, fetches and cancels the batches that were sent and not taken in yet."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.rows.batches.api import Batch, BatchApi, open_api
from agent_magics.rows.batches.ledger import Ledger, Sent
from agent_magics.rows.batches.results import FETCHED, fetch_results

GONE = "not at the provider"


async def refresh(settings: Settings, path: Path) -> dict[str, str]:
    """Look at all batches of the settings' server once, and fetch the results of those that ended.

    Args:
        settings: name the server and the key.
        path: the file of answers.

    Returns:
        By our name of a batch, why it could not be looked at or fetched.

    Raises:
        FatalError: there is no key, or the file cannot be used.
    """
    ledger = await asyncio.to_thread(Ledger, path)
    problems: dict[str, str] = {}
    async with _opened(settings) as api:
        for sent in await asyncio.to_thread(ledger.all):
            if sent.server == api.address and sent.state != FETCHED:
                try:
                    await _refresh(api, ledger, sent)
                except (FatalError, OSError) as problem:
                    problems[sent.token] = short_message(problem)
    return problems


async def cancel(settings: Settings, path: Path, token: str) -> Sent:
    """End a batch at the provider; the next call of its map takes in what was answered.

    A batch that the provider does not have is forgotten: the next call sends its rows again. So is
    one that has ended, and of whose rows all have an answer.

    Args:
        settings, path: see `refresh`.
        token: our name of the batch, or its beginning.

    Raises:
        FatalError: there is no such batch, or the server does not end it.
    """
    ledger = await asyncio.to_thread(Ledger, path)
    named = [each for each in await asyncio.to_thread(ledger.all) if each.token.startswith(token)]
    if len(named) != 1:
        problem = "begins the names of several batches" if named else "names no batch under way"
        raise FatalError(f"{token!r} {problem}; %agent map lists them.")
    (sent,) = named
    async with _opened(settings) as api:
        if sent.server != api.address:
            raise FatalError(f"This batch is at {sent.server}; the agent asks {api.address}.")
        batch = await _seen(api, ledger, sent)
        if batch is None:
            await asyncio.to_thread(ledger.remove, sent.token)
            return sent
        if not batch.has_ended:
            batch = await api.cancel(batch.id)
        if batch.has_ended and await asyncio.to_thread(ledger.is_answered, sent.token):
            await asyncio.to_thread(ledger.remove, sent.token)
        elif sent.state != FETCHED:
            update = ledger.update
            await asyncio.to_thread(update, sent.token, batch.id, batch.state, batch.completed)
    return sent


async def _refresh(api: BatchApi, ledger: Ledger, sent: Sent) -> None:
    batch = await _seen(api, ledger, sent)
    if batch is None:
        raise FatalError(GONE)
    state = batch.state
    if batch.has_ended and batch.files:
        await fetch_results(api, ledger, sent.token, batch)
        state = FETCHED
    await asyncio.to_thread(ledger.update, sent.token, batch.id, state, batch.completed)


async def _seen(api: BatchApi, ledger: Ledger, sent: Sent) -> Batch | None:
    """Return a batch as the provider shows it; None where it shows none.

    Raises:
        FatalError: a kernel is sending it now, or the server does not say.
    """
    if await asyncio.to_thread(ledger.is_being_sent, sent.token):
        raise FatalError("being sent")
    return await api.seen(sent.id, sent.token)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[BatchApi]:
    api = await open_api(settings)
    try:
        yield api
    finally:
        await api.close()
