"""Results, budgets and costs as a notebook has them: options of the magic, `%agent usage`."""

from collections.abc import Iterator

import pytest

from tests.support.kernels.cells import scripted
from tests.support.kernels.driver import Kernel

GOOD = '\'{"value": [{"month": "2024-03", "total": 3}]}\''
BAD = '\'{"value": [{"month": "2024-03"}]}\''
TABLE = '\'{"columns": [{"name": "n", "type": "integer"}], "rows": [[1], [2]]}\''
ROW = "from pydantic import BaseModel\nclass Row(BaseModel):\n    month: str\n    total: int\n"
PLAN = 'Call("update_plan", {"steps": []})'

# A model that counts its tokens, which scripts do not.
COUNTING = """
from agent_magics.models.base import ItemDone, ResponseDone
from agent_magics.protocol.items import AssistantMessage, FunctionCall, Usage


class CountingModel:
    source, name = "script", {name!r}

    def __init__(self, *items):
        self.items = list(items)

    async def stream(self, request):
        yield ItemDone(self.items.pop(0))
        yield ResponseDone(Usage(10_000, 50, 4_000, 20))

    async def close(self):
        pass
"""
COUNT = (
    "%load_ext agent_magics\n"
    "get_ipython().magics_manager.registry['AgentMagics'].agents['default'] = "
    "__import__('agent_magics').Agent(CountingModel({items}))\n"
)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("results"))) as kernel:
        assert kernel.run(ROW).status == "ok"
        yield kernel


def _prepare(kernel: Kernel, *turns: str) -> None:
    outcome = kernel.run("%reload_ext agent_magics\n" + scripted(*turns))
    assert outcome.status == "ok", outcome.text


def _count(kernel: Kernel, name: str, *items: str) -> None:
    """Give the default agent a model called `name` that says `items`."""
    settings = f"%config AgentMagics.model = {name!r}\n"
    code = "%reload_ext agent_magics\n" + settings + COUNTING.format(name=name)
    outcome = kernel.run(code + COUNT.format(items=", ".join(items)))
    assert outcome.status == "ok", outcome.text


@pytest.fixture(autouse=True)
def _default_model(kernel: Kernel) -> Iterator[None]:
    yield
    kernel.run("%reload_ext agent_magics\n%config AgentMagics.model = 'gpt-5.5'")


@pytest.mark.parametrize("nested", [False, True])
def test_the_answer_is_bound_as_the_type_says(kernel: Kernel, nested: bool) -> None:
    _prepare(kernel, GOOD)
    kernel.run("rows = None")
    head = "%%capture\n" if nested else ""
    outcome = kernel.run(head + '%%agent --into rows --output "list[Row]"\nGo.\n')
    assert outcome.status == "ok", outcome.text
    assert kernel.value("rows") == "[Row(month='2024-03', total=3)]"
    assert kernel.value("_agent.value == rows") == "True"


def test_a_frame_is_bound(kernel: Kernel) -> None:
    _prepare(kernel, TABLE)
    assert kernel.run("import pandas as pd").status == "ok"
    outcome = kernel.run("%%agent --into df --output pd.DataFrame\nGo.\n")
    assert outcome.status == "ok", outcome.text
    assert kernel.value("(type(df).__name__, df['n'].tolist())") == "('DataFrame', [1, 2])"


def test_an_answer_that_is_not_mended_fails_the_cell_and_is_kept(kernel: Kernel) -> None:
    _prepare(kernel, BAD, BAD)
    kernel.run("rows = 'before'")
    outcome = kernel.run("%%agent --into rows --output 'list[Row]'\nGo.\n")
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert "value[0].total: expected an integer, got nothing" in outcome.text
    assert kernel.value("rows") == "before"
    assert "2024-03" in kernel.value("_agent.text")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("list[Nowhere]", "NameError"),
        ("42", "is no type"),
        ("list[", "SyntaxError"),
        ("None", "is no type"),
    ],
)
def test_what_is_no_type_is_said_before_anything_runs(
    kernel: Kernel, expression: str, said: str
) -> None:
    _prepare(kernel, GOOD)
    outcome = kernel.run(f'%%agent --output "{expression}"\nGo.\n')
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert said in outcome.text
    assert "Traceback" not in outcome.text
    assert kernel.run("%%agent --output 'list[Row]'\nGo.\n").status == "ok"


def test_a_budget_ends_the_cell_politely(kernel: Kernel) -> None:
    _prepare(kernel, PLAN, repr("Not much was done."))
    outcome = kernel.run("%%agent --max-turns 1\nGo.\n")
    assert outcome.status == "ok", outcome.text
    [notice] = outcome.items_of("notice")
    assert "max_turns=1" in notice["text"]
    assert outcome.items_of("text")[-1]["text"] == "Not much was done."
    assert kernel.value("_agent.budget") == "max_turns=1"


def test_a_budget_leaves_the_variable_as_it_was(kernel: Kernel) -> None:
    _prepare(kernel, PLAN, repr("Not much was done."))
    kernel.run("rows = 'before'")
    outcome = kernel.run("%%agent --max-turns 1 --into rows --output 'list[Row]'\nGo.\n")
    assert outcome.status == "ok", outcome.text
    assert "no value" in outcome.items_of("notice")[-1]["text"]
    assert kernel.value("rows") == "before"


def test_the_last_line_and_the_table_say_what_it_cost(kernel: Kernel) -> None:
    _count(kernel, "gpt-5.5", 'FunctionCall("c", "update_plan", "{}")', 'AssistantMessage("Hi.")')
    outcome = kernel.run("%%agent\nGo.\n")
    assert outcome.status == "ok", outcome.text
    cost = outcome.items[-1]["cost"]
    assert outcome.items[-1]["kind"] == "usage"
    assert cost.endswith(" USD")
    assert cost in outcome.outputs[-1]["data"]["text/plain"]
    table = kernel.run("%agent usage").items[-1]["text"]
    for words in ("20,000", "8,000", cost, "of 1,050,000", "1.0%", "update_plan", "estimate"):
        assert words in table, table


def test_a_price_that_is_not_known_is_said(kernel: Kernel) -> None:
    _count(kernel, "my-model", 'AssistantMessage("Hi.")')
    outcome = kernel.run("%%agent\nGo.\n")
    assert outcome.status == "ok", outcome.text
    assert outcome.items[-1]["cost"] == "price of my-model not known"
    table = kernel.run("%agent usage").items[-1]["text"]
    assert "price of `my-model` not known" in table
    assert "window of `my-model` not known" in table
    kernel.run("%config AgentMagics.context_window = 100_000")
    kernel.run("%%agent\nGo on.\n")
    table = kernel.run("%agent usage").items[-1]["text"]
    kernel.run("%config AgentMagics.context_window = None")
    assert "of 100,000" in table
    refused = kernel.run("%%agent --max-cost 1\nGo.\n")
    assert (refused.status, refused.error) == ("error", "UsageError")
    assert "the price of my-model is not known" in refused.text


def test_cost_and_tokens_are_options_and_settings(kernel: Kernel) -> None:
    call = 'FunctionCall("c", "update_plan", "{}")'
    for head, reached in (
        ("%%agent --max-cost 0.001", "max_cost=0.001"),
        ("%%agent --max-tokens 100", "max_tokens=100"),
    ):
        _count(kernel, "gpt-5.5", call, 'AssistantMessage("Summed up.")')
        outcome = kernel.run(head + "\nGo.\n")
        assert outcome.status == "ok", outcome.text
        assert reached in outcome.items_of("notice")[0]["text"]
    _count(kernel, "gpt-5.5", call, 'AssistantMessage("Summed up.")')
    kernel.run("%config AgentMagics.max_cost = 0.002")
    outcome = kernel.run("%%agent\nGo.\n")
    kernel.run("%config AgentMagics.max_cost = None")
    assert "max_cost=0.002" in outcome.items_of("notice")[0]["text"]


def test_nothing_asked_yet(kernel: Kernel) -> None:
    kernel.run("%reload_ext agent_magics")
    assert "No agent has run yet" in kernel.run("%agent usage").items[-1]["text"]
