"""The notebook's tools for other programs: asked about in its cell, listed anew after each cell."""

import asyncio
import json
import queue
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernels.cells import WAITS_IN_C
from tests.support.kernels.driver import Kernel
from tests.support.mcp.client import connected, text_of

LIMIT = 90.0
VIEW = "application/vnd.jupyter.widget-view+json"
TOOL = '''
from agent_magics import tool

@tool
def double(n: int) -> dict[str, int]:
    """Double a number."""
    import threading
    on_main = threading.current_thread() is threading.main_thread()
    return {"n": 2 * n, "on_main": on_main}
'''


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("serving")
    with Kernel(cwd=str(folder), env={"XDG_STATE_HOME": str(folder / "state")}) as kernel:
        assert kernel.run("%load_ext agent_magics\n" + TOOL).status == "ok"
        yield kernel


class Page:
    """The notebook's page while programs call: draws widgets, and clicks as it is told."""

    def __init__(self, kernel: Kernel, decision: str = "") -> None:
        self._kernel, self._decision = kernel, decision
        self.states: dict[str, Any] = {}
        self.cells: set[str] = set()
        self.asked = threading.Event()
        self.shown: list[str] = []
        self.closed: list[str] = []

    def attend(self, work: "Future[Any]") -> Any:
        """See and click until `work` is done; return what came of it."""
        while not work.done():
            with suppress(queue.Empty):
                self._see(self._kernel.client.get_iopub_msg(timeout=0.05))
        with suppress(queue.Empty):
            while True:  # what was sent before the end
                self._see(self._kernel.client.get_iopub_msg(timeout=0.5))
        return work.result()

    def attend_until(self, seen: Callable[[], bool]) -> None:
        """See and click until `seen()`."""
        deadline = time.monotonic() + LIMIT
        while not seen():
            assert time.monotonic() < deadline, self.shown
            with suppress(queue.Empty):
                self._see(self._kernel.client.get_iopub_msg(timeout=0.05))

    def _see(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open":
            self.states[content["comm_id"]] = content["data"].get("state", {})
        elif kind == "comm_close":
            self.closed.append(content["comm_id"])
        elif kind in ("display_data", "update_display_data"):
            self.cells.add(message["parent_header"].get("msg_id", ""))
            self._draw(content["data"])

    def _draw(self, data: dict[str, Any]) -> None:
        self.shown.append(data.get("text/plain", ""))
        if VIEW not in data:
            return
        self.asked.set()
        comm = data[VIEW]["model_id"]
        self._kernel.send_to_widget(comm, {"type": "drawn"})
        if self._decision:
            answer = {"type": "answer", "decision": self._decision, "feedback": "because"}
            self._kernel.send_to_widget(comm, {**answer, "id": self.states[comm]["question_id"]})

    @property
    def questions(self) -> list[dict[str, Any]]:
        return [state for state in self.states.values() if state.get("question_id")]


class Program:
    """A program beside the notebook that holds the token."""

    def __init__(self, config: dict[str, Any], threads: ThreadPoolExecutor) -> None:
        self.url = config["url"]
        self.token = config["headers"]["Authorization"].removeprefix("Bearer ")
        self._threads = threads

    def do(self, work: Callable[[Any], Any], **options: Any) -> "Future[Any]":
        """Connect and do `work(client)`, on a thread."""

        async def connect() -> Any:
            async with connected(self.url, self.token, **options) as client:
                return await work(client)

        return self._threads.submit(asyncio.run, asyncio.wait_for(connect(), LIMIT))

    def call(self, name: str, **arguments: Any) -> "Future[Any]":
        return self.do(lambda client: client.call_tool(name, arguments))


@pytest.fixture
def program(kernel: Kernel) -> Iterator[Program]:
    """The tools are served; this program has read the file with the token."""
    outcome = kernel.run("%agent serve --token-file", notebook=True, allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    path = Path(re.search(r"`(\S+\.json)`", outcome.items[0]["text"]).group(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = json.loads(path.read_text())["mcpServers"]["notebook"]
    with ThreadPoolExecutor(1) as threads:
        program = Program(config, threads)
        assert program.token not in json.dumps(outcome.messages, default=str)
        program.cell = outcome.messages[0]["parent_header"]["msg_id"]
        yield program
    assert "Nothing is served" in kernel.run("%agent serve --stop").items[0]["text"]
    assert not path.exists()


def test_a_function_of_the_notebook_runs_on_its_main_thread(
    kernel: Kernel, program: Program
) -> None:
    result = Page(kernel).attend(program.call("double", n=21))
    assert result.structured_content == {"n": 42, "on_main": True}


@pytest.mark.parametrize(
    ("decision", "said"), [("approve", "Approved for"), ("deny", "Denied for")]
)
def test_a_question_appears_in_the_cell_that_serves(
    kernel: Kernel, program: Program, decision: str, said: str
) -> None:
    page = Page(kernel, decision)
    result = page.attend(program.call("python", code="6 * 7"))
    (question,) = page.questions
    assert question["reason"].startswith("asked by an MCP client: tester 2.12; ")
    assert page.cells == {program.cell}
    assert "approve_for_cell" not in [choice["decision"] for choice in question["choices"]]
    assert page.shown[-1].startswith(said)
    assert len(page.closed) > 0, "no widget stays"
    assert result.is_error == (decision == "deny")
    assert ("because" if result.is_error else "42") in text_of(result)


def test_answers_queued_for_cells_are_not_for_programs(kernel: Kernel, program: Program) -> None:
    kernel.run("%agent answer approve")
    page = Page(kernel, "deny")
    result = page.attend(program.call("python", code="6 * 7"))
    assert result.is_error
    assert len(page.questions) == 1
    queued = "get_ipython().magics_manager.registry['AgentMagics'].notebook.host.queued"
    assert kernel.value(f"tuple({queued})") == "('approve',)"
    kernel.run(f"{queued}.clear()")


def test_a_program_that_gives_up_takes_its_question_away(kernel: Kernel, program: Program) -> None:
    page = Page(kernel)

    async def give_up(client: Any) -> None:
        call = asyncio.create_task(client.call_tool("python", {"code": "6 * 7"}))
        assert await asyncio.to_thread(page.asked.wait, LIMIT)
        call.cancel()

    page.attend(program.do(give_up))
    page.attend_until(lambda: page.shown[-1].startswith("The client gave up:"))


def test_tools_that_a_cell_defines_are_served_after_it(kernel: Kernel, program: Program) -> None:
    async def listed(client: Any) -> dict[str, str]:
        return {tool.name: tool.description for tool in (await client.list_tools()).tools}

    assert program.do(listed).result()["double"] == "Double a number."
    kernel.run(TOOL.replace("Double a number.", "Say it twice.").replace("def double", "def twice"))
    kernel.run(TOOL.replace("Double a number.", "Make it double."))
    tools = program.do(listed).result()
    assert tools["double"] == "Make it double."
    assert tools["twice"] == "Say it twice."
    kernel.run("del twice")
    assert "twice" not in program.do(listed).result()


def test_the_list_answers_while_a_cell_blocks_the_kernel(kernel: Kernel, program: Program) -> None:
    """A client that connects then is not kept waiting; only its calls are."""
    listed = program.do(lambda client: client.list_tools())
    code = f"{WAITS_IN_C}\nwait_in_c()"

    def interrupt(message: dict[str, Any]) -> None:
        if "at work" in message["content"].get("text", ""):
            listed.result(LIMIT)
            kernel.interrupt()

    assert kernel.run(code, on_message=interrupt, limit=LIMIT).error == "KeyboardInterrupt"


def test_the_word_is_told_twice_and_takes_no_nonsense(kernel: Kernel, program: Program) -> None:
    again = kernel.run("%agent serve", notebook=True, allow_stdin=True)
    assert program.url in again.items[0]["text"]
    assert "served already" in kernel.run("%agent serve --port 1").text
    assert "[--token-file], --stop" in kernel.run("%agent serve --prot 1").text


def test_where_no_page_shows_it_questions_are_denied(kernel: Kernel) -> None:
    outcome = kernel.run(
        "from agent_magics import Agent\n"
        "agent = Agent(tools=['python'])\n"
        "serving = agent.serve()\n"
        "print(serving.url, serving.token)"
    )
    url, token = outcome.text.split()
    with ThreadPoolExecutor(1) as threads:
        program = Program({"url": url, "headers": {"Authorization": f"Bearer {token}"}}, threads)
        result = Page(kernel).attend(program.call("python", code="1"))
        assert result.is_error
        assert "its page must be open" in text_of(result)
        kernel.run("agent.close()")
