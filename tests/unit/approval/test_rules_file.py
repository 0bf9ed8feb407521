"""A file of rules is understood whole, or says where it is not; changing it leaves the rest."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.approval.rules_file import (
    Rule,
    RulePlaces,
    parse_rules,
    read_rules,
    rule_text,
)
from agent_magics.config_files.toml_edit import toml_text, write_text
from agent_magics.protocol.errors import FatalError

HERE = Path("/p/rules.toml")
PLAIN = 'permission = "command"\npattern = ["git", ["status", "log"]]\ndecision = "allow"\n'


def parse(text):
    return parse_rules(text, HERE, "user")


def error_in(text):
    with pytest.raises(FatalError) as caught:
        parse(text)
    return str(caught.value)


def test_a_rule_is_read_with_all_its_keys():
    [rule] = parse(
        "# first\n\n[[rule]]\n"
        + PLAIN
        + 'sandbox = "bypass"\nagent = "helper*"\njustification = "reads only"\n'
        'match = ["git status", ["git", "log", "-1"]]\nnot_match = ["git push"]\n'
    )
    assert rule == Rule(
        permission="command",
        pattern=(("git",), ("status", "log")),
        decision="allow",
        sandbox="bypass",
        agent="helper*",
        justification="reads only",
        origin="user",
        file="/p/rules.toml",
        number=0,
        line=3,
    )
    assert rule.text == "git (status|log) …"


def test_a_file_without_rules_has_none():
    assert parse("") == ()
    assert parse("# nothing\n") == ()


@pytest.mark.parametrize(
    ("words", "matched"),
    [
        (["git", "status"], 2),
        (["git", "log", "-p"], 2),
        (["git"], 0),
        (["git", "push"], 0),
        (["/usr/bin/git", "status"], 0),
        ([], 0),
    ],
)
def test_a_pattern_is_a_prefix_with_alternatives(words, matched):
    [rule] = parse("[[rule]]\n" + PLAIN)
    assert rule.words_matched(words) == matched


def with_pattern(pattern):
    return "[[rule]]\n" + PLAIN.replace('["git", ["status", "log"]]', pattern)


# (text, line, words of the sentence)
MISTAKES = [
    ("[[rule]]\npermission = command\n", 2, "not TOML"),
    ("[[rule]]\npattern = [\n", 3, "not TOML"),
    ("a = 1\n[[rule]]\n" + PLAIN, 1, "'a' is not known here"),
    ("[[rule]]\n" + PLAIN + "\n[other]\nx = 1\n", 6, "'other' is not known here"),
    ("\nrule = 3\n", 2, "[[rule]] tables"),
    ("[rule]\n" + PLAIN, 1, "[[rule]] tables"),
    ("\n[[rule]]\n" + PLAIN + 'colour = "red"\n', 6, "'colour' is not a key"),
    ("[[rule]]\n" + PLAIN + "\n[[rule]]\n" + PLAIN + "colour = 1\n", 10, "'colour'"),
    ('[[rule]]\npattern = ["a"]\ndecision = "allow"\n', 1, "no permission"),
    ('[[rule]]\npermission = "command"\npattern = ["a"]\n', 1, "no decision"),
    ('[[rule]]\npermission = "command"\ndecision = "allow"\n', 1, "no pattern"),
    ("[[rule]]\n" + PLAIN.replace('"allow"', '"yes"'), 4, "allow | prompt | forbid"),
    ("[[rule]]\n" + PLAIN.replace('"command"', '"exec"'), 2, "command | read"),
    ("[[rule]]\n" + PLAIN.replace('"command"', '["command"]'), 2, "permission = ["),
    ("[[rule]]\n" + PLAIN + 'sandbox = "none"\n', 5, "default | bypass"),
    ("[[rule]]\n" + PLAIN.replace("allow", "forbid") + 'sandbox = "bypass"\n', 5, "runs nowhere"),
    ("[[rule]]\n" + PLAIN + "agent = 3\n", 5, "must be text"),
    ("[[rule]]\n" + PLAIN + "justification = []\n", 5, "must be text"),
    (
        "[[rule]]\n" + PLAIN.replace('["git", ["status", "log"]]', '"git status"'),
        3,
        "list of words",
    ),
    (with_pattern("[]"), 3, "list of words"),
    (with_pattern('["git", []]'), 3, "list of words"),
    (with_pattern('["git", ""]'), 3, "list of words"),
    (with_pattern('["git", 3]'), 3, "list of words"),
    (with_pattern('["git", "*"]'), 3, "leave"),
    ("[[rule]]\n" + PLAIN + 'match = ["git push"]\n', 5, "does not match 'git push'"),
    ("[[rule]]\n" + PLAIN + 'not_match = ["git log -1"]\n', 5, "matches 'git log -1'"),
    ("[[rule]]\n" + PLAIN + 'match = "git status"\n', 5, "list of examples"),
    ("[[rule]]\n" + PLAIN + "match = [3]\n", 5, "a command line or a list"),
    ("[[rule]]\n" + PLAIN + 'match = ["git \'status"]\n', 5, "no command line"),
    ('[[rule]]\npermission = "write"\npattern = ["src"]\ndecision = "allow"\n', 3, "src/**"),
    ('[[rule]]\npermission = "write"\npattern = ""\ndecision = "allow"\n', 3, "src/**"),
    ('[[rule]]\npermission = "write"\npattern = "[z-a]"\ndecision = "allow"\n', 3, "src/**"),
    (
        '[[rule]]\npermission = "write"\npattern = "src/**"\ndecision = "allow"\n'
        'match = ["lib/a"]\n',
        *(5, "does not match 'lib/a'"),
    ),
    (
        '[[rule]]\npermission = "write"\npattern = "a"\ndecision = "allow"\nsandbox = "bypass"\n',
        *(5, 'permission = "command" only'),
    ),
    # What looks like a key or a table, but stands inside a string or a list.
    (
        '[[rule]]\njustification = """\n[[rule]]\ncolour = 1\n"""\n' + PLAIN + "colour = 1\n",
        *(9, "'colour'"),
    ),
    ("[[rule]]\nmatch = [\n  'git status',\n]\n" + PLAIN + "colour = 1\n", 8, "'colour'"),
    ("[[rule]] # one\n" + PLAIN + "# colour\n'colour' = 1\n", 6, "'colour'"),
    ("rule = [\n {permission = 'command', pattern = ['a'], decision = 'no'},\n]\n", 1, "'no'"),
]


@pytest.mark.parametrize(("text", "line", "words"), MISTAKES)
def test_a_mistake_is_told_with_its_line(text, line, words):
    told = error_in(text)
    assert told.startswith(f"/p/rules.toml, line {line}: "), told
    assert words in told
    assert "\n" not in told


def test_a_rule_of_the_network_is_for_commands_or_for_all():
    for pattern in ('["pip", "install"]', '"*"'):
        assert parse(f'[[rule]]\npermission="network"\npattern={pattern}\ndecision="allow"\n')
    told = error_in('[[rule]]\npermission="network"\npattern="pypi.org"\ndecision="allow"\n')
    assert "every command" in told


def test_what_is_no_plain_file_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"# ok\n\xff\n")
    (tmp_path / "huge").write_bytes(b"#" * (1 << 20 | 1))
    with pytest.raises(FatalError, match="it is no regular file"):
        read_rules(tmp_path / "pipe", "user")
    with pytest.raises(FatalError, match="it is no regular file"):
        read_rules(tmp_path, "user")
    with pytest.raises(FatalError, match="it is larger than 1 MiB"):
        read_rules(tmp_path / "huge", "user")
    with pytest.raises(FatalError, match="line 2: this is not UTF-8"):
        read_rules(tmp_path / "binary", "user")
    assert read_rules(tmp_path / "none", "user").rules == ()


@given(st.text())
def test_any_text_is_rules_or_one_sentence(text):
    told = ""
    try:
        parse(text)
    except FatalError as error:
        told = str(error)
    assert not told or told.startswith("/p/rules.toml, line ")


@given(st.text().filter(lambda text: text.encode("utf-8", "replace").decode() == text))
def test_any_text_can_be_written_as_toml(text):
    assert tomllib.loads(f"a = {toml_text(text)}")["a"] == text
    assert "\n" not in toml_text(text)


# -- changing a file -----------------------------------------------------------------------------

WORDS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4).filter(
    lambda words: (
        not {"*", "**"} & set(words)
        and all(word.encode("utf-8", "replace").decode() == word for word in words)
    )
)


@given(WORDS, st.text(max_size=20))
def test_what_is_written_is_read_again(words, comment):
    rule = Rule("command", tuple((word,) for word in words), "allow", justification="yes")
    [read] = parse(rule_text(rule, comment))
    assert (read.pattern, read.decision, read.justification) == (rule.pattern, "allow", "yes")
    assert read.by_answer


OWN = """\
# My rules, in my order.
[[rule]]   # the first
permission = "command"
pattern = [
  "git",   # with a comment
  ["status", "log"],
]
decision = "allow"

# About secrets.
[[rule]]
permission = "read"
pattern = "secrets/**"
decision = "forbid"   # never
justification = '''
Several
[[rule]]
lines'''
"""


def test_a_rule_is_taken_out_and_the_rest_stays_as_it_is():
    written = OWN + "\n" + rule_text(Rule("command", (("ls",),), "allow"), "2026-01-01: ls")
    assert [rule.by_answer for rule in parse(written)] == [False, False, True]
    assert RulePlaces(written).without(2) == OWN
    without_first = RulePlaces(OWN).without(0)
    assert "git" not in without_first
    assert without_first.startswith("# My rules, in my order.\n")
    assert len(parse(without_first)) == 1
    without_second = RulePlaces(OWN).without(1)
    assert "Several" not in without_second and "with a comment" in without_second
    assert len(parse(without_second)) == 1


def test_a_rule_that_is_no_table_of_its_own_stays():
    text = "rule = [{permission = 'command', pattern = ['a'], decision = 'allow'}]\n"
    with pytest.raises(FatalError, match="by hand"):
        RulePlaces(text).without(0)


def test_a_file_is_written_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "rules.toml"
    write_text(path, "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o600)
    write_text(path, "b")
    assert (path.read_text(encoding="utf-8"), stat.S_IMODE(path.stat().st_mode)) == ("b", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["rules.toml"]


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "rules.toml"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_text(path, "a")
    assert [each.name for each in tmp_path.iterdir()] == ["rules.toml"]
