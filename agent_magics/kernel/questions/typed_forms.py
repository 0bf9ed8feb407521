"""A server's question where no widget can be drawn: its form, field by field, with `input()`."""

from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.elicitation import accepted
from agent_magics.dispatch.forms import (
    FormField,
    check_field,
    form_fields,
    host_of,
    read_typed_value,
)
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.protocol.ops import Answer
from agent_magics.render.visible import show_invisible, show_shortened

_LONGEST = 2_000
_KEYS = {
    **dict.fromkeys(("y", "yes"), "approve"),
    **dict.fromkeys(("n", "no"), "deny"),
    **dict.fromkeys(("s", "stop"), "abort"),
}
_STOP = "!"  # a line by itself; a word could be an answer


def type_in_form(question: ElicitationRequested, tell: Callable[[str], None]) -> Answer:
    """Ask for every field until its answer fits, and at the end whether all of it may be sent.

    Args:
        question: what the server asks.
        tell: shows a text above the next prompt.

    Raises:
        EOFError: nobody types.
        UnusableForm: it cannot be shown.
    """
    fields = () if question.url else form_fields(question.schema)
    where = address_text(question.url) if question.url else ""
    tell(question_words(question) + where)
    content: dict[str, Any] = {}
    for field in fields:
        typed = _typed_in(field, tell)
        if typed is _STOP:
            return _decided(question, "deny")
        content[field.name] = typed
    decision = _ask_decision("Will you open it?" if question.url else "Send this?", tell)
    return accepted(question, content) if decision == "approve" else _decided(question, decision)


def question_words(question: ElicitationRequested) -> str:
    """Return who asks what; the server's words are made visible, and are never marked up."""
    server = show_shortened(question.server, _LONGEST)
    return f"The MCP server {server} asks: {show_shortened(question.message, _LONGEST)}"


def address_text(url: str) -> str:
    """Return an address with its host spelled out.

    Raises:
        UnusableForm: it is none of a page.
    """
    return f"\nIt wants you to open a page of {host_of(url)}: {show_invisible(url)}"


def _typed_in(field: FormField, tell: Callable[[str], None]) -> Any:
    tell(_field_text(field))
    prompt = f"{show_shortened(field.title, _LONGEST)}: "
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
    """Return what is to be known before a field is filled in, on lines of their own."""
    marks = ["required" if field.required else "Enter alone leaves it out"]
    if field.default is not None:
        marks = [f"Enter alone is {_shown(field, field.default)}"]
    hint = {"boolean": "yes or no", "choices": "numbers with commas between them"}
    marks += filter(None, (hint.get(field.kind, ""), field.hint, f"{_STOP} declines"))
    lines = [f"  ({'; '.join(marks)})"]
    if field.description:
        lines.insert(0, f"  {show_shortened(field.description, _LONGEST)}")
    for number, (_, label) in enumerate(field.options, 1):
        lines.append(f"  {number}. {show_shortened(label, _LONGEST)}")
    return "\n".join(lines)


def _shown(field: FormField, value: Any) -> str:
    if field.kind == "boolean":
        return "yes" if value else "no"
    labels = dict(field.options)
    values = value if isinstance(value, list) else [value]
    return ", ".join(show_shortened(str(labels.get(one, one)), _LONGEST) for one in values)


def _ask_decision(words: str, tell: Callable[[str], None]) -> str:
    while True:
        typed = input(f"{words} [y]es, [n]o, [s]top: ").strip().lower()
        if typed in _KEYS:
            return _KEYS[typed]
        if typed:
            tell(f"{typed!r} is not offered here.")


def _decided(question: ElicitationRequested, decision: str) -> Answer:
    return Answer(question_id=question.question_id, decision=decision)
