"""Runs in a worker: makes the described sub-agent, and lets it work on one prompt.

All that happens is sent to the kernel as it would be recorded, and the questions with it; the
kernel sends answers, messages for the sub-agent, and its stop. The key of the model server comes
over the connection and stays in the memory of this process.
"""

import asyncio
import itertools
import os
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from agent_magics.dispatch.pool import POOL
from agent_magics.elsewhere.description import (
    Description,
    check_folders,
    offer_of,
    output_of,
    tools_of,
)
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.engine.file_changes.turn import DiffTracker
from agent_magics.engine.session import Session
from agent_magics.engine.thread import shared_engine
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.exec.environment import command_environment
from agent_magics.file_history.writers import Writers
from agent_magics.files.trusted_imports import distrust
from agent_magics.models.base import Model
from agent_magics.models.error_redaction import keys_in_address
from agent_magics.models.provider import open_model
from agent_magics.models.providers.keys import environment_keys
from agent_magics.protocol.codec import from_json, to_json
from agent_magics.protocol.errors import FatalError, own_or_typed_message
from agent_magics.protocol.events import TURN_ENDS, Event
from agent_magics.protocol.items import Usage
from agent_magics.protocol.ops import Answer
from agent_magics.protocol.records import Entry
from agent_magics.rows.engines.link import Link
from agent_magics.rows.engines.worker import Invitation, ModelSource, join
from agent_magics.tools.files.path_judge import PathJudge

# Seconds between signs of life, and without one after which the other side is given up.
TICK, SILENT = 3.0, 30.0


def attend(
    invitation: Invitation, description: Description, tls: ssl.SSLContext | None = None
) -> str:
    """Work as a sub-agent until its prompt is answered; a task of the engine.

    Raises:
        FatalError: the kernel cannot be reached.
    """
    shared_engine().spawn(_attend(invitation, description, tls)).result()
    return ""


async def _attend(
    invitation: Invitation, description: Description, tls: ssl.SSLContext | None
) -> None:
    link = await join(invitation, tls)
    ticking = asyncio.create_task(tick(link))
    try:
        async with asyncio.timeout(SILENT):
            word, data = await link.read()
        if word == "begin":
            await _work(link, description, data)
    except (EOFError, TimeoutError):
        pass  # the kernel is gone, or does not want it any more
    finally:
        ticking.cancel()
        await link.end()


async def _work(link: Link, description: Description, begun: Mapping[str, Any]) -> None:
    parent = ParentElsewhere(link)
    session = Session(shared_engine(), description.path, None)
    session.conversation.id = begun["conversation"]
    session.outbox.record_in(SentRecord(link))
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(event: Event) -> None:
        if isinstance(event, TURN_ENDS) and not ended.done():
            ended.set_result(None)

    model: Model | None = None
    listening: asyncio.Task[None] | None = None
    try:
        source = ModelSource(**begun["model"])
        model = source.replayed() or open_model(
            source.wire_api, api_key=source.key, base_url=source.address
        )
        turn_config = await asyncio.to_thread(_turn_config, description, source, model, parent)
        session.begin(from_json(begun["op"]), turn_config, hear)
        listening = asyncio.create_task(_listen(link, session, parent))
        await asyncio.wait({ended, listening}, return_when=asyncio.FIRST_COMPLETED)
    except Exception as error:  # whatever it is, the kernel has to know
        link.send("failed", own_or_typed_message(error))
    finally:
        if listening is not None:
            listening.cancel()
        await asyncio.wrap_future(POOL.submit(session.close))
        session.outbox.close()
        if model is not None:
            await model.close()


def _turn_config(
    description: Description, source: ModelSource, model: Model, parent: "ParentElsewhere"
) -> TurnConfig:
    """Return the configuration of the turn; on a thread, since modules are imported.

    Raises:
        FatalError: something of it is not there.
    """
    config = description.config
    check_folders(config.roots)
    distrust(config.roots)
    specs, registry = tools_of(description)
    return TurnConfig(
        config=config,
        open_model=lambda: model,
        offer=offer_of(specs),
        registry=registry,
        specs=specs,
        env=command_environment(os.environ),
        validate_path=PathJudge(config),
        secrets=(source.key, *keys_in_address(source.address), *environment_keys(os.environ)),
        output=output_of(description),
        asker=description.path,
        parent=parent,
    )


async def _listen(link: Link, session: Session, parent: "ParentElsewhere") -> None:
    """Do what the kernel says, until it is gone or silent."""
    try:
        while True:
            async with asyncio.timeout(SILENT):
                message = await link.read()
            match message:
                case ["op", op]:
                    session.submit(from_json(op))
                case ["answer", number, answer]:
                    parent.answer(number, from_json(answer))
                case ["unanswered", number, error]:
                    parent.answer(number, FatalError(error))
    except (EOFError, FatalError, TimeoutError):
        return


async def tick(link: Link) -> None:
    """Send a sign of life to the kernel at intervals."""
    while True:
        link.send("alive")
        await asyncio.sleep(TICK)


class ParentElsewhere:
    """The parent of a sub-agent in another process; see `turn_config.Parent`.

    Charges need no word of their own: the record that is sent has each.

    Args:
        link: the connection to it.

    Attributes:
        writers: the last writers of files, of this process only.
        main_thread, ask_client: None, since nobody here waits for the run.
    """

    main_thread = ask_client = None

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self.writers = Writers()

    async def ask(self, kind: Any, **fields: Any) -> Answer:
        """Ask the person, in the kernel."""
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._link.send("ask", number, to_json(kind(question_id="", **fields)))
        try:
            return await answer
        finally:
            del self._asked[number]
            if answer.cancelled():
                self._link.send("withdraw", number)

    def answer(self, number: int, answer: Answer | FatalError) -> None:
        """Take the person's answer to a question, or why there is none."""
        asked = self._asked.get(number)
        if asked is None or asked.done():
            return
        if isinstance(answer, FatalError):
            asked.set_exception(answer)
        else:
            asked.set_result(answer)

    def charge(self, model: str, usage: Usage) -> None:
        """Do nothing: see the class."""

    def find_tracker(self) -> DiffTracker | None:
        """Return None: what changes here is in no turn of the parent."""
        return None


class SentRecord(Rollout):
    """The record of a conversation, sent to the kernel as it is written."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def begin(self) -> None:
        """Do nothing: the kernel has begun the record."""

    def write(self, happened: Iterable[Event | Entry]) -> bool:
        """Send what happened, in order."""
        self._link.send("happened", [to_json(each) for each in happened])
        return True

    def sync(self) -> None:
        """Do nothing: the kernel does this."""

    def close(self) -> None:
        """Do nothing: the kernel does this."""
