"""Asks before a call that goes on repeating earlier ones: a stage of the tool pipeline."""

from collections.abc import Awaitable

from agent_magics.dispatch.call import CallInProgress
from agent_magics.dispatch.consent.edits import as_offered, readable_payload
from agent_magics.engine.repetition.detector import RepetitionDetector
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import RespondToModel, TurnAbort, clause
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested
from agent_magics.protocol.ops import Answer, denied

_NOBODY = "nobody can be asked here"
_DENIED = (
    "Not run: {reason}, and it was not allowed to go on{why}. No more tools run in this turn. Say "
    "in a few words what you found, and what is missing."
)


class RepetitionApproval:
    """The stage that asks before a call for which the detector wants a question."""

    def __init__(self, guard: RepetitionDetector) -> None:
        self._guard = guard

    def __call__(self, call: CallInProgress) -> Awaitable[None] | None:
        """Ask about the call if it repeats earlier ones.

        Raises:
            RespondToModel: the repetition was denied.
            TurnAbort: the person ended the turn at the question.
        """
        reason = self._guard.question_about(call.call.call_id)
        return self._ask(call, reason) if reason else None

    async def _ask(self, call: CallInProgress, reason: str) -> None:
        answer = await self._answer(call, reason)
        if answer.decision == "abort":
            raise TurnAbort(f"stopped by the person, for {reason}")
        if not answer.decision.startswith("approve"):
            self._guard.denied = True
            reply = clause(answer.feedback)
            if answer.by == "policy":  # whose further sentences are about single calls
                reply = reply.partition(". ")[0] or _NOBODY
            why = f" ({reply})" if reply else ""
            raise RespondToModel(_DENIED.format(reason=reason, why=why))
        self._guard.forget()

    async def _answer(self, call: CallInProgress, reason: str) -> Answer:
        name = call.call.tool_name
        if call.turn.config.approval is ApprovalPolicy.NEVER:
            answer = denied()
        else:
            asking = call.turn.ask(
                ApprovalRequested,
                call_id=call.call.call_id,
                tool=name,
                target=name,
                arguments=readable_payload(call.call.payload),
                reason=f"{reason}. Let it go on?",
            )
            answer = as_offered(await asking)
        call.turn.emit(
            ApprovalDecided,
            call_id=call.call.call_id,
            tool=name,
            target=name,
            decision=answer.decision,
            by=answer.by,
            basis="loop guard",
            reason=reason,
        )
        return answer
