"""Receives clicks that answer a question while the main thread blocks.

The question is drawn as any other; only its widget's messages come through the labextension, which
reaches the kernel on a subshell or on the control channel. The widget's own comm would wait for the
very thread that asks.
"""

from collections.abc import Callable
from queue import Empty, Queue
from time import monotonic
from typing import Any

from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.engine.foreground.interrupt import interruptible
from agent_magics.kernel.lab.link import LabLink
from agent_magics.kernel.live.capture import uncaptured
from agent_magics.kernel.questions.ways import clicked_answer
from agent_magics.protocol.events import Question
from agent_magics.protocol.ops import Answer

# Seconds between checks of the waiting thread: to draw, and for a reloaded page.
_BEAT = 0.1


def ask_by_page(
    link: LabLink,
    question: Question,
    draw: Callable[[Callable[[Any], None]], object],
    limit: float,
    tick: Callable[[], Any],
) -> Answer | None:
    """Ask by widget from a main thread that blocks, and wait for the click.

    Args:
        link: the connected pages.
        question: the question.
        draw: makes its widget, whose messages come through the page, passes it to a function, and
            then draws it.
        limit: seconds for the widget to report that it was drawn.
        tick: called several times a second.

    Returns:
        The answer; None where the widget was not drawn.

    Raises:
        KeyboardInterrupt: the person interrupted.
    """
    messages: Queue[tuple[Any, ...]] = Queue()

    def listen(widget: Any) -> None:
        widget.on_drawn(lambda: messages.put(()))
        widget.on_answer(lambda *answer: messages.put(answer))
        link.hear_question(question.question_id, widget.hear)

    with interruptible(), uncaptured():
        try:
            draw(listen)
            answer = _wait(messages, limit, tick)
        finally:
            link.hear_question(question.question_id, None)
    return None if answer is None else clicked_answer(question, *answer)


@marks_person_code
def _wait(
    messages: "Queue[tuple[Any, ...]]", limit: float, tick: Callable[[], Any]
) -> tuple[Any, ...] | None:
    """Return the answer; None where the widget did not report within `limit` that it was drawn."""
    deadline: float | None = monotonic() + limit
    while deadline is None or monotonic() < deadline:
        try:
            message = messages.get(timeout=_BEAT)
        except Empty:
            tick()
            continue
        if message:
            return message
        deadline = None
    return None
