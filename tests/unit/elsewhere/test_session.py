"""Sub-agents in the processes of an executor."""

import json
import multiprocessing
import os
import signal
import socket
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Literal

import pytest

from agent_magics import Agent, tool
from agent_magics._version import __version__
from agent_magics.dispatch.turn import AgentBudget
from agent_magics.elsewhere import session
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import ApprovalRequested, ToolCallCompleted
from agent_magics.records.places import rollout_folder
from agent_magics.rows.engines.link import MOST_OF_WORKER
from tests.support.models.responses_server import Reply, ResponsesServer, function_call
from tests.support.rows.echo import Echo
from tests.support.rows.watchers import wait_until
from tests.support.turns import PATIENCE, of_kind

KEY = "sk-canary-4711-never-shown"
SPAWN = multiprocessing.get_context("spawn")
HOOKS = type("Hooks", (), {"on_event": lambda self, event: None})


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        yield pool


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as threads:
        yield threads


@tool
def who() -> int:
    """Tell which process this is."""
    return os.getpid()


def agent_for(server, *tools, **given):
    given = {"approval": "never", "wire_api": "responses", **given}
    return Agent("gpt-4o-mini", [*tools], base_url=server.base_url, api_key=KEY, **given)


def calls(name, **arguments):
    return Reply([function_call(name, arguments)])


@pytest.mark.soak
def test_it_works_there_with_its_tools_and_its_question_is_answered_here(pool, tmp_path):
    asked = []

    def on_question(question):
        asked.append(question)
        return "approve"

    given = {"approval": "untrusted", "on_question": on_question, "cwd": tmp_path}
    with (
        ResponsesServer([calls("who"), calls("shell", command=["pwd"]), "7"]) as server,
        agent_for(server, who, "shell", **given) as agent,
    ):
        done = agent.spawn("Work.", "worker", engine=pool, output=int)
        result = done.result(PATIENCE)
        spent = agent.session.conversation.spending
        record = next(rollout_folder().rglob(f"{done.conversation_id}*")).read_text()
        said = [request.headers["authorization"] for request in server.requests]
    assert (result.status, result.value) == ("completed", 7), result.error
    assert result.calls[0].output == str(pool.submit(os.getpid).result()) != str(os.getpid())
    assert str(tmp_path) in result.calls[1].output
    assert isinstance(asked[0], ApprovalRequested)
    assert asked[0].reason.startswith("default/worker-1 asks: ")
    assert len(of_kind(result, ToolCallCompleted)) == 2
    # All its requests count here, and its record is here, too.
    assert (spent.requests, spent.usage.input_tokens) == (3, 30)
    assert spent.cost == pytest.approx(result.cost)
    assert '"ItemAdded"' in record and record.count('"RequestCharged"') == 3
    assert {*said} == {f"Bearer {KEY}"} and KEY not in record


def test_what_a_tool_tells_there_of_the_login_of_the_server_is_hidden(threads):
    login = "a-long-password"

    @tool
    def tell() -> str:
        """Tell it."""
        return f"It is {login}."

    with ResponsesServer([calls("tell"), "Done."]) as server:
        address = server.base_url.replace("//", f"//me:{login}@")
        with Agent("gpt-4o-mini", [tell], base_url=address, approval="never") as agent:
            result = agent.spawn("Work.", "worker", engine=threads).result(PATIENCE)
    assert (result.text, result.calls[0].output) == ("Done.", "It is [redacted].")
    assert login not in str(server.requests[-1].body)


def test_what_is_denied_does_not_happen_there(threads):
    with (
        ResponsesServer([calls("who"), "Not done."]) as server,
        agent_for(server, who, approval="untrusted", on_question=lambda _: "deny") as agent,
    ):
        result = agent.spawn("Work.", "worker", engine=threads).result(PATIENCE)
    assert (result.text, result.calls[0].success) == ("Not done.", False)


def test_stop_ends_it_there(pool):
    held = Reply("Late.", pause_after=1)
    with ResponsesServer([held]) as server, agent_for(server) as agent:
        child = agent.spawn("Work.", engine=pool)
        begun = agent.sub_agents.agents[child.name]
        wait_until(lambda: server.requests)
        child.close()
        result = child.result(PATIENCE)
        assert server.dropped.wait(PATIENCE)
        # Both are free again: the place here, and the process there.
        assert agent.sub_agents._places._value == 4 and begun.status == "stopped"
        assert pool.submit(os.getpid).result(PATIENCE)
    assert (result.status, result.error) == ("aborted", "closed by the program")


def test_one_that_waits_for_a_worker_can_be_stopped(threads):
    free = threading.Event()
    threads.submit(free.wait, PATIENCE)
    with ResponsesServer(["Never."]) as server, agent_for(server) as agent:
        child = agent.spawn("Work.", engine=threads)
        child.close()
        assert child.result(PATIENCE).status in ("aborted", "failed")
        free.set()
        assert threads.submit(int).result(PATIENCE) == 0
        assert not server.requests


def test_a_pool_that_is_shut_down_while_one_waits_is_its_failure():
    threads, free = ThreadPoolExecutor(1), threading.Event()
    threads.submit(free.wait, PATIENCE)
    with ResponsesServer(["Never."]) as server, agent_for(server) as agent:
        child = agent.spawn("Work.", engine=threads)
        wait_until(lambda: threads._work_queue.qsize())
        threads.shutdown(wait=False, cancel_futures=True)
        result = child.result(PATIENCE)
    free.set()
    threads.shutdown()
    assert result.status == "failed" and "its tasks were cancelled" in result.error


def test_one_that_waits_for_a_worker_gets_what_it_was_told_meanwhile(threads):
    free = threading.Event()
    threads.submit(free.wait, PATIENCE)
    with ResponsesServer(["One.", "Two."]) as server, agent_for(server) as agent:
        child = agent.spawn("Work.", engine=threads)
        begun = agent.sub_agents.agents[child.name]
        wait_until(lambda: begun.status == "running")
        agent.session.engine.post(begun.add, "Use 2024.")
        agent.session.engine.post(free.set)
        assert child.result(PATIENCE).text == "Two."
        assert begun.unread == []
        assert "Use 2024." in json.dumps(server.requests[1].body)


@pytest.mark.soak
def test_a_killed_worker_is_its_failure_and_frees_its_place():
    held = Reply("Late.", pause_after=1)
    with (
        ProcessPoolExecutor(1, mp_context=SPAWN) as mortal,
        ResponsesServer([held, "Here."]) as server,
        agent_for(server) as agent,
    ):
        child = agent.spawn("Work.", engine=mortal)
        wait_until(lambda: server.requests)
        os.kill(min(mortal._processes), signal.SIGKILL)
        result = child.result(PATIENCE)
        assert result.status == "failed" and "The worker it was in has ended" in result.error
        assert agent.sub_agents._places._value == 4
        again = agent.spawn("Work.", engine=mortal).result(PATIENCE)
        assert "No worker of engine= has taken it" in again.error or "cannot ask" in again.error
        assert agent.spawn("Work here.").result(PATIENCE).text == "Here."


def test_its_budget_holds_there(threads):
    with ResponsesServer([calls("who")]) as server, agent_for(server, who) as agent:
        budget = AgentBudget(requests=3)
        result = agent.spawn("Work.", "worker", engine=threads, budget=budget).result(PATIENCE)
        assert (len(server.requests), result.budget) == (3, "max_turns=3")


def locked():
    """Return a tool that holds what cannot be sent."""
    lock = threading.Lock()

    def take() -> bool:
        """Take it."""
        return lock.acquire()

    return take


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tools", "settings", "spawn", "words"),
    [
        ([locked()], {}, {}, "The tool take cannot be sent to a worker"),
        (["inspect_variables"], {}, {"tools": ["inspect_variables"]}, "stays here"),
        ([], {}, {"share": ["@r1"]}, "a worker cannot read them"),
        ([], {}, {"share": ["kernel"]}, "Only a turn can give"),
        ([], {"hooks": [HOOKS()]}, {}, "the agent's hooks"),
    ],
    ids=["lock", "live", "result", "kernel", "hooks"],
)
def test_what_stays_here_is_refused_in_one_sentence(threads, tools, settings, spawn, words):
    with (
        ResponsesServer(["Never."]) as server,
        agent_for(server, *tools, **settings) as agent,
        pytest.raises(FatalError, match=words),
    ):
        agent.spawn("Work.", "worker", engine=threads, **spawn)


@pytest.mark.parametrize("kind", ["fork", "none", "model"])
def test_what_is_no_engine_is_refused(kind, threads):
    fork = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    given, words = {
        "fork": (fork, "forks its processes"),
        "none": (3, "engine=3: it takes"),
        "model": (threads, "a model object is in this process only"),
    }[kind]
    with ResponsesServer(["Never."]) as server:
        agent = Agent(Echo()) if kind == "model" else agent_for(server)
        with agent, pytest.raises(FatalError, match=words):
            agent.spawn("Work.", engine=given)


def test_a_folder_that_is_not_there_is_its_failure(threads, tmp_path):
    gone, free = tmp_path / "gone", threading.Event()
    gone.mkdir()
    threads.submit(free.wait, PATIENCE)
    with ResponsesServer(["Never."]) as server, agent_for(server, cwd=gone) as agent:
        child = agent.spawn("Work.", engine=threads)
        gone.rmdir()
        free.set()
        assert "has no folder" in child.result(PATIENCE).error and not server.requests


def test_a_worker_that_does_not_answer_is_let_go(pool, monkeypatch):
    monkeypatch.setattr(session, "STOPPING", 0.01)
    held = Reply("Late.", pause_after=1)
    with ResponsesServer([held]) as server, agent_for(server) as agent:
        child = agent.spawn("Work.", engine=pool)
        wait_until(lambda: server.requests)
        worker = min(pool._processes)
        os.kill(worker, signal.SIGSTOP)
        try:
            child.close()
            result = child.result(PATIENCE)
        finally:
            os.kill(worker, signal.SIGCONT)
        # It finds that the kernel does not want it any more.
        assert server.dropped.wait(PATIENCE)
    assert (result.status, result.error) == ("aborted", "closed by the program")


def event(kind, **given):
    return {"type": kind, "seq": 1, "at": 0.0, "turn_id": "", "agent": "", **given}


def charged(**usage):
    given = {"type": "Usage", **usage}
    return ["happened", [{"type": "RequestCharged", "model": "gpt-4o-mini", "usage": given}]]


def asking(number, **given):
    words = dict.fromkeys(("question_id", "call_id", "tool", "target", "arguments", "reason"), "x")
    return ["ask", number, event("ApprovalRequested", **{**words, **given})]


WORK = event("MainThreadWork", question_id="q", call_id="c", work="python", name="evil")
# What no worker of ours sends: bytes are sent as they are, and each part of a tuple.
BROKEN = {
    "spending below nothing": charged(input_tokens=-1_000_000),
    "spending that is text": charged(input_tokens="ten"),
    "spending without end": charged(input_tokens=10**400),
    "a cost that is no number": charged(reported_cost=float("nan")),
    "an answer that is a number": ["happened", [event("TurnCompleted", text=5)]],
    "the beginning of a record": [
        "happened",
        [{"type": "RecordBegun", "conversation": "x", "agent": "x", "settings": {"cwd": "/"}}],
    ],
    "an operation as event": ["happened", [{"type": "Interrupt", "turn_id": "x"}]],
    "an item that is text": ["happened", [{"type": "ItemAdded", "item": "x"}]],
    "a question as event": ["happened", [asking(1)[2]]],
    "work for the main thread": ["ask", 1, WORK],
    "a question with a list for text": asking(1, target=["x"]),
    "two questions of one number": (asking(1), asking(1)),
    "more questions than a turn has": tuple(map(asking, range(session.MOST_OPEN + 1))),
    "more than a message may have": b"x" * (MOST_OF_WORKER + 1),
    "a list of nothing": [],
    "an object": {"a": 1},
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "nested without end": b"[" * 100_000,
    "a huge number": b"[" + b"9" * 5000 + b"]",
    "an unknown word": ["evil", 1],
    "events that are no list": ["happened", 5],
    "an event of no type": ["happened", [{"type": "Nothing"}]],
    "an event with other fields": ["happened", [{"type": "TurnCompleted", "x": 1}]],
    "a question that is text": ["ask", 1, "x"],
    "a question without fields": ["ask", 1, {"type": "ApprovalRequested"}],
    "a question that has no number": ["withdraw", [1]],
    "a long sentence": ["failed", "x\n" * 100_000],
    "half a lone letter": ["failed", "\ud800"],
}


def saying(*said):
    """Return a worker that connects and says this."""

    def attend(invitation, given, tls=None):
        with socket.socket(socket.AF_UNIX) as link, link.makefile("rb") as coming:
            link.connect(invitation.place)
            link.sendall(framed(["hello", invitation.token, 1, __version__]))
            coming.read(int.from_bytes(coming.read(4), "big"))
            with suppress(OSError):  # it is let go before all was sent
                link.sendall(b"".join(map(framed, said)))
                coming.read()  # until it is let go
        return ""

    return attend


@pytest.mark.parametrize("said", BROKEN.values(), ids=BROKEN)
def test_a_worker_that_says_what_is_no_message_is_its_failure(threads, monkeypatch, said):
    """The next one gets a worker: the first is let go."""
    with ResponsesServer(["Fine."]) as server, agent_for(server) as agent:
        with monkeypatch.context() as replaced:
            attend = saying(*said) if isinstance(said, tuple) else saying(said)
            replaced.setattr(session, "attend", attend)
            result = agent.spawn("Work.", engine=threads).result(PATIENCE)
        assert result.status == "failed" and "\n" not in result.error[:3000] == result.error
        assert agent.session.conversation.spending.usage.input_tokens == 0
        assert agent.spawn("Work.", engine=threads).result(PATIENCE).text == "Fine."


def test_questions_that_are_taken_back_at_once_hold_no_place(threads, monkeypatch):
    pairs = ((asking(number), ["withdraw", number]) for number in range(session.MOST_OPEN + 1))
    monkeypatch.setattr(session, "attend", saying(*chain(*pairs), ["failed", "enough"]))
    with ResponsesServer([]) as server, agent_for(server) as agent:
        assert agent.spawn("Work.", engine=threads).result(PATIENCE).error == "enough"


def framed(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return len(data).to_bytes(4, "big") + data


def test_it_goes_on_here_from_its_record(threads):
    def answer(body):
        prompts = [text_in(item) for item in body["input"] if item.get("role") == "user"]
        if prompts[0].startswith("Task of default/explore-1"):
            asked.append(prompts)
            return f"Answer {len(asked)}."
        if len(body["input"]) > 1:
            return "It goes on."
        return calls("send_input", id="explore-1", message="And then?")

    asked = []
    with ResponsesServer(answer) as server, agent_for(server, "coding") as agent:
        assert agent.spawn("Work.", engine=threads).result(PATIENCE).text == "Answer 1."
        assert agent.run_sync("Go.").text == "It goes on."
        child = agent.sub_agents.agents["explore-1"]
        wait_until(lambda: child.is_over)
    assert child.text == "Answer 2." and "And then?" in asked[1][-1]
    assert asked[1][0] == asked[0][0]


def text_in(item):
    content = item["content"]
    return content if isinstance(content, str) else content[0]["text"]


def test_a_question_that_nobody_can_answer_is_an_error_there(threads):
    def fail(question):
        raise ZeroDivisionError("oh")

    given = {"approval": "untrusted", "on_question": fail}
    with (
        ResponsesServer([calls("who"), "Never."]) as server,
        agent_for(server, who, **given) as agent,
    ):
        result = agent.spawn("Work.", "worker", engine=threads).result(PATIENCE)
    assert (result.status, result.error) == ("failed", "ZeroDivisionError: oh")


@pytest.mark.soak
def test_what_annotations_name_as_texts_is_known_there(pool):
    def double(how: "Literal['up', 'down']", n: "int") -> "int":
        """Double it."""
        return 2 * n

    script = [calls("double", how="up", n=21), "Done."]
    with ResponsesServer(script) as server, agent_for(server, double) as agent:
        result = agent.spawn("Work.", "worker", engine=pool).result(PATIENCE)
    assert (result.text, result.calls[0].output) == ("Done.", "42"), result.error
