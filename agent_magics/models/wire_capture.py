"""The provider's side of one request while it comes, as bytes: what a recording is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Ending: TypeAlias = Literal["", "error", "cut", "silent", "unreachable"]
"""How an answer ended: whole (""), with an error that the server stated, with a broken connection,
with nothing for too long, or without a connection at all."""

# What decides how a client goes on; all other headers are about the server or the account.
HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")


@dataclass(slots=True)
class TapedAnswer:
    """What one HTTP request brought."""

    wire: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: Ending = ""


class Tape:
    """Takes down what a door receives for one request, repeated requests included."""

    def __init__(self) -> None:
        self.answers: list[TapedAnswer] = []

    def begin(self, wire: str, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """An answer begins to come on `wire`."""
        given = {name.lower(): value for name, value in (headers or {}).items()}
        kept = {name: given[name] for name in HEADERS if name in given}
        self.answers.append(TapedAnswer(wire, status, kept))

    def feed(self, data: bytes) -> None:
        """More of the answer."""
        self.answers[-1].body += data

    def end(self, how: Ending) -> None:
        """The answer ended badly."""
        self.answers[-1].ended = how

    def refuse(self, wire: str, error: Any, how: Ending = "unreachable") -> None:
        """There is no answer: an error status, or no connection.

        Args:
            wire: the wire that was tried.
            error: the openai package's ``APIStatusError``, or another error of a request.
            how: the ending where the error has no status.
        """
        response = getattr(error, "response", None)
        if response is None:
            self.begin(wire, 0)
            self.end(how)
            return
        self.begin(wire, error.status_code, response.headers)
        self.feed(response.content)
        self.end("error")
