"""Widgets for approval questions and for the output of running commands.

Their front-end halves are the plain ES modules in ``static/``. Handlers here only call the
registered callbacks: they may run on any thread.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets

from agent_magics.render.visible import pretty_shortened, show_invisible, show_shortened

STATIC: Final = Path(__file__).parent / "static"
BACKLOG_CHARACTERS: Final = 100_000


# What of one question goes to the page: it must stay usable, whatever a model sends.
_LONGEST_TARGET, _LONGEST_ARGUMENTS = 2_000, 100_000
_LONGEST_EDITED = 20_000
# Arguments that may scroll show their end a second time, where it is seen at once.
_ALWAYS_SEEN, _SEEN_LINES, _ENDING, _ENDING_LINES = 1_200, 12, 400, 4
_TARGET_LINES = 6


def script(*names: str) -> str:
    """Concatenate files of ``static/`` into one ES module; the files import nothing."""
    return "".join((STATIC / name).read_text(encoding="utf-8") for name in names)


class QuestionWidget(anywidget.AnyWidget):
    """Asks one question: may this call run?

    Messages from the front end: ``{"type": "drawn"}`` once the question is on the page, and
    ``{"type": "answer", "id": …, "decision": …, "feedback": …, "edited": …}`` for a click. The id
    is the question's own, which nothing else knows. To it: ``decision``, a trait rather than a
    message, so that views drawn later show the answer as well.

    Args:
        question_id: the id that the answer will carry.
        tool: name of the tool that wants to run; "" where the question is about no call.
        target: what it would touch, on one line.
        arguments: all of its arguments, JSON text or code.
        reason: why this is asked.
        language: what the arguments are written in: bash, python, json or text.
        choices: the buttons, in order, as ``{"decision": …, "label": …, "covers": …}``.
        editable: the text that may be changed and approved.
        dangerous: Deny is what the page suggests, and Approve looks like what it is.
        by_page: what it has to say comes by way of the page's extension, to `hear`; its own comm
            waits for the main thread.
    """

    _esm = script("elements.js", "question.js")
    _css = (STATIC / "widgets.css").read_text(encoding="utf-8")

    question_id = traitlets.Unicode().tag(sync=True)
    tool = traitlets.Unicode().tag(sync=True)
    target = traitlets.Unicode().tag(sync=True)
    arguments = traitlets.Unicode().tag(sync=True)
    ending = traitlets.Unicode().tag(sync=True)
    reason = traitlets.Unicode().tag(sync=True)
    language = traitlets.Unicode("text").tag(sync=True)
    choices = traitlets.List(traitlets.Dict()).tag(sync=True)
    editable = traitlets.Unicode().tag(sync=True)
    decision = traitlets.Unicode().tag(sync=True)
    dangerous = traitlets.Bool(False).tag(sync=True)
    by_page = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        *,
        question_id: str,
        tool: str,
        target: str,
        arguments: str,
        reason: str,
        choices: Sequence[dict[str, str]],
        language: str = "text",
        editable: str = "",
        dangerous: bool = False,
        by_page: bool = False,
    ) -> None:
        self._on_drawn: list[Callable[[], None]] = []
        self._on_answer: list[Callable[[str, str, str | None], None]] = []
        shown = pretty_shortened(arguments, _LONGEST_ARGUMENTS)
        super().__init__(
            question_id=question_id,
            tool=show_invisible(tool),
            target=_in_few_lines(show_shortened(target, _LONGEST_TARGET)),
            arguments=shown,
            ending=_ending_of(shown),
            reason=_in_few_lines(show_shortened(reason, _LONGEST_TARGET)),
            language=language,
            choices=[_shown_choice(choice) for choice in choices],
            editable=editable if _can_be_edited(editable) else "",
            dangerous=dangerous,
            by_page=by_page,
        )
        self.on_msg(self._receive)

    def on_drawn(self, callback: Callable[[], None]) -> None:
        """Register a callback for each time that a view of the question is put on the page."""
        self._on_drawn.append(callback)

    def on_answer(self, callback: Callable[[str, str, str | None], None]) -> None:
        """Register a callback that gets the decision, the feedback and the edited text.

        The feedback is "" if there is none; the edited text is None where it was not changed.
        """
        self._on_answer.append(callback)

    def resolve(self, decision: str) -> None:
        """Show the answer, given here or elsewhere, and accept no more clicks."""
        self.decision = decision

    def hear(self, content: Mapping[str, Any]) -> None:
        """Handle a front-end message that arrived outside the widget's comm; from any thread."""
        self._receive(self, content, None)

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("type") == "drawn":
            for drawn in self._on_drawn:
                drawn()
        elif content.get("type") == "answer" and self._is_answer(content):
            decision = str(content.get("decision", ""))
            edited = content.get("edited")
            for answer in self._on_answer:
                answer(
                    decision,
                    str(content.get("feedback") or ""),
                    edited if isinstance(edited, str) else None,
                )

    def _is_answer(self, content: Mapping[str, Any]) -> bool:
        """Return whether a message is a valid answer to this question; pages are not trusted."""
        if self.decision or content.get("id") != self.question_id:
            return False
        decision = content.get("decision")
        if not any(choice["decision"] == decision for choice in self.choices):
            return False
        # A lasting answer is about what was shown, not about what was typed.
        return content.get("edited") is None or (decision == "approve" and bool(self.editable))


def _ending_of(shown: str) -> str:
    """Return the last lines of a text that is too long to be seen without scrolling, else ""."""
    if len(shown) <= _ALWAYS_SEEN and shown.count("\n") < _SEEN_LINES:
        return ""
    return "\n".join(shown[-_ENDING:].split("\n")[-_ENDING_LINES:]).lstrip()


def _in_few_lines(text: str) -> str:
    """Shorten a text to its first and last three lines."""
    lines = text.split("\n")
    if len(lines) <= _TARGET_LINES:
        return text
    half = _TARGET_LINES // 2
    left_out = f"⟨… {len(lines) - 2 * half} lines are left out here …⟩"
    return "\n".join([*lines[:half], left_out, *lines[-half:]])


def _can_be_edited(text: str) -> bool:
    """Return whether a text is short and visible enough to be seen whole while it is edited."""
    return len(text) <= _LONGEST_EDITED and show_invisible(text) == text


def _shown_choice(choice: dict[str, str]) -> dict[str, str]:
    return {**choice, "covers": show_shortened(choice.get("covers", ""), _LONGEST_TARGET)}


class StreamWidget(anywidget.AnyWidget):
    """Shows the growing output of one command, sending each piece of text once per view.

    A view asks with ``{"type": "ready", "view": id}`` and is answered with the backlog, marked with
    its id; from then on it takes the ``{"type": "append", "text": …}`` that all views get.

    Attributes:
        drawn: whether a view has asked for the backlog, so that somebody sees it.

    Args:
        label: the title, such as the command.
    """

    _esm = script("stream.js")
    _css = (STATIC / "widgets.css").read_text(encoding="utf-8")

    label = traitlets.Unicode().tag(sync=True)
    finished = traitlets.Bool(False).tag(sync=True)

    def __init__(self, label: str = "Output") -> None:
        self._backlog: deque[str] = deque()
        self._backlog_size = 0
        self.drawn = False
        super().__init__(label=show_invisible(label))
        self.on_msg(self._receive)

    def append(self, text: str) -> None:
        """Show more output; the backlog keeps the last 100,000 characters."""
        text = text[-BACKLOG_CHARACTERS:]
        if not text:
            return
        self._backlog.append(text)
        self._backlog_size += len(text)
        while self._backlog_size - len(self._backlog[0]) >= BACKLOG_CHARACTERS:
            self._backlog_size -= len(self._backlog.popleft())
        self.send({"type": "append", "text": text})

    def finish(self) -> None:
        """Mark the output as complete."""
        self.finished = True

    def _receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("type") == "ready":
            self.drawn = True
            backlog = "".join(self._backlog)[-BACKLOG_CHARACTERS:]
            self.send({"type": "append", "text": backlog, "view": content.get("view")})
