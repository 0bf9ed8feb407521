"""The table by which the page reads a first line is what the parser of ``%%agent`` says."""

import json
from pathlib import Path

import pytest

from agent_magics.kernel.cell.request.options import parse_options
from agent_magics.kernel.completion.cells import complete_cell
from agent_magics.kernel.magics import AgentMagics

PARSER = AgentMagics.agent.parser
TABLE = Path(__file__).parents[4] / "labextension/test/first_lines.json"


@pytest.mark.parametrize(("source", "said"), json.loads(TABLE.read_text("utf-8")))
def test_the_page_reads_a_first_line_as_the_kernel(source: str, said: dict[str, str]) -> None:
    line = source.split("\n")[0].removeprefix("%%agent")
    options = vars(parse_options(PARSER, line))
    names = ("model", "approval", "name")
    assert {name: options[name] for name in names if options[name] is not None} == said


def test_the_names_of_the_agents_are_offered() -> None:
    code = "%%agent --name "
    _, found = complete_cell(code, len(code), PARSER, {}, agents=("default", "trial"))
    assert [each.text for each in found] == ["default", "trial"]
