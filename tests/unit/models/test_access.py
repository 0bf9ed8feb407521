"""The address of a server and the key for it, as they can be sent."""

import asyncio

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
    "host", ["a..b", ".", "...", "a" * 64, f"a.{'é' * 60}.b", "x:y@host:99999"]
)
def test_an_address_that_nobody_can_have_is_told_without_its_login(host, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://{host}/v1")
    with pytest.raises(FatalError, match="is no address of a server") as caught:
        asyncio.run(connect(ServerAccess("sk-x1y2z3w4", None), 5))
    assert "x:y" not in str(caught.value)
