"""docs/security.md says exactly what the attacks show: what is open, what was tried and stopped."""

import re
from pathlib import Path

import pytest

from tests.support.attacks.campaign import CONTROLS, MAIN, OTHERS, Configuration
from tests.support.attacks.table import ROWS

PAGE = Path(__file__).parents[2] / "docs/security.md"


def table(first_heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column bears a heading."""
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {first_heading} |"):
            break
    else:
        raise AssertionError(f"{PAGE.name} has no table that begins with {first_heading!r}")
    next(lines)  # the rule below the headings
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_open_attacks_are_those_listed():
    told = {(int(number), tiers) for number, _, tiers, _ in table("open")}
    meant = {
        (row.number, " and ".join(map(str, row.open_in))) for row in ROWS.values() if row.open_in
    }
    assert told == meant


def test_what_remains_of_each_is_said():
    assert all(remains for *_, remains in table("open"))


@pytest.mark.parametrize("configuration", [*MAIN, *OTHERS], ids=str)
def test_the_figures_are_those_of_the_table(configuration):
    (told,) = (row for row in table("configuration") if row[0] == f"`{configuration}`")
    assert told[1:] == figures(configuration)


def figures(configuration: Configuration) -> list[str]:
    rows = configuration.rows
    left = [row for row in rows if configuration.tier in row.open_in]
    return [str(len(rows)), str(len(rows) - len(left)), str(len(left))]


def test_every_attack_above_the_sandbox_names_its_test():
    """Part B: a row names a test that exists, or says why there is none."""
    rows = table("above")
    assert len(rows) >= 25
    root = PAGE.parents[1]
    for number, _, where in rows:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", where):
            text = (root / file).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in text, (number, file, name)


def test_controls_are_two():
    assert [str(each) for each in CONTROLS] == ["control-root", "control-user"]
