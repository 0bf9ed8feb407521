"""Validates answers to a form, of a server or the model: only values that fit it are sent."""

import json

from agent_magics.mcp.elicitation.forms import (
    FormField,
    UnusableForm,
    check_content,
    form_fields,
    host_of,
)
from agent_magics.mcp.elicitation.user_input import question_fields
from agent_magics.protocol.errors import short_message
from agent_magics.protocol.events import FormRequested, UserInputRequested
from agent_magics.protocol.items import JsonMapping, JsonObject
from agent_magics.protocol.mcp import Elicitation
from agent_magics.protocol.ops import Answer, denied


def accepted(
    question: FormRequested, content: JsonMapping | None = None, *, by: str = "person"
) -> Answer:
    """Return an accepting answer, or a denial if the content does not fit the form.

    Args:
        question: the question.
        content: the form's fields. A missing one gets its default, one that is None is left
            out; None instead of a mapping means all defaults.
        by: who answered.
    """
    if reason := unusable(question):
        return denied(question.question_id, reason)
    fitting, problems = checked_content(question, content)
    if problems:
        description = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        return denied(question.question_id, f"the answer does not fit the form: {description}")
    left_out = dict.fromkeys(content or ())  # explicit, otherwise their defaults would apply
    return Answer(
        question_id=question.question_id,
        decision="approve",
        edited_arguments=None if address_of(question) else json.dumps(left_out | fitting),
        by=by,
    )


def unusable(question: FormRequested) -> str:
    """Return why a question cannot be shown; "" where it can."""
    try:
        checked_content(question, None)
    except UnusableForm as problem:
        asker = getattr(question, "server", "the model")
        return f"the question of {asker} cannot be shown: {short_message(problem)}"
    return ""


def address_of(question: Elicitation | FormRequested) -> str:
    """Return the address that a question asks to open; "" where it has a form."""
    return "" if isinstance(question, UserInputRequested) else question.url


def fields_of(question: Elicitation | FormRequested) -> tuple[FormField, ...]:
    """Return the fields of a question's form; none where it asks to open an address.

    Raises:
        UnusableForm: the form cannot be shown.
    """
    if isinstance(question, UserInputRequested):
        return question_fields(question.questions)
    return () if question.url else form_fields(question.schema, question.message)


def checked_content(
    question: Elicitation | FormRequested, content: JsonMapping | None
) -> tuple[JsonObject, dict[str, str]]:
    """Return the valid values of a content, and by field the errors of others.

    Raises:
        UnusableForm: the form, or the address, cannot be shown.
    """
    if url := address_of(question):
        host_of(url)
        return {}, {}
    fields = fields_of(question)
    defaults = {field.name: field.default for field in fields}
    return check_content(fields, defaults | dict(content or {}))


def sent_content(question: Elicitation | FormRequested, answer: Answer) -> JsonMapping | None:
    """Return the content to send to who asked, validated again; None if it is invalid.

    An `Answer` may come from any client, and need not have passed `accepted`.
    """
    try:
        content = None if answer.edited_arguments is None else json.loads(answer.edited_arguments)
        if not (content is None or isinstance(content, dict)):
            return None
        fitting, problems = checked_content(question, content)
    except ValueError:  # no JSON, or an unusable form
        return None
    return None if problems else fitting
