"""Law: no object ends a turn, whatever its class does; at most its own call fails."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from agent_magics import Abort, Block, Call, FatalError, RespondToModel, ToolContext, tool
from agent_magics.kernel.live.displayed import read_display
from agent_magics.kernel.live.namespace import interpolate
from agent_magics.protocol import events
from agent_magics.protocol.codec import to_json
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from tests.support.turns import outputs, scripted

ERRORS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, ValueError)
# Members that converting, comparing, recording or drawing may call; the last are ours.
MEMBERS = (
    *("__class__", "__getattribute__", "__repr__", "__str__", "__len__", "__iter__", "__bool__"),
    *("__eq__", "__getitem__", "__format__", "items", "isoformat", "model_dump", "to_output"),
)
OF_METACLASSES = ("__eq__", "__hash__", "__getattribute__", "__instancecheck__", "__repr__")


def raiser(error: type[BaseException]) -> Any:
    def raises(*_: Any, **__: Any) -> Any:
        raise error("no")

    return raises


def hostile(error: type[BaseException]) -> Iterator[Any]:
    """Yield objects whose members raise `error`: of their own, of builtin and of odd classes."""
    raises = raiser(error)
    for made in ((), ("text",), ({"a": 1},)):
        base = type(made[0]) if made else object
        for name in MEMBERS:
            member = property(raises) if name == "__class__" else raises
            yield type("Hostile", (base,), {name: member})(*made)
    for name in OF_METACLASSES:
        yield type("Meta", (type,), {name: raises})("OfMeta", (), {})()


def tools_around(values: list[Any]) -> list[Any]:
    """Return tools by which the last value reaches the machinery of a turn, a way each."""

    @tool
    def returned() -> Any:
        """Return it."""
        return values[-1]

    @tool
    def in_a_list() -> Any:
        """Return it among others."""
        return [InputText("a"), values[-1], {"b": values[-1]}]

    @tool
    def content() -> Any:
        """Return it as content."""
        return ToolOutput(values[-1])

    @tool
    def part() -> Any:
        """Return it as the text of a part, and as the address of a picture."""
        return [InputText(values[-1]), InputImage(values[-1], values[-1])]

    @tool
    def details() -> Any:
        """Return it for people."""
        return ToolOutput("a", details={"b": values[-1]})

    @tool
    def all_details() -> Any:
        """Return it as all that is for people."""
        return ToolOutput("a", details=values[-1])

    @tool
    def updates(ctx: ToolContext) -> str:
        """Report it."""
        value = values[-1]
        for report in ({"title": value}, {"progress": value}, {"metadata": {"a": value}}):
            try:
                ctx.update(**report)
            except BaseException:
                continue
        return "a"

    return [returned, in_a_list, content, part, details, all_details, updates]


@pytest.mark.soak
@pytest.mark.parametrize("error", [SystemExit, ValueError])
def test_no_object_that_a_tool_returns_or_reports_ends_the_turn(error):
    given: list[Any] = []
    tools = tools_around(given)
    calls = [Call(each.tool_options.name) for each in tools]
    values = list(hostile(error))
    agent = scripted(*[calls, "Done."] * len(values), tools=tools)
    for value in values:
        given.append(value)
        result = agent.run_sync("Go.")
        assert (result.status, result.error) == ("completed", None)
        assert [type(call.output) for call in result.calls] == [str] * len(calls)


@pytest.mark.parametrize("error", [ValueError, RespondToModel])
def test_an_error_that_no_message_carries_is_told_with_its_odd_letters_written_out(error):
    @tool
    def reads() -> str:
        """Fail."""
        raise error("bad \udcff byte")

    agent = scripted(Call("reads"), "Done.", tools=[reads])
    assert agent.run_sync("Go.").status == "completed"
    ((_, told),) = outputs(agent)
    assert "bad \\udcff byte" in told and told.isascii()


@pytest.mark.parametrize("error", ERRORS)
def test_a_failing_assessment_refuses_its_own_call_alone(error):
    @tool(assess=raiser(error))
    def assessed() -> str:
        """Never run."""
        raise AssertionError

    @tool(assess=lambda arguments, context: ["nonsense"])
    def nonsense() -> str:
        """Never run."""
        raise AssertionError

    @tool(mutating=raiser(error))
    def changing() -> str:
        """Run."""
        return "ran"

    agent = scripted(
        [Call("assessed"), Call("nonsense"), Call("changing")],
        "Done.",
        tools=[assessed, nonsense, changing],
    )
    assert agent.run_sync("Go.").status == "completed"
    refused, odd, ran = (output for _, output in outputs(agent))
    assert refused == f"assessed was not run: its `assess` failed ({error.__name__}: no)."
    assert "has to return a list of Action" in odd
    assert ran == "ran"


@pytest.mark.parametrize("error", [each for each in ERRORS if each is not ValueError])
def test_a_failing_validator_of_an_answer_is_named(error):
    class Answer(BaseModel):
        a: int

        @model_validator(mode="after")
        def check(self) -> Any:
            raise error("no")

    result = scripted('{"a": 1}').run_sync("Go.", output=Answer)
    assert result.error.startswith(f"A validator of Answer failed itself ({error.__name__}: no)")


@pytest.mark.parametrize("error", ERRORS)
def test_any_object_stands_in_a_prompt_as_text(error):
    for value in hostile(error):
        assert type(interpolate("About {{x}}.", {"x": value})) is str


def test_an_expression_of_a_prompt_that_exits_is_named():
    with pytest.raises(FatalError, match="raised SystemExit: 3"):
        interpolate("About {{exits()}}.", {"exits": lambda: sys.exit(3)})


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", [RespondToModel, FatalError])
def test_a_refusal_of_a_tool_says_what_it_can(kind, error):
    of_mine = type("Mine", (kind,), {"__str__": raiser(error)})
    given = []

    @tool
    def refuse() -> str:
        """Refuse."""
        raise given[-1]

    for refusal in (of_mine("a"), kind(type("Said", (), {"__str__": raiser(error)})())):
        given.append(refusal)
        agent = scripted(Call("refuse"), "Done.", tools=[refuse])
        result = agent.run_sync("Go.")
        said = outputs(agent)[0][1] if kind is RespondToModel else result.error
        assert said == f"<its message raised {error.__name__}>"


@pytest.mark.parametrize("answer", [Block, Abort])
@pytest.mark.parametrize("moment", ["before_tool", "after_tool"])
def test_the_reason_of_a_hook_says_what_it_can(moment, answer):
    @tool
    def look() -> str:
        """Look."""
        return "looked"

    reason = answer(type("Said", (), {"__str__": raiser(SystemExit)})())
    hook = type("Mine", (), {moment: lambda *_: reason})()
    agent = scripted(Call("look"), "Done.", tools=[look], hooks=[hook])
    (end,) = [e for e in agent.run_sync("Go.").events if isinstance(e, events.TURN_ENDS)]
    said = outputs(agent)[0][1] if answer is Block else end.reason
    assert said.removesuffix(".").endswith(": <its message raised SystemExit>")


def test_a_refusal_is_as_short_as_an_output():
    said = "a" * 100_000

    @tool
    def refuse() -> str:
        """Refuse."""
        raise RespondToModel(said)

    @tool
    def give_up() -> str:
        """End it all."""
        raise FatalError(said)

    hook = type("Mine", (), {"after_tool": lambda *_: Block(said)})()
    for budget, hooks in ((4_000, ()), (20, ()), (20, (hook,))):
        agent = scripted(Call("refuse"), "Done.", tools=[refuse], output_budget=budget, hooks=hooks)
        agent.run_sync("Go.")
        most = 10_200 if hooks else max(budget, 1_000) + 50
        assert len(outputs(agent)[0][1]) < most
    assert len(scripted(Call("give_up"), tools=[give_up]).run_sync("Go.").error) < 10_100


async def _later() -> str:
    await asyncio.sleep(0)
    return "later"


async def _steps() -> Any:
    yield 0.5
    yield "later"


@pytest.mark.parametrize("make", [_later, _steps])
@pytest.mark.parametrize("parallel", [False, True])
def test_what_a_plain_function_leaves_to_be_awaited_is_awaited(make, parallel):
    @tool(parallel=parallel)
    def start() -> Any:
        """Begin."""
        return make()

    for run in (type(scripted("")).run_sync, lambda a, text: asyncio.run(a.run(text))):
        agent = scripted(Call("start"), "Done.", tools=[start])
        run(agent, "Go.")
        assert outputs(agent)[0][1] == "later"


def test_no_text_of_a_tool_holds_what_no_message_can_carry():
    lone = "a\ud800"

    @tool
    def speak(ctx: ToolContext) -> Any:
        """Speak."""
        ctx.update(title=lone, metadata={lone: [lone]})
        return ToolOutput(lone, details={lone: [lone]})

    result = scripted(Call("speak"), "Done.", tools=[speak]).run_sync("Go.")
    for event in result.events:
        json.dumps(to_json(event), ensure_ascii=False, default=str).encode("utf-8")


def test_what_live_code_displays_can_be_published():
    assert read_display({"text/plain": "a\ud800", "image/png": "\ud800"}).mime == ""
    assert read_display({"text/plain": "a\ud800"}).plain == "a\\ud800"
    assert read_display({"text/plain": 5, "image/png": 5}) == ("5", "", "")
