"""One ``%%agent`` cell: starts the turn, draws it while it runs, leaves what is to stay.

The sessions that a cell has started may go on after it; their blocks are drawn on by the kernel's
loop, whatever cell runs then, and become plain output when they end.
"""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from time import sleep
from typing import Any

from agent_magics.app import Agent, new_turn_id
from agent_magics.engine.host import Host
from agent_magics.engine.result import RunResult, summarise
from agent_magics.engine.setup import RunSetup
from agent_magics.kernel.answers import CellHost, NotebookHost, choices_of, stdin_allowed
from agent_magics.kernel.countdown import Countdown, is_wait
from agent_magics.kernel.interrupt import interrupts_call, marks_own_code, uninterrupted
from agent_magics.kernel.lab_answers import ask_by_page
from agent_magics.kernel.lab_link import asker_of
from agent_magics.kernel.lab_tools import as_response
from agent_magics.kernel.later import Later
from agent_magics.kernel.outputs import CellOutputs
from agent_magics.kernel.publishing import CellPublisher, is_watched, widget_bundle
from agent_magics.kernel.streams import CommandStreams
from agent_magics.protocol.events import (
    DynamicToolCallRequest,
    ElicitationRequested,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ModelInformed,
    ModelRetry,
    Question,
    QuestionResolved,
    ToolCallCompleted,
    ToolCallFailed,
    TurnFailed,
)
from agent_magics.protocol.items import Json
from agent_magics.protocol.ops import Answer, StartTurn
from agent_magics.render.mime import item_bundle, to_bundle
from agent_magics.render.view import VERSION, Block, TurnView

# Seconds in which an interrupted cell takes further interrupts before it ends. People press twice;
# between a cell's end and its reply ipykernel lets an interrupt break its own loop, and the reply
# is lost.
PRESSED_TWICE = 0.2


class CellRun:
    """One run of one agent in one cell.

    Args:
        shell: the IPython shell.
        host: answers questions in this kernel.
        agent: who runs.
        notes: shown first, such as where the model's side comes from.

    Attributes:
        view: the turn as it is drawn.
        interrupted: what had come of the run when the person interrupted it.
    """

    def __init__(
        self, shell: Any, host: NotebookHost, agent: Agent, notes: Sequence[str] = ()
    ) -> None:
        self._host = host
        self._agent = agent
        self._live = is_watched(shell)
        self._lab = host.lab
        self._asker = asker_of(shell)
        self._turn_id = ""
        self._drawn_at = {page.inbox for page in self._lab.pages}
        self._publisher = CellPublisher(shell, self._asker.cell if self._live else "")
        self._outputs = CellOutputs(self._publisher, live=self._live)
        self._streams = CommandStreams(host, self._show_stream)
        self._questions: dict[str, Any] = {}
        self._asking: dict[str, str] = {}  # the calls of open forms
        self._call_blocks: dict[str, Block] = {}
        self._session_blocks: dict[str, Block] = {}
        self._later = Later(self._show, self._tick)
        self.view = TurnView()
        self._countdown = Countdown(self.view)
        self._told_at_once = not self._live and stdin_allowed(shell)
        self.interrupted: RunResult | None = None
        for number, note in enumerate(notes):
            item: dict[str, Json] = {
                "version": VERSION,
                "kind": "notice",
                "level": "info",
                "text": note,
            }
            self._outputs.show(Block(f"note#{number}", item, done=True))

    async def run_awaiting(
        self, prompt: str, setup: RunSetup, *, background: bool = False
    ) -> RunResult:
        """Run while the cell awaits: clicks arrive.

        Args:
            background: the cell does not wait, so interrupts are not for this run.

        Raises:
            KeyboardInterrupt: the person interrupted; the turn has been stopped and drawn.
        """
        host: Host = self._host
        if self._live:
            host = self._cell_host()
        foreground = self._agent.foreground(self._show, self._tick, host, self._later.put)
        interrupts = nullcontext() if background else interrupts_call(foreground.interrupt)
        try:
            with interrupts:
                try:
                    events = await foreground.wait(self._start(prompt), setup)
                    return summarise(events, setup.output)
                except (asyncio.CancelledError, KeyboardInterrupt):
                    await asyncio.sleep(PRESSED_TWICE)
                    self.interrupted = summarise(foreground.events)
                    raise _stopped() from None
        finally:
            self._clean_up()

    @marks_own_code
    def run_blocking(self, prompt: str, setup: RunSetup) -> RunResult:
        """Run while the cell blocks; questions are typed in.

        Raises:
            KeyboardInterrupt: as above.
        """
        host: Host = self._cell_host() if self._live else self._host
        foreground = self._agent.foreground(self._show, self._tick, host, self._later.put)
        try:
            with interrupts_call(foreground.interrupt):
                try:
                    events = foreground.wait_blocking(self._start(prompt), setup)
                    return summarise(events, setup.output)
                except KeyboardInterrupt:
                    sleep(PRESSED_TWICE)
                    self.interrupted = summarise(foreground.events)
                    raise _stopped() from None
        finally:
            with uninterrupted():
                self._clean_up()

    def _start(self, prompt: str) -> StartTurn:
        self._turn_id = new_turn_id()
        self._lab.askers[self._turn_id] = self._asker
        return StartTurn(turn_id=self._turn_id, content=prompt)

    def _clean_up(self) -> None:
        self._lab.askers.pop(self._turn_id, None)
        self._outputs.finish()
        for call_id in self._call_blocks:
            self._streams.end(call_id)
        for widget in self._questions.values():
            widget.close()
        self._questions.clear()
        self._later.begin()

    def draw_rest(self) -> None:
        """Draw what has happened after the cell's end now: the kernel ends."""
        self._later.draw()

    # -- drawing -----------------------------------------------------------------------------------

    def _show(self, event: Event) -> bool:
        """Draw an event; tell whether there is more to do for it in a moment."""
        blocks = self.view.apply(event)
        if isinstance(event, QuestionResolved):
            self._asking.pop(event.question_id, None)
        if isinstance(event, TurnFailed):
            blocks = blocks[:-1]  # the sentence is the cell's own error, and is not said twice
        if isinstance(event, ModelRetry):
            self._countdown.begin(event.delay)
        if not self._live:
            blocks = self._tell_wait(event, blocks)
            # When a session ends, and what it has printed by then, differs from run to run.
            blocks = [] if isinstance(event, ModelInformed) else blocks
            blocks = [block for block in blocks if not block.key.startswith("session:")]
        if isinstance(event, DynamicToolCallRequest):
            self._have_answered(event)
        for block in self._stream(event, blocks):
            if block.key.startswith("call:"):
                self._call_blocks[block.key[len("call:") :].rpartition("#")[0]] = block
            self._draw(block)
        return self._streams.waiting or self._outputs.waiting

    def _draw(self, block: Block) -> None:
        open_forms = map(self._call_blocks.get, self._asking.values())
        if not block.done and any(block is each for each in open_forms):
            return  # a server may send news while it asks: they must not take its form away
        if self._live and is_wait(block) and not block.done:
            self._outputs.show_live(block, to_bundle(block))  # also where outputs are gathered
        else:
            self._outputs.show(block)

    def _tell_wait(self, event: Event, blocks: list[Block]) -> list[Block]:
        """Print a wait when it begins where a person reads what cannot be changed: a console."""
        if not self._told_at_once:
            return blocks
        if isinstance(event, ModelRetry):
            self._publisher.publish(item_bundle(blocks[0].item), uuid.uuid4().hex)
        return [block for block in blocks if not is_wait(block)]

    def _stream(self, event: Event, blocks: list[Block]) -> list[Block]:
        """Take an event of a command's life; return the blocks that no widget shows."""
        if not self._live:
            return blocks
        match event:
            case ToolCallCompleted() | ToolCallFailed():
                self._streams.end(event.call_id)
            case ExecCommandBegin(session_id=""):
                block = self._call_blocks.get(event.call_id)
                if block is not None:
                    label = f"… running {block.item['name']}: {block.item['title']}"
                    self._streams.begin(event.call_id, label)
            case ExecCommandBegin():
                return self._begin_session(event, blocks)
            case ExecCommandOutputDelta():
                shown = self._streams.add(event.session_id or event.call_id, event.text)
                return [] if shown else blocks
            case ExecCommandEnd() if event.session_id:
                self._streams.end(event.session_id)
                self._session_blocks.pop(event.session_id, None)
        return blocks

    def _begin_session(self, event: ExecCommandBegin, blocks: list[Block]) -> list[Block]:
        """Give a session an output of its own while the cell still can; later it only updates."""
        *others, block = blocks
        if self._outputs.full:
            return others
        self._session_blocks[event.session_id] = block
        self._outputs.show_live(block, to_bundle(block))
        label = f"session {event.session_id}: {block.item['title']}"
        self._streams.begin(event.session_id, label, after=0.0)
        return others

    def _have_answered(self, event: DynamicToolCallRequest) -> None:
        """Let the page answer a call of a tool that it offers."""
        submit = self._agent.session.submit
        self._lab.call(
            event.tool,
            event.call_id,
            event.arguments,
            self._asker.client,
            lambda result: submit(as_response(event.call_id, result)),
        )

    def _draw_for_newcomers(self) -> None:
        """Show a page that was loaded meanwhile what stands in this cell."""
        for page in self._lab.pages:
            if page.inbox not in self._drawn_at:
                self._drawn_at.add(page.inbox)
                if page.client != self._asker.client:
                    page.say(
                        "redraw",
                        cell=self._asker.cell,
                        outputs=[
                            {"display_id": display_id, "data": bundle}
                            for display_id, bundle in self._publisher.shown.items()
                        ],
                    )

    def _tick(self) -> bool:
        if self._live:
            self._draw_for_newcomers()
            for block in self._countdown.tick():
                self._draw(block)
        self._outputs.tick()
        self._streams.tick()
        return self._streams.waiting or self._outputs.waiting

    def _show_stream(self, key: str, widget: Any) -> None:
        block = self._session_blocks.get(key) or self._call_blocks.get(key)
        if block is None:
            return
        bundle = to_bundle(block) if widget is None else widget_bundle(widget, "(running)")
        self._outputs.show_live(block, bundle)

    # -- questions ---------------------------------------------------------------------------------

    def _cell_host(self) -> CellHost:
        return CellHost(
            self._host, self._draw_question, self._close_question, click=self._ask_by_page
        )

    def _ask_by_page(self, question: Question) -> Answer | None:
        """Ask while the main thread blocks, where a click would come through all the same."""
        if not (self._lab.reach and self._host.widgets_work):
            return None
        draw = partial(self._draw_question, question, by_page=True)
        answer = ask_by_page(self._lab, question, draw, self._host.drawn_limit, self._tick)
        if answer is None:
            self._close_question(question)
        else:
            self._host.widgets_seen = True
        return answer

    def _draw_question(self, question: Question, *, by_page: bool = False) -> Any:
        widget, words = self._question_widget(question, by_page)
        self._questions[question.question_id] = widget
        bundle = widget_bundle(widget, words)
        # Every question of today is about a call, whose end replaces the widget.
        block = self._call_blocks.get(question.call_id) or Block(question.question_id)
        self._outputs.show_live(block, bundle)
        return widget

    def _question_widget(self, question: Question, by_page: bool) -> tuple[Any, str]:
        """Return what asks on the page, and the words for front ends that draw no widgets."""
        # Late on purpose: a run without questions never imports anywidget.
        if isinstance(question, ElicitationRequested):
            from agent_magics.render.form_widget import FormWidget  # noqa: PLC0415

            self._asking[question.question_id] = question.call_id
            form = FormWidget(question, by_page=by_page)
            return form, f"Question: {form.server} asks: {form.message}"
        from agent_magics.render.widgets import QuestionWidget  # noqa: PLC0415

        widget = QuestionWidget(
            question_id=question.question_id,
            tool=getattr(question, "tool", ""),
            target=getattr(question, "target", ""),
            arguments=getattr(question, "arguments", ""),
            reason=getattr(question, "reason", ""),
            language=self._language_of(question),
            choices=choices_of(question),
            editable=getattr(question, "editable", ""),
            by_page=by_page,
        )
        return widget, f"Question: may {widget.tool} run? {widget.target}"

    def _close_question(self, question: Question) -> None:
        self._asking.pop(question.question_id, None)
        widget = self._questions.pop(question.question_id, None)
        if widget is not None:
            widget.close()

    def _language_of(self, question: Question) -> str:
        block = self._call_blocks.get(question.call_id)
        return "json" if block is None else str(block.item.get("language", "json"))


def _stopped() -> KeyboardInterrupt:
    """Return what ends an interrupted cell: it says so without a page of our own frames."""
    interrupt = KeyboardInterrupt("the agent was stopped")
    interrupt._render_traceback_ = lambda: [f"KeyboardInterrupt: {interrupt}"]  # type: ignore[attr-defined]
    return interrupt
