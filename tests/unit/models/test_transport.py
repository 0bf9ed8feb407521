"""Connections to servers: what is fetched, what is read as it comes, what ends in a sentence."""

import asyncio
import gc
import socket
import ssl
import zlib
from contextlib import suppress
from pathlib import Path
from traceback import TracebackException

import pytest

from agent_magics.models.access import ServerAccess
from agent_magics.models.faults import Fault
from agent_magics.models.transport import Reply, connect
from agent_magics.protocol.errors import FatalError
from tests.support.models import server as model_server
from tests.support.models.batch_server import BatchServer
from tests.support.models.proxy import Proxy
from tests.support.models.raw_server import RawServer
from tests.support.models.responses_server import ResponsesServer

KEY = "sk-0123456789abcdefghijkl"
CERTIFICATE = Path(model_server.__file__).with_name("self_signed.pem")


def fetch(server, longest, play):
    async def whole():
        transport = await connect(ServerAccess("sk-x", server.base_url), longest)
        try:
            await play(transport)
        finally:
            await transport.close()

    asyncio.run(whole())


@pytest.mark.soak
def test_a_full_disk_is_told_and_not_tried_again():
    async def play(transport):
        with pytest.raises(FatalError, match="/dev/full cannot be written") as caught:
            await transport.get(transport.url("/batches"), Path("/dev/full"))
        assert not isinstance(caught.value, Fault)

    with BatchServer() as server:
        fetch(server, 60, play)


def test_a_file_may_take_longer_than_a_row(tmp_path):
    async def play(transport):
        url = transport.url("/files/waits/content")
        fetching = asyncio.create_task(transport.get(url, tmp_path / "file"))
        with pytest.raises(Fault) as caught:
            await transport.get(url)
        assert caught.value.kind == "timed out"
        server.release()
        assert (await fetching).status == 200

    with BatchServer() as server:
        fetch(server, 0.2, play)


# -- answers that are read as they come ------------------------------------------------------------


def chunked(body, *headers):
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in body) + b"0\r\n\r\n"
    head = [b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + pieces


async def with_raw(serve, play, longest=5.0):
    """Let `play` use a transport to a server that each connection is given to."""
    async with RawServer(serve) as server:
        transport = await connect(ServerAccess(KEY, f"http://{server.place}/v1"), longest)
        try:
            return await play(transport)
        finally:
            await transport.close()


async def read_all(transport, body=b"{}"):
    answer = await transport.stream(transport.url("/responses"), body)
    if isinstance(answer, Reply):
        return answer
    try:
        return [chunk async for chunk in answer.chunks()]
    finally:
        answer.close()


def read_raw(answer, monkeypatch, **environment):
    """Return the request's head and the parts of the body that one answer is read in."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    heads = []

    async def serve(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()

    return asyncio.run(with_raw(serve, read_all)), heads[0].decode("latin-1")


def packed(body, bits):
    packer = zlib.compressobj(wbits=bits)
    return packer.compress(body) + packer.flush()


def test_chunks_that_have_arrived_come_together(monkeypatch):
    parts, _ = read_raw(chunked([b"ab", b"c", b"d" * 100]), monkeypatch)
    assert parts == [b"abc" + b"d" * 100]


@pytest.mark.parametrize(
    ("encoding", "bits"),
    [("gzip", 31), ("GZIP", 31), ("deflate", 15), ("deflate", -15)],
)
def test_what_is_packed_with_a_bound_is_unpacked(encoding, bits, monkeypatch):
    header = b"Content-Encoding: " + encoding.encode()
    parts, _ = read_raw(chunked([packed(b"words " * 99, bits)], header), monkeypatch)
    assert b"".join(parts) == b"words " * 99


@pytest.mark.parametrize("cut", range(1, 46, 3))
def test_members_of_gzip_that_follow_each_other_are_one_text(cut, monkeypatch):
    body = packed(b"one ", 31) + packed(b"two", 31)
    header = b"Content-Encoding: gzip"
    parts, _ = read_raw(chunked([body[:cut], body[cut:]], header), monkeypatch)
    assert b"".join(parts) == b"one two"


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15)])
def test_what_follows_a_packed_body_is_not_kept(encoding, bits, monkeypatch):
    header = b"Content-Encoding: " + encoding.encode()
    parts, _ = read_raw(chunked([packed(b"words", bits), b"x" * 9, b"y"], header), monkeypatch)
    assert b"".join(parts) == b"words"


@pytest.mark.parametrize(
    ("encoding", "body", "said"),
    [
        ("gzip", packed(bytes(20 << 20), 31), "a part of more than 16 MB"),
        ("gzip", b"no gzip at all", "cannot be unpacked"),
        ("br", b"anything", "compressed with 'br'"),
        ("gzip\r\nContent-Encoding: gzip", b"anything", "compressed with 'gzip, gzip'"),
    ],
)
def test_other_packed_bodies_are_refused_in_a_sentence(encoding, body, said, monkeypatch):
    with pytest.raises(Fault, match=said):
        read_raw(chunked([body], b"Content-Encoding: " + encoding.encode()), monkeypatch)


def test_organization_and_project_are_sent_where_they_are_set(monkeypatch):
    _, head = read_raw(chunked([b"x"]), monkeypatch, OPENAI_ORG_ID="org-1", OPENAI_PROJECT_ID="p1")
    assert "OpenAI-Organization: org-1" in head
    assert "OpenAI-Project: p1" in head
    _, head = read_raw(chunked([b"x"]), monkeypatch, OPENAI_ORG_ID="", OPENAI_PROJECT_ID="")
    assert "OpenAI-" not in head


def test_the_key_is_sent_whatever_netrc_says(tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password hunter2")
    home = str(tmp_path)
    _, head = read_raw(chunked([b"x"]), monkeypatch, HOME=home, NETRC=f"{home}/.netrc")
    assert f"Authorization: Bearer {KEY}" in head


def test_an_organization_that_no_header_holds_is_told(monkeypatch):
    _, head = read_raw(chunked([b"x"]), monkeypatch, OPENAI_ORG_ID=" org-1\n")
    assert "OpenAI-Organization: org-1\r\n" in head
    with pytest.raises(FatalError, match="OPENAI_PROJECT_ID has a line break"):
        read_raw(chunked([b"x"]), monkeypatch, OPENAI_PROJECT_ID="p\r\nX-Own: 1")


@pytest.mark.parametrize("status", [b"000", b"101", b"302", b"400", b"599"])
def test_another_status_than_success_comes_whole(status, monkeypatch):
    answer = b"HTTP/1.1 %s Odd\r\nContent-Length: 4\r\n\r\nsaid" % status
    reply, _ = read_raw(answer, monkeypatch)
    assert (reply.status, reply.content) == (int(status), b"" if status == b"101" else b"said")


def test_a_status_is_told_although_its_body_breaks(monkeypatch):
    reply, _ = read_raw(b"HTTP/1.1 401 No\r\nContent-Length: 9\r\n\r\nhalf", monkeypatch)
    assert (reply.status, reply.content) == (401, b"half")


def test_no_header_of_a_broken_answer_is_shown(monkeypatch):
    with pytest.raises(Fault, match="the server disconnected") as caught:
        read_raw(b"HTTP/1.1 200 OK\r\nSet-Cookie: hunter2\r\n", monkeypatch)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("head", [b"", b"\r\n"], ids=["headers", "body"])
def test_an_answer_that_trickles_before_it_can_be_used_ends(head, monkeypatch):
    monkeypatch.setattr("agent_magics.models.transport.CONNECT_TIMEOUT", 1.0)

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Odd\r\nContent-Length: 99999\r\n" + head)
        while not reader.at_eof():
            writer.write(b"x")
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.01)

    if head:  # its status is known, and tells more
        assert asyncio.run(with_raw(serve, read_all, 1.0)).status == 500
        return
    with pytest.raises(Fault) as caught:
        asyncio.run(with_raw(serve, read_all, 1.0))
    assert caught.value.kind == "timed out"


def test_an_answer_that_comes_before_a_large_body_was_read_is_told():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 5\r\n\r\nlarge")
        await writer.drain()

    async def play(transport):
        return await read_all(transport, bytes(10 << 20))

    assert asyncio.run(with_raw(serve, play))[::2] == (413, b"large")


@pytest.mark.parametrize("size", [20, 2 << 20])
def test_kept_connections_that_a_server_closes_as_a_request_comes_cost_no_try(size):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(size)
        writer.write(chunked([b"answer"]))
        await reader.readexactly(1)  # of the next request

    async def play(transport):
        for requests in (3, 1, 3):
            asked = (read_all(transport, bytes(size)) for _ in range(requests))
            assert await asyncio.gather(*asked) == [[b"answer"]] * requests

    asyncio.run(with_raw(serve, play))


@pytest.mark.parametrize("again", [False, True])
def test_what_begins_something_is_sent_once_over_a_kept_connection_that_breaks(again):
    asked = []

    async def serve(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(2)
        writer.write(chunked([b"answer"]))
        asked.append(await reader.readuntil(b"\r\n\r\n"))

    async def play(transport):
        url = transport.url("/batches")
        assert (await transport.post(url, b"{}", again=again)).content == b"answer"
        if again:
            assert (await transport.post(url, b"{}", again=True)).content == b"answer"
        else:
            with pytest.raises(Fault, match="Server disconnected"):
                await transport.post(url, b"{}")

    asyncio.run(with_raw(serve, play))
    assert len(asked) == (3 if again else 2)


def test_a_server_that_takes_requests_and_answers_none_gets_one_on_each_connection():
    asked = []

    async def serve(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))

    with pytest.raises(Fault, match="Server disconnected"):
        asyncio.run(with_raw(serve, read_all))
    assert len(asked) == 1


def test_closing_ends_an_answer_that_is_being_read():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await reader.read()

    async def play(transport):
        answer = await transport.stream(transport.url("/responses"), b"{}")
        chunks = answer.chunks()
        assert await anext(chunks) == b"half"
        reading = asyncio.ensure_future(anext(chunks))
        await transport.close()
        with pytest.raises(Fault, match="cut off in the middle"):
            await asyncio.wait_for(reading, 60)

    asyncio.run(with_raw(serve, play))


@pytest.mark.parametrize("is_dropped", [False, True])
def test_connections_that_nobody_closes_are_closed_quietly(is_dropped):
    async def whole():
        transport = await connect(ServerAccess("sk-x", "http://127.0.0.1:9/v1"), 5)
        session = transport._session
        if is_dropped:
            del transport
        else:
            await transport.close()
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return session.closed

    assert asyncio.run(whole())


# -- proxies ---------------------------------------------------------------------------------------


def tls_of_a_server():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.mark.parametrize("login", ["", "me:se/c@ret"], ids=["no login", "login"])
@pytest.mark.parametrize("kind", ["http", "https"])
@pytest.mark.parametrize("path", ["/v1", "/openai/deployments/d"], ids=["usual", "Azure's"])
def test_a_proxy_gets_its_login_and_no_key(kind, login, path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setenv("NO_PROXY", "")

    async def whole():
        async with Proxy(login) as proxy:
            written = "me:se%2Fc%40ret@" if login else ""
            monkeypatch.setenv(f"{kind}_proxy".upper(), f"http://{written}{proxy.place}")
            access = ServerAccess(KEY, server.base_url.replace("/v1", path))
            transport = await connect(access, 5)
            url = transport.url("/responses")
            try:
                assert (await transport.get(url)).status == 200
                assert (await transport.post(url, b"{}")).status == 200
                (await transport.stream(url, b"{}")).close()
            finally:
                await transport.close()
            return proxy.heads

    with ResponsesServer(["Hi."], tls=tls_of_a_server() if kind == "https" else None) as server:
        heads = asyncio.run(whole())
    lines = [line for head in heads for line in head.splitlines()]
    to_proxy = [line for line in lines if line.startswith("Proxy-") or kind == "https"]
    assert heads
    assert KEY not in "".join(to_proxy)
    assert any(line.startswith("Proxy-Authorization: Basic") for line in to_proxy) == bool(login)
    for request in server.requests:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers.get("api-key") == (KEY if "deployments" in path else None)


@pytest.mark.parametrize(
    "written",
    [
        *("socks5://me:hunter2@127.0.0.1:9", "http://", "http://me:hunter2@:3128"),
        *("http://me:hunter2@a..b:1", "http://127.0.0.1:99999", "http://me:hunter2/x@127.0.0.1:9"),
        *("http://[::1:9", "http://a b:9"),
    ],
    ids=range(8),
)
def test_a_proxy_that_cannot_be_used_is_told(written, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", written)
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(FatalError, match="names a proxy that cannot be used") as caught:
        asyncio.run(connect(ServerAccess(KEY, "http://models.example/v1"), 5))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("refusal", "said", "passing"),
    [
        (b"HTTP/1.1 407 No login\r\n\r\n", r"\(No login\)", False),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", r"\(Bad Gateway\)", True),
        (b"", r"\(Server disconnected\)", True),
    ],
    ids=["407", "502", "closed"],
)
def test_a_proxy_that_opens_no_way_is_told(refusal, said, passing, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")

    async def whole():
        async with Proxy(refusal=refusal) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:hunter2@{proxy.place}")
            transport = await connect(ServerAccess(KEY, "https://models.example/v1"), 5)
            try:
                await read_all(transport)
            finally:
                await transport.close()

    with pytest.raises(Fault, match=f"through the proxy .*{said}") as caught:
        asyncio.run(whole())
    assert caught.value.passing == passing
    assert "hunter2" not in str(caught.value)


def test_a_proxy_that_hangs_is_given_up_as_a_server_is(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "")

        async def whole():
            transport = await connect(ServerAccess(KEY, "https://models.example/v1"), 0.05)
            try:
                await read_all(transport)
            finally:
                await transport.close()

        with pytest.raises(Fault, match=r"through the proxy .*\(no answer in time\)"):
            asyncio.run(whole())


@pytest.mark.parametrize("answers", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"no HTTP"])
def test_no_frame_of_an_error_shows_the_key_or_a_login(answers):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers)
        writer.close()

    async def play(transport):
        assert repr(transport) == "Transport(timeout=5.0)"
        try:
            await read_all(transport)
        except Fault as fault:
            return "".join(TracebackException.from_exception(fault, capture_locals=True).format())
        return ""

    said = asyncio.run(with_raw(serve, play))
    assert KEY not in said
    assert (" headers>" in said) == (not answers.startswith(b"HTTP"))
