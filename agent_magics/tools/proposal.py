"""``propose_plan``: ends a turn that only reads with a plan, which the person runs or drops."""

import json

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.mcp.elicitation.answers import sent_content
from agent_magics.protocol.errors import RespondToModel, TurnAbort, clause
from agent_magics.protocol.events import (
    PlanStep,
    PlanUpdated,
    UserInputRequested,
    UserOption,
    UserQuestion,
)
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.asking import recorded_answer

NAME = "propose_plan"
RUN, CHANGE, DROP = "Run it", "Change…", "Drop"
# The prompt of the turn that carries a plan out.
RUN_PROMPT = "Carry out the plan."
INSTRUCTIONS = """\
In this turn you only plan: your tools read and change nothing. Look at what the task needs, then \
call propose_plan once. Do not do the task."""

_FIELD = "plan"
_QUESTION = UserQuestion(
    id=_FIELD,
    question="Run this plan? Your own words instead say what to change.",
    options=(
        UserOption(label=RUN, description="a turn of its own, under your approval policy"),
        UserOption(label=CHANGE, description="the agent asks what, or reads your own words"),
        UserOption(label=DROP, description="nothing is run"),
    ),
)


@tool(name=NAME, mutating=False)
async def propose_plan(
    steps: list[str], explanation: str = "", *, ctx: ToolContext | None = None
) -> ToolOutput:
    """Propose a plan to the person, who runs it, has it changed, or drops it.

    After "Run it" (the plan is carried out in the next turn) or "Drop", end this turn with one
    short sentence. After "Change…", ask what with request_user_input. Any other answer says what to
    change. Propose the plan again after a change.

    Args:
        steps: what is to be done, in order: one thing each, with the files and figures it is about.
        explanation: the idea of the plan and its risks, in a sentence or two.

    Returns:
        A JSON object with the person's answer.
    """
    if ctx is None:
        raise RespondToModel("propose_plan works inside a turn.")
    if not any(step.strip() for step in steps):
        raise RespondToModel("The plan has no steps; send at least one.")
    plan = [
        PlanStep(id=str(n), description=step, status="pending") for n, step in enumerate(steps, 1)
    ]
    ctx.turn.emit(PlanUpdated, steps=tuple(plan), explanation=explanation)
    chosen = await _ask(ctx)
    return ToolOutput(
        json.dumps({_FIELD: chosen}, ensure_ascii=False),
        details={"output": f"Plan: {chosen}", _FIELD: chosen},
    )


async def _ask(ctx: ToolContext) -> str:
    """Return the person's choice or words, which may stand in the recording that is replayed."""
    asked = UserInputRequested(question_id="", call_id=ctx.call_id, questions=(_QUESTION,))
    answer = recorded_answer(asked, ctx) or await ctx.turn.ask(
        UserInputRequested, call_id=ctx.call_id, questions=asked.questions
    )
    if answer.decision == "abort":
        raise TurnAbort("stopped at a plan")
    content = sent_content(asked, answer) if answer.decision.startswith("approve") else None
    if content is not None:
        return str(content[_FIELD])
    if answer.by == "policy":
        raise RespondToModel(
            f"The plan is shown and not run: {clause(answer.feedback)}. End this turn."
        )
    return answer.feedback or DROP
