"""Connections to servers: what is fetched, what is read as it comes, what ends in a sentence."""

import asyncio
import gc
import ssl
import zlib
from pathlib import Path

import pytest

from agent_magics.models.access import ServerAccess
from agent_magics.models.faults import Fault
from agent_magics.models.transport import connect
from agent_magics.protocol.errors import FatalError
from tests.support.models import server as model_server
from tests.support.models.batch_server import BatchServer
from tests.support.models.proxy import Proxy
from tests.support.models.responses_server import ResponsesServer

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


def read_raw(answer, monkeypatch, **environment):
    """Return the request's head and the parts of the body that one answer is read in."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    heads = []

    async def serve(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def whole():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = f"http://127.0.0.1:{port}/v1"
        transport = await connect(ServerAccess("sk-x", address), 5)
        try:
            streamed = await transport.stream(transport.url("/responses"), b"{}")
            try:
                return [chunk async for chunk in streamed.chunks()]
            finally:
                streamed.close()
        finally:
            await transport.close()
            server.close()

    return asyncio.run(whole()), heads[0].decode("latin-1")


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


@pytest.mark.parametrize(
    ("encoding", "body", "said"),
    [
        ("gzip", packed(bytes(20 << 20), 31), "a part of more than 16 MB"),
        ("gzip", b"no gzip at all", "cannot be unpacked"),
        ("br", b"anything", "compressed with 'br'"),
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

KEY = "sk-0123456789abcdefghijkl"


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


def test_a_proxy_of_another_kind_is_told(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://person:secret@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(FatalError, match="a proxy of the kind socks5") as caught:
        asyncio.run(connect(ServerAccess("sk-x", "http://models.example/v1"), 5))
    assert "secret" not in str(caught.value)
