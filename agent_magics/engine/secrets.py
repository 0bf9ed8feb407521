"""Takes keys out of what leaves a tool: they are in the process, so code can print them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

REDACTED = "[redacted]"

# Most values of an event; asked by type, since this runs for every event.
_HARMLESS = frozenset((int, float, bool, type(None)))


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
