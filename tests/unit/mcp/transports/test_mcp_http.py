"""Servers over HTTP: both transports, what is sent to them, and what becomes of a lost one."""

import asyncio
import gzip

import httpx2
import pytest

from agent_magics.engine.thread import shared_engine
from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client import status as status_module
from agent_magics.mcp.environment import McpEnvironment
from agent_magics.mcp.server_secrets import Redactor
from agent_magics.mcp.transports import bodies
from agent_magics.mcp.transports.http import HttpTransport
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.mcp import ElicitationAnswer, McpServerConfig, McpStatus
from tests.support.mcp.http_server import HANG_UP, HttpServer
from tests.support.mcp.links import LIMIT, Callbacks, McpWorld, words_of
from tests.support.ports import free_port


@pytest.fixture(scope="module", params=["http", "sse"])
def server(request):
    with HttpServer(request.param) as made:
        yield made


def config(server: HttpServer, **more) -> McpServerConfig:
    fields = {"startup_timeout_sec": LIMIT, "tool_timeout_sec": LIMIT, **more}
    return McpServerConfig("small", url=server.address, transport=server.transport, **fields)


def test_calls_progress_and_questions(server):
    callbacks = Callbacks(ElicitationAnswer("accept"))
    with McpWorld(config(server)) as world:
        assert world.ready().version == "1"
        assert words_of(world.call("add", a=1, b=2)) == "3"
        assert words_of(world.call("work", callbacks)) == "done"
        assert words_of(world.call("order", callbacks)) == "accept"
    assert callbacks.progressed == [(1, 2, "half")]
    assert callbacks.asked[0].url == "https://example.org/sign"


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_headers_and_the_token_are_sent_and_not_shown(transport):
    environment = {"SMALL_TOKEN": "sesame-token"}
    secret = {"headers": {"X-Team": "blue-team-sesame"}, "bearer_token_env_var": "SMALL_TOKEN"}
    with (
        HttpServer(transport) as server,
        McpWorld(config(server, **secret), environment=environment) as world,
    ):
        world.ready()
        assert "sesame-token" in world.manager.secrets()
        assert "sesame" not in repr(world.history)
    assert server.seen
    for _, _, headers, _ in server.seen:
        assert headers["x-team"] == "blue-team-sesame"
        assert headers["authorization"] == "Bearer sesame-token"


def test_a_token_that_is_not_set_is_told(server):
    given = config(server, bearer_token_env_var="SMALL_TOKEN")
    with McpWorld(given, environment={}) as world:
        state = world.until_status(McpStatus.FAILED)
    assert "the variable SMALL_TOKEN (bearer_token_env_var) is not set" in state.message


def test_a_token_that_is_refused_is_told(server):
    server.gate = lambda request: (401, {}, "")
    try:
        given = config(server, bearer_token_env_var="SMALL_TOKEN")
        with McpWorld(given, environment={"SMALL_TOKEN": "sesame-token"}) as world:
            state = world.until_status(McpStatus.NEEDS_LOGIN)
        assert "refused the token in SMALL_TOKEN" in state.message
        assert "sesame" not in state.message
    finally:
        server.gate = lambda request: None


def test_a_server_that_fails_says_how(server):
    server.gate = lambda request: (503, {}, "down")
    try:
        with McpWorld(config(server)) as world:
            state = world.until_status(McpStatus.FAILED)
        assert "could not be started: HTTP status 503" in state.message
    finally:
        server.gate = lambda request: None


@pytest.mark.parametrize("needed", ["by a cell", "by a call"], ids=str.split)
def test_nobody_listens_at_first(needed, monkeypatch):
    monkeypatch.setattr(status_module, "_FIRST_PAUSE", 0)
    with HttpServer(port=free_port()) as gone:
        given = config(gone)
    with McpWorld(given) as world:
        state = world.until_status(McpStatus.FAILED)
        assert "could not be started: it cannot be reached: " in state.message
        assert state.message.endswith(
            "It is tried again later, when it is needed; at once by %agent mcp restart small."
        )
        with HttpServer(port=gone.port):
            if needed == "by a cell":
                world.manager.start()
                assert world.ready().status is McpStatus.READY
            assert words_of(world.call("add", a=1, b=2)) == "3"
            world.run(world.manager.close())


def test_tools_that_come_later():
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        world.call("grow")
        world.until(lambda state: any(tool.name == "grown" for tool in state.tools))
        assert words_of(world.call("grown")) == "new"


def test_a_lost_server_is_told_and_found_again():
    with HttpServer(port=free_port()) as server, McpWorld(config(server)) as world:
        world.ready()
        server.__exit__()
        with pytest.raises(RespondToModel, match=r"cannot be reached: .*; it has not taken it\."):
            world.call("add", a=1, b=2)
        with HttpServer(port=server.port):
            with pytest.raises(RespondToModel, match="it has not taken it; it has been restarted"):
                world.call("add", a=1, b=2)
            assert words_of(world.call("add", a=1, b=2)) == "3"
            world.run(world.manager.close())


CUT = 200, {"content-type": "application/json", "content-length": "9"}, "{"


@pytest.mark.parametrize("answer", [HANG_UP, CUT], ids=["none", "cut"])
def test_an_answer_that_is_lost_loses_no_other_call(answer):
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        callbacks, told = Callbacks(ElicitationAnswer("accept")), []

        async def lose_one():
            server.gate = lambda request: answer if request[0] == "POST" else None
            with pytest.raises(RespondToModel) as caught:
                await world.manager.server("small").call_tool("add", {"a": 1, "b": 2}, Callbacks())
            server.gate = lambda request: None
            told.append(str(caught.value))

        callbacks.before_answer = lose_one
        assert words_of(world.call("order", callbacks)) == "accept"
        assert world.state.restarts == 0
    assert "did not answer the tool 'add' (" in told[0]
    assert told[0].endswith("; whether it did its work is unknown.")


@pytest.mark.parametrize(
    ("kind", "answers", "unauthorized", "status"),
    [
        ("http", [("POST", 401), ("POST", 200)], False, ""),
        ("http", [("POST", 200), ("GET", 405)], False, ""),
        ("http", [("POST", 503), ("GET", 200), ("DELETE", 401)], False, "HTTP status 503"),
        ("sse", [("GET", 401)], True, "HTTP status 401"),
        ("sse", [("GET", 200), ("POST", 401)], True, "HTTP status 401"),
        ("sse", [("GET", 200), ("POST", 503)], False, "HTTP status 503"),
    ],
)
def test_what_the_answers_of_other_requests_say_of_a_server(kind, answers, unauthorized, status):
    given = McpServerConfig("small", url="http://localhost/mcp", transport=kind)
    around, log = McpEnvironment(shared_engine().spawn), LogRing(str)
    transport = HttpTransport(given, around, Redactor(given, {}), log, list, list)
    for method, code in answers:
        request = httpx2.Request(method, given.url)
        asyncio.run(transport._look_at(httpx2.Response(code, request=request)))
    assert (transport.unauthorized, transport.status) == (unauthorized, status)


def test_a_notification_that_is_refused_says_nothing_of_calls():
    with HttpServer() as server, McpWorld(config(server)) as world:
        posted = lambda: sum(method == "POST" for method, *_ in server.seen)  # noqa: E731
        server.gate = lambda request: (401, {}, "") if posted() == 2 else None  # "initialized"
        world.ready()
        server.gate = lambda request: (503, {}, "") if request[0] == "POST" else None
        with pytest.raises(
            RespondToModel, match=r"did not answer the tool 'add' \(HTTP status 503"
        ):
            world.call("add", a=1, b=2)
        server.gate = lambda request: None
        assert words_of(world.call("add", a=1, b=2)) == "3"
        assert (world.state.status, world.state.restarts) == (McpStatus.READY, 0)


def test_a_call_that_is_refused_for_want_of_a_login_is_told(server):
    with McpWorld(config(server)) as world:
        world.ready()
        server.gate = lambda request: (401, JSON, REFUSAL) if request[0] == "POST" else None
        with pytest.raises(RespondToModel, match="wants a login"):
            world.call("add", a=1, b=2)
        server.gate = lambda request: None
        assert "wants a login" in world.until_status(McpStatus.NEEDS_LOGIN).message


def test_a_forgotten_session_is_told_and_made_anew():
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        forgotten = []

        def forget(request):
            if request[0] == "POST" and not forgotten:
                forgotten.append(request)
                return 404, {}, ""
            return None

        server.gate = forget
        with pytest.raises(RespondToModel, match="it has not taken it; it has been restarted"):
            world.call("add", a=1, b=2)
        assert words_of(world.call("add", a=1, b=2)) == "3"


EVENTS, TEXT, JSON = (
    {"content-type": kind} for kind in ("text/event-stream", "text/plain", "application/json")
)
REFUSAL = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "no such thing"}}'


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((200, EVENTS, ": hello\n\n"), "did not answer {} (SSE stream ended without a response)"),
        ((200, TEXT, "hello"), "did not answer {} (Unexpected content type: text/plain)"),
        ((202, {}, ""), "did not answer {} (server answered a request with 202 Accepted)"),
        ((500, JSON, '{"detail": "Oh."}'), "did not answer {} (HTTP status 500)"),
        ((502, TEXT, "gateway"), "did not answer {} (HTTP status 502)"),
        (
            (503, {**EVENTS, "retry-after": "30"}, ""),
            "did not answer {} (HTTP status 503, Retry-After: 30)",
        ),
        ((403, TEXT, "no"), "refused {}: HTTP status 403."),
        ((429, {"retry-after": "30"}, ""), "refused {}: HTTP status 429, Retry-After: 30."),
        ((400, JSON, REFUSAL), "refused {}: no such thing (error -32602)."),
        ((500, JSON, REFUSAL), "refused {}: no such thing (error -32602)."),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_a_call_that_was_not_answered_is_not_called_refused(answer, told):
    """Its work may be done: the model is not to call it again without a look."""
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        server.gate = lambda request: answer if request[0] == "POST" else None
        with pytest.raises(RespondToModel) as caught:
            world.call("add", a=1, b=2)
        server.gate = lambda request: None
        assert words_of(world.call("add", a=1, b=2)) == "3"
    said = str(caught.value)
    assert told.format("the tool 'add'") in said
    assert said.endswith("; whether it did its work is unknown.") == ("did not answer" in told)


def test_an_answer_that_is_too_long_is_told(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 1 << 20)
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        long = 200, {"content-type": "application/json"}, "x" * (2 << 20)
        server.gate = lambda request: long if request[0] == "POST" else None
        with pytest.raises(RespondToModel, match="the answer has more than 1,048,576 bytes"):
            world.call("add", a=1, b=2)
        server.gate = lambda request: None
        assert words_of(world.call("add", a=1, b=2)) == "3"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("encoding", "content_type"),
    [
        ("gzip", "application/json"),
        ("gzip, gzip", "text/event-stream"),
        *(
            pytest.param(encoding, content_type, marks=pytest.mark.long)
            for encoding in ("GZip", "deflate", "br", "zstd")
            for content_type in ("application/json", "text/event-stream")
        ),
    ],
)
def test_a_compressed_answer_is_not_unpacked(encoding, content_type):
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        headers = {"content-type": content_type, "content-encoding": encoding}
        bomb = gzip.compress(gzip.compress(bytes(64 << 20)))
        server.gate = lambda request: (200, headers, bomb) if request[0] == "POST" else None
        with pytest.raises(RespondToModel, match="the answer is compressed"):
            world.call("add", a=1, b=2)
