"""`@tool`: the function stays the same function; everything else comes when it is looked at."""

import asyncio
import inspect
import math
import pickle
from typing import Annotated

import pytest
from pydantic import Field

from agent_magics.app import Agent
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import as_tool, is_tool, offered_specs, tool
from agent_magics.models.recordings.scripted import ScriptedModel
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import FreeformToolSpec, FunctionToolSpec
from agent_magics.tools import READ_ONLY
from tests.support.turns import run_script


@tool
def revenue(month: str, limit: Annotated[int, Field(ge=1)] = 100) -> str:
    """Revenue rows of one month.

    Args:
        month: ISO month, such as 2024-03.
        limit: most rows to return.
    """
    return f"{month} {limit}"


def plain(x: int, *, ctx: ToolContext | None = None) -> int:
    """Plain."""
    return x


async def awaited(x: int) -> int:
    """Awaited."""
    return x


def test_the_same_object_comes_back():
    before = (plain.__doc__, inspect.signature(plain), plain.__qualname__)
    assert tool(plain) is plain
    assert tool(name="other")(plain) is plain
    assert (plain.__doc__, inspect.signature(plain), plain.__qualname__) == before
    assert plain(3) == 3


def test_it_is_picklable_like_any_function_of_a_module():
    assert pickle.loads(pickle.dumps(revenue)) is revenue


def test_the_spec_says_what_the_function_says():
    spec = revenue.spec
    assert isinstance(spec, FunctionToolSpec)
    assert spec.name == "revenue"
    assert spec.description == "Revenue rows of one month."
    assert spec.parameters["required"] == ["month"]
    assert spec.parameters["properties"]["month"] == {
        "type": "string",
        "description": "ISO month, such as 2024-03.",
    }
    assert spec.parameters["properties"]["limit"]["minimum"] == 1
    assert spec.strict


def test_the_context_is_no_part_of_the_schema():
    assert list(tool(plain).spec.parameters["properties"]) == ["x"]


def test_the_context_is_handed_in_under_whatever_name():
    @tool
    def named(x: int, here: ToolContext) -> str:
        """Use the context."""
        return f"{here.name} {here.call_id[:5]} {x}"

    agent = Agent(ScriptedModel([]), [named], approval="never")
    assert agent.call_sync("named", {"x": 1}).text == "named call_ 1"
    refused = agent.call_sync("named", {"x": 1, "here": "mine"})
    assert not refused.success
    assert "not a parameter" in refused.text


def test_strict_may_be_switched_off():
    @tool(strict=False)
    def loose(x: int) -> int:
        """Loose."""
        return x

    assert not loose.spec.strict
    assert "strict=False" in loose.spec.strict_reason


def test_a_spec_has_no_other_fields():
    with pytest.raises(AttributeError):
        _ = revenue.spec.nonsense


def test_a_spec_is_shown_also_where_it_cannot_be_made():
    @tool
    def send(data: bytes) -> None:
        """Send."""

    assert repr(send.tool_options) and repr(send.spec) == "FunctionToolSpec('send')"
    with pytest.raises(FatalError, match="JSON has no bytes"):
        send.spec.parameters  # noqa: B018 - derived when it is looked at


@pytest.mark.soak
def test_pydantic_comes_only_when_a_spec_is_looked_at():
    code = """
import datetime, sys
from agent_magics import tool

@tool
def f(x: int, day: datetime.date = None) -> int:
    "Do."
    return x

assert f(1) == 1 and f.spec.name == "f"
assert "pydantic" not in sys.modules and "pydantic_core" not in sys.modules
f.spec.parameters
assert "pydantic_core" in sys.modules
"""
    run_script(code, "-W", "error")


def test_aio_is_a_coroutine_of_sync_and_async_functions():
    assert asyncio.run(tool(plain).aio(4)) == 4
    assert asyncio.run(tool(awaited).aio(5)) == 5
    assert awaited.aio is awaited


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 65, "a.b"])
def test_a_name_that_no_provider_takes_is_refused(name):
    with pytest.raises(FatalError, match="cannot be a tool's name"):
        tool(name=name or " ")(plain)


@pytest.mark.parametrize("name", ["a", "A-b_9", "a" * 64])
def test_names_that_fit(name):
    @tool(name=name)
    def f() -> None:
        """Do."""

    assert f.spec.name == name


def test_a_lambda_needs_a_name():
    with pytest.raises(FatalError, match="<lambda>"):
        tool(lambda: 1)
    assert tool(name="one")(lambda: 1).spec.name == "one"


@pytest.mark.parametrize("value", [42, "text", int, math.sqrt, [].append])
def test_what_cannot_be_a_tool_is_refused_in_one_sentence(value):
    with pytest.raises(FatalError, match="small def"):
        tool(value)


def test_as_tool_and_is_tool():
    def fresh() -> None:
        """Do."""

    assert not is_tool(fresh)
    assert as_tool(fresh) is fresh
    assert is_tool(fresh)
    options = fresh.tool_options
    assert as_tool(fresh).tool_options is options
    assert not is_tool(object())


def test_defaults_are_careful():
    options = revenue.tool_options
    assert (options.parallel, options.mutating, options.strict, options.inline) == (
        *(False, True, True, False),
    )


def test_a_freeform_tool_is_offered_with_its_grammar():
    @tool(freeform=("lark", "start: /.+/"))
    def patch(text: str) -> str:
        """Patch."""
        return text

    assert offered_specs(patch) == FreeformToolSpec("patch", "Patch.", "lark", "start: /.+/")
    assert offered_specs(revenue) is revenue.spec


def test_two_tools_with_one_name_are_refused_when_the_agent_is_made():
    @tool(name="revenue")
    def other() -> None:
        """Do."""

    with pytest.raises(FatalError, match="Two tools are named 'revenue'"):
        Agent(ScriptedModel([]), [revenue, other])


def test_the_same_tool_twice_is_one_tool():
    agent = Agent(ScriptedModel([]), [revenue, "read_file", revenue, "read-only"])
    names = [fn.tool_options.name for fn in agent.tools]
    assert names == ["revenue", "read_file", *READ_ONLY[1:]]
