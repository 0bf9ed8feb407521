"""Actions to a requirement: the strictest wins, and grants hold as long as was said."""

import itertools

import pytest

from agent_magics.approval.actions import (
    Action,
    ActionKind,
    Forbidden,
    NeedsApproval,
    Skip,
    fingerprint_of,
)
from agent_magics.approval.grants import ApprovalStore
from agent_magics.approval.requirement import requirement_of
from agent_magics.protocol.config import ApprovalPolicy

READ = Action(ActionKind.READ, "a.txt", fingerprint="read:a")
WRITE = Action(ActionKind.WRITE_INSIDE, "b.txt", fingerprint="write:b")
OUTSIDE = Action(ActionKind.WRITE_OUTSIDE, "/etc/x", "it is outside", fingerprint="write:/etc/x")
DANGER = Action(ActionKind.COMMAND_DANGEROUS, "rm -rf /", "removes a root")
MORE = Action(
    *(ActionKind.COMMAND_ESCALATED, "make", "asks for more"),
    fingerprint="command:1",
    leaves_sandbox=True,
)

UNTRUSTED, ON_REQUEST, _, NEVER = ApprovalPolicy


def asked(*actions, bypass=False):
    """The requirement to ask about `actions`, for the reasons that they bear."""
    reasons = dict.fromkeys(action.reason or action.kind.value for action in actions)
    return NeedsApproval("; ".join(reasons), None, actions, bypass)


def need(actions, policy=ON_REQUEST, store=None, **options):
    return requirement_of(actions, policy, store or ApprovalStore(), **options)


def granted(*actions, decision="approve_for_session"):
    store = ApprovalStore()
    for action in actions:
        store.grant(action, decision)
    return store


def test_nothing_to_do_needs_nothing():
    assert need([]) == Skip()


@pytest.mark.parametrize("actions", list(itertools.permutations([READ, WRITE, OUTSIDE])))
def test_the_strictest_action_is_the_one_asked_about(actions):
    requirement = need(actions)
    assert requirement == asked(OUTSIDE)
    assert (requirement.target, requirement.reason) == ("/etc/x", "it is outside")


def test_all_that_needs_an_approval_is_named():
    other = Action(ActionKind.WRITE_OUTSIDE, "/etc/y", fingerprint="write:/etc/y")
    requirement = need([other, WRITE, OUTSIDE])
    assert requirement == asked(other, OUTSIDE)
    assert requirement.target == "/etc/y, /etc/x"
    assert requirement.reason == f"{ActionKind.WRITE_OUTSIDE.value}; it is outside"
    assert need([other, OUTSIDE], store=granted(other)) == asked(OUTSIDE)


def test_what_two_actions_share_is_named_once():
    requirement = need([DANGER, Action(ActionKind.COMMAND_ESCALATED, "rm -rf /", "asks for more")])
    assert requirement.target == "rm -rf /"
    assert requirement.reason == "removes a root; asks for more"


@pytest.mark.parametrize(
    "other", [("b", {"x": 1}), ("a", {"x": 2}), ("a", {"x": "1"}), ("a", {"x": 1}, "/z"), ("a",)]
)
def test_a_fingerprint_holds_the_tool_and_all_it_is_bound_to(other):
    assert fingerprint_of("a", {"x": 1, "y": 2}) == fingerprint_of("a", {"y": 2, "x": 1})
    assert fingerprint_of(*other) != fingerprint_of("a", {"x": 1})


def test_refused_says_what_why_and_what_to_do():
    requirement = need([WRITE, DANGER], NEVER)
    assert isinstance(requirement, Forbidden)
    for words in ("dangerous command", "removes a root", "rm -rf /", "'never'", "another way"):
        assert words in requirement.reason
    assert need([DANGER], NEVER, allow_dangerous=True) == Skip()


def test_a_grant_covers_its_own_action_alone():
    assert need([OUTSIDE], store=granted(OUTSIDE)) == Skip()
    assert need([OUTSIDE, MORE], store=granted(OUTSIDE)) == asked(MORE, bypass=True)
    assert need([WRITE], UNTRUSTED, granted(OUTSIDE)) == asked(WRITE)


def test_a_grant_is_no_way_round_never():
    assert isinstance(need([OUTSIDE], NEVER, granted(OUTSIDE)), Forbidden)


def test_only_an_approved_escalation_leaves_the_sandbox():
    assert need([MORE], store=granted(MORE)) == Skip(bypass_sandbox=True)
    assert need([WRITE]) == Skip(bypass_sandbox=False)


def test_what_has_no_fingerprint_is_never_remembered():
    assert isinstance(need([DANGER], store=granted(DANGER)), NeedsApproval)


@pytest.mark.parametrize("decision", ["approve", "deny", "abort"])
def test_an_answer_for_once_is_not_remembered(decision):
    assert not granted(WRITE, decision=decision).allows(WRITE)


def test_a_cell_s_grant_ends_with_the_cell_a_session_s_does_not():
    store = granted(WRITE, decision="approve_for_cell")
    store.grant(OUTSIDE, "approve_for_session")
    assert store.allows(WRITE)
    store.end_cell()
    assert not store.allows(WRITE)
    assert store.allows(OUTSIDE)
    assert store.session_grants == {"write:/etc/x": "/etc/x"}


def test_a_session_s_grant_can_be_taken_back():
    store = granted(OUTSIDE)
    assert store.revoke("write:/etc/x")
    assert not store.revoke("write:/etc/x")
    assert not store.allows(OUTSIDE)
