"""Tools called as functions refuse a wrong argument in one sentence."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from agent_magics import tools as builtin
from agent_magics.protocol.errors import AgentMagicsError

# Arguments without a default, by name; all others are a text.
PLAUSIBLE: dict[str, Any] = {
    "path": "a.py",
    "paths": ["a.py"],
    "argv": ["true"],
    "command": "true",
    "cmd": "true",
    "session_id": 1,
    "steps": [],
    "questions": [],
}
WRONG = (5, None, "x", [1], [], {"a": 1}, b"x", 1.5, True, -1, "", object(), "a\0b")


@pytest.mark.parametrize("name", builtin.__all__)
def test_a_wrong_argument_is_one_sentence(name, tmp_path, monkeypatch):
    tool = getattr(builtin, name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("def x():\n    return 1\n")
    parameters = [p for p in inspect.signature(tool).parameters.values() if p.name != "ctx"]
    needed = {p.name: PLAUSIBLE.get(p.name, "x") for p in parameters if p.default is p.empty}
    wrong = [{**needed, each.name: value} for each in parameters for value in WRONG]
    assert [given for given in wrong if not is_answered(tool, given)] == []


def is_answered(tool: Callable[..., Any], given: dict[str, Any]) -> bool:
    """Call a tool; return whether it answered, or refused in a sentence."""
    try:
        called = tool(**given)
        if inspect.iscoroutine(called):
            asyncio.run(called)
    except AgentMagicsError as error:
        return bool(str(error))
    except Exception:  # which a person would have to read the source for
        return False
    return True
