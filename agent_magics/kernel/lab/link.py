"""Exchanges messages with JupyterLab's pages through the labextension.

A page opens a comm and sends on it; the kernel never does: ipykernel passes a comm's messages to
the shell that last sent on it, and that one may be busy. The kernel's messages go out under the
page's own id. Messages arrive on any thread (a subshell's, the control channel's, the main one), so
they are only handed over here.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent_magics.dispatch.results.cutting import encodable_json
from agent_magics.engine.foreground.interrupt import interruptible
from agent_magics.protocol.errors import FatalError, short_message, typed_message
from agent_magics.settings.editor import report

if TYPE_CHECKING:  # 20 ms, for which loading the extension would wait
    from agent_magics.protocol.events import CellChanged

# The comm's name, and the control message that does its work where there are no subshells.
TARGET = "agent_magics"
CONTROL = "agent_magics_message"

Data = Mapping[str, Any]

# What a page that was closed replies: to a request, and to a call of its tool.
_CLOSED: Data = {
    "refused": "its page was closed",
    "items": [{"type": "input_text", "text": "The page that offers this was closed."}],
}

# Pages that are told; of one that crashed nobody hears that it has left.
MOST_PAGES = 50
# Ended cells whose outputs are kept for pages that were away.
MOST_KEPT = 20
# Seconds for which a page watches; it says so again each minute, unless it has crashed.
WATCH_LIMIT = 300.0


class CellRef(NamedTuple):
    """The cell in which an agent runs.

    Attributes:
        cell: its id; "" outside notebooks.
        client: the front end's connection that ran it.
        stop: ends its turn; from any thread.
    """

    cell: str
    client: str
    stop: Callable[[], object] = bool


class Foot(Protocol):
    """The status line of a running cell; see ``kernel.cell.foot``."""

    stop: Callable[[], object]

    def show(self, page: "Page") -> None:
        """Show the line on one page."""

    def say(self, page: "Page", which: str, text: str, *, now: bool) -> None:
        """Add the person's message."""

    def drop(self, which: str) -> None:
        """Take a queued prompt back."""


class Page:
    """One notebook that is open in one page, as the labextension reports it.

    Attributes:
        comm_ids: its comms; it has several where it knocked again before it was let in.
        client: its connection, as its execute requests name it.
        path: the notebook.
        conversation: the id that its newest output of an agent names, "" where none does.
        reach: the channel of its messages while the main thread is busy: "subshell", "control", or
            "" while that is not proven.
        tools: the tools of other extensions of the page: name, description and inputSchema of each.
        is_watcher: whether it shows no notebook, only what the agents do.
        watching: words that conversations must have, of a page that shows what the agents do; None
            where it does not.
    """

    def __init__(self, kernel: Any, comm_id: str, hello: Data) -> None:
        self._kernel = kernel
        self.comm_ids = {comm_id}
        self.inbox = ascii(hello.get("inbox", ""))[1:-1]  # half a character could not be sent
        self.client = str(hello.get("client", ""))
        self.path = str(hello.get("path", ""))
        self.conversation = str(hello.get("conversation", ""))
        self.reach = ""
        self.is_watcher = hello.get("watcher") is True
        self.watching: str | None = None
        self.watches_until = 0.0  # by `time.monotonic`
        self.tools: Sequence[Data] = _tools_of(hello)

    def say(self, kind: str, /, **fields: Any) -> None:
        """Send a message to this page alone; from any thread."""
        kernel = self._kernel
        # What a page has said may come back, with half characters in it, which nothing can send.
        said = encodable_json(fields)
        kernel.session.send(
            kernel.iopub_socket,
            "comm_msg",
            {"comm_id": self.inbox, "data": {"type": kind, **said}},
            parent=kernel.get_parent("shell"),
            ident=f"comm-{self.inbox}".encode(),
        )

    def redraw(self, cell: str, outputs: Mapping[str, Data], *, ended: bool = False) -> None:
        """Send a cell's outputs, by display id; of an ended cell the page takes those it lacks."""
        drawn = [{"display_id": which, "data": dict(data)} for which, data in outputs.items()]
        self.say("redraw", cell=cell, outputs=drawn, ended=ended)


class LabLink:
    """The connected pages of this kernel, and their pending requests.

    Args:
        kernel: the IPython kernel; None in a terminal, which has no pages.

    Attributes:
        askers: the cells of running turns, by turn id.
        feet: the lines at the foot of running cells, by the cell's id.
        on_watch: called when a page begins to watch, on any thread; see ``kernel.overview``.
        on_cell_changed: called with an agent and its change of a cell, on any thread.
        changing: the turns that have changed files in a cell and their agents, by the cell's id.
        answers: what answers the questions of pages, by their subject; called on any thread.
        was_linked: whether a page was ever connected: one that has left may come back.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._pages: dict[str, Page] = {}
        self._questions: dict[str, Callable[[Data], Any]] = {}
        # What pages are to reply to, and what takes the reply.
        self._asked: dict[str, tuple[Page, Callable[[Data], Any]]] = {}
        self.askers: dict[str, CellRef] = {}
        self.feet: dict[str, Foot] = {}
        self.on_watch: Callable[[], object] = bool
        self.on_cell_changed: Callable[[Any, CellChanged], object] = lambda agent, change: None
        self.answers: dict[str, Callable[[Data], Data]] = {}
        self.changing: dict[str, list[tuple[Any, str]]] = {}
        self._ended: dict[str, Mapping[str, Data]] = {}  # outputs of ended cells, by cell
        self._helpers: dict[str, Data] = {}  # sub-agents that work on after their cell's end
        self.was_linked = False
        self._pinged = threading.Event()
        if kernel is not None and hasattr(kernel, "comm_manager"):
            kernel.comm_manager.register_target(TARGET, self._open)
            kernel.control_handlers[CONTROL] = self._control

    def close(self) -> None:
        """Stop receiving messages, and notify the pages, which may connect to a successor."""
        for page in tuple(self._pages.values()):
            page.say("goodbye")
        if self._kernel is not None and hasattr(self._kernel, "comm_manager"):
            self._kernel.comm_manager.unregister_target(TARGET, self._open)
            self._kernel.control_handlers.pop(CONTROL, None)
        for page in tuple(self._pages.values()):
            self.drop(page)  # else its comm, and with it all of this, would be kept

    @property
    def pages(self) -> tuple[Page, ...]:
        """The pages that show a notebook of this kernel, the newest last."""
        return tuple(page for page in tuple(self._pages.values()) if not page.is_watcher)

    @property
    def watching(self) -> tuple[Page, ...]:
        """The pages that show what the agents do."""
        now = time.monotonic()
        return tuple(
            page
            for page in tuple(self._pages.values())
            if page.watching is not None and now < page.watches_until
        )

    @property
    def reach(self) -> str:
        """The channel of clicks while the main thread is busy; "" where there is none."""
        return next((page.reach for page in reversed(self.pages) if page.reach), "")

    def wait_for_reach(self, limit: float) -> str:
        """Return `reach`, after waiting for the first message of a page that has just connected.

        Args:
            limit: seconds.
        """
        if self.pages:
            with interruptible():
                self._pinged.wait(limit)
        return self.reach

    # -- what pages say ---------------------------------------------------------------------------

    def _open(self, comm: Any, message: Data) -> None:
        hello = message["content"].get("data")
        page = self._let_in(comm.comm_id, hello if isinstance(hello, dict) else {})
        # Not `on_msg`: after such messages the shell draws all figures there are, and this one may
        # come on a subshell's thread while code on the main thread is still drawing.
        comm.handle_msg = lambda sent: self._receive(page, sent["content"].get("data"), "subshell")
        comm.on_close(lambda _: self.drop(page))

    def _let_in(self, comm_id: str, hello: Data) -> Page:
        page = Page(self._kernel, comm_id, hello)
        earlier = self._pages.pop(page.inbox, None)
        if earlier is not None:  # until it hears of this welcome it speaks on the comm that it had
            page.comm_ids |= earlier.comm_ids
        self._pages[page.inbox] = page  # the newest last
        if len(self._pages) > MOST_PAGES:
            self.dismiss(next(iter(self._pages.values())))
        if not (page.is_watcher or self.reach):
            self._pinged.clear()  # it was a page that has left
        page.say("welcome", comm=comm_id)
        if page.is_watcher:
            return page
        report(hello.get("settings"))
        self.was_linked = True
        for foot in tuple(self.feet.values()):
            foot.show(page)
        for helper in tuple(self._helpers.values()):
            page.say("helper", **helper)
        for cell, outputs in tuple(self._ended.items()):
            page.redraw(cell, outputs, ended=True)
        return page

    def keep(self, cell: str, outputs: Mapping[str, Data]) -> None:
        """Keep an ended cell's outputs for pages that were away when they came."""
        self._ended[cell] = outputs
        if len(self._ended) > MOST_KEPT:
            self.forget(next(iter(self._ended)))
        for page in self.pages:
            page.say("kept", cell=cell)

    def show_helper(self, cell: str, which: str, doing: str, seconds: float) -> None:
        """Show on all pages that a sub-agent is at work though its cell has ended.

        Args:
            cell: the cell that began its work.
            which: the id of its conversation.
            doing: its name and what it does; "" where it is at work no longer.
            seconds: the duration of its work so far.
        """
        helper = {"cell": cell, "agent": which, "doing": doing, "elapsed": seconds}
        self._helpers.pop(which, None)
        if doing:
            self._helpers[which] = helper
        for page in self.pages:
            page.say("helper", **helper)

    def forget(self, cell: str) -> None:
        """Forget a cell's outputs: it is run again, or they were cleared."""
        self._ended.pop(cell, None)
        self.changing.pop(cell, None)

    def _control(self, _stream: Any, _ident: Any, message: Data) -> None:
        comm_id, data = str(message["content"].get("comm_id")), message["content"].get("data")
        if isinstance(data, dict) and data.get("type") == "knock":
            self._let_in(comm_id, data)
            return
        for page in tuple(self._pages.values()):
            if comm_id in page.comm_ids:
                self._receive(page, data, "control")

    def _receive(self, page: Page, data: Any, way: str) -> None:
        """Handle a message of a page; a malformed one must not raise here."""
        match data:
            case {"type": "ping"}:
                self._prove(page, way)
            case {"type": "bye"}:
                self.drop(page)
            case {"type": "ask", "id": str(which), "about": str(about)}:
                page.say("answer", id=which, **self._answer(about, data))
            case {"cell": str(cell)}:
                self._hear_foot(page, cell, data)
            case {"type": "gone", "cells": [*cells]}:
                self._stop_in(cells, page.client)
            case {"type": "tools" | "watch" | "settings" | "cleared"}:
                self._learn(page, data)
            case {"type": "question", "id": str(which), "content": dict(content)}:
                receive = self._questions.get(which)
                if receive is not None:
                    receive(content)
            case {"type": "reply", "id": str(which)} | {"type": "result", "call_id": str(which)}:
                self._finish(page, which, data)

    def _prove(self, page: Page, way: str) -> None:
        """Record that a page's messages come by `way`, if the main thread need not be free."""
        free = threading.current_thread() is not threading.main_thread()
        page.reach = way if free else ""
        if not page.is_watcher:
            self._pinged.set()

    def _finish(self, page: Page, which: str, data: Data) -> None:
        """Hand over a page's reply to what it was asked, and only that page's."""
        asked = self._asked.get(which)
        if asked is not None and asked[0].inbox == page.inbox:
            self.give_up(which)
            asked[1](data)

    def _learn(self, page: Page, data: Data) -> None:
        """Take what a page offers or wants to be told, or what the person has done in it."""
        match data:
            case {"type": "tools"}:
                page.tools = _tools_of(data)
            case {"type": "settings", "values": dict(values)}:
                report(values)
            case {"type": "cleared", "cells": [*cells]}:  # by the person, and saved so
                for each in cells:
                    self.forget(str(each))
            case {"type": "watch", "words": str() | None as words}:
                page.watching, page.watches_until = words, time.monotonic() + WATCH_LIMIT
                self.on_watch()

    def _answer(self, about: str, question: Data) -> Data:
        """Return the answer to a page's question; one without an answer must not raise here."""
        try:
            return self.answers[about](question)
        except FatalError as error:
            return {"refused": short_message(error)}
        except Exception as error:
            return {"refused": f"the kernel cannot answer about {about}: {typed_message(error)}"}

    def _hear_foot(self, page: Page, cell: str, data: Data) -> None:
        """Hand over what is said at the foot of a cell; words for one that has ended go back."""
        foot = self.feet.get(cell)
        match data:
            case {"type": "say", "id": str(which), "text": str(text), "now": bool(now)}:
                if foot is None:
                    page.say("unheard", cell=cell, text=text)
                else:
                    foot.say(page, which, text, now=now)
            case {"type": "drop", "id": str(which)} if foot is not None:
                foot.drop(which)
            case {"type": "stop"} if foot is not None:
                foot.stop()

    def _stop_in(self, cells: Sequence[Any], client: str) -> None:
        """Stop the turns of deleted cells, since their questions could not be shown."""
        for asker in tuple(self.askers.values()):
            if asker.cell in cells and asker.client == client:
                asker.stop()

    def dismiss(self, page: Page) -> None:
        """Remove a page that is silent or one too many; if it is still there, it knocks again."""
        page.say("goodbye", again=True)
        self.drop(page)

    def drop(self, page: Page) -> None:
        """Remove a disconnected page; its pending requests fail."""
        if self._pages.get(page.inbox) is page:
            del self._pages[page.inbox]
            comms = self._kernel.comm_manager.comms
            for comm_id in page.comm_ids & comms.keys():  # one known by the control channel is not
                self._kernel.comm_manager.unregister_comm(comms[comm_id])
        for which, (asked_page, finish) in tuple(self._asked.items()):
            # One that has knocked again is still there, and replies to what it was asked.
            if asked_page.inbox not in self._pages and self._asked.pop(which, None) is not None:
                finish(_CLOSED)

    # -- what is asked of them --------------------------------------------------------------------

    def hear_question(self, question_id: str, receive: Callable[[Data], Any] | None) -> None:
        """Pass pages' messages about a question to `receive`, on any thread; None ends it."""
        if receive is None:
            self._questions.pop(question_id, None)
        else:
            self._questions[question_id] = receive

    def wish(self, page: Page, op: str, asker: CellRef, fields: Data) -> "Future[Data]":
        """Send a request to a page about its notebook; the future gets the reply unchecked."""
        answer: Future[Data] = Future()
        which = uuid.uuid4().hex
        self._asked[which] = page, partial(_hand_over, answer)
        answer.add_done_callback(lambda _: self.give_up(which))
        page.say("wish", id=which, op=op, asker=asker.cell, **fields)
        return answer

    def call(
        self, name: str, call_id: str, arguments: Data, client: str, finish: Callable[[Data], Any]
    ) -> str:
        """Send a tool call to the page that offers the tool.

        Returns:
            What `give_up` needs; "" where no page offers the tool.
        """
        offering = [p for p in self.pages if any(tool["name"] == name for tool in p.tools)]
        if not offering:
            return ""
        page = next((page for page in offering if page.client == client), offering[-1])
        # Ids of models may come again, in another turn or from another agent.
        which = f"{call_id}.{uuid.uuid4().hex}"
        self._asked[which] = page, finish
        page.say("call", call_id=which, name=name, arguments=dict(arguments))
        return which

    def give_up(self, which: str) -> None:
        """Wait no longer for a page's reply; one that has come is no matter."""
        self._asked.pop(which, None)

    def tools(self) -> dict[str, Data]:
        """Return the tools that pages offer, by name."""
        return {str(tool["name"]): tool for page in self.pages for tool in page.tools}


def asker_of(shell: Any) -> CellRef:
    """Return the running cell, and the connection that ran it."""
    kernel = getattr(shell, "kernel", None)
    parent = {} if kernel is None else kernel.get_parent("shell") or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    return CellRef(str(cell), str((parent.get("header") or {}).get("session", "")))


def _hand_over(answer: "Future[Data]", data: Data) -> None:
    """Set the result of a future, unless its turn has ended meanwhile."""
    if answer.set_running_or_notify_cancel():
        answer.set_result(data)


def _tools_of(data: Data) -> Sequence[Data]:
    tools = data.get("tools")
    tools = tools if isinstance(tools, list) else []
    return [tool for tool in tools if isinstance(tool, dict) and "name" in tool]
