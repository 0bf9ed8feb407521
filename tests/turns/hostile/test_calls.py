"""Law: whatever a model gives as arguments, a call ends with one output, and the turn goes on."""

import json
import os
import stat
from typing import Any

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.tools import TOOL_SETS
from tests.support.turns import assert_valid, outputs

# Each value would start a command or an agent, or wait for one.
_LEFT_OUT = {"exec_command", "shell", "spawn_agent", "wait", "request_user_input"}
TOOLS = sorted({*TOOL_SETS["data"], "edit_file", "write_file", "read_skill", "batch"} - _LEFT_OUT)

# JSON texts of one argument. `closed` may not be entered, `loop` leads to itself.
VALUES = (
    *("null", "true", "-1", "0", "1e30", "1" + "0" * 5000, "NaN", "-Infinity", "1e999", "[]", "{}"),
    *("[" * 60 + "]" * 60, '[1, null, {"a": [[]]}]', json.dumps({str(i): i for i in range(2000)})),
    *map(
        json.dumps,
        ("", "\0", "a\0b", "\ud800", "\n", "\x1b[2J", "\u202e", "😀", "@r1", "@r" + "9" * 99),
    ),
    *map(json.dumps, ("x" * 300, "x" * 100_000, "../" * 30 + "etc/passwd", "a/" * 3000, "~" * 300)),
    *map(json.dumps, ("closed/x", "loop", "loop/x", "fifo", "zero", "a.py/x", "/proc/self/mem")),
    *map(json.dumps, ("(a+)+$", "[[:x", "**/" * 20, "{a,b}" * 40, "[", "{{{{")),
)
# Whole texts of arguments.
TEXTS = (
    *("", "NaN", "null", "[1]", '"x"', "{", "{}x", "\0", "\ufeff{}", '{"a": 1}{"b": 2}'),
    *("{" * 5000, "[" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000, '{"\\ud800": 1}', '{"": 1}'),
    *('{"self": 1, "ctx": {}}', '{"__class__": "x"}', '{"a\\u202eb": 1}', '"\\ud800"'),
)  # fmt: skip
# The tool is offered as one that takes text; its arguments are read, too.
PATCH = {
    "properties": {"patch": {}, "file_path": {}, "updated_content": {}},
    "required": ["file_path"],
}


def arguments_of(schema: dict[str, Any]) -> list[str]:
    """Return texts of arguments: each parameter with each value, beside what is required."""
    plain = {"integer": 1, "number": 1, "boolean": False, "array": ["a.py"], "object": {}}
    needed = {
        name: json.dumps(each.get("enum", [plain.get(str(each.get("type")), "a.py")])[0])
        for name, each in schema["properties"].items()
        if name in schema["required"]
    }
    filled = [needed | {name: value} for name in schema["properties"] for value in VALUES]
    return ["{" + ", ".join(f'"{k}": {v}' for k, v in each.items()) + "}" for each in filled]


@pytest.fixture
def traps():
    """A small project with names that block, lead nowhere or may not be looked up."""
    with open("a.py", "w", encoding="utf-8") as file:
        file.write("def f():\n    return 1\n")
    os.mkfifo("fifo")
    os.symlink("loop", "loop")
    os.symlink("/dev/zero", "zero")
    os.mkdir("closed", mode=0)
    yield
    os.chmod("closed", stat.S_IRWXU)


@pytest.mark.soak
@pytest.mark.parametrize("name", TOOLS)
def test_no_arguments_end_a_turn(name, traps):
    asked = ScriptedModel(["Hello."])
    Agent(asked, [name]).run_sync("Go.")
    (spec,) = (each.spec for each in asked.requests[0].tools)
    schema = PATCH if name == "apply_patch" else spec.parameters
    calls = [Call(name, text) for text in (*TEXTS, *arguments_of(schema))]
    agent = Agent(ScriptedModel([calls, "Done."]), [name], approval="never")
    result = agent.run_sync("Go.")
    assert (result.status, result.error) == ("completed", None)
    assert_valid(agent)
    for call, (_, output) in zip(calls, outputs(agent), strict=True):
        text = str(output)
        assert f"{name} raised" not in text, call.arguments[:300]
        text.encode()
