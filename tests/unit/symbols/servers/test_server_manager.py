"""Several servers: shared, few, idle ones and large ones ended."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.servers.manager import shared_manager
from agent_magics.symbols.servers.process import Workplace
from agent_magics.symbols.servers.project import LanguageServers
from tests.support.language_servers.project import Project, project, run, spec

LIMIT = 20.0  # seconds
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


@pytest.mark.parametrize("mode", ["good", "never_starts"])
def test_two_that_begin_at_once_keep_to_the_limit(tmp_path, mode):
    async def work():
        async with project(tmp_path, most=2) as found:
            for name in "ab":
                other = _other(found, name, mode)
                path = other.write("a.py", TEXT)
                if mode == "good":
                    await other.provider.document_symbols(path)
                else:
                    with pytest.raises(RespondToModel, match="is still starting"):
                        await other.with_limit(0.1).document_symbols(path)
            new = [_other(found, name) for name in "cd"]
            asked = [each.provider.document_symbols(each.write("a.py", TEXT)) for each in new]
            await asyncio.gather(*asked)
            assert [each.is_running for each in found.manager.named("")] == [False] * 2 + [True] * 2

    run(work())


@pytest.mark.soak
def test_a_restart_of_all_keeps_to_the_limit_and_is_looked_after(tmp_path):
    async def work():
        async with project(tmp_path, most=2, look_every=0.0) as found:
            looked = asyncio.Event()

            async def look():
                looked.set()

            for name in "abc":
                other = _other(found, name)
                await other.provider.document_symbols(other.write("a.py", TEXT))
            found.manager.look = look
            await asyncio.gather(*(each.stop() for each in found.manager.named("")))
            await asyncio.gather(*_watches())
            looked.clear()
            await found.manager.restart("")
            running = [each.running is not None for each in found.manager.named("")]
            assert running == [False, True, True]
            await looked.wait()
            await found.manager.restart("python")
            assert sum(each.is_running for each in found.manager.named("")) == 2

    run(work())


def test_a_look_that_fails_is_not_the_last(tmp_path, caplog):
    async def work():
        async with project(tmp_path, look_every=0.0) as found:
            again, looks = asyncio.Event(), []

            async def look():
                looks.append(len(looks))
                if len(looks) == 1:
                    raise OSError("no /proc")
                again.set()

            found.manager.look = look
            await found.provider.document_symbols(found.write("a.py", TEXT))
            await again.wait()

    run(work())
    assert "no /proc" in caplog.text


def test_a_program_that_ends_is_told_nothing_of_a_look(tmp_path, caplog):
    async def work():
        async with project(tmp_path, look_every=0.0) as found:
            await found.provider.document_symbols(found.write("a.py", TEXT))
            executor = ThreadPoolExecutor()
            executor.shutdown()  # as at the end of the interpreter
            asyncio.get_running_loop().set_default_executor(executor)
            await asyncio.gather(*_watches())
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())

    run(work())
    assert caplog.text == ""


def _watches():
    return [each for each in asyncio.all_tasks() if each.get_name() == "language servers"]


def _no_memory(process):
    pytest.fail("the memory was looked at")


def test_only_servers_that_run_are_asked_for_the_whole_project(tmp_path, monkeypatch):
    monkeypatch.setattr("agent_magics.symbols.servers.lifecycle.memory_of", _no_memory)

    async def work():
        place = Workplace((tmp_path.resolve(),), needs_sandbox=False)
        servers = LanguageServers({"python": spec()}, place)
        try:
            assert await servers.providers() == ()
            found = Project(tmp_path, spec(), shared_manager())
            path = found.write("a.py", TEXT)
            await (await servers.provider_for(path)).document_symbols(path)
            assert [each.root for each in await servers.providers()] == [found.folder]
            await found.server.stop()
            assert await servers.providers() == ()
        finally:
            await shared_manager().close()

    run(work())


def _other(found: Project, name: str, mode: str = "good") -> Project:
    folder = found.folder / name
    folder.mkdir()
    return Project(folder, spec(mode), found.manager)


def test_an_end_of_all_that_is_cancelled_leaves_no_process(tmp_path):
    async def work():
        async with project(tmp_path) as found:
            await found.provider.document_symbols(found.write("a.py", TEXT))
            process = found.server._process
            closing = asyncio.create_task(found.manager.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait({closing})
            assert await asyncio.to_thread(process.wait, LIMIT)

    run(work())
