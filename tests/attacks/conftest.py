"""Runs each configuration once for all rows that are tested in it, and prints what was measured."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.attacks.campaign import Configuration, cannot_try, run
from tests.support.attacks.table import ROWS
from tests.support.needs import not_tested

_AT_ONCE = 2  # configurations; each is a kernel with its commands
_measured: dict[Configuration, dict[str, Any]] = {}


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> Iterator[Callable[[Configuration], dict[str, Any]]]:
    """Return what gives the outcomes of a configuration, row number (as text) to outcome."""
    runs: dict[Configuration, Future[dict[str, Any]]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for configuration in _wanted(request.session.items):
            if not cannot_try(configuration):
                runs[configuration] = pool.submit(run, configuration)

        def outcomes(configuration: Configuration) -> dict[str, Any]:
            if reason := cannot_try(configuration):
                _measured[configuration] = {"untested": reason}
                not_tested(str(configuration), reason)
            _measured[configuration] = told = runs[configuration].result()
            if "untested" in told:
                not_tested(str(configuration), told["untested"])
            return told["outcomes"]

        yield outcomes
        for future in runs.values():
            future.cancel()


def _wanted(items: list[pytest.Item]) -> list[Configuration]:
    """Return the configurations of the tests that will run, in their order."""
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    found = [each["configuration"] for each in params if "configuration" in each]
    return list(dict.fromkeys(found))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the scoreboard: what was tried, proven live, stopped, and what could not be tested."""
    if not _measured:
        return
    terminalreporter.section("attacks")
    for configuration, told in _measured.items():
        terminalreporter.line(_line(configuration, told))


def _line(configuration: Configuration, told: dict[str, Any]) -> str:
    if "untested" in told:
        return f"{configuration!s:24} NOT TESTED: {told['untested']}"
    outcomes = {int(number): outcome for number, outcome in told["outcomes"].items()}
    worked = sorted(number for number, outcome in outcomes.items() if outcome["worked"])
    if configuration.tier == 0:
        vacuous = sorted(set(outcomes) - set(worked))
        reasons = "; ".join(f"{number}: {ROWS[number].lacking}" for number in vacuous)
        return (
            f"{configuration!s:24} tried {len(outcomes):3}, succeeded {len(worked):3}"
            f", proves nothing here: {reasons or 'none'}"
        )
    shown = " ".join(map(str, worked)) or "none"
    stopped = len(outcomes) - len(worked)
    return f"{configuration!s:24} tried {len(outcomes):3}, stopped {stopped:3}, open: {shown}"
