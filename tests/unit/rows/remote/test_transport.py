"""Files that are fetched: their time is their own, and a full disk is no broken connection."""

import asyncio
from pathlib import Path

import pytest

from agent_magics.models.access import ServerAccess
from agent_magics.models.faults import Fault
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.remote.transport import connect
from tests.support.models.batch_server import BatchServer


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
