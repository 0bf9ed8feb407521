"""Defines the exception classes, grouped by who has to act on them.

    AgentMagicsError
    |-- RespondToModel   the model must act: sent back as the call's output, success=false
    |   `-- SandboxDenied   a command ran, and the sandbox denied it an operation
    |-- FatalError       the person must act: ends the turn with one clear sentence
    `-- TurnAbort        the person or a hook ends the turn

A bug is none of these: it propagates. ``asyncio.CancelledError`` is always re-raised.

Law: a sentence ends in one full stop. What another has written stands in ours as a `clause`.
"""

import os
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_magics.text.invisible import clean_text
from agent_magics.text.secrets import ADDRESS_LOGIN, KEY_SHAPES

_MOST_TOLD, _MOST_STEPS = 10_000, 100  # characters of an error, and calls on the way to it
# What is no person's code: ours, Python's, and packages, which a home and a system have too.
_OURS, _PYTHONS = Path(__file__).parents[1], Path(os.__file__).parent
_PACKAGES = {"site-packages", "dist-packages"}


def typed_message(error: BaseException) -> str:
    """Return "TYPE: message" of anybody's error, or "TYPE" of one without; both may be hostile."""
    name, message = _type_name(error), short_message(error)
    return f"{name}: {message}" if message.strip() else name


def own_or_typed_message(error: BaseException) -> str:
    """Return the message of an error of ours, "TYPE: message" of any other."""
    known = issubclass(type(error), AgentMagicsError)
    return short_message(error) if known else typed_message(error)


def short_message(said: object) -> str:
    """Return the message of anybody's error, or the reason of a hook, as plain text of 10,000
    characters at most.
    """
    message = full_message(said)
    if len(message) > _MOST_TOLD:
        message = f"{message[:_MOST_TOLD]} … ({len(message) - _MOST_TOLD:,} more characters)"
    return message


def full_message(said: object) -> str:
    """Return the text of an object that others made as plain text, whatever its class does."""
    try:
        return "".join((str(said),))
    except BaseException as failure:  # a stranger's __str__ may raise anything
        return f"<its message raised {_type_name(failure)}>"


def clause(said: object) -> str:
    """Return a text, or what an error says, as a part of a sentence: without a full stop."""
    kind = type(said)
    reason = OSError.__dict__["strerror"].__get__(said) if issubclass(kind, OSError) else None
    text = short_message(said if reason is None else reason).strip().rstrip(".")
    return text if text or not issubclass(kind, BaseException) else _type_name(said)


def _own_lines(error: BaseException) -> Iterator[str]:
    """Yield the lines of the person's own code on the way to an error."""
    for step in traceback.extract_tb(error.__traceback__, -_MOST_STEPS):
        path = Path(step.filename)
        if (
            path.is_relative_to(_OURS)
            or path.is_relative_to(_PYTHONS)
            or not _PACKAGES.isdisjoint(path.parts)
            or step.filename.startswith("<frozen ")
        ):
            continue
        place = "" if path.parent.name.startswith("ipykernel_") else f"{path}, "
        yield f"{place}line {step.lineno}: {step.line or step.name}"


def _led_to(error: BaseException) -> BaseException | None:
    """Return the error that led to this one, as Python's tracebacks have it; None for none."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _type_name(said: object) -> str:
    return str(type.__dict__["__name__"].__get__(type(said)))


class AgentMagicsError(Exception):
    """Base of all errors that this package raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the person's own lines on the way here, the message, and notes
        that were added; above them the same of the errors that led here in the person's code.
        """
        shown, error, seen = list[str](), _led_to(self), {id(self)}
        shown += [*_own_lines(self), typed_message(self), *getattr(self, "__notes__", ())]
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            if own := list(_own_lines(error)):
                shown = [*own, typed_message(error), "", *shown]
            error = _led_to(error)
        return list(map(clean_text, shown))


class RespondToModel(AgentMagicsError):
    """A tool call failed for a reason that the model can correct.

    For example bad arguments, a rejected approval, a refused path, a time-out, a missing file.
    The message is sent to the model as the call's output; it says what was wrong and what to do
    instead.
    """


@dataclass(frozen=True, slots=True)
class SandboxDenial:
    """An operation that the sandbox denied to a command, and the permission that would allow it.

    Attributes:
        action: "write", "read", "network" or "other".
        target: the path or the address, "" where the command did not name it.
        sentence: text for the model: what was denied, why, how to ask for it.
        permission: the `sandbox_permissions` that would allow it.
        reported: True where the sandbox itself reports the denial; False where it is inferred from
            the command's output, which is not trustworthy.
    """

    action: str
    target: str
    sentence: str
    permission: str = "require_escalated"
    reported: bool = True

    @property
    def seen(self) -> str:
        """The denial as a sentence for people."""
        if not self.reported:
            return "The sandbox may have refused it something."
        return f"The sandbox refused {self.what}."

    @property
    def what(self) -> str:
        """The denied operation in a few words, for people."""
        doing = {"write": "writing", "read": "reading", "network": "the network"}
        return " ".join(filter(None, (doing.get(self.action, ""), self.target))) or "something"

    def __str__(self) -> str:
        return self.sentence


class SandboxDenied(RespondToModel):
    """A command ran in the sandbox, which denied it an operation that it needed.

    Raised where the call may be repeated outside the sandbox (approval "on-failure"). The message
    is the whole result followed by the denial's sentence, so nothing is lost if nobody catches it.

    Attributes:
        denial: the denied operation.
    """

    def __init__(self, denial: SandboxDenial, output: str) -> None:
        line_end = "" if not output or output.endswith("\n") else "\n"
        super().__init__(f"{output}{line_end}[{denial.sentence}]")
        self.denial = denial


class FatalError(AgentMagicsError):
    """The run cannot continue, and only the person can fix the cause: configuration,
    authentication.

    The message is one sentence: what, where, what to do. Where that quotes a setting or a server,
    what has the shape of a known key is left out, and so is a login within an address.
    """

    def __str__(self) -> str:
        return re.sub(f"{ADDRESS_LOGIN}|{KEY_SHAPES}", "[API key]", super().__str__())

    def __repr__(self) -> str:  # which a cell shows whose last line is the error
        return f"{_type_name(self)}({str(self)!r})"


class TurnAbort(AgentMagicsError):
    """The person or a hook ends the turn now; the message says who and why."""
