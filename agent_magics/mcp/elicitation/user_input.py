"""Checks the model's questions to the person, and converts them to the fields of a form."""

import re
from collections.abc import Sequence

from agent_magics.mcp.elicitation.forms import FormField, UnusableForm
from agent_magics.protocol.events import UserQuestion
from agent_magics.text.secrets import asks_for_secret, requests_secret

# Limits of what a person can still read at a glance; lengths in characters.
MOST_QUESTIONS, MOST_CHOICES = 4, 20
_LONGEST = {"header": 80, "question": 2_000, "label": 200, "description": 500}
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def question_fields(questions: Sequence[UserQuestion]) -> tuple[FormField, ...]:
    """Return a form's fields, one for each question.

    Raises:
        UnusableForm: a question cannot be asked; the message says which, and why.
    """
    if not 1 <= len(questions) <= MOST_QUESTIONS:
        raise UnusableForm(f"questions: expected 1 to {MOST_QUESTIONS}, got {len(questions)}")
    if len({question.id for question in questions}) < len(questions):
        raise UnusableForm("questions: expected a different id for each")
    return tuple(map(_field, questions))


def _field(question: UserQuestion) -> FormField:
    labels = [option.label for option in question.options]
    if problem := _problem(question, labels):
        raise UnusableForm(f"question {question.id[:64]!r}: {problem}")
    return FormField(
        name=question.id,
        kind="text" if not labels else "choices" if question.multi else "choice",
        title=": ".join(filter(None, (question.header.strip(), question.question))),
        required=True,
        options=tuple((label, label) for label in labels),
        descriptions={option.label: option.description for option in question.options},
        is_open=question.free_text,
        is_listed=True,
        least=1 if labels and question.multi else None,
    )


def _problem(question: UserQuestion, labels: Sequence[str]) -> str:
    """Return why a question cannot be asked; "" where it can."""
    texts = [("header", question.header), ("question", question.question)]
    texts += [("label", label) for label in labels]
    texts += [("description", option.description) for option in question.options]
    for name, text in texts:
        if len(text) > _LONGEST[name]:
            return f"{name}: expected at most {_LONGEST[name]} characters, got {len(text)}"
        if not text.strip() and name in ("question", "label"):
            return f"{name}: expected text, got none"
    if not _ID.fullmatch(question.id):
        return "id: expected 1 to 64 letters, digits, dots, _ or -"
    if len(labels) > MOST_CHOICES or len(set(labels)) < len(labels):
        return f"options: expected at most {MOST_CHOICES}, with different labels"
    if not labels and not question.free_text:
        return "it has no options, so free_text must be true"
    labels_ask = any(map(asks_for_secret, (question.id, question.header)))
    if question.free_text and (labels_ask or requests_secret(question.question)):
        return "no form may ask for a secret; where it asks none, give options and free_text=false"
    return ""
