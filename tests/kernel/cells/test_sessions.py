"""Sessions in cells: drawn on after their cell has ended, and plain output in the end."""

import os
import queue
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gates import Gate
from tests.support.kernels.cells import AGENTS, scripted
from tests.support.kernels.driver import ITEM, LIMIT, Kernel, Outcome
from tests.support.pages.items import unfolded

WIDGET = "application/vnd.jupyter.widget-view+json"
TITLE = "echo one; cat first; cat second; echo three"
GATED = repr(TITLE)
# A pipe is opened by both its ends together: each of these waits until the command is there.
FIRST, SECOND = "open('first', 'w').write('two\\n')\n", "open('second', 'w').write('')\n"
# In a second a command has begun and printed, on a machine that is busy.
SESSION = f"Call('exec_command', {{'cmd': {GATED}, 'yield_time_ms': 1000}})"
LIST = "Call('list_sessions')"
DONE = repr("Done.")
AGENT = "%%agent --approval never --sandbox danger-full-access\nGo.\n"


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    os.mkfifo(tmp_path / "first")
    os.mkfifo(tmp_path / "second")
    with Kernel(cwd=str(tmp_path)) as kernel:
        yield kernel


class Page:
    """The outputs of one cell as they go on changing, and its stream widgets."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.outcome = Outcome()
        self.streamed = ""
        self.open_widgets: set[str] = set()
        self.late: list[dict[str, Any]] = []

    def run(self, code: str, **options: Any) -> Outcome:
        """Run the cell, looking at its widgets as a notebook does."""
        self.outcome = self._kernel.run(
            code, notebook=True, allow_stdin=True, on_message=self._look, **options
        )
        return self.outcome

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Take what comes after the cell's end, until `condition` holds."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, (self.streamed, self.open_widgets, self.session)
            try:
                message = self._kernel.client.get_iopub_msg(timeout=0.1)
            except queue.Empty:
                continue
            self.take(message)

    def take_widgets(self, message: dict[str, Any]) -> None:
        """Take a message of another cell; what goes to a widget says nothing about its cell."""
        if message["msg_type"].startswith("comm_"):
            self._look(message)

    def take(self, message: dict[str, Any]) -> None:
        """Take one message that came late."""
        self._look(message)
        if message["msg_type"] in ("update_display_data", "display_data"):
            self.late.append(message)
            display_id = message["content"]["transient"]["display_id"]
            for output in self.outcome.outputs:
                if output.get("id") == display_id:
                    output["data"] = message["content"]["data"]

    def _look(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_open":
            comm_id = content["comm_id"]
            if "_esm" in content["data"].get("state", {}):
                self.open_widgets.add(comm_id)
                self._kernel.send_to_widget(comm_id, {"type": "ready", "view": "v"})
        elif message["msg_type"] == "comm_close":
            self.open_widgets.discard(content["comm_id"])
        elif message["msg_type"] == "comm_msg":
            said = content["data"].get("content", {})
            if said.get("type") == "append" and "view" not in said:
                self.streamed += said["text"]

    def has_ended(self) -> bool:
        """Whether the session's output says that it has ended, and no widget is left."""
        return page_item(self.session).get("exit_code") == 0 and not self.open_widgets

    @property
    def session(self) -> dict[str, Any]:
        """The session's output."""
        (found,) = (
            output["data"]
            for output in self.outcome.outputs
            if WIDGET in output["data"] or output["data"].get(ITEM, {}).get("name") == "session"
        )
        return found


def page_item(data: dict[str, Any]) -> dict[str, Any]:
    """Return the item of an output, {} where a widget is."""
    return data.get(ITEM, {})


def begin(kernel: Kernel, *turns: str) -> Page:
    """Run a cell whose session goes on."""
    assert kernel.run(scripted(*(turns or (SESSION, DONE)))).status == "ok"
    page = Page(kernel)
    assert page.run(AGENT).status == "ok"
    page.streamed = ""  # on a slow machine the call itself had a stream, too
    return page


def test_a_session_outlives_its_cell_and_becomes_plain_output(kernel: Kernel) -> None:
    page = begin(kernel)
    call = page.outcome.tool("exec_command")
    assert call["output"] == "one\n" and call["note"] == "goes on as a session"
    assert call["status"] == "completed"
    assert page.session[ITEM]["status"] == "running" and not page.open_widgets
    assert kernel.run(FIRST, on_message=page.take_widgets, on_other=page.take).status == "ok"
    page.wait_until(lambda: WIDGET in page.session and page.streamed == "two\n")
    assert len(page.open_widgets) == 1
    assert kernel.run(SECOND, on_message=page.take_widgets, on_other=page.take).status == "ok"
    page.wait_until(lambda: WIDGET not in page.session and not page.open_widgets)
    item = page.session[ITEM]
    assert item["output"] == "two\nthree\n" and item["status"] == "completed"
    assert (item["exit_code"], item["title"]) == (0, TITLE)
    assert page.session["text/plain"].endswith("(ran, exit code 0)\ntwo\nthree")
    assert "two\nthree\n".startswith(page.streamed)
    # All of it belongs to the cell that began it.
    cell = page.outcome.messages[0]["parent_header"]["msg_id"]
    assert {message["parent_header"]["msg_id"] for message in page.late} == {cell}


def test_while_another_cell_blocks_the_drawing_waits(kernel: Kernel) -> None:
    page = begin(kernel)
    blocking = (
        f"{FIRST}session, = {AGENTS}['default'].session.conversation.processes.sessions()\n"
        f"{SECOND}session.process.wait({LIMIT})"
    )
    outcome = kernel.run(blocking, on_message=page.take_widgets, on_other=page.take)
    assert outcome.status == "ok"
    page.wait_until(page.has_ended)
    assert page.session[ITEM]["output"] == "two\nthree\n"


def test_while_another_cell_awaits_the_output_appears(kernel: Kernel, tmp_path: Path) -> None:
    page = begin(kernel)
    awaiting = (
        f"import asyncio\n{FIRST}{SECOND}await asyncio.to_thread(lambda: open('drawn').read())"
    )
    drawn = Gate(tmp_path / "drawn")

    def take(message: dict[str, Any]) -> None:
        page.take(message)
        if page.has_ended():
            drawn.open()

    outcome = kernel.run(awaiting, on_other=take)
    assert outcome.status == "ok", "the session's end was not drawn while the other cell awaited"


def test_the_end_is_told_in_the_next_cell(kernel: Kernel) -> None:
    page = begin(kernel, SESSION, DONE, repr("I see."))
    kernel.run(FIRST, on_message=page.take_widgets, on_other=page.take)
    kernel.run(SECOND, on_message=page.take_widgets, on_other=page.take)
    page.wait_until(page.has_ended)
    second = Page(kernel).run(AGENT)
    notice, text, *_ = second.items
    assert notice["text"] == f"Session `{TITLE}` ended with exit code 0."
    assert text["text"] == "I see."


def test_where_nobody_watches_nothing_volatile_is_shown(kernel: Kernel) -> None:
    poll = (
        "lambda r: Call('write_stdin', {'session_id': "
        f"{AGENTS}['default'].session.conversation.processes.sessions()[0].id, "
        "'yield_time_ms': 9000})"
    )
    gate = (
        "lambda r: (open('first', 'w').write('two\\n'), open('second', 'w').write(''), "
        + poll.partition(": ")[2]
        + ")[-1]"
    )
    bundles = []
    for _ in range(2):
        started = f"%reload_ext agent_magics\n{scripted(SESSION, LIST, gate, DONE)}"
        assert kernel.run(started).status == "ok"
        outcome = kernel.run(AGENT)
        assert outcome.status == "ok"
        assert not any(
            m["msg_type"] in ("comm_open", "update_display_data") for m in outcome.messages
        )
        bundles.append([output["data"] for output in outcome.outputs])
        assert not re.search(r"[Ss]ession \d+|\d{5}", repr(bundles[-1]))
    call, listed, poll_item, text = unfolded(bundle[ITEM] for bundle in bundles[0])
    assert call["title"] == TITLE and call["note"].endswith("goes on as a session")
    assert listed["output"].startswith(TITLE)
    assert poll_item["title"] == TITLE
    assert poll_item["output"].endswith("three\n") and text["text"] == "Done."
    assert bundles[0] == bundles[1]


def test_a_front_end_that_draws_no_widgets_gets_the_text(kernel: Kernel) -> None:
    assert kernel.run(scripted(SESSION, DONE)).status == "ok"
    page = Page(kernel)
    page._look = lambda message: None  # type: ignore[method-assign]  # nothing is drawn
    page.run(AGENT)
    kernel.run(FIRST, on_message=page.take_widgets, on_other=page.take)
    kernel.run(SECOND, on_message=page.take_widgets, on_other=page.take)
    page.wait_until(page.has_ended)
    assert page.session[ITEM]["output"] == "two\nthree\n"


def test_however_fast_it_prints_few_messages_are_sent_and_each_word_once(
    kernel: Kernel, tmp_path: Path
) -> None:
    for gate in ("line-go", "line-stop", "word-go", "word-stop"):
        os.mkfifo(tmp_path / gate)
    script = ": < line-go; for n in $(seq 600); do echo line $n; sleep 0.005; done; : < line-stop"
    session = f"Call('exec_command', {{'cmd': {script!r}, 'yield_time_ms': 250}})"
    page = begin(kernel, session, session.replace("line", "word"), DONE)
    messages: list[str] = []
    streamed = Gate(tmp_path / "streamed")

    def count(message: dict[str, Any]) -> None:
        page.take(message)
        if message["msg_type"] in ("comm_msg", "update_display_data"):
            messages.append(message["msg_type"])

        if all(f"{word} 600\n" in page.streamed for word in ("line", "word")):
            streamed.open()

    began = time.monotonic()
    outcome = kernel.run(
        "import asyncio\nfor word in ('line', 'word'): open(f'{word}-go', 'w').close()\n"
        "await asyncio.to_thread(lambda: open('streamed').read())",
        on_message=lambda m: m["msg_type"].startswith("comm_") and count(m),
        on_other=count,
    )
    assert outcome.status == "ok"
    # (What puts the two widgets in their places, and their backlogs, come once each.)
    assert len(messages) <= 20 * (time.monotonic() - began) + 10
    for word in ("line", "word"):
        numbers = re.findall(rf"{word} (\d+)\n", page.streamed)
        assert numbers == [str(n) for n in range(1, 601)]


def test_a_restart_of_the_kernel_leaves_plain_output_too(kernel: Kernel) -> None:
    page = begin(kernel)
    kernel.run(FIRST, on_message=page.take_widgets, on_other=page.take)
    page.wait_until(lambda: WIDGET in page.session)
    kernel.client.shutdown()
    page.wait_until(lambda: WIDGET not in page.session)
    assert page.session[ITEM]["note"] == "killed"
    assert page.session[ITEM]["output"] == "two\n"


@pytest.mark.needs("tier 1")
@pytest.mark.parametrize("then", ["cat second", "true"], ids=["goes on", "ends"])
def test_what_a_session_plants_after_its_cell_is_told(tmp_path: Path, then: str) -> None:
    """The person reads it below the cell at once, the model with the next request."""
    os.mkfifo(tmp_path / "first")
    os.mkfifo(tmp_path / "second")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    script = f"cat first; echo evil > .git/hooks/post-commit; {then}"
    play = [f"Call('exec_command', {{'cmd': {script!r}, 'yield_time_ms': 250}})", DONE, DONE]
    told = "Protected files: moved"
    with Kernel(cwd=str(tmp_path), env={"AGENT_MAGICS_TIER": "1"}) as kernel:
        kernel.run(scripted(*play))
        page = Page(kernel)
        assert page.run("%%agent --approval never\nGo.\n").status == "ok"
        kernel.run(FIRST, on_message=page.take_widgets, on_other=page.take)
        page.wait_until(lambda: any(told in repr(message["content"]) for message in page.late))
        assert not (tmp_path / ".git/hooks/post-commit").exists()
        if then != "true":
            kernel.run(SECOND, on_message=page.take_widgets, on_other=page.take)
        page.wait_until(lambda: page_item(page.session).get("exit_code") == 0)
        conversation = f"{AGENTS}['default'].session.conversation"
        waiting = f"while not {conversation}._notifications: __import__('time').sleep(0.01)"
        assert kernel.run(waiting).status == "ok"
        Page(kernel).run("%%agent --approval never\nGo on.\n")
        assert told in kernel.value(f"list({conversation}.history.items)")
