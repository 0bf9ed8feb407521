"""Writes questions and answers as JSON for `Link`, and checks all that workers send."""

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any, TypeVar

from agent_magics.protocol.codec import from_json, is_typed, to_json
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Usage, UserMessage
from agent_magics.rows.asking import Pace, RowAnswer, RowQuestion
from agent_magics.rows.remote.limits import Report, Stated
from agent_magics.text.brief import brief

MOST_NUMBER = 1e12
MOST_OF_SENTENCE, MOST_OF_KIND = 2_000, 100  # characters of an error, and of its kind
MALFORMED = "A worker sent what is no message of this version."

Part = TypeVar("Part", Pace, Report, Stated)


def given(question: RowQuestion) -> Any:
    """Return a question as JSON: a text, its items, or its place and the items after it."""
    if question.place is not None:
        return [question.place, *map(to_json, question.items)]
    first, *others = question.items
    if not others and isinstance(first, UserMessage) and isinstance(first.content, str):
        return first.content
    return [to_json(item) for item in question.items]


def encoded(answer: RowAnswer) -> tuple[Any, ...]:
    """Return an answer as JSON; see `decoded`."""
    usage = answer.usage
    numbers = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    counted = (*numbers, usage.reasoning_tokens, usage.reported_cost)
    return answer.text, counted, answer.cost, answer.error, answer.kind


def decoded(answer: Sequence[Any]) -> RowAnswer:
    """Return an answer that was `encoded`.

    Raises:
        FatalError: it is none.
    """
    match answer:  # `is_typed` would take half of the time that a worker adds to a row
        case [
            str() as text,
            [int(), int(), int(), int(), int() | float() | None] as usage,
            (int() | float() | None) as cost,
            (str() | None) as error,
            str() as kind,
        ] if all(map(_is_number, (*usage, cost))):
            said = error and brief(error, MOST_OF_SENTENCE)
            return RowAnswer(text, Usage(*usage), cost, said, brief(kind, MOST_OF_KIND))
    raise FatalError(MALFORMED)


def noun_of(data: Any, kinds: tuple[type, ...]) -> Any:
    """Return an event, entry or question of one of these kinds, whose fields have their types.

    Raises:
        FatalError: it is none.
    """
    try:
        noun = from_json(data)
    except (FatalError, TypeError, AttributeError, RecursionError):
        raise FatalError(MALFORMED) from None
    if isinstance(noun, kinds) and is_typed(noun):
        return noun
    raise FatalError(MALFORMED)


def counted(usage: Usage) -> Usage:
    """Return a usage whose numbers are bounded.

    Raises:
        FatalError: they are not.
    """
    if all(map(_is_number, astuple(usage))):
        return usage
    raise FatalError(MALFORMED)


def _is_number(value: float | None) -> bool:
    return value is None or (type(value) is not bool and 0 <= value <= MOST_NUMBER)


def numbered(answer: Any) -> tuple[int, RowAnswer]:
    """Return the number of a question, and the answer that a worker encoded.

    Raises:
        FatalError: it is none; so do all below.
    """
    match answer:
        case [int() as number, *rest]:
            return number, decoded(rest)
    raise FatalError(MALFORMED)


def number_of(value: Any) -> int:
    """Return the number of a question."""
    if type(value) is int:
        return value
    raise FatalError(MALFORMED)


def report_of(data: dict[str, Any]) -> Report:
    """Return what a worker reports of the server's limits."""
    try:
        stated = {
            name: data.get(name) and checked(Stated(**data[name]))
            for name in ("requests", "tokens")
        }
        return checked(Report(**{**data, **stated}))
    except TypeError:
        raise FatalError(MALFORMED) from None


def checked(part: Part) -> Part:
    """Return a part of a message whose fields have their types, and whose numbers are bounded."""
    values = (getattr(part, each.name) for each in fields(part))
    numbers = (each for each in values if isinstance(each, (int, float)))
    if is_typed(part) and all(0 <= each <= MOST_NUMBER for each in numbers):
        return part
    raise FatalError(MALFORMED)
