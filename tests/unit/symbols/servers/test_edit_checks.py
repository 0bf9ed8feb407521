"""What an edit has brought: which errors count as new, and how long an edit waits."""

import asyncio
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from agent_magics.symbols.servers import edit_checks
from agent_magics.symbols.servers.edit_checks import EditWatch, errors_of, new_errors
from agent_magics.symbols.servers.manager import shared_manager
from agent_magics.symbols.servers.project import LanguageServers
from agent_magics.symbols.types import Diagnostic, Position, Range
from tests.support.language_servers.project import Project, spec


def error(line: int, text: str, message: str = "wrong") -> tuple[Diagnostic, str]:
    place = Range(Position(line, 0), Position(line, 1))
    return Diagnostic(Path("a.py"), place, "error", message), text


def test_moved_errors_are_not_new():
    before = [error(0, "x"), error(5, "y")]
    after = [error(3, "x"), error(4, "z"), error(9, "y")]
    assert [each.range.start.line for each in new_errors(before, after)] == [4]


def test_an_error_that_stays_in_an_edited_line_is_not_new():
    assert new_errors([error(0, "x")], [error(0, "x = 1")]) == []
    assert len(new_errors([error(0, "x")], [error(0, "x = 1", "another")])) == 1
    assert len(new_errors(None, [error(0, "x")])) == 1


class Engine:
    """An event loop on a thread, with the servers of a folder."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.project = Project(folder, spec(mode), self.spawn(_manager()).result(30))
        self.servers = LanguageServers({"python": spec(mode)}, self.project.place)

    def spawn(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        self.spawn(self.project.manager.close()).result(20)
        self.spawn(self.loop.shutdown_default_executor()).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


async def _manager():
    return shared_manager()


@pytest.fixture
def engine(tmp_path, request):
    made = Engine(tmp_path, getattr(request, "param", "good"))
    yield made
    made.close()


def test_only_new_errors_are_named_and_at_most_twenty(engine, monkeypatch):
    for limit in ("BEFORE_LIMIT", "AFTER_LIMIT"):
        monkeypatch.setattr(edit_checks, limit, 30.0)
    path = engine.project.write("a.py", "wrong = 1\n")
    engine.spawn(engine.project.provider.document_symbols(path)).result(30)
    watch = EditWatch(engine.servers, engine.spawn, [path, path.with_name("new.py")])
    path.write_text("\n\nwrong = 1\nx = 'wrong'\n")
    engine.project.write("new.py", "wrong()\n" * 30)
    lines = watch.finish(engine.project.folder, pytest.fail).splitlines()
    assert lines[0] == "Errors since this edit:"
    assert lines[1] == "a.py:4:1: this is wrong (wrongness)"
    assert lines[-1] == "(11 more)"
    assert len(lines) == 22


def test_an_edit_starts_no_server(engine):
    path = engine.project.write("a.py", "wrong = 1\n")
    assert engine.spawn(errors_of(engine.servers, [path])).result(30) == {}
    assert engine.project.manager.states() == ()


@pytest.mark.parametrize("engine", ["dies_checking"], indirect=True)
def test_an_edit_starts_none_that_ends_when_it_is_asked(engine):
    path = engine.project.write("a.py", "wrong = 1\n")
    engine.spawn(engine.project.provider.document_symbols(path)).result(30)
    assert engine.spawn(errors_of(engine.servers, [path])).result(30) == {path: None}
    assert engine.project.server.state.restarts == 0
    assert not engine.project.server.is_running


@pytest.mark.parametrize("error", [RuntimeError("a fault"), CancelledError(), None])
def test_an_edit_never_fails_by_its_check(tmp_path, error):
    def spawn(coroutine):
        coroutine.close()
        future = Future()
        future.cancel() if error is None else future.set_exception(error)
        future.set_running_or_notify_cancel() if error is None else None
        return future

    watch = EditWatch(None, spawn, [tmp_path / "a.py"])
    assert watch.finish(tmp_path, pytest.fail) == ""


def test_late_errors_are_told_later(engine, monkeypatch):
    monkeypatch.setattr("agent_magics.symbols.servers.edit_checks.AFTER_LIMIT", 0.0)
    path = engine.project.write("a.py", "x = 1\n")
    engine.spawn(engine.project.provider.document_symbols(path)).result(30)
    watch = EditWatch(engine.servers, engine.spawn, [path])
    path.write_text("x = 'wrong'\n")
    told, came = [], threading.Event()
    assert watch.finish(engine.project.folder, lambda text: (told.append(text), came.set())) == ""
    assert came.wait(30)
    assert told[0].endswith("a.py:1:1: this is wrong (wrongness)")
