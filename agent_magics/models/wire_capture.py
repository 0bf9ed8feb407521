"""Captures the bytes of one request's answers, from which recordings are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Ending: TypeAlias = Literal["", "error", "cut", "silent", "unreachable"]
"""How an answer ended: completely (""), with the server's error, with a broken connection, with a
time-out, or without a connection."""

# Headers that affect retries; all others describe the server or the account.
HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")


@dataclass(slots=True)
class CapturedAnswer:
    """The answer to one HTTP request."""

    wire: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: Ending = ""


class WireCapture:
    """Captures the bytes that a client receives for one request and its retries."""

    def __init__(self) -> None:
        self.answers: list[CapturedAnswer] = []

    def begin(self, wire: str, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Begin a new answer on the wire API `wire`."""
        given = {name.lower(): value for name, value in (headers or {}).items()}
        kept = {name: given[name] for name in HEADERS if name in given}
        self.answers.append(CapturedAnswer(wire, status, kept))

    def feed(self, data: bytes) -> None:
        """Append bytes of the answer."""
        self.answers[-1].body += data

    def end(self, how: Ending) -> None:
        """Mark the answer as failed."""
        self.answers[-1].ended = how
