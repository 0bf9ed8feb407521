"""A question finds its way to the person, or is answered by policy; one door at a time."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import ipykernel
import pytest

from tests.support.kernels.cells import AGENTS, outputs, scripted
from tests.support.kernels.driver import LIMIT, Kernel
from tests.support.needs import not_tested

VIEW = "application/vnd.jupyter.widget-view+json"
CODE = "Call('python', {'code': 'print(6 * 7)'})"
OTHER = "Call('python', {'code': 'print(6 * 9)'})"
DONE = repr("Done.")
AGENT = "%%agent\nGo.\n"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("answers"))) as kernel:
        yield kernel


def _prepare(kernel: Kernel, *turns: str) -> None:
    assert kernel.run("%reload_ext agent_magics\n" + scripted(*turns)).status == "ok"


# -- (a) nobody there ----------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_without_stdin_policy_denies_at_once(kernel: Kernel, wrapper: str) -> None:
    _prepare(kernel, CODE, DONE)
    outcome = kernel.run(wrapper + AGENT, notebook=True)
    assert outcome.status == "ok"
    assert outcome.prompts == []
    assert VIEW not in str(outcome.outputs), "no widget is made where nobody sees it"
    assert outcome.tool("python")["status"] == "denied"
    told = kernel.value(outputs())
    assert "--approval never" in told
    assert "%agent answer approve" in told


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_answers_given_beforehand(kernel: Kernel, wrapper: str) -> None:
    _prepare(kernel, CODE, OTHER, DONE)
    assert "approve, deny" in kernel.run("%agent answer approve deny").items[0]["text"]
    outcome = kernel.run(wrapper + AGENT)
    assert outcome.status == "ok"
    first, second = outcome.items_of("tool")
    assert (first["status"], second["status"]) == ("completed", "denied")
    assert "beforehand" in first["note"], "the transcript shows that it was given beforehand"
    assert kernel.value(f"{outputs()}[0]") == "42"


# -- (d) input() ---------------------------------------------------------------------------------

CONSOLE = {"allow_stdin": True}


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
@pytest.mark.parametrize(
    ("typed", "status", "told"),
    [
        ("y", "completed", "42"),
        ("n", "denied", "the person denied it"),
        ("n use numpy", "denied", "says: use numpy"),
        ("use numpy instead", "denied", "says: use numpy instead"),
        ("", "", ""),
    ],
)
def test_typed_answers(kernel: Kernel, wrapper: str, typed: str, status: str, told: str) -> None:
    _prepare(kernel, CODE, DONE)
    # Enter alone is no answer: it asks again.
    answers = [typed, "y"] if not typed else [typed]
    outcome = kernel.run(wrapper + AGENT, answers=answers, **CONSOLE)
    assert outcome.status == "ok", outcome.text
    assert len(outcome.prompts) == len(answers)
    assert outcome.tool("python")["status"] == (status or "completed")
    assert (told or "42") in kernel.value(f"{outputs()}[0]")


def test_a_console_question_shows_everything(kernel: Kernel) -> None:
    hidden = "Call('python', {'code': 'print(1)\\nprint(\"a\\u202eb\\x1b[2J\")'})"
    _prepare(kernel, hidden, DONE)
    outcome = kernel.run(AGENT, answers=["n"], **CONSOLE)
    shown = "".join(o["text"] for o in outcome.outputs if o.get("name") == "stderr")
    assert "python" in shown
    assert "print(1)" in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert "202E" in shown.upper()


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_stop_aborts_the_turn(kernel: Kernel, wrapper: str) -> None:
    _prepare(kernel, CODE, DONE)
    outcome = kernel.run(wrapper + AGENT, answers=["s"], **CONSOLE)
    assert outcome.status == "error"
    assert "stopped" in outcome.text
    assert kernel.value("_agent.status") == "aborted"
    assert kernel.value(f"len({outputs()})") == "1", "the call has an output all the same"


def test_always_holds_for_the_same_code_only(kernel: Kernel) -> None:
    _prepare(kernel, CODE, CODE, DONE, CODE, OTHER, DONE)
    assert len(kernel.run(AGENT, answers=["a"], **CONSOLE).prompts) == 1
    assert len(kernel.run(AGENT, answers=["n"], **CONSOLE).prompts) == 1, "other code is asked for"
    kernel.run("%agent reset")
    assert (
        kernel.value(f"len({AGENTS}['default'].session.conversation.store.session_grants)") == "0"
    )


# -- (b) the widget ------------------------------------------------------------------------------


class Page:
    """A front end that draws question widgets and clicks; it acts on messages as a page does."""

    def __init__(self, kernel: Kernel, *clicks: dict[str, Any], draws: bool = True) -> None:
        if draws and ipykernel.version_info[0] < 7:
            not_tested("clicks while a cell runs", "ipykernel 6 takes none")
        self._kernel, self._clicks, self._draws = kernel, list(clicks), draws
        self.drawn: list[str] = []
        self.states: dict[str, dict[str, Any]] = {}
        self.closed: list[str] = []

    def __call__(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open":
            self.states[content["comm_id"]] = content["data"].get("state", {})
        elif kind == "comm_close":
            self.closed.append(content["comm_id"])
        elif kind in ("display_data", "update_display_data") and VIEW in content["data"]:
            self._draw(content["data"][VIEW]["model_id"])

    def _draw(self, model: str) -> None:
        if model in self.drawn or "question_id" not in self.states[model]:
            return
        self.drawn.append(model)
        if self._draws:
            self._kernel.send_to_widget(model, {"type": "drawn"})
        if self._clicks:
            self.click(model, self._clicks.pop(0))

    def click(self, model: str, answer: dict[str, Any]) -> None:
        known = self.states[model]["question_id"]
        self._kernel.send_to_widget(model, {"type": "answer", "id": known, **answer})


NOTEBOOK = {"allow_stdin": True, "notebook": True}


def _click(decision: str, feedback: str = "") -> dict[str, Any]:
    return {"decision": decision, "feedback": feedback}


def test_a_click_arrives_while_the_cell_awaits(kernel: Kernel) -> None:
    _prepare(kernel, CODE, DONE)
    page = Page(kernel, _click("approve"))
    outcome = kernel.run(AGENT, on_message=page, **NOTEBOOK)
    assert outcome.status == "ok"
    assert outcome.prompts == [], "one door at a time"
    assert outcome.tool("python")["status"] == "completed"
    (state,) = [s for s in page.states.values() if "question_id" in s]
    assert state["tool"] == "python"
    assert "print(6 * 7)" in state["arguments"]
    choices = [choice["label"] for choice in state["choices"]]
    assert choices == [
        *("Approve", "Always in this cell", "Always for this session"),
        *("All such in this cell", "All such for this session", "Deny", "Stop"),
    ]
    # What stays is plain output: no widget, and its model is gone.
    assert VIEW not in str([o.get("data") for o in outcome.outputs])
    assert set(page.drawn) <= set(page.closed)


def test_deny_with_feedback_reaches_the_model(kernel: Kernel) -> None:
    _prepare(kernel, CODE, DONE)
    outcome = kernel.run(AGENT, on_message=Page(kernel, _click("deny", "not today")), **NOTEBOOK)
    assert outcome.tool("python")["status"] == "denied"
    assert "says: not today" in kernel.value(f"{outputs()}[0]")


def test_a_click_on_stop_ends_the_turn(kernel: Kernel) -> None:
    _prepare(kernel, CODE, DONE)
    outcome = kernel.run(AGENT, on_message=Page(kernel, _click("abort")), **NOTEBOOK)
    assert outcome.status == "error"
    assert kernel.value("_agent.status") == "aborted"


def test_a_click_on_always_asks_no_more(kernel: Kernel) -> None:
    _prepare(kernel, CODE, CODE, OTHER, DONE)
    page = Page(kernel, _click("approve_for_session"), _click("deny"))
    outcome = kernel.run(AGENT, on_message=page, **NOTEBOOK)
    assert [i["status"] for i in outcome.items_of("tool")] == ["completed", "completed", "denied"]
    assert len(page.drawn) == 2


def test_two_questions_may_be_answered_in_any_order(kernel: Kernel) -> None:
    _prepare(kernel, f"[{CODE}, {OTHER}]", DONE)
    asked: list[str] = []
    page = Page(kernel)

    def answer_backwards(message: dict[str, Any]) -> None:
        page(message)
        if len(page.drawn) == 2 and not asked:
            asked.extend(page.drawn)
            for model, decision in zip(reversed(page.drawn), ("approve", "deny"), strict=True):
                page.click(model, _click(decision))

    outcome = kernel.run(AGENT, on_message=answer_backwards, **NOTEBOOK)
    assert [i["status"] for i in outcome.items_of("tool")] == ["denied", "completed"]
    assert kernel.value(f"{outputs()}[1]") == "54", "outputs stand in the order of the calls"


def test_a_forged_answer_is_none(kernel: Kernel) -> None:
    """Output of a command, or of the model, cannot press Approve: it knows no question's id."""
    _prepare(kernel, CODE, DONE)
    page, forged = Page(kernel), []

    def forge(message: dict[str, Any]) -> None:
        page(message)
        if not page.drawn or forged:
            return
        (model,) = page.drawn
        known = page.states[model]["question_id"]
        assert len(known) > 16, "it cannot be guessed"
        for wrong in ("", "q1", known[:-1], known.upper() + "x"):
            forged.append(wrong)
            answer = {"type": "answer", "id": wrong, **_click("approve")}
            kernel.send_to_widget(model, answer)
            kernel.send_to_widget("0" * 32, {**answer, "id": known})
        kernel.send_to_widget(model, {"type": "answer", **_click("approve")})
        page.click(model, {"decision": "approve_for_project", "feedback": ""})  # not offered
        page.click(model, _click("deny", "not this"))

    outcome = kernel.run(AGENT, on_message=forge, **NOTEBOOK)
    assert outcome.tool("python")["status"] == "denied"
    assert "says: not this" in kernel.value(f"{outputs()}[0]")


def test_a_page_that_closes_a_question_takes_it_from_no_other(kernel: Kernel) -> None:
    _prepare(kernel, CODE, DONE)
    page, closed = Page(kernel), []

    def close_and_click(message: dict[str, Any]) -> None:
        page(message)
        if page.drawn and not closed:
            closed.extend(page.drawn)
            client = kernel.client
            content = {"comm_id": closed[0], "data": {}}
            client.shell_channel.send(client.session.msg("comm_close", content))
            page.click(closed[0], _click("approve"))

    outcome = kernel.run(AGENT, on_message=close_and_click, **NOTEBOOK)
    assert outcome.tool("python")["status"] == "completed"
    assert outcome.prompts == []
    assert set(page.drawn) <= set(page.closed), "and the others are told when it ends"


def test_of_the_answers_of_two_pages_the_first_counts(kernel: Kernel) -> None:
    _prepare(kernel, "Call('python', {'code': 'times = globals().get(\"times\", 0) + 1'})", DONE)
    page, other = Page(kernel), kernel.manager.blocking_client()
    other.start_channels()
    other.wait_for_ready(timeout=LIMIT)
    sent: list[str] = []

    def click_in_both(message: dict[str, Any]) -> None:
        page(message)
        if page.drawn and not sent:
            sent.extend(page.drawn)
            for _ in range(20):
                page.click(sent[0], _click("approve"))
                answer = {"type": "answer", "id": page.states[sent[0]]["question_id"]}
                data = {"method": "custom", "content": {**answer, "decision": "approve"}}
                content = {"comm_id": sent[0], "data": data}
                other.shell_channel.send(other.session.msg("comm_msg", content))

    kernel.run(AGENT, on_message=click_in_both, **NOTEBOOK)
    other.stop_channels()
    assert kernel.value("times") == "1"


def test_a_changed_text_is_what_runs(kernel: Kernel) -> None:
    _prepare(kernel, CODE, DONE)
    page = Page(kernel, {"decision": "approve", "feedback": "", "edited": "print(7 * 7)"})
    kernel.run(AGENT, on_message=page, **NOTEBOOK)
    (state,) = [s for s in page.states.values() if "question_id" in s]
    assert state["editable"] == "print(6 * 7)"
    told = kernel.value(f"{outputs()}[0]")
    assert "The person changed the code to: print(7 * 7)" in told
    assert "49" in told


def test_a_changed_text_can_be_typed_in(kernel: Kernel) -> None:
    _prepare(kernel, CODE, DONE)
    outcome = kernel.run(AGENT, answers=["edit", "print(7 * 7)"], **CONSOLE)
    assert len(outcome.prompts) == 2
    assert "49" in kernel.value(f"{outputs()}[0]")


def test_each_lasting_answer_says_what_it_covers(kernel: Kernel) -> None:
    _prepare(kernel, "Call('shell', {'command': ['git', 'add', 'x']})", DONE)
    page = Page(kernel, _click("deny"))
    kernel.run("%%agent --approval untrusted\nGo.\n", on_message=page, **NOTEBOOK)
    (state,) = [s for s in page.states.values() if "question_id" in s]
    covers = {c["decision"]: c["covers"] for c in state["choices"] if c["covers"]}
    lasting = ["approve_for_cell", "approve_for_session", "approve_for_project"]
    assert list(covers) == [*lasting, "approve_for_project_exact"]
    assert covers["approve_for_cell"].startswith("this very command, while its folder")
    assert covers["approve_for_project"].startswith("git add … (every command that begins so")


def test_many_questions_leave_the_page_usable(kernel: Kernel) -> None:
    calls = ", ".join(f"Call('shell', {{'command': ['touch', 'f{n}']}})" for n in range(200))
    _prepare(kernel, f"[{calls}]", DONE)
    page, most = Page(kernel), [0]

    def deny_as_they_come(message: dict[str, Any]) -> None:
        page(message)
        waiting = [model for model in page.drawn if model not in denied]
        most[0] = max(most[0], len(waiting))
        for model in waiting:
            denied.append(model)
            page.click(model, _click("deny"))

    denied: list[str] = []
    outcome = kernel.run(
        "%%agent --approval untrusted\nGo.\n", on_message=deny_as_they_come, **NOTEBOOK
    )
    assert outcome.status == "ok"
    assert most[0] <= 8
    assert len(page.drawn) <= 25 + 8
    assert "no more are asked in this turn" in kernel.value(f"{outputs()}[-1]")


@pytest.mark.parametrize("sign", ["drawn", "asked"])
def test_an_interrupt_closes_the_question(kernel: Kernel, sign: str) -> None:
    _prepare(kernel, CODE, CODE)
    page, pressed = Page(kernel, draws=sign == "drawn"), []

    def interrupt(message: dict[str, Any]) -> None:
        page(message)
        if page.drawn and not pressed:
            pressed.append(True)
            kernel.interrupt()

    outcome = kernel.run(AGENT, on_message=interrupt, **NOTEBOOK)
    assert outcome.error == "KeyboardInterrupt"
    assert set(page.drawn) <= set(page.closed)
    assert VIEW not in str([o.get("data") for o in outcome.outputs])


def test_a_blocking_cell_makes_no_widget(kernel: Kernel) -> None:
    """A click could not arrive there."""
    _prepare(kernel, CODE, DONE)
    page = Page(kernel, _click("approve"))
    outcome = kernel.run("%%time\n" + AGENT, answers=["y"], on_message=page, **NOTEBOOK)
    assert outcome.status == "ok"
    assert (len(outcome.prompts), page.drawn) == (1, [])


def test_a_page_that_draws_nothing_is_asked_by_input(kernel: Kernel) -> None:
    _prepare(kernel, CODE, OTHER, DONE)
    page, times = Page(kernel, draws=False), []

    def watch(message: dict[str, Any]) -> None:
        page(message)
        if page.drawn or message["msg_type"] == "input_request":
            date = str(message["header"]["date"])  # text where a server of Jupyter was imported
            times.append((message["msg_type"], datetime.fromisoformat(date)))

    outcome = kernel.run(AGENT, answers=["y", "y"], on_message=watch, **NOTEBOOK)
    assert outcome.status == "ok"
    prompts = [at for kind, at in times if kind == "input_request"]
    assert len(prompts) == 2
    waited = (prompts[0] - times[0][1]).total_seconds()  # as the kernel sent them
    assert waited > 2.5, "the widget has 3 s to be drawn"
    assert len(page.drawn) == 1, "the second time it is known"
    assert page.drawn == page.closed[:1], "the widget is closed before input() asks"


def test_answers_for_when_nobody_is_there(kernel: Kernel) -> None:
    queued = "tuple(get_ipython().magics_manager.registry['AgentMagics'].notebook.host.queued)"
    kernel.run("%load_ext agent_magics")
    asked = kernel.run("%agent answer --unattended approve", allow_stdin=True)
    assert "put to you" in asked.text
    assert kernel.value(queued) == "()"
    kernel.run("%agent answer --unattended deny")
    assert kernel.value(queued) == "('deny',)"
