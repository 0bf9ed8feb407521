"""``python``: runs code in the person's own kernel, where the data is, or beside it in scratch."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from agent_magics.dispatch.actions import Action, ActionKind
from agent_magics.dispatch.context import LiveResult, ToolContext
from agent_magics.dispatch.function import CLEAN_UP_LIMIT
from agent_magics.dispatch.handles import is_handle
from agent_magics.dispatch.output import cut_text
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.references import refer
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import ContentPart, InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.confined import current_tier
from agent_magics.tools.scratch import pack, run_in_scratch

# Milliseconds: how long scratch code may run where the call does not say, and at most.
_TIMEOUT, _LONGEST_TIMEOUT = 60_000, 3_600_000
_NO_VARIABLES = "[This ran in scratch: pass variables of the notebook with values.]"


def _assess(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    code = arguments["code"]
    place = _place(arguments.get("where"), ctx)
    digest = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
    kind, reason = _risk(place, ctx)
    # "Always" binds to this very code, never to the tool: the kernel is not sandboxed.
    fingerprint = f"python:{digest}" if place == "live" else f"python:{kind.name}:{digest}"
    return [Action(kind, _first_line(code), reason, fingerprint, permission="tool")]


def _place(where: str | None, ctx: ToolContext) -> str:
    """Return where code runs.

    Raises:
        RespondToModel: it may not run there.
    """
    policy = ctx.config.python
    if policy == "off":
        raise RespondToModel("python is switched off here (AgentMagics.python = 'off').")
    if policy == "scratch" and where == "live":
        raise RespondToModel(
            "where=\"live\" is switched off here (AgentMagics.python = 'scratch'): leave where "
            "out, and pass what the code needs with values."
        )
    return where or policy


def _risk(place: str, ctx: ToolContext) -> tuple[ActionKind, str]:
    if place == "live":
        return ActionKind.LIVE_PYTHON, "it runs in your kernel, which is not sandboxed"
    if ctx.config.sandbox is SandboxPolicy.DANGER_FULL_ACCESS:
        return ActionKind.COMMAND_FULL_ACCESS, ""
    if not current_tier():
        return ActionKind.COMMAND_UNSANDBOXED, "no sandbox is available here"
    return ActionKind.SCRATCH_PYTHON, "it runs in a process of its own, in the sandbox"


@tool(assess=_assess)
async def python(
    code: str,
    where: Literal["live", "scratch"] | None = None,
    values: list[str] | None = None,
    timeout_ms: int = _TIMEOUT,
    *,
    ctx: ToolContext | None = None,
) -> ToolOutput:
    """Run Python code in the person's notebook kernel, or in a scratch process.

    In the kernel ("live") the code sees and changes the notebook's variables, and what it defines
    stays there. What it prints, the value of its last expression, and figures come back. Top-level
    await and IPython magics work.

    Args:
        code: the code of one cell.
        where: "live" is the person's own kernel; "scratch" a sandboxed process with variables of
            its own, kept from call to call, without the notebook's variables and tools. If not
            given, as the person has set it.
        values: with "scratch", variables of the notebook or kept results (@r7, there _r7) to copy
            there first.
        timeout_ms: with "scratch", milliseconds until the code is stopped.
    """
    if ctx is None:
        raise RespondToModel("python runs code for an agent; by hand, write it into a cell.")
    place = _place(where, ctx)
    if place == "scratch":
        ctx.update(metadata={"where": place})  # the call's headline says so
    run = _run_live(code, values, ctx) if place == "live" else None
    return _as_output(await (run or _run_scratch(code, values or [], timeout_ms, ctx)), ctx)


async def _run_live(code: str, values: Sequence[str] | None, ctx: ToolContext) -> LiveResult:
    kernel, main_thread = ctx.turn.live_kernel, ctx.turn.main_thread
    if kernel is None or main_thread is None:
        raise RespondToModel(
            'python needs a notebook kernel, and this agent runs outside one; pass where="scratch".'
        )
    if values:
        raise RespondToModel('values goes with where="scratch"; live code has the variables.')
    run = partial(kernel.run, code, ctx)
    async with _noting_changes(ctx):
        result: LiveResult = await main_thread("python", ctx.call_id, ctx.name, run)
    return result


@asynccontextmanager
async def _noting_changes(ctx: ToolContext) -> AsyncIterator[None]:
    """Note what the code inside changes in files of the workspace."""
    if ctx.diff_tracker is None:
        yield
        return
    # Threads look, since the loop serves all turns.
    watch = await asyncio.wrap_future(POOL.submit(ctx.diff_tracker.watch))
    try:
        yield
    finally:
        await asyncio.wrap_future(POOL.submit(watch.finish))


async def _run_scratch(
    code: str, names: Sequence[str], timeout_ms: int, ctx: ToolContext
) -> LiveResult:
    if not 1 <= timeout_ms <= _LONGEST_TIMEOUT:
        raise RespondToModel(f"timeout_ms={timeout_ms} is not from 1 to {_LONGEST_TIMEOUT}.")
    values: dict[str, bytes] = {}
    if names:
        work = partial(pack, names, partial(_value_named, ctx))
        main_thread = ctx.turn.main_thread
        # A variable belongs to the main thread; where nobody waits there, none is shared either.
        values = (
            work()
            if main_thread is None
            else await main_thread("sync", ctx.call_id, ctx.name, work)
        )
    if ctx.turn.live_kernel is not None:
        ctx.turn.live_kernel.keep_code(code, ctx.session_id, names)
    run = POOL.submit(run_in_scratch, code, values, timeout_ms / 1000, ctx)
    running = asyncio.wrap_future(run)
    try:
        result = await asyncio.shield(running)
    except asyncio.CancelledError:
        ctx.cancel()
        running.add_done_callback(_forget)
        await asyncio.wait([running], timeout=CLEAN_UP_LIMIT)
        raise
    if "\nNameError: " in result.error:
        return replace(result, notes=(*result.notes, _NO_VARIABLES))
    return result


def _forget(running: "asyncio.Future[LiveResult]") -> None:
    """Look at the outcome of what nobody waits for, so that asyncio does not complain."""
    if not running.cancelled():
        running.exception()


def _value_named(ctx: ToolContext, name: str) -> Any:
    if is_handle(name):
        return ctx.handles.value_of(name)
    kernel = ctx.turn.live_kernel
    if kernel is None or name not in kernel.namespace:
        raise RespondToModel(
            f"values: there is no variable {name}; give names, such as df, not expressions."
        )
    return kernel.namespace[name]


def _as_output(result: LiveResult, ctx: ToolContext) -> ToolOutput:
    whole = result.output
    if result.error:
        whole = f"{whole.rstrip()}\n{result.error}".lstrip()
    shown, left_out = cut_text(whole or "(no output)", ctx.output_budget)
    notes = [refer(whole, ctx, was_cut=True)] if left_out else []
    text = (
        "\n".join([shown.rstrip("\n"), *notes, *result.notes]) if notes or result.notes else shown
    )
    content: str | tuple[ContentPart, ...] = text
    if result.images:
        content = (InputText(text), *(InputImage(image) for image in result.images))
    return ToolOutput(content, success=not result.error, details={"output": shown})


def _first_line(code: str) -> str:
    lines = [line for line in code.strip().splitlines() if line.strip()]
    more = f" ... ({len(lines)} lines)" if len(lines) > 1 else ""
    return (lines[0] if lines else "(empty)") + more
