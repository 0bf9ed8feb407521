"""What others say, of their tools and in errors, holds nothing that people do not see."""

import json

import mcp_types as types
import pytest
from IPython.core.error import UsageError

from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_parameters
from agent_magics.kernel.cell.request.options import usage_errors
from agent_magics.kernel.commands.mcp.contents import PromptText
from agent_magics.mcp.client.results import resource_of, tool_of
from agent_magics.protocol.errors import FatalError
from agent_magics.text.invisible import clean_text
from agent_magics.tools.mcp.callables import McpToolError

HIDDEN = "\x1b]0;t\x07\u202e\u200b\U000e0041\ufeff\x9b2J"
SAID = f"Look{HIDDEN} it up."
SEEN = "Look]0;t2J it up."
SCHEMA = {
    "type": "object",
    "description": SAID,
    "properties": {"a": {"type": "array", "items": {"type": "string", "description": SAID}}},
}


def test_a_servers_tool() -> None:
    tool = tool_of("s", types.Tool(name="t", description=SAID, title=SAID, input_schema=SCHEMA))
    assert (tool.description, tool.title) == (SEEN, SEEN)


def test_a_servers_resource() -> None:
    given = types.Resource(uri="x://y", name="y", title=SAID, description=SAID)
    found = resource_of("s", given)
    assert (found.description, found.title) == (SEEN, SEEN)


def test_a_schema_at_any_depth() -> None:
    text = json.dumps(sanitize_parameters(SCHEMA), ensure_ascii=False)
    assert not [each for each in HIDDEN if each in text and not each.isprintable()]


def test_a_servers_error() -> None:
    assert str(McpToolError(SAID)) == SEEN


@pytest.mark.parametrize(
    "text", ["\u2764\ufe0f", "\U0001f468\u200d\U0001f469", "a\tb\nc", "\u0645\u06cc\u200c\u062e"]
)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert clean_text(text) == text


def test_an_error_in_a_cell_hides_nothing_of_what_it_quotes() -> None:
    with pytest.raises(UsageError) as shown, usage_errors():
        raise FatalError(SAID)
    assert "Look⟨U+001B⟩]0;t⟨U+0007⟩⟨U+202E⟩" in str(shown.value)
    assert str(shown.value).isprintable()


def test_an_error_of_a_program_acts_on_no_terminal() -> None:
    assert FatalError(SAID)._render_traceback_() == [f"FatalError: {SEEN}"]


def test_a_servers_prompt_is_shown_as_it_is() -> None:
    shown = PromptText(SAID)._repr_markdown_()
    assert shown.replace("\n", "").isprintable() and "⟨U+202E⟩" in shown
