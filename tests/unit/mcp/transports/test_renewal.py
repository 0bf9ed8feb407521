"""Renewals of tokens: one at a time among all kernels, and nothing is left where one is cut off."""

import asyncio
import json
import time

import httpx2
import pytest

from agent_magics.files.locks import MOMENT
from agent_magics.mcp.server_secrets import Redactor
from agent_magics.mcp.transports.oauth import Tokens
from agent_magics.mcp.transports.renewal import alone_with
from agent_magics.models.providers.credentials import drop_key, keep_key, kept_secret
from agent_magics.protocol.mcp import McpServerConfig
from tests.support.descriptors import none_left

ADDRESS = "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize("steps", range(5))
def test_who_waits_and_is_cut_off_leaves_nothing(steps):
    async def wait():
        async with alone_with("x"):
            return

    async def cut_off():
        async with alone_with("x"):
            waiting = asyncio.create_task(wait())
            for _ in range(steps):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(wait(), MOMENT)

    with none_left():
        asyncio.run(cut_off())


def test_one_at_a_time():
    order = []

    async def work(name):
        async with alone_with("x"):
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

    async def side_by_side():
        await asyncio.gather(*map(work, "abc"))

    asyncio.run(side_by_side())
    assert order[::2] == order[1::2]


def test_where_no_lock_can_be_made_it_goes_on(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    async def work():
        async with alone_with("x"):
            return True

    assert asyncio.run(work())


@pytest.fixture
def tokens():
    """Stored tokens that are over."""
    config = McpServerConfig("small", url=ADDRESS, transport="http")
    kept = {
        "tokens": {"access_token": "a", "token_type": "Bearer", "refresh_token": "r"},
        "client": {"client_id": "c", "redirect_uris": ["http://127.0.0.1/callback"]},
        "expires_at": time.time() - 1,
    }
    keep_key(f"mcp:small:{ADDRESS}", json.dumps(kept))
    yield Tokens(config, {}, Redactor(config, {}))
    drop_key(f"mcp:small:{ADDRESS}")


def test_requests_that_are_refused_together_are_renewed_once(tokens):
    """The second one's answer comes when the first one's token is renewed already."""

    async def requests():
        await tokens.load()
        auth = tokens.silent_auth()
        flows = [auth.async_auth_flow(httpx2.Request("POST", ADDRESS)) for _ in range(2)]
        await renewed(flows[0], await anext(flows[0]), "b")
        assert sends(await anext(flows[1])) == "Bearer b"
        renewal = await flows[0].asend(httpx2.Response(401))
        assert sends(await renewed(flows[0], renewal, "c")) == "Bearer c"
        assert sends(await flows[1].asend(httpx2.Response(401))) == "Bearer c"
        for flow in flows:
            await flow.aclose()

    asyncio.run(requests())


async def renewed(flow, renewal, token):
    """Answer a renewal; return the request that is sent with the new token."""
    assert b"grant_type=refresh_token" in renewal.content
    granted = {"access_token": token, "refresh_token": "r", "token_type": "Bearer"}
    return await flow.asend(httpx2.Response(200, json=granted))


def sends(request):
    """Return the token of a request."""
    return request.headers["authorization"]


def test_a_renewal_that_is_cut_off_leaves_the_next_one_its_place(tokens):
    async def renewals():
        await tokens.load()
        auth = tokens.silent_auth()
        for _ in range(2):
            flow = auth.async_auth_flow(httpx2.Request("POST", ADDRESS))
            async with asyncio.timeout(30):
                renewal = await anext(flow)
            assert b"refresh_token=r" in renewal.content
            assert renewal.extensions["timeout"]["read"]
            await flow.aclose()

    with none_left():
        asyncio.run(renewals())


def test_a_renewal_that_is_under_way_does_not_undo_a_logout(tokens):
    name = f"mcp:small:{ADDRESS}"

    async def log_out_meanwhile():
        async with alone_with(name):
            logging_out = asyncio.create_task(tokens.forget())
            await asyncio.wait({logging_out}, timeout=MOMENT)
            keep_key(name, "{}")
        await logging_out

    asyncio.run(log_out_meanwhile())
    assert kept_secret(name) is None
