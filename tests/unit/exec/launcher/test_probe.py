"""The probe finds out by doing, and says why when it is less than it could be."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from agent_magics.exec.launcher import confine, probe
from agent_magics.exec.launcher.rules import landlock
from tests.support import forks
from tests.support.sandbox.confined_run import ground
from tests.support.sandbox.container import deny_namespaces
from tests.support.users import ME, become


def run(prepare: Callable[[], object], uid: int) -> dict[str, Any]:
    """What the probe says in a process of `uid` that `prepare` has changed."""

    def ask() -> dict[str, Any]:
        become(uid)
        prepare()
        return probe.probe()

    return forks.call(ask)


@pytest.mark.needs("tier 2")
def test_this_machine_has_namespaces(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with ground(uid) as place:
        monkeypatch.setenv("TMPDIR", f"{place}/project")
        answer = run(lambda: None, uid)
        assert (answer["tier"], answer["reason"]) == (2, "")
        assert answer["abi"] >= 1
        assert os.listdir(f"{place}/project") == ["file"]  # it has cleaned up


def test_a_container_without_user_namespaces_has_tier_1_with_a_reason(uid: int) -> None:
    answer = run(deny_namespaces, uid)
    reason = "user namespaces are blocked here: unshare: Operation not permitted"
    assert (answer["tier"], answer["reason"]) == (1, reason)


def set_abi(number: int) -> Callable[[], None]:
    return lambda: os.environ.update(AGENT_MAGICS_TEST_ABI=str(number))


def test_without_landlock_there_is_no_tier(uid: int) -> None:
    answer = run(set_abi(0), uid)
    assert (answer["tier"], answer["abi"]) == (0, 0)
    assert answer["reason"] == f"this kernel has no Landlock ({os.uname().release})"


@pytest.mark.needs("tier 2")
@pytest.mark.parametrize("abi", [1, 2, 4, 6])
def test_older_versions_hold_as_well(uid: int, abi: int) -> None:
    assert run(set_abi(abi), uid)["tier"] == 2


@pytest.mark.parametrize(
    ("hole", "problem"),
    [
        ("landlock", "writing outside the workspace was not refused"),
        ("signals", "a signal to the launcher was not refused"),
    ],
)
def test_a_layer_that_does_not_hold_lowers_the_tier(hole: str, problem: str, uid: int) -> None:
    def pierce() -> None:
        if hole == "landlock":  # as a kernel that only pretends
            landlock.restrict_self = lambda ruleset: None
        else:  # an old kernel whose answers are never asked for
            os.environ["AGENT_MAGICS_TEST_ABI"] = "5"
            confine.landlock_abi = lambda: 6

    answer = run(pierce, uid)
    assert answer["tier"] == 0
    assert answer["reason"] == f"the sandbox does not hold here: {problem}"


@pytest.mark.needs("tier 2")
def test_a_tier_2_that_does_not_protect_is_tier_1(uid: int) -> None:
    def pierce() -> None:
        confine.namespaces._protect = lambda *_: None

    answer = run(pierce, uid)
    assert answer["tier"] == 1
    assert "writing a protected file was not refused" in answer["reason"]


def test_it_is_quick() -> None:
    begin = time.perf_counter()
    for _ in range(5):
        run(lambda: None, ME)
    # Fifty times what it takes on an idle machine; it is asked once per kernel.
    assert (time.perf_counter() - begin) / 5 < 5.0
