"""Restores a conversation from its record by applying the recorded entries again."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agent_magics.dispatch.results.sources import StoredText, TextSource
from agent_magics.dispatch.results.written import read_value
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.past.variables import compare, tell_differences
from agent_magics.protocol import records
from agent_magics.protocol.errors import FatalError, typed_message
from agent_magics.protocol.events import CellChanged, PlanUpdated, SubAgentChanged, VariablesKnown
from agent_magics.protocol.items import (
    CALL_TYPES,
    Item,
    ToolCallOutput,
    UserMessage,
    output_kind_of,
    text_of,
)
from agent_magics.records.reading import Done, Record

KERNEL_ENDED = (
    "Not finished: the kernel ended while it ran; whether it did its work is not known. Look "
    "before you do it again."
)
NOT_SENT = "Not sent, since the kernel ended before it: {}"
REDACTED = (
    "A key that stood in this conversation was not recorded; the model reads [redacted] in its "
    "place."
)

NO_CALL = (
    "Outputs without their call, which no provider takes, are left out of the record: {count}."
)


def restore(conversation: Conversation, record: Record) -> None:
    """Apply a record's entries to an empty conversation that is not recorded.

    Raises:
        FatalError: an entry has values of other types than ours, so it is not ours.
    """
    try:
        _restore(conversation, record)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise FatalError(
            f"Conversation {conversation.id} is not resumed: its record was changed by another "
            f"program ({typed_message(error)})."
        ) from error


def _restore(conversation: Conversation, record: Record) -> None:
    redacted = False
    conversation.memory, conversation.has_code = record.begun.memory, record.begun.has_code
    entries = list(_answered(record.done))
    for done in entries:
        _do(conversation, done)
        redacted |= isinstance(done, records.ItemAdded | records.HistoryShortened) and done.redacted
    conversation.files.changed = record.changed
    _check_calls(conversation.history.items)
    _check_calls(conversation.history.sent)
    not_sent = map(NOT_SENT.format, _waiting(record.done))
    conversation.notices = [n.text for n in entries if isinstance(n, records.NoticeWaiting)]
    for text in _untold(record.done):
        conversation.tell(text)
    lost = len(record.done) - len(entries)
    no_call = [NO_CALL.format(count=lost)] if lost else []
    conversation.notes = [*record.notes, *no_call, *([REDACTED] if redacted else []), *not_sent]


def _answered(entries: Iterable[Done]) -> Iterator[Done]:
    """Yield the entries without outputs whose call is missing; later counts of items follow."""
    open_calls = Counter[str]()
    count, lost = 0, list[int]()  # items, missing ones too; the places of outputs that are left out
    for done in entries:
        item = done.item if isinstance(done, records.ItemAdded) else None
        count += item is not None
        if _answers_nothing(item, open_calls):
            count += 1  # its call
            lost.append(count)
            continue
        if isinstance(done, records.HistoryShortened):
            gone = 2 * sum(place <= done.replaced for place in lost)
            yield replace(done, replaced=max(0, done.replaced - gone))
        else:
            yield done


def _check_calls(items: Sequence[Item]) -> None:
    """Raise a ValueError for what every provider refuses.

    That is a call without an id, and an output without its call.
    """
    if any(isinstance(item, (*CALL_TYPES, ToolCallOutput)) and not item.call_id for item in items):
        raise ValueError("a call has no id")
    open_calls = Counter[str]()
    if any(_answers_nothing(item, open_calls) for item in items):
        raise ValueError("an output answers no call")


def _answers_nothing(item: Item | None, open_calls: Counter[str]) -> bool:
    """Return whether an item is an output without its call; count calls and their outputs."""
    if isinstance(item, CALL_TYPES):
        open_calls[item.call_id or ""] += 1
    if not isinstance(item, ToolCallOutput) or not item.call_id:
        return False
    if open_calls[item.call_id] > 0:
        open_calls[item.call_id] -= 1
        return False
    return True


def _waiting(entries: Sequence[Done]) -> list[str]:
    """Return what the person added to the last turn and the model had not got."""
    last, heard = "", list[str]()
    for done in reversed(entries):
        match done:
            case records.ItemAdded(item=UserMessage(content=content)):
                heard.append(text_of(content))
            case records.TurnOpened(turn_id=turn_id):
                last = last or turn_id
            case records.AdditionsWaiting(turn_id=turn_id, texts=texts):
                left = Counter(texts) - Counter(heard)
                return list(left.elements()) if last in ("", turn_id) else []
    return []


def _untold(entries: Sequence[Done]) -> list[str]:
    """Return what the model was to be told with a request that was not made."""
    waiting = list[str]()
    for done in entries:
        match done:
            case records.NoticeWaiting(text=text):
                waiting.append(text)
            case records.ItemAdded(item=UserMessage(content=content, role="developer")):
                told = text_of(content)  # all that waited, and what was not on record
                waiting = [text for text in waiting if text not in told]
    return waiting


def _do(conversation: Conversation, done: Done) -> None:
    match done:
        case records.ItemAdded(item=item):
            conversation.history.append(item)
        case records.HistoryShortened(items=items, replaced=replaced):
            if not 0 <= replaced <= len(conversation.history.items):
                raise ValueError(f"{replaced} items were replaced, more than there are")
            conversation.history.shorten(items, replaced)
        case records.TurnOpened(turn_id=turn_id):
            conversation.begin_turn(turn_id)
        case records.TurnsTakenBack(turn_id=turn_id):
            with suppress(ValueError):  # the line that began the turn is missing
                conversation.take_back(turn_id)
        case records.TurnsRestored():
            conversation.restore()
        case _:
            _recall(conversation, done)


def _recall(conversation: Conversation, done: Done) -> None:
    """Apply an entry about state beside the history."""
    match done:
        case records.ContextCounted():
            conversation.meter.count(done)
        case records.RequestCharged(model=model, usage=usage, of_sub_agent=of_sub_agent):
            conversation.charge(model, usage, of_sub_agent=of_sub_agent)
        case records.ToolsFound(names=names):
            conversation.found = dict.fromkeys(names)
        case records.ServersTold(told=told):
            conversation.reported_servers = dict(told)
        case PlanUpdated(steps=steps):
            conversation.plan = tuple(steps)
        case SubAgentChanged(sub_agent=name):
            conversation.sub_agents[name] = done
        case VariablesKnown(variables=variables):
            conversation.know(variables)
        case CellChanged():
            conversation.cell_changes.append(done)
        case records.ResultKept():
            source = _source_of(done)
            conversation.handles.restore(done.name, source, done.what, done.reads, done.known)


def _source_of(kept: records.ResultKept) -> TextSource | None:
    if kept.text is None:
        return None
    return read_value(kept.form, kept.text, kept.digest) if kept.form else StoredText(kept.text)


def finish(conversation: Conversation, record: Record, namespace: Mapping[str, Any]) -> None:
    """Answer the calls that the kernel's end left open, and notify the model of what is lost.

    What was shown and not yet in the history joins it.
    """
    history = conversation.history
    for call in history.open_calls:
        output = record.outputs.get(call.call_id or "", KERNEL_ENDED)
        history.append(ToolCallOutput(call.call_id or "", output, output_kind_of(call)))
    if record.prompt:
        history.append(UserMessage(record.prompt))
    conversation.differences = compare(conversation.variables, namespace)
    told = [tell_differences(conversation.differences)]
    if record.sessions:
        named = ", ".join(f"{name} ({command})" for name, command in record.sessions.items())
        told.append(f"These command sessions ended with the kernel: {named}.")
        conversation.notes.append(told[-1])
    for text in filter(None, told):  # found anew by each resume
        conversation.tell(text, is_kept=False)
