"""How a question reaches the person, and the answer the engine: the whole ladder in one place.

    (a) no stdin allowed (nbclient, nbval, papermill): policy answers at once, with a reason
    (b) a widget in a cell that awaits; it must say within 3 s that it was drawn
    (c) the same widget while the main thread blocks, where the labextension reaches the kernel
    (d) input(): consoles, fronts that draw no widgets, cells that block without (c)

Exactly one of them is open for a question at any time. Answers queued by ``%agent answer`` come
before all of them.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from agent_magics.dispatch.elicitation import accepted, declined, unusable
from agent_magics.engine.host import denied
from agent_magics.kernel.capture import uncaptured
from agent_magics.kernel.interrupt import interruptible, marks_person_code
from agent_magics.kernel.lab_link import LabLink
from agent_magics.kernel.typed_forms import type_in_form
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import ApprovalRequested, ElicitationRequested, Question
from agent_magics.protocol.ops import DECISIONS, Answer
from agent_magics.render.visible import pretty_shortened, show_invisible, show_shortened

# Seconds a widget has to say that it was drawn; more where one has been drawn before, since
# then it is only the page that is slow.
DRAWN_LIMIT = 3.0
PATIENCE = 30.0

NO_STDIN = (
    "nobody can be asked in this run (it allows no input). Queue the answer with %agent answer "
    "approve, or run it in JupyterLab; --approval never lets code run in the kernel, --sandbox "
    "danger-full-access lets commands run."
)
NO_STDIN_FORM = (
    "nobody can be asked in this run (it allows no input). Run it in JupyterLab, or queue %agent "
    "answer approve, which sends the form as it stands."
)

_KEYS = {
    "y": "approve",
    "yes": "approve",
    "c": "approve_for_cell",
    "cell": "approve_for_cell",
    "a": "approve_for_session",
    "always": "approve_for_session",
    "session": "approve_for_session",
    "p": "approve_for_project",
    "project": "approve_for_project",
    "e": "edit",
    "edit": "edit",
    "n": "deny",
    "no": "deny",
    "s": "abort",
    "stop": "abort",
}
_LABELS = {
    "approve": "Approve",
    "approve_for_cell": "Always in this cell",
    "approve_for_session": "Always for this session",
    "approve_for_project": "Always for this project",
    "deny": "Deny",
    "abort": "Stop",
}
_WORDS = {
    "approve": "[y]es",
    "approve_for_cell": "[c]ell",
    "approve_for_session": "[a]lways in this session",
    "approve_for_project": "[p]roject",
    "edit": "[e]dit",
    "deny": "[n]o and why",
    "abort": "[s]top",
}
# What a console shows of one question, and the most that can be typed in anew.
_LONGEST_SHOWN, _LONGEST_EDITED = 20_000, 2_000


class NotebookHost:
    """Answers questions for runs in this kernel: beforehand, by policy, or typed in.

    Attributes:
        widgets_work: False once a widget was not drawn in time: this front end has none.
        widgets_seen: True once a widget was drawn.
        lab: the pages of JupyterLab that the labextension has told of.
    """

    def __init__(self, shell: Any, lab: LabLink | None = None) -> None:
        self._shell = shell
        self.lab = lab or LabLink(None)
        self._beforehand: deque[str] = deque()
        self.widgets_work = True
        self.widgets_seen = False

    @property
    def drawn_limit(self) -> float:
        """Seconds to wait for a widget's sign that it was drawn."""
        return PATIENCE if self.widgets_seen else DRAWN_LIMIT

    def queue(self, decisions: list[str]) -> None:
        """Keep answers for the next questions, first to first.

        Raises:
            FatalError: one of them is no decision.
        """
        for decision in decisions:
            if decision not in DECISIONS:
                raise FatalError(f"{decision!r} is no answer; there are: {', '.join(DECISIONS)}.")
        self._beforehand.extend(decisions)

    @property
    def queued(self) -> tuple[str, ...]:
        """The answers waiting for questions."""
        return tuple(self._beforehand)

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """Answer on a running loop."""
        return self.answer_blocking(question)

    def answer_blocking(self, question: Question) -> Answer:
        """Answer while the main thread blocks: a click could not arrive, so it is typed in."""
        return self.ready_answer(question) or self.type_in(question)

    def guard(self) -> AbstractContextManager[Any]:
        """See `interrupt.interruptible`."""
        return interruptible()

    def ready_answer(self, question: Question) -> Answer | None:
        """Return the answer that needs nobody now: given beforehand, or the policy's."""
        is_form = isinstance(question, ElicitationRequested)
        if is_form and (reason := unusable(question)):
            return declined(question, reason)
        if self._beforehand:
            decision = self._beforehand.popleft()
            if is_form and decision.startswith("approve"):
                return accepted(question, by="beforehand")
            return Answer(question_id=question.question_id, decision=decision, by="beforehand")
        if stdin_allowed(self._shell):
            return None
        return denied(question, NO_STDIN_FORM if is_form else NO_STDIN)

    def type_in(self, question: Question) -> Answer:
        """Ask with ``input()``."""
        with interruptible(), uncaptured():
            return type_in(question)


class CellHost:
    """Answers the questions of one cell that awaits and can draw: with a widget where that works.

    Args:
        notebook: the kernel's host, whose ladder this one is a rung of.
        show: draws a question in the cell and returns its widget.
        close: takes the widget of a question away.
        otherwise: answers where no widget is drawn; None has it typed in.
        click: asks by widget while the main thread blocks; its answer is None where that cannot be.
    """

    def __init__(
        self,
        notebook: NotebookHost,
        show: Callable[[Question], Any],
        close: Callable[[Question], None],
        otherwise: Callable[[Question], Answer] | None = None,
        click: Callable[[Question], Answer | None] = lambda question: None,
    ) -> None:
        self._notebook = notebook
        self._click = click
        self._show = show
        self._close = close
        self._otherwise = otherwise or notebook.type_in

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """Answer on a running loop: beforehand, by policy, or by asking."""
        ready = self._notebook.ready_answer(question)
        if ready is not None:
            return ready
        return self.ask(question)

    def ask(self, question: Question) -> Answer | Awaitable[Answer]:
        """Ask now, with a widget where that works."""
        if not self._notebook.widgets_work:
            return self._otherwise(question)
        return self._ask_by_widget(question)

    def answer_blocking(self, question: Question) -> Answer:
        """Answer while the main thread blocks: beforehand, by policy, by a click, or typed in."""
        ready = self._notebook.ready_answer(question) or self._click(question)
        return ready or self._notebook.type_in(question)

    def guard(self) -> AbstractContextManager[Any]:
        """See `interrupt.interruptible`."""
        return self._notebook.guard()

    async def _ask_by_widget(self, question: Question) -> Answer:
        loop = asyncio.get_running_loop()
        drawn: asyncio.Future[None] = loop.create_future()
        clicked: asyncio.Future[tuple[str, str, Any]] = loop.create_future()
        widget = self._show(question)
        # Handlers only hand over: on older kernels they run on another thread.
        widget.on_drawn(lambda: loop.call_soon_threadsafe(_settle, drawn, None))
        widget.on_answer(lambda *answer: loop.call_soon_threadsafe(_settle, clicked, answer))
        await asyncio.wait(
            [drawn, clicked],
            timeout=self._notebook.drawn_limit,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not drawn.done() and not clicked.done():
            self._notebook.widgets_work = False
            self._close(question)
            return self._otherwise(question)
        self._notebook.widgets_seen = True
        return clicked_answer(question, *await clicked)


def _settle(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def clicked_answer(question: Question, decision: str, feedback: str, edited: Any) -> Answer:
    """Return the answer that a widget gave.

    Args:
        question: what was asked.
        decision, feedback: what was clicked, and the words that went with it.
        edited: the text as it was changed, of a form its content; None is neither.
    """
    if isinstance(question, ElicitationRequested) and decision == "approve":
        return accepted(question, edited)
    return Answer(
        question_id=question.question_id, decision=decision, feedback=feedback, edited_text=edited
    )


def choices_of(question: Question) -> list[dict[str, str]]:
    """Return the buttons of a question, and of lasting answers what exactly they cover."""
    covers = question.covers if isinstance(question, ApprovalRequested) else {}
    return [
        {"decision": decision, "label": label, "covers": covers.get(decision, "")}
        for decision, label in _LABELS.items()
        if decision in _offered(question)
    ]


def _offered(question: Question) -> tuple[str, ...]:
    """Return the answers that a question may be given."""
    scopes = question.scopes if isinstance(question, ApprovalRequested) else ()
    return ("approve", *scopes, "deny", "abort")


@marks_person_code
def type_in(question: Question) -> Answer:
    """Ask with ``input()`` until the answer is one."""
    if isinstance(question, ElicitationRequested):
        try:
            return type_in_form(question, _tell)
        except EOFError:
            return denied(question, NO_STDIN_FORM)
    if not isinstance(question, ApprovalRequested):
        return denied(question, "this kind of question cannot be asked here yet")
    _tell(question_text(question))
    offered = (*_offered(question), *(["edit"] if _can_be_typed(question.editable) else []))
    prompt = f"Run it? {', '.join(words for key, words in _WORDS.items() if key in offered)}: "
    while True:
        edited = None
        try:
            typed = input(prompt).strip()
            decision, feedback = read_typed(typed) if typed else ("", "")
            if decision == "edit" and decision in offered:
                edited = input("Run instead (Enter alone: back): ").strip()
                decision = "approve" if edited else ""
        except EOFError:
            return denied(question, NO_STDIN)
        if decision in offered:
            return Answer(
                question_id=question.question_id,
                decision=decision,
                feedback=feedback,
                edited_text=edited,
            )
        if decision:
            _tell(f"{typed!r} is not offered here.")


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _can_be_typed(text: str) -> bool:
    """Tell whether a person can type a text anew: one line of which they see all."""
    is_short = 0 < len(text) <= _LONGEST_EDITED and "\n" not in text
    return is_short and show_invisible(text) == text


def read_typed(typed: str) -> tuple[str, str]:
    """Return the decision (or "edit") and the words to the model.

    An approval is one word and nothing else: "a better way, please" is no "always". Words that
    are no choice are a denial with those words, as in the widget.
    """
    word, _, rest = typed.partition(" ")
    decision = _KEYS.get(word.lower())
    if decision is None or (rest and decision not in ("deny", "abort")):
        return "deny", typed
    return decision, rest.strip()


def question_text(question: ApprovalRequested) -> str:
    """Return the question for a console: tool, target and the whole arguments, made visible.

    What is too long to be looked at is cut in the middle, and says so; the end is always shown.
    """
    lines = [
        f"The agent wants to run {show_shortened(question.tool, _LONGEST_EDITED)}: "
        f"{show_shortened(question.target, _LONGEST_SHOWN)}",
        f"Why you are asked: {show_shortened(question.reason, _LONGEST_SHOWN)}",
        pretty_shortened(question.arguments, _LONGEST_SHOWN),
    ]
    for scope in question.scopes:
        covers = show_shortened(question.covers.get(scope, ""), _LONGEST_EDITED)
        lines.append(f"  {_LABELS[scope]}: {covers}")
    return "\n".join(lines)


def stdin_allowed(shell: Any) -> bool:
    """Tell whether the request that runs now may ask for input."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return bool(sys.stdin) and sys.stdin.isatty()
    return bool(getattr(kernel, "_allow_stdin", False))
