"""Several servers: shared, few, idle ones and large ones ended."""

import asyncio

import pytest

from agent_magics.protocol.errors import RespondToModel
from tests.support.language_servers.project import Project, project, run, spec

TEXT = "def f():\n    pass\n"


def test_a_server_starts_once_and_is_shared(tmp_path):
    async def work():
        async with project(tmp_path) as found:
            path = found.write("a.py", TEXT)
            await asyncio.gather(*(found.provider.document_symbols(path) for _ in range(8)))
            state = found.server.state
            assert state.restarts == 0 and state.memory > 1 << 20

    run(work())


def test_one_more_than_may_run_ends_the_one_that_was_not_asked_for_longest(tmp_path):
    async def work():
        async with project(tmp_path, most=2) as found:
            others = [_other(found, name) for name in "abc"]
            for other in others:
                assert await other.provider.document_symbols(other.write("a.py", TEXT))
            running = [each.running is not None for each in found.manager.named("")]
            assert running == [False, True, True]

    run(work())


def test_none_is_ended_while_all_are_asked(tmp_path):
    async def work():
        async with project(tmp_path, spec("hangs"), most=1) as found:
            path = found.write("a.py", TEXT)
            await found.provider.document_symbols(path)
            found.server.busy += 1
            other = _other(found, "b")
            with pytest.raises(RespondToModel, match="1 language servers are at work"):
                await other.provider.document_symbols(other.write("a.py", TEXT))
            found.server.busy -= 1

    run(work())


def test_an_idle_server_is_ended_and_started_again(tmp_path):
    async def work():
        async with project(tmp_path, idle_limit=0.0) as found:
            path = found.write("a.py", TEXT)
            await found.provider.document_symbols(path)
            await found.manager.look()
            assert found.server.running is None
            assert len(await found.provider.document_symbols(path)) == 1

    run(work())


def test_the_largest_server_is_ended_where_memory_is_short(tmp_path):
    async def work():
        async with project(tmp_path, spec("large"), most_memory=150 << 20) as found:
            small = _other(found, "small")
            for each in (small, found):
                await each.provider.document_symbols(each.write("a.py", TEXT))
            await found.manager.look()
            large, little = found.manager.named("large")[0], found.manager.named("good")[0]
            assert large.running is None and little.running is not None
            assert "MiB" in large.log.text()

    run(work())


def _other(found: Project, name: str) -> Project:
    folder = found.folder / name
    folder.mkdir()
    return Project(folder, spec(), found.manager)
