"""Everything the outside tells the engine; frozen, typed, to JSON and back (see ``codec``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_magics.protocol.items import Content, ContentPart, Json
from agent_magics.protocol.tools import DynamicToolSpec

DECISIONS = (
    "approve",
    "approve_for_cell",
    "approve_for_session",
    "approve_for_project",
    "deny",
    "abort",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Base of all ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTurn(Op):
    """Begin a turn with the person's words."""

    turn_id: str
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool(Op):
    """Make one call exactly as if the model had made it; `text` is freeform input."""

    turn_id: str
    name: str
    arguments: Mapping[str, Json] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Op):
    """The answer to a question.

    Attributes:
        decision: one of `DECISIONS`, or the chosen text for a `UserInputRequested`.
        feedback: goes to the model with a denial, or is the free text of an answer.
        edited_arguments: JSON text to run instead; validated and assessed again.
        edited_text: the question's `editable` text as the person changed it, likewise.
        by: who answered: "person", "program", "policy", "beforehand".
    """

    question_id: str
    decision: str
    feedback: str = ""
    edited_arguments: str | None = None
    edited_text: str | None = None
    by: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicToolResponse(Op):
    """What an outside client's tool gave back."""

    call_id: str
    content_items: tuple[ContentPart, ...]
    success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer(Op):
    """More words from the person for a turn that is under way; read before the next request."""

    turn_id: str
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt(Op):
    """Stop the turn: tools are cancelled, processes ended, open calls answered."""

    turn_id: str
    reason: str = "interrupted by the person"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTools(Op):
    """Tools of an outside client that join, and names that leave, at the next turn.

    Whoever adds a tool answers its calls: each is a `DynamicToolCallRequest`, its answer a
    `DynamicToolResponse` with the same call id. Names leave first, so that one op can replace.
    """

    add: tuple[DynamicToolSpec, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure(Op):
    """Settings that hold from the next turn on."""

    settings: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Op):
    """Replace older history by a summary now, as a turn of its own."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown(Op):
    """End the session and its processes."""
