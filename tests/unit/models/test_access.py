"""The address of a server and the key for it, as they can be sent."""

import asyncio
from base64 import b64decode

import pytest

from agent_magics.models.access import ServerAccess
from agent_magics.models.transport import connect
from agent_magics.protocol.errors import FatalError

ADDRESS = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("written", ["sk-x1y2z3w4", "  sk-x1y2z3w4 ", "sk-x1y2z3w4\r\n"])
@pytest.mark.parametrize("is_given", [True, False], ids=["given", "in the environment"])
def test_a_key_is_sent_without_the_spaces_around_it(written, is_given, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "" if is_given else written)
    monkeypatch.setenv("OPENAI_BASE_URL", ADDRESS)
    access = ServerAccess(written if is_given else None, None)
    assert asyncio.run(access.key()) == "sk-x1y2z3w4"
    assert "sk-x1y2z3w4" in access.secrets()


@pytest.mark.parametrize(
    "odd", ["\n", "\r\nX: y", "\0", "\x1b", "\x7f", "é", "ключ", "\u200b", "\ud800"]
)
def test_a_key_that_no_header_holds_is_told_and_not_shown(odd):
    key = f"hunter2{odd}hunter2"
    with pytest.raises(FatalError, match="as no key has: give a valid one") as caught:
        asyncio.run(ServerAccess(key, ADDRESS).key())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "host",
    [
        *("a..b", ".", "...", "a" * 64, f"a.{'é' * 60}.b", "x:y@host:99999"),
        *(
            "127.0.0.1:99999",
            "x:y@localhost:port",
            "x:y@x:y@host:99999",
            "127.0.0.1:80\\v1",
            "[::1",
            "[zz]",
        ),
    ],
)
def test_an_address_that_nobody_can_have_is_told_without_its_login(host, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://{host}/v1")
    with pytest.raises(FatalError, match="is no address of a server") as caught:
        asyncio.run(connect(ServerAccess("sk-x1y2z3w4", None), 5))
    assert "x:y" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "login"),
    [
        ("me:p%40ss@127.0.0.1:1", "me:p@ss"),
        ("me@models.example", "me:"),
        ("m%C3%A9:p%3A@models.example", "mé:p:"),
    ],
)
def test_a_login_within_an_address_is_sent_and_no_other_key_needed(host, login):
    access = ServerAccess(None, f"http://{host}/v1")
    sent = access.key_headers(asyncio.run(access.key()))
    kind, _, written = sent["Authorization"].partition(" ")
    assert (kind, b64decode(written).decode()) == ("Basic", login)


@pytest.mark.parametrize("path", ["/v1", "/openai/deployments/d"], ids=["usual", "Azure's"])
def test_a_key_is_sent_where_the_server_reads_it(path):
    sent = ServerAccess(None, f"http://127.0.0.1:1{path}").key_headers("sk-x")
    assert sent.pop("Authorization") == "Bearer sk-x"
    assert sent == ({"api-key": "sk-x"} if "deployments" in path else {})
