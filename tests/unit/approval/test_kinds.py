"""Grants for kinds: what each covers, and what none ever does."""

import itertools

import pytest

from agent_magics.approval.actions import Action, ActionKind, Forbidden, NeedsApproval, Skip
from agent_magics.approval.grants import ApprovalStore
from agent_magics.approval.kinds import COVERED, kind_of
from agent_magics.approval.requirement import Verdict, decide, requirement_of
from agent_magics.protocol.config import ApprovalPolicy

SCOPES = ("approve_kind_for_cell", "approve_kind_for_session")
FAMILY = {ActionKind.WRITE_INSIDE: "/srv/data/a.csv"}


def action(kind: ActionKind, family: str | None = None, target: str = "t") -> Action:
    family = FAMILY.get(kind, "one") if family is None else family
    return Action(kind, target, fingerprint=f"{kind}:{target}", family=family)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("policy", ApprovalPolicy)
@pytest.mark.parametrize("kind", ActionKind)
def test_each_kind_under_each_policy(kind: ActionKind, policy: ApprovalPolicy, scope: str) -> None:
    asked, other = action(kind), action(kind, target="another")
    store = ApprovalStore()
    granted = kind_of([asked])
    assert (granted is not None) == (kind in COVERED)
    if granted is not None:
        store.grant_kind(granted, scope)
    expected = decide(kind, policy)
    found = requirement_of([other], policy, store)
    if expected is Verdict.REFUSE:
        assert isinstance(found, Forbidden), "a grant never turns a refusal into a yes"
    elif expected is Verdict.ASK and kind not in COVERED:
        assert isinstance(found, NeedsApproval)
    else:
        assert isinstance(found, Skip)
        by = "grant" if expected is Verdict.ASK else "policy"
        assert found.by == by
        assert found.basis == (granted.covers if granted and by == "grant" else str(policy))


@pytest.mark.parametrize("kind", COVERED)
def test_what_bears_no_family_is_never_covered(kind: ActionKind) -> None:
    assert kind_of([action(kind, "")]) is None
    granted = kind_of([action(kind)])
    assert granted is not None
    store = ApprovalStore()
    store.grant_kind(granted, "approve_kind_for_session")
    assert store.kind_grant(action(kind, "")) is None


def test_no_command_nothing_protected_and_no_guard_rail_has_a_kind() -> None:
    never = [kind for kind in ActionKind if kind.name.startswith("COMMAND")]
    never += [ActionKind.WRITE_OUTSIDE, ActionKind.READ_DENIED, ActionKind.GUARD_RAIL]
    never += [ActionKind.MCP_ASKING, ActionKind.TOOL_REQUEST]
    assert not COVERED.keys() & set(never)


@pytest.mark.parametrize(("granted", "asked"), [*itertools.product(COVERED, repeat=2)])
def test_a_grant_covers_its_own_kind_alone(granted: ActionKind, asked: ActionKind) -> None:
    store = ApprovalStore()
    kind = kind_of([action(granted)])
    assert kind is not None
    store.grant_kind(kind, "approve_kind_for_session")
    covered = store.kind_grant(action(asked)) is not None
    assert covered == (COVERED[granted] == COVERED[asked])
    elsewhere = "/srv/other/b.csv" if asked is ActionKind.WRITE_INSIDE else "other"
    if asked is not ActionKind.LIVE_PYTHON:
        assert store.kind_grant(action(asked, elsewhere)) is None


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("/srv/data/b.csv", True),
        ("/srv/data/deep/b.csv", True),
        ("/srv/data", False),
        ("/srv/database/b.csv", False),
        ("/srv/b.csv", False),
    ],
)
def test_edits_below_a_folder(path: str, covered: bool) -> None:
    kind = kind_of([action(ActionKind.WRITE_INSIDE), action(ActionKind.WRITE_INSIDE, path)])
    store = ApprovalStore()
    asked = kind_of([action(ActionKind.WRITE_INSIDE)])
    assert kind is not None
    assert asked is not None
    assert asked.covers == "every change of files below /srv/data"
    store.grant_kind(asked, "approve_kind_for_session")
    found = store.kind_grant(action(ActionKind.WRITE_INSIDE, path))
    assert (found is not None) == covered


def test_a_server_that_describes_its_tools_otherwise_is_asked_about_again() -> None:
    store = ApprovalStore()
    kind = kind_of([action(ActionKind.MCP_OTHER, "github@1234")])
    assert kind is not None
    assert kind.covers.startswith("every tool of the server github, as long as")
    store.grant_kind(kind, "approve_kind_for_session")
    assert store.kind_grant(action(ActionKind.MCP_READING, "github@1234"))
    assert store.kind_grant(action(ActionKind.MCP_OTHER, "github@5678")) is None
    assert store.kind_grant(action(ActionKind.MCP_OTHER, "gitlab@1234")) is None


def test_one_question_about_several_kinds_offers_none() -> None:
    assert kind_of([action(ActionKind.LIVE_PYTHON), action(ActionKind.COMMAND_SANDBOXED)]) is None
    assert kind_of([action(ActionKind.LIVE_PYTHON), action(ActionKind.NOTEBOOK_CHANGE)]) is None


def test_another_asker_and_a_cell_that_has_ended_have_nothing() -> None:
    store = ApprovalStore()
    kind = kind_of([action(ActionKind.LIVE_PYTHON)])
    assert kind is not None
    store.grant_kind(kind, "approve_kind_for_cell")
    assert store.of("client").kind_grant(action(ActionKind.LIVE_PYTHON)) is None
    assert store.kind_grant(action(ActionKind.LIVE_PYTHON))
    store.end_cell()
    assert store.kind_grant(action(ActionKind.LIVE_PYTHON)) is None
