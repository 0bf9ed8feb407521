"""A click while the main thread blocks is heard, however soon it comes."""

from collections.abc import Callable
from typing import Any

from agent_magics.kernel.lab.link import LabLink, Page
from agent_magics.kernel.questions.clicks import ask_by_page
from agent_magics.kernel.questions.drawing import question_widget
from agent_magics.protocol.events import ApprovalRequested

LIMIT = 60.0


def test_a_page_may_answer_before_drawing_returns() -> None:
    what = {"tool": "shell", "target": "ls", "arguments": "{}", "reason": "why"}
    question = ApprovalRequested(question_id="q1", call_id="c1", **what)
    link, page = LabLink(None), Page(None, "comm", {})

    def draw(listen: Callable[[Any], None]) -> None:
        widget, _ = question_widget(question, by_page=True)
        listen(widget)
        for content in ({"type": "drawn"}, {"type": "answer", "id": "q1", "decision": "approve"}):
            link._receive(page, {"type": "question", "id": "q1", "content": content}, "control")

    answer = ask_by_page(link, question, draw, LIMIT, lambda: None)
    assert answer is not None and answer.decision == "approve"
