"""Runs one ``%%agent`` cell: starts the turn, draws it, writes its final output.

Sessions that a cell has started may go on after it; their blocks are updated from the kernel's
event loop, whatever cell runs then, and become plain output when they end.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from time import sleep
from typing import Any

from agent_magics.app import Agent
from agent_magics.dispatch.person_code import marks_own_code
from agent_magics.engine.foreground.host import Host
from agent_magics.engine.foreground.interrupt import interrupts_call, uninterrupted
from agent_magics.engine.foreground.waiting import Foreground
from agent_magics.engine.results.run import RunResult, summarise
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.kernel.cell.console import ConsoleOutputs
from agent_magics.kernel.cell.countdown import Countdown, is_wait
from agent_magics.kernel.cell.foot import CellFoot
from agent_magics.kernel.cell.open_questions import OpenQuestions
from agent_magics.kernel.cell.outputs import CellOutputs
from agent_magics.kernel.cell.publishing import CellPublisher, is_watched
from agent_magics.kernel.cell.request.pictures import with_pictures
from agent_magics.kernel.cell.session_updates import SessionUpdates
from agent_magics.kernel.cell.streams import CommandStreams
from agent_magics.kernel.lab.link import asker_of
from agent_magics.kernel.lab.page_tools import as_response
from agent_magics.kernel.questions.ways import CellHost, NotebookHost, stdin_allowed
from agent_magics.protocol.events import (
    CellChanged,
    DynamicToolCallRequest,
    Event,
    ModelInformed,
    ModelRetry,
    Question,
    QuestionResolved,
    SubAgentChanged,
    TurnAborted,
    TurnFailed,
)
from agent_magics.protocol.items import InputImage, Json
from agent_magics.protocol.ops import BY_PERSON, StartTurn, new_turn_id
from agent_magics.render.blocks.display import DisplayBlock, notice_item
from agent_magics.render.mime import to_bundle
from agent_magics.render.status import LONGEST
from agent_magics.render.view import TurnView
from agent_magics.render.visible import show_shortened

# Seconds in which an interrupted cell takes further interrupts before it ends. People press twice;
# between a cell's end and its reply ipykernel lets an interrupt break its own loop, and the reply
# is lost.
PRESSED_TWICE = 0.4


class CellRun:
    """One run of one agent in one cell.

    Args:
        shell: the IPython shell.
        host: answers questions in this kernel.
        agent: the agent that runs.
        pictures: what is sent with the prompt.

    Attributes:
        agent: the agent that runs.
        view: the blocks of the turn.
        has_begun: whether its turn is no longer waiting for an earlier cell's.
        interrupted: the result until the interrupt, where the person interrupted the run.
    """

    def __init__(
        self, shell: object, host: NotebookHost, agent: Agent, pictures: tuple[InputImage, ...] = ()
    ) -> None:
        self._host = host
        self.agent = agent
        self._live = is_watched(shell)
        self._lab = host.lab
        self._asker = asker_of(shell)
        self._turn_id = ""
        self._publisher = CellPublisher(shell, self._asker.cell if self._live else "")
        self._outputs = CellOutputs(self._publisher, live=self._live)
        self._call_blocks: dict[str, DisplayBlock] = {}
        self._streams = CommandStreams(host, self._outputs, self._call_blocks)
        self._open = OpenQuestions(host, self._show_question, self._language_of)
        self._session_updates = SessionUpdates(self._show, self._tick)
        self.view = TurnView()
        self._countdown = Countdown(self.view)
        is_console = not self._live and stdin_allowed(shell)
        self._console = ConsoleOutputs(self._publisher) if is_console else None
        self._in_background = False
        self._foot: CellFoot | None = None
        self._helpers: dict[str, SubAgentChanged] = {}  # those at work, by name
        self._asked_pages: list[str] = []  # calls of the turn
        self.has_begun = False
        self.interrupted: RunResult | None = None
        self._pictures = pictures

    def name_conversation(self) -> None:
        """Write the conversation's id into the saved cell's metadata."""
        if self._live:
            self._publisher.conversation = self.agent.session.conversation.id

    def note(self, text: str, level: str = "info") -> None:
        """Show a notice before the turn begins, such as the recording that is played."""
        self._draw(DisplayBlock(f"note:{text}#0", notice_item(text, level), done=True))

    async def wait_for(self, order: asyncio.Lock) -> None:
        """Acquire `order` after the earlier cells of the agent.

        Raises:
            KeyboardInterrupt: the person interrupted meanwhile.
        """
        if order.locked() and self._live:
            self.note("Queued: this prompt runs when the agent is done with the one before it.")
        try:
            await order.acquire()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def run_awaiting(
        self, prompt: str, turn_config: TurnConfig, *, background: bool = False
    ) -> RunResult:
        """Run while the cell awaits, so that clicks arrive.

        Args:
            prompt: the text for the model.
            turn_config: the configuration of the turn.
            background: whether the cell does not wait; interrupts are then not for this run.

        Raises:
            KeyboardInterrupt: the person interrupted; the turn has been stopped and drawn.
        """
        host: Host = self._host
        self._in_background = background
        if self._live:
            host = self._cell_host()
        foreground = self._foreground(host)
        interrupts = nullcontext() if background else interrupts_call(foreground.interrupt)
        stop = foreground.interrupt if background else _press_stop
        try:
            with interrupts:
                try:
                    events = await foreground.wait(self._start(prompt, stop), turn_config)
                    return summarise(events, turn_config.output)
                except (asyncio.CancelledError, KeyboardInterrupt):
                    await asyncio.sleep(PRESSED_TWICE)
                    self.interrupted = summarise(foreground.events)
                    raise KeyboardInterrupt from None
        finally:
            self._clean_up()

    @marks_own_code
    def run_blocking(self, prompt: str, turn_config: TurnConfig) -> RunResult:
        """Run while the cell blocks; questions are typed in.

        Args:
            prompt: the text for the model.
            turn_config: the configuration of the turn.

        Raises:
            KeyboardInterrupt: the person interrupted; the turn has been stopped and drawn.
        """
        host: Host = self._cell_host() if self._live else self._host
        foreground = self._foreground(host)
        try:
            with interrupts_call(foreground.interrupt):
                try:
                    events = foreground.wait_blocking(self._start(prompt, _press_stop), turn_config)
                    return summarise(events, turn_config.output)
                except KeyboardInterrupt:
                    sleep(PRESSED_TWICE)
                    self.interrupted = summarise(foreground.events)
                    raise KeyboardInterrupt from None
        finally:
            with uninterrupted():
                self._clean_up()

    def _foreground(self, host: Host) -> Foreground:
        put = self._session_updates.put
        return self.agent.foreground(self._show, self._tick, host, put, self._hear)

    def _hear(self, event: Event) -> None:
        """Apply an event to the status line at once; on the engine's thread."""
        if isinstance(event, CellChanged):
            self._lab.on_cell_changed(self.agent, event)
        foot = self._foot
        if foot is not None:
            foot.hear(event)

    def _start(self, prompt: str, stop: Callable[[], object]) -> StartTurn:
        self._turn_id = new_turn_id()
        self._lab.askers[self._turn_id] = self._asker._replace(stop=stop)
        cell = self._asker.cell if self._live else ""
        self._foot = CellFoot(self._lab, cell, self.agent.session, stop)
        self._foot.begin()
        return StartTurn(turn_id=self._turn_id, content=with_pictures(prompt, self._pictures))

    def _clean_up(self) -> None:
        self._lab.askers.pop(self._turn_id, None)
        for which in self._asked_pages:
            self._lab.give_up(which)
        if self._console is not None:
            self._console.clear_activity()
        self._outputs.finish()
        self._streams.end_calls()
        self._open.close_all()
        if self._live and self._asker.cell:
            for helper in tuple(self._helpers.values()):
                self._show_helper(helper)
            self._publisher.draw_on(self._lab.pages, self._asker.client)
            self._lab.keep(self._asker.cell, self._publisher.shown)
        if self._foot is not None:
            self._foot.end()  # now that all is drawn: who sees the line go may save the notebook
            self._foot = None
        self._session_updates.begin()

    @property
    def cell(self) -> str:
        """The cell's id; "" outside notebooks."""
        return self._asker.cell

    @property
    def questions(self) -> Mapping[str, Any]:
        """The widgets of the questions that wait, by the question's id."""
        return self._open.widgets

    @property
    def activity(self) -> str:
        """The present activity of the turn in a few words; "" where none is running."""
        return "" if self._foot is None else self._foot.activity

    @property
    def doing(self) -> str:
        """The present activity of the turn as text; "" where none is running."""
        return "" if self._foot is None else self._foot.doing

    def draw_rest(self) -> None:
        """Draw pending events of the cell's sessions now, since the kernel ends."""
        self._session_updates.draw()

    # -- drawing -----------------------------------------------------------------------------------

    def _show(self, event: Event) -> bool:
        """Draw an event; return whether `tick` must be called soon."""
        blocks = self.view.apply(event)
        if isinstance(event, QuestionResolved):
            self._open.resolve(event.question_id)
        if self._is_reported_by_error(event):
            blocks = blocks[:-1]  # the cell's own error already says it
        if isinstance(event, ModelRetry):
            self._countdown.begin(event.delay)
        if isinstance(event, SubAgentChanged):
            self._follow_helper(event)
        if not self._live:
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

    def _follow_helper(self, event: SubAgentChanged) -> None:
        """Keep which sub-agents are at work; after the cell's end the pages are told."""
        self._helpers.pop(event.sub_agent, None)
        if not event.is_over:
            self._helpers[event.sub_agent] = event
        if self._foot is None and self._live and self._asker.cell:
            self._show_helper(event)

    def _show_helper(self, event: SubAgentChanged) -> None:
        words = "" if event.is_over else f"{event.sub_agent}: {event.doing or event.status}"
        shown = show_shortened(words, LONGEST)
        self._lab.show_helper(self._asker.cell, event.conversation, shown, event.seconds)

    def _is_reported_by_error(self, event: Event) -> bool:
        """Return whether the cell's own error already reports the event."""
        by_person = isinstance(event, TurnAborted) and event.reason == BY_PERSON
        return (by_person or isinstance(event, TurnFailed)) and not self._in_background

    def _draw(self, block: DisplayBlock) -> None:
        open_forms = map(self._call_blocks.get, self._open.form_calls)
        if not block.done and any(block is each for each in open_forms):
            return  # a server's progress must not replace its open form
        if block.kind == "changes" and self._live and self.cell:
            self._lab.changing.setdefault(self.cell, []).append((self.agent, self._turn_id))
        if self._console is not None:
            self._console.show(block)
        elif self._live and is_wait(block) and not block.done:
            self._outputs.show_live(block, to_bundle(block))  # also where outputs are gathered
        else:
            self._outputs.show(block)

    def _stream(self, event: Event, blocks: list[DisplayBlock]) -> list[DisplayBlock]:
        """Handle an event of a command; return the blocks that no widget shows."""
        if self._console is not None:
            self._console.follow(event, self._call_blocks)
        if not self._live:
            return blocks
        return self._streams.follow(event, blocks)

    def _have_answered(self, event: DynamicToolCallRequest) -> None:
        """Let the page run a call of a tool that it offers."""
        submit = self.agent.session.submit
        which = self._lab.call(
            event.tool,
            event.call_id,
            event.arguments if isinstance(event.arguments, dict) else {},
            self._asker.client,
            lambda result: submit(as_response(event.call_id, result)),
        )
        self._asked_pages.append(which)

    def _tick(self) -> bool:
        if self._console is not None and self._foot is not None and not self._in_background:
            self._console.show_activity(self._foot.status)
        if self._live:
            self._publisher.draw_on(self._lab.pages, self._asker.client)
            for block in self._countdown.tick():
                self._draw(block)
        self._outputs.tick()
        self._streams.tick()
        return self._streams.waiting or self._outputs.waiting

    # -- questions ---------------------------------------------------------------------------------

    def _cell_host(self) -> CellHost:
        return CellHost(
            self._host,
            self._open.draw,
            self._open.close,
            click=lambda question: self._open.ask_by_page(question, self._tick),
            waits=lambda: self._in_background and self._lab.was_linked,
            redraw=self._publisher.drawn_at.clear,
        )

    def _show_question(self, question: Question, bundle: dict[str, Json]) -> None:
        # Every kind of question is about a call, whose end replaces the widget.
        block = self._call_blocks.get(question.call_id) or DisplayBlock(question.question_id)
        self._outputs.show_live(block, bundle)

    def _language_of(self, question: Question) -> str:
        block = self._call_blocks.get(question.call_id)
        return "json" if block is None else str(block.item.get("language", "json"))


def _press_stop() -> None:
    """Send SIGINT to this process, as the notebook's stop button does; ends blocking code, too."""
    os.kill(os.getpid(), signal.SIGINT)
