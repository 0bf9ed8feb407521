"""Runs each configuration once for all rows that are tested in it, and prints what was measured."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.attacks.campaign import Configuration, cannot_try, run
from tests.support.attacks.table import ROWS
from tests.support.needs import not_tested

_measured: dict[Configuration, dict[str, Any]] = {}


@pytest.fixture(scope="session")
def campaign() -> Callable[[Configuration], dict[str, Any]]:
    """Return what gives the outcomes of a configuration, row number (as text) to outcome.

    The first row of a configuration that is asked for takes the time of all.
    """

    def outcomes(configuration: Configuration) -> dict[str, Any]:
        if configuration not in _measured:
            reason = cannot_try(configuration)
            try:
                told = {"untested": reason} if reason else run(configuration)
            except Exception as error:  # each of its rows fails by it, and it is not run again
                told = {"broken": error}
            _measured[configuration] = told
        told = _measured[configuration]
        if "broken" in told:
            raise RuntimeError(f"{configuration} is broken") from told["broken"]
        if "untested" in told:
            not_tested(str(configuration), told["untested"])
        return told["outcomes"]

    return outcomes


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
    if "broken" in told:
        return f"{configuration!s:24} BROKEN: {told['broken']!r}"
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
