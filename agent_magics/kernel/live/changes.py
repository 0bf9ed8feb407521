"""What a run of live code added, changed and deleted in the person's namespace, and the way back.

Rebinding is seen by identity, at no cost. A change inside a value is seen where the code (or a
function that it names) names the variable and the value could be copied; see `saved_values`.
"""

import ast
import re
import types
from collections import deque
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from agent_magics.dispatch.values import estimate_size
from agent_magics.kernel.saved_values import Purse, Saved, save

# Bytes that one run may copy, and that all changes which can be put back may hold on to.
COPY_LIMIT = 64 * 1024 * 1024
HELD_LIMIT = 256 * 1024 * 1024
_MOST_CHANGES = 20
_MOST_FUNCTIONS = 100
_SHOWN = 12
_WORD = re.compile(r"[^\W\d]\w*")
_ABSENT = object()


@dataclass(slots=True)
class _Was:
    """What a name stood for before the run, and after it.

    Attributes:
        value: `_ABSENT` where there was no such name, and where the value is too large to be kept.
        saved: its copy, where it was changed inside.
    """

    value: Any
    after: Any
    saved: Saved | None = None
    is_kept: bool = True


@dataclass(slots=True)
class Change:
    """What one run did to the namespace."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    was: dict[str, _Was] = field(default_factory=dict)
    held: int = 0

    def __bool__(self) -> bool:
        return bool(self.was)

    def __str__(self) -> str:
        parts = (("added", self.added), ("changed", self.changed), ("deleted", self.deleted))
        return "; ".join(f"{word} {_listed(names)}" for word, names in parts if names)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class Watch:
    """Looks at a namespace before a run, and tells after it what has changed.

    Args:
        namespace: the person's variables.
        code: what will run, as plain Python where possible.
        hidden: names that are IPython's own.
    """

    def __init__(
        self, namespace: Mapping[str, Any], code: str, hidden: Collection[str] = ()
    ) -> None:
        self._namespace = namespace
        self._hidden = frozenset(hidden)
        self._before = self._visible()
        purse = Purse(COPY_LIMIT)
        self._saved: dict[str, Saved] = {}
        for name in sorted(names_in(code, self._before)):
            saved = _saved(self._before[name], purse)
            if saved is not None:
                self._saved[name] = saved

    def _visible(self) -> dict[str, Any]:
        hidden = self._hidden
        return {
            name: value
            for name, value in tuple(self._namespace.items())
            if name[:1] != "_" and name not in hidden
        }

    def end(self) -> Change:
        """Return what has changed since."""
        before, after = self._before, self._visible()
        added = [name for name in after if name not in before]
        deleted = [name for name in before if name not in after]
        inside = {name for name, saved in self._saved.items() if _is_changed(saved)}
        changed = [
            name
            for name, value in after.items()
            if name in before and (value is not before[name] or name in inside)
        ]
        change = Change(tuple(added), tuple(changed), tuple(deleted))
        for name in (*added, *changed, *deleted):
            was = _Was(before.get(name, _ABSENT), after.get(name, _ABSENT))
            if name in inside:
                was.saved = self._saved[name]
            self._weigh(was, change)
            change.was[name] = was
        return change

    def _weigh(self, was: _Was, change: Change) -> None:
        """Keep the value that was, unless it would take too much memory."""
        if was.value is _ABSENT:
            return
        size = estimate_size(was.value)
        if change.held + size > HELD_LIMIT:
            was.value, was.saved, was.is_kept = _ABSENT, None, False
        else:
            change.held += size


def _saved(value: Any, purse: Purse) -> Saved | None:
    try:
        return save(value, purse)
    except Exception:  # half built, or a library's own failure: it is seen by identity alone
        return None


def _is_changed(saved: Saved) -> bool:
    try:
        return saved.is_changed()
    except Exception:  # it can no longer be looked at, so it is not what it was
        return True


def names_in(code: str, namespace: Mapping[str, Any]) -> set[str]:
    """Return the variables that `code` names, itself or through the functions it names."""
    try:
        nodes = ast.walk(ast.parse(code))
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError):
        named = set(_WORD.findall(code))
    found = named & namespace.keys()
    open_names, seen = deque(found), 0
    while open_names and seen < _MOST_FUNCTIONS:
        function = namespace[open_names.popleft()]
        if type(function) is not types.FunctionType:
            continue
        seen += 1
        new = (set(_global_names(function.__code__)) & namespace.keys()) - found
        found |= new
        open_names.extend(new)
    return found


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


class Changes:
    """The last runs' changes, the newest to be put back first."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=_MOST_CHANGES)

    def add(self, change: Change) -> None:
        """Remember a run; older ones are forgotten where they would hold too much memory."""
        self._changes.append(change)
        while len(self._changes) > 1 and sum(c.held for c in self._changes) > HELD_LIMIT:
            self._changes.popleft()

    def put_back(self, namespace: MutableMapping[str, Any]) -> tuple[Change, dict[str, str]] | None:
        """Put the last run's changes back.

        Returns:
            The change, and of the names that were left alone why; None where there is no change.
        """
        if not self._changes:
            return None
        change = self._changes.pop()
        left: dict[str, str] = {}
        for name, was in change.was.items():
            reason = _obstacle(name, was, namespace)
            if reason:
                left[name] = reason
            elif was.value is _ABSENT:
                del namespace[name]
            else:
                namespace[name] = was.value if was.saved is None else was.saved.put_back()
        return change, left


def _obstacle(name: str, was: _Was, namespace: Mapping[str, Any]) -> str:
    """Return why a name cannot be put back, or ""."""
    if namespace.get(name, _ABSENT) is not was.after:
        return "it has been assigned again since"
    if not was.is_kept or (was.saved is not None and not was.saved.can_be_put_back):
        return "what it was is too large to be kept"
    return ""
