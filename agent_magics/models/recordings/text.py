"""Formats recordings for people, and tells where two differ and which turns are whole."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from agent_magics.models.base import ItemDone
from agent_magics.models.recordings.cleaning import sse_bytes
from agent_magics.models.recordings.format import (
    Exchange,
    RecordedAnswer,
    RecordedTurn,
    Recording,
    prompt_key,
    turns_of,
)
from agent_magics.models.wires.chat.model import ChatDecoder
from agent_magics.models.wires.responses.model import ResponseDecoder
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
    json_object,
)
from agent_magics.text.brief import number_of
from agent_magics.text.differences import changed_lines

ENDINGS = {
    "error": "an error",
    "cut": "the connection broke",
    "silent": "nothing came for too long",
    "unreachable": "no connection",
}
# Lines of a tool's output that are compared.
OUTPUT_LINES = 200


def items_of(answer: RecordedAnswer) -> list[Item]:
    """Return the items of a recorded answer, up to a malformed event."""
    decoder = ChatDecoder() if answer.wire == "chat" else ResponseDecoder()
    events = []
    try:
        events += decoder.feed(sse_bytes(answer.sse))
        events += decoder.close()
    except FatalError:
        pass  # keep the items before the error
    return [event.item for event in events if isinstance(event, ItemDone)]


def calls_of(answer: RecordedAnswer) -> list[str]:
    """Return the names of the tools that an answer calls, in order."""
    calls = (item for item in items_of(answer) if isinstance(item, CALL_TYPES))
    return ["local_shell" if isinstance(each, LocalShellCall) else each.name for each in calls]


# How the prompts of sub-agents begin (`delegation`), in the white space of `prompt_key`.
_OF_SUB_AGENT = re.compile(r"(Task of|Message to) ([^\s:]+/[^\s:]+): ")


def words_of(prompt: str) -> str:
    """Return a turn's prompt without the name of the sub-agent that it is for, if any."""
    return _OF_SUB_AGENT.sub("", prompt, 1)


def with_sub_agents(turns: Sequence[RecordedTurn], prompts: set[str]) -> set[str]:
    """Return `prompts` and those of the sub-agents that their turns have started, at any depth."""
    tasks = {task for turn in turns if turn.prompt in prompts for task in _tasks_in(turn)}
    found = prompts | {turn.prompt for turn in turns if _is_of(turn.prompt, tasks, prompts)}
    return found if found == prompts else with_sub_agents(turns, found)


def _tasks_in(turn: RecordedTurn) -> Iterator[str]:
    """Yield the tasks that a turn has given to sub-agents."""
    for exchange in turn.exchanges:
        for item in items_of(exchange.answer) if "spawn_agent" in exchange.answer.sse else ():
            if isinstance(item, FunctionCall) and item.name == "spawn_agent":
                yield prompt_key(str((json_object(item.arguments) or {}).get("task")))


def _is_of(prompt: str, tasks: Collection[str], prompts: Collection[str]) -> bool:
    """Tell whether a prompt is one of `tasks`, or a message to who has got one of `prompts`."""
    begin = _OF_SUB_AGENT.match(prompt)
    if begin is not None and begin[1] == "Message to":
        return any(each.startswith(f"Task of {begin[2]}: ") for each in prompts)
    words = f"{words_of(prompt)} "  # behind the task stands what is shared with it
    return begin is not None and any(words.startswith(f"{task} ") for task in tasks)


def is_whole(turn: RecordedTurn) -> bool:
    """Tell whether a turn ended with an answer: not with an error, nor with a call whose output the
    model never got, since the turn was stopped.
    """
    last = turn.exchanges[-1].answer
    return not last.ended and not calls_of(last)


def ending_of(exchange: Exchange) -> str:
    """Return in a few words how an exchange ended, "" for an ordinary end."""
    answer = exchange.answer
    ending = ENDINGS.get(answer.ended, "")
    if ending and answer.status not in (0, 200):
        ending = f"status {answer.status}"
    tries = len(exchange.failed)
    asked_again = f"asked again {number_of(tries, 'time')}" if tries else ""
    return ", ".join(filter(None, (asked_again, ending)))


# -- differences ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One prompt that two recordings answer differently.

    Attributes:
        prompt: the prompt.
        what: the kind of difference, in a few words.
        lines: lines of a diff, "-" as in the first recording, "+" as in the second.
    """

    prompt: str
    what: str
    lines: tuple[str, ...] = ()


def differences(first: Recording, second: Recording) -> list[Difference]:
    """Return where `second` differs from `first`, in the order of the files.

    The n-th turn of a prompt is compared with the n-th in the other file, whatever their order in
    the file; insignificant differences (names of turns, sizes of stream chunks) do not count.
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
    """Return a call with one line for each argument, and for each line of a long one."""
    fields = json_object(arguments)
    if fields is None:
        return [f"calls {name} {arguments}"]
    lines = [f"calls {name}"]
    for key, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"  {key}: {line}" for line in text.splitlines() or [""]]
    return lines


def _diff(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """Return the differing lines, each with the equal ones next to it, "…" where others are."""
    lines: list[str] = []
    end = 0
    for first, last, start, stop in changed_lines(before, after):
        between = [f" {line}" for line in before[end:first]]
        if not lines or len(between) > 2:
            between = [*(between[:1] if lines else ()), "…", *between[-1:]]
        lines += between
        lines += [f"-{line}" for line in before[first:last]]
        lines += [f"+{line}" for line in after[start:stop]]
        end = last
    return (*lines, *(f" {line}" for line in before[end : end + 1]))
