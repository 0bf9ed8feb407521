"""Every attack on the sandbox, in every configuration, each with the proof that it is one.

An attack that is stopped proves nothing where it would fail anyhow, or where it never ran. So each
is made without confinement first, where it must succeed, and confined it must say by which errno
it was refused.
"""

import os

import pytest

from tests.support.attacks.campaign import CONTROLS, MAIN, OTHERS, Configuration
from tests.support.attacks.table import ROWS, Row
from tests.support.needs import not_tested

pytestmark = pytest.mark.timeout(240)


def cases(configurations: list[Configuration]) -> list[object]:
    """Return (row, configuration) for each row that is tried in each of `configurations`."""
    return [
        pytest.param(row, configuration, id=f"{configuration}-row{row.number}")
        for configuration in configurations
        for row in configuration.rows
    ]


@pytest.mark.parametrize(("row", "configuration"), cases(CONTROLS))
def test_without_confinement_it_succeeds(row, configuration, campaign):
    outcome = campaign(configuration)[str(row.number)]
    assert "broken" not in outcome
    if row.lacking and not outcome["worked"]:
        not_tested(f"attack {row.number}: {row.title}", row.lacking)
    assert outcome["worked"], f"a control that fails: {outcome}"


@pytest.mark.parametrize(("row", "configuration"), cases(MAIN))
def test_the_sandbox_stops_it(row, configuration, campaign):
    assert_stopped(row, configuration, campaign(configuration)[str(row.number)])


@pytest.mark.long
@pytest.mark.parametrize("configuration", OTHERS, ids=str)
def test_where_the_machine_has_less_it_stops_them_all(configuration, campaign):
    outcomes, wrong = campaign(configuration), {}
    for row in configuration.rows:
        try:
            assert_stopped(row, configuration, outcomes[str(row.number)])
        except AssertionError as error:
            wrong[row.number] = str(error)
    assert not wrong


def assert_stopped(row: Row, configuration: Configuration, outcome: dict[str, object]) -> None:
    """It was made and refused; or it is one of those that are known to be open."""
    assert_ran(outcome)
    if configuration.tier in row.open_in:
        assert outcome["worked"], f"now stopped: take it out of the open ones: {outcome}"
        return
    assert not outcome["worked"], f"it succeeded: {outcome}"
    if "ran" not in outcome:
        assert_refused(outcome, row)


def assert_ran(outcome: dict[str, object]) -> None:
    """The attack was made, and not broken by a bug of its own."""
    assert "broken" not in outcome, outcome["broken"]
    if "ran" in outcome:
        assert outcome["ran"], f"it never got to where it attacks: {outcome}"
    else:
        assert outcome["whole"], f"the command did not come to its end: {outcome}"


def assert_refused(outcome: dict[str, object], row: Row) -> None:
    """It failed in the way of a refusal, and not for instance because a name was wrong."""
    assert "refused" in outcome, f"neither refused nor seen to work: {outcome}"
    names = sorted(os.strerror(number) for number in row.refusals)
    assert outcome["refused"] in row.refusals, f"{outcome} is none of {names}"


def test_no_number_is_left_out():
    assert sorted(number for number in ROWS if number <= 80) == [
        number for number in range(1, 81) if number != 54
    ]


def test_open_rows_say_what_remains():
    assert all(bool(row.open_in) == bool(row.remains) for row in ROWS.values())
