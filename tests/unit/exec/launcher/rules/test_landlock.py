"""Landlock alone, without seccomp and notifier: what may be read, written, connected to."""

import os
import signal
import socket
import termios
import time
from collections.abc import Callable
from typing import Any

import pytest

from agent_magics.exec.launcher.rules import landlock
from agent_magics.exec.launcher.wire import Confinement
from tests.support.sandbox.confined_run import attempt, result_of, run_confined
from tests.support.users import give

# The oldest version and the newest; those between are long to go through.
ABIS = (1, *(pytest.param(abi, marks=pytest.mark.long) for abi in (2, 4, 6)), 7)


def confinement_of(place: str, **more: Any) -> Confinement:
    return Confinement(1, (f"{place}/project",), hidden=(f"{place}/secrets",), **more)


def run_both(
    act: Callable[[], Any], place: str, uid: int, abi: int | None = None, **more: Any
) -> tuple[Any, Any]:
    """What comes of `act` free and below Landlock."""
    work = f"{place}/project"
    free = result_of(run_confined(act, None, work, uid=uid))
    bound = run_confined(
        act, confinement_of(place, **more), work, uid=uid, abi=abi, layer="landlock"
    )
    return free, result_of(bound)


def write(path: str, text: str = "x") -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read(1)


@pytest.mark.parametrize("abi", ABIS)
def test_writing_is_possible_below_the_workspace_only(uid: int, place: str, abi: int) -> None:
    os.makedirs(f"{place}/outside/folder")
    give(uid, f"{place}/outside/folder")
    for name in ("moved", "linked", "deleted"):
        write(f"{place}/outside/{name}")
        give(uid, f"{place}/outside/{name}")
    outside = f"{place}/outside"
    inside: dict[str, Callable[[], Any]] = {
        "create": lambda: write("new"),
        "folder": lambda: os.mkdir("folder"),
        "symlink": lambda: os.symlink("new", "symlink"),
        "fifo": lambda: os.mkfifo("fifo"),
        "truncate": lambda: os.truncate("new", 0),
        "hard link": lambda: os.link("new", "linked"),
        "rename": lambda: os.rename("linked", "renamed"),
        "delete": lambda: os.unlink("renamed"),
        "remove folder": lambda: os.rmdir("folder"),
        "write /dev/null": lambda: write("/dev/null"),
        "shared memory": lambda: (
            write(f"/dev/shm/{uid}-{abi}"),
            os.unlink(f"/dev/shm/{uid}-{abi}"),
        ),
    }
    refused: dict[str, Callable[[], Any]] = {
        "create": lambda: write(f"{outside}/new"),
        "through symlink": lambda: (os.symlink(f"{outside}/file", "leak"), write("leak")),
        "through /proc": lambda: write(f"/proc/self/root{outside}/file"),
        "append": lambda: os.close(os.open(f"{outside}/file", os.O_WRONLY | os.O_APPEND)),
        "folder": lambda: os.mkdir(f"{outside}/made"),
        "delete": lambda: os.unlink(f"{outside}/deleted"),
        "remove folder": lambda: os.rmdir(f"{outside}/folder"),
        "move in": lambda: os.rename(f"{outside}/moved", "moved"),
        "hard link in": lambda: os.link(f"{outside}/linked", "taken"),
    }

    def act() -> list[dict[str, str]]:
        return [{name: attempt(do) for name, do in cases.items()} for cases in (inside, refused)]

    bound = result_of(
        run_confined(
            act, confinement_of(place), f"{place}/project", uid=uid, abi=abi, layer="landlock"
        )
    )
    assert set(bound[0].values()) == {"done"}, bound[0]
    assert set(bound[1].values()) <= {"EACCES", "EXDEV"}, bound[1]
    for name in ("new", "leak", "moved", "taken", "fifo", "symlink"):
        if os.path.lexists(f"{place}/project/{name}"):
            os.unlink(f"{place}/project/{name}")
    free = result_of(run_confined(act, None, f"{place}/project", uid=uid))
    assert set(free[1].values()) == {"done"}, free[1]


@pytest.mark.parametrize(("abi", "expected"), [(1, "EXDEV"), (2, "done"), (7, "done")])
def test_moving_between_folders_needs_the_second_version(
    uid: int, place: str, abi: int, expected: str
) -> None:
    def act() -> str:
        os.mkdir(f"to{abi}")
        write("from")
        return attempt(lambda: os.rename("from", f"to{abi}/here"))

    bound = run_confined(
        act, confinement_of(place), f"{place}/project", uid=uid, abi=abi, layer="landlock"
    )
    assert result_of(bound) == expected


@pytest.mark.parametrize(("abi", "expected"), [(2, "done"), (3, "EACCES"), (7, "EACCES")])
def test_truncation_needs_the_third_version(uid: int, place: str, abi: int, expected: str) -> None:
    # What older ones let through is closed by the seccomp filter.
    free, bound = run_both(
        lambda: attempt(lambda: os.truncate(f"{place}/outside/file", 0)), place, uid, abi
    )
    assert (free, bound) == ("done", expected)


@pytest.mark.parametrize("abi", ABIS)
def test_hidden_is_not_readable_and_the_rest_is(uid: int, place: str, abi: int) -> None:
    cases = {
        "hidden": f"{place}/secrets/key",
        "hidden through /proc": f"/proc/self/root{place}/secrets/key",
        "beside": f"{place}/outside/file",
        "workspace": f"{place}/project/file",
        "system": "/etc/passwd",
        "own status": "/proc/self/status",
        "zero": "/dev/zero",
    }

    def act() -> dict[str, str]:
        results = {
            name: attempt(lambda path=path: open(path, "rb").close())
            for name, path in cases.items()
        }
        os.symlink(f"{place}/secrets/key", "link")
        results["through symlink"] = attempt(lambda: read("link"))
        os.unlink("link")
        results["list /"] = attempt(lambda: os.listdir("/"))
        return results

    free, bound = run_both(act, place, uid, abi)
    assert free == dict.fromkeys(free, "done")
    refused = {name for name, result in bound.items() if result == "EACCES"}
    assert refused == {"hidden", "hidden through /proc", "through symlink"}
    assert set(bound.values()) == {"done", "EACCES"}


def test_hidden_paths_may_be_absent_nested_or_files(uid: int, place: str) -> None:
    os.makedirs(f"{place}/secrets/deep/deeper")
    write(f"{place}/secrets/deep/other")
    hidden = (
        f"{place}/secrets",
        f"{place}/secrets/deep/deeper",
        f"{place}/absent/sub",
        f"{place}/outside/file",
    )
    confinement = Confinement(1, (f"{place}/project",), hidden=hidden)

    def act() -> list[str]:
        paths = ("secrets/deep/other", "outside/file", "outside", "project/file")
        return [attempt(lambda p=p: os.close(os.open(f"{place}/{p}", os.O_RDONLY))) for p in paths]

    free = result_of(run_confined(act, None, f"{place}/project", uid=uid))
    bound = result_of(run_confined(act, confinement, f"{place}/project", uid=uid, layer="landlock"))
    assert free == ["done"] * 4
    assert bound == ["EACCES", "EACCES", "done", "done"]


def test_other_terminals_cannot_be_opened(uid: int, place: str) -> None:
    master, slave = os.openpty()
    name = os.ttyname(slave)
    give(uid, name)

    def act() -> str:
        return attempt(lambda: os.close(os.open(name, os.O_WRONLY | os.O_NOCTTY)))

    try:
        assert run_both(act, place, uid) == ("done", "EACCES")
    finally:
        os.close(master)
        os.close(slave)


def test_a_writable_file_is_writable_and_its_folder_is_not(uid: int, place: str) -> None:
    confinement = Confinement(1, (f"{place}/outside/file",))

    def act() -> list[str]:
        new = attempt(lambda: write(f"{place}/outside/new"))
        return [attempt(lambda: write(f"{place}/outside/file", "changed")), new]

    bound = run_confined(act, confinement, f"{place}/project", uid=uid, layer="landlock")
    assert result_of(bound) == ["done", "EACCES"]
    with open(f"{place}/outside/file", encoding="utf-8") as file:
        assert file.read() == "changed"


def test_a_writable_path_that_became_a_symlink_grants_nothing(uid: int, place: str) -> None:
    os.symlink(f"{place}/outside", f"{place}/project/extra")
    confinement = Confinement(1, (f"{place}/project", f"{place}/project/extra"))

    def act() -> list[str]:
        return [attempt(lambda: write(f"{place}/outside/new")), attempt(lambda: write("new"))]

    bound = run_confined(act, confinement, f"{place}/project", uid=uid, layer="landlock")
    assert result_of(bound) == ["EACCES", "done"]


def test_a_path_that_vanishes_while_it_is_granted_is_left_out(uid: int, place: str) -> None:
    write(f"{place}/fleeting")
    plan = landlock.plan_rules(confinement_of(place))
    assert f"{place}/fleeting" in dict(plan.grants)
    os.unlink(f"{place}/fleeting")
    os.close(landlock.build_ruleset(plan))


def test_folders_that_cannot_be_read_do_no_harm(place: str, uid: int) -> None:
    os.makedirs(f"{place}/closed/inner")
    os.chmod(f"{place}/closed", 0)
    confinement = Confinement(1, (f"{place}/project",), hidden=(f"{place}/closed/inner",))
    act = lambda: attempt(lambda: write("new"))  # noqa: E731
    bound = run_confined(act, confinement, f"{place}/project", uid=uid, layer="landlock")
    os.chmod(f"{place}/closed", 0o700)
    assert result_of(bound) == "done"


def settle() -> None:
    """Wait until a change is older than a tick of the kernel's clock."""
    end = time.monotonic() + 0.12
    while time.monotonic() < end:
        signal.sigtimedwait([], end - time.monotonic())


def test_what_comes_later_in_a_workspace_that_is_only_read_is_granted_in_tier_2(place: str) -> None:
    """A language server reads new files; the mounts hide what is secret beside them."""
    for tier, listed in ((1, [place, f"{place}/project"]), (2, [place])):
        hidden = (f"{place}/secrets", f"{place}/project/.env")
        confinement = Confinement(tier, hidden=hidden, workspace=(f"{place}/project",))
        plan = landlock.plan_rules(confinement)
        assert sorted(f for f in plan.stamps if f.startswith(place)) == listed
        assert (f"{place}/project", landlock.READ) in plan.grants or tier == 1


def test_in_a_folder_of_very_many_entries_the_mounts_of_tier_2_have_to_do(place: str) -> None:
    """Each entry beside what is hidden costs a rule with each command."""
    most = landlock._MOST_BESIDE
    for number in range(most + 1):
        write(f"{place}/{number}")
    hidden = (f"{place}/secrets",)
    rules = [len(landlock.plan_rules(Confinement(tier, hidden=hidden)).grants) for tier in (1, 2)]
    assert rules[0] > most > rules[1]


def test_a_plan_is_stale_when_something_appears_beside_what_is_hidden(place: str) -> None:
    settle()
    confinement = confinement_of(place)
    plan = landlock.plan_rules(confinement)
    if plan.stamps["/tmp"] is None or plan.is_stale():  # others use /tmp too
        plan = landlock.plan_rules(confinement)
    stamps = {path: stamp for path, stamp in plan.stamps.items() if path.startswith(place)}
    own = landlock.RulesetPlan(plan.grants, plan.ports, stamps, plan.roots)
    assert list(stamps) == [place]
    assert not own.is_stale()
    write(f"{place}/outside/new")
    write(f"{place}/project/new")
    assert not own.is_stale()
    write(f"{place}/new")
    assert own.is_stale()


def test_setting_the_clock_of_a_folder_back_does_not_hide_a_change(place: str) -> None:
    settle()
    plan = landlock.plan_rules(confinement_of(place))
    before = os.stat(place)
    own = landlock.RulesetPlan((), (), {place: plan.stamps[place]}, {})
    write(f"{place}/new")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert own.is_stale()


def test_a_plan_is_stale_when_a_writable_folder_was_made_anew(place: str) -> None:
    plan = landlock.plan_rules(confinement_of(place))
    own = landlock.RulesetPlan((), (), {}, plan.roots)
    assert not own.is_stale()
    os.rename(f"{place}/project", f"{place}/old")
    os.mkdir(f"{place}/project")
    assert own.is_stale()


def connect(port: int) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", port))


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(("abi", "governed"), [(2, False), (4, True), (7, True)])
def test_tcp_is_governed_from_the_fourth_version(
    uid: int, place: str, abi: int, governed: bool, network: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def act() -> list[str]:
            with socket.socket() as other:
                bound = attempt(lambda: other.bind(("127.0.0.1", 0)))
            return [
                attempt(lambda: connect(port)),
                bound,
                attempt(lambda: connect(443)),
                attempt(lambda: connect(80)),
            ]

        free, bound = run_both(act, place, uid, abi, network=network)
    assert free[:2] == ["done", "done"]
    assert not {"EACCES"} & set(free)
    assert bound[:2] == (["EACCES", "EACCES"] if governed else ["done", "done"])
    assert (bound[2:] == ["EACCES", "EACCES"]) == (governed and not network)


@pytest.mark.parametrize(("abi", "expected"), [(4, "done"), (6, "EPERM"), (7, "EPERM")])
def test_signals_and_abstract_sockets_stay_inside_from_the_sixth_version(
    uid: int, place: str, abi: int, expected: str
) -> None:
    name = f"\0agent-magics-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()

        def act() -> list[str]:
            with socket.socket(socket.AF_UNIX) as client:
                connected = attempt(lambda: client.connect(name))
            return [attempt(lambda: os.kill(os.getppid(), 0)), connected]

        free, bound = run_both(act, place, uid, abi)
    assert free == ["done", "done"]
    assert bound == [expected, expected]


@pytest.mark.parametrize("abi", ABIS)
def test_named_devices_answer_controls_as_ever(uid: int, place: str, abi: int) -> None:
    # From the fifth version on a device that is not granted them answers EACCES.
    def act() -> str:
        with open("/dev/null", "rb") as device:
            return attempt(lambda: termios.tcgetattr(device.fileno()))

    assert run_both(act, place, uid, abi) == ("ENOTTY", "ENOTTY")


def test_an_older_version_is_imitated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_MAGICS_TEST_ABI", "0")
    with pytest.raises(OSError, match="no Landlock"):
        landlock.build_ruleset(landlock.RulesetPlan((), (), {}, {}))
