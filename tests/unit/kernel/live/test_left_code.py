"""Code of a model that is left behind as it awaits: the next one can run."""

import asyncio
from contextvars import copy_context
from typing import Any

import pytest

from agent_magics.kernel.live.namespace import LiveNamespace
from agent_magics.protocol.tools import ToolOutput


def test_code_that_is_left_in_its_task_does_not_keep_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its coroutine is closed by whoever drops it, in another context than the task's."""

    async def waits(*_: object) -> ToolOutput:
        await asyncio.sleep(0)
        return ToolOutput("done")

    monkeypatch.setattr(LiveNamespace, "_run", waits)
    context: Any = None
    live = LiveNamespace(shell=None)
    left = live.run("await something", context)
    copy_context().run(left.send, None)
    left.close()
    assert asyncio.run(live.run("1", context)) == ToolOutput("done")
