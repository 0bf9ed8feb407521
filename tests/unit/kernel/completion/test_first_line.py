"""The table by which the page reads a first line is what the parser of ``%%agent`` says."""

import json
from pathlib import Path

import pytest

from agent_magics.kernel.cell.request.options import parse_options
from agent_magics.kernel.completion.cells import complete_cell
from agent_magics.kernel.magics import AgentMagics
from agent_magics.protocol.errors import FatalError

PARSER = AgentMagics.agent.parser
TABLE = Path(__file__).parents[4] / "labextension/test/prompts/first_lines.json"


@pytest.mark.parametrize(("source", "said"), json.loads(TABLE.read_text("utf-8")))
def test_the_page_reads_a_first_line_as_the_kernel(source: str, said: dict[str, str]) -> None:
    line = source.split("\n")[0].removeprefix("%%agent")
    if "" in said.values():
        with pytest.raises(FatalError, match="is empty"):
            parse_options(PARSER, line)
        return
    options = vars(parse_options(PARSER, line))
    names = ("model", "approval", "name")
    assert {name: options[name] for name in names if options[name] is not None} == said


def test_the_names_of_the_agents_are_offered() -> None:
    code = "%%agent --name "
    _, found = complete_cell(code, len(code), PARSER, {}, agents=("default", "trial"))
    assert [each.text for each in found] == ["default", "trial"]


@pytest.mark.parametrize(
    ("address", "offers"),
    [
        (None, True),
        ("https://openrouter.ai/api/v1", True),
        ("http://localhost:11434/v1", False),
        ("https://models.example.org/v1", False),
        ("no address", False),
    ],
    ids=["default", "a company's", "on this machine", "one's own", "none"],
)
@pytest.mark.parametrize("by", ["notebook", "environment"])
def test_models_of_the_catalogue_are_offered_only_where_they_may_be(
    address: str | None, offers: bool, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, given = "%%agent --model gpt-5", {}
    if address and by == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", address)
    elif address:
        given = {"base_url": address}
    _, found = complete_cell(code, len(code), PARSER, {}, given=given)
    assert bool(found) == offers


@pytest.mark.parametrize("value", ['""', "''", "' '", ","])
def test_an_empty_value_is_refused_and_not_taken_for_none(value: str) -> None:
    options = {action.dest: action for action in PARSER._actions if action.nargs in (None, "+")}
    taken = [name for name, each in options.items() if not (each.choices or each.type)]
    assert {"map", "tools", "name", "model", "replay", "prompt"} <= {*taken}
    for name in taken:
        option = f"--{name.replace('_', '-')}"
        with pytest.raises(FatalError, match=f"{option} is empty"):
            parse_options(PARSER, f"{option} {value}")
