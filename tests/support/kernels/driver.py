"""Drives a real ipykernel the way a notebook front end does: cells, stdin, interrupts, comms."""

import os
import queue
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import ipykernel
import psutil
from jupyter_client.manager import AsyncKernelManager, KernelManager

from tests.support.kernels import forked
from tests.support.pages.items import unfolded
from tests.support.ports import free_port

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
ITEM = "application/vnd.agent-magics.item+json"
LIMIT = 90.0  # seconds; only what hangs takes so long, also on a machine that others use
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Outcome:
    """The result of running one cell."""

    status: str = ""
    error: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    payload: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All printed text, and the plain text of all displays."""
        return "\n".join(
            o["text"] if "text" in o else o["data"].get("text/plain", "") for o in self.outputs
        )

    @property
    def items(self) -> list[dict[str, Any]]:
        """The agent's items after all updates, with blocks and groups opened."""
        return unfolded(o["data"][ITEM] for o in self.outputs if ITEM in o.get("data", {}))

    @property
    def prompts(self) -> list[str]:
        """The `input()` prompts that were opened."""
        return [m["content"]["prompt"] for m in self.messages if m["msg_type"] == "input_request"]

    def tool(self, name: str) -> dict[str, Any]:
        """The one item of the calls of this tool."""
        (found,) = (item for item in self.items if item.get("name") == name)
        return found

    @property
    def markdown(self) -> str:
        """The Markdown of the text items; in `text` their tables are columns."""
        return "\n".join(item["text"] for item in self.items_of("text"))

    def items_of(self, kind: str) -> list[dict[str, Any]]:
        """The items of one kind."""
        return [item for item in self.items if item["kind"] == kind]


def own_ports() -> dict[str, Any]:
    """Return options of a kernel manager: ports that no other program is given meanwhile."""
    return {"cache_ports": False, **{f"{channel}_port": free_port() for channel in CHANNELS}}


class NotebookKernelManager(AsyncKernelManager):
    """Starts the kernel of a `NotebookClient` with ports of its own."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**own_ports(), **given)


class Kernel:
    """A kernel process and a client; used as a context manager.

    Args:
        env: variables of its environment.
        cwd: the folder that it is started in.
        anew: whether it is an interpreter of its own, not a fork of `forked.py`.
    """

    def __init__(
        self, *, env: dict[str, str] | None = None, cwd: str | None = None, anew: bool = False
    ) -> None:
        self.manager = KernelManager(kernel_name="python3", **own_ports())
        self._stands_in = sys.platform == "linux" and not anew
        if not anew:
            self.manager.kernel_spec.argv = forked.command()
        # A profile of its own: what a developer has configured does not reach the tests.
        self._profile = tempfile.TemporaryDirectory(prefix="agent-magics-ipython-")
        own = {"IPYTHONDIR": self._profile.name}
        self._options: dict[str, Any] = {"env": {**os.environ, **own, **(env or {})}}
        if cwd:
            self._options["cwd"] = cwd
        self._subshell = ""

    def __enter__(self) -> "Kernel":
        with ExitStack() as ends:
            ends.callback(self._profile.cleanup)
            ends.callback(self.manager.cleanup_resources)
            self.manager.start_kernel(**self._options)
            ends.callback(self.manager.shutdown_kernel, now=True)
            self.client = self.manager.blocking_client()
            ends.callback(self.client.stop_channels)
            self.client.start_channels()
            self.client.wait_for_ready(timeout=LIMIT)
            self._ends = ends.pop_all()  # only of a kernel that is ready; another ends here
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def run(
        self,
        code: str,
        *,
        allow_stdin: bool = False,
        notebook: bool = False,
        answers: list[str] | None = None,
        on_message: Callable[[dict[str, Any]], None] | None = None,
        on_other: Callable[[dict[str, Any]], None] | None = None,
        limit: float = LIMIT,
    ) -> Outcome:
        """Run a cell to its end.

        Args:
            code: the cell.
            allow_stdin: whether it may ask for input.
            notebook: whether to look like a notebook front end (the request names its cell).
            answers: the texts typed at `input()` prompts, in order.
            on_message: called with every message, so that a test can act on it.
            on_other: called with messages that belong to other cells.
            limit: seconds for the cell.
        """
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": True,
        }
        metadata = {"cellId": uuid.uuid4().hex} if notebook else {}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        handlers = (on_message, on_other)
        return self._collect(message["header"]["msg_id"], list(answers or []), handlers, limit)

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button does; return when it was sent the signal."""
        self.manager.interrupt_kernel()
        if self._stands_in:  # which sleeps when it has passed the signal on
            stand_in = psutil.Process(self.manager.provisioner.pid)
            while stand_in.status() not in (psutil.STATUS_SLEEPING, psutil.STATUS_ZOMBIE):
                pass

    @property
    def alive(self) -> bool:
        """Whether the kernel's process still runs."""
        return self.manager.is_alive()

    def value(self, expression: str) -> str:
        """Return the printed value of an expression."""
        outcome = self.run(f"print({expression})")
        if outcome.status != "ok":
            raise AssertionError(f"{expression} raised {outcome.error}: {outcome.text}")
        # A stream comes in pieces where the kernel chose to cut it.
        return "".join(o["text"] for o in outcome.outputs if o.get("name") == "stdout").strip()

    def complete(self, code: str) -> list[str]:
        """Return the completions at the end of `code`."""
        reply = self.client.complete(code, len(code), reply=True, timeout=LIMIT)
        return reply["content"]["matches"]

    def inspect(self, code: str) -> str:
        """Return what Shift-Tab shows at the end of `code`, without colours."""
        reply = self.client.inspect(code, len(code), reply=True, timeout=LIMIT)
        return _COLOURS.sub("", reply["content"]["data"].get("text/plain", ""))

    def send_to_widget(self, comm_id: str, content: dict[str, Any]) -> None:
        """Send a custom message on a widget's comm, as its page half does."""
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        if ipykernel.version_info[:2] in ((7, 0), (7, 1), (7, 2), (7, 3)):
            # Their shell waits for the cell to end; JupyterLab sends on a subshell.
            message["header"]["subshell_id"] = self._open_subshell()
        self.client.shell_channel.send(message)

    def _open_subshell(self) -> str:
        if not self._subshell:
            control = self.client.control_channel
            control.send(self.client.session.msg("create_subshell_request", {}))
            self._subshell = control.get_msg(timeout=LIMIT)["content"]["subshell_id"]
        return self._subshell

    def _collect(
        self,
        request: str,
        answers: list[str],
        handlers: tuple[Callable[[dict[str, Any]], None] | None, ...],
        limit: float,
    ) -> Outcome:
        on_message, on_other = handlers
        outcome, idle = Outcome(), False
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            self._answer_prompts(answers, outcome, on_message)
            try:
                message = self.client.get_iopub_msg(timeout=0.05)
            except queue.Empty:
                if idle and outcome.status:
                    return outcome
                self._read_reply(request, outcome)
                continue
            if message["parent_header"].get("msg_id") != request:
                if on_other is not None:
                    on_other(message)
                continue
            outcome.messages.append(message)
            _apply(message, outcome)
            if on_message is not None:
                on_message(message)
            idle |= (
                message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            )
            if idle:
                self._read_reply(request, outcome)
                if outcome.status:
                    return outcome
        raise TimeoutError(f"the cell did not end in {limit} s; so far: {outcome.text}")

    def _read_reply(self, request: str, outcome: Outcome) -> None:
        try:
            reply = self.client.get_shell_msg(timeout=0.05)
        except queue.Empty:
            return
        if reply["parent_header"].get("msg_id") == request:
            outcome.status = reply["content"]["status"]
            outcome.error = reply["content"].get("ename", "")
            outcome.payload = reply["content"].get("payload", [])

    def _answer_prompts(
        self,
        answers: list[str],
        outcome: Outcome,
        on_message: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        try:
            prompt = self.client.get_stdin_msg(timeout=0)
        except queue.Empty:
            return
        outcome.messages.append(prompt)
        if on_message is not None:
            on_message(prompt)
        if answers:
            self.client.input(answers.pop(0))


def _apply(message: dict[str, Any], outcome: Outcome) -> None:
    """Collect outputs as a notebook does: updates replace by display id."""
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        outcome.outputs.append({"text": content["text"], "name": content["name"]})
    elif kind == "error":
        outcome.outputs.append({"text": "\n".join(content["traceback"]), "name": "error"})
    elif kind in ("display_data", "execute_result"):
        display_id = content.get("transient", {}).get("display_id")
        outcome.outputs.append({"data": content["data"], "id": display_id})
    elif kind == "update_display_data":
        for output in outcome.outputs:
            if output.get("id") == content["transient"]["display_id"]:
                output["data"] = content["data"]
