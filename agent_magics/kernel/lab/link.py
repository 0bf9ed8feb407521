"""The line to JupyterLab's pages: what the labextension says to this kernel, and is asked by it.

A page opens a comm and speaks on it; the kernel never does: ipykernel hands a comm's messages to
the shell that last spoke on it, and that one may be busy. What the kernel says goes out under the
page's own id. Messages come in on whichever thread hears them (a subshell's, the control channel's,
the main one), so they are only handed over here.
"""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

# The comm's name, and the control message that does its work where there are no subshells.
TARGET = "agent_magics"
CONTROL = "agent_magics_message"

Data = Mapping[str, Any]


class Asker(NamedTuple):
    """The cell whose agent asks.

    Attributes:
        cell: its id; "" outside notebooks.
        client: the front end's connection that ran it.
    """

    cell: str
    client: str


class Page:
    """One open notebook in one page, as the labextension told of it.

    Attributes:
        client: its connection, as its execute requests name it.
        path: the notebook.
        reach: how its words come in while the main thread is busy: "subshell", "control", or ""
            while that is not proven.
        tools: what other extensions of the page offer: name, description and inputSchema of each.
    """

    def __init__(self, kernel: Any, comm_id: str, hello: Data) -> None:
        self._kernel = kernel
        self.comm_id = comm_id
        self.inbox = str(hello.get("inbox", ""))
        self.client = str(hello.get("client", ""))
        self.path = str(hello.get("path", ""))
        self.reach = ""
        self.tools: Sequence[Data] = _tools_of(hello)

    def say(self, kind: str, /, **fields: Any) -> None:
        """Say something to this page alone; from any thread."""
        kernel = self._kernel
        kernel.session.send(
            kernel.iopub_socket,
            "comm_msg",
            {"comm_id": self.inbox, "data": {"type": kind, **fields}},
            parent=kernel.get_parent("shell"),
            ident=f"comm-{self.inbox}".encode(),
        )


class LabLink:
    """The pages of this kernel, and what is on its way to and from them.

    Args:
        kernel: the IPython kernel; None in a terminal, which has no pages.

    Attributes:
        askers: the cells of turns that run, by turn id.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._pages: dict[str, Page] = {}
        self._questions: dict[str, Callable[[Data], Any]] = {}
        self._wishes: dict[str, tuple[Page, Future[Data]]] = {}
        self._calls: dict[str, tuple[Page, Callable[[Data], Any]]] = {}
        self.askers: dict[str, Asker] = {}
        if kernel is not None and hasattr(kernel, "comm_manager"):
            kernel.comm_manager.register_target(TARGET, self._open)
            kernel.control_handlers[CONTROL] = self._control

    def close(self) -> None:
        """Hear nothing any more, and tell the pages: they may knock at who comes next."""
        for page in self.pages:
            page.say("goodbye")
        if self._kernel is not None and hasattr(self._kernel, "comm_manager"):
            self._kernel.comm_manager.unregister_target(TARGET, self._open)
            self._kernel.control_handlers.pop(CONTROL, None)
        self._pages.clear()

    @property
    def pages(self) -> tuple[Page, ...]:
        """The open notebooks, the newest last."""
        return tuple(self._pages.values())

    @property
    def reach(self) -> str:
        """How a click comes in while the main thread is busy; "" where it would not."""
        return next((page.reach for page in reversed(self.pages) if page.reach), "")

    # -- what pages say ---------------------------------------------------------------------------

    def _open(self, comm: Any, message: Data) -> None:
        page = self._let_in(comm.comm_id, message["content"].get("data") or {})
        comm.on_msg(lambda said: self._hear(page, said["content"].get("data"), "subshell"))
        comm.on_close(lambda _: self.drop(page))

    def _let_in(self, comm_id: str, hello: Data) -> Page:
        page = Page(self._kernel, comm_id, hello)
        self._pages.pop(page.inbox, None)  # so that the newest comes last
        self._pages[page.inbox] = page
        page.say("welcome", comm=comm_id)
        return page

    def _control(self, _stream: Any, _ident: Any, message: Data) -> None:
        comm_id, data = message["content"].get("comm_id"), message["content"].get("data")
        if isinstance(data, dict) and data.get("type") == "knock":
            self._let_in(str(comm_id), data)
            return
        for page in self.pages:
            if page.comm_id == comm_id:
                self._hear(page, data, "control")

    def _hear(self, page: Page, data: Any, way: str) -> None:
        """Hand over what a page says; it can say anything, so nothing here may fail by that."""
        match data:
            case {"type": "ping"}:
                # Proven: the main thread need not be free for it.
                free = threading.current_thread() is not threading.main_thread()
                page.reach = way if free else ""
            case {"type": "bye"}:
                self.drop(page)
            case {"type": "tools"}:
                page.tools = _tools_of(data)
            case {"type": "question", "id": str(which), "content": {**content}}:
                receive = self._questions.get(which)
                if receive is not None:
                    receive(content)
            case {"type": "reply", "id": str(which)} if which in self._wishes:
                _, answer = self._wishes.pop(which)
                _hand_over(answer, data)
            case {"type": "result", "call_id": str(which)} if which in self._calls:
                _, finish = self._calls.pop(which)
                finish(data)

    def drop(self, page: Page) -> None:
        """Forget a page that is gone; what it was asked fails."""
        if self._pages.get(page.inbox) is page:
            del self._pages[page.inbox]
            comm = self._kernel.comm_manager.comms.get(page.comm_id)
            if comm is not None:  # one that only knocked on the control channel has none
                self._kernel.comm_manager.unregister_comm(comm)
        for which, (asked, answer) in tuple(self._wishes.items()):
            if asked is page and self._wishes.pop(which, None) is not None:
                _hand_over(answer, {"refused": "its page was closed"})
        for which, (asked, finish) in tuple(self._calls.items()):
            if asked is page and self._calls.pop(which, None) is not None:
                finish({"items": [_text("The page that offers this was closed.")]})

    # -- what is asked of them --------------------------------------------------------------------

    def hear_question(self, question_id: str, receive: Callable[[Data], Any] | None) -> None:
        """Hand what pages say about a question to `receive`, on their thread; None ends it."""
        if receive is None:
            self._questions.pop(question_id, None)
        else:
            self._questions[question_id] = receive

    def wish(self, page: Page, op: str, asker: Asker, fields: Data) -> "Future[Data]":
        """Ask a page to do something with its notebook; the reply comes as the page sent it."""
        answer: Future[Data] = Future()
        which = uuid.uuid4().hex
        self._wishes[which] = page, answer
        page.say("wish", id=which, op=op, asker=asker.cell, **fields)
        return answer

    def call(
        self, name: str, call_id: str, arguments: Data, client: str, finish: Callable[[Data], Any]
    ) -> bool:
        """Have the tool of a page answer a call; False where no page offers it."""
        offering = [p for p in self.pages if any(tool["name"] == name for tool in p.tools)]
        if not offering:
            return False
        page = next((page for page in offering if page.client == client), offering[-1])
        self._calls[call_id] = page, finish
        page.say("call", call_id=call_id, name=name, arguments=dict(arguments))
        return True

    def tools(self) -> dict[str, Data]:
        """Return what pages offer, by name."""
        return {str(tool["name"]): tool for page in self.pages for tool in page.tools}


def asker_of(shell: Any) -> Asker:
    """Return the cell that is running now, and who ran it."""
    kernel = getattr(shell, "kernel", None)
    parent = {} if kernel is None else kernel.get_parent("shell") or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    return Asker(str(cell), str((parent.get("header") or {}).get("session", "")))


def _hand_over(answer: "Future[Data]", data: Data) -> None:
    """Give an answer to whoever waits; to a turn that has ended meanwhile, nothing."""
    if answer.set_running_or_notify_cancel():
        answer.set_result(data)


def _tools_of(data: Data) -> Sequence[Data]:
    tools = data.get("tools")
    tools = tools if isinstance(tools, list) else []
    return [tool for tool in tools if isinstance(tool, dict) and "name" in tool]


def _text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}
