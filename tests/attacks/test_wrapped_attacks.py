"""However a command line starts a program, the program is in the sandbox: ten attacks behind each
way, as root and as an ordinary user, with and without namespaces, and with the network approved.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.support.attacks.campaign import CONTROLS, MAIN, Configuration, cannot_try, run_kernel
from tests.support.attacks.wrapped import TRIED, WRAPPERS
from tests.support.needs import not_tested

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]

CONFINED = [*MAIN, *(Configuration(1, who, container=True) for who in ("root", "user"))]


@pytest.fixture(scope="module")
def outcomes() -> Callable[[Configuration], dict[str, Any]]:
    @cache
    def run(configuration: Configuration) -> dict[str, Any]:
        return run_kernel(configuration, "attacks.wrapped", {})

    def of(configuration: Configuration) -> dict[str, Any]:
        if reason := cannot_try(configuration):
            not_tested(str(configuration), reason)
        told = run(configuration)
        if "untested" in told:
            not_tested(str(configuration), told["untested"])
        for name, outcome in told["outcomes"].items():
            assert outcome.get("ran", True), f"{name} never got to where it attacks: {outcome}"
        return told["outcomes"]

    return of


@pytest.mark.parametrize("configuration", CONTROLS, ids=str)
def test_without_confinement_each_reaches_everything(configuration, outcomes):
    missed = {
        name: sorted({*TRIED} - {*outcome["reached"]})
        for name, outcome in outcomes(configuration).items()
        if "lacking" not in outcome and len(outcome["reached"]) < len(TRIED)
    }
    assert not missed


@pytest.mark.parametrize("configuration", CONFINED, ids=str)
def test_confined_none_reaches_anything(configuration, outcomes):
    found = outcomes(configuration)
    assert not {name: each["reached"] for name, each in found.items() if each.get("reached")}
    lacking = sorted({each["lacking"] for each in found.values() if "lacking" in each})
    assert len(found) == 2 * len(WRAPPERS)
    if lacking:
        not_tested(f"attacks behind {', '.join(lacking)}", "they are not installed")
