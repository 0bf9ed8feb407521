"""Stores grants: approvals that hold longer than one call."""

from dataclasses import dataclass
from pathlib import Path

from agent_magics.approval.actions import Action, ActionKind
from agent_magics.approval.glob import matches_glob
from agent_magics.approval.kinds import Kind, is_of_kind
from agent_magics.approval.read_rules import covers_all, globs_at_present


@dataclass(frozen=True, slots=True)
class Grant:
    """A lasting approval.

    Attributes:
        target: what it was given for, as shown to the person.
        scope: "cell" or "session".
        permission, pattern: further calls that it covers; "" if it is bound to the fingerprint
            alone.
        asker: whose calls it covers: "" for the agent's own, else the name of an external client to
            which tools are served.
        globs: where `pattern` is about paths: what it meant when the answer was given.
    """

    fingerprint: str
    target: str
    scope: str
    permission: str = ""
    pattern: str = ""
    asker: str = ""
    globs: tuple[str, ...] = ()


_KINDS = "kinds"
_SCOPES = {
    "approve_for_cell": "cell",
    "approve_for_session": "session",
    # Where no rule can express it, the longest scope that exists.
    "approve_for_project": "session",
    "approve_for_project_exact": "session",
    "approve_kind_for_cell": "cell",
    "approve_kind_for_session": "session",
}


class ApprovalStore:
    """The grants that the person gave to one asker.

    A cell's grants end with its turn; a session's with the session. Grants of one asker do not hold
    for another.

    Args:
        asker: see `Grant`.
        grants: those of all askers, by asker and fingerprint.

    Attributes:
        denied_in_a_row: questions of this turn that were denied since the last approval.
    """

    def __init__(self, asker: str = "", grants: dict[tuple[str, str], Grant] | None = None) -> None:
        self.asker = asker
        self._all: dict[tuple[str, str], Grant] = {} if grants is None else grants
        self.denied_in_a_row = 0

    def of(self, asker: str) -> "ApprovalStore":
        """Return the store of another asker, with the same underlying dict."""
        return ApprovalStore(asker, self._all)

    def grant(self, action: Action, decision: str) -> None:
        """Store a grant for `action`, with the scope of `decision`."""
        scope = _SCOPES.get(decision)
        if scope is None:
            return
        if action.fingerprint:
            self._keep(Grant(action.fingerprint, action.target, scope, asker=self.asker))
        for pattern in action.always:
            key = f"{action.permission}:{pattern}"
            globs = globs_at_present(pattern, Path(action.folder)) if action.folder else ()
            self._keep(Grant(key, pattern, scope, action.permission, pattern, self.asker, globs))

    def grant_kind(self, kind: Kind, decision: str) -> None:
        """Store a grant for a kind of actions, with the scope of `decision`."""
        scope = _SCOPES[decision]
        self._keep(Grant(kind.key, kind.covers, scope, _KINDS, kind.folder, self.asker))

    def kind_grant(self, action: Action) -> Grant | None:
        """Return the grant for a kind that covers an action; None where there is none."""
        of_kinds = (grant for grant in self.grants if grant.permission == _KINDS)
        covering = (g for g in of_kinds if is_of_kind(action, g.fingerprint, g.pattern))
        return next(covering, None)

    def _keep(self, grant: Grant) -> None:
        known = self._all.get((self.asker, grant.fingerprint))
        if known is None or known.scope == "cell":
            self._all[self.asker, grant.fingerprint] = grant

    def allows(self, action: Action) -> bool:
        """Tell whether a grant covers `action`."""
        if action.fingerprint and (self.asker, action.fingerprint) in self._all:
            return True
        if action.kind is not ActionKind.TOOL_REQUEST:
            return False
        return any(_covers(grant, action) for grant in self.grants if grant.pattern)

    def end_cell(self) -> None:
        """Drop the grants with the scope of one cell."""
        self.denied_in_a_row = 0
        for key, grant in tuple(self._all.items()):
            if grant.scope == "cell":
                del self._all[key]

    @property
    def grants(self) -> tuple[Grant, ...]:
        """All grants of this asker, the oldest first."""
        return tuple(grant for grant in self._all.values() if grant.asker == self.asker)

    @property
    def of_all(self) -> tuple[Grant, ...]:
        """All grants of all askers."""
        return tuple(self._all.values())

    @property
    def session_grants(self) -> dict[str, str]:
        """Fingerprint -> target of the grants for this session."""
        return {
            grant.fingerprint: grant.target for grant in self.grants if grant.scope == "session"
        }

    def revoke(self, fingerprint: str) -> bool:
        """Remove a grant; False when there is none."""
        return self._all.pop((self.asker, fingerprint), None) is not None


def _covers(grant: Grant, action: Action) -> bool:
    """Tell whether a grant covers what a tool asks for; it covers paths by where they lead."""
    if grant.permission != action.permission:
        return False
    if action.folder:
        return covers_all(grant.globs, action.target, Path(action.folder))
    return matches_glob(grant.pattern, action.target)
