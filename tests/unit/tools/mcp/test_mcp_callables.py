"""The tools of MCP servers as Python functions, whatever the server says of them."""

import inspect
from typing import Any

import pytest

from agent_magics.protocol.mcp import McpServerConfig, McpTool
from agent_magics.tools.mcp.callables import function_for
from agent_magics.tools.mcp.handler import McpToolHandler, card_of

INTEGER = {"properties": {"result": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({**INTEGER, "type": "object"}, int),
        ({"properties": {"count": {"type": "integer"}}}, dict),
        ({"type": "array", "items": {"type": "integer"}}, list[int]),
        ({**INTEGER, "type": ["object", "null"]}, Any),
        ({**INTEGER, "nullable": True}, Any),
        ({**INTEGER, "type": "array"}, Any),
        ({**INTEGER, "anyOf": [{"type": "object"}, {"type": "null"}]}, Any),
        ({**INTEGER, "$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, Any),
        ({"properties": {"result": False}}, Any),
    ],
)
def test_any_schema_of_a_result_is_an_annotation(schema, expected):
    tool = McpTool("things", "get", output_schema=schema)
    handler = McpToolHandler(card_of(tool), "mcp__things__get", McpServerConfig("things"), None)
    signature = inspect.signature(function_for(handler, lambda arguments: arguments))
    assert signature.return_annotation == expected
