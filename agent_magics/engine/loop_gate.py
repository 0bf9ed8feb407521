"""Puts a call to the person that would go on in a circle; everything else passes untouched."""

from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.edits import readable_payload
from agent_magics.dispatch.router import ToolRouter
from agent_magics.engine.loop_guard import LoopGuard
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import TurnAbort
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested
from agent_magics.protocol.ops import Answer
from agent_magics.protocol.tools import ToolCall, ToolOutput

_NOBODY = "nobody can be asked here"
_DENIED = (
    "Not run: {reason}, and it was not allowed to go on{why}. No more tools run in this turn. Say "
    "in a few words what you found, and what is missing."
)


class LoopGate(ToolRouter):
    """A router that asks before a call which the guard suspects."""

    def __init__(self, *parts: Any, guard: LoopGuard) -> None:
        super().__init__(*parts)
        self._guard = guard

    async def dispatch_tool_call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Answer `call`, after a question where it goes round in circles.

        Raises:
            FatalError: only the person can help.
            TurnAbort: the person ended the turn at the question.
        """
        reason = self._guard.question_about(call.call_id)
        if reason:
            answer = await self._ask(call, context, reason)
            if answer.decision == "abort":
                raise TurnAbort(f"stopped by the person, for {reason}")
            if not answer.decision.startswith("approve"):
                self._guard.denied = True
                said = _NOBODY if answer.by == "policy" else answer.feedback.strip().rstrip(".")
                why = f" ({said})" if said else ""
                return ToolOutput(_DENIED.format(reason=reason, why=why), success=False)
            self._guard.forget()
        return await super().dispatch_tool_call(call, context)

    async def _ask(self, call: ToolCall, context: ToolContext, reason: str) -> Answer:
        if context.config.approval is ApprovalPolicy.NEVER:
            answer = Answer(question_id="", decision="deny", by="policy")
        else:
            answer = await context.turn.ask(
                ApprovalRequested,
                call_id=call.call_id,
                tool=call.tool_name,
                target=call.tool_name,
                arguments=readable_payload(call.payload),
                reason=f"{reason}. Let it go on?",
            )
        context.emit(
            ApprovalDecided,
            tool=call.tool_name,
            target=call.tool_name,
            decision=answer.decision,
            by=answer.by,
            basis="loop guard",
            reason=reason,
        )
        return answer
