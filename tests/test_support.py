"""Forks of tests cannot multiply, pages are waited for, and what was not tested is told."""

import ast
import asyncio
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.support import forks, needs
from tests.support.attacks.syscalls import LIBC, syscall
from tests.support.attacks.world import remove_shared
from tests.support.kernels import forked
from tests.support.kernels.driver import CHANNELS, Kernel
from tests.support.models.forked import ForkedServer
from tests.support.ports import free_port

ROOT = Path(__file__).parents[1]
_FORK = re.compile(r"(os|pty)\.fork|multiprocessing\.(Process|Pool)|ProcessPoolExecutor")
_MAY_FORK = re.compile("fork|Process|Pool")  # so that few files are parsed


def test_only_one_module_forks_pytest():
    """Programs that tests start as text may fork: they are no part of pytest."""
    found = [
        f"{path}:{node.lineno}"
        for path in ROOT.glob("tests/**/*.py")
        for text in [path.read_text(encoding="utf-8")]
        if _MAY_FORK.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute | ast.Import | ast.ImportFrom)
        and _FORK.search(ast.unparse(node))
    ]
    # Their forking pools start nothing.
    spawning = ("elsewhere/test_session", "rows/engines/test_executors", "rows/engines/test_stops")
    allowed = {forks.__file__, *(f"{ROOT}/tests/unit/{each}.py" for each in spawning)}
    assert {place.rpartition(":")[0] for place in found} == allowed, found


# What a page shows is drawn later than it is told, so that a test asks until it is so: by
# Playwright's `expect`, or in `wait_until`. (Texts and lists have `count` too, with an argument.)
READ_AT_ONCE = {
    *("all_inner_texts", "all_text_contents", "bounding_box", "get_attribute", "inner_html"),
    *("inner_text", "input_value", "is_checked", "is_disabled", "is_editable", "is_enabled"),
    *("is_hidden", "is_visible", "sources", "text_content", "sleep", "wait_for_timeout"),
}
READ_WITHOUT_ARGUMENTS = {"count"}


def reads_at_once(source: str) -> list[int]:
    """Return the lines of a test of the browser that look at a page once, or only pause."""
    tree = ast.parse(source)
    waits = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "wait_until"
    ]
    waited = {id(inner) for node in waits for inner in ast.walk(node)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and id(node) not in waited
        and (
            node.func.attr in READ_AT_ONCE
            or (node.func.attr in READ_WITHOUT_ARGUMENTS and not node.args)
        )
    ]


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("assert 'x' in page.cell(1).inner_text()", True),
        ("texts = page.outputs(1).all_inner_texts()", True),
        ("assert page.questions.count() == 0", True),
        ("assert page.sources()[1] == 'x'", True),
        ("page.page.wait_for_timeout(300)", True),
        ("time.sleep(1)", True),
        ("page.wait_until(lambda: page.sources()[1] == 'x')", False),
        ("expect(page.questions).to_have_count(0)", False),
        ("assert text.count('x') == 2", False),
    ],
)
def test_a_look_at_a_page_without_a_wait_is_found(line, refused):
    assert bool(reads_at_once(line)) is refused


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("tests/browser/**/*.py")), ids=lambda path: path.name
)
def test_what_a_page_shows_is_waited_for(path):
    source = path.read_text(encoding="utf-8")
    assert [f"{path.name}:{line}" for line in reads_at_once(source)] == []


def test_no_port_is_given_twice():
    """A kernel has five, all chosen before it opens the first."""
    assert len({free_port() for _ in range(500)}) == 500


def test_a_kernel_that_does_not_start_leaves_nothing(monkeypatch, tmp_path):
    """What is left fails a later test instead, on some versions of Python."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    children = set(psutil.Process().children())
    with pytest.raises(RuntimeError, match="died"):
        Kernel(env={"PYTHONPATH": "", "PYTHONHOME": "/nowhere"}, anew=True).__enter__()
    assert not list(tmp_path.iterdir())
    assert not set(psutil.Process().children()) - children


@pytest.mark.soak
@pytest.mark.parametrize("channel", ["shell", "iopub", "control"])
def test_a_forked_kernel_whose_port_was_taken_says_so_and_ends(channel, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {f"{each}_port": free_port() for each in CHANNELS}
        ports[f"{channel}_port"] = taken.getsockname()[1]
        file = tmp_path / "kernel.json"
        file.write_text(json.dumps({"ip": "127.0.0.1", "transport": "tcp", "key": "k", **ports}))
        command = [each.replace("{connection_file}", str(file)) for each in forked.command()]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr


# Where a kernel is, what it was given, and what it holds before its first cell.
LOOK = """[
    os.getcwd(), sys.path, sys.flags, sys.argv[1:-1], sys.orig_argv[:-1], tempfile.gettempdir(),
    sorted(os.environ), os.environ["MARK"],
    [name for name in sys.modules if name.startswith(("agent_magics", "tests"))],
    os.getpgrp() == os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGINT),
    os.readlink("/proc/self/fd/0").partition(":")[0], gc.isenabled(), sys.path_hooks,
    sorted(thread.name for thread in threading.enumerate()), __name__, sys.stdout.encoding,
]"""
# What the import of agent-magics makes of a kernel that has changed its folder.
IMPORT = "os.makedirs('b', exist_ok=True); os.chdir('b'); import agent_magics"
IMPORTED = """[
    agent_magics.__spec__, agent_magics.files.trusted_imports._distrusted,
    [(each, getattr(each, "_finder", "")) for each in sys.meta_path],
]"""


@pytest.mark.soak
def test_a_forked_kernel_is_like_one_that_is_started_anew(tmp_path):
    seen = []
    for anew in (False, True):
        environment = {"TMPDIR": str(tmp_path), "MARK": "1"}
        with Kernel(cwd=str(tmp_path), env=environment, anew=anew) as kernel:
            kernel.run("import gc, os, signal, sys, tempfile, threading")
            before = kernel.value(LOOK)
            kernel.run(IMPORT)
            seen.append(re.sub(r"0x\w+|Thread-\d", "", before + kernel.value(IMPORTED)))
    assert seen[0] == seen[1]


@pytest.mark.soak
def test_a_forked_kernel_ends_with_the_process_that_stands_for_it():
    with Kernel() as kernel:
        process = psutil.Process(int(kernel.value("__import__('os').getpid()")))
        assert process.pid != kernel.manager.provisioner.pid
        os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
        assert psutil.wait_procs([process], timeout=30)[1] == []


@pytest.mark.soak
def test_a_kernel_that_ends_with_its_stand_in_at_once_does_not_end_the_template():
    with Kernel() as kernel:
        stand_in = psutil.Process(kernel.manager.provisioner.pid)
        process = psutil.Process(int(kernel.value("__import__('os').getpid()")))
        template = process.parent()
        template.suspend()  # until both have ended, so that it is told of both ends at once
        over = os.pidfd_open(process.pid)
        process.kill()
        assert select.select([over], [], [], 30)[0]
        stand_in.kill()
        stand_in.wait(30)
        template.resume()
        os.close(over)
    with Kernel() as kernel:
        assert kernel.value("__import__('os').getppid()") == str(template.pid)


@pytest.mark.needs("machine Linux")
def test_memory_in_large_pages_holds_what_it_held():
    def act():
        held = bytearray(os.urandom(1 << 12) * (1 << 14))
        before, kept = large(), bytes(held)
        forks.use_large_pages()
        return large() - before, held == kept

    def large():  # kB
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))

    gained, same = forks.call(act)
    assert same
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    if release >= (6, 1) and Path("/sys/kernel/mm/transparent_hugepage").exists():
        assert gained >= 60 << 10  # of 64 MB


def test_a_fork_returns_what_its_function_did():
    assert forks.call(lambda: (os.getpid(), [1])) != (os.getpid(), [1])


def test_a_bound_program_ends_with_a_pytest_that_is_killed():
    reader, writer = os.pipe()

    def act() -> None:
        program = subprocess.Popen(["sleep", "600"], preexec_fn=forks.bound())
        os.write(writer, f"{program.pid}\n".encode())
        program.wait()

    with forks.child(act) as parent:
        program = os.pidfd_open(int(os.read(reader, 20)))
        os.kill(parent, signal.SIGKILL)
        assert select.select([program], [], [], forks.LIMIT)[0]
    for each in (reader, writer, program):
        os.close(each)


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(0), pytest.skip.Exception("x")]
)
def test_no_error_leaves_a_fork(error):
    before = os.getpid()

    def act():
        raise error

    with pytest.raises(AssertionError, match=rf"failed:\n(?s:.*){type(error).__name__}"):
        forks.call(act)
    assert os.getpid() == before


def test_what_a_fork_cannot_tell_is_an_error():
    with pytest.raises(AssertionError, match="ended before its function did"):
        forks.call(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(AssertionError, match="ended before its function did"):
        forks.call(lambda: sys)  # which cannot be pickled


def test_a_fork_that_takes_too_long_ends_with_its_group():
    reader, writer = os.pipe()  # its end of file says that the last of them is gone

    def stay():
        subprocess.Popen(["sleep", "60"], pass_fds=[writer])
        os.write(writer, b".")
        signal.pause()

    with pytest.raises(AssertionError, match=r"not done after 10 s"):
        forks.call(stay, limit=10)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"."


TESTS = """
import pytest
from tests.support.needs import not_tested, require

@pytest.mark.needs("program git")
def test_there():
    pass

@pytest.mark.needs("program none-of-that-name")
@pytest.mark.parametrize("x", [1, 2])
def test_not_there(x):
    pass

def test_found_out():
    not_tested("the moon", "clouds")
"""
SILENT = "\ndef test_in_silence():\n    pytest.skip('because')\n"


@pytest.fixture
def run(tmp_path):
    def run(text: str, *options: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
        plugins = ["-ptests.support.needs", "-ptests.support.time_limits", "-ppytest_timeout"]
        command = [sys.executable, "-m", "pytest", *plugins, *options]
        done = subprocess.run(
            [*command, "--rootdir=.", "-c/dev/null", "-pno:cacheprovider", "test_it.py"],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_what_was_not_tested_has_a_line_each(run):
    status, said = run(TESTS)
    assert status == 0 and "1 passed, 3 skipped" in said
    lines = [line for line in said.splitlines() if line.startswith("not tested here: ")]
    assert lines == [
        "not tested here: program none-of-that-name (none-of-that-name is not installed), 2 tests",
        "not tested here: the moon (clouds), 1 test",
    ]


def test_a_list_says_what_need_not_be_tested(run, tmp_path):
    (tmp_path / "list").write_text("# on no machine\nthe moon *\nprogram none*\n", encoding="utf-8")
    assert run(TESTS, "--untested=list")[0] == 0
    (tmp_path / "list").write_text("program none*\n", encoding="utf-8")
    status, said = run(TESTS, "--untested=list")
    assert status == 1
    assert "the moon (clouds), 1 test  <- it should have been, see --untested" in said


def test_a_skip_in_silence_is_a_failure(run):
    status, said = run(TESTS + SILENT)
    assert status == 1 and "1 failed, 1 passed, 3 skipped" in said
    assert "skipped without tests/support/needs.py: because" in said
    status, said = run("import pytest\npytest.importorskip('none_of_that_name')\n")
    assert status == 2 and "skipped without tests/support/needs.py" in said


def test_every_need_has_an_answer():
    for need in ("root", "chromium", "program git", "tier 1", "abi 1", "folder /", "machine Linux"):
        assert isinstance(needs.lacking(need), str)
    assert needs.lacking("server mcp/none") == "not installed: make servers"


LATE = """
import pathlib, subprocess, pytest

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(["sleep", "300"]) as server:
        yield server
        assert server.poll() is None
        server.kill()

@pytest.mark.timeout(5)
def test_late(server):
    child = subprocess.Popen(["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE)
    pathlib.Path("late").write_bytes(child.stdout.readline())
    child.wait()

def test_next():
    pass
"""


def test_a_test_that_reaches_its_limit_ends_with_what_it_started(run, tmp_path):
    status, output = run(LATE)
    assert status == 1 and "1 failed, 1 passed" in output and "5.0s) from pytest-timeout" in output
    assert not psutil.pid_exists(int((tmp_path / "late").read_text(encoding="ascii")))


STUCK = """
import threading, time, pytest

@pytest.fixture(scope="module", autouse=True)
def server():
    yield
    time.sleep(300)

def test_fails():
    raise ValueError("it failed")
"""
STUBBORN = """
import time, pytest

@pytest.mark.timeout(1)
def test_swallows():
    try:
        time.sleep(300)
    except BaseException:
        time.sleep(300)
"""
DEAF = """
import signal, time, pytest

@pytest.mark.timeout(1)
def test_deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(300)
"""


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (STUCK, "TAKING_DOWN", ("1 failed, 1 error", "not taken down after 1 s")),
        (STUBBORN, "AGAIN", ("1 failed", "from pytest-timeout")),
    ],
)
def test_what_hangs_after_a_test_has_ended_is_ended_too(run, tmp_path, text, name, said):
    (tmp_path / "conftest.py").write_text(
        f"from tests.support import time_limits\ntime_limits.{name} = 1\n", encoding="utf-8"
    )
    status, output = run(text)
    assert status == 1
    for words in said:
        assert words in output


def test_a_process_that_no_signal_reaches_ends_with_a_traceback(run, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from tests.support import time_limits\ntime_limits.LOST = 1\n", encoding="utf-8"
    )
    status, output = run(DEAF)
    assert status == 1 and "passed" not in output and "failed" not in output


@pytest.mark.parametrize(
    ("arguments", "error"), [(["x"], "TypeError: '<=' not supported"), ([0], r"its port:\n$")]
)
def test_a_model_server_that_tells_no_port_fails_at_once(arguments, error):
    with pytest.raises(AssertionError, match=error):
        ForkedServer(asyncio.sleep, *arguments)


def test_what_a_killed_attack_shared_is_removed_by_its_name():
    name = f"agent-magics-attacks-{os.getpid()}"
    share = "import os, json; from tests.support.attacks.world import share"
    kill = "print(json.dumps(facts), flush=True); os.kill(os.getpid(), 9)"
    code = f"{share}; facts = share({name!r}, b'secret'); {kill}"
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False
    )
    facts = json.loads(killed.stdout)

    def found() -> list[object]:
        files = [facts[each] for each in ("shared", "shared_memory") if Path(facts[each]).exists()]
        memory = LIBC.shmget(facts["memory_key"], 0, 0)
        return [*files, memory] if memory >= 0 else files

    assert killed.returncode == -9 and len(found()) == 3
    remove_shared(name)
    assert not found()
    with pytest.raises(FileNotFoundError):
        syscall("mq_unlink", facts["queue"].encode())
