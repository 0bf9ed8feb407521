"""One language server, well behaved and not: answers, limits, restarts."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.exec.temporary_files import scratch_folder
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.symbols.servers import session
from agent_magics.symbols.servers.lifecycle import LanguageServerState
from agent_magics.symbols.servers.specs import ServerSpec
from agent_magics.symbols.types import NotProvided, Position, Range, TextEdit
from tests.support.language_servers.project import Project, project, run, spec

LIMIT = 20.0  # seconds
TEXT = "class A:\n    def f(self):\n        pass\n\n\ndef g():\n    return A().f()\n"


def scenario(work, folder: Path, mode: str = "good", *more: str, **limits):
    async def go():
        async with project(folder, spec(mode, *more), **limits) as found:
            await work(found)

    run(go())


def test_the_symbols_of_a_file_are_a_tree(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        a, g = await found.provider.document_symbols(path)
        assert (a.name, a.kind, g.name, g.kind) == ("A", "class", "g", "function")
        assert a.children[0].name == "f" and a.children[0].container == "A"
        assert a.range == Range(Position(0, 0), Position(2, 12))

    scenario(work, tmp_path)


def test_positions_count_code_points(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", 'x = "𝕏𝕏é"; name = 1\nprint(name)\n')
        at = path.read_text("utf-8").index("name")
        uses = await found.provider.references(path, Position(0, at))
        assert [use.range.start for use in uses] == [Position(0, at), Position(1, 6)]
        edits = await found.provider.rename(path, Position(1, 6), "new")
        assert edits == {
            path: (
                TextEdit(Range(Position(0, at), Position(0, at + 4)), "new"),
                TextEdit(Range(Position(1, 6), Position(1, 10)), "new"),
            )
        }

    scenario(work, tmp_path)


def test_errors_that_a_server_pushes_are_known_however_it_writes_the_name_of_the_file(tmp_path):
    async def work(found: Project):
        for name in ("me@work/c++/a b.py", "é(1)/[id]=$x,y;z&.py", "100%/:.py"):
            path = found.write(name, "fine = 1\nwrong = 2\n")
            (problem,) = await found.provider.diagnostics(path)
            assert (problem.path, problem.range.start.line) == (path, 1)

    scenario(work, tmp_path, "pushes")


def test_a_rename_that_makes_files_is_refused(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(NotProvided, match="make, move or delete"):
            await found.provider.rename(path, Position(0, 6), "B")

    scenario(work, tmp_path, "moves")


def test_what_a_server_cannot_do_is_said(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(NotProvided, match="does not know who calls whom"):
            await found.provider.incoming_calls(path, Position(0, 6))

    scenario(work, tmp_path)


def test_changes_that_nobody_told_of_are_seen(tmp_path):
    async def work(found: Project):
        path, other = found.write("a.py", TEXT), found.write("b.py", "A = 1\n")
        first = await found.provider.references(path, Position(0, 6))
        assert {use.path.name for use in first} == {"a.py", "b.py"}
        other.write_text("B = 1\n")  # of the same size
        found.write("deep/c.py", "A = 1\n")
        again = await found.provider.references(path, Position(0, 6))
        assert {use.path.name for use in again} == {"a.py", "c.py"}
        path.unlink()
        assert {s.name for s in await found.provider.find("")} == set()

    scenario(work, tmp_path)


def test_uses_are_not_named_while_the_files_are_being_found(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_SCAN_LIMIT", 0.2)

    async def work(found: Project):
        path = found.write("a.py", TEXT)
        await found.provider.document_symbols(path)  # it has said by then that it looks for them
        for _ in range(2):
            with pytest.raises(RespondToModel, match=r"still looks for the source files below /.*"):
                await found.provider.references(path, Position(0, 6))
        assert (await found.provider.definition(path, Position(0, 6))).text == "A"

    scenario(work, tmp_path, "searches", "", "pyright")


def test_a_request_is_repeated_where_the_server_asks_for_that(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        assert (await found.provider.definition(path, Position(0, 6))).text == "A"

    scenario(work, tmp_path, "busy")


@pytest.mark.parametrize("mode", ["garbage", "wrong_ids"])
def test_what_is_no_answer_is_ignored(tmp_path, mode):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        assert (await found.provider.definition(path, Position(0, 6))).text == "A"
        assert "ignored" in found.server.log.text()

    scenario(work, tmp_path, mode)


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("malformed", "cannot answer: its answer is malformed."),
        ("deep", "cannot answer: its answer is malformed."),
        ("refuses", "cannot answer: a bccc"),
        ("huge", "cannot answer: its answer has 67,108,865 bytes"),
    ],
)
def test_an_answer_that_is_none_is_one_sentence(tmp_path, mode, sentence):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(RespondToModel, match=sentence) as raised:
            await found.provider.definition(path, Position(0, 6))
        assert len(str(raised.value)) < 500
        assert len(await found.provider.document_symbols(path)) == 2  # it goes on

    scenario(work, tmp_path, mode)


def test_requests_of_a_server_are_refused_but_for_its_settings(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        replies = json.loads((await found.provider.definition(path, Position(0, 6))).text)
        by_id = {reply["id"]: reply for reply in replies}
        assert by_id[1]["error"]["code"] == -32601
        assert by_id[2]["result"] == [5]
        assert by_id[3]["result"] is None  # of a question to the person, who chooses nothing

    scenario(work, tmp_path, "asks")


def test_a_hanging_server_holds_nobody_and_is_ended_at_the_second_time(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        assert await found.provider.document_symbols(path)
        hurried = found.with_limit(0.3)
        with pytest.raises(RespondToModel, match="did not answer in time; ask again"):
            await hurried.references(path, Position(0, 6))
        assert found.server.running is not None
        assert await found.provider.document_symbols(path)  # others are answered
        for _ in range(2):
            with pytest.raises(RespondToModel, match="did not answer"):
                await hurried.references(path, Position(0, 6))
        assert found.server.running is None
        assert len(await found.provider.document_symbols(path)) == 2
        assert found.server.state.restarts == 1

    scenario(work, tmp_path, "hangs")


def test_a_server_that_dies_is_started_again_and_at_last_left_alone(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(RespondToModel, match="ended twice"):
            await found.provider.references(path, Position(0, 6))
        assert len(await found.provider.document_symbols(path)) == 2
        with pytest.raises(RespondToModel, match="ended"):
            await found.provider.references(path, Position(0, 6))
        with pytest.raises(RespondToModel, match=r"4 times within a minute.*%agent lsp restart"):
            await found.provider.document_symbols(path)
        assert found.server.state.state is LanguageServerState.FAILED
        await found.manager.restart("python")
        assert len(await found.provider.document_symbols(path)) == 2

    scenario(work, tmp_path, "dies")


def test_a_server_that_ends_at_its_start_says_its_last_words(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(RespondToModel, match=r"could not be started: .*it said: no licence"):
            await found.provider.document_symbols(path)

    scenario(work, tmp_path, "ends_at_once")


@pytest.mark.needs("tier 1")
def test_a_server_cannot_write_the_workspace(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(RespondToModel, match=r"it said: (Permission|OS)Error"):
            await found.provider.document_symbols(path)
        assert not (found.folder / "pids").exists()

    scenario(work, tmp_path, "good", str(tmp_path))


@pytest.mark.needs("tier 1")
def test_a_server_has_a_cache_that_it_may_write(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        assert (await found.provider.definition(path, Position(0, 6))).text == "kept"

    scenario(work, tmp_path, "caches")


def test_a_start_that_takes_too_long_holds_nobody(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(RespondToModel, match="is still starting"):
            await found.with_limit(0.2).document_symbols(path)

    scenario(work, tmp_path, "never_starts")


def test_a_stop_is_a_sentence_to_those_who_wait_for_the_start(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        waiting = [asyncio.create_task(found.provider.document_symbols(path)) for _ in range(2)]
        await asyncio.sleep(0)
        await found.server.stop()
        for each in waiting:
            with pytest.raises(RespondToModel, match="was ended while it started"):
                await each
        assert not found.server.is_running

    scenario(work, tmp_path, "never_starts")


@pytest.mark.parametrize("error", [OSError(28, "No space left"), FatalError("No launcher.")])
def test_whatever_hinders_a_start_is_a_sentence_and_leaves_nothing(tmp_path, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    made = Path(scratch_folder())
    before = set(made.iterdir())
    monkeypatch.setattr(shared_launcher(), "spawn", fail)

    async def work(found: Project):
        path = found.write("a.py", TEXT)
        with pytest.raises(RespondToModel, match=r"No space left|No launcher\."):
            await found.provider.document_symbols(path)
        assert found.server.state.state is LanguageServerState.FAILED

    scenario(work, tmp_path)
    assert set(made.iterdir()) <= before  # those of servers that end meanwhile go


def test_a_program_that_is_missing_leaves_nothing(tmp_path):
    made = Path(scratch_folder())
    before = set(made.iterdir())

    async def work():
        async with project(tmp_path, ServerSpec("none", ("/nowhere/server",))) as found:
            with pytest.raises(RespondToModel, match="/nowhere/server"):
                await found.provider.document_symbols(found.write("a.py", TEXT))

    run(work())
    assert set(made.iterdir()) <= before  # those of servers that end meanwhile go


def test_a_server_that_does_not_read_holds_nobody(tmp_path):
    async def work(found: Project):
        paths = [found.write(f"a{number}.py", "#" * 3_000_000) for number in range(3)]
        await found.provider.find("")
        for path in paths:
            with pytest.raises(RespondToModel, match=r"did not answer|still starting"):
                await found.with_limit(0.2).document_symbols(path)

    scenario(work, tmp_path, "deaf")


def test_a_file_that_is_no_text_of_the_project_is_refused(tmp_path):
    async def work(found: Project):
        path = found.write("a.py", TEXT)
        link = found.folder / "link.py"
        link.symlink_to(path)
        os.mkfifo(found.folder / "pipe.py")
        for name in ("link.py", "pipe.py", "missing.py"):
            with pytest.raises(RespondToModel, match=name.partition(".")[0]):
                await found.provider.document_symbols(found.folder / name)

    scenario(work, tmp_path)


@pytest.mark.parametrize("steps", range(4))
def test_a_cancelled_end_of_a_server_that_has_just_started_leaves_no_process(tmp_path, steps):
    async def work(found: Project):
        each = found.provider
        server = await each.manager.get_or_start(each.spec, each.language, each.root, each.place)
        stopped, reached = [], asyncio.Event()

        async def stop_then():
            while server.running is None:  # noqa: ASYNC110 - the very step that ends its start
                await asyncio.sleep(0)
            stopped.append(server._process)
            reached.set()
            await server.stop()

        stopping = asyncio.create_task(stop_then())
        starting = asyncio.create_task(server.session())
        await reached.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait({stopping, starting})
        assert not server.is_running
        assert await asyncio.to_thread(stopped[0].wait, LIMIT)

    scenario(work, tmp_path)
