"""Rung (c) of the answer ladder: a click answers while the main thread blocks.

The question is drawn as any other; only what its widget has to say comes through the labextension,
which reaches the kernel on a subshell or on the control channel. The widget's own comm would wait
for the very thread that asks.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from agent_magics.kernel.answers import clicked_answer
from agent_magics.kernel.capture import uncaptured
from agent_magics.kernel.interrupt import interruptible, marks_person_code
from agent_magics.kernel.lab_link import LabLink
from agent_magics.protocol.events import Question
from agent_magics.protocol.ops import Answer

# How often the waiting thread looks up: to draw, and for a page that was loaded anew.
_BEAT = 0.1


def ask_by_page(
    link: LabLink,
    question: Question,
    draw: Callable[[], Any],
    limit: float,
    tick: Callable[[], Any],
) -> Answer | None:
    """Ask by widget, from a main thread that blocks, and wait for the click.

    Args:
        link: the pages.
        question: what is asked.
        draw: draws it and returns its widget, which speaks through the page.
        limit: seconds that the widget has to say that it was drawn.
        tick: called several times a second.

    Returns:
        The answer; None where the widget was not drawn.

    Raises:
        KeyboardInterrupt: the person interrupted.
    """
    said: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    with interruptible(), uncaptured():
        widget = draw()
        widget.on_drawn(lambda: said.put(()))
        widget.on_answer(lambda *answer: said.put(answer))
        link.hear_question(question.question_id, widget.hear)
        try:
            answer = _wait(said, limit, tick)
        finally:
            link.hear_question(question.question_id, None)
    return None if answer is None else clicked_answer(question, *answer)


@marks_person_code
def _wait(
    said: "SimpleQueue[tuple[Any, ...]]", limit: float, tick: Callable[[], Any]
) -> tuple[Any, ...] | None:
    """Return what was answered; None if there is no sign within `limit` that it was drawn."""
    deadline: float | None = monotonic() + limit
    while deadline is None or monotonic() < deadline:
        try:
            news = said.get(timeout=_BEAT)
        except Empty:
            tick()
            continue
        if news:
            return news
        deadline = None
    return None
