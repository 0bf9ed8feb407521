"""Creates the widget of a question in a notebook."""

from agent_magics.kernel.questions.ways import choices_of
from agent_magics.protocol.events import FormRequested, Question


def question_widget(
    question: Question, *, language: str = "json", by_page: bool = False
) -> tuple[object, str]:
    """Return a question's widget, and its text for front ends that draw no widgets.

    Args:
        question: an approval question, or a form.
        language: the language of the call's arguments: bash, python, json or text.
        by_page: see `HearingWidget`.
    """
    # Late on purpose: a run without questions never imports anywidget.
    if isinstance(question, FormRequested):
        from agent_magics.render.widgets.form import FormWidget  # noqa: PLC0415

        form = FormWidget(question, by_page=by_page)
        return form, form.text
    from agent_magics.render.widgets.question import QuestionWidget  # noqa: PLC0415

    is_own = bool(getattr(question, "labels", None))  # no call of a tool
    widget = QuestionWidget(
        question_id=question.question_id,
        tool="" if is_own else getattr(question, "tool", ""),
        target=getattr(question, "target", ""),
        arguments=getattr(question, "arguments", ""),
        reason=getattr(question, "reason", ""),
        language=language,
        choices=choices_of(question),
        editable=getattr(question, "editable", ""),
        dangerous=getattr(question, "dangerous", False),
        by_page=by_page,
    )
    return widget, widget.target if is_own else f"may {widget.tool} run {widget.target}?"
