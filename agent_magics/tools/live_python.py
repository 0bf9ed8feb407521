"""``python``: runs code in the person's own kernel, where the data already is."""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from agent_magics.dispatch.actions import Action, ActionKind
from agent_magics.dispatch.context import LiveResult, ToolContext
from agent_magics.dispatch.output import cut_text
from agent_magics.dispatch.references import refer
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import ContentPart, InputImage, InputText
from agent_magics.protocol.tools import ToolOutput


def _assess(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    code = arguments["code"]
    digest = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
    # "Always" binds to this very code, never to the tool: the kernel is not sandboxed.
    return [
        Action(
            ActionKind.LIVE_PYTHON,
            target=_first_line(code),
            reason="it runs in your kernel, which is not sandboxed",
            fingerprint=f"python:{digest}",
        )
    ]


@tool(assess=_assess)
async def python(
    code: str,
    where: Literal["live"] = "live",
    *,
    ctx: ToolContext | None = None,
) -> ToolOutput:
    """Run Python code in the person's notebook kernel.

    The code sees and changes the notebook's variables, and what it defines stays there. What it
    prints, the value of its last expression, and figures come back. Top-level await and IPython
    magics work.

    Args:
        code: the code of one cell.
        where: "live" is the person's own kernel.
    """
    kernel = None if ctx is None else ctx.turn.live_kernel
    if ctx is None or kernel is None or ctx.turn.main_thread is None:
        raise RespondToModel(
            "python needs a notebook kernel, and this agent runs outside one; "
            'run a script with shell instead: ["python3", "-c", "..."].'
        )
    if ctx.config.python == "off":
        raise RespondToModel("python is switched off here (AgentMagics.python = 'off').")
    run = partial(kernel.run, code, ctx)
    result: LiveResult = await ctx.turn.main_thread("python", ctx.call_id, ctx.name, run)
    return _as_output(result, ctx)


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
