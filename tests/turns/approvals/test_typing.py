"""Typing into a session is judged by the rights that it was given, and as what its shell runs."""

import json
import re

import pytest

from agent_magics.approval.actions import NOT_BOUND
from agent_magics.config_files.places import user_rules_file
from tests.support.turns import scripted

pytestmark = pytest.mark.needs("tier 1")


class Person:
    """Approves everything, as far as it can, until told otherwise, and remembers the questions."""

    def __init__(self):
        self.asked, self.answer = [], "approve"

    def __call__(self, question):
        self.asked.append(question)
        lasting = "approve_for_session"
        return lasting if self.answer == "approve" and lasting in question.scopes else self.answer


@pytest.fixture
def session():
    """Starts a session in an agent of its own; returns what types into it, and the person."""
    agents = []

    def start(cmd, permissions="use_default", policy="on-request", **options):
        person = Person()
        tools = ["exec_command", "write_stdin"]
        agent = scripted(tools=tools, approval=policy, on_question=person, **options)
        agents.append(agent)
        arguments = {"cmd": cmd, "tty": True, "yield_time_ms": 250, "justification": "it must be"}
        begun = agent.call_sync("exec_command", {**arguments, "sandbox_permissions": permissions})
        found = re.search(r"Session (\d+) is running", begun.text)
        assert found, begun.text
        person.asked.clear()

        def type_in(chars, **settings):
            agent.configure(**settings)
            more = {"session_id": int(found[1]), "chars": chars, "yield_time_ms": 250}
            return agent.call_sync("write_stdin", more)

        return type_in, person

    yield start
    for agent in agents:
        agent.close()


@pytest.fixture
def rules():
    """Writes the person's own rules: (permission, pattern, decision)."""

    def write(*rows):
        keys = ("permission", "pattern", "decision")
        tables = [zip(keys, map(json.dumps, row), strict=True) for row in rows]
        lines = ["\n".join(["[[rule]]", *map(" = ".join, table)]) for table in tables]
        user_rules_file().parent.mkdir(parents=True, exist_ok=True)
        user_rules_file().write_text("\n".join(lines), encoding="utf-8")

    yield write
    user_rules_file().unlink(missing_ok=True)


RIGHTS = {
    "network": ("require_network", "the session may use the network"),
    "write": ({"write": ["/var/tmp"]}, "the session may write /var/tmp"),
    "outside": ("require_escalated", "the session runs outside the sandbox"),
}


@pytest.mark.parametrize("policy", ["untrusted", "on-request", "on-failure"])
@pytest.mark.parametrize("right", RIGHTS)
def test_typing_where_more_is_allowed_is_asked_about_each_time(session, right, policy):
    permissions, reason = RIGHTS[right]
    type_in, person = session("cat", permissions, policy)
    for words in ("one\n", "one\n"):
        assert type_in(words).success
    targets = [question.target for question in person.asked]
    assert targets == ["typing 'one\\n' into the session cat"] * 2
    for question in person.asked:
        assert f"{reason}; {NOT_BOUND}" in question.reason and question.scopes == ()
    type_in("")
    type_in("\x03")
    assert len(person.asked) == 2, "it waits, and it ends it"


# Settings of a session's cell, those of a later one, and what the session may do beyond these.
NARROWED = [
    ({}, {"sandbox": "read-only"}, "may write {here}"),
    ({"writable_roots": ["../wide"]}, {"writable_roots": []}, "may write {up}/wide"),
    ({"network": True}, {"network": False}, "may use the network"),
    ({"sandbox": "danger-full-access"}, {"sandbox": "workspace-write"}, "runs outside the sandbox"),
]


@pytest.mark.parametrize(("earlier", "now", "reason"), NARROWED, ids=range(len(NARROWED)))
def test_typing_is_asked_about_where_a_session_may_do_more_than_commands_may_now(
    session, tmp_path, earlier, now, reason
):
    (tmp_path.parent / "wide").mkdir(exist_ok=True)
    type_in, person = session("tee", **earlier)
    assert type_in("one\n").success and person.asked == []
    for _ in range(2):
        type_in("one\n", **now)
    said = f"the session {reason.format(here=tmp_path, up=tmp_path.parent)}; {NOT_BOUND}"
    assert [said in each.reason for each in person.asked] == [True, True]
    assert type_in("one\n", **{"sandbox": "workspace-write", **earlier}).success
    assert len(person.asked) == 2


def test_a_session_of_a_read_only_sandbox_may_do_no_more_in_a_wider_one(session):
    type_in, person = session("tee", sandbox="read-only")
    assert type_in("one\n").success
    assert type_in("one\n", sandbox="workspace-write").success and person.asked == []


def test_the_network_that_all_commands_have_is_no_more(session):
    type_in, person = session("cat", "require_network", network=True)
    assert type_in("one\n").success and person.asked == []


def test_a_rule_about_the_network_holds_for_typing(session, rules):
    rules(("network", "*", "allow"))
    type_in, person = session("cat", "require_network")
    assert type_in("one\n").success and person.asked == []
    rules(("network", "*", "forbid"))
    assert "a rule forbids" in type_in("one\n").text


def test_typing_in_the_sandbox_is_asked_about_as_before(session):
    type_in, person = session("sh")
    assert type_in("ls\n").success and type_in("rm -rf build\n").success
    assert person.asked == []
    type_in, person = session("sh", policy="untrusted")
    for words in ("ls\n", "git status\n"):
        assert type_in(words).success
    assert len(person.asked) == 1, "a lasting answer for the session"


# What reads what is typed as a script, and how a line may come.
SHELLS = ["sh", "exec bash", "cat | sh", "env bash --norc", "/bin/sh -i", 'eval "$(cat)"']
TYPED = [
    ["make x\n"],
    ["ma", "ke x", "\n"],
    ["ls\nls; make x\r"],
    ["x\x03", "make"],
    ["sudo make x\n"],
]


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_shell_is_told_is_judged_as_a_script(session, rules, shell):
    rules(("command", ["make"], "forbid"))
    type_in, person = session(shell)
    assert "a rule forbids make" in type_in("ls; make x\n").text
    assert type_in("echo make x\n").success and person.asked == []
    person.answer = "deny"
    assert not type_in("git push --force\n").success
    assert person.asked[0].dangerous and person.asked[0].scopes == ()


@pytest.mark.parametrize("typed", TYPED, ids=range(len(TYPED)))
def test_a_line_is_judged_whole_however_it_is_typed(session, rules, typed):
    rules(("command", ["make"], "prompt"))
    type_in, person = session("sh")
    for chars in typed:
        type_in(chars)
    assert person.asked and "a rule asks about make" in person.asked[0].reason
    before = len(person.asked)
    type_in("\n")
    type_in("ls\n")
    assert len(person.asked) <= before + 1


# Keys among what is typed that make no line end, or end more than a line; then a shell runs `make`.
KEYS = [
    *(["ma\x04ke x\n"], ["ma", "\x04", "ke x\n"], ["m\0ake x\n"], ["m\take x\n"]),
    *(["ls '\x1amake x\n"], ["ls '\x1cmake x\n"]),
    *(["ma\x1a\x1cke x\n"], ["make\x0c x\n"], ["m\x13\x11ake x\n"], ["hello\x04\x04make x\n"]),
    *(["ma\\\nke x\n"], ["ma\\\n", "ke x\n"], ["ma\\\r", "ke x\r"], ["ls \\\\\n", "make x\n"]),
    *(["ma\\\nls\x15ke x\n"], ["ma\\\n", "ls\x15ke x\n"], ["ls '\x15make x\n"]),
    *(["ls '\x03make x\n"], ["ls '\x03", "make x\n"], ["ls \\\x03make x\n"], ["ls \\\x15make x\n"]),
]


@pytest.mark.parametrize("typed", KEYS, ids=range(len(KEYS)))
def test_a_line_is_judged_as_a_terminal_gives_it_to_the_shell(session, rules, typed):
    rules(("command", ["make"], "forbid"))
    type_in, _ = session("sh")
    *before, last = [type_in(chars).text for chars in typed]
    assert "a rule forbids make" in last and "a rule" not in "".join(before)


# Keys by which a line comes to say what nobody typed: erased, moved, quoted, from the history.
EDITED = [
    *("mx\x7fake x\n", "mx\x08ake x\n", "make x y\x17\n", "ma\x16ke x\n", "ake x\x01m\n"),
    *("\x12ma\n", "\x1b[A\n", "\x10\n", "\x15\x19\n", "\x0f", "ma\x1b[Cke x\n", "ma\x02\x06ke\n"),
]


@pytest.mark.parametrize("chars", EDITED)
def test_a_line_that_keys_edit_is_asked_about_each_time_where_a_shell_reads_it(session, chars):
    type_in, person = session("exec bash")
    person.answer = "deny"
    for _ in range(2):
        assert not type_in(chars).success
    for question in person.asked:
        assert "keys edit the line" in question.reason and question.scopes == ()
    assert len(person.asked) == 2
    type_in, person = session("cat")
    assert type_in(chars).success and person.asked == []


def test_an_allowing_rule_covers_no_typing(session, rules):
    rules(("command", ["make"], "allow"), ("command", ["git", "push"], "allow"))
    type_in, person = session("sh", policy="untrusted")
    person.answer = "deny"
    assert not type_in("make").success and not type_in("git push --force\n").success
    assert len(person.asked) == 2


def test_what_no_shell_reads_is_no_script(session, rules):
    rules(("command", ["make"], "forbid"))
    type_in, person = session("cat")
    assert type_in("make x\ngit push --force\n").success and person.asked == []


def test_a_file_that_is_forbidden_may_not_be_named(session, rules, tmp_path):
    (tmp_path / "secret.csv").write_text("one", encoding="utf-8")
    rules(("read", "secret.csv", "forbid"))
    for program in ("sh", "cat"):
        type_in, _ = session(program)
        assert "a rule forbids" in type_in("cat secret.csv\n").text
