"""What the SDK raises reaches the model as one sentence, whatever was asked of the server."""

import pytest
from mcp import InputRequiredRoundsExceededError
from pydantic import TypeAdapter, ValidationError

from agent_magics.mcp.client.connection import McpLink
from agent_magics.protocol.errors import RespondToModel


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("ten")
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        invalid(),
        InputRequiredRoundsExceededError(10),
        ExceptionGroup("two", [ValueError("one"), ValueError("other")]),
        ExceptionGroup("deep", [ExceptionGroup("inner", [InputRequiredRoundsExceededError(10)])]),
    ],
    ids=["form", "rounds", "group", "groups"],
)
@pytest.mark.parametrize("what", ["the resource a://b", "the prompt 'p'", "prompts/list"])
def test_what_is_no_result_is_told_to_the_model(error, what):
    link = McpLink.__new__(McpLink)  # translating these errors needs nothing of it
    with pytest.raises(RespondToModel, match=what) as told, link._translating_errors(what):
        raise error
    assert "\n" not in str(told.value)
