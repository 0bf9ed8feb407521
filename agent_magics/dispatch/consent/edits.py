"""Returns the parts of a call that a person may read and edit, and applies their edits."""

import json
import shlex
from collections.abc import Collection
from dataclasses import replace

from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Json, json_object
from agent_magics.protocol.ops import Answer, denied
from agent_magics.protocol.tools import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    McpPayload,
    ToolCall,
    ToolPayload,
)

# The argument that is what a call is about, where it is text (or the words of a command).
_MAIN_ARGUMENTS = ("command", "cmd", "code")

_NO_EDIT = "the call cannot be changed at this question. Approve it as it is, or deny it."

# The most characters that a person may edit by hand.
MOST_EDITABLE = 20_000


def readable_payload(payload: ToolPayload) -> str:
    """Return the whole text of a call as the model wrote it, for the person."""
    if isinstance(payload, FunctionPayload):
        return payload.arguments
    if isinstance(payload, CustomPayload):
        return payload.input
    if isinstance(payload, LocalShellPayload):
        return json.dumps({"command": payload.command, "workdir": payload.workdir})
    return payload.raw_arguments


def arguments_of(call: ToolCall) -> dict[str, Json] | str:
    """Return a call's arguments by name, or the text of a freeform call.

    Raises:
        RespondToModel: they are not a JSON object.
    """
    payload = call.payload
    if isinstance(payload, CustomPayload):
        return payload.input
    if isinstance(payload, LocalShellPayload):
        return shell_arguments(payload)
    text = payload.raw_arguments if isinstance(payload, McpPayload) else payload.arguments
    found = json_object(text) if text.strip() else {}
    if found is None:
        # Not {}: approval must never see less than what would run.
        raise RespondToModel(f"The arguments of {call.tool_name} are no JSON object.")
    return found


def shell_arguments(payload: LocalShellPayload) -> dict[str, Json]:
    """Return the arguments of the API's own shell call by name."""
    given = {"workdir": payload.workdir, "timeout_ms": payload.timeout_ms}
    arguments = {name: value for name, value in given.items() if value is not None}
    return {"command": list(payload.command), **arguments}


def editable_text(payload: ToolPayload) -> str:
    """Return the text that a person would edit: the command line or the code alone, else all."""
    if isinstance(payload, LocalShellPayload):
        return shlex.join(payload.command)
    if isinstance(payload, FunctionPayload):
        arguments = json_object(payload.arguments) or {}
        value = arguments.get(_main_argument(arguments))
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return shlex.join(value)
    return readable_payload(payload)


def with_edited_text(call: ToolCall, text: str) -> ToolCall:
    """Return the call with its `editable_text` replaced by the person's.

    Raises:
        ValueError: `text` is no valid command line, and the call takes a list of words.
    """
    payload = call.payload
    if isinstance(payload, LocalShellPayload):
        return replace(call, payload=replace(payload, command=tuple(shlex.split(text))))
    if isinstance(payload, FunctionPayload):
        arguments = json_object(payload.arguments) or {}
        name = _main_argument(arguments)
        if name:
            edited = shlex.split(text) if isinstance(arguments[name], list) else text
            return with_edited_arguments(call, json.dumps({**arguments, name: edited}))
    return with_edited_arguments(call, text)


def with_edited_arguments(call: ToolCall, text: str) -> ToolCall:
    """Return the call with other arguments: JSON text, or the text of a freeform call."""
    payload = call.payload
    if isinstance(payload, CustomPayload):
        return replace(call, payload=CustomPayload(text))
    return replace(call, payload=FunctionPayload(text, payload.output_kind))


def describe_edit(call: ToolCall) -> str:
    """Return the note to the model about the person's edit of its call."""
    payload = call.payload
    main = isinstance(payload, LocalShellPayload) or (
        isinstance(payload, FunctionPayload)
        and _main_argument(json_object(payload.arguments) or {})
    )
    what = "command" if main and main != "code" else "code" if main else "arguments"
    return f"The person changed the {what} to: {editable_text(payload)}"


def _main_argument(arguments: dict[str, object]) -> str:
    for name in _MAIN_ARGUMENTS:
        value = arguments.get(name)
        is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
        if isinstance(value, str) or (is_words and value):
            return name
    return ""


def editable_of(call: ToolCall) -> str:
    """Return the text that a person may edit by hand; "" where it is too long."""
    text = editable_text(call.payload)
    return text if len(text) <= MOST_EDITABLE else ""


def edited_call(call: ToolCall, answer: Answer) -> ToolCall | None:
    """Return the call with the person's edit applied; None where they made none.

    Raises:
        ValueError: the edited text is no valid command line.
    """
    if answer.edited_arguments is not None:
        return with_edited_arguments(call, answer.edited_arguments)
    if answer.edited_text is None or answer.edited_text == editable_text(call.payload):
        return None
    return with_edited_text(call, answer.edited_text)


def as_offered(answer: Answer, scopes: Collection[str] = (), *, takes_edit: bool = False) -> Answer:
    """Return an answer without what its question does not offer, whoever gave it.

    A lasting approval that is not offered holds for this call; one for the project for the session,
    where that is offered. An edit that nobody would apply is a denial: else the call ran as it was.
    """
    decision = answer.decision
    if not decision.startswith("approve"):
        return answer
    if not takes_edit and (answer.edited_text or answer.edited_arguments is not None):
        return denied(answer.question_id, _NO_EDIT)
    if decision in ("approve", *scopes):
        return answer
    is_longer = "project" in decision and "approve_for_session" in scopes
    return replace(answer, decision="approve_for_session" if is_longer else "approve")
