"""What a page of JupyterLab says and is asked, by a client that speaks as the labextension does."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from agent_magics.kernel.lab.link import MOST_PAGES
from tests.support.kernels.cells import AGENTS, GATE, outputs, scripted
from tests.support.kernels.driver import LIMIT, Kernel

VIEW = "application/vnd.jupyter.widget-view+json"
NOTEBOOK = {"allow_stdin": True, "notebook": True}
DONE = repr("It is done.")
AGENT = "%%agent\nGo.\n"
# In a blocking cell no click would reach the kernel by the widget's own comm.
BLOCKING = "%%time\n%%agent\nGo.\n"
HOST = "get_ipython().magics_manager.registry['AgentMagics'].notebook.host"
CODE = "Call('python', {'code': 'total = 6 * 7'})"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel() as kernel:
        kernel.run("%load_ext agent_magics")
        # Else the first question waits for its drawing a few seconds only: too few under load.
        kernel.run(f"{HOST}.widgets_seen = True")
        yield kernel


class LabPage:
    """A page whose messages all take the control channel, as where there are no subshells.

    Attributes:
        heard: what the kernel has said to it, in order.
        cells: the sources of the cells of its notebook, by id.
    """

    def __init__(
        self, kernel: Kernel, *, tools: list[dict[str, Any]] | None = None, watcher: bool = False
    ) -> None:
        self._kernel = kernel
        self._watcher = watcher
        self._comm, self._inbox = uuid.uuid4().hex, uuid.uuid4().hex
        self.heard: list[dict[str, Any]] = []
        self.states: dict[str, dict[str, Any]] = {}
        self.cells: dict[str, str] = {}
        self.client = kernel.client.session.session
        self._tools = tools or []

    def __enter__(self) -> "LabPage":
        self.knock()
        self._wait_for(self.say(type="ping"))
        return self

    def __exit__(self, *_: object) -> None:
        self._wait_for(self.say(type="bye"))

    def knock(self) -> str:
        about = {"version": 1, "path": "a.ipynb", "tools": self._tools}
        about |= {"watcher": True} if self._watcher else {}
        return self.say(type="knock", client=self.client, inbox=self._inbox, **about)

    def say(self, **data: Any) -> str:
        client = self._kernel.client
        content = {"comm_id": self._comm, "data": data}
        message = client.session.msg("agent_magics_message", content)
        client.control_channel.send(message)
        return message["header"]["msg_id"]

    def _wait_for(self, said: str) -> None:
        """Wait until the kernel has done with what was said."""
        while True:
            message = self._kernel.client.get_iopub_msg(timeout=LIMIT)
            is_idle = message["content"].get("execution_state") == "idle"
            if is_idle and message["parent_header"].get("msg_id") == said:
                return

    def __call__(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open":
            self.states[content["comm_id"]] = content["data"].get("state", {})
        elif kind == "comm_msg" and content["comm_id"] == self._inbox:
            self.heard.append(content["data"])
            self._act(content["data"])
        elif kind in ("display_data", "update_display_data") and VIEW in content["data"]:
            self.draw(self.states[content["data"][VIEW]["model_id"]])

    def draw(self, state: dict[str, Any]) -> None:
        """Click Approve on a question that is to be answered through the page."""
        if state.get("by_page"):
            which = state["question_id"]
            self.say(type="question", id=which, content={"type": "drawn"})
            answer = {"type": "answer", "id": which, "decision": "approve"}
            self.say(type="question", id=which, content=answer)

    def _act(self, data: dict[str, Any]) -> None:
        if data["type"] == "wish":
            reply = {"type": "reply", "id": data["id"]}
            if data["op"] == "read":
                cells = [_shown(n, *cell) for n, cell in enumerate(self.cells.items())]
                self.say(**reply, value={"path": "a.ipynb", "total": 1, "cells": cells})
            elif self.cells[data["cell"]] != data["expected"]:
                self.say(**reply, refused="stale", stale=self.cells[data["cell"]])
            else:
                self.say(**reply, value={})
        elif data["type"] == "call":
            items = [{"type": "input_text", "text": f"point of {data['arguments']['chart']}"}]
            self.say(type="result", call_id=data["call_id"], items=items, success=True)


def _shown(index: int, name: str, source: str) -> dict[str, Any]:
    state = {"count": None, "running": False, "read_only": False, "outputs": []}
    return {"id": name, "index": index, "type": "code", "source": source, **state}


def test_a_click_on_the_control_channel_answers_a_blocking_cell(kernel: Kernel) -> None:
    kernel.run(scripted(CODE, DONE))
    with LabPage(kernel) as page:
        outcome = kernel.run(BLOCKING, on_message=page, **NOTEBOOK)
        assert outcome.prompts == [], "one door at a time"
        assert outcome.tool("python")["status"] == "completed"
        doctor = kernel.run("%agent doctor", **NOTEBOOK).markdown
        assert "also while code runs (by the control channel)" in doctor
        assert "its extension is connected: `a.ipynb`" in doctor


def test_a_question_that_no_page_draws_is_typed_in(kernel: Kernel) -> None:
    kernel.run(scripted(CODE, DONE))
    kernel.run(f"{HOST}.widgets_seen = False")  # else a page is only slow
    with LabPage(kernel):
        outcome = kernel.run(BLOCKING, answers=["y"], **NOTEBOOK)
    assert len(outcome.prompts) == 1
    assert outcome.tool("python")["status"] == "completed"
    kernel.run(f"{HOST}.widgets_work = True")


def test_the_line_at_the_foot_goes_when_all_is_drawn(kernel: Kernel) -> None:
    """Who sees it go may save the notebook."""
    kernel.run(scripted(*["Call('python', {'code': '1 + 1'})"] * 3, DONE))
    shown: list[str] = []

    def note(message: dict[str, Any]) -> None:
        page(message)
        if message["msg_type"] in ("display_data", "update_display_data"):
            shown.append("output")
        elif page.heard and page.heard[-1].get("done"):
            shown.append("end of the line")

    with LabPage(kernel) as page:
        kernel.run(AGENT, on_message=note, **NOTEBOOK)
    assert shown.index("end of the line") > 5
    assert "output" not in shown[shown.index("end of the line") :]


def test_a_page_that_comes_later_is_shown_what_stands_in_the_cell(kernel: Kernel) -> None:
    kernel.run(scripted(f"['I look.', {CODE}]", DONE))
    page = LabPage(kernel)
    page.client = "another connection"

    def act(message: dict[str, Any]) -> None:
        if message["msg_type"] == "comm_open":
            page.knock()  # while the question is open
        page(message)
        for data in page.heard:
            if data["type"] == "redraw" and not (data["ended"] or drawn):
                drawn.append(data)
                (model,) = (m for m, s in page.states.items() if "question_id" in s)
                known = page.states[model]["question_id"]
                click = {"type": "answer", "id": known, "decision": "approve"}
                kernel.send_to_widget(model, click)

    drawn: list[dict[str, Any]] = []
    outcome = kernel.run(AGENT, on_message=act, on_other=page, **NOTEBOOK)
    page.__exit__()
    assert outcome.status == "ok"
    (redraw,) = drawn
    texts = [output["data"]["text/plain"] for output in redraw["outputs"]]
    assert texts[0] == "I look." and "Question: may python run " in texts[1]
    cells = [
        m["content"]["transient"]["agent_magics_cell"]
        for m in outcome.messages
        if m["msg_type"] == "display_data"
    ]
    assert set(cells) == {redraw["cell"]}


MAP = """
from agent_magics import Agent
from tests.support.rows.echo import Echo

agents = get_ipython().magics_manager.registry["AgentMagics"].agents
agents["default"], rows = Agent(Echo()), ["a", "b"]
"""


def test_a_page_that_comes_later_is_given_the_outcome_of_a_map(kernel: Kernel) -> None:
    """Its file has the words of a card that was open when it was saved."""
    assert kernel.run(MAP).status == "ok"
    kernel.run("%%agent --map rows --into done\n{{text}}\n", **NOTEBOOK)
    page = LabPage(kernel)
    page.knock()
    said, idle = page.say(type="ping"), ""
    while idle != said:
        message = kernel.client.get_iopub_msg(timeout=LIMIT)
        page(message)
        is_idle = message["content"].get("execution_state") == "idle"
        idle = message["parent_header"].get("msg_id", "") if is_idle else ""
    page.__exit__()
    kept = [str(data["outputs"]) for data in page.heard if data["type"] == "redraw"]
    assert any("2 of 2 rows have an answer" in outputs for outputs in kept)


@pytest.mark.parametrize("widgets", ["seen", "given up"])
def test_a_question_in_the_background_waits_until_a_page_draws_it(
    kernel: Kernel, widgets: str
) -> None:
    """Whatever the request that runs meanwhile allows; nobody could type the answer."""
    kernel.run("import agent_magics.kernel.questions.ways as ways; ways.PATIENCE = 0.1")
    kernel.run(f"{HOST}.widgets_work = {widgets == 'seen'}")
    kernel.run(scripted("Call('wait_for_gate')", CODE, DONE) + GATE + "answer = None\n")
    redraws: list[dict[str, Any]] = []
    page = LabPage(kernel)
    page.client = "another connection"
    page.draw = lambda state: None  # it is slow

    def act(message: dict[str, Any]) -> None:
        page(message)
        redraws[:] = [each for each in page.heard if each["type"] == "redraw"]
        models = [m for m, state in page.states.items() if "question_id" in state]
        if models and len(redraws) >= 3 and not answered:
            answered.append(page.states[models[0]]["question_id"])
            click = {"type": "answer", "id": answered[0], "decision": "approve"}
            kernel.send_to_widget(models[0], click)

    answered: list[str] = []
    with page:
        kernel.run("%%agent --background --into answer\nGo.\n", on_message=act, **NOTEBOOK)
        kernel.run("gate.set()", on_message=act, on_other=act)  # which allows no input
        kernel.run(
            "while answer is None: await asyncio.sleep(0.01)",
            on_message=act,
            on_other=act,
            **NOTEBOOK,
        )
    assert answered and kernel.value("answer") == "It is done."
    kernel.run(f"ways.PATIENCE = 30.0; {HOST}.widgets_work = True")


def test_no_message_of_the_page_has_figures_drawn(kernel: Kernel) -> None:
    """After a message of a comm the shell draws all figures, also where code is at work on one."""
    count = "drawn = []\nget_ipython().events.register('post_execute', lambda: drawn.append(1))\n"
    kernel.run(count + "from agent_magics.render.widgets.page import PageWidget\n")
    model = kernel.run("widget = PageWidget()\nprint(widget.comm.comm_id)").text.strip()
    client, comm = kernel.client, uuid.uuid4().hex
    hello = {"version": 1, "path": "a.ipynb", "tools": [], "client": "", "inbox": uuid.uuid4().hex}
    opened = {"comm_id": comm, "target_name": "agent_magics", "data": hello}
    client.shell_channel.send(client.session.msg("comm_open", opened))
    said = {"comm_id": comm, "data": {"type": "ping"}}
    client.shell_channel.send(client.session.msg("comm_msg", said))
    kernel.send_to_widget(model, {"type": "drawn"})
    # After the cells that counted and made the widget; that of this one comes later.
    assert kernel.value("len(drawn)") == "2"


def test_a_cell_that_has_changed_is_not_edited(kernel: Kernel) -> None:
    read = "Call('notebook_read', {})"
    edit = "Call('notebook_edit_cell', {'cell_id': 'c', 'source': 'x = 2', 'version': %r})"
    kernel.run(scripted(read, edit % "8ff436de", edit % "unknown", DONE))
    with LabPage(kernel) as page:
        page.cells["c"] = "x = 1"

        def act(message: dict[str, Any]) -> None:
            page(message)
            if page.heard and page.heard[-1].get("op") == "read":
                page.cells["c"] = "x = 1  # mine"

        kernel.run("%%agent --approval never\nGo.\n", on_message=act, **NOTEBOOK)
    read_text, stale, unknown = eval(kernel.value(outputs()))
    assert "[1] code cell c, version" in read_text
    assert "has changed since the version you gave" in stale and "x = 1  # mine" in stale
    assert "was not read in this kernel" in unknown


def test_a_tool_of_the_page_is_offered_while_it_is_open(kernel: Kernel) -> None:
    tool = {"name": "pick_point", "description": "Pick.", "inputSchema": {"type": "object"}}
    call = "Call('pick_point', {'chart': 'sales'})"
    kernel.run(scripted(call, DONE, call, DONE))
    never = "%%agent --approval never\nGo.\n"
    with LabPage(kernel, tools=[tool]) as page:
        kernel.run(never, on_message=page, **NOTEBOOK)
    kernel.run(never, **NOTEBOOK)
    first, second = eval(kernel.value(outputs()))
    assert first == "point of sales"
    assert "pick_point" in second and "point of" not in second


def test_a_page_is_waited_for_no_longer_than_the_turn_that_asked_it(kernel: Kernel) -> None:
    tool = {"name": "pick_point", "description": "", "inputSchema": {}}
    kernel.run(scripted("Call('pick_point', {'chart': 'sales'})", DONE))

    def interrupt(message: dict[str, Any]) -> None:
        """In place of an answer."""
        if message["msg_type"] == "comm_msg" and message["content"]["data"].get("type") == "call":
            kernel.interrupt()

    with LabPage(kernel, tools=[tool]):
        kernel.run("%%agent --approval never\nGo.\n", on_message=interrupt, **NOTEBOOK)
        assert kernel.value(f"len({HOST}.lab._asked)") == "0"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "sets another one)"),
        ("no name", "sets another one)"),
        ("x" * 65, "sets another one)"),
        ("diagnostics", "is the name of a built-in tool"),
    ],
)
def test_a_tool_of_the_page_that_cannot_be_one_is_left_out_and_told(
    kernel: Kernel, name: str, told: str
) -> None:
    tools = [{"name": each, "description": "", "inputSchema": {}} for each in (name, "pick_point")]
    kernel.run(scripted("Call('pick_point', {'chart': 'sales'})", DONE))
    with LabPage(kernel, tools=tools) as page:
        outcome = kernel.run("%%agent --approval never\nGo.\n", on_message=page, **NOTEBOOK)
    assert outcome.status == "ok", outcome.text
    assert eval(kernel.value(outputs())) == ["point of sales"]
    assert "Left out: 1 tool of other extensions of the page." in outcome.text
    assert f"{told}.\n" in outcome.text


OWN_TOOL = """
from agent_magics import tool

@tool
def pick_line(chart: str) -> str:
    "Pick a line."
    return "my line of " + chart
"""
FOUND = f"{AGENTS}['default'].catalog.discovery._user_folder / 'page.py'"


@pytest.mark.parametrize("when", ["before", "later"])
@pytest.mark.parametrize(
    ("define", "remove"),
    [
        (OWN_TOOL, "del pick_line"),
        (
            f"path = {FOUND}\npath.parent.mkdir(parents=True, exist_ok=True)\n"
            f"path.write_text({OWN_TOOL!r})",
            "path.unlink()",
        ),
    ],
    ids=["in the notebook", "in a folder"],
)
def test_a_tool_of_the_page_yields_to_one_of_the_persons(
    kernel: Kernel, define: str, remove: str, when: str
) -> None:
    tools = [
        {"name": each, "description": "", "inputSchema": {}} for each in ("pick_line", "pick_point")
    ]
    calls = "[Call('pick_point', {'chart': 'sales'}), Call('pick_line', {'chart': 'sales'})]"
    kernel.run(scripted("'Hello.'", calls, DONE))
    cell = "%%agent --approval never\nGo.\n"
    with LabPage(kernel, tools=tools) as page:
        steps = [define, cell] if when == "before" else [cell, define]
        outcomes = [kernel.run(step, on_message=page, **NOTEBOOK) for step in (*steps, cell)]
        kernel.run(remove)
    assert [each.status for each in outcomes] == ["ok"] * 3, outcomes[-1].text
    assert eval(kernel.value(outputs())) == ["point of sales", "my line of sales"]
    assert "Left out: 1 tool of other extensions of the page." in outcomes[-1].text
    assert "'pick_line' is the name of another tool.\n" in outcomes[-1].text


def test_of_a_flood_of_pages_the_newest_are_told(kernel: Kernel) -> None:
    pages = [LabPage(kernel) for _ in range(3 * MOST_PAGES)]
    for page in pages:
        # Read meanwhile: each is told of all ended cells, and ZeroMQ drops what a full queue gets.
        page._wait_for(page.knock())
    with pages[-1]:
        assert kernel.value(f"len({HOST}.lab.pages)") == str(MOST_PAGES)
    for page in pages[-MOST_PAGES:]:
        page.__exit__()


def test_pages_are_told_when_the_extension_is_loaded_anew(kernel: Kernel) -> None:
    with LabPage(kernel) as page:
        kernel.run("%reload_ext agent_magics", on_message=page)
        assert page.heard == [{"type": "goodbye"}]
        assert "has not said hello" in kernel.run("%agent doctor").text


def test_without_a_page_or_a_cell_the_notebook_tools_refuse(kernel: Kernel) -> None:
    read = "Call('notebook_read', {})"
    kernel.run(scripted(read, DONE, read, DONE))
    agent = "%%agent --tools notebook\nGo.\n"
    kernel.run(agent, **NOTEBOOK)
    with LabPage(kernel) as page:
        kernel.run(agent, on_message=page, allow_stdin=True)
    no_page, console = eval(kernel.value(outputs()))
    assert "There is no open notebook to work on" in no_page
    assert "runs in a console" in console


def test_without_a_page_a_rewind_says_that_the_cells_stay(kernel: Kernel) -> None:
    read = "Call('notebook_read', {})"
    edit = "Call('notebook_edit_cell', {'cell_id': 'c', 'source': 'x = 2', 'version': '8ff436de'})"
    kernel.run(scripted(read, edit, DONE))
    with LabPage(kernel) as page:
        page.cells["c"] = "x = 1"
        kernel.run("%%agent --approval never\nGo.\n", on_message=page, **NOTEBOOK)
    shown = kernel.run("%agent rewind --yes", **NOTEBOOK).text
    told = "Cells stay as they are, since no page of JupyterLab with the agent-magics extension"
    assert shown.count(told) == 2 and "can be reached: `x = 2`." in shown
    assert "Cells" not in kernel.run("%agent redo", **NOTEBOOK).text
