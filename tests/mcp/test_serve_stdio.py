"""Our tools over standard streams: who is asked, what tools print, and how it ends."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitResult

from tests.support.mcp.client import text_of

LIMIT = 90.0
ROOT = Path(__file__).parents[2]
# test_serve_http.py tries both over HTTP, where no interpreter is started for each.
OLDER = pytest.param("legacy", marks=pytest.mark.long)
COMMAND = {"cmd": "echo hello > made.txt"}


def params(folder: Path, *words: str) -> StdioServerParameters:
    env = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    arguments = ["-m", "agent_magics.serve", "--cwd", str(folder), *words]
    return StdioServerParameters(command=sys.executable, args=arguments, env=env)


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


class Person:
    """Who sits at the client, and what they were asked."""

    def __init__(self, *answers: ElicitResult) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, _: Any, question: Any) -> ElicitResult:
        self.asked.append(question.message)
        assert question.requested_schema["properties"]["approve"]["type"] == "boolean"
        return self._answers.pop(0)


@pytest.mark.parametrize("mode", ["auto", OLDER])
def test_the_person_at_the_client_is_asked(tmp_path: Path, mode: str) -> None:
    person = Person(
        ElicitResult(action="decline"),
        ElicitResult(action="accept", content={"approve": False}),
        ElicitResult(action="accept", content={"approve": True}),
    )
    made = tmp_path / "made.txt"

    async def called() -> list[Any]:
        transport = stdio_client(params(tmp_path, "--approval", "untrusted"))
        async with Client(transport, mode=mode, elicitation_callback=person) as client:
            results = []
            for _ in range(3):
                results.append(await client.call_tool("exec_command", COMMAND))
                results.append(made.exists())
            return results

    first, there_1, second, there_2, third, there_3 = run(called())
    assert [first.is_error, second.is_error, third.is_error] == [True, True, False]
    assert "the person at the client said no" in text_of(first)
    assert (there_1, there_2, there_3) == (False, False, True)
    assert len(person.asked) == 3
    assert "exec_command" in person.asked[0]
    assert "echo hello > made.txt" in person.asked[0]


@pytest.mark.parametrize("mode", ["auto", OLDER])
def test_a_client_that_cannot_ask_is_told_why_not(tmp_path: Path, mode: str) -> None:
    async def called() -> Any:
        transport = stdio_client(params(tmp_path, "--approval", "untrusted"))
        async with Client(transport, mode=mode) as client:
            read = await client.call_tool("list_dir", {"path": "."})
            return read, await client.call_tool("exec_command", COMMAND)

    read, ran = run(called())
    assert not read.is_error, "what only reads needs no question"
    assert ran.is_error
    assert "does not offer elicitation" in text_of(ran)
    assert not (tmp_path / "made.txt").exists()


def test_questions_of_several_calls_find_their_own_call(tmp_path: Path) -> None:
    """In the protocol of 2026 each waits between two requests."""

    class Choosy(Person):
        async def __call__(self, _: Any, question: Any) -> ElicitResult:
            self.asked.append(question.message)
            return ElicitResult(action="accept", content={"approve": "two" in question.message})

    async def called() -> Any:
        transport = stdio_client(params(tmp_path, "--approval", "untrusted"))
        async with Client(transport, elicitation_callback=Choosy()) as client:
            commands = [{"cmd": f"echo {word} > {word}.txt"} for word in ("one", "two")]
            return await asyncio.gather(*(client.call_tool("exec_command", c) for c in commands))

    one, two = run(called())
    assert one.is_error and not two.is_error
    assert not (tmp_path / "one.txt").exists()
    assert (tmp_path / "two.txt").exists()


def test_sets_of_tools_are_served_by_their_name(tmp_path: Path) -> None:
    async def called() -> Any:
        transport = stdio_client(params(tmp_path, "--tools", "read-only", "--approval", "never"))
        async with Client(transport) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert run(called()) == ["read_file", "list_dir", "grep_files", "glob", "view_image"]


NOISY = """
import os
from agent_magics import tool
print("said by an import")
os.write(1, b"and below it\\n")

@tool(mutating=False)
def noisy() -> str:
    "Print."
    print("said by a call")
    return "done"
"""


def test_what_tools_print_does_not_come_between(tmp_path: Path) -> None:
    """Every line of standard output is a message, from the first one on."""
    tools = tmp_path / ".config/agent-magics/tools"
    tools.mkdir(parents=True)
    (tools / "mine.py").write_text(NOISY, encoding="utf-8")
    given = params(tmp_path)
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    with subprocess.Popen(
        [given.command, *given.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **given.env, "XDG_CONFIG_HOME": str(tmp_path / ".config")},
        text=True,
    ) as process:
        lines = []
        for message in (
            {"id": 1, "method": "initialize", "params": hello},
            {"id": 2, "method": "tools/call", "params": {"name": "noisy", "arguments": {}}},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            lines.append(json.loads(process.stdout.readline()))
        rest, said = process.communicate(timeout=LIMIT)
    assert [line["id"] for line in lines] == [1, 2] and rest == ""
    assert lines[1]["result"]["content"][0]["text"] == "done"
    for words in ("said by an import", "and below it", "said by a call"):
        assert words in said


def test_it_ends_when_the_client_has_gone(tmp_path: Path) -> None:
    wanted = params(tmp_path)
    done = subprocess.run(
        [wanted.command, *wanted.args],
        input='{"jsonrpc":"2.0","id":1,"method":"ping"}\nno json\n',
        env={**os.environ, **(wanted.env or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tools", "nothing_like_it"], "There is no tool named 'nothing_like_it'"),
        (["--cwd", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_what_stands_in_the_way_is_one_line(tmp_path: Path, words: list[str], told: str) -> None:
    wanted = params(tmp_path, *words)
    done = subprocess.run(
        [wanted.command, *wanted.args],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(wanted.env or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
