"""Workers, which share the tests of a run: each test is run and told once, whatever they die of."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
LIMIT = 60
# Says in a file of its own which process ran it.
FILE = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def shared():
    pathlib.Path(f"made.{__name__}.{os.getpid()}").touch()

@pytest.mark.parametrize("n", range(9))
def test_it(n, shared, tmp_path_factory, capfd):
    print(n)
    assert capfd.readouterr().out == f"{n}\\n"
    tmp_path_factory.mktemp("x")
    pathlib.Path(f"ran.{__name__}.{n}.{os.getpid()}").touch()
"""
DEATH = "\ndef test_death():\n    os.kill(os.getpid(), 9)\n"


@pytest.fixture
def start(tmp_path):
    def start(files: dict[str, str], *options: str) -> "subprocess.Popen[str]":
        for name, text in files.items():
            (file := tmp_path / f"{name}.py").parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-ptests.support.workers", "--workers=2"]
        return subprocess.Popen(
            [*command, "--rootdir=.", "-c/dev/null", "-pno:cacheprovider", *options],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def ran(folder: Path, name: str) -> list[list[str]]:
    """Return the file, the number and the process of each test that ran, or of what was made."""
    return sorted(path.name.split(".")[1:] for path in folder.glob(f"{name}.*"))


def test_each_file_is_run_once_by_one_of_several(start, tmp_path):
    with start({"test_a": FILE, "test_b": FILE, "test_c": FILE}) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "27 passed" in said and "[100%]" in said and run.returncode == 0
    tests = ran(tmp_path, "ran")
    assert len(tests) == 27 and {*tests[0]}.isdisjoint({str(run.pid)})
    files = {(name, process) for name, _, process in tests}
    assert len(files) == 3 and files == {(name, process) for name, process in ran(tmp_path, "made")}


def test_half_of_the_workers_run_the_tests_of_the_browser(start, tmp_path):
    with start({f"browser/test_{name}": FILE for name in "abc"}, "--workers=4") as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "27 passed" in said and run.returncode == 0
    assert len({process for _, _, process in ran(tmp_path, "ran")}) == 2


def test_tests_of_a_file_may_be_shared(start, tmp_path):
    with start({"test_a": FILE}, "--apart") as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "9 passed" in said and len(ran(tmp_path, "ran")) == 9


@pytest.mark.parametrize("options", [(), ("--apart",)])
def test_of_a_test_that_kills_its_process_the_others_are_run(start, tmp_path, options):
    with start({"test_a": FILE + DEATH, "test_b": FILE}, *options) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "1 failed, 18 passed" in said and run.returncode == 1
    assert "the process that ran test_a.py::test_death ended" in said
    assert len(ran(tmp_path, "ran")) == 18


def test_a_fork_that_a_test_leaves_does_not_hide_that_its_process_ended(start, tmp_path):
    os.mkfifo(tmp_path / "goes_on")
    text = """
import os
def test_death():
    if not os.fork():
        open("goes_on").read()
    os._exit(0)
"""
    with start({"test_a": text, "test_b": FILE}) as run:
        run.wait(LIMIT)
        (tmp_path / "goes_on").write_text("")
        said, _ = run.communicate(timeout=LIMIT)
    assert "1 failed, 9 passed" in said


@pytest.mark.long
def test_a_run_ends_though_a_worker_does_not(start):
    text = """
import threading
def test_it():
    threading.Thread(target=threading.Event().wait).start()
"""
    with start({"test_a": text}) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "1 passed" in said and run.returncode == 0


DEATHS = """
import os
def test_killed():
    os.kill(os.getpid(), 9)
def test_ended():
    os._exit(3)
def test_interrupted():
    raise KeyboardInterrupt
def test_the_rest():
    pass
"""


def test_what_dies_too_often_is_told_and_how(start):
    with start({"test_a": DEATHS, "test_b": FILE}) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "3 failed, 9 passed" in said and run.returncode == 1
    assert "not run, since workers died 3 times: 1 tests" in said
    assert "test_killed ended: killed by SIGKILL\n" in said
    assert "test_ended ended: status 3\n" in said
    assert "test_interrupted ended: Traceback" in said and "\nKeyboardInterrupt\n" in said


EVERYTHING = """
import pytest, sys, warnings

class Mine(UserWarning):
    pass

@pytest.fixture
def broken():
    raise ValueError("at first")

@pytest.fixture
def broken_at_last():
    yield
    raise ValueError("at last")

def test_passes(record_property):
    record_property("what", Mine)

def test_fails():
    print("printed")
    assert 1 == 2

def test_has_no_fixture(broken): pass
def test_fails_at_last(broken_at_last): pass
def test_warns():
    warnings.warn("old", DeprecationWarning)
    class Local(UserWarning): pass
    warnings.warn("of a class that others lack", Local)
@pytest.mark.parametrize("n", [1, 1])
def test_twice(n): pass
@pytest.mark.xfail
def test_may_fail(): assert 0
@pytest.mark.xfail(strict=True)
def test_must_fail(): pass
"""


def test_workers_tell_what_one_process_tells(start, tmp_path):
    told = []
    for workers in ("--workers=0", "--workers=2"):
        with start({"test_a": EVERYTHING}, workers, "--junitxml=x.xml", "-rA") as run:
            said, _ = run.communicate(timeout=LIMIT)
        xml = (tmp_path / "x.xml").read_text(encoding="utf-8")
        varying = r'time="[\d.]+"|timestamp="[^"]+"|(test_a.py )?[.FEx]{9,}|in [\d.]+s|=+'
        told.append([re.sub(varying, "", text).split() for text in (said, xml)])
        assert run.returncode == 1
    assert told[0] == told[1]


def test_parts_of_a_test_fail(start):
    text = """
def test_parts(subtests):
    for n in range(2):
        with subtests.test(n=n):
            assert n
"""
    with start({"test_a": text}) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "SUBFAILED" in said and run.returncode == 1


def test_a_test_may_end_the_run(start):
    text = "import pytest\ndef test_it():\n    pytest.exit('enough', returncode=7)\n"
    with start({"test_a": text, "test_b": FILE}) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "Exit: enough !" in said and run.returncode == 7


def test_a_fork_that_comes_back_from_a_test_is_ended(start, tmp_path):
    text = f"{FILE}\n@pytest.fixture(autouse=True)\ndef down():\n    yield\n" + (
        "    open(f'down.{os.getpid()}', 'w').close()\n\ndef test_0():\n    os.fork()\n"
    )
    files = {"test_a": text, "test_broken": "import nothing_of_this_name"}
    with start(files, "--continue-on-collection-errors") as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "10 passed, 1 error" in said
    assert "a fork that test_a.py::test_0 made came back: ended" in said
    assert len(list(tmp_path.glob("down.*"))) == 1


@pytest.mark.parametrize(
    ("option", "text", "status"),
    [("--pdb", "", 4), ("--trace", "", 4), ("-q", "breakpoint()", 1), ("--workers=-1", "", 4)],
    ids=["pdb", "trace", "breakpoint", "negative"],
)
def test_what_workers_cannot_do_is_refused_in_a_sentence(start, option, text, status):
    with start({"test_a": f"def test_it():\n    {text or 'pass'}\n"}, option) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert run.returncode == status
    assert "no terminal for a debugger: run" in said or "name a number of processes" in said


def test_a_second_interrupt_ends_workers_that_do_not_hear_the_first(start, tmp_path):
    for name in ("began", "heard"):
        os.mkfifo(tmp_path / name)
    text = """
import os, signal

def say(name):
    with open(name, "w") as file:
        print(os.getpid(), file=file)

def test_it():
    signal.signal(signal.SIGINT, lambda *_: say("heard"))
    say("began")
    while True:
        signal.pause()
"""
    with start({"test_a": text}) as run:
        worker = psutil.Process(int((tmp_path / "began").read_text(encoding="ascii")))
        run.send_signal(signal.SIGINT)
        (tmp_path / "heard").read_text(encoding="ascii")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=LIMIT)
    assert worker.wait(LIMIT) is None


@pytest.mark.parametrize("failure", ["assert 0", "os._exit(0)"], ids=["failure", "death"])
def test_a_run_ends_with_the_failures_that_it_may_have(start, failure):
    failing = f"{FILE}\ndef test_failure():\n    {failure}\n"
    with start({"test_a": failing, "test_b": FILE}, "-x") as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "1 failed" in said and "stopping after 1 failures" in said


def test_an_interrupt_takes_down_what_fixtures_made(start, tmp_path):
    os.mkfifo(tmp_path / "began")
    text = """
import os, time, pytest

@pytest.fixture(scope="session")
def made():
    yield
    open("taken_down", "w").close()
    raise ValueError("of what the interrupt left half done")

def test_it(made):
    with open("began", "w") as file:
        print(os.getpid(), file=file)
    while True:  # so that an interrupt just before a wait ends it, too
        time.sleep(0.01)
"""
    with start({"test_a": text}) as run:
        with open(tmp_path / "began", encoding="ascii") as file:
            worker = int(file.read())
        while psutil.Process(run.pid).status() != psutil.STATUS_SLEEPING:
            pass  # it is reading which test the worker runs
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=LIMIT)
    assert run.returncode == pytest.ExitCode.INTERRUPTED and "Traceback" not in said
    assert "while these ran:\n  test_a.py::test_it !" in said
    assert (tmp_path / "taken_down").exists() and not psutil.pid_exists(worker)


THREADS = {
    "of polars": """
import polars
polars.DataFrame({"a": [2, 1]}).sort("a")
import time; time.sleep(1)
""",
    "of Python": """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
""",
}


@pytest.mark.parametrize("text", THREADS.values(), ids=list(THREADS))
def test_threads_that_a_fork_would_lack_are_named(start, text):
    with start({"test_a": f"{text}\ndef test_it(): pass\n"}) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "workers would lack what modules started: " in said


PRINTING = """
import sys

def say(words, place=sys.stderr):
    print(words, file=place)

def test_it():
    say("of test_" + __name__[-1])
    assert __name__ == ""
"""


@pytest.mark.parametrize("option", ["--capture=fd", "--capture=sys", "-s"])
def test_what_a_test_prints_is_told_with_it(start, option):
    with start({"test_a": PRINTING, "test_b": PRINTING}, option) as run:
        said, _ = run.communicate(timeout=LIMIT)
    assert "2 failed" in said and "closed file" not in said
    if option != "-s":
        parts = said.split("Captured stderr call")[1:]
        assert sorted(part.split("\n")[1] for part in parts) == ["of test_a", "of test_b"]
