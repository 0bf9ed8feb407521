"""What the model reads of one output fits the budget, and what it does not read has a name."""

from dataclasses import dataclass, make_dataclass
from typing import Any

import pandas as pd
import pytest

from agent_magics import Agent, InputText, ScriptedModel, tool
from agent_magics.dispatch.results.cutting import encodable
from agent_magics.dispatch.results.json_text import encoded_text
from agent_magics.protocol.tools import ToolOutput

# Beside the budget: a line that says how much is missing, and one that names what is stored.
SPARE = 1_000


@dataclass
class Speaking:
    """Converts itself."""

    said: str

    def to_output(self, budget: int) -> ToolOutput:
        return ToolOutput(self.said)


def read(value: Any, budget: int, *, batched: bool = False) -> tuple[str, Any]:
    """Return what the model reads of a result, and what is stored under the name it reads."""

    @tool(mutating=False)
    def give() -> Any:
        """Give it."""
        return value

    tools = [give, "batch"]
    with Agent(ScriptedModel([]), tools, approval="never", output_budget=budget) as agent:
        calls = {"calls": [{"tool": "give", "arguments": {}}]}
        output = agent.call_sync(*(("batch", calls) if batched else ("give", {})))
        handles = agent.session.conversation.handles
        named = "[@r1: " in output.text
        return output.text, handles.value_of("@r1") if named else None


TEXTS = {
    "lines": "\n".join(f"l{number:03d} {'y' * 190}" for number in range(10)),
    "a few": "\n".join(map(str, range(30))),
    "one line": "z" * 2_500,
}
LONG = "T" * 100_000
WORDS = [f"w{number}" for number in range(20_000)]
FORMS: dict[str, Any] = {
    "text": lambda text: text,
    "output": ToolOutput,
    "part": InputText,
    "output of parts": lambda text: ToolOutput((InputText(text), InputText("end"))),
    "speaking": Speaking,
    "list": lambda text: text.split("\n"),
    "dict": lambda text: {"a": {"b": text}},
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("budget", [100, 1_000, 1_950, 3_000])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_result_is_read_whole_or_has_a_name(form, text, budget, batched):
    told, stored = read(FORMS[form](TEXTS[text]), budget, batched=batched)
    lines = encodable(TEXTS[text]).split("\n")
    if stored is None:
        assert all(line in told for line in lines)
    else:
        whole = encodable(stored) if isinstance(stored, str) else encoded_text(stored)
        assert all(line in whole for line in lines)


HOSTILE: dict[str, Any] = {
    "a column's name": lambda: pd.DataFrame({"c" * 200_000: [1, 2]}),
    "many columns": lambda: pd.DataFrame({f"{'c' * 20_000}{n}": [1] for n in range(30)}),
    "a category": lambda: pd.DataFrame({"a": pd.Categorical(["c" * 100_000] * 2)}),
    "a class": lambda: type(LONG, (), {})(),
    "a class inside": lambda: [type(LONG, (), {})()] * 100,
    "a dataclass": lambda: make_dataclass(LONG, ["a"])(object()),
    "an enum": lambda: {"a": type(LONG, (int,), {})(5)},
    "parts": lambda: ToolOutput(tuple(map(InputText, WORDS))),
    "empty parts": lambda: ToolOutput((InputText(""),) * 20_000),
    "a list of parts": lambda: [InputText("x" * 5_000)] * 8,
    "half characters": lambda: "\ud800" * 20_000,
    "half characters in parts": lambda: ToolOutput((InputText("\ud800" * 5_000),) * 5),
    "a name and half characters": lambda: {"\ud800" * 20_000: 1},
}


@pytest.mark.parametrize("budget", [100, 1_000, 10_000])
@pytest.mark.parametrize("case", HOSTILE)
def test_no_result_takes_more_than_the_budget(case, budget):
    told, _ = read(HOSTILE[case](), budget)
    assert len(told) <= max(budget, 1_600) * 9 // 8 + SPARE


def test_what_is_told_of_an_error_is_within_the_budget():
    @tool(mutating=False)
    def fail() -> Any:
        """Fail."""
        raise type(LONG, (Exception,), {})("z" * 100_000)

    with Agent(ScriptedModel([]), [fail], approval="never", output_budget=1_000) as agent:
        assert len(agent.call_sync("fail", {}).text) <= 1_000 + SPARE
