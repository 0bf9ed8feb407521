"""The words of ``%agent``, as far as they need no kernel."""

import pytest

from agent_magics.kernel.commands.control import _history_line
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    UserMessage,
    WebSearchCall,
)

ITEMS = [
    (UserMessage("Go."), "**You:** Go."),
    (UserMessage("A report.", "developer"), "**Told:** A report."),
    (Reasoning(("Hm.",)), ""),
    (WebSearchCall({"type": "search", "query": "cats"}), '**web_search** `searched "cats"`'),
    (FunctionCall("c", "shell", '{"command": ["ls"]}'), "**shell** `ls`"),
    (CustomToolCall("c", "f", "text"), "**f** `text`"),
    (LocalShellCall("c", ("ls", "-l")), "**local_shell** `ls -l`"),
    (ToolCallOutput("c", ""), "→ `(nothing)`"),
    (AssistantMessage("Done."), "**Agent:** Done."),
]


@pytest.mark.parametrize(("item", "line"), ITEMS)
def test_the_history_has_a_line_for_whatever_was_said_or_done(item: Item, line: str) -> None:
    assert _history_line(item) == line
