"""``request_user_input``: questions of the model to the person, answered in a form."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.exec.output import clean_output
from agent_magics.mcp.elicitation.answers import sent_content
from agent_magics.mcp.elicitation.forms import UnusableForm
from agent_magics.mcp.elicitation.user_input import question_fields
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import RespondToModel, TurnAbort, clause
from agent_magics.protocol.events import UserInputRequested, UserQuestion
from agent_magics.protocol.items import JsonMapping
from agent_magics.protocol.ops import Answer, denied
from agent_magics.protocol.tools import ToolOutput

DECIDE = "Decide what is most likely meant, and say in your answer what you assumed."
NEVER = "nobody is asked under approval policy 'never'"
_NOTES = {"recording": "answered by the recording"}


def _in_own_words(given: dict[str, Any]) -> dict[str, Any]:
    """Accept the forms in which other agents' models ask: no ids, plain options, `multiSelect`."""
    if isinstance(given.get("questions"), list):
        given["questions"] = [_question(one, at) for at, one in enumerate(given["questions"], 1)]
    return given


def _question(one: Any, at: int) -> Any:
    if not isinstance(one, dict):
        return one
    if "multiSelect" in one:
        one.setdefault("multi", one.pop("multiSelect"))
    if isinstance(one.get("options"), list):
        one["options"] = [{"label": o} if isinstance(o, str) else o for o in one["options"]]
    return {"id": f"q{at}", **one}


@tool(mutating=False, in_own_words=_in_own_words)
async def request_user_input(
    questions: list[UserQuestion], *, ctx: ToolContext | None = None
) -> ToolOutput:
    """Ask the person one to four short questions, and wait.

    Ask only what you cannot find out and what changes what you do; never for secrets.

    Returns:
        A JSON object of each question's id to the chosen label, labels (multi) or text.
    """
    if ctx is None:
        raise RespondToModel("request_user_input works inside a turn; by hand, use input().")
    try:
        question_fields(questions)
    except UnusableForm as problem:
        raise RespondToModel(f"Nothing was asked: {clause(problem)}.") from None
    asked = UserInputRequested(question_id="", call_id=ctx.call_id, questions=tuple(questions))
    answer = recorded_answer(asked, ctx) or await _ask(asked, ctx)
    content = sent_content(asked, answer) if answer.decision.startswith("approve") else None
    if content is None:
        _refuse(answer)
    return ToolOutput(
        json.dumps(content, ensure_ascii=False),
        details={"output": _transcript(questions, content), "note": _NOTES.get(answer.by, "")},
        value=dict(content),
    )


def recorded_answer(asked: UserInputRequested, ctx: ToolContext) -> Answer | None:
    """Return the answer that stands in the recording that is replayed; None where there is none."""
    answer = Answer(
        question_id="",
        decision="approve",
        edited_arguments=ctx.turn.recorded(ctx.call_id),
        by="recording",
    )
    return answer if sent_content(asked, answer) is not None else None


async def _ask(asked: UserInputRequested, ctx: ToolContext) -> Answer:
    if ctx.config.approval is ApprovalPolicy.NEVER:
        return denied(reason=NEVER)
    return await ctx.turn.ask(UserInputRequested, call_id=ctx.call_id, questions=asked.questions)


def _refuse(answer: Answer) -> NoReturn:
    """Raise the error that says why there is no answer."""
    if answer.decision == "abort":
        raise TurnAbort("stopped at a question of the model")
    if answer.by == "policy":
        raise RespondToModel(f"Not answered: {clause(answer.feedback)}. {DECIDE}")
    why = f" and says: {answer.feedback}" if answer.feedback else ""
    raise RespondToModel(f"Not answered: the person declined{why}. {DECIDE}")


def _transcript(questions: Sequence[UserQuestion], content: JsonMapping) -> str:
    """Return questions and answers as they are read in a saved notebook."""
    return clean_output(
        "\n".join(f"Q: {each.question}\nA: {_shown(content[each.id])}" for each in questions)
    )


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
