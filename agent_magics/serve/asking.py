"""Asks for approval through an MCP client, by elicitation.

Clients of protocol version 2025 are sent a request in the middle of the call. Since 2026 a server
may not do that: the call is answered with the question, and made again by the client with the
answer; the call itself goes on waiting meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from mcp_types import ElicitRequestFormParams, ElicitResult

from agent_magics.engine.foreground.host import ProgramHost
from agent_magics.protocol.events import ApprovalRequested, Question
from agent_magics.protocol.ops import Answer, denied
from agent_magics.render.visible import pretty_shortened, show_shortened

CANNOT_ASK = (
    "nobody can be asked here: there is no notebook, and the client does not offer elicitation. "
    "--approval never lets mutating tools run without a question."
)
_LONGEST = 2_000


class ClientHost(ProgramHost):
    """Answers approval questions of one call by asking its MCP client.

    Args:
        put: passes a question to the call; the future gets the client's answer, or None where the
            client cannot be asked.
    """

    def __init__(self, put: Callable[[ApprovalRequested, "asyncio.Future[Any]"], None]) -> None:
        super().__init__()
        self._put = put

    def answer(self, question: Question) -> Any:
        """Ask the client for approval; deny every other kind of question."""
        if not isinstance(question, ApprovalRequested):
            return denied(question.question_id, CANNOT_ASK)
        return self._ask(question)

    async def _ask(self, question: ApprovalRequested) -> Answer:
        answered: asyncio.Future[ElicitResult | None] = asyncio.get_running_loop().create_future()
        self._put(question, answered)
        return answer_of(question, await answered)


def form_of(question: ApprovalRequested) -> ElicitRequestFormParams:
    """Return a question as an elicitation form with one boolean field."""
    tool, target = question.tool, show_shortened(question.target, _LONGEST)
    message = (
        f"May {show_shortened(tool, _LONGEST)} run? {target}\n"
        f"Why you are asked: {show_shortened(question.reason, _LONGEST)}\n"
        f"{pretty_shortened(question.arguments, _LONGEST)}"
    )
    field = {"type": "boolean", "title": "Let it run", "default": False}
    schema = {"type": "object", "properties": {"approve": field}, "required": ["approve"]}
    return ElicitRequestFormParams(message=message, requested_schema=schema)


def answer_of(question: Question, result: ElicitResult | None) -> Answer:
    """Convert a client's elicitation result to an answer; only a clear yes approves."""
    if result is None:
        return denied(question.question_id, CANNOT_ASK)
    approved = result.action == "accept" and (result.content or {}).get("approve") is True
    feedback = "" if approved else "the person at the client said no"
    return Answer(
        question_id=question.question_id,
        decision="approve" if approved else "deny",
        feedback=feedback,
    )
