"""What the tab key offers after ``%%agent`` and ``%agent``."""

import argparse
from collections.abc import Mapping
from typing import Any

from agent_magics import tools as builtin
from agent_magics.kernel.control import WORDS
from agent_magics.kernel.mcp_words import MCP_WORDS
from agent_magics.kernel.namespace import own_tools
from agent_magics.kernel.recordings import RECORDING_WORDS
from agent_magics.kernel.serving import SERVE_WORDS
from agent_magics.kernel.tool_list import TOOL_WORDS
from agent_magics.protocol.ops import DECISIONS


def complete(line: str, parser: argparse.ArgumentParser, namespace: Mapping[str, Any]) -> list[str]:
    """Return the words that fit at the end of `line`.

    Args:
        parser: knows the options of ``%%agent`` and their choices.
        namespace: the person's, for their own tools.
    """
    words = line.split()
    if words[:1] == ["%agent"]:
        more = {
            "answer": [*DECISIONS, "--unattended"],
            "mcp": list(MCP_WORDS),
            "recording": RECORDING_WORDS,
            "serve": list(SERVE_WORDS),
            "tools": list(TOOL_WORDS),
        }
        return more.get("".join(words[1:2]), list(WORDS))
    before = words[-1] if line.endswith(" ") else (words[-2:-1] or [""])[0]
    for action in parser._actions:
        if before in action.option_strings and action.choices:
            return list(action.choices)
    if _is_after_tools(line):
        own = [fn.tool_options.name for fn in own_tools(namespace)]
        return [*builtin.TOOL_SETS, *builtin.__all__, *own]
    options = [name for action in parser._actions for name in action.option_strings]
    return [name for name in options if name.startswith("--")]


def _is_after_tools(line: str) -> bool:
    options = [word for word in line.split() if word.startswith("--")]
    return options[-1:] == ["--tools"] and not line.rstrip().endswith(" -")
