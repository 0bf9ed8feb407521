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
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import forks

# Threads that a fork can be without: of jemalloc, of what polars is when it is only imported, and
# that of our commands, which a fork makes anew. (So does OpenBLAS, whose are named as the process.)
_DISPENSABLE = {"jemalloc_bg_thd", "polars-ooc-clea", "agent-exec"}
RESTARTS = 2  # of the workers, for what is left where one died
_NO_DEBUGGER = (
    "workers have no terminal for a debugger: run .venv/bin/python -m pytest without --workers"
)
PATIENCE = 10  # seconds that workers have to end in, after their last test or an interrupt


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run in N processes")
    parser.addoption("--apart", action="store_true", help="a file's tests may run in several")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers, if there are to be any."""
    option = session.config.option
    failed = session.testsfailed and not option.continue_on_collection_errors
    if not option.workers or option.collectonly or failed:
        return None  # pytest's own loop knows what to do
    if threads := _threads():
        raise pytest.UsageError(f"workers would lack what modules started: {', '.join(threads)}")
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one for all
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter:
        reporter.showfspath = False  # tests of several files end by turns
    left = dict(enumerate(session.items))
    forks.use_large_pages()
    for _ in range(1 + RESTARTS):
        if left:
            _Run(session, left).until_all_have_ended()
    if left:
        session.shouldfail = f"not run, since workers died {1 + RESTARTS} times: {len(left)} tests"
        raise session.Failed(session.shouldfail)
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what workers cannot do.

    Raises:
        pytest.UsageError: an option asks for it.
    """
    option = config.option
    if option.workers < 0:
        raise pytest.UsageError(f"--workers={option.workers}: name a number of processes, or 0")
    if option.workers and (option.usepdb or option.trace):
        raise pytest.UsageError(_NO_DEBUGGER)


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
        self._processes: dict[Connection, psutil.Process] = {}

    def until_all_have_ended(self) -> None:
        """Start workers, and report the tests that they have run.

        Raises:
            pytest.Session.Failed: as many tests failed as may.
            pytest.Session.Interrupted: a plugin ends the run.
            pytest.exit.Exception: a test ends the run.
            KeyboardInterrupt: with the tests that ran when somebody interrupted the run.
        """
        processes = self._processes.values()
        try:
            self._start()
            while self._current:
                for key, _ in self._ready.select():
                    self._receive(key.fileobj)
        except BaseException as error:
            for receiver in self._current:
                receiver.close()  # else a worker might wait for a reader
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGINT)
            if isinstance(error, KeyboardInterrupt):
                current = [each for each in self._current.values() if each is not None]
                names = (self._left[each].nodeid for each in current)
                raise KeyboardInterrupt("\n  ".join(["while these ran:", *names])) from None
            raise
        finally:
            try:
                psutil.wait_procs(processes, timeout=PATIENCE)
            finally:  # also after a second interrupt
                for process in filter(psutil.Process.is_running, processes):
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def _start(self) -> None:
        shares = self._shares()
        queue, writer = os.pipe()
        for name in range(1, 1 + min(self._session.config.option.workers, len(shares))):
            receiver, sender = multiprocessing.Pipe(duplex=False)
            worker = _Worker(
                self._session, name, (shares[each] for each in _taken(queue, writer)), sender
            )
            self._current[receiver] = None
            self._processes[receiver] = psutil.Process(
                forks.start(partial(worker.run, self._current))
            )
            sender.close()
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
            if "browser" in item.path.relative_to(item.config.rootpath).parts:
                share = browser.setdefault(item.path, len(browser)) % half
            shares.setdefault(share, []).append(each)
        return list(shares.values())

    def _receive(self, worker: Any) -> None:
        """Report a test that has run, or whose worker has died."""
        done = self._current[worker]
        try:
            told, following, end = worker.recv()
        except (EOFError, OSError):  # between two messages, or within one
            told, following, end = [], None, _status(self._processes[worker])
        if isinstance(end, BaseException):
            raise end
        if end and done is not None:
            told = [_death(self._left[done], end)]
        self._current[worker] = following
        if following is None:  # it has only to end
            self._ready.unregister(worker)
            del self._current[worker]
        if done is not None:
            self._report(self._left.pop(done), told)

    def _report(self, item: pytest.Item, told: list[dict[str, Any]]) -> None:
        test = {"nodeid": item.nodeid, "location": item.location}
        self._hook.pytest_runtest_logstart(**test)
        for data in told:
            if "warning" in data:
                warning = _warning(*data.pop("warning"))
                arguments = {**data, "warning_message": warning, "location": None}
                self._hook.pytest_warning_recorded.call_historic(kwargs=arguments)
            else:
                report = self._hook.pytest_report_from_serializable(config=item.config, data=data)
                self._hook.pytest_runtest_logreport(report=report)
        self._hook.pytest_runtest_logfinish(**test)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


def _warning(text: str, name: str, filename: str, line: int) -> warnings.WarningMessage:
    category = type(name, (Warning,), {})
    return warnings.WarningMessage(text, category, filename, line)


def _status(process: psutil.Process) -> str:
    """Return how a worker has ended that did not tell it."""
    try:
        status = process.wait(PATIENCE)
    except psutil.TimeoutExpired:
        return "its pipe is closed"
    return f"status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


def _death(item: pytest.Item, end: str) -> dict[str, Any]:
    """Return the report of a test whose worker ended."""
    text = f"the process that ran {item.nodeid} ended: {end}"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
    return _data(item.config, report)


def _data(config: pytest.Config, report: pytest.TestReport) -> Any:
    return config.hook.pytest_report_to_serializable(config=config, report=report)


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

    It is the worker's reporter, in place of the one that writes to the terminal.

    Args:
        session: what has collected the tests.
        name: the worker's number.
        shares: the numbers of the tests, taken when they are needed.
        sender: takes what is told of a test, the number of the next one, and why the worker ends.
    """

    def __init__(
        self, session: pytest.Session, name: int, shares: Iterator[list[int]], sender: Connection
    ) -> None:
        self._session = session
        self._config = session.config
        self._name = name
        self._numbers = itertools.chain.from_iterable(shares)
        self._sender = sender
        self._told: list[dict[str, Any]] = []

    def run(self, receivers: Iterable[Connection]) -> None:
        """Run tests until none is left; then end what their fixtures and modules have started.

        Args:
            receivers: what only the process that reads from the workers keeps.
        """
        os.environ["TEST_WORKER"] = str(self._name)
        for each in receivers:
            each.close()
        # Else what a test forks would hide that its worker has died.
        os.register_at_fork(after_in_child=self._sender.close)
        self._pid = os.getpid()
        plugins = self._config.pluginmanager
        self._capture: Any = plugins.get_plugin("capturemanager")
        reporter: Any = plugins.get_plugin("terminalreporter")
        if reporter:
            self._tw = reporter._tw  # for plugins that write to the terminal
            plugins.unregister(reporter)
        plugins.register(self, "terminalreporter" if reporter else None)
        _print_apart(self._capture)
        try:
            self._run_all()
        except pytest.exit.Exception as end:
            self._tell(end=end)
        except BaseException:
            with suppress(OSError):  # nobody listens any more
                self._tell(end=traceback.format_exc(limit=-3))
        finally:
            # Something only after an interrupt, when what fails says nothing.
            with suppress(BaseException):
                self._session._setupstate.teardown_exact(None)
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()

    def _run_all(self) -> None:
        items = self._session.items
        run = self._config.hook.pytest_runtest_protocol
        for this, following in itertools.pairwise(itertools.chain([None], self._numbers, [None])):
            if this is not None:
                run(item=items[this], nextitem=None if following is None else items[following])
            if self._session.shouldfail or self._session.shouldstop:
                following = None
            self._tell(following)
            if following is None:
                break

    def _tell(self, following: int | None = None, end: pytest.exit.Exception | str = "") -> None:
        self._sender.send((self._told, following, end))
        self._told.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """End a fork that comes back from the test that made it."""
        try:
            return (yield)
        finally:
            if os.getpid() != self._pid:
                with self._capture.global_and_fixture_disabled():
                    os.write(1, f"\na fork that {item.nodeid} made came back: ended\n".encode())
                os._exit(1)

    def pytest_enter_pdb(self) -> None:
        """Say what a test that calls `breakpoint` lacks here."""
        pytest.fail(_NO_DEBUGGER)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, as data."""
        # Any objects, of which only the text is used.
        report.user_properties = [(name, str(value)) for name, value in report.user_properties]
        self._told.append(_data(self._config, report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        """Keep a warning's text; its class may be one that only this worker has."""
        of = warning_message
        text = (str(of.message), of.category.__name__, of.filename, of.lineno)
        self._told.append({"warning": text, "when": when, "nodeid": nodeid})
