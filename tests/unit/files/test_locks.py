"""Several kernels change the same file at the same moment, and nothing of it is lost."""

import ast
import fcntl
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import agent_magics
from agent_magics.approval.rules import RuleBook
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.file_history.journal import FILE, ChangeJournal
from agent_magics.files import locks
from agent_magics.mcp.config.sources import read_mcp_config
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.records import RecordBegun
from tests.support import forks

KERNELS, CHANGES = 3, 20
START = """
import sys
number = int(sys.argv[1])
def wait_for_all():
    print(flush=True)
    sys.stdin.read()
"""
RULES = """
from pathlib import Path
from agent_magics.approval.rules import ProposedRule, RuleBook
book = RuleBook(Path.cwd())
wait_for_all()
for each in range(20):
    book.add(ProposedRule("command", ("echo", f"{number}-{each}")), "for the test")
"""
KEYS = """
from agent_magics.models.providers import credentials
sys.modules["keyring"] = None
wait_for_all()
for each in range(20):
    credentials.keep_key(f"host-{number}-{each}", "k")
"""
SERVERS = """
from pathlib import Path
from agent_magics.mcp.config.edit import McpFile
from agent_magics.mcp.config.sources import ProjectServers
project = ProjectServers(Path.cwd())
wait_for_all()
for each in range(20):
    McpFile(project.toml_file, project).add(f"s{number}-{each}", {"command": "true"})
"""


@pytest.fixture
def side_by_side(tmp_path, monkeypatch):
    """Return what runs a program in several processes, which begin at the same moment."""
    homes = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    for name, value in homes.items():
        monkeypatch.setenv(name, value)
    return _side_by_side


def _side_by_side(program: str) -> None:
    with ExitStack() as ends:
        kernels = [
            ends.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", START + program, str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for number in range(KERNELS)
        ]
        for kernel in kernels:
            assert kernel.stdout.readline() == b"\n"
        for kernel in kernels:
            kernel.stdin.close()
        assert [kernel.wait(60) for kernel in kernels] == [0] * KERNELS


@pytest.mark.soak
def test_no_answer_for_this_project_is_lost(side_by_side):
    side_by_side(RULES)
    book = RuleBook(Path.cwd())
    assert len({rule.pattern for rule in book.project.rules}) == KERNELS * CHANGES
    assert book.is_trusted


@pytest.mark.soak
def test_no_key_of_two_logins_is_lost(side_by_side, tmp_path):
    side_by_side(KEYS)
    kept = json.loads((tmp_path / "config/agent-magics/credentials.json").read_text())["hosts"]
    assert len(kept) == KERNELS * CHANGES


@pytest.mark.soak
def test_no_server_is_lost(side_by_side):
    side_by_side(SERVERS)
    found = read_mcp_config(Path.cwd(), {})
    assert len(found.servers) == KERNELS * CHANGES, found.warnings


def test_a_program_that_holds_the_folder_is_told_and_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "LONGEST_WAIT", 0.05)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with (
        pytest.raises(FatalError, match="another program has held"),
        locks.locked(tmp_path / "rules.toml"),
    ):
        raise AssertionError
    os.close(held)


@contextmanager
def looked_at(path):
    """Hold a file for a moment as another kernel does that asks whether somebody writes it."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        ends = threading.Timer(locks.MOMENT / 20, fcntl.flock, (file, fcntl.LOCK_UN))
        ends.start()
        yield
        ends.join()


def test_a_record_that_another_kernel_looks_at_is_opened(tmp_path):
    path = tmp_path / "id.jsonl"
    path.touch()
    rollout = Rollout(path, lambda: RecordBegun(conversation="id", agent="a"))
    with looked_at(path):
        rollout.begin()
    assert locks.is_held(path)
    rollout.close()
    assert locks.is_held(path) is False


def test_a_journal_that_another_kernel_looks_at_is_locked(tmp_path):
    path = tmp_path / FILE
    path.touch()
    journal = ChangeJournal(str(tmp_path), {})
    with looked_at(path):
        journal.add("t", "turn", [], {}.get)
    assert locks.is_held(path)
    journal.close()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_written_is_a_regular_file(tmp_path, kind):
    place, target = tmp_path / "place", tmp_path / "mine"
    target.write_text("mine")
    os.mkfifo(place) if kind == "pipe" else place.symlink_to(target)
    with pytest.raises(OSError, match=r"no regular file|a symbolic link"):
        locks.open_locked(place)


def test_a_file_that_cannot_be_opened_stays_free(tmp_path, monkeypatch):
    path = tmp_path / "place"
    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", lambda path: os.listdir(__file__))
        with pytest.raises(NotADirectoryError):
            locks.open_locked(path)
    held = locks.open_locked(path)
    with pytest.raises(locks.FileHeld, match="another process has locked it"):
        locks.open_locked(path)
    locks.release(held)


def test_no_other_module_locks_files():
    package = Path(agent_magics.__file__).parent
    found = [path for path in package.rglob("*.py") if "flock(" in path.read_text()]
    assert [str(path.relative_to(package)) for path in found] == ["files/locks.py"]


# -- locks of threads ------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_forked_child_has_each_lock_of_a_module_free():
    package = Path(agent_magics.__file__).parent
    makers = {"Lock", "RLock", "Condition", "Semaphore"}
    found = set()
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            made = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            called = getattr(made, "func", None)
            is_lock = getattr(called, "attr", getattr(called, "id", "")) in makers
            if is_lock and not getattr(made, "args", ()) and "register_at_fork" not in text:
                found.add(str(path.relative_to(package)))
    assert found == set(), "thread_lock makes one that is renewed"


def test_a_lock_that_a_thread_holds_is_free_in_a_forked_child():
    lock = locks.thread_lock()
    with lock:
        assert forks.call(lambda: lock.acquire(timeout=10))
