"""What the person allowed for longer than one call."""

from dataclasses import dataclass

from agent_magics.dispatch.actions import Action, ActionKind
from agent_magics.dispatch.glob import matches_glob


@dataclass(frozen=True, slots=True)
class Grant:
    """A lasting answer.

    Attributes:
        target: what it was given for, as the person read it.
        scope: "cell" or "session".
        permission, pattern: what else it covers; "" where it is bound to the fingerprint alone.
    """

    fingerprint: str
    target: str
    scope: str
    permission: str = ""
    pattern: str = ""


_SCOPES = {
    "approve_for_cell": "cell",
    "approve_for_session": "session",
    # Where no rule can say it, the longest answer that there is.
    "approve_for_project": "session",
}


class ApprovalStore:
    """What the person granted for longer than one call: fingerprints, by how long they hold.

    A cell's grants end with its turn; a session's with the session.

    Attributes:
        denied_in_a_row: questions of this turn that were denied since the last approval.
    """

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self.denied_in_a_row = 0

    def grant(self, action: Action, decision: str) -> None:
        """Remember `action` as allowed, for as long as `decision` says."""
        scope = _SCOPES.get(decision)
        if scope is None:
            return
        if action.fingerprint:
            self._keep(Grant(action.fingerprint, action.target, scope))
        for pattern in action.always:
            key = f"{action.permission}:{pattern}"
            self._keep(Grant(key, pattern, scope, action.permission, pattern))

    def _keep(self, grant: Grant) -> None:
        known = self._grants.get(grant.fingerprint)
        if known is None or known.scope == "cell":
            self._grants[grant.fingerprint] = grant

    def allows(self, action: Action) -> bool:
        """Tell whether an equal action was granted and the grant still holds."""
        if action.fingerprint and action.fingerprint in self._grants:
            return True
        if action.kind is not ActionKind.TOOL_REQUEST:
            return False
        return any(
            grant.permission == action.permission and matches_glob(grant.pattern, action.target)
            for grant in self._grants.values()
            if grant.pattern
        )

    def end_cell(self) -> None:
        """Drop the grants that were for one cell."""
        self.denied_in_a_row = 0
        held = self._grants.items()
        self._grants = {key: grant for key, grant in held if grant.scope != "cell"}

    @property
    def grants(self) -> tuple[Grant, ...]:
        """All that holds, the oldest first."""
        return tuple(self._grants.values())

    @property
    def session_grants(self) -> dict[str, str]:
        """Fingerprint -> target of what is allowed for this session."""
        return {
            key: grant.target for key, grant in self._grants.items() if grant.scope == "session"
        }

    def revoke(self, fingerprint: str) -> bool:
        """Take a grant back; False when there is none."""
        return self._grants.pop(fingerprint, None) is not None
