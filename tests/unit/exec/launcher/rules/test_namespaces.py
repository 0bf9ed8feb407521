"""Tier 2: what mounts and namespaces add. Each case is also run in tier 1, where it succeeds."""

import errno
import multiprocessing.synchronize
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_magics.exec.launcher.rules import namespaces
from agent_magics.exec.launcher.wire import Confinement
from tests.support import forks
from tests.support.sandbox.confined_run import Outcome, attempt, result_of, run_confined
from tests.support.users import USER, give

pytestmark = pytest.mark.needs("tier 2")
SHELL = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def confinement_of(place: str, tier: int = 2, **more: Any) -> Confinement:
    return Confinement(tier, (f"{place}/project",), **more)


def run_in(
    place: str, uid: int, act: Callable[[], Any] | list[str], tier: int = 2, **more: Any
) -> Outcome:
    confinement = confinement_of(place, tier, **more)
    return run_confined(act, confinement, f"{place}/project", uid=uid, env={**SHELL, "HOME": place})


def make(path: str, uid: int, text: str = "old") -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    give(uid, path, folder)


def write(path: str) -> None:
    Path(path).write_text("changed", encoding="utf-8")


def test_what_is_protected_is_read_only_and_its_surroundings_are_not(uid: int, place: str) -> None:
    git = f"{place}/project/.git"
    for name in ("hooks/pre-commit", "config", "HEAD"):
        make(f"{git}/{name}", uid)
    give(uid, git)
    protected = (f"{git}/hooks", f"{git}/config", f"{git}/modules")

    def act() -> dict[str, str]:
        return {
            "HEAD": attempt(lambda: write(f"{git}/HEAD")),
            "hook": attempt(lambda: write(f"{git}/hooks/pre-commit")),
            "new hook": attempt(lambda: write(f"{git}/hooks/post-checkout")),
            "hook's mode": attempt(lambda: os.chmod(f"{git}/hooks/pre-commit", 0o755)),
            "config": attempt(lambda: write(f"{git}/config")),
            "delete": attempt(lambda: os.unlink(f"{git}/config")),
            "rename over": attempt(lambda: os.rename(f"{git}/HEAD", f"{git}/config")),
            "rename away": attempt(lambda: os.rename(f"{git}/hooks", f"{git}/away")),
            "rename parent away": attempt(lambda: os.rename(git, f"{place}/project/away")),
            "read": attempt(lambda: Path(f"{git}/config").read_bytes()),
        }

    bound = result_of(run_in(place, uid, act, protected=protected))
    assert {name for name, result in bound.items() if result == "done"} == {"HEAD", "read"}
    assert set(bound.values()) == {"done", "EROFS", "EBUSY"}
    assert Path(f"{git}/config").read_text("utf-8") == "old"
    # What was absent is as absent as before.
    assert sorted(os.listdir(git)) == ["HEAD", "config", "hooks"]
    tier1 = result_of(run_in(place, uid, act, tier=1, protected=protected))
    assert tier1["hook"] == tier1["config"] == tier1["rename over"] == "done"


def test_git_commits_with_its_hooks_and_settings_protected(uid: int, place: str) -> None:
    git = f"{place}/project/.git"
    begin = "git init -q . && git config user.email a@b.c && git config user.name n"
    assert run_in(place, uid, ["sh", "-c", begin], tier=1).status == 0
    protected = tuple(f"{git}/{name}" for name in ("hooks", "config", "info", "modules"))
    script = (
        "echo x > f && git add f && git commit -qm one && git checkout -qb other && git mv f g "
        "&& git commit -qam two && git log --oneline | wc -l; git config user.name m || echo held"
    )
    outcome = run_in(place, uid, ["sh", "-c", script], protected=protected)
    lines = outcome.output.split("\n")
    assert lines[0] == "2", outcome
    assert "held" in lines, outcome


def test_what_is_hidden_is_shut_also_below_the_workspace(uid: int, place: str) -> None:
    make(f"{place}/project/.env", uid, "KEY=1")
    make(f"{place}/project/keys/private", uid, "KEY=2")
    make(f"{place}/home/.netrc", uid, "KEY=3")
    hidden = tuple(
        f"{place}/{name}"
        for name in ("project/.env", "project/keys", "home/.netrc", "secrets", "absent")
    )

    def act() -> dict[str, Any]:
        files = (
            *("project/.env", "project/keys/private", "home/.netrc", "secrets/key"),
            "outside/file",
        )
        results: dict[str, Any] = {}
        for name in files:
            try:
                results[name] = Path(f"{place}/{name}").read_text("utf-8")
            except OSError as error:
                results[name] = errno.errorcode[error.errno or 0]
        results["list"] = attempt(lambda: os.listdir(f"{place}/project/keys"))
        results["write"] = attempt(lambda: write(f"{place}/project/.env"))
        results["add"] = attempt(lambda: write(f"{place}/project/keys/new"))
        results["delete"] = attempt(lambda: os.unlink(f"{place}/project/.env"))
        results["scratch"] = os.listdir("/dev/shm")
        return results

    bound = result_of(run_in(place, uid, act, hidden=hidden))
    assert bound == {
        "project/.env": "EACCES",
        "project/keys/private": "EACCES",
        "home/.netrc": "EACCES",
        "secrets/key": "EACCES",
        "outside/file": "outside/file",
        "list": "EACCES",
        "write": "EROFS",
        "add": "EACCES",
        "delete": "EBUSY",
        "scratch": [],
    }
    free = result_of(run_confined(act, None, f"{place}/project", uid=uid))
    assert free["project/.env"] == "KEY=1"
    assert free["write"] == free["add"] == free["delete"] == "done"


def test_nothing_runs_where_what_is_hidden_in_the_workspace_was_moved(uid: int, place: str) -> None:
    make(f"{place}/project/keys/deep/key", uid)
    hidden = (f"{place}/project/keys", f"{place}/project/keys/deep")
    assert result_of(run_in(place, uid, lambda: 1, hidden=hidden)) == 1
    outcome = run_in(place, uid, lambda: 1, hidden=(*hidden, f"{place}/project/moved/.env"))
    assert "hidden paths: Stale file handle" in outcome.failure


def test_a_folder_that_the_person_has_closed_is_hidden_with_the_secret_in_it(place: str) -> None:
    """Its owner, whose rights the command has, could open it again."""
    folder = f"{place}/project/closed"
    make(f"{folder}/.env", USER, "KEY=1")
    os.chmod(folder, 0o600)
    script = "chmod 700 closed; cat closed/.env"
    outcome = run_in(place, USER, ["sh", "-c", script], hidden=(f"{folder}/.env",))
    os.chmod(folder, 0o700)
    assert (outcome.status, outcome.failure) == (1, "") and "KEY" not in outcome.output


def test_a_secret_that_is_replaced_or_made_meanwhile_stays_hidden(uid: int, place: str) -> None:
    """A rename over a file ends all mounts over it, in other namespaces too."""
    netrc, gates = f"{place}/home/.netrc", [f"{place}/project/{name}" for name in "ab"]
    make(netrc, uid, "KEY=1")
    for gate in gates:
        os.mkfifo(gate)
        give(uid, gate)

    def save() -> None:  # the person, outside
        Path(gates[0]).read_bytes()
        make(f"{netrc}.new", uid, "KEY=2")
        os.rename(f"{netrc}.new", netrc)
        make(f"{place}/home/.pgpass", uid, "KEY=3")
        Path(gates[1]).write_bytes(b"")

    def act() -> list[str]:
        before = attempt(lambda: open(netrc).close())
        Path(gates[0]).write_bytes(b"")
        Path(gates[1]).read_bytes()
        made = f"{place}/home/.pgpass"
        return [before, *(attempt(lambda p=path: open(p).close()) for path in (netrc, made))]

    with forks.child(save):
        assert result_of(run_in(place, uid, act, hidden=(netrc,))) == ["EACCES"] * 3


def test_the_rest_is_read_only_and_leaves_no_trace(uid: int, place: str) -> None:
    before = sorted(os.walk(place))

    def act() -> dict[str, str]:
        return {
            "outside": attempt(lambda: write(f"{place}/outside/file")),
            "its time": attempt(lambda: os.utime(f"{place}/outside/file")),
            "tmp": attempt(lambda: write(f"/tmp/agent-magics-{os.getpid()}")),
            "workspace": attempt(lambda: write(f"{place}/project/file")),
            "its time, inside": attempt(lambda: os.utime(f"{place}/project/file", (1, 1))),
        }

    bound = result_of(run_in(place, uid, act))
    assert bound["outside"] == bound["its time"] == "EROFS"
    assert bound["tmp"] in ("EROFS", "EACCES")
    assert bound["workspace"] == bound["its time, inside"] == "done"
    assert sorted(os.walk(place)) == before


def test_processes_memory_and_terminals_of_others_are_not_seen(uid: int, place: str) -> None:
    shared = f"/dev/shm/agent-magics-{os.getpid()}"
    Path(shared).write_text("x", encoding="utf-8")
    os.chmod(shared, 0o666)
    outer = os.getpid()

    def act() -> dict[str, Any]:
        lock = multiprocessing.synchronize.Lock(ctx=multiprocessing.get_context("fork"))
        with lock:
            _, slave = os.openpty()
        return {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
            "outer": attempt(lambda: os.kill(outer, 0)),
            "memory": os.path.exists(shared),
            "terminal": os.ttyname(slave),
            "reopened": attempt(lambda: os.close(os.open(os.ttyname(slave), os.O_RDWR))),
        }

    try:
        bound = result_of(run_in(place, uid, act))
    finally:
        os.unlink(shared)
    assert bound == {
        "pid": 2,
        "parent": 1,
        "processes": [1, 2],
        "outer": "ESRCH",
        "memory": False,
        "terminal": "/dev/pts/0",
        "reopened": "done",
    }


@pytest.mark.parametrize("network", [False, True])
def test_the_network_is_empty_unless_it_is_allowed(uid: int, place: str, network: bool) -> None:
    bound = run_in(place, uid, lambda: os.readlink("/proc/self/ns/net"), network=network)
    assert (result_of(bound) == os.readlink("/proc/self/ns/net")) == network


def test_the_folder_must_be_the_one_that_was_meant(uid: int, place: str) -> None:
    os.mkdir(f"{place}/project/sub")
    give(uid, f"{place}/project/sub")
    bound = run_in(place, uid, lambda: os.getcwd())
    assert result_of(bound) == f"{place}/project"

    # Opened, then another one put in its place: as a race would.
    confinement = confinement_of(place)

    def enter() -> str:
        fd = os.open(f"{place}/project/sub", os.O_PATH)
        os.rename(f"{place}/project/sub", f"{place}/project/gone")
        os.mkdir(f"{place}/project/sub")
        return attempt(lambda: namespaces.enter(confinement, f"{place}/project/sub", fd))

    assert forks.call(enter) == "ESTALE"


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9)],
)
def test_it_ends_as_the_command_does(uid: int, place: str, script: str, status: int) -> None:
    outcome = run_in(place, uid, ["sh", "-c", script])
    assert (outcome.status, outcome.leftovers, outcome.failure) == (status, 0, "")


def test_what_is_left_behind_is_left_for_the_supervisor_to_count(uid: int, place: str) -> None:
    script = "sleep 100 >/dev/null 2>&1 & setsid sleep 100 >/dev/null 2>&1 & exit 3"
    outcome = run_in(place, uid, ["sh", "-c", script])
    assert outcome.status == 3
    assert outcome.leftovers == 3  # with the first process of the namespace
    assert run_in(place, uid, ["sh", "-c", script], tier=1).leftovers == 2


def test_an_interrupt_of_the_group_reaches_the_command_only(place: str, uid: int) -> None:
    script = "trap 'echo rung; exit 5' INT; kill -INT 0; sleep 10"
    outcome = run_in(place, uid, ["sh", "-c", script])
    assert (outcome.status, outcome.output) == (5, "rung\n")


def test_an_error_says_which_step_failed(place: str, uid: int) -> None:
    confinement = confinement_of(place)
    outcome = run_confined(
        lambda: 1, confinement, f"{place}/project", uid=uid, container=True, layer="all"
    )
    assert outcome.status == 1
    assert "unshare: Operation not permitted" in outcome.failure


def test_a_writable_path_that_became_a_symlink_is_not_made_writable(uid: int, place: str) -> None:
    os.symlink(f"{place}/outside", f"{place}/project/extra")
    confinement = Confinement(2, (f"{place}/project", f"{place}/project/extra"))
    act = lambda: attempt(lambda: write(f"{place}/outside/new"))  # noqa: E731
    outcome = run_confined(act, confinement, f"{place}/project", uid=uid)
    assert result_of(outcome) == "EROFS"


def test_the_command_holds_no_more_than_it_should(uid: int, place: str) -> None:
    def act() -> dict[str, Any]:
        status = Path("/proc/self/status").read_text("utf-8")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return {name: int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "SigBlk")}

    assert set(result_of(run_in(place, uid, act)).values()) == {0}


def test_the_first_process_cannot_be_looked_into(uid: int, place: str) -> None:
    def act() -> dict[str, str]:
        names = ("mem", "environ", "root", "cwd")
        results = {
            name: attempt(lambda n=name: os.close(os.open(f"/proc/1/{n}", os.O_RDONLY)))
            for name in names
        }
        results["own"] = attempt(lambda: os.listdir("/proc/self/fd"))
        return results

    bound = result_of(run_in(place, uid, act))
    assert bound.pop("own") == "done"
    assert set(bound.values()) == {"EACCES"}
