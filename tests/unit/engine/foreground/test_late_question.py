"""A question that comes together with the end of its turn."""

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from agent_magics.engine.foreground.waiting import Foreground
from agent_magics.protocol.events import ApprovalRequested, QuestionResolved, TurnAborted
from agent_magics.protocol.ops import StartTurn

STAMP: dict[str, Any] = {"seq": 1, "at": 0.0, "turn_id": "t", "agent": "a"}
ASKED = ApprovalRequested(
    **STAMP, question_id="q", call_id="c", tool="x", target="y", arguments="", reason=""
)
CLOSED = QuestionResolved(**STAMP, question_id="q", decision="closed", by="engine")
ENDED = TurnAborted(**STAMP, reason="the time is over")


@pytest.mark.parametrize("events", [(ASKED, ENDED), (ASKED, CLOSED, ENDED)])
def test_whoever_is_asked_is_not_left_unheard(events: tuple[object, ...]) -> None:
    """A coroutine that nobody begins is a warning in the person's cell."""

    async def answer() -> None:
        await asyncio.Event().wait()

    def begin(_op: object, _turn_config: object, put: Any, _after: object) -> None:
        for event in events:
            put(event)

    async def run() -> None:
        session: Any = SimpleNamespace(begin=begin)
        host: Any = SimpleNamespace(answer=lambda _: answer())
        turn_config: Any = SimpleNamespace(secrets=())
        await Foreground(session, host).wait(StartTurn(turn_id="t", content="hi"), turn_config)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(run())
        gc.collect()
    assert [str(each.message) for each in told] == []
