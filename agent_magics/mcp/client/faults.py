"""Translates the SDK's errors for the caller and for the person."""

import mcp_types as types
from mcp import InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agent_magics.mcp.endings import LinkLost
from agent_magics.mcp.transports.bodies import HTTP_STATUS
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.text.brief import brief_line

# What the SDK raises where a server answers with what is no result, or asks without end.
NO_RESULT = (ValidationError, InputRequiredRoundsExceededError, ExceptionGroup)
CLOSED = "Connection closed"  # the SDK's message for a closed connection; servers use its code too
# How the errors begin that stand in for an answer that did not come, or was none: the SDK's, ours.
_UNANSWERED = (
    "SSE stream",
    "Unexpected content type",
    "Failed to parse",
    "server answered a request with 202",
    "the answer ",
    f"{HTTP_STATUS} 5",
)
_SESSION_GONE = "Session terminated"  # the SDK's message for an unknown session


def describe(error: BaseException) -> str:
    """Describe an error in a few words; "" for a connection that just ended."""
    error = core_of(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        return f"the server's answer is not as the protocol wants it ({place}: {first['msg']})"
    if isinstance(error, LinkLost) or (isinstance(error, MCPError) and is_loss(error)):
        return ""
    if isinstance(error, MCPError):
        is_answer = not error.error.message.startswith((*_UNANSWERED, HTTP_STATUS))
        return f"it refused: {_words_of(error)}" if is_answer else _words_of(error)
    return brief_line(clause(error), 300)


def core_of(error: BaseException) -> BaseException:
    """Return the first error of a group; other errors unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_loss(error: MCPError) -> bool:
    """Tell whether the connection ended before an answer arrived."""
    return error.error.code == types.CONNECTION_CLOSED and error.error.message == CLOSED


def meaning_of(error: MCPError, server: str, what: str) -> LinkLost | RespondToModel:
    """Translate an error of the SDK for the caller who requested `what`."""
    if error.error.message == _SESSION_GONE:
        return LinkLost(_SESSION_GONE, taken=False)
    if is_loss(error):
        return LinkLost(CLOSED)
    if error.error.message.startswith(_UNANSWERED):
        return RespondToModel(
            f"The MCP server {server!r} did not answer {what} ({clause(error.error.message)}); "
            "whether it did its work is unknown."
        )
    return RespondToModel(f"The MCP server {server!r} refused {what}: {_words_of(error)}.")


def _words_of(error: MCPError) -> str:
    message = clause(error.error.message)
    if message.startswith((*_UNANSWERED, HTTP_STATUS)):
        return message  # its code is not the server's
    return f"{message} (error {error.error.code})"
