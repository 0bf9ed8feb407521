"""Our server's half of the protocol, before the SDK's client in one process."""

import asyncio
from types import SimpleNamespace

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, Implementation, InputRequiredResult

from agent_magics import Agent, tool
from agent_magics.serve import protocol
from agent_magics.serve.place import CallPlace
from agent_magics.serve.protocol import ToolServer, client_name

LIMIT = 90.0
done: list[int] = []


@tool
def act(n: int) -> str:
    """Do something."""
    done.append(n)
    return f"did {n}"


@tool(parallel=True)
def act_too(n: int) -> str:
    """Do something beside others."""
    return act(n)


async def unused(*_):
    raise AssertionError("the test itself drives the rounds")


def run(work):
    """Do `work(server, session)` with a client of 2026 whose person can be asked."""

    async def inner():
        with Agent(tools=[act, act_too], approval="untrusted") as agent:
            server = ToolServer(CallPlace(agent), ask_client=True)
            async with Client(server.server, elicitation_callback=unused) as client:
                try:
                    return await work(server, client.session)
                finally:
                    server.close()

    done.clear()
    return asyncio.run(asyncio.wait_for(inner(), LIMIT))


async def begin(session, n=1, name="act"):
    first = await session.call_tool(name, {"n": n}, allow_input_required=True)
    assert isinstance(first, InputRequiredResult)
    assert list(first.input_requests) == ["approve"]
    return first.request_state


async def answer(session, state, n=1, name="act", **result):
    result = ElicitResult(**(result or {"action": "accept", "content": {"approve": True}}))
    return await session.call_tool(
        name,
        {"n": n},
        input_responses={"approve": result},
        request_state=state,
        allow_input_required=True,
    )


def test_a_call_waits_between_two_requests_and_runs_once():
    async def work(server, session):
        state = await begin(session)
        assert done == []
        result = await answer(session, state)
        assert (result.content[0].text, done) == ("did 1", [1])
        with pytest.raises(MCPError, match="Nothing waits"):
            await answer(session, state)
        assert done == [1]

    run(work)


def test_an_answer_to_one_call_starts_no_other():
    async def work(server, session):
        state = await begin(session, 1)
        with pytest.raises(MCPError, match="another call"):
            await answer(session, state, 2)
        with pytest.raises(MCPError, match="Nothing waits"):
            await answer(session, "guessed", 1)
        assert done == []
        assert (await answer(session, state, 1)).content[0].text == "did 1"

    run(work)


def test_a_call_that_excludes_others_holds_them_up_until_it_is_answered():
    async def work(server, session):
        first = await begin(session, 1)
        second = asyncio.create_task(begin(session, 2))
        await answer(session, first, 1, action="decline")
        assert (await answer(session, await second, 2)).content[0].text == "did 2"
        assert done == [2]

    run(work)


def test_the_oldest_of_too_many_waiting_calls_is_given_up(monkeypatch):
    monkeypatch.setattr(protocol, "MOST_PARKED", 1)

    async def work(server, session):
        oldest = await begin(session, 1, "act_too")
        newest = await begin(session, 2, "act_too")
        with pytest.raises(MCPError, match="Nothing waits"):
            await answer(session, oldest, 1, "act_too")
        assert (await answer(session, newest, 2, "act_too")).content[0].text == "did 2"
        assert done == [2]

    run(work)


def test_an_answer_that_is_none_is_a_no():
    async def work(server, session):
        state = await begin(session)
        result = await session.call_tool(
            "act", {"n": 1}, request_state=state, allow_input_required=True
        )
        assert result.is_error
        assert done == []

    run(work)


@pytest.mark.parametrize(
    ("name", "version", "shown"),
    [
        ("inspector", "2.12", "inspector 2.12"),
        ("a\nb", "", "a b"),
        ("evil\u202e", "1", "evil⟨U+202E⟩ 1"),
    ],
)
def test_what_a_client_calls_itself_is_shown_in_one_line(name, version, shown):
    params = SimpleNamespace(client_info=Implementation(name=name, version=version))
    assert client_name(SimpleNamespace(client_params=params)) == shown


def test_a_client_without_a_name():
    long = Implementation(name="x" * 1_000, version="1")
    session = SimpleNamespace(client_params=SimpleNamespace(client_info=long))
    assert len(client_name(session)) < 150
    assert "does not say" in client_name(SimpleNamespace(client_params=None))
