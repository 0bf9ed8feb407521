"""``python``: runs code in the person's own kernel, where the data is, or beside it in scratch."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext, status_of
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.results.cutting import cut_text
from agent_magics.dispatch.results.stored import is_handle
from agent_magics.dispatch.stages.attempt import CLEAN_UP_LIMIT, limited, run_off_loop
from agent_magics.dispatch.stages.stored_outputs import refer
from agent_magics.dispatch.tool import tool
from agent_magics.dispatch.turn import LiveResult
from agent_magics.exec.launcher_client import current_tier
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import ContentPart, InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.code.scratch import pack, run_in_scratch
from agent_magics.tools.commands.confinement import rights_of

# Milliseconds: how long scratch code may run where the call does not say; and any code, at most.
_TIMEOUT, _LONGEST_TIMEOUT = 60_000, 3_600_000
_LIVE_TIMEOUT = 600_000  # the same for live code, which may train a model
_NO_VARIABLES = "[This ran in scratch: pass variables of the notebook with values.]"


def _assess(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    code = arguments["code"]
    place = _place(arguments.get("where"), ctx)
    digest = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
    kind, reason = _risk(place, ctx)
    if place == "scratch":  # it may read all that the sandbox leaves open
        status_of(ctx).note_reads(str(ctx.cwd))
    # "Always" binds to this very code, never to the tool: the kernel is not sandboxed.
    fingerprint, family = f"python:{digest}", "python"
    if place != "live":  # what the settings let the sandbox do belongs to the answer
        fingerprint = fingerprint_of("python", kind.name, digest, rights_of(ctx))
        family = f"python@{fingerprint_of('python', rights_of(ctx))}"
    first = _first_line(code)
    return [Action(kind, first, reason, fingerprint, permission="tool", family=family)]


def _place(where: str | None, ctx: ToolContext) -> str:
    """Return where code runs: "live" or "scratch".

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
    timeout_ms: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> ToolOutput:
    """Run Python code in the person's notebook kernel, or in a scratch process.

    In the kernel ("live") the code sees and changes the notebook's variables, and what it defines
    stays there. What it prints, the value of its last expression, and figures come back. Top-level
    await and IPython magics work.

    Args:
        where: "scratch" is a sandboxed process with variables of its own, kept from call to call,
            without the notebook's variables and tools; else as the person has set it.
        values: variables of the notebook or kept results (@r7, there _r7) to copy to scratch first.
        timeout_ms: else 600000 in the kernel, 60000 in scratch.
    """
    if ctx is None:
        raise RespondToModel("python runs code for an agent; by hand, write it into a cell.")
    place = _place(where, ctx)
    if place == "scratch":
        ctx.update(metadata={"where": place})  # the call's headline says so
    if timeout_ms is None:
        timeout_ms = _LIVE_TIMEOUT if place == "live" else _TIMEOUT
    if not 1 <= timeout_ms <= _LONGEST_TIMEOUT:
        raise RespondToModel(f"timeout_ms={timeout_ms} is not from 1 to {_LONGEST_TIMEOUT}.")
    run = _run_live if place == "live" else _run_scratch
    return _as_output(await run(code, values or [], timeout_ms, ctx), ctx)


async def _run_live(
    code: str, values: Sequence[str], timeout_ms: int, ctx: ToolContext
) -> LiveResult:
    kernel, main_thread = ctx.turn.live_kernel, ctx.turn.main_thread
    if kernel is None or main_thread is None:
        raise RespondToModel(
            'python needs a notebook kernel, and this agent runs outside one; pass where="scratch".'
        )
    if values:
        raise RespondToModel('values goes with where="scratch"; live code has the variables.')
    stopped: Future[LiveResult] = Future()

    async def run() -> LiveResult:
        result = await kernel.run(code, ctx)
        stopped.set_result(result)
        return result

    async with _noting_changes(ctx):
        try:
            async with limited(ctx, timeout_ms / 1000):
                result: LiveResult = await main_thread("python", ctx.call_id, ctx.name, run)
        except TimeoutError:
            result = await _stopped(stopped, timeout_ms)
    return result


async def _stopped(result: "Future[LiveResult]", timeout_ms: int) -> LiveResult:
    """Interrupt live code that exceeded its time limit and return its result once it has stopped.

    Raises:
        RespondToModel: it does not stop.
    """
    ending = asyncio.wrap_future(result)
    await asyncio.wait([ending], timeout=CLEAN_UP_LIMIT)
    seconds = f"{timeout_ms / 1000:g} s (timeout_ms)"
    if not ending.done():
        raise RespondToModel(
            f"The code took longer than {seconds}. It was told to stop and goes on, in code that "
            "Python cannot interrupt or that catches every error; the kernel is busy until it "
            "returns, or is restarted."
        )
    return replace(ending.result(), error=f"Stopped: it took longer than {seconds}.")


@asynccontextmanager
async def _noting_changes(ctx: ToolContext) -> AsyncIterator[None]:
    """Record the changes that the enclosed code makes in files of the workspace."""
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
    values: dict[str, bytes] = {}
    if names:
        work = partial(pack, names, partial(_value_named, ctx))
        main_thread = ctx.turn.main_thread
        # Variables belong to the main thread; where it does not wait for the turn, none is shared.
        values = (
            work()
            if main_thread is None
            else await main_thread("sync", ctx.call_id, ctx.name, work)
        )
    if ctx.turn.live_kernel is not None:
        ctx.turn.live_kernel.keep_code(code, ctx.session_id, names)
    result = await run_off_loop(ctx, run_in_scratch, code, values, timeout_ms / 1000, ctx)
    if "\nNameError: " in result.error:
        return replace(result, notes=(*result.notes, _NO_VARIABLES))
    return result


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
    return ToolOutput(content, success=not result.error, details={"output": shown}, is_fitted=True)


def _first_line(code: str) -> str:
    lines = [line for line in code.strip().splitlines() if line.strip()]
    more = f" ... ({len(lines)} lines)" if len(lines) > 1 else ""
    return (lines[0] if lines else "(empty)") + more
