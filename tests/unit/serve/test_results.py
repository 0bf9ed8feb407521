"""Outputs of tools in the protocol's words."""

import pytest
from mcp_types import ImageContent, TextContent

from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.serve.protocol import failure, result_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("[1, 2]", {"result": [1, 2]}),
        ("[1, 2", None),
        ("{… 300 characters left out …}", None),
        ("12", None),
        ("plain", None),
        ("[" * 100_000, None),
        ("[" * 300 + "]" * 300, None),
    ],
)
def test_text_that_is_json_is_data_too(text, expected):
    result = result_of(ToolOutput(text), data=True)
    assert result.structured_content == expected
    assert result.content == [TextContent(text=text)]
    assert result_of(ToolOutput(text), data=False).structured_content is None
    assert result_of(ToolOutput(text, success=False), data=True).structured_content is None


def test_failures_are_told_in_the_result():
    assert result_of(ToolOutput("no", success=False), data=True).is_error
    assert not result_of(ToolOutput("yes"), data=True).is_error
    assert failure("gone").is_error


def test_no_text_of_a_tool_is_one_that_no_message_carries():
    results = [
        result_of(ToolOutput('{"a": "\\udcff"}'), data=True),
        result_of(ToolOutput("a\udcff"), data=True),
        failure("a\udcff"),
    ]
    assert results[0].structured_content == {"a": "\\udcff"}
    for result in results:
        assert '\\\\udcff"' in result.model_dump_json()


def test_pictures():
    here = InputImage("data:image/jpeg;base64,QUJD")
    there = InputImage("https://example.org/a.png")
    result = result_of(ToolOutput((InputText("see"), here, there)), data=True)
    assert result.content == [
        TextContent(text="see"),
        ImageContent(data="QUJD", mime_type="image/jpeg"),
        TextContent(text="Image: https://example.org/a.png"),
    ]
