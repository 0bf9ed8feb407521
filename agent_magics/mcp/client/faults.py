"""Translates the SDK's errors for the caller and for the person."""

from enum import Enum, auto

import mcp_types as types
from mcp import InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agent_magics.mcp.endings import LinkLost
from agent_magics.mcp.transports.bodies import (
    HTTP_STATUS,
    SESSION_GONE,
    STAND_IN,
    UNAUTHORIZED,
    UNREACHED,
)
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.text.brief import brief_line

# What the SDK raises where a server answers with what is no result, or asks without end.
NO_RESULT = (ValidationError, InputRequiredRoundsExceededError, ExceptionGroup)
CLOSED = (
    "Connection closed"  # the SDK's message for a closed connection; no server's: `message_filter`
)
# The SDK's errors where no answer came, or what was none: their codes, and how they begin.
_UNANSWERED = (
    (types.CONNECTION_CLOSED, "SSE stream failed: "),
    (types.CONNECTION_CLOSED, "SSE stream ended without a response"),
    (types.CONNECTION_CLOSED, "SSE stream ended and reconnection attempts were exhausted"),
    (types.INVALID_REQUEST, "Unexpected content type: "),
    (types.INVALID_REQUEST, "server answered a request with 202 Accepted"),
    (types.PARSE_ERROR, "Failed to parse SSE message: "),
    (types.PARSE_ERROR, "Failed to parse JSON response: "),
)


class _Sayer(Enum):
    """Who refused a request."""

    SERVER = auto()
    STATUS = auto()  # one of HTTP; its words are ours
    NOBODY = auto()  # no answer came


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
        sayer, words = _said_by(error)
        return f"it refused: {words}" if sayer is _Sayer.SERVER else words
    return brief_line(clause(error), 300)


def core_of(error: BaseException) -> BaseException:
    """Return the first error of a group; other errors unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_loss(error: MCPError) -> bool:
    """Tell whether the connection ended before an answer arrived."""
    return error.error.code == types.CONNECTION_CLOSED and error.error.message == CLOSED


def wants_login(error: BaseException) -> bool:
    """Tell whether a request was refused because the server requires a (new) login."""
    core = core_of(error)
    if not isinstance(core, MCPError) or core.error.data != STAND_IN:
        return False
    return core.error.message.startswith(UNAUTHORIZED)


def meaning_of(error: MCPError, server: str, what: str) -> LinkLost | RespondToModel:
    """Translate an error of the SDK for the caller who requested `what`."""
    if is_loss(error):
        return LinkLost(CLOSED)
    sayer, words = _said_by(error)
    if sayer is _Sayer.STATUS and words.endswith(SESSION_GONE):
        return LinkLost(words, taken=False)
    if sayer is _Sayer.NOBODY:
        is_unreached = words.startswith(UNREACHED)
        did = "it has not taken it" if is_unreached else "whether it did its work is unknown"
        return RespondToModel(f"The MCP server {server!r} did not answer {what} ({words}); {did}.")
    return RespondToModel(f"The MCP server {server!r} refused {what}: {words}.")


def _said_by(error: MCPError) -> tuple[_Sayer, str]:
    """Return whose words an error is, and these; the code where it is the server's own."""
    said, message = error.error, clause(error.error.message)
    if said.data == STAND_IN:
        is_status = said.message.startswith(HTTP_STATUS)
        is_answered = is_status and not said.message.startswith(f"{HTTP_STATUS} 5")
        return _Sayer.STATUS if is_answered else _Sayer.NOBODY, message
    if any(said.code == code and said.message.startswith(words) for code, words in _UNANSWERED):
        return _Sayer.NOBODY, message
    return _Sayer.SERVER, f"{message} (error {said.code})"
