"""Recordings as people read them: what an answer says, and where two recordings differ."""

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_magics.models.base import ItemDone
from agent_magics.models.chat import ChatDecoder
from agent_magics.models.cleaning import sse_bytes
from agent_magics.models.recording import Answer, Exchange, RecordedTurn, Recording, turns_of
from agent_magics.models.responses import ResponseDecoder
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
)

ENDINGS = {
    "error": "an error",
    "cut": "the connection broke",
    "silent": "nothing came for too long",
    "unreachable": "no connection",
}
# Lines of a tool's output that `diff` compares; of the rest only that it differs is of interest.
OUTPUT_LINES = 200


def items_of(answer: Answer) -> list[Item]:
    """Return what an answer consists of, as far as it can be read."""
    decoder = ChatDecoder() if answer.wire == "chat" else ResponseDecoder()
    events = []
    try:
        events += decoder.feed(sse_bytes(answer.sse))
        events += decoder.close()
    except FatalError:
        pass  # what came before the error counts
    return [event.item for event in events if isinstance(event, ItemDone)]


def calls_of(answer: Answer) -> list[str]:
    """Return the names of the tools that an answer calls, in order."""
    names = []
    for item in items_of(answer):
        if isinstance(item, LocalShellCall):
            names.append("local_shell")
        elif isinstance(item, (FunctionCall, CustomToolCall)):
            names.append(item.name)
    return names


def ending_of(exchange: Exchange) -> str:
    """Return in a few words how an exchange went, "" where nothing is to be said."""
    answer = exchange.answer
    said = ENDINGS.get(answer.ended, "")
    if said and answer.status not in (0, 200):
        said = f"status {answer.status}"
    tries = len(exchange.failed)
    asked_again = f"asked again {tries} time{'s' if tries > 1 else ''}" if tries else ""
    return ", ".join(filter(None, (asked_again, said)))


# -- what differs ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One prompt that two recordings answer differently.

    Attributes:
        prompt: the prompt.
        what: in a few words.
        lines: of a diff, "-" as in the first recording, "+" as in the second.
    """

    prompt: str
    what: str
    lines: tuple[str, ...] = ()


def differences(first: Recording, second: Recording) -> list[Difference]:
    """Return where `second` differs from `first`, in the order of the files.

    The n-th turn of a prompt is compared with the n-th of the other file, in whatever order they
    stand; what differs without meaning (names of turns, sizes of pieces) does not count.
    """
    left, right = _numbered(first), _numbered(second)
    found = []
    for key in (*left, *(key for key in right if key not in left)):
        if key not in right:
            found.append(Difference(key[0], "only in the first"))
        elif key not in left:
            found.append(Difference(key[0], "only in the second"))
        else:
            before, after = list(_lines_of(left[key])), list(_lines_of(right[key]))
            if before != after:
                found.append(Difference(key[0], "differs", _diff(before, after)))
    return found


def _numbered(recording: Recording) -> dict[tuple[str, int], RecordedTurn]:
    turns: dict[tuple[str, int], RecordedTurn] = {}
    for turn in turns_of(recording.exchanges):
        number = 1
        while (turn.prompt, number) in turns:
            number += 1
        turns[turn.prompt, number] = turn
    return turns


def _lines_of(turn: RecordedTurn) -> Iterator[str]:
    for exchange in turn.exchanges:
        yield f"request {exchange.number}"
        for output in exchange.outputs or ():
            yield from (f"  output: {line}" for line in output.splitlines()[:OUTPUT_LINES])
        for item in items_of(exchange.answer):
            yield from (f"  {line}" for line in _item_lines(item))
        ending = ending_of(exchange)
        if ending:
            yield f"  ({ending})"


def _item_lines(item: Item) -> list[str]:
    match item:
        case AssistantMessage(text):
            return [f"says: {line}" for line in text.splitlines()]
        case FunctionCall(name=name, arguments=arguments):
            return _call_lines(name, arguments)
        case CustomToolCall(name=name, input=text):
            return [f"calls {name}", *(f"  {line}" for line in text.splitlines())]
        case LocalShellCall(command=command):
            return [f"calls local_shell {json.dumps(command, ensure_ascii=False)}"]
    return []


def _call_lines(name: str, arguments: str) -> list[str]:
    """Return a call with one line for each argument and each line of a long one."""
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return [f"calls {name} {arguments}"]
    lines = [f"calls {name}"]
    for key, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"  {key}: {line}" for line in text.splitlines() or [""]]
    return lines


def _diff(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    lines = difflib.unified_diff(before, after, n=1, lineterm="")
    return tuple("…" if line.startswith("@@") else line for line in lines)[2:]
