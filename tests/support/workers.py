"""Runs tests in several processes: forks of this one, made once it has collected all of them.

So modules are imported and tests collected once, whatever the number of workers. Each takes a file,
and the next one when it is done with it. The command line names this plugin: without ``--workers``
all tests run in the process that collected them.
"""

import atexit
import itertools
import multiprocessing
import os
import selectors
import signal
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
from _pytest.runner import runtestprotocol

from tests.support import forks

# Threads that a fork can be without: of jemalloc, of what polars is when it is only imported, and
# that of our commands, which a fork makes anew. (So does OpenBLAS, whose are named as the process.)
_DISPENSABLE = {"jemalloc_bg_thd", "polars-ooc-clea", "agent-exec"}
RESTARTS = 2  # of the workers, for what is left where one died
PATIENCE = 10  # seconds that workers have to end in, after their last test or an interrupt


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run in N processes")
    parser.addoption("--apart", action="store_true", help="a file's tests may run in several")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers, if there are to be any."""
    option = session.config.option
    if not option.workers or option.collectonly or session.testsfailed:
        return None  # pytest's own loop knows what to do
    if threads := _threads():
        raise pytest.UsageError(f"workers would lack what modules started: {', '.join(threads)}")
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one for all
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    reporter.showfspath = False  # tests of several files end by turns
    left = dict(enumerate(session.items))
    for _ in range(1 + RESTARTS):
        if left:
            _Run(session, left).until_all_have_ended()
    if left:
        session.shouldfail = f"not run, since workers died {1 + RESTARTS} times: {len(left)} tests"
        raise session.Failed(session.shouldfail)
    return True


def _threads() -> list[str]:
    """Return the names of the threads of this process that its forks would lack."""
    tasks = Path("/proc/self/task").glob("*/comm")  # none but on Linux
    names = {path.parent.name: path.read_text(encoding="utf-8").strip() for path in tasks}
    # Python's own are named there only from 3.14 on.
    started = {each.name for each in threading.enumerate() if each is not threading.main_thread()}
    known = {names.get(str(os.getpid())), *_DISPENSABLE}
    return sorted({*started, *names.values()} - known)


class _Run:
    """Workers, from their start to their end.

    Args:
        session: what has collected the tests.
        left: the tests to run, by their numbers; each is taken out when it has run.
    """

    def __init__(self, session: pytest.Session, left: dict[int, pytest.Item]) -> None:
        self._session = session
        self._hook = session.config.hook
        self._left = left
        self._current: dict[Connection, int | None] = {}  # the test that each worker runs
        self._ready = selectors.DefaultSelector()
        self._processes: list[psutil.Process] = []

    def until_all_have_ended(self) -> None:
        """Start workers, and report the tests that they have run.

        Raises:
            pytest.Session.Failed: as many tests failed as may.
            pytest.Session.Interrupted: a plugin ends the run.
        """
        try:
            self._start()
            while self._current:
                for key, _ in self._ready.select():
                    self._receive(key.fileobj)
        except BaseException:
            for process in self._processes:
                process.send_signal(signal.SIGINT)
            raise
        finally:
            for process in psutil.wait_procs(self._processes, timeout=PATIENCE)[1]:
                os.killpg(process.pid, signal.SIGKILL)

    def _start(self) -> None:
        shares = self._shares()
        queue, writer = os.pipe()
        for name in range(1, 1 + min(self._session.config.option.workers, len(shares))):
            receiver, sender = multiprocessing.Pipe(duplex=False)
            worker = _Worker(
                self._session, name, (shares[each] for each in _taken(queue, writer)), sender
            )
            self._processes.append(psutil.Process(forks.start(worker.run)))
            sender.close()
            self._current[receiver] = None
            self._ready.register(receiver, selectors.EVENT_READ)
        # All that there is to do, two bytes each: whoever reads two has taken a share. Only now,
        # when an interrupt would reach each worker.
        os.write(writer, b"".join(each.to_bytes(2, "big") for each in range(len(shares))))
        os.close(writer)
        os.close(queue)

    def _shares(self) -> list[list[int]]:
        """Return the numbers of tests that one worker runs, one after the other."""
        if self._session.config.option.apart:
            return [[number] for number in self._left]
        # Each worker with tests of the browser starts a JupyterLab and a Chromium of its own, which
        # take ten seconds of a processor: half of the workers run them.
        half = max(1, self._session.config.option.workers // 2)
        shares: dict[object, list[int]] = {}
        browser: dict[Path, int] = {}  # its files, each with its place among them
        for each, item in self._left.items():
            share: object = item.path
            if item.path.parent.name == "browser":
                share = browser.setdefault(item.path, len(browser)) % half
            shares.setdefault(share, []).append(each)
        return list(shares.values())

    def _receive(self, worker: Any) -> None:
        """Report a test that has run, or whose worker has died."""
        done = self._current[worker]
        try:
            reports, following = worker.recv()
        except (EOFError, OSError):  # between two messages, or within one
            reports, following = [] if done is None else [_death(self._left[done])], None
        self._current[worker] = following
        if following is None:  # it has only to end
            self._ready.unregister(worker)
            del self._current[worker]
        if done is not None:
            self._report(self._left.pop(done), reports)

    def _report(self, item: pytest.Item, reports: list[dict[str, Any]]) -> None:
        test = {name: reports[0][name] for name in ("nodeid", "location")}
        self._hook.pytest_runtest_logstart(**test)
        for data in reports:
            report = self._hook.pytest_report_from_serializable(config=item.config, data=data)
            self._hook.pytest_runtest_logreport(report=report)
        self._hook.pytest_runtest_logfinish(**test)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


def _death(item: pytest.Item) -> dict[str, Any]:
    """Return the report of a test whose worker ended."""
    text = f"the process that ran {item.nodeid} ended"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
    return item.config.hook.pytest_report_to_serializable(config=item.config, report=report)


def _taken(queue: int, writer: int) -> Iterator[int]:
    """Take shares until none is left."""
    os.close(writer)  # else the queue would have no end
    while taken := os.read(queue, 2):
        yield int.from_bytes(taken, "big")


def _print_apart(capture: Any) -> None:
    """Keep what this process prints in files of its own; otherwise they are those of all workers.

    They take the place of the old ones: modules may hold the `sys.stderr` of their import.
    """
    for each in (capture._global_capturing.out, capture._global_capturing.err):
        if hasattr(each, "targetfd"):  # not with `-s`
            with tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), each.tmpfile.fileno(), inheritable=False)


class _Worker:
    """Runs shares of the tests, and tells after each test what came of it and which is next.

    Args:
        session: what has collected the tests.
        name: the worker's number.
        shares: the numbers of the tests, taken when they are needed.
        sender: takes a test's reports and the number of the next test.
    """

    def __init__(
        self, session: pytest.Session, name: int, shares: Iterator[list[int]], sender: Connection
    ) -> None:
        self._session = session
        self._name = name
        self._numbers = itertools.chain.from_iterable(shares)
        self._sender = sender

    def run(self) -> None:
        """Run tests until none is left; then end what their fixtures and modules have started."""
        os.environ["TEST_WORKER"] = str(self._name)
        # Else what a test forks would hide that its worker has died.
        os.register_at_fork(after_in_child=self._sender.close)
        plugins = self._session.config.pluginmanager
        plugins.register(self)
        _print_apart(plugins.get_plugin("capturemanager"))
        try:
            self._run_all()
        except KeyboardInterrupt:
            pass
        finally:
            self._session._setupstate.teardown_exact(None)
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()

    def _run_all(self) -> None:
        items = self._session.items
        run = self._session.config.hook.pytest_runtest_protocol
        for this, following in itertools.pairwise(itertools.chain([None], self._numbers, [None])):
            nextitem = None if following is None else items[following]
            reports = [] if this is None else run(item=items[this], nextitem=nextitem)
            self._sender.send((reports, following))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> list[dict[str, Any]]:
        """Run a test in pytest's place, within all that plugins do around one; return its reports
        as data.
        """
        to_data = item.config.hook.pytest_report_to_serializable
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return [to_data(config=item.config, report=report) for report in reports]
