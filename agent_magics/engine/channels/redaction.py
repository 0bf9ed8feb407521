"""Takes keys out of what leaves a tool: they are in the process, so code can print them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from agent_magics.protocol.events import (
    TURN_ENDS,
    Event,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    ModelRetry,
    ReasoningDelta,
    TextDelta,
    ToolCallCompleted,
    ToolCallFailed,
)

REDACTED = "[redacted]"

# Most values of an event; asked by type, since this runs for every event.
_HARMLESS = frozenset((int, float, bool, type(None)))

# Events whose text comes in pieces, and those after which no more of it comes.
_SAID = (TextDelta, ReasoningDelta)
_STREAMED = (*_SAID, ExecCommandOutputDelta)
_SAID_ENDS = (ItemCompleted, ModelRetry, *TURN_ENDS)
_PRINTED_ENDS = (ExecCommandEnd, ToolCallCompleted, ToolCallFailed)

Unstamped = tuple[type[Event], Mapping[str, Any]]  # an event's kind and its own fields


def redact_text(secrets: Sequence[str], text: str) -> str:
    """Return `text` without any of `secrets`."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, REDACTED)
    return text


def redact(secrets: Sequence[str], value: Any) -> Any:
    """Return `value` with the secrets taken out of every text in it, however deep it stands."""
    kind = type(value)
    if kind is str:
        return redact_text(secrets, value)
    if kind in _HARMLESS:
        return value
    if kind is tuple or kind is list:
        return kind([redact(secrets, each) for each in value])
    if isinstance(value, str):
        return redact_text(secrets, value)
    if isinstance(value, Mapping):
        return {redact(secrets, key): redact(secrets, each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        shown = {field.name: getattr(value, field.name) for field in fields(value)}
        cleaned = {name: redact(secrets, each) for name, each in shown.items()}
        return value if cleaned == shown else replace(value, **cleaned)
    return value


def cut_begun(secrets: Sequence[str], text: str) -> tuple[str, str]:
    """Split `text` before a secret that has begun at its end; the second part is "" without one."""
    begun = max((_begun(secret, text) for secret in secrets), default=0)
    return text[: len(text) - begun], text[len(text) - begun :]


def _begun(secret: str, text: str) -> int:
    """Return how many characters of `secret`, but not all, stand at the end of `text`."""
    at = text.find(secret[0], max(0, len(text) - len(secret) + 1))
    while at >= 0:
        if secret.startswith(text[at:]):
            return len(text) - at
        at = text.find(secret[0], at + 1)
    return 0


class EventRedactor:
    """Takes the secrets out of the events of one turn.

    What is printed or said comes in pieces, and a piece may end inside of a secret: such an end is
    held back until the next piece, or until there is none.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._held: dict[tuple[object, ...], tuple[type[Event], dict[str, Any]]] = {}

    def clean(self, kind: type[Event], fields: Mapping[str, Any]) -> list[Unstamped]:
        """Return what may be shown in place of an event: often it, cleaned; perhaps more or none.

        Args:
            kind: of the event.
            fields: its own ones, without the stamp.
        """
        if kind in _STREAMED:
            return self._clean_piece(kind, dict(fields))
        shown: list[Unstamped] = [self._held.pop(key) for key in self._ended(kind, fields)]
        cleaned = {name: redact(self._secrets, value) for name, value in fields.items()}
        return [*shown, (kind, cleaned)]

    def _clean_piece(self, kind: type[Event], fields: dict[str, Any]) -> list[Unstamped]:
        stream = (kind, *(fields.get(name, "") for name in ("call_id", "session_id", "stream")))
        before = self._held.pop(stream, None)
        text = fields["text"] if before is None else before[1]["text"] + fields["text"]
        text, begun = cut_begun(self._secrets, redact_text(self._secrets, text))
        if begun:
            self._held[stream] = (kind, {**fields, "text": begun})
        return [(kind, {**fields, "text": text})] if text else []

    def _ended(self, kind: type[Event], fields: Mapping[str, Any]) -> list[tuple[object, ...]]:
        """Return the streams that end with this event."""
        if kind in _SAID_ENDS:
            return [key for key in self._held if key[0] in _SAID]
        if kind in _PRINTED_ENDS:
            whose = (fields.get("call_id", ""), fields.get("session_id", ""))
            return [key for key in self._held if key[0] not in _SAID and key[1:3] == whose]
        return []
