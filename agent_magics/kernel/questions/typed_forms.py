"""Asks a form field by field with `input()`, where no widget can be drawn."""

from collections.abc import Callable
from typing import Any

from agent_magics.mcp.elicitation.answers import accepted, address_of, fields_of
from agent_magics.mcp.elicitation.forms import (
    FormField,
    ascii_address,
    check_field,
    host_of,
    read_typed_value,
)
from agent_magics.protocol.events import FormRequested, UserInputRequested
from agent_magics.protocol.ops import Answer
from agent_magics.render.visible import show_shortened

_LONGEST = 2_000
_KEYS = {
    **dict.fromkeys(("y", "yes"), "approve"),
    **dict.fromkeys(("n", "no"), "deny"),
    **dict.fromkeys(("s", "stop"), "abort"),
}
_STOP = "!"  # a line by itself; a word could be an answer


def type_in_form(question: FormRequested, tell: Callable[[str], None]) -> Answer:
    """Ask for every field of a form until its answer fits, then whether a server may get it.

    Args:
        question: the request.
        tell: shows a text above the next prompt.

    Raises:
        EOFError: no input is possible.
        UnusableForm: the schema cannot be shown as a form.
    """
    fields = fields_of(question)
    url = address_of(question)
    tell(question_words(question) + (address_text(url) if url else ""))
    content: dict[str, Any] = {}
    for field in fields:
        typed = _typed_in(field, tell)
        if typed is _STOP:
            return _decided(question, "deny")
        content[field.name] = typed
    if isinstance(question, UserInputRequested):
        return accepted(question, content)
    decision = _ask_decision("Will you open it?" if url else "Send this?", tell)
    return accepted(question, content) if decision == "approve" else _decided(question, decision)


def question_words(question: FormRequested) -> str:
    """Return who asks, and a server's message, as visible plain text."""
    if isinstance(question, UserInputRequested):
        return "The agent asks:"
    server = show_shortened(question.server, _LONGEST)
    return f"The MCP server {server} asks: {show_shortened(question.message, _LONGEST)}"


def address_text(url: str) -> str:
    """Return an address with its host spelled out.

    Raises:
        UnusableForm: it is not a web address.
    """
    return f"\nIt wants you to open a page of {host_of(url)}: {ascii_address(url)}"


def _typed_in(field: FormField, tell: Callable[[str], None]) -> Any:
    tell(_field_text(field))
    prompt = f"{show_shortened(field.title, _LONGEST).rstrip(':')}: "
    while True:
        typed = input(prompt)
        if typed.strip() == _STOP:
            return _STOP
        value = read_typed_value(field, typed) if typed.strip() else field.default
        value, problem = check_field(field, value)
        if not problem and (value is not None or not field.required):
            return value
        tell(f"  {problem or 'this is required'}")


def _field_text(field: FormField) -> str:
    """Return the description of a field, on lines of their own above its prompt."""
    marks = ["required" if field.required else "Enter alone leaves it out"]
    if field.default is not None:
        marks = [f"Enter alone is {_shown(field, field.default)}"]
    hint = {"boolean": "yes or no", "choices": "numbers with commas between them"}
    own = "or text of your own" if field.is_open and field.options else ""
    marks += filter(None, (hint.get(field.kind, ""), own, field.hint, f"{_STOP} declines"))
    lines = [f"  ({'; '.join(marks)})"]
    if field.description:
        lines.insert(0, f"  {show_shortened(field.description, _LONGEST)}")
    for number, (value, label) in enumerate(field.options, 1):
        words = ": ".join(filter(None, (label, field.descriptions.get(value))))
        lines.append(f"  {number}. {show_shortened(words, _LONGEST)}")
    return "\n".join(lines)


def _shown(field: FormField, value: Any) -> str:
    if field.kind == "boolean":
        return "yes" if value else "no"
    labels = dict(field.options)
    values = value if isinstance(value, list) else [value]
    return ", ".join(show_shortened(str(labels.get(one, one)), _LONGEST) for one in values)


def _ask_decision(prompt: str, tell: Callable[[str], None]) -> str:
    while True:
        typed = input(f"{prompt} [y]es, [n]o, [s]top: ").strip().lower()
        if typed in _KEYS:
            return _KEYS[typed]
        if typed:
            tell(f"{typed!r} is not offered here.")


def _decided(question: FormRequested, decision: str) -> Answer:
    return Answer(question_id=question.question_id, decision=decision)
