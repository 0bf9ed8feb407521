"""Who an MCP server speaks to while one of its tools is called: news, log messages, questions."""

import time

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.elicitation import sent_content
from agent_magics.protocol.events import ApprovalRequested, ElicitationRequested
from agent_magics.protocol.mcp import Elicitation, ElicitationAnswer, Sampling
from agent_magics.protocol.ops import Answer

# Seconds between two pieces of news that are shown; a server may send thousands.
NEWS_INTERVAL = 0.1
# Characters of log messages that one call keeps.
MOST_LOGGED = 20_000
SAMPLING = "mcp_sampling"  # the feature that lets servers ask our model


def answer_of(question: Elicitation, answer: Answer) -> ElicitationAnswer:
    """Return what a server is told that asked."""
    if answer.decision == "abort":
        return ElicitationAnswer("cancel")
    if not answer.decision.startswith("approve"):
        return ElicitationAnswer("decline")
    content = sent_content(question, answer)
    return ElicitationAnswer("decline" if content is None else "accept", content or {})


class CallDesk:
    """The desk of one call.

    Args:
        context: the call.
        server: which server speaks.
    """

    def __init__(self, context: ToolContext, server: str) -> None:
        self._context = context
        self._server = server
        self._lines: list[str] = []
        self._logged = 0
        self._left_out = 0
        self._told = 0.0

    @property
    def logged(self) -> str:
        """The server's log messages during the call."""
        rest = [f"… {self._left_out} more messages left out …"] if self._left_out else []
        return "\n".join([*self._lines, *rest])

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Show news of the call; the last one, and of the others as many as one can read."""
        now = time.monotonic()
        is_end = total is not None and done >= total
        if now - self._told < NEWS_INTERVAL and not is_end:
            return
        self._told = now
        share = None if not total else min(max(done / total, 0.0), 1.0)
        title = message or (None if share is not None else f"{done:g}")
        self._context.update(title=title, progress=share)

    def log(self, level: str, text: str) -> None:
        """Keep a log message, to be shown with the call."""
        line = f"{level}: {text}"
        if self._logged + len(line) > MOST_LOGGED:
            self._left_out += 1
            return
        self._logged += len(line)
        self._lines.append(line)

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Put a question of the server to the person."""
        answer = await self._context.turn.ask(
            ElicitationRequested,
            call_id=self._context.call_id,
            server=self._server,
            message=question.message,
            schema=question.schema,
            url=question.url,
        )
        return answer_of(question, answer)

    async def sample(self, request: Sampling) -> str | None:
        """Have our model answer, where the settings allow it and the person says yes this time."""
        turn = self._context.turn
        if not turn.config.features.get(SAMPLING) or turn.sample is None:
            return None
        said = "\n".join(f"{role}: {text}" for role, text in request.messages)
        answer = await turn.ask(
            ApprovalRequested,
            call_id=self._context.call_id,
            tool=self._context.name,
            target=f"the MCP server {self._server} asks your model",
            arguments=f"system: {request.system}\n{said}" if request.system else said,
            reason="an MCP server wants an answer of your model, at your cost",
        )
        if not answer.decision.startswith("approve"):
            return None
        return await turn.sample(request.system, request.messages, request.max_tokens)
