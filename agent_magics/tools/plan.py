"""``update_plan``: the model's plan as a checklist that the person can follow."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import PlanStep, PlanUpdated
from agent_magics.protocol.items import json_or

# Argument names of other agents' planning tools, on which models were trained.
_STEPS, _DESCRIPTIONS = ("plan", "todos", "items"), ("step", "content", "text", "title", "task")


def _in_own_words(given: dict[str, Any]) -> dict[str, Any]:
    name = next((name for name in _STEPS if name in given), "")
    if name and "steps" not in given:
        given["steps"] = given.pop(name)
    steps = given.get("steps")
    steps = json_or(steps, steps) if isinstance(steps, str) else steps
    if isinstance(steps, list):
        given["steps"] = [_step(step, at) for at, step in enumerate(steps, start=1)]
    return given


def _step(step: object, at: int) -> Any:
    if not isinstance(step, dict):
        return step
    name = next((name for name in _DESCRIPTIONS if name in step), "")
    if name and "description" not in step:
        step["description"] = step.pop(name)
    return {"id": str(at), **step}


@tool(mutating=False, inline=True, in_own_words=_in_own_words)
def update_plan(
    steps: list[PlanStep], explanation: str = "", *, ctx: ToolContext | None = None
) -> str:
    """Show or change the plan of work that has several steps; keep it true.

    Args:
        steps: all of them, each time; ids are unique, at most one step is in_progress.
    """
    require(Sequence[PlanStep], steps=steps)
    _check(steps)
    if ctx is not None:
        ctx.turn.emit(PlanUpdated, steps=tuple(steps), explanation=explanation)
    done = sum(step.status == "completed" for step in steps)
    current = next((step.description for step in steps if step.status == "in_progress"), None)
    return f"Plan updated: {done} of {len(steps)} done" + (f"; now: {current}." if current else ".")


def _check(steps: list[PlanStep]) -> None:
    if not steps:
        raise RespondToModel("The plan has no steps; send at least one.")
    twice = [name for name, count in Counter(step.id for step in steps).items() if count > 1]
    if twice:
        raise RespondToModel(f"Step ids must be unique; these stand twice: {', '.join(twice)}.")
    running = [step.id for step in steps if step.status == "in_progress"]
    if len(running) > 1:
        raise RespondToModel(
            f"At most one step can be in_progress; these are: {', '.join(running)}."
        )
