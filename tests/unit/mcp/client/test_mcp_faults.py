"""Whose words an error of a request is: the server's own never make its outcome unknown."""

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from agent_magics.mcp.client.faults import describe, meaning_of, wants_login
from agent_magics.mcp.endings import LinkLost
from agent_magics.mcp.transports.bodies import SESSION_GONE, STAND_IN

WORDS = [
    "the answer is 42, and you may not have it",
    "Failed to parse the query",
    "Failed to parse JSON response: of the shop",
    "SSE stream is not offered",
    "SSE stream failed: no",
    "Unexpected content type: image/png",
    "server answered a request with 202 Accepted",
    "HTTP status 500 of the shop behind it",
    "HTTP status 403",
    "Session terminated",
    f"HTTP status 404: {SESSION_GONE}",
    "it cannot be reached: so it says",
]


@pytest.mark.parametrize("code", [-32603, -32602, 0, 1])
@pytest.mark.parametrize("message", WORDS)
def test_a_server_s_own_refusal_is_one_whatever_it_says(code, message):
    error = MCPError(code=code, message=message)
    refused = f"{message} (error {code})"
    assert str(meaning_of(error, "s", "it")) == f"The MCP server 's' refused it: {refused}."
    assert describe(error) == f"it refused: {refused}"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (types.PARSE_ERROR, "the answer is"),
        (types.PARSE_ERROR, "Failed to parse it"),
        (types.CONNECTION_CLOSED, "SSE stream is not offered"),
        (types.CONNECTION_CLOSED, "Unexpected content type: image/png"),
        (types.INVALID_REQUEST, "Failed to parse JSON response: of the shop"),
    ],
)
def test_a_server_may_use_the_codes_of_the_sdk(code, message):
    told = str(meaning_of(MCPError(code=code, message=message), "s", "it"))
    assert "refused it" in told


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (types.CONNECTION_CLOSED, "SSE stream failed: x"),
        (types.CONNECTION_CLOSED, "SSE stream ended without a response"),
        (types.CONNECTION_CLOSED, "SSE stream ended and reconnection attempts were exhausted"),
        (types.INVALID_REQUEST, "Unexpected content type: text/html"),
        (types.INVALID_REQUEST, "server answered a request with 202 Accepted"),
        (types.PARSE_ERROR, "Failed to parse SSE message: x"),
        (types.PARSE_ERROR, "Failed to parse JSON response: x"),
    ],
)
def test_the_sdk_s_error_for_a_missing_answer_leaves_the_outcome_unknown(code, message):
    error = MCPError(code=code, message=message)
    assert "did not answer it" in str(meaning_of(error, "s", "it"))
    assert describe(error) == message


@pytest.mark.parametrize(
    ("message", "answered"),
    [
        ("the answer has more than 500,000 parts", False),
        ("HTTP status 500", False),
        ("HTTP status 403: no", True),
    ],
)
def test_what_stands_in_for_an_answer_is_ours(message, answered):
    error = MCPError(code=types.INTERNAL_ERROR, message=message, data=STAND_IN)
    meaning = str(meaning_of(error, "s", "it"))
    assert ("refused it" if answered else "did not answer it") in meaning
    assert "(error" not in meaning
    assert describe(error) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, f"HTTP status 404: {SESSION_GONE}"),
        ("agent-magics: said in place of the server", "HTTP status 500"),
    ],
    ids=["session", "stand-in"],
)
def test_no_server_can_say_what_only_the_transport_knows(data, message):
    error = MCPError(code=types.INTERNAL_ERROR, message=message, data=data)
    assert "refused it" in str(meaning_of(error, "s", "it"))


def test_a_request_without_its_session_was_not_taken():
    gone = MCPError(code=0, message=f"HTTP status 404: {SESSION_GONE}", data=STAND_IN)
    meaning = meaning_of(gone, "s", "it")
    assert isinstance(meaning, LinkLost)
    assert not meaning.taken


@pytest.mark.parametrize(
    ("message", "data", "wanted"),
    [
        ("HTTP status 401", STAND_IN, True),
        ("HTTP status 401, Retry-After: 30", STAND_IN, True),
        ("HTTP status 403", STAND_IN, False),
        ("HTTP status 401", None, False),
    ],
)
def test_the_error_of_a_request_says_whether_a_login_is_wanted(message, data, wanted):
    error = MCPError(code=types.INTERNAL_ERROR, message=message, data=data)
    assert wants_login(error) is wanted
    assert wants_login(ExceptionGroup("of a task", [error])) is wanted
    assert not wants_login(ValueError(message))
