"""Calls that the model takes long to write are told of while they come."""

import time
from typing import Any

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.engine import arriving
from agent_magics.models.base import CallChunk
from agent_magics.protocol.events import ToolCallArriving
from tests.support.turns import of_kind

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Update File: src/b.py\n@@\n"


@pytest.mark.parametrize(
    ("pieces", "file"),
    [
        ([PATCH], "src/b.py"),
        (list(PATCH), "src/b.py"),
        (['{"patch": "*** Add File: new.py', "\\n+x"], "new.py"),
        (['{"path": "a ', 'b.txt", "content": "', "é" * 50], "a b.txt"),
        (['{"command": ["ls"]}'], ""),
    ],
)
def test_it_is_told_by_name_size_and_file(
    pieces: list[str], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "INTERVAL", 0.0)

    class Writing(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            for piece in pieces:
                yield CallChunk("apply_patch", piece)
            async for event in super().stream(request):
                yield event

    told = of_kind(Agent(Writing(["Done."]), []).run_sync("Go"), ToolCallArriving)
    assert [event.name for event in told] == ["apply_patch"] * len(pieces)
    assert told[-1].size == len("".join(pieces).encode())
    assert told[-1].file == file


def test_a_call_that_comes_at_once_is_not_told() -> None:
    class Quick(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            yield CallChunk("shell", "{}")
            async for event in super().stream(request):
                yield event

    began = time.monotonic()
    result = Agent(Quick(["Done."]), []).run_sync("Go")
    assert time.monotonic() - began > arriving.INTERVAL or not of_kind(result, ToolCallArriving)
