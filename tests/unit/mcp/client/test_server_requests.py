"""What a server asks of the person and of the model is bounded."""

import asyncio

import mcp_types as types
import pytest

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client.calls import Calls, _current, _RunningCall
from agent_magics.protocol.mcp import ElicitationAnswer, McpServerConfig
from agent_magics.time_limit import CancellingLimit
from tests.support.mcp.links import Callbacks

LONG = "x" * 2_000_000


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def form(message="m", **properties):
    schema = {"type": "object", "properties": properties}
    return types.ElicitRequestFormParams(message=message, requested_schema=schema)


def during_call(act):
    """Run `act(calls)` while a call is under way; return its answer, the callbacks and the log."""
    callbacks = Callbacks(ElicitationAnswer("accept", {}), "words")
    log = LogRing(str)

    async def main():
        calls = Calls(McpServerConfig("s", command="x"), (), log)
        call = _RunningCall(callbacks)
        calls._open.append(call)
        _current.set(call)
        async with CancellingLimit(60) as call.clock:
            return await act(calls)

    return asyncio.run(main()), callbacks, log.text()


@pytest.mark.parametrize(
    "params",
    [
        form(LONG),
        form(a={"type": "string", "title": LONG}),
        form(a={"type": "string", "enum": [LONG]}),
        form(a={"type": "string", "default": LONG}),
        form(**{LONG: {"type": "string"}}),
        form(**{f"f{n}": {"type": "string", "enum": ["x" * 500] * 500} for n in range(50)}),
        form(a=nested(100)),
        types.ElicitRequestURLParams(message="m", url=f"https://a.b/{LONG}", elicitation_id="1"),
        types.ElicitRequestURLParams(message=LONG, url="https://a.b/", elicitation_id="1"),
    ],
)
def test_a_question_that_is_too_large_is_declined_and_not_put(params):
    answer, callbacks, log = during_call(lambda calls: calls.elicit(None, params))
    assert answer.action == "decline"
    assert not callbacks.asked
    assert "declined, too long or too deep" in log


def test_an_ordinary_question_is_put():
    answer, callbacks, _ = during_call(lambda calls: calls.elicit(None, form(a={"type": "string"})))
    assert answer.action == "accept"
    assert len(callbacks.asked) == 1


@pytest.mark.parametrize(("text", "system"), [(LONG, "s"), ("m", LONG), ("m", "s")])
def test_a_request_to_the_model_is_bounded(text, system):
    content = types.TextContent(type="text", text=text)
    params = types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=content)],
        system_prompt=system,
        max_tokens=5,
    )
    answer, callbacks, log = during_call(lambda calls: calls.sample(None, params))
    is_long = LONG in (text, system)
    assert isinstance(answer, types.ErrorData) == is_long
    assert bool(callbacks.sampled) == (not is_long)
    assert ("it is too long" in log) == is_long
