"""Asks the person by the first way that works (widget, click, input) and returns the answer.

    (a) no stdin allowed (nbclient, nbval, papermill): policy answers at once, with a reason
    (b) a widget in a cell that awaits; it must say within 3 s that it was drawn; in the background,
        where (d) asks nobody, it waits for a page wherever one was ever connected
    (c) the same widget while the main thread blocks, where the labextension reaches the kernel
    (d) input(): consoles, fronts that draw no widgets, cells that block without (c)

Exactly one of them is open for a question at any time. Answers queued by ``%agent answer`` come
before all of them.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.engine.foreground.interrupt import interruptible
from agent_magics.kernel.lab.link import LabLink
from agent_magics.kernel.live.capture import uncaptured
from agent_magics.kernel.questions.typed_forms import type_in_form
from agent_magics.mcp.elicitation.answers import accepted, unusable
from agent_magics.protocol.events import (
    ApprovalRequested,
    ElicitationRequested,
    FormRequested,
    Question,
    UserInputRequested,
)
from agent_magics.protocol.ops import Answer, denied
from agent_magics.render.visible import pretty_shortened, show_invisible, show_shortened

# Seconds for a widget's report that it was drawn; more where one was drawn before, since
# then the page is only slow.
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
NO_STDIN_QUESTION = "nobody can be asked in this run (it allows no input)"

# For each decision: its button, how a console shows it, and what may be typed there.
_CHOICES = {
    "approve": ("Approve", "[y]es", "y yes"),
    "approve_for_cell": ("Always in this cell", "[c]ell", "c cell"),
    "approve_for_session": (
        "Always for this session",
        "[a]lways in this session",
        "a always session",
    ),
    "approve_kind_for_cell": ("All such in this cell", "all of this [k]ind in this cell", "k kind"),
    "approve_kind_for_session": (
        "All such for this session",
        "all such in the [w]hole session",
        "w",
    ),
    "approve_for_project": ("Always for this project", "[p]roject", "p project"),
    "approve_for_project_exact": (
        "Always exactly this, for this project",
        "e[x]actly this in the project",
        "x exact",
    ),
    "edit": ("", "[e]dit", "e edit"),  # a widget has a field for it
    "deny": ("Deny", "[n]o and why", "n no"),
    "abort": ("Stop", "[s]top", "s stop"),
}
_KEYS = {key: decision for decision, (_, _, keys) in _CHOICES.items() for key in keys.split()}
# What a console shows of one question, and the most that can be typed in anew.
_LONGEST_SHOWN, _LONGEST_EDITED = 20_000, 2_000


class NotebookHost:
    """Answers questions for runs in this kernel: by queued answers, by policy, or typed in.

    Attributes:
        queued: the answers to the next questions.
        widgets_work: False once a widget was not drawn in time: this front end has none.
        widgets_seen: True once a widget was drawn.
        lab: the pages of JupyterLab that are connected.
    """

    def __init__(self, shell: Any, lab: LabLink | None = None) -> None:
        self._shell = shell
        self.lab = lab or LabLink(None)
        self.queued: deque[str] = deque()
        self.widgets_work = True
        self.widgets_seen = False

    @property
    def drawn_limit(self) -> float:
        """The seconds to wait for a widget's report that it was drawn."""
        return PATIENCE if self.widgets_seen else DRAWN_LIMIT

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """Answer on a running event loop."""
        return self.answer_blocking(question)

    def answer_blocking(self, question: Question) -> Answer:
        """Answer while the main thread blocks: typed in, since a click could not arrive."""
        return self.ready_answer(question) or self.type_in(question)

    def guard(self) -> AbstractContextManager[Any]:
        """See `engine.foreground.interrupt.interruptible`."""
        return interruptible()

    def ready_answer(self, question: Question, *, waits: bool = False) -> Answer | None:
        """Return an answer that needs nobody now: a queued one, or the policy's.

        Args:
            question: the question.
            waits: somebody will come, whatever the request that runs now allows.
        """
        form = question if isinstance(question, FormRequested) else None
        if form is not None and (reason := unusable(form)):
            return denied(form.question_id, reason)
        if self.queued:
            decision = self.queued.popleft()
            if form is not None and decision.startswith("approve"):
                return accepted(form, by="beforehand")
            return Answer(question_id=question.question_id, decision=decision, by="beforehand")
        if waits or stdin_allowed(self._shell):
            return None
        return denied(question.question_id, no_stdin_reason(question))

    def type_in(self, question: Question) -> Answer:
        """Ask with ``input()``."""
        with interruptible(), uncaptured():
            answer: Answer = type_in(question)
        return answer


class CellHost:
    """Answers the questions of one cell that can draw: with a widget where that works.

    Args:
        notebook: the kernel's host, which answers where no widget does.
        show: makes a question's widget, passes it to a function, and then draws it in the cell: a
            page may answer before drawing returns.
        close: removes the widget of a question.
        otherwise: answers where no widget is drawn; None means typed in.
        click: asks by widget while the main thread blocks; returns None where that fails.
        waits: tells whether a question waits until a page draws it, one that is slow or away.
        redraw: draws the cell anew on its pages; called from time to time while a question waits.
    """

    def __init__(
        self,
        notebook: NotebookHost,
        show: Callable[[Question, Callable[[Any], None]], object],
        close: Callable[[Question], None],
        otherwise: Callable[[Question], Answer] | None = None,
        click: Callable[[Question], Answer | None] = lambda question: None,
        waits: Callable[[], bool] = bool,
        redraw: Callable[[], object] = bool,
    ) -> None:
        self._notebook = notebook
        self._click = click
        self._waits, self._redraw = waits, redraw
        self._show = show
        self._close = close
        self._otherwise = otherwise or notebook.type_in

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """Answer on a running event loop: by a queued answer, by policy, or by asking."""
        ready = self._notebook.ready_answer(question, waits=self._waits())
        if ready is not None:
            return ready
        return self.ask(question)

    def ask(self, question: Question) -> Answer | Awaitable[Answer]:
        """Ask now, with a widget where that works."""
        if not (self._notebook.widgets_work or self._waits()):
            return self._otherwise(question)
        return self._ask_by_widget(question)

    def answer_blocking(self, question: Question) -> Answer:
        """Answer while the main thread blocks: by a queued answer, policy, a click, or typed in."""
        ready = self._notebook.ready_answer(question) or self._click(question)
        return ready or self._notebook.type_in(question)

    def guard(self) -> AbstractContextManager[Any]:
        """See `engine.foreground.interrupt.interruptible`."""
        return self._notebook.guard()

    async def _ask_by_widget(self, question: Question) -> Answer:
        loop = asyncio.get_running_loop()
        drawn: asyncio.Future[None] = loop.create_future()
        clicked: asyncio.Future[tuple[str, str, Any]] = loop.create_future()

        def listen(widget: Any) -> None:
            # Handlers only pass messages on: they are called on other threads.
            self._notebook.lab.hear_question(question.question_id, widget.hear)
            widget.on_drawn(lambda: loop.call_soon_threadsafe(_settle, drawn, None))
            widget.on_answer(lambda *answer: loop.call_soon_threadsafe(_settle, clicked, answer))

        try:
            self._show(question, listen)
            if not await self._is_drawn(drawn, clicked):
                self._notebook.widgets_work = False
                self._close(question)
                return self._otherwise(question)
            self._notebook.widgets_seen = True
            return clicked_answer(question, *await clicked)
        finally:
            self._notebook.lab.hear_question(question.question_id, None)

    async def _is_drawn(self, *signs: "asyncio.Future[Any]") -> bool:
        """Wait for a sign that a widget was drawn; return whether one came."""
        while True:
            limit = PATIENCE if self._waits() else self._notebook.drawn_limit
            done, _ = await asyncio.wait(signs, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if done or not self._waits():
                return bool(done)
            self._redraw()


def _settle(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def clicked_answer(question: Question, decision: str, feedback: str, edited: Any) -> Answer:
    """Convert a widget's message to an answer.

    Args:
        question: the question.
        decision, feedback: the clicked decision, and the text beside it.
        edited: the edited text, or a form's content; None for neither.
    """
    if isinstance(question, FormRequested) and decision == "approve":
        return accepted(question, edited)
    return Answer(
        question_id=question.question_id, decision=decision, feedback=feedback, edited_text=edited
    )


def choices_of(question: Question) -> list[dict[str, str]]:
    """Return the buttons of a question, with a description of the scope of lasting answers."""
    covers: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    if isinstance(question, ApprovalRequested):
        covers, labels = question.covers, question.labels
    return [
        {
            "decision": decision,
            "label": labels.get(decision, label),
            "covers": covers.get(decision, ""),
        }
        for decision, (label, _, _) in _CHOICES.items()
        if decision in _offered(question)
    ]


def _offered(question: Question) -> tuple[str, ...]:
    """Return the decisions that a question offers."""
    scopes = question.scopes if isinstance(question, ApprovalRequested) else ()
    return ("approve", *scopes, "deny", "abort")


@marks_person_code
def type_in(question: Question) -> Answer:
    """Ask with ``input()`` until the answer is valid."""
    if isinstance(question, FormRequested):
        try:
            return type_in_form(question, _print_above)
        except EOFError:
            return denied(question.question_id, no_stdin_reason(question))
    if not isinstance(question, ApprovalRequested):
        return denied(question.question_id, "this kind of question cannot be asked here yet")
    _print_above(question_text(question))
    offered = (*_offered(question), *(["edit"] if _can_be_typed(question.editable) else []))
    words = [
        question.labels.get(key, shown) for key, (_, shown, _) in _CHOICES.items() if key in offered
    ]
    named = {label.lower(): key for key, label in question.labels.items()}
    prompt = f"{'' if named else 'Run it? '}{', '.join(words)}: "
    while True:
        edited = None
        try:
            typed = input(prompt).strip()
            decision, feedback = read_typed(typed) if typed else ("", "")
            if named and typed:
                decision, feedback = named.get(typed.lower(), "what you typed"), ""
            if decision == "edit" and decision in offered:
                edited = input("Run instead (Enter alone: back): ").strip()
                decision = "approve" if edited else ""
        except EOFError:
            return denied(question.question_id, NO_STDIN)
        if decision in offered:
            return Answer(
                question_id=question.question_id,
                decision=decision,
                feedback=feedback,
                edited_text=edited,
            )
        if decision:
            _print_above(f"{typed!r} is not offered here.")


def no_stdin_reason(question: Question) -> str:
    """Return why nobody can answer a question in a request without input, and what helps."""
    match question:
        case UserInputRequested():
            return NO_STDIN_QUESTION
        case ElicitationRequested():
            return NO_STDIN_FORM
    return NO_STDIN


def _print_above(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _can_be_typed(text: str) -> bool:
    """Return whether a person can type a text anew: one line, short and visible."""
    is_short = 0 < len(text) <= _LONGEST_EDITED and "\n" not in text
    return is_short and show_invisible(text) == text


def read_typed(typed: str) -> tuple[str, str]:
    """Parse a typed answer into the decision (or "edit") and the feedback for the model.

    An approval is one word and nothing else: "a better way, please" is no "always". Any other text
    is a denial with that text as feedback, as in the widget.
    """
    word, _, rest = typed.partition(" ")
    decision = _KEYS.get(word.lower())
    if decision is None or (rest and decision not in ("deny", "abort")):
        return "deny", typed
    return decision, rest.strip()


def question_text(question: ApprovalRequested) -> str:
    """Return the question for a console: tool, target and all arguments, made visible.

    Arguments that are too long are cut in the middle, with a note; the end is always shown.
    """
    if question.labels:
        return f"{question.target}; {question.reason}."
    lines = [
        f"The agent wants to run {show_shortened(question.tool, _LONGEST_EDITED)}: "
        f"{show_shortened(question.target, _LONGEST_SHOWN)}",
        f"Why you are asked: {show_shortened(question.reason, _LONGEST_SHOWN)}",
        pretty_shortened(question.arguments, _LONGEST_SHOWN),
    ]
    for scope in question.scopes:
        covers = show_shortened(question.covers.get(scope, ""), _LONGEST_EDITED)
        lines.append(f"  {_CHOICES[scope][0]}: {covers}")
    return "\n".join(lines)


def stdin_allowed(shell: Any) -> bool:
    """Return whether the running request may ask for input."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return bool(sys.stdin) and sys.stdin.isatty()
    return bool(getattr(kernel, "_allow_stdin", False))
