"""What a first request holds: few tokens, and nothing about tools that are not offered."""

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.models.base import ModelRequest
from agent_magics.models.wires.responses.items import encode_tools
from agent_magics.tools import AGENTS, MEMORY, STRUCTURE, TOOL_SETS

LATER = {*AGENTS, *MEMORY, *STRUCTURE, "request_user_input"}
PLAIN = [name for name in TOOL_SETS["coding"] if name not in LATER]


def first_request(folder, tools: list[str], **settings) -> ModelRequest:
    (folder / "code.py").write_text("x = 1\n")  # symbols are offered where there is code
    model = ScriptedModel(["Hello."])
    with Agent(model, tools, cwd=folder, approval="never", **settings) as agent:
        agent.run_sync("Hi.")
    return model.requests[0]


@pytest.mark.parametrize(
    ("tools", "most"),
    [(PLAIN, 2_100), (["coding"], 4_000), (["data"], 4_700)],
    ids=["plain", "coding", "data"],
)
def test_a_first_request_stays_within_its_tokens(tools, most, tmp_path):
    request = first_request(tmp_path, tools)
    instructions = request.instructions.replace(str(tmp_path), "/home/someone")
    assert (len(instructions) + len(encode_tools(request.tools))) / 4 <= most


@pytest.mark.parametrize(
    ("tools", "python", "said"),
    [
        (["read_file"], "live", False),
        (["python"], "live", True),
        (["python"], "scratch", True),
        (["read_file"], "off", True),
    ],
)
def test_the_instructions_speak_of_python_where_it_is_offered_or_off(tools, python, said, tmp_path):
    request = first_request(tmp_path, tools, python=python)
    assert ("python tool" in request.instructions) is said
