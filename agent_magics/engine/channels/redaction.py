"""Redacts keys in what leaves a tool: code in this process can read and print them."""

import re
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Any

from agent_magics.protocol import events
from agent_magics.protocol.codec import field_names
from agent_magics.text.secrets import SHORTEST_ENCODED, encodings

REDACTED = "[redacted]"
_SHORTEST_CUT = 8  # characters
# What may stand between the characters of a secret: line ends, or the marks of a printed list.
_BETWEEN = " \t\r\n'\",[]()"
_WITHOUT = str.maketrans("", "", _BETWEEN)
# The same and the backslashes of escapes, which a secret that is cut off is looked for without.
_BLANKS = _BETWEEN + "\\"
_NO_BLANKS = str.maketrans("", "", _BLANKS)
# A character as JSON may write it, and one cut off at the end. From the first backslash on, since
# each of many would be looked at once for each before it.
_ESCAPE = re.compile(r"(?<!\\)\\++u([0-9A-Fa-f]{4})")
_BEGUN_ESCAPE = re.compile(r"(?:u[0-9A-Fa-f]{0,3})?")
# Characters that stand for one of a secret, as far as its beginning is looked for.
_LONGEST_SIGN = 8

# Types that need no redaction; checked by type, since this runs for every event.
_HARMLESS = frozenset((int, float, bool, type(None)))

# Events whose text arrives in pieces, and those that end such a text.
_ANSWER = (events.TextDelta, events.ReasoningDelta)
_STREAMED = (*_ANSWER, events.ExecCommandOutputDelta)
_ANSWER_ENDS = (events.ItemCompleted, events.ModelRetry, *events.TURN_ENDS)
_PRINTED_ENDS = (events.ExecCommandEnd, events.ToolCallCompleted, events.ToolCallFailed)

Unstamped = tuple[type[events.Event], Mapping[str, Any]]  # an event's kind and its own fields


def redact_text(secrets: tuple[str, ...], text: str) -> str:
    """Return `text` with all `secrets` replaced, also where JSON has escaped their characters, or
    they stand in base64, in hexadecimal, in capitals or backwards, or with spaces, quotes or line
    ends between their characters.
    """
    if len(text) < _shortest(secrets):  # as most texts of events
        return text
    joined = text.translate(_WITHOUT)
    for secret in secrets:
        if "\\" in text:  # first, since a secret may end with one, of which JSON makes two
            text = _escaped(secret).sub(REDACTED, text)
        for form, bare in _bare_forms(secret):
            if form in text:
                text = text.replace(form, REDACTED)
            if len(bare) >= SHORTEST_ENCODED and bare in joined:
                text = _apart(bare).sub(REDACTED, text)
    return text


@lru_cache(maxsize=256)
def _bare_forms(secret: str) -> tuple[tuple[str, str], ...]:
    """Return a secret as it is and encoded, each beside itself without `_BETWEEN`."""
    return tuple((form, form.translate(_WITHOUT)) for form in encodings(secret))


@lru_cache(maxsize=256)
def _shortest(secrets: tuple[str, ...]) -> float:
    """Return the number of characters of the shortest text that holds a secret in any form."""
    bare_forms = chain.from_iterable(map(_bare_forms, secrets))
    return min((len(bare) for _, bare in bare_forms), default=inf)


@lru_cache(maxsize=1024)
def _apart(secret: str) -> re.Pattern[str]:
    """Return a pattern of a secret whose characters stand apart; it has none of `_BETWEEN`."""
    return re.compile(f"[{re.escape(_BETWEEN)}]*".join(map(re.escape, secret)))


@lru_cache(maxsize=64)
def _escaped(secret: str) -> re.Pattern[str]:
    """Return a pattern of a secret in text, in JSON, and in JSON within JSON."""
    # Of many backslashes it begins at the first, else each would be looked at once for each.
    return re.compile(r"(?!(?<=\\)\\)" + "".join(map(_forms, secret)))


def _forms(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    coded = "".join(rf"\\+u{units[at : at + 4]}" for at in range(0, len(units), 4))
    return rf"(?:(?i:{coded})|\\*{re.escape(character)})"


def redact(secrets: tuple[str, ...], value: Any) -> Any:
    """Return `value` with the secrets replaced in every text in it, at any depth."""
    kind = type(value)
    if kind is str:
        return redact_text(secrets, value)
    if kind in _HARMLESS:
        return value
    if kind is tuple or kind is list:
        return kind([redact(secrets, each) for each in value])
    if isinstance(value, str):
        return redact_text(secrets, value)
    if is_dataclass(kind):  # before mappings, of which to ask takes longer
        shown = {name: getattr(value, name) for name in field_names(kind)}
        cleaned = {name: redact(secrets, each) for name, each in shown.items()}
        return value if cleaned == shown else replace(value, **cleaned)
    if isinstance(value, (dict, Mapping)):
        return {redact(secrets, key): redact(secrets, each) for key, each in value.items()}
    return value


def cut_partial(secrets: tuple[str, ...], text: str) -> tuple[str, str]:
    """Split `text` before the beginning of a secret at its end, in any form that `redact_text`
    knows; the second part is "" for none.
    """
    longest, forms = _looked_for(secrets)
    start = max(0, len(text) - longest)
    tail = text[start:]
    before, backslash, rest = tail.rpartition("\\")
    if backslash and _BEGUN_ESCAPE.fullmatch(rest):
        tail = before.rstrip("\\")
    spread, at = _ESCAPE.sub(_in_place, tail) if backslash else tail, len(tail)
    signs = spread.translate(_NO_BLANKS)
    for _ in range(max((_partial_length(form, signs) for form in forms), default=0)):
        at -= 1
        while spread[at] in _BLANKS:
            at -= 1
    return text[: start + at], text[start + at :]


@lru_cache(maxsize=256)
def _looked_for(secrets: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return how far back secrets may begin, in characters, and their forms without blanks."""
    forms = list(chain.from_iterable(map(encodings, secrets)))
    longest = _LONGEST_SIGN * max(map(len, forms), default=0)
    return longest, [form.translate(_NO_BLANKS) for form in forms]


def _in_place(escape: re.Match[str]) -> str:
    """Return the character that an escape stands for, and blanks for the rest of it."""
    return chr(int(escape[1], 16)).ljust(len(escape[0]))


def redact_shortened(secrets: tuple[str, ...], text: str) -> str:
    """Do what `redact_text` does, also where a secret's end was cut off for a "…"."""
    *cut, last = redact_text(secrets, text).split("…")
    split = [cut_partial(secrets, piece) for piece in cut]
    shown = [
        head + (REDACTED if len(partial) >= _SHORTEST_CUT else partial) for head, partial in split
    ]
    return "…".join([*shown, last])


def _partial_length(form: str, text: str) -> int:
    """Return how many characters of `form` (not all) stand at the end of `text`."""
    at = text.find(form[:1], max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at = text.find(form[:1], at + 1)
    return 0


class EventRedactor:
    """Redacts secrets in the events of one turn.

    Printed text and answers arrive in pieces, and a piece may end inside a secret: such an end is
    held back until the next piece, or the end of the stream.

    Attributes:
        secrets: the texts to redact, the longest first.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self.secrets = secrets
        self._held: dict[tuple[object, ...], tuple[type[events.Event], dict[str, Any]]] = {}

    def clean(self, kind: type[events.Event], fields: Mapping[str, Any]) -> list[Unstamped]:
        """Return the redacted events to show in place of an event: often one, or more, or none.

        Args:
            kind: the event's class.
            fields: its own fields, without the stamp.
        """
        if kind in _STREAMED:
            return self._clean_piece(kind, dict(fields))
        shown: list[Unstamped] = [self._held.pop(key) for key in self._ended(kind, fields)]
        cleaned = {name: redact(self.secrets, value) for name, value in fields.items()}
        return [*shown, (kind, cleaned)]

    def _clean_piece(self, kind: type[events.Event], fields: dict[str, Any]) -> list[Unstamped]:
        stream = (kind, *(fields.get(name, "") for name in ("call_id", "session_id", "stream")))
        before = self._held.pop(stream, None)
        text = fields["text"] if before is None else before[1]["text"] + fields["text"]
        text, partial = cut_partial(self.secrets, redact_text(self.secrets, text))
        if partial:
            self._held[stream] = (kind, {**fields, "text": partial})
        return [(kind, {**fields, "text": text})] if text else []

    def _ended(
        self, kind: type[events.Event], fields: Mapping[str, Any]
    ) -> list[tuple[object, ...]]:
        """Return the streams that end with this event."""
        if not self._held:  # nearly always
            return []
        if kind in _ANSWER_ENDS:
            return [key for key in self._held if key[0] in _ANSWER]
        if kind in _PRINTED_ENDS:
            ids = (fields.get("call_id", ""), fields.get("session_id", ""))
            return [key for key in self._held if key[0] not in _ANSWER and key[1:3] == ids]
        return []
