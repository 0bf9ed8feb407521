"""Handles an MCP server's progress, log messages and questions during one call."""

from functools import partial

from agent_magics.dispatch.consent.edits import as_offered
from agent_magics.dispatch.consent.flood import QuestionLimit
from agent_magics.dispatch.context import ToolContext
from agent_magics.mcp.elicitation.answers import sent_content
from agent_magics.protocol.errors import TurnAbort
from agent_magics.protocol.events import ApprovalRequested, ElicitationRequested, Warned
from agent_magics.protocol.mcp import Elicitation, ElicitationAnswer, Sampling
from agent_magics.protocol.ops import Answer

# Characters of log messages that one call keeps.
MOST_LOGGED = 20_000
SAMPLING = "mcp_sampling"  # the feature that lets servers ask our model


def answer_of(question: Elicitation, answer: Answer | None) -> ElicitationAnswer:
    """Convert a person's answer to an elicitation result; no answer means declined."""
    if answer is not None and answer.decision == "abort":
        return ElicitationAnswer("cancel")
    if answer is None or not answer.decision.startswith("approve"):
        return ElicitationAnswer("decline")
    content = sent_content(question, answer)
    return ElicitationAnswer("decline" if content is None else "accept", content or {})


class ContextCallbacks:
    """Handles a server's progress, log messages and questions during one call.

    Args:
        context: the call.
        server: the name of the server.
    """

    def __init__(self, context: ToolContext, server: str) -> None:
        self._context = context
        self._server = server
        limits = context.turn.question_limits
        if server not in limits:
            limits[server] = QuestionLimit(self._warn, server)
        self._limit = limits[server]
        self._lines: list[str] = []
        self._logged = 0
        self._left_out = 0

    @property
    def logged(self) -> str:
        """The server's log messages during the call."""
        rest = [f"… {self._left_out} more messages left out …"] if self._left_out else []
        return "\n".join([*self._lines, *rest])

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Show progress of the call."""
        share = None if not total else min(max(done / total, 0.0), 1.0)
        title = message or (None if share is not None else f"{done:g}")
        self._context.update(title=title, progress=share)

    def log(self, level: str, text: str) -> None:
        """Keep a log message to show with the call, up to `MOST_LOGGED` characters in all."""
        line = f"{level}: {text}"
        if self._logged + len(line) > MOST_LOGGED:
            self._left_out += 1
            return
        self._logged += len(line)
        self._lines.append(line)

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask the person the server's question."""
        put = partial(
            self._context.turn.ask,
            ElicitationRequested,
            call_id=self._context.call_id,
            server=self._server,
            message=question.message,
            schema=question.schema,
            url=question.url,
        )
        return answer_of(question, await self._limit.put(put))

    async def sample(self, request: Sampling) -> str | None:
        """Let our model answer a sampling request, if the settings and the person allow it."""
        turn = self._context.turn
        if not turn.config.features.get(SAMPLING) or turn.sample is None:
            return None
        messages = "\n".join(f"{role}: {text}" for role, text in request.messages)
        put = partial(
            turn.ask,
            ApprovalRequested,
            call_id=self._context.call_id,
            tool=self._context.name,
            target=f"the MCP server {self._server} asks your model",
            arguments=f"system: {request.system}\n{messages}" if request.system else messages,
            reason="an MCP server wants an answer of your model, at your cost",
        )
        answer = await self._limit.put(put)
        if answer is not None and answer.decision == "abort":  # at the end of this call
            error = TurnAbort(f"stopped at a question of the MCP server {self._server}")
            turn.stop.end(f"{self._context.call_id}.asked", error)
        if answer is None or not as_offered(answer).decision.startswith("approve"):
            return None
        return await turn.sample(request.system, request.messages, request.max_tokens)

    def _warn(self, message: str) -> None:
        self._context.turn.emit(Warned, message=message)
