"""Real MCP servers, of npm and PyPI: what they offer comes in, and calls of it come back whole."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent_magics import Agent
from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_parameters
from agent_magics.dispatch.schema.generation import DESCRIBED, STRICT_KEYWORDS, STRICT_TYPES
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import ElicitationRequested, ToolCallUpdated
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.mcp import McpStatus, McpTool
from agent_magics.protocol.ops import CallTool, new_turn_id
from agent_magics.protocol.tools import ToolOutput
from tests.support.mcp.foreign_servers import node_program, python_program

LIMIT = 90.0
# Some of what each of them offered on the day they were pinned.
KNOWN = {
    "everything": {"echo", "get-sum", "get-tiny-image", "trigger-sampling-request"},
    "files": {"read_text_file", "write_file", "list_directory", "directory_tree"},
    "memory": {"create_entities", "create_relations", "search_nodes", "read_graph"},
    "git": {"git_status", "git_log", "git_commit"},
    "time": {"get_current_time", "convert_time"},
    "fetch": {"fetch"},
}


class World:
    """An agent with all of these servers, and what its person was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[Any] = []
        self.answers: dict[str, Any] = {}
        self.agent = Agent(
            tools=[],
            cwd=folder,
            mcp_servers=_servers(folder),
            on_question=self._answer,
        )

    def _answer(self, question: Any) -> Any:
        self.asked.append(question)
        return self.answers.get(type(question).__name__, "approve")

    def on_engine(self, coroutine: Any) -> Any:
        return self.agent.session.engine.spawn(coroutine).result(LIMIT)

    def call(self, name: str, **arguments: Any) -> ToolOutput:
        self.asked.clear()
        return self.agent.call_sync(f"mcp__{name}", arguments)


def _servers(folder: Path) -> dict[str, Any]:
    everything = [*node_program("mcp-server-everything"), "stdio"]
    fetch = [*python_program("mcp-server-fetch"), "--allow-private-ips", "--ignore-robots-txt"]
    time = [*python_program("mcp-server-time"), "--local-timezone", "UTC"]
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return {
        "everything": _entry(everything),
        "files": _entry([*node_program("mcp-server-filesystem"), str(folder)]),
        "memory": _entry(node_program("mcp-server-memory"), env=memory),
        "git": _entry(python_program("mcp-server-git"), env={"HOME": str(folder)}),
        "time": _entry(time),
        "fetch": _entry(fetch, env={"NO_PROXY": "*"}),
    }


def _entry(command: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), "startup_timeout_sec": LIMIT, **more}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    (folder / "notes.txt").write_text("first line\nsecond line\n")
    author = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org"}
    committer = {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run(
            ["git", *words], cwd=folder, check=True, env={**os.environ, **author, **committer}
        )
    world = World(folder)
    try:
        world.agent.mcp.start()
        world.on_engine(world.agent.mcp.list_all_tools())
        yield world
    finally:
        world.agent.close()


def test_each_server_is_ready_and_its_tools_are_there(world: World) -> None:
    states = {state.config.name: state for state in world.agent.mcp.states()}
    assert {name: state.message for name, state in states.items()} == dict.fromkeys(KNOWN, "")
    assert {state.status for state in states.values()} == {McpStatus.READY}
    for name, known in KNOWN.items():
        assert known <= {tool.name for tool in states[name].tools}, name
    by_name = {tool.name: tool for tool in states["files"].tools}
    assert by_name["read_text_file"].read_only is True
    assert by_name["write_file"].destructive is True


# -- their schemas ---------------------------------------------------------------------------------


def _faults(schema: Any, where: str = "") -> list[str]:
    """Name what of a schema is outside the subset that is sent."""
    if not isinstance(schema, dict):
        return [f"{where}: no object"]
    faults = [f"{where}: {key}" for key in schema.keys() - (STRICT_KEYWORDS | DESCRIBED)]
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    faults += [f"{where}: type {kind}" for kind in kinds if kind not in STRICT_TYPES]
    for group in ("properties", "$defs"):
        for name, part in schema.get(group, {}).items():
            faults += _faults(part, f"{where}/{name}")
    for part in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        faults += _faults(part, f"{where}/·")
    extra = schema.get("additionalProperties", False)
    return faults if isinstance(extra, bool) else faults + _faults(extra, f"{where}/*")


def test_every_schema_comes_out_valid_and_inside_the_subset(world: World) -> None:
    tools: tuple[McpTool, ...] = world.on_engine(world.agent.mcp.list_all_tools())
    assert len(tools) > 50
    for tool in tools:
        before = json.dumps(tool.input_schema)
        schema = sanitize_parameters(tool.input_schema)
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object", tool.name
        assert _faults(schema, tool.name) == []
        assert set(schema["properties"]) == set(tool.input_schema.get("properties", {}))
        assert sanitize_parameters(schema) == schema, "what is clean stays as it is"
        assert json.dumps(tool.input_schema) == before, "the server's own is left alone"


# -- server-everything: all that the protocol has --------------------------------------------------


def test_texts_numbers_and_errors_of_the_servers_own_check(world: World) -> None:
    assert world.call("everything__echo", message="héllo").text == "Echo: héllo"
    assert world.call("everything__get-sum", a=2, b=3.5).text == "The sum of 2 and 3.5 is 5.5."
    unfit = world.call("everything__get-sum", a="two", b=3)
    assert not unfit.success
    assert "number" in unfit.text
    assert world.asked == [], "they say that they only read"


def test_images_links_and_embedded_resources(world: World) -> None:
    parts = world.call("everything__get-tiny-image").content
    (image,) = (part for part in parts if isinstance(part, InputImage))
    assert image.image_url.startswith("data:image/png;base64,iVBOR")
    assert any(isinstance(part, InputText) for part in parts)
    links = world.call("everything__get-resource-links", count=2).text
    assert links.count("demo://resource/dynamic/") == 2
    embedded = world.call(
        "everything__get-resource-reference", resourceType="Text", resourceId=1
    ).text
    assert "demo://resource/dynamic/text/1" in embedded
    data = world.call("everything__get-structured-content", location="Chicago").text
    assert json.loads(data)["conditions"]


def test_progress_of_a_long_call(world: World) -> None:
    seen: list[Any] = []

    async def call() -> ToolOutput:
        from agent_magics.engine.results.run import output_of  # noqa: PLC0415 - what `call` does

        name = "mcp__everything__trigger-long-running-operation"
        op = CallTool(turn_id=new_turn_id(), name=name, arguments={"duration": 0.6, "steps": 3})
        foreground = world.agent.foreground(seen.append)
        return output_of(await foreground.wait(op, world.agent.turn_config()))

    assert "completed" in asyncio.run(call()).text
    shares = [event.progress for event in seen if isinstance(event, ToolCallUpdated)]
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_a_servers_question_is_put_and_its_form_checked(world: World) -> None:
    name = "everything__trigger-elicitation-request"
    fields = {"name": "Ada"}
    world.answers["ElicitationRequested"] = SimpleNamespace(
        decision="approve", edited_arguments=fields
    )
    accepted = world.call(name)
    (form,) = (each for each in world.asked if isinstance(each, ElicitationRequested))
    assert form.server == "everything"
    assert "name" in form.schema["properties"]
    assert "Ada" in accepted.text
    world.answers["ElicitationRequested"] = "deny"
    assert "declined" in world.call(name).text


def test_our_model_is_not_lent(world: World) -> None:
    refused = world.call("everything__trigger-sampling-request", prompt="Say hello.")
    assert "refused" in refused.text
    assert [question.tool for question in world.asked] == [
        "mcp__everything__trigger-sampling-request"
    ], "only the call itself was asked about"


def test_resources_and_prompts(world: World) -> None:
    manager = world.agent.mcp

    async def all_pages() -> list[Any]:
        found, cursor = [], ""
        while True:
            page = await manager.server("everything").list_resources(cursor)
            found.extend(page.items)
            cursor = page.next_cursor
            if not cursor:
                return found

    resources = world.on_engine(all_pages())
    assert len({each.uri for each in resources}) == len(resources) > 0
    text = world.on_engine(manager.server("everything").read_resource(resources[0].uri))
    assert text[0].text
    templates = world.on_engine(manager.server("everything").list_resource_templates()).items
    assert any("{" in each.uri for each in templates)
    blob = world.on_engine(
        manager.server("everything").read_resource("demo://resource/dynamic/blob/1")
    )
    assert blob[0].blob
    with pytest.raises(RespondToModel):
        world.on_engine(manager.server("everything").read_resource("demo://no/such/thing"))
    server = manager.server("everything")
    prompts = {each.name: each for each in world.on_engine(server.list_prompts())}
    assert "simple-prompt" in prompts
    (message,) = world.on_engine(server.get_prompt("simple-prompt", {}))
    assert message[0] == "user"


# -- the others ------------------------------------------------------------------------------------


def test_files(world: World) -> None:
    notes, new = str(world.folder / "notes.txt"), world.folder / "new.txt"
    assert "first line" in world.call("files__read_text_file", path=notes, head=1).text
    assert world.asked == []
    assert world.call("files__write_file", path=str(new), content="made\n").success
    assert len(world.asked) == 1, "what may destroy is asked about"
    assert new.read_text() == "made\n"
    found = world.call("files__search_files", path=str(world.folder), pattern="*.txt")
    assert "notes.txt" in found.text
    outside = world.call("files__read_text_file", path="/etc/passwd")
    assert not outside.success
    assert "outside" in outside.text.lower()


def test_memory(world: World) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    assert world.call("memory__create_entities", entities=[entity]).success
    assert "writes programs" in world.call("memory__search_nodes", query="programs").text
    unfit = world.call("memory__create_entities", entities=["Ada"])
    assert not unfit.success


def test_git(world: World) -> None:
    repository = str(world.folder)
    assert "On branch main" in world.call("git__git_status", repo_path=repository).text
    assert "Begin" in world.call("git__git_log", repo_path=repository, max_count=1).text
    assert not world.call("git__git_status", repo_path="/").success


def test_time(world: World) -> None:
    now = json.loads(world.call("time__get_current_time", timezone="UTC").text)
    assert now["timezone"] == "UTC"
    converted = world.call(
        "time__convert_time", source_timezone="UTC", time="12:30", target_timezone="Asia/Tokyo"
    )
    assert "21:30" in converted.text
    assert not world.call("time__get_current_time", timezone="Nowhere/Town").success


def test_fetch(world: World) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(b"words from a page")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            fetched = world.call("fetch__fetch", url=f"http://127.0.0.1:{server.server_port}/")
        finally:
            server.shutdown()
    assert "words from a page" in fetched.text
