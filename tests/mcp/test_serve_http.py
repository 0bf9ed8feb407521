"""Our tools over HTTP, before the official client: what they look like, and how calls go."""

import asyncio
import base64
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ImageContent

from agent_magics import Agent, FatalError, ToolContext, tool
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.serve import loopback
from agent_magics.serve.protocol import MOST_CALLS_OF_ONE, MOST_CLIENTS
from tests.support.mcp.client import ERAS, connected, text_of

LIMIT = 90.0
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n nothing is drawn of it here").decode()


@tool
def add(a: int, b: int = 2) -> dict[str, int]:
    """Add two numbers.

    Args:
        a: one of them.
    """
    return {"sum": a + b}


@tool(mutating=False)
def list_primes() -> list[int]:
    """List some primes."""
    return [2, 3, 5]


@tool(mutating=False)
def config_text() -> str:
    """Return text that looks like data."""
    return '{"a": 1}'


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("no such luck")


@tool
def show_pixel() -> ToolOutput:
    """Return a picture and words."""
    image = InputImage(f"data:image/png;base64,{PIXEL}")
    return ToolOutput((InputText("a pixel"), image))


@tool
def count(ctx: ToolContext) -> str:
    """Tell how far it is."""
    ctx.update(title="begun")
    ctx.update(progress=0.5)
    ctx.update(title="nearly", progress=0.4)
    return "counted"


TOOLS = (add, list_primes, config_text, broken, show_pixel, count)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with Agent(tools=TOOLS, cwd=tmp_path_factory.mktemp("serve")) as agent:
        yield agent


@pytest.fixture(scope="module")
def served(agent: Agent) -> Iterator[Any]:
    with agent.serve() as serving:
        yield serving


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, LIMIT))


@pytest.mark.parametrize("mode", ERAS)
def test_tools_are_listed_with_their_schemas_and_hints(served: Any, mode: str) -> None:
    async def listed() -> Any:
        async with connected(served.url, served.token, mode) as client:
            return (await client.list_tools()).tools

    tools = {each.name: each for each in run(listed())}
    assert tuple(tools) == served.tools == tuple(each.tool_options.name for each in TOOLS)
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].input_schema["required"] == ["a"]
    assert tools["add"].input_schema["properties"]["a"]["description"] == "one of them."
    assert tools["add"].annotations.read_only_hint is False
    assert tools["list_primes"].annotations.read_only_hint is True
    assert tools["list_primes"].title == "List primes"


@pytest.mark.parametrize("mode", ERAS)
def test_what_calls_give_back(served: Any, mode: str) -> None:
    async def called() -> Any:
        async with connected(served.url, served.token, mode) as client:
            return {
                each: await client.call_tool(each, {"a": 3} if each == "add" else {})
                for each in served.tools
            }

    results = run(called())
    assert text_of(results["add"]) == '{"sum":5}'
    assert results["add"].structured_content == {"sum": 5}
    assert results["list_primes"].structured_content == {"result": [2, 3, 5]}
    assert results["config_text"].structured_content is None, "it says that it returns text"
    assert results["broken"].is_error
    assert "ValueError: no such luck" in text_of(results["broken"])
    words, picture = results["show_pixel"].content
    assert words.text == "a pixel"
    assert isinstance(picture, ImageContent)
    assert (picture.mime_type, picture.data) == ("image/png", PIXEL)


@pytest.mark.parametrize("mode", ERAS)
def test_the_tools_errors_are_results_and_the_protocols_are_not(served: Any, mode: str) -> None:
    async def called() -> Any:
        async with connected(served.url, served.token, mode) as client:
            unfit = await client.call_tool("add", {"a": "x", "c": 1})
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("multiply", {})
            return unfit, unknown.value

    unfit, unknown = run(called())
    assert unfit.is_error
    assert "a: expected an integer" in text_of(unfit)
    assert "c: not a parameter" in text_of(unfit)
    assert unknown.code == -32602
    assert "multiply" in unknown.message


@pytest.mark.parametrize("mode", ERAS)
def test_updates_go_out_as_growing_progress(served: Any, mode: str) -> None:
    async def called() -> Any:
        seen = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total, message))

        async with connected(served.url, served.token, mode) as client:
            await client.call_tool("count", {}, progress_callback=progress)
        return seen

    seen = run(called())
    assert [message for _, _, message in seen] == ["begun", None, "nearly"]
    shares = [done for done, _, _ in seen]
    assert shares == sorted(set(shares)), "the protocol wants each number above the last"
    assert shares[1] == 0.5


# -- who may talk to it ----------------------------------------------------------------------------


def post(serving: Any, **headers: str) -> httpx2.Response:
    headers = {"Accept": "application/json, text/event-stream", **headers}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    return httpx2.post(
        serving.url, json=body, headers=headers, trust_env=False, verify=False, timeout=LIMIT
    )


def test_without_the_token_nothing_is_answered(served: Any) -> None:
    for given in ("", "Bearer", "Bearer wrong", f"Basic {served.token}", f"Bearer {served.token}x"):
        answer = post(served, **({"Authorization": given} if given else {}))
        assert answer.status_code == 401, given
        assert answer.headers["www-authenticate"].startswith("Bearer ")


def test_no_part_of_an_answer_waits_for_an_acknowledgement() -> None:
    with loopback._listen(0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_other_names_of_this_machine_are_refused(served: Any) -> None:
    bearer = {"Authorization": f"Bearer {served.token}"}
    port = httpx2.URL(served.url).port
    assert post(served, **bearer, Host="evil.example").status_code == 421
    assert post(served, **bearer, Host=f"evil.example:{port}").status_code == 421
    assert post(served, **bearer, Host=f"127.0.0.1:{port + 1}").status_code == 421
    assert post(served, **bearer, Origin="https://evil.example").status_code == 403
    assert post(served, **bearer, Origin="null").status_code == 403
    assert post(served, **bearer, Origin=f"http://localhost:{port}").status_code == 400, (
        "it comes to the protocol, which wants a hello first"
    )


def test_a_body_without_end_is_refused(served: Any) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    answer = httpx2.post(
        served.url,
        content=b" " * (5 * 1024 * 1024),
        headers=headers,
        trust_env=False,
        timeout=LIMIT,
    )
    assert answer.status_code == 413


def raw(start: str, *more: str, body: bytes = b"", length: bool = True) -> bytes:
    """Return a request with the right host and token, and other headers."""
    named = [f"Content-Length: {len(body)}"] if length else []
    lines = (start, "Host: <host>", "Authorization: Bearer <token>", *more, *named, "", "")
    return "\r\n".join(lines).encode("latin-1") + body


def said(body: bytes, *more: str) -> bytes:
    kinds = ("Content-Type: application/json", "Accept: application/json, text/event-stream")
    return raw("POST /mcp HTTP/1.1", *kinds, *more, body=body)


GET, POST = "GET /mcp HTTP/1.1", "POST /mcp HTTP/1.1"
PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
HOSTILE_REQUESTS = [
    *(said(PING), said(PING, "Origin: http://evil"), said(PING, "Origin: null")),
    said(PING, "Origin: http://<host>", "Origin: http://evil"),
    *(said(PING, "Mcp-Session-Id: abc"), said(PING, "Mcp-Session-Id: \xff\xfe")),
    *(said(PING, "Content-Encoding: gzip"), said(PING, "Authorization: Bearer x")),
    *(raw(GET, "Host: evil"), raw("GET http://evil/mcp HTTP/1.1"), raw("GET //mcp HTTP/1.1")),
    *(raw("GET /mcp/../mcp HTTP/1.1"), raw("GET /mcp%00 HTTP/1.1"), raw("GET /mcp/ HTTP/1.1")),
    *(raw("GET /%6dcp HTTP/1.1"), raw(f"GET /{'a' * 1_000_000} HTTP/1.1")),
    *(raw(GET, *(f"X-{n}: y" for n in range(20_000))), raw(GET, f"X: {'y' * 1_000_000}")),
    *(raw(GET, "X: a\rb"), raw(GET, "X: a", " b"), b"\x16\x03\x01\x02\0\x01" + bytes(500)),
    *(raw(POST, "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), raw(POST, "Content-Length: -5")),
    raw(POST, "Content-Length: 99999999999999999999", length=False),
    raw(POST, "Content-Length: 5", "Content-Length: 6", length=False),
    raw(POST, "Transfer-Encoding: xchunked", length=False),
    raw(
        POST,
        "Transfer-Encoding: chunked",
        body=b"1;" + b"x" * 99_999 + b"\r\n{\r\n0\r\n\r\n",
        length=False,
    ),
    *(said(b"[" * 1_000_000), said(b'{"a":' * 99_999 + b"1" + b"}" * 99_999), said(b"\xff")),
    said(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ' + b"[" * 500_000),
    *(said(PING.replace(b"1,", each + b",")) for each in (b"9" * 9_999, b"NaN", b"[1]", b"{}")),
    *(said(b"[" + b",".join([PING] * 999) + b"]"), said(PING.replace(b"ping", b"\\ud800"))),
    said(PING.replace(b"ping", b"tools/call")),
    *(raw(f"{verb} /mcp HTTP/1.1") for verb in ("OPTIONS", "TRACE", "CONNECT", "DELETE", "PRI")),
    raw("DELETE /mcp HTTP/1.1", "Mcp-Session-Id: zz"),
    raw(GET, "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"),
    raw(GET, "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMA"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def test_hostile_requests_are_refused_and_the_next_is_answered(served: Any) -> None:
    url = httpx2.URL(served.url)
    for number, request in enumerate(HOSTILE_REQUESTS):
        filled = request.replace(b"<host>", url.netloc).replace(b"<token>", served.token.encode())
        with socket.create_connection((url.host, url.port), timeout=LIMIT) as connection:
            with suppress(OSError):  # it has hung up before all was sent
                connection.sendall(filled)
            answer = b""
            with suppress(ConnectionResetError):
                answer = connection.recv(12)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), (number, answer)
        assert served.running
    bearer = {"Authorization": f"Bearer {served.token}"}
    assert post(served, **bearer).status_code == 400, "it wants a hello first"


def hung_up(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection."""
    connection.settimeout(LIMIT)
    with suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


HALF_REQUESTS = {
    "silent": b"",
    "half a line": b"POST /mc",
    "half the headers": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ",
    "half a body": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{",
    "half a body with the token": b"POST /mcp HTTP/1.1\r\nHost: %(host)s\r\n"
    b"Authorization: Bearer %(token)s\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: 99\r\n\r\n{",
    "a second one": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nPOST /mcp HT",
}


def half_request(serving: Any, half: str) -> bytes:
    host = httpx2.URL(serving.url).netloc
    return HALF_REQUESTS[half] % {b"host": host, b"token": serving.token.encode()}


@pytest.mark.parametrize("half", HALF_REQUESTS)
def test_connections_that_ask_nothing_keep_nobody_out(served: Any, half: str) -> None:
    """Another person of this machine can connect without the token."""
    address = ("127.0.0.1", httpx2.URL(served.url).port)
    with ExitStack() as open_ones:
        for _ in range(loopback.MOST_CONNECTIONS + 20):
            each = socket.create_connection(address, timeout=LIMIT)
            open_ones.enter_context(each).sendall(half_request(served, half))
        assert [post(served).status_code for _ in range(20)] == [401] * 20


def test_a_request_that_is_there_is_answered_however_many_connect_with_it(
    agent: Agent, served: Any
) -> None:
    """All are accepted in one round of the loop; the fair one came first, so it waits longest."""
    web = served._web

    async def accept(theirs: socket.socket) -> None:
        protocol = loopback._ClientConnection(web.config, web.server_state, app_state={})
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, theirs)

    async def accept_all(connections: list[socket.socket]) -> None:
        await asyncio.gather(*map(accept, connections))

    with ExitStack() as open_ones:
        pairs = [socket.socketpair() for _ in range(loopback.MOST_CONNECTIONS + 20)]
        for ours, _ in pairs:
            open_ones.enter_context(ours)
        fair = pairs[0][0]
        fair.sendall(said(PING).replace(b"<host>", httpx2.URL(served.url).netloc))
        agent.session.engine.spawn(accept_all([theirs for _, theirs in pairs])).result(LIMIT)
        fair.settimeout(LIMIT)
        assert fair.recv(12) == b"HTTP/1.1 401"


def test_little_is_read_of_a_request_without_the_token(agent: Agent, served: Any) -> None:
    """Reading the small parts of a body takes a processor a second for each megabyte."""
    read: list[int] = []
    ended = threading.Event()

    class Counted(loopback._ClientConnection):
        def data_received(self, data: bytes) -> None:
            read.append(len(data))
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            ended.set()

    async def accept(theirs: socket.socket) -> None:
        protocol = Counted(served._web.config, served._web.server_state, app_state={})
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, theirs)

    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        ours.send(
            raw(POST, "Transfer-Encoding: chunked", body=b"1\r\n \r\n" * 30_000, length=False)
        )
        agent.session.engine.spawn(accept(theirs)).result(LIMIT)
        assert ended.wait(LIMIT)
    assert 0 < sum(read) < 20_000


def test_few_connections_are_accepted_at_once(agent: Agent, served: Any) -> None:
    """A kernel often has 1,024 descriptors, and those that are hung up on are freed later."""
    url, opened, go_on = (
        httpx2.URL(served.url),
        served._web.server_state.connections,
        threading.Event(),
    )

    async def most_in_a_round() -> int:
        most, before = 0, len(opened)
        while len(opened) < 150:
            await asyncio.sleep(0)
            most, before = max(most, len(opened) - before), len(opened)
        return most

    assert post(served).status_code == 401  # it has begun: with its first step the queue grows
    with ExitStack() as open_ones:
        open_ones.callback(go_on.set)
        agent.session.engine.post(go_on.wait)
        counted = agent.session.engine.spawn(most_in_a_round())
        for _ in range(150):
            open_ones.enter_context(socket.create_connection((url.host, url.port), timeout=LIMIT))
        go_on.set()
        assert counted.result(LIMIT) < 40


@pytest.mark.parametrize("half", HALF_REQUESTS)
def test_a_request_that_does_not_come_in_time_is_hung_up_on(
    served: Any, half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ("127.0.0.1", httpx2.URL(served.url).port)
    monkeypatch.setattr(loopback, "_REQUEST_LIMIT", 0.05)
    with socket.create_connection(address, timeout=LIMIT) as slow:
        slow.sendall(half_request(served, half))
        slow.settimeout(LIMIT)
        with suppress(ConnectionResetError):
            while slow.recv(4096):
                """What was asked before is answered."""


@pytest.mark.parametrize("more", ["", "Authorization: Bearer x\r\n"])
def test_requests_whose_answers_nobody_reads_keep_nobody_out(served: Any, more: str) -> None:
    url = httpx2.URL(served.url)
    asked = f"GET /mcp HTTP/1.1\r\nHost: {url.netloc}\r\n{more}\r\n".encode() * 2_000
    with ExitStack() as open_ones:
        for _ in range(loopback.MOST_CONNECTIONS + 20):
            each = open_ones.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect((url.host, url.port))
            each.setblocking(False)
            with suppress(OSError):  # it takes no more, or has hung up
                while each.send(asked):
                    """Until then."""
        assert [hello(served).status_code for _ in range(5)] == [200] * 5


def hello(serving: Any) -> httpx2.Response:
    """Begin a session as a client of 2025 does, and leave."""
    about = {"clientInfo": {"name": "leaver", "version": "1"}, "capabilities": {}}
    params = {"protocolVersion": "2025-06-18", **about}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return httpx2.post(
        serving.url,
        json=body,
        headers=bearer(serving),
        trust_env=False,
        verify=False,
        timeout=LIMIT,
    )


def bearer(serving: Any, **more: str) -> dict[str, str]:
    accept = "application/json, text/event-stream"
    return {"Authorization": f"Bearer {serving.token}", "Accept": accept, **more}


def test_clients_that_leave_without_a_word_keep_nobody_out() -> None:
    async def called() -> None:
        with Agent(tools=[add]) as agent, agent.serve() as serving:
            async with connected(serving.url, serving.token, "legacy") as staying:
                answers = [
                    await asyncio.to_thread(hello, serving) for _ in range(MOST_CLIENTS + 10)
                ]
                assert [each.status_code for each in answers] == [200] * len(answers)
                first, *_, last = [each.headers["mcp-session-id"] for each in answers]
                asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
                gone, there = [
                    httpx2.post(
                        serving.url,
                        json=asked,
                        headers=bearer(serving, **{"mcp-session-id": session}),
                        trust_env=False,
                        timeout=LIMIT,
                    ).status_code
                    for session in (first, last)
                ]
                assert (gone, there) == (404, 200), "the one that was idle longest made room"
                # Whoever is there, and hears the news, has not been idle.
                assert (await staying.call_tool("add", {"a": 1})).structured_content == {"sum": 3}

    run(called())


def test_the_calls_under_way_are_bounded() -> None:
    async def called() -> None:
        inside, end = asyncio.Semaphore(0), asyncio.Event()

        @tool(parallel=True)
        async def wait_long() -> str:
            """Wait until the end."""
            inside.release()
            await end.wait()
            return "ended"

        with Agent(tools=[wait_long]) as agent, agent.serve() as serving:
            async with connected(serving.url, serving.token) as client:
                calls = [
                    asyncio.create_task(client.call_tool("wait_long", {}))
                    for _ in range(MOST_CALLS_OF_ONE)
                ]
                for _ in calls:
                    await inside.acquire()
                refused = await client.call_tool("wait_long", {})
                assert refused.is_error
                assert "Wait until one has ended" in text_of(refused)
                end.set()
                assert {text_of(each) for each in await asyncio.gather(*calls)} == {"ended"}
                assert text_of(await client.call_tool("wait_long", {})) == "ended"

    run(called())


def test_what_is_granted_to_one_client_holds_for_it_alone() -> None:
    asked: list[tuple[str, ...]] = []

    def decide(question: Any) -> str:
        asked.append(question.scopes)
        return "approve_for_session"

    async def called() -> None:
        with (
            Agent(tools=[add], approval="untrusted", on_question=decide) as agent,
            agent.serve() as serving,
        ):
            for name in ("one", "two"):
                async with connected(serving.url, serving.token, name=name) as client:
                    for _ in range(2):
                        await client.call_tool("add", {"a": 1})
            assert asked == [("approve_for_session",)] * 2, "once of each, and with no rule"
            await agent.call("add", {"a": 1})
            assert len(asked) == 3, "the agent itself was granted nothing"
            await agent.call("add", {"a": 1})
            assert len(asked) == 3

    run(called())


def test_the_token_is_in_no_text_of_the_object(served: Any) -> None:
    assert len(served.token) >= 40
    assert served.token not in repr(served) + str(served)
    assert served.url in repr(served)
    headers = served.client_config()["mcpServers"]["notebook"]["headers"]
    assert headers == {"Authorization": f"Bearer {served.token}"}


def test_the_token_is_taken_out_of_what_tools_say(agent: Agent, served: Any) -> None:
    @tool(mutating=False)
    def leak() -> str:
        """Say the token."""
        return f"it is {served.token}"

    async def called() -> Any:
        async with connected(served.url, served.token) as client:
            return await client.call_tool("leak", {})

    agent.register(leak)
    try:
        asked = run(called())
    finally:
        agent.unregister("leak")
    assert served.token not in text_of(asked)
    assert "it is" in text_of(asked)


# -- the list changes ------------------------------------------------------------------------------


def test_clients_of_2025_hear_of_new_tools() -> None:
    async def told() -> Any:
        changed = asyncio.Event()

        async def hear(message: Any) -> None:
            if type(message).__name__ == "ToolListChangedNotification":
                changed.set()

        with Agent(tools=[add]) as agent, agent.serve() as serving:
            async with connected(
                serving.url, serving.token, "legacy", message_handler=hear
            ) as client:
                assert client.server_capabilities.tools.list_changed
                # What is sent before the client has opened its stream is lost, as the protocol of
                # 2025 has it; so this is done until it is heard.
                while not changed.is_set():
                    if len(serving.tools) == 1:
                        agent.register(list_primes)
                    else:
                        agent.unregister("list_primes")
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), 0.2)
                agent.register(list_primes)
                names = [t.name for t in (await client.list_tools()).tools]
                assert names == ["add", "list_primes"]
                await client.list_tools()  # what was sent before has come by now
                assert (await client.call_tool("list_primes", {})).structured_content
                changed.clear()
                agent.unregister("list_primes")
                await changed.wait()
                assert [t.name for t in (await client.list_tools()).tools] == ["add"]

    run(told())


def test_clients_of_2026_subscribe_to_new_tools() -> None:
    async def told() -> Any:
        with Agent(tools=[add]) as agent, agent.serve() as serving:
            async with (
                connected(serving.url, serving.token) as client,
                client.listen(tools_list_changed=True) as changes,
            ):
                agent.register(list_primes)
                event = await anext(aiter(changes))
                assert type(event).__name__ == "ToolsListChanged"

    run(told())


# -- calls side by side, and their end -------------------------------------------------------------


def test_calls_that_exclude_each_other_wait_and_the_others_do_not() -> None:
    together = threading.Barrier(2, timeout=LIMIT)
    inside: list[str] = []
    most: list[int] = []

    @tool(parallel=True)
    def meet() -> str:
        """Wait for the other call."""
        together.wait()
        return "met"

    @tool
    async def alone() -> str:
        """Count who is inside."""
        inside.append("x")
        most.append(len(inside))
        await asyncio.sleep(0)
        inside.pop()
        return "done"

    async def called() -> None:
        with Agent(tools=[meet, alone]) as agent, agent.serve() as serving:
            async with connected(serving.url, serving.token) as client:
                met = await asyncio.gather(*(client.call_tool("meet", {}) for _ in range(2)))
                assert [text_of(each) for each in met] == ["met", "met"]
                await asyncio.gather(*(client.call_tool("alone", {}) for _ in range(4)))

    run(called())
    assert most == [1, 1, 1, 1]


@pytest.mark.parametrize("mode", ERAS)
def test_a_client_that_gives_up_stops_its_call(mode: str) -> None:
    async def called() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        @tool
        async def wait_long() -> str:
            """Wait for ever."""
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return "never"

        with Agent(tools=[wait_long, add]) as agent, agent.serve() as serving:
            async with connected(serving.url, serving.token, mode) as client:
                call = asyncio.create_task(client.call_tool("wait_long", {}))
                await began.wait()
                call.cancel()
                await ended.wait()
                assert (await client.call_tool("add", {"a": 1})).structured_content == {"sum": 3}

    run(called())


def test_questions_go_to_the_programs_own_way() -> None:
    asked: list[tuple[str, str]] = []
    waited: list[str | None] = []

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        waited.append(message)

    def decide(question: Any) -> str:
        asked.append((question.tool, question.target))
        return "approve" if len(asked) == 1 else "deny"

    async def called() -> Any:
        with (
            Agent(tools=[add], approval="untrusted", on_question=decide) as agent,
            agent.serve() as serving,
        ):
            async with connected(serving.url, serving.token) as client:
                return [
                    await client.call_tool("add", {"a": each}, progress_callback=progress)
                    for each in (1, 2)
                ]

    allowed, refused = run(called())
    assert not allowed.is_error
    assert refused.is_error
    assert [tool_name for tool_name, _ in asked] == ["add", "add"]
    assert waited == ["waits for the person's approval"] * 2


def test_stop_ends_calls_that_are_under_way() -> None:
    """Also on a loop of our own, where nothing may be left behind."""
    began, ended = threading.Event(), threading.Event()

    @tool
    async def wait_long() -> str:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    with Agent(tools=[wait_long]) as agent:
        serving = agent.serve()

        async def called() -> None:
            async with connected(serving.url, serving.token) as client:
                await client.call_tool("wait_long", {})

        with ThreadPoolExecutor(1) as threads:
            call = threads.submit(run, called())
            assert began.wait(LIMIT)
            serving.stop()
            assert ended.wait(LIMIT)
            assert call.exception(LIMIT) is not None


def test_it_ends_with_stop_and_with_the_agent() -> None:
    with Agent(tools=[add]) as agent:
        first, second = agent.serve(), agent.serve(tools=["add"])
        assert agent.served == (first, second)
        first.stop()
        first.stop()
        assert not first.running
        assert agent.served == (second,)
        with pytest.raises(httpx2.ConnectError):
            post(first)
    assert not second.running


def test_what_cannot_be_served_is_told_in_a_sentence() -> None:
    with Agent(tools=[add]) as agent, agent.serve() as serving:
        with pytest.raises(FatalError, match="no tool 'mul' to serve; there are: add"):
            agent.serve(tools=["mul"])
        with pytest.raises(FatalError, match=r"Port \d+ of 127.0.0.1 cannot be used"):
            agent.serve(port=httpx2.URL(serving.url).port)
        with pytest.raises(FatalError, match="no port"):
            agent.serve(port=70_000)


def test_a_program_without_a_loop_serves_too() -> None:
    before = set(threading.enumerate())
    with Agent(tools=[add, broken]) as agent, agent.serve(tools=["add"]) as serving:
        assert serving.tools == ("add",)

        async def called() -> Any:
            async with connected(serving.url, serving.token) as client:
                return await client.call_tool("add", {"a": 1})

        assert run(called()).structured_content == {"sum": 3}
    assert "agent-serve" not in {thread.name for thread in set(threading.enumerate()) - before}


# Nothing in it configures logging, as nothing does in a kernel: errors go to the cell.
SERVES = """
import sys
from agent_magics import Agent, tool

@tool
def add(a: int) -> int:
    return a

with Agent(tools=[add]) as agent, agent.serve() as serving:
    print(serving.url, serving.token, flush=True)
    sys.stdin.read()
"""


@pytest.mark.soak
def test_clients_that_are_cut_off_put_nothing_into_a_cell() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SERVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        address, token = program.stdout.readline().split()
        url = httpx2.URL(address)
        call = PING.replace(b"ping", b"tools/list")
        for request in (said(PING)[:-9], said(PING)[: -len(PING)], said(call)):
            filled = request.replace(b"<host>", url.netloc).replace(b"<token>", token.encode())
            for lingers in (False, True):  # the second ends with a reset
                with socket.create_connection((url.host, url.port)) as connection:
                    connection.sendall(filled)
                    kept = struct.pack("ii", lingers, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, kept)
        bearer = {"Authorization": f"Bearer {token}"}
        answer = httpx2.post(address, headers=bearer, trust_env=False, timeout=LIMIT)
        assert answer.status_code == 400, "it wants a hello first"
        _, errors = program.communicate("")
    assert (program.returncode, errors) == (0, "")
