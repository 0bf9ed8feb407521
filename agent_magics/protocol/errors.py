"""Errors, sorted by who must act on them.

    AgentMagicsError
    |-- RespondToModel   the model must act: goes back as the call's output, success=false
    |   `-- SandboxDenied   a command ran, and the sandbox kept it from something
    `-- FatalError       the person must act: ends the turn with one clear sentence

A bug is neither: it propagates. ``asyncio.CancelledError`` is always re-raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class AgentMagicsError(Exception):
    """Base of the errors this package raises on purpose."""


class RespondToModel(AgentMagicsError):
    """A call could not be done and the model can do better.

    Bad arguments, a rejected approval, a refused path, a time-out, a file that is not there.
    The message is the text the model reads; it says what was wrong and what to do instead.
    """


@dataclass(frozen=True, slots=True)
class SandboxDenial:
    """What the sandbox refused a command, and what would allow it.

    Attributes:
        action: "write", "read", "network" or "other".
        target: the path or the address, "" where the command did not name it.
        sentence: what the model reads: what was refused, why, how to ask for it.
        permission: the `sandbox_permissions` that would allow it.
    """

    action: str
    target: str
    sentence: str
    permission: str = "require_escalated"

    @property
    def what(self) -> str:
        """What was refused, in a few words for people."""
        doing = {"write": "writing", "read": "reading", "network": "the network"}
        return " ".join(filter(None, (doing.get(self.action, ""), self.target))) or "something"

    def __str__(self) -> str:
        return self.sentence


class SandboxDenied(RespondToModel):
    """A command was run in the sandbox, and the sandbox refused it something it needed.

    Raised where the call may be repeated outside (approval "on-failure"); its text is the whole
    result with the denial's sentence below, so that nothing is lost where nobody catches it.

    Attributes:
        denial: what was refused.
        output: the text of the result, as the model reads it.
        details: the result's details for people.
    """

    def __init__(
        self, denial: SandboxDenial, output: str, details: Mapping[str, Any] | None = None
    ) -> None:
        line_end = "" if not output or output.endswith("\n") else "\n"
        super().__init__(f"{output}{line_end}[{denial.sentence}]")
        self.denial = denial
        self.output = output
        self.details = dict(details or {})


class FatalError(AgentMagicsError):
    """The run cannot go on and only the person can help: configuration, authentication, engine.

    The message is one sentence: what, where, what to do.
    """


class TurnAbort(AgentMagicsError):
    """The person (or a hook) wants the turn to end now; the message says who and why."""
