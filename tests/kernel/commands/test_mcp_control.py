"""``%agent mcp`` in a real kernel with a real server, and a server's form without a page."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.cells import outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome
from tests.support.mcp import PROGRAMS

SERVER = str(PROGRAMS / "asking_server.py")
SLOW = 60.0  # seconds that the start of a server may take on a busy machine
OPTIONS = f"'startup_timeout_sec': {SLOW}"
HANGING = f"{{'command': {sys.executable!r}, 'args': ['-c', 'input()'], {OPTIONS}}}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The person's folder for settings."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture(scope="module")
def kernel(folder: Path, config: Path) -> Iterator[Kernel]:
    names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")
    env = {name: str(config) for name in names}
    with Kernel(cwd=str(folder), env={**env, "AGM_SERVER": SERVER}) as kernel:
        assert kernel.run("%load_ext agent_magics").status == "ok"
        _begin(kernel)
        yield kernel


def _begin(kernel: Kernel) -> None:
    """Have the server `asking`, and no other of the notebook's."""
    servers = f"{{'asking': {{'command': {sys.executable!r}, 'args': [{SERVER!r}], {OPTIONS}}}}}"
    assert kernel.run(f"%config AgentMagics.mcp_servers = {servers}").status == "ok"


def run(kernel: Kernel, code: str, **more: object) -> Outcome:
    outcome = kernel.run(code, limit=2 * SLOW, **more)
    assert outcome.status == "ok", outcome.text
    return outcome


def shown(kernel: Kernel, words: str) -> str:
    return "".join(str(item["text"]) for item in run(kernel, f"%agent mcp {words}").items)


def refused(kernel: Kernel, words: str) -> str:
    outcome = kernel.run(f"%agent mcp {words}", limit=2 * SLOW)
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    return outcome.text


def test_the_list_starts_nothing_and_the_status_starts_all(kernel: Kernel) -> None:
    listed = shown(kernel, "list")
    assert "`asking`" in listed
    assert "asking_server.py" in listed
    assert "`Agent(mcp_servers=...)`" in listed
    status = shown(kernel, "status")
    assert re.search(r"`asking 1\.2\.3` \| ready \| 4 \| \d+ \| 0 \|", status), status
    assert re.search(r"`asking 1\.2\.3` \| ready \| 4 ", shown(kernel, "restart asking"))
    assert shown(kernel, "logs asking").count("asking server at work") == 2
    assert "no MCP server 'other'" in refused(kernel, "restart other")
    assert "no MCP server 'other'" in refused(kernel, "logs other")
    assert "%agent mcp takes: nothing, list, add NAME" in refused(kernel, "other")
    assert "%agent mcp takes: status." in refused(kernel, "status now")
    assert "%agent mcp takes: logs NAME." in refused(kernel, "logs")
    assert "`%agent mcp trust [DIGEST]` | Shows the project's files" in shown(kernel, "help")


@pytest.mark.parametrize(
    ("uri", "value"),
    [
        ("asking://words", "'one\\ntwo'"),
        ("asking://data", "{'a': [1, 2]}"),
        ("asking://bytes", "b'\\x00\\x01\\x02\\x03\\x04'"),
        ("asking asking://words", "'one\\ntwo'"),
    ],
)
def test_a_resource_is_a_python_value(kernel: Kernel, uri: str, value: str) -> None:
    run(kernel, f"value = %agent mcp read {uri}")
    assert kernel.value("repr(value)") == value


def test_a_picture_is_shown_and_resources_are_listed(kernel: Kernel) -> None:
    [output] = run(kernel, "%agent mcp read asking://pixel").outputs
    assert "image/png" in output["data"]
    listed = shown(kernel, "read")
    assert "`asking://words`" in listed
    assert "Some \\| words." in listed
    assert "takes: read, read URI, read SERVER URI." in refused(kernel, "read a b c")


def test_a_prompt_is_text_for_a_cell(kernel: Kernel) -> None:
    run(kernel, "text = %agent mcp prompt greet who='Ann and Bob' how=twice")
    assert kernel.value("text") == "Greet Ann and Bob twice."
    [output] = run(kernel, "%agent mcp prompt asking/greet who=Ann").outputs
    assert output["data"]["text/markdown"] == "```\nGreet Ann kindly.\n```"
    assert "who=, how= (optional)" in shown(kernel, "prompt")
    assert "'greet' needs who; its arguments are: who=" in refused(kernel, "prompt greet")
    assert "has no x" in refused(kernel, "prompt greet who=a x=b")
    assert "There is no prompt 'bye'; there are: asking/greet" in refused(kernel, "prompt bye")
    assert "A quotation mark is missing in this line" in refused(kernel, "prompt greet who='a")


def test_servers_are_added_switched_and_removed(kernel: Kernel, config: Path) -> None:
    file = config / "agent-magics" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("# mine\n")
    said = shown(kernel, f"add second --env-var AGM_SERVER -- {sys.executable} '{SERVER}'")
    assert "starts with the next cell" in said
    assert file.read_text() == (
        f'# mine\n\n[mcp_servers.second]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\n'
        'env_vars = ["AGM_SERVER"]\n'
    )
    assert "`second`" in shown(kernel, "list")
    assert "is disabled in `" in shown(kernel, "disable second")
    assert "enabled = false\n" in file.read_text()
    assert "`second` | disabled |" in re.sub(r" \| `[^`]*server.py` ", " ", shown(kernel, "list"))
    assert "is enabled in `" in shown(kernel, "enable second")
    assert "is disabled for this session" in shown(kernel, "disable asking")
    assert re.search(r"`asking[^|]*\| disabled", shown(kernel, "status"))
    assert "is enabled for this session" in shown(kernel, "enable asking")
    assert "is taken out of" in shown(kernel, "remove second")
    assert file.read_text() == "# mine\n"
    assert "No config.toml names an MCP server 'second'" in refused(kernel, "remove second")
    assert "There is no MCP server 'second'" in refused(kernel, "enable second")
    assert "is a program here" in refused(kernel, "login asking")


def test_a_projects_servers_are_shown_before_they_are_trusted(kernel: Kernel, folder: Path) -> None:
    assert "There is nothing to trust" in refused(kernel, "trust")
    (folder / ".mcp.json").write_text(
        '{"mcpServers": {"third": {"command": "x", "args": ["--token", "SECRET", "--key=SECRET"]}}}'
    )
    assert "you have not trusted these files" in shown(kernel, "list")
    asked = shown(kernel, "trust")
    assert "x --token … --key=…" in asked
    assert "SECRET" not in asked
    [digest] = re.findall(r"mcp trust ([0-9a-f]+)`", asked)
    assert "not (or no longer) those of 0123" in refused(kernel, "trust 012345678901")
    assert "You trust these files" in shown(kernel, f"trust {digest}")
    assert "`third`" in shown(kernel, "list")
    os.unlink(folder / ".mcp.json")


# -- a form without a page -------------------------------------------------------------------------

ASK = "%%agent\nGo.\n"
TYPED = [
    *("A", "Ann", "", "", "many", "3", "1.5", "n", "fish", "Fish", "1, 3"),
    "y",
]


def asking(*turns: str) -> str:
    return scripted(*turns, repr("Done."))


def call(name: str, arguments: str = "{}") -> str:
    return f"Call('mcp__asking__{name}', {arguments})"


def test_a_form_is_typed_in_field_by_field(kernel: Kernel) -> None:
    run(kernel, asking(call("book")))
    outcome = run(kernel, ASK, allow_stdin=True, answers=TYPED)
    assert len(outcome.prompts) == len(TYPED)
    assert "The MCP server asking asks: Which table? <img src=x" in outcome.text
    assert "  this must have at least 2 characters" in outcome.text
    assert "  this must be a number" in outcome.text
    assert "  2. Fish" in outcome.text
    assert kernel.value(outputs()) == str(
        [
            'accept {"name": "Ann", "day": "2026-12-24", "guests": 3, "budget": 1.5, '
            '"window": false, "meal": "f", "extras": ["wine", "music"]}'
        ]
    )
    note = outcome.tool("mcp__asking__book")["note"]
    assert note == "its question was answered by the person"


def test_a_call_by_hand_asks_in_its_cell(kernel: Kernel) -> None:
    outcome = run(kernel, "print(mcp.asking.busy())", allow_stdin=True, answers=["y", "y"])
    assert "The MCP server asking asks: Sure?" in outcome.text
    assert "accept" in outcome.text
    outcome = run(
        kernel, "print(await mcp.asking.busy.aio())", allow_stdin=True, answers=["y", "y"]
    )
    assert "accept" in outcome.text
    assert "decline" in run(kernel, "print(mcp.asking.busy())").text


def test_an_address_is_shown_and_can_be_declined(kernel: Kernel) -> None:
    address = "{'address': 'https://auth.example.org/x?y=1'}"
    run(kernel, asking(call("visit", address)))
    outcome = run(kernel, ASK, allow_stdin=True, answers=["maybe", "n"])
    assert "open a page of auth.example.org: https://auth.example.org/x?y=1" in outcome.text
    assert kernel.value(outputs()) == "['decline']"


def test_a_form_can_be_answered_beforehand_and_is_declined_where_nobody_can(
    kernel: Kernel,
) -> None:
    wrong = "{'address': 'javascript:alert(1)'}"
    run(kernel, asking(call("busy"), call("busy"), call("book"), call("visit", wrong)))
    run(kernel, "%agent answer approve deny approve")
    outcome = run(kernel, ASK)
    assert kernel.value(outputs()) == str(["accept {}", "decline null", "decline null", "decline"])
    notes = [item["note"] for item in outcome.items if item["kind"] == "tool"]
    assert notes[0].endswith("its question was answered beforehand")
    assert "does not fit the form: name: this is required" in notes[2]
    assert "cannot be shown: the address that it names is none of a page" in notes[3]
    run(kernel, asking(call("busy")))
    assert "nobody can be asked in this run" in run(kernel, ASK).tool("mcp__asking__busy")["note"]


def test_waiting_for_a_server_can_be_interrupted(kernel: Kernel) -> None:
    run(kernel, f"%config AgentMagics.mcp_servers = {{'hanging': {HANGING}}}")
    # Pressed where the words begin to wait, which nothing outside can tell.
    run(
        kernel,
        "import os, signal\nfrom agent_magics.kernel.commands.mcp import waiting\n"
        "beat, waiting.wait = waiting.wait, lambda *a, **k: "
        "(os.kill(os.getpid(), signal.SIGINT), beat(*a, **k))[1]",
    )
    try:
        outcome = kernel.run("%agent mcp status", limit=2 * SLOW)
        assert (outcome.status, outcome.error) == ("error", "KeyboardInterrupt")
        assert kernel.value("1 + 1") == "2"
    finally:
        kernel.run("waiting.wait = beat")
        _begin(kernel)
