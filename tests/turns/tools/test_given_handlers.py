"""A handler with its spec is given to an agent like a function, offered and called like one."""

import json

import pytest

from agent_magics import Agent, Call, FatalError, RespondToModel, ScriptedModel
from agent_magics.approval.actions import Action, ActionKind
from agent_magics.dispatch.handlers.handed import HandledTool
from agent_magics.dispatch.handlers.registrations import source_of
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.dispatch.tool import ToolOptions
from agent_magics.protocol.events import ApprovalRequested
from agent_magics.protocol.tools import FunctionPayload, FunctionToolSpec, ToolOutput
from tests.support.turns import of_kind, outputs, scripted

PARAMETERS = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}


class Tickets:
    """Makes tickets in one queue."""

    kind = "ticket"
    supports_parallel = True
    action = None

    def __init__(self, name="ticket"):
        self.options = ToolOptions(name, parallel=True)
        self.spec = FunctionToolSpec(name, "Make a ticket.", PARAMETERS)
        self.made = []

    def matches_kind(self, payload):
        return isinstance(payload, FunctionPayload)

    def how_to_call(self):
        return "Call it as a function."

    def prepare(self, call, context):
        arguments = json.loads(call.payload.arguments)
        if not arguments.get("title"):
            raise RespondToModel("title: expected a text.")
        return ToolInvocation(call, context, (arguments["title"],))

    def assess(self, invocation):
        return [Action(ActionKind.OWN_TOOL_MUTATING, self.options.name)]

    def is_mutating(self, invocation):
        return True

    async def handle(self, invocation):
        self.made.append(invocation.args[0])
        return ToolOutput(f"made {invocation.args[0]}")


def offered(agent):
    return [each.spec.name for each in agent.turn_config().specs]


# -- given -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_pair", [False, True])
def test_a_model_calls_a_handler_like_a_function(as_pair):
    tickets = Tickets()
    given = (tickets.spec, tickets) if as_pair else tickets
    answers = Call("ticket", {"title": "Roof"}), Call("ticket", {}), "Done."
    agent = scripted(*answers, tools=["read_file", given])
    assert agent.run_sync("Go.").text == "Done."
    assert [each.spec.name for each in agent._models.given.requests[0].tools] == [
        "read_file",
        "ticket",
    ]
    assert [output for _, output in outputs(agent)] == ["made Roof", "title: expected a text."]
    assert tickets.made == ["Roof"]


def test_its_calls_are_judged_by_what_it_says_of_them():
    tickets, asked = Tickets(), []

    def deny(event):
        asked.append(event)
        return "deny"

    agent = scripted(
        Call("ticket", {"title": "Roof"}),
        "Done.",
        tools=[tickets],
        approval="untrusted",
        on_question=deny,
    )
    result = agent.run_sync("Go.")
    assert [each.tool for each in of_kind(result, ApprovalRequested)] == ["ticket"]
    assert (len(asked), tickets.made) == (1, [])


def test_it_is_registered_and_taken_away():
    agent, tickets = scripted(), Tickets()
    assert agent.register(tickets) is tickets
    assert agent.register((tickets.spec, tickets)) == (tickets.spec, tickets), "the same tool"
    assert agent.call_sync("ticket", {"title": "Roof"}).text == "made Roof"
    agent.unregister("ticket")
    assert offered(agent) == []


def test_one_alone_needs_no_list_and_twice_is_one():
    tickets = Tickets()
    assert offered(Agent(ScriptedModel([]), tickets)) == ["ticket"]
    agent = scripted(tools=[tickets, (tickets.spec, tickets)])
    assert offered(agent) == ["ticket"]
    assert agent.turn_config().registry is agent.turn_config().registry, "built once"


def test_code_sees_it_as_a_function_of_its_parameters():
    tickets = Tickets()
    turn_config = scripted(tools=["python", tickets]).turn_config(python="scratch")
    (description,) = (e.spec.description for e in turn_config.specs if e.spec.name == "python")
    assert "\nticket(title: str)" in description
    with pytest.raises(RuntimeError, match="answered by its handler"):
        turn_config.registry.functions["ticket"](title="Roof")


# -- two of one name -------------------------------------------------------------------------------


def test_two_of_one_name_are_an_error_that_names_both():
    def ticket() -> None:
        """Another."""

    agent, one = scripted(), Tickets()
    agent.register(one)
    for other in (Tickets(), ticket):
        with pytest.raises(FatalError, match="Two tools are named 'ticket'") as caught:
            agent.register(other)
        assert f"the handler {Tickets.__module__}.Tickets" in str(caught.value)
    assert source_of(HandledTool(one.spec, one)).endswith(".Tickets")


# -- what is none ----------------------------------------------------------------------------------


class Half:
    spec = Tickets().spec
    kind = "half"

    def handle(self, invocation):
        """Not all that a handler has."""


def renamed():
    tickets = Tickets()
    tickets.spec = FunctionToolSpec("other", "Other.", PARAMETERS)
    return tickets


def without_spec():
    tickets = Tickets()
    del tickets.spec
    return tickets


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (5, "A tool is a function, a ToolHandler with its spec, .* not 5"),
        (("ticket", Tickets()), "of type Tickets cannot be a tool without its FunctionToolSpec"),
        (without_spec(), "set its attribute spec, or give the pair"),
        (Half(), r"\(Half\) is no ToolHandler: it has no options, supports_parallel, action, "),
        ((Half.spec, len), r"builtin_function_or_method\) is no ToolHandler"),
        (renamed(), r"needs the options ToolOptions\('other'\), not ToolOptions\(name='ticket'"),
        (Tickets("a b"), "cannot be a tool's name"),
        (Tickets, "@tool takes a function, not <class"),
        ((1, 2, 3), r"not \(1, 2, 3\)"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_in_one_sentence(given, why):
    for give in (lambda: scripted(tools=[given]), lambda: scripted().register(given)):
        with pytest.raises(FatalError, match=why):
            give()
