"""``batch``: several calls in one, for models that make only one call at a time."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import ContentPart, InputText, join_parts, parts_of
from agent_magics.protocol.tools import ToolOutput

MOST_CALLS = 25
_LEAST_BUDGET = 500  # characters of one call's output, however many there are


@dataclass(frozen=True, slots=True)
class BatchCall:
    """One call of a batch."""

    tool: str
    arguments: dict[str, Any]


@tool(mutating=False, group=True)
async def batch(calls: list[BatchCall], *, ctx: ToolContext | None = None) -> ToolOutput:
    """Make up to 25 tool calls at once.

    Each is checked, approved and answered like a single call. Those that may run side by side do,
    the others run one after another in the order given. One that fails does not stop the rest.

    Args:
        calls: the calls: name of the tool and its arguments. No batch in a batch.
    """
    if ctx is None:
        raise RespondToModel("batch works inside a turn: by hand, call the functions themselves.")
    if not 0 < len(calls) <= MOST_CALLS:
        raise RespondToModel(f"calls: expected 1 to {MOST_CALLS} calls, got {len(calls)}.")
    budget = max(ctx.output_budget // len(calls), _LEAST_BUDGET)
    with _shared(ctx, budget):
        outputs = await _answered([_answer(call, ctx) for call in calls])
    done = sum(output.success for output in outputs)
    parts: list[ContentPart] = [InputText(f"{done} of {len(calls)} calls succeeded.")]
    for number, (call, output) in enumerate(zip(calls, outputs, strict=True), 1):
        outcome = "" if output.success else " failed"
        parts.append(InputText(f"\n\n[{number}] {call.tool}{outcome}:\n"))
        parts += parts_of(output.content)
    values = [each.text if each.value is None else each.value for each in outputs]
    return ToolOutput(join_parts(parts, ""), success=done > 0, value=values, is_fitted=True)


@contextmanager
def _shared(ctx: ToolContext, budget: int) -> Iterator[None]:
    """Cut outputs of the enclosed calls to `budget` characters."""
    ctx.turn.shares[ctx.call_id] = (budget, ctx.parent_call_id is None)
    try:
        yield
    finally:
        del ctx.turn.shares[ctx.call_id]


async def _answer(call: BatchCall, ctx: ToolContext) -> ToolOutput:
    if call.tool == ctx.name:
        return ToolOutput("Not run: a batch cannot stand in a batch.", success=False)
    if call.tool == "python" and ctx.is_from_code:  # it would block the main thread twice
        return ToolOutput("Not run: code that runs cannot run more code.", success=False)
    return await ctx.call(call.tool, call.arguments)


async def _answered(calls: Iterable[Coroutine[Any, Any, ToolOutput]]) -> list[ToolOutput]:
    """Wait for all calls; cancel the others where one of them ends the turn."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
