"""Counts what a model must read to answer 30 questions about code: by symbol, and by grep and read.

The code is this package. Both ways are scripted: by symbol one call, or two where the first finds a
place; by text what a careful agent does: grep for the name, then read the definition found, with as
many lines as the definition has, or 40 around a use. A token is estimated as four bytes.
"""

import ast
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agent_magics import Agent, ScriptedModel

BYTES_A_TOKEN = 4
FOLDER = Path(__file__).resolve().parents[2] / "agent_magics"
# Who is asked about, ten of each kind of question.
WHERE = (
    "OutputGuard/cap_items", "FolderWalk/entries", "plan_patch", "RuleBook", "TurnView",
    "CallLock", "SourceText/offset", "ToolOffer/search", "ThreadPool/submit", "HandleStore",
)  # fmt: skip
WHO_CALLS = (
    "apply_operations", "begin_walk", "real_path", "shown_path", "count_fitting",
    "resolve_path", "cut_text", "describe_value", "to_tool_output", "parse_unified",
)  # fmt: skip
WHAT_TYPE = (
    "ToolContext/validate_path", "Consent/obtain", "ToolCatalog/of_run", "run_on_thread",
    "PathJudge", "unified_diff", "estimate_size", "FunctionToolHandler/prepare", "is_tool",
    "search",
)  # fmt: skip


class Counter:
    """Makes calls of an agent and adds up the bytes of calls and results."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.bytes = 0
        self.calls = 0
        self.failed = 0

    def call(self, name: str, /, **arguments: Any) -> str:
        output = self._agent.call_sync(name, arguments)
        text = output.text
        self.bytes += len(json.dumps({"name": name, "arguments": arguments})) + len(text.encode())
        self.calls += 1
        self.failed += not output.success
        return text


def definition_of(name_path: str) -> tuple[str, int, int]:
    """Return (file, first line, last line) of a definition; this is the truth, not counted."""
    names = name_path.split("/")
    for file in sorted(FOLDER.rglob("*.py")):
        body = ast.parse(file.read_text("utf-8")).body
        for name in names:
            found = [node for node in body if getattr(node, "name", "") == name]
            if not found:
                break
            node, body = found[0], getattr(found[0], "body", [])
        else:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return str(file.relative_to(FOLDER.parent)), first, node.end_lineno
    raise LookupError(name_path)


def by_symbol(counter: Counter, *, server: bool) -> None:
    """Answer by the symbol tools; without a server who calls is answered as by text."""
    for name in WHERE:
        counter.call("symbols", path="agent_magics", name_path=name, depth=0)
    for name in WHO_CALLS:
        if server:
            counter.call("references", path="agent_magics", name_path=name)
        else:
            by_text_who(counter, name)
    for name in WHAT_TYPE:
        counter.call("definition", name=name, path="agent_magics")


def by_text_who(counter: Counter, name: str) -> None:
    counter.call("grep_files", pattern=rf"\b{name}\(", path="agent_magics")


def by_text(counter: Counter) -> None:
    """Answer by grep_files and read_file."""
    for name in WHERE:
        by_text_definition(counter, name, reads=False)
    for name in WHO_CALLS:
        by_text_who(counter, name)
    for name in WHAT_TYPE:
        by_text_definition(counter, name, reads=True)


def by_text_definition(counter: Counter, name_path: str, *, reads: bool) -> None:
    """Find a definition; a method's class is told from others by reading the place."""
    outer, _, own = name_path.rpartition("/")
    counter.call("grep_files", pattern=rf"(def|class) {own}\b", path="agent_magics")
    file, first, last = definition_of(name_path)
    if reads or outer:
        counter.call("read_file", path=file, start_line=first, end_line=min(last, first + 39))


async def settled(agent: Agent) -> None:
    """Wait until the language server answers, where there is one."""
    await agent.call("references", {"name_path": "plan_patch", "path": "agent_magics"})


def measure(subject: str) -> dict[str, float]:
    """Answer all questions in one way."""
    tools = ["symbols", "references", "definition", "grep_files", "read_file"]
    with Agent(ScriptedModel([]), tools=tools, cwd=FOLDER.parent, approval="never") as agent:
        counter = Counter(agent)
        if subject == "text":
            by_text(counter)
        else:
            if subject == "server":
                asyncio.run(settled(agent))
            by_symbol(counter, server=subject == "server")
    assert not counter.failed, f"{counter.failed} calls failed"
    return {"tokens": counter.bytes / BYTES_A_TOKEN, "calls": counter.calls}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
