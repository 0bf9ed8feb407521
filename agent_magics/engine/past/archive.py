"""Begins, forks and resumes the recorded conversations of one agent."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.engine.channels.rollout import Rollout
from agent_magics.engine.conversation import Conversation
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.records import VERSION, ConversationNamed, Entry, RecordBegun
from agent_magics.records.places import find, new_path
from agent_magics.text.brief import number_of


class Archive:
    """The conversations of one agent on disk.

    Args:
        agent: its name.
        folder: where they are recorded; None records none.
        describe: returns the first line of the record of a conversation, by its id.
        make_room: deletes old records; called when one was opened for writing.
    """

    def __init__(
        self,
        agent: str,
        folder: Path | None,
        describe: Callable[[str], RecordBegun] | None,
        make_room: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._folder = folder
        self._journals = None if folder is None else folder.with_name("changes")
        self._describe = describe or partial(_describe, agent)
        self._make_room = make_room

    def new(self) -> tuple[Conversation, Rollout | None]:
        """Return a new conversation and its recorder; nothing is written yet."""
        conversation = Conversation(self._agent, self._journals)
        if self._folder is None:
            return conversation, None
        return conversation, self._rollout(new_path(self._folder, conversation.id))

    def _recorded(self, doing: str) -> Path:
        """Return the folder of the records.

        Raises:
            FatalError: there is none.
        """
        if self._folder is None:
            raise FatalError(f"This session records nothing, so there is nothing to {doing}.")
        return self._folder

    def _rollout(self, path: Path) -> Rollout:
        return Rollout(path, partial(self._describe, path.stem), self._make_room)

    def fork(self, parent: Conversation, turn: int | None, name: str, *, running: str) -> str:
        """Record a new conversation that shares another one's past, and return its id.

        Args:
            parent: the other one, whose record has begun.
            turn: the last shared turn, counted from 1; None means the last that has ended.
            name: its name in lists.
            running: the id of the turn of `parent` that is running; "" where none is.

        Raises:
            FatalError: there is no such turn, or the record cannot be written.
        """
        # Late: few are forked.
        from agent_magics.file_history.journals import share_changes  # noqa: PLC0415
        from agent_magics.records.forking import share_past  # noqa: PLC0415
        from agent_magics.records.retention import remove  # noqa: PLC0415

        folder = self._recorded("fork")
        turns = parent.history.turns
        ended = len(turns) - bool(running and running in turns)
        turn = ended if turn is None else turn
        if not 0 <= turn <= ended:
            raise FatalError(
                f"This conversation has {number_of(ended, 'ended turn')}; there is no turn {turn}."
            )
        child = uuid.uuid4().hex
        path = new_path(folder, child)
        before = turns[turn] if turn < len(turns) else ""
        try:
            past = share_past(find(folder, parent.id), path, before)
            share_changes(folder.with_name("changes"), parent.id, child, turns[:turn])
            begun = replace(
                self._describe(child), past=past, memory=parent.memory, has_code=parent.has_code
            )
            _write(Rollout(path, lambda: begun), [ConversationNamed(name=name)] if name else [])
        except BaseException:
            remove(path)
            raise
        return child

    def rename(self, conversation: str, name: str) -> None:
        """Write a conversation's name into its record, which nobody else may be writing.

        Raises:
            FatalError: there is no such record, or it cannot be written.
        """
        path = find(self._recorded("name"), conversation)
        _write(self._rollout(path), [ConversationNamed(name=name)])

    def resume(
        self,
        conversation: str,
        namespace: Mapping[str, Any],
        take_up: Callable[[Conversation, Rollout, int], None],
    ) -> None:
        """Restore a recorded conversation, which continues in its record.

        Args:
            conversation: its id, or the beginning of it.
            namespace: the variables that are there now.
            take_up: puts it in the place of the present one; also gets its last event's number.

        Raises:
            FatalError: there is no such record, it cannot be used, or `take_up` refuses it.
        """
        # Late: most programs never resume a conversation.
        from agent_magics.engine.past.restoring import finish, restore  # noqa: PLC0415
        from agent_magics.records.reading import read_record  # noqa: PLC0415

        folder = self._recorded("resume")
        path = find(folder, conversation)
        rollout = self._rollout(path)
        with _opened(rollout):  # nobody else writes it from here on
            record = read_record(folder, path.stem)
            if record.is_damaged:
                rollout.set_aside(record.size)
            if record.begun.version < VERSION:
                rollout.write([self._describe(path.stem), *record.done])
            resumed = Conversation(self._agent, self._journals, path.stem)
            restore(resumed, record)
            take_up(resumed, rollout, record.last)
        finish(resumed, record, namespace)


def _write(rollout: Rollout, entries: Sequence[Entry]) -> None:
    """Append entries to a record, made where there is none; flush it to the disk and close it."""
    with _opened(rollout):
        rollout.write(entries)
    rollout.sync()
    rollout.close()


@contextmanager
def _opened(rollout: Rollout) -> Iterator[None]:
    """Open a record for writing; close it where the work in this context fails.

    Raises:
        FatalError: it cannot be read or written, or another kernel has locked it.
    """
    try:
        rollout.begin()
        yield
    except OSError as error:
        rollout.close()
        raise FatalError(f"{rollout.path} cannot be used: {clause(error)}.") from None
    except BaseException:
        rollout.close()
        raise


def _describe(agent: str, conversation: str) -> RecordBegun:
    return RecordBegun(conversation=conversation, agent=agent, at=time.time())
