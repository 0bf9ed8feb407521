"""A file that a rule withholds is withheld under each of its names."""

import os

import pytest

from agent_magics.approval.read_rules import ReadRules
from agent_magics.approval.rules import RuleBook
from agent_magics.tools.commands.unreadable import find_unreadable

RULE = '[[rule]]\npermission = "read"\npattern = "{}"\ndecision = "{}"\n'


def book(folder, *rules):
    """Return the rules of a project, given as (pattern, decision)."""
    (folder / ".agent_magics").mkdir(exist_ok=True)
    text = "".join(RULE.format(*each) for each in rules)
    (folder / ".agent_magics/rules.toml").write_text(text, encoding="utf-8")
    return RuleBook(folder)


@pytest.fixture
def folder(tmp_path):
    for name in ("secret/deep/a.txt", "asked/b.txt", "other.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    os.link(tmp_path / "secret/deep/a.txt", tmp_path / "a2")
    os.link(tmp_path / "asked/b.txt", tmp_path / "b2")
    os.link(tmp_path / "other.txt", tmp_path / "c2")
    os.link(tmp_path / "secret/deep/a.txt", tmp_path / "asked/a3")
    return tmp_path


@pytest.mark.parametrize("pattern", ["secret", "secret/**", "**/a.txt", "s*/deep/a.*"])
def test_a_hard_link_is_judged_as_the_file(folder, pattern):
    rules = book(folder, (pattern, "forbid"), ("asked/**", "prompt"), ("a2", "allow"))
    found = {name: rules.read_rules().decision(str(folder / name)) for name in ("a2", "b2", "c2")}
    assert found == {"a2": "forbid", "b2": "prompt", "c2": ""}
    assert rules.read_rules().decision(str(folder / "asked/a3")) == "forbid"
    assert rules.decide("read", str(folder / "a2")).decision == "forbid"
    assert rules.decide("read", str(folder / "b2")).decision == "prompt"
    assert rules.decide("read", str(folder / "c2")) is None
    places = find_unreadable(rules.read_rules()).places
    assert {str(folder / name) for name in ("a2", "b2")} <= set(places)
    assert str(folder / "c2") not in places


def test_rules_that_appear_hold_at_once(folder):
    rules = book(folder)
    assert rules.read_rules().decision(str(folder / "other.txt")) == ""
    book(folder, ("other.txt", "forbid"))
    assert rules.read_rules().decision(str(folder / "other.txt")) == "forbid"


def test_without_hard_links_nothing_more_is_searched(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "many").mkdir()
    rules = book(tmp_path, ("secret", "forbid")).read_rules()
    assert rules.starts() == [str(tmp_path / "secret")]
    assert find_unreadable(rules).places == (str(tmp_path / "secret"),)


@pytest.mark.parametrize("path", ["", "/", "missing", "a\0b", "x" * 5000])
def test_odd_paths_have_no_other_name(folder, path):
    assert book(folder, ("secret", "forbid")).read_rules().other_name(path) == ""
    assert ReadRules().other_name(path) == ""
