"""MCP servers in a notebook: `mcp` in the person's cells and in the model's code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.cells import AGENTS, outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome
from tests.support.mcp.world import things


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("mcp"))) as kernel:
        assert kernel.run(scripted(repr("Ready."))).status == "ok"
        _begin(kernel)
        yield kernel


def _begin(kernel: Kernel) -> None:
    """Have the server `things`, and no other."""
    servers = {"things": things()}
    assert kernel.run(f"%config AgentMagics.mcp_servers = {servers!r}").status == "ok"
    model = f"{AGENTS}['default']._models.given"
    kernel.run(f"{AGENTS}['default'].reset()")
    kernel.run(f"{model}._turns[:] = ['Ready.']\n{model}.requests.clear()")
    assert kernel.run("%%agent --approval never\nStart.\n").status == "ok"


def _run(kernel: Kernel, *codes: str, approval: str = "never", **options: object) -> Outcome:
    calls = [f"Call('python', {{'code': {code!r}}})" for code in codes]
    script = ", ".join([*calls, repr("Done.")])
    model = f"{AGENTS}['default']._models.given"
    assert kernel.run(f"{model}._turns[:] = [{script}]\n{model}.requests.clear()").status == "ok"
    kernel.run(f"{AGENTS}['default'].reset()")
    return kernel.run(f"%%agent --approval {approval}\nGo.\n", **options)


def _told(kernel: Kernel, number: int = 0) -> str:
    return kernel.value(f"{outputs()}[{number}]")


def test_the_persons_own_cells_call_tools_as_functions(kernel: Kernel) -> None:
    assert kernel.value("mcp.things.search('red', limit=1)") == "['red 0']"
    assert kernel.value("mcp.things.delete('one')") == "deleted one"
    assert kernel.value("await mcp.things.count.aio(words=['a'])") == "1"
    help_text = kernel.run("help(mcp.things.search)").text
    assert "search(q: str, limit: int = 10) -> list[str]" in help_text
    assert "Find things by words." in help_text
    assert "no such thing" in kernel.run("mcp.things.fail()").text


def test_the_tab_key_offers_servers_and_tools(kernel: Kernel) -> None:
    assert "things" in kernel.complete("mcp.th")
    assert "search" in kernel.complete("mcp.things.se")


def test_the_models_code_calls_them_with_approval(kernel: Kernel) -> None:
    code = (
        "print(mcp.things.search('red', limit=2))\n"
        "print(await mcp.things.count(words=['a', 'b']))\n"
        "print(mcp['things']['with.dots and spaces']())\n"
        "try:\n    mcp.things.fail()\nexcept RuntimeError as error:\n    print('raised', error)"
    )
    outcome = _run(kernel, code)
    told = _told(kernel).splitlines()
    assert told[:3] == ["['red 0', 'red 1']", "2", "dotted"], outcome.text
    assert told[3].startswith("raised") and "no such thing" in told[3]
    names = [item["name"] for item in outcome.items_of("tool")]
    assert sorted(names) == sorted(
        [
            "python",
            "mcp__things__search",
            "mcp__things__count",
            "mcp__things__with_dots_and_spaces",
            "mcp__things__fail",
        ]
    )


def test_what_changes_something_is_asked_about_while_the_code_runs(kernel: Kernel) -> None:
    code = "print(mcp.things.search('red', limit=1))\nprint(mcp.things.delete('two'))"
    outcome = _run(kernel, code, approval="on-request", allow_stdin=True, answers=["y", "n"])
    assert "mcp__things__delete" in outcome.text
    told = _told(kernel)
    assert "['red 0']" in told
    assert "mcp__things__delete was not run" in told


def test_it_is_none_of_the_persons_variables(kernel: Kernel) -> None:
    kernel.run("spam = 1")
    names = kernel.run("%who").text.split()
    assert "spam" in names and "mcp" not in names


def test_a_variable_of_that_name_is_the_persons(kernel: Kernel) -> None:
    kernel.run("kept, mcp = mcp, 'mine'")
    _run(kernel, "print(mcp)")
    assert _told(kernel).startswith("mine")
    assert kernel.value("mcp") == "mine"
    kernel.run("mcp = kept")


def test_other_tools_that_code_could_not_call_before(kernel: Kernel) -> None:
    kernel.run(
        "from agent_magics import DynamicToolSpec\n"
        f"{AGENTS}['default'].register(DynamicToolSpec('ticket', 'Make a ticket.', "
        "{'properties': {'title': {'type': 'string'}}, 'required': ['title']}), "
        "lambda arguments: {'made': arguments['title']})\n"
        "from agent_magics.tools import batch\n"
        f"{AGENTS}['default'].register(batch)"
    )
    code = (
        "print(ticket('leak'), await ticket(title='wind'))\n"
        "print(batch([{'tool': 'ticket', 'arguments': {'title': 'a'}},"
        " {'tool': 'python', 'arguments': {'code': '1'}}]))\n"
        "print(tool_search('weather'))"
    )
    _run(kernel, code)
    told = _told(kernel).splitlines()
    assert told[0] == "{'made': 'leak'} {'made': 'wind'}"
    assert told[1] == "[{'made': 'a'}, 'Not run: code that runs cannot run more code.']"
    assert told[2] == "All tools there are have been offered already."


def test_a_cell_names_the_tools_it_has(kernel: Kernel) -> None:
    model = f"{AGENTS}['default']._models.given"

    def offered(options: str) -> str:
        kernel.run(f"{model}._turns[:] = ['Done.']\n{model}.requests.clear()")
        assert kernel.run(f"%%agent {options}\nGo.\n").status == "ok"
        return kernel.value(f"[each.spec.name for each in {model}.requests[-1].tools]")

    assert offered("--tools read_file mcp__things__sea*") == str(
        ["read_file", "mcp_call_tool", "mcp__things__search"]
    )
    assert "'mcp__things__delete'" in offered("--tools mcp")
    assert offered("--tools read_file") == "['read_file']"
    refused = kernel.run("%%agent --tools mcp__thing__search\nGo.\n")
    assert refused.error == "UsageError"
    assert "Did you mean things? The servers are: things." in refused.text


def test_a_server_that_fails_is_one_quiet_line_in_the_cell(kernel: Kernel, tmp_path: Path) -> None:
    servers = {"broken": things("--dead")}
    kernel.run(f"%config AgentMagics.mcp_servers = {servers!r}")
    try:
        outcome = _run(kernel, "mcp.broken.search()")
        told = _told(kernel)
    finally:
        _begin(kernel)
    notices = [item["text"] for item in outcome.items_of("notice")]
    assert [text for text in notices if "'broken'" in text and "no licence" in text], notices
    assert "no licence" in told


def test_it_is_there_before_any_agent_has_run(tmp_path: Path) -> None:
    with Kernel(cwd=str(tmp_path)) as fresh:
        assert fresh.run("%load_ext agent_magics").status == "ok"
        servers = {"things": things()}
        fresh.run(f"%config AgentMagics.mcp_servers = {servers!r}")
        assert fresh.value("mcp.things.search('red', limit=1)") == "['red 0']"
