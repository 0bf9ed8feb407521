"""Answers to a server's question: whoever gives them, only what fits the form is sent."""

import json
from collections.abc import Mapping
from typing import Any

from agent_magics.dispatch.forms import UnusableForm, check_content, form_fields, host_of
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.protocol.mcp import Elicitation
from agent_magics.protocol.ops import Answer


def accepted(
    question: ElicitationRequested, content: Mapping[str, Any] | None = None, *, by: str = "person"
) -> Answer:
    """Return the answer that accepts, or a denial that says why it cannot be accepted so.

    Args:
        question: what the server asks.
        content: the form's fields; None is the form as it stands, with its defaults.
        by: who answered.
    """
    if reason := unusable(question):
        return declined(question, reason)
    fitting, problems = checked_content(question, content)
    if problems:
        told = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        return declined(question, f"the answer does not fit the form: {told}")
    return Answer(
        question_id=question.question_id,
        decision="approve",
        edited_arguments=None if question.url else json.dumps(fitting),
        by=by,
    )


def unusable(question: ElicitationRequested) -> str:
    """Say why a question cannot be put to anybody; "" where it can."""
    try:
        checked_content(question, None)
    except UnusableForm as problem:
        return f"the question of {question.server} cannot be shown: {problem}"
    return ""


def declined(question: ElicitationRequested, reason: str) -> Answer:
    """Return the denial of a question that was put to nobody."""
    return Answer(question_id=question.question_id, decision="deny", feedback=reason, by="policy")


def checked_content(
    question: Elicitation | ElicitationRequested, content: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what of a content may be sent, and by field what is wrong.

    Raises:
        UnusableForm: the form, or the address, is none that can be shown.
    """
    if question.url:
        host_of(question.url)
        return {}, {}
    fields = form_fields(question.schema)
    if content is None:
        content = {field.name: field.default for field in fields}
    return check_content(fields, content)


def sent_content(question: Elicitation, answer: Answer) -> Mapping[str, Any] | None:
    """Return the content that goes to the server, checked once more; None where nothing may go.

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
