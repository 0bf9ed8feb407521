"""Defines the ops (commands) that the engine accepts: frozen dataclasses, converted to JSON by
``codec``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent_magics.protocol.items import Content, ContentPart, Json
from agent_magics.protocol.tools import DynamicToolSpec

DECISIONS = (
    "approve",
    "approve_for_cell",
    "approve_for_session",
    "approve_for_project",
    "approve_for_project_exact",
    "approve_kind_for_cell",
    "approve_kind_for_session",
    "deny",
    "abort",
)


def new_turn_id() -> str:
    """Return a new id for a turn."""
    return os.urandom(6).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Base of all ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTurn(Op):
    """Begin a turn with a message of the person, by `agent.run` or `Session.begin`.

    They say who gets its events, as for `CallTool` and `Compact`; else it is dropped.
    """

    turn_id: str
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool(Op):
    """Make one tool call exactly as if the model had made it; `text` is freeform input."""

    turn_id: str
    name: str
    arguments: Mapping[str, Json] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Op):
    """The answer to a question.

    Attributes:
        decision: one of `DECISIONS`.
        feedback: text for the model with a denial, or the free text of an answer.
        edited_arguments: JSON text to run instead, or the content of a form; it is validated and
            assessed again.
        edited_text: the question's `editable` text as the person changed it; treated likewise.
        by: who answered: "person", "program", "policy", "beforehand".
    """

    question_id: str
    decision: str
    feedback: str = ""
    edited_arguments: str | None = None
    edited_text: str | None = None
    by: str = "person"


def denied(question_id: str = "", reason: str = "") -> Answer:
    """Return the denial that policy gives to a question which nobody is asked."""
    return Answer(question_id=question_id, decision="deny", feedback=reason, by="policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicToolResponse(Op):
    """The result of a tool that an external client ran."""

    call_id: str
    content_items: tuple[ContentPart, ...]
    success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer(Op):
    """A further message for the turn that is under way, read as soon as its running calls end.

    Calls of the same response that have not begun are not run. A message for any other turn is
    dropped, with a warning.
    """

    turn_id: str
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePrompt(Op):
    """A prompt that the turn under way continues with after its final answer; else as `Steer`.

    `prompt_id` is of the sender's making, and names it in `PromptsQueued` and `DropPrompt`.
    """

    turn_id: str
    prompt_id: str
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPrompt(Op):
    """Take back a queued prompt; nothing where it has begun."""

    prompt_id: str


BY_PERSON: Final = "interrupted by the person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt(Op):
    """Stop the turn: cancel tools, end processes, answer open calls."""

    turn_id: str
    reason: str = BY_PERSON


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTools(Op):
    """Add and remove tools of an external client, from the next turn on.

    The client that adds a tool answers its calls: each is a `DynamicToolCallRequest`, its answer a
    `DynamicToolResponse` with the same call id. Removal comes first, so that one op can replace a
    tool.
    """

    add: tuple[DynamicToolSpec, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure(Op):
    """Change settings from the next turn on; values that do not fit are reported and change
    nothing.

    Attributes:
        settings: values by name, as `Agent.configure` takes them.
    """

    settings: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Op):
    """Replace older history by a summary now, in a turn of its own."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown(Op):
    """End the session, its current turn and its processes; no further turns are accepted."""
