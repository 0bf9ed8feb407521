"""Tools that join and leave while an agent lives; two of one name are an error that says where."""

import threading

import pytest

from agent_magics import Agent, Call, DynamicToolSpec, FatalError, ScriptedModel, tool
from agent_magics.dispatch.handlers.registrations import is_same_tool, join_tools, source_of
from agent_magics.protocol.ops import RegisterTools
from agent_magics.tools import read_file
from tests.support.turns import PATIENCE, scripted


def plain(x: int) -> int:
    """Plain."""
    return x + 1


def offered(agent: Agent) -> list[list[str]]:
    """Return the names that each request offered."""
    requests = agent._models.given.requests
    return [[each.spec.name for each in request.tools] for request in requests]


def define(code: str, module: str = "__main__") -> dict:
    """Run a cell and return its names."""
    namespace = {"__name__": module, "tool": tool}
    exec(compile(code, "<cell>", "exec"), namespace)
    return namespace


def test_a_registered_tool_is_offered_and_can_be_called():
    agent = scripted("Done.")
    assert agent.register(plain) is plain
    agent.run_sync("Go.")
    assert offered(agent) == [["plain"]]
    assert agent.call_sync("plain", {"x": 1}).text == "2"


def test_register_is_a_decorator_too():
    agent = scripted()

    @agent.register
    def mine() -> str:
        """Mine."""
        return "mine"

    assert mine() == "mine"
    assert agent.call_sync("mine").text == "mine"


def test_it_holds_from_the_next_turn_on():
    agent = scripted(lambda request: Call("grow"), "Done.", "Again.")

    @agent.register
    @tool(parallel=True)
    def grow() -> str:
        """Grow."""
        agent.register(plain)
        agent.unregister("grow")
        return "grown"

    agent.run_sync("Go.")
    agent.run_sync("Go.")
    assert offered(agent) == [["grow"], ["grow"], ["plain"]]


def test_unregistered_tools_are_gone_and_can_come_back():
    agent = scripted(tools=["read_file"])
    agent.register(plain)
    agent.unregister("plain")
    agent.unregister("read_file")
    assert "no tools are offered" in agent.call_sync("plain", {"x": 1}).text
    agent.register(plain)
    agent.register(read_file)
    assert agent.call_sync("plain", {"x": 1}).success
    assert agent.call_sync("read_file", {"path": "nowhere"}).text == "There is no nowhere."


def test_what_is_not_there_cannot_be_taken_away():
    with pytest.raises(FatalError, match="has no tool named 'plain'"):
        scripted().unregister("plain")


def test_a_callback_belongs_to_data():
    with pytest.raises(FatalError, match="belong to a DynamicToolSpec"):
        scripted().register(plain, lambda arguments: None)


# -- two of one name -------------------------------------------------------------------------------


def test_two_of_one_name_are_an_error_that_names_both_places():
    agent = scripted()
    agent.register(plain)

    @tool(name="plain")
    def other() -> None:
        """Other."""

    with pytest.raises(FatalError) as caught:
        agent.register(other)
    for fn in (plain, other):
        assert f"{__file__}:{fn.__code__.co_firstlineno}" in str(caught.value)
    assert agent.call_sync("plain", {"x": 1}).text == "2", "the first one stays"


def test_a_built_in_tool_is_not_replaced_by_chance():
    @tool(name="read_file")
    def mine() -> None:
        """Mine."""

    agent = scripted("Done.", tools=["read_file"])
    agent.register(mine)
    result = agent.run_sync("Go.")
    assert result.status == "failed"
    assert "a built-in tool" in result.error
    assert __file__ in result.error


def test_names_of_the_constructor_are_checked_at_once():
    @tool(name="plain")
    def other() -> None:
        """Other."""

    with pytest.raises(FatalError, match="Two tools are named 'plain'"):
        Agent(ScriptedModel([]), [plain, other])


# -- defined again ---------------------------------------------------------------------------------

CELL = "@tool\ndef version() -> int:\n    'Tell.'\n    return {}\n"


def test_a_function_defined_again_takes_its_own_place():
    first, second = (define(CELL.format(n))["version"] for n in (1, 2))
    agent = scripted()
    agent.register(first)
    agent.register(plain)
    agent.register(second)
    assert agent.call_sync("version").text == "2"
    names = [t.tool_options.name for t in agent.session.registrations.tools]
    assert names == ["version", "plain"]


def test_the_newer_definition_holds_wherever_it_stands():
    first, second = (define(CELL.format(n))["version"] for n in (1, 2))
    assert join_tools([second], [first]) == (second,)
    assert join_tools([first], [tool(plain)], [second]) == (second, plain)


def test_what_only_looks_alike_is_another_tool():
    def make(n):
        @tool(name="made")
        def made() -> int:
            """Make."""
            return n

        return made

    assert not is_same_tool(make(1), make(2))
    assert not is_same_tool(
        define(CELL.format(1), "a")["version"], define(CELL.format(1), "b")["version"]
    )
    lambdas = [tool(name="it")(lambda: 1), tool(name="it")(lambda: 2)]
    assert not is_same_tool(*lambdas)
    assert is_same_tool(lambdas[0], lambdas[0])


def test_a_source_is_what_a_person_finds():
    assert source_of(read_file) == "a built-in tool"
    assert source_of(tool(plain)) == f"{__file__}:{plain.__code__.co_firstlineno}"
    cell = define(CELL.format(1))["version"]
    assert source_of(cell) == "version in the notebook (line 1 of its cell)"


# -- by ops ----------------------------------------------------------------------------------------


def test_a_client_registers_and_takes_away_by_op():
    agent = scripted("One.", "Two.")
    spec = DynamicToolSpec("ticket", "Make a ticket.", {"properties": {"title": {}}})
    agent.session.submit(RegisterTools(add=(spec,)))
    agent.call_sync("nothing")  # ops are done in order: it has been heard
    agent.run_sync("Go.")
    agent.session.submit(RegisterTools(remove=("ticket",)))
    agent.call_sync("nothing")
    agent.run_sync("Go.")
    assert offered(agent) == [["ticket"], []]


# -- from many threads -----------------------------------------------------------------------------


def test_many_threads_register_and_take_away_at_once():
    agent = scripted(*["Done."] * 50)
    errors, start = [], threading.Barrier(9)

    def work(number):
        try:
            start.wait(PATIENCE)
            for n in range(40):
                name = f"t{number}_{n}"
                agent.register(DynamicToolSpec(name, "T."), lambda arguments: "ok")
                assert name in [t.tool_options.name for t in agent.session.registrations.tools]
                if n % 2:
                    agent.unregister(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    start.wait(PATIENCE)
    for _ in range(20):
        assert agent.run_sync("Go.").status == "completed"
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    left = {t.tool_options.name for t in agent.session.registrations.tools}
    assert left == {f"t{number}_{n}" for number in range(8) for n in range(0, 40, 2)}


def test_of_two_threads_with_one_name_one_is_told():
    agent = scripted()
    results, start = [], threading.Barrier(8)

    def work(number):
        start.wait(PATIENCE)
        try:
            agent.register(DynamicToolSpec("same", f"{number}."), lambda arguments: number)
            results.append(number)
        except FatalError:
            results.append(None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    winners = [number for number in results if number is not None]
    assert (len(winners), len(results)) == (1, 8)
    assert agent.call_sync("same").text == str(winners[0])
