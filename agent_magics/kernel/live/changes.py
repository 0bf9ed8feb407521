"""Finds what live code added, changed and deleted in the namespace, and restores it.

Rebinding is detected by identity, at no cost. A change inside a value is detected where the code
(or a function that it names) names the variable and the value could be copied; see `saved_values`.
"""

import ast
import re
import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_magics.dispatch.results.values import estimate_size
from agent_magics.kernel.live.saved_values import CopyBudget, Saved, save
from agent_magics.text.brief import first_of

# Bytes that one run may copy, and that all changes which can be put back may hold on to.
COPY_LIMIT = 64 * 1024 * 1024
HELD_LIMIT = 256 * 1024 * 1024
_MOST_CHANGES = 20
_MOST_FUNCTIONS = 100
_SHOWN = 12
WORD = re.compile(r"[^\W\d]\w*")
# Functions that run code which is a string to Python: IPython makes such calls of magics.
_RUNS_TEXT = ("run_cell_magic", "run_line_magic", "exec", "eval")
_ABSENT = object()


@dataclass(slots=True)
class _Was:
    """The value of a name before and after the run.

    Attributes:
        value: `_ABSENT` where there was no such name, and where the value is too large to keep.
        saved: its copy, where it was changed inside.
        since: what tells of later changes in what the run left.
    """

    value: Any
    after: Any
    saved: Saved | None = None
    is_kept: bool = True
    since: Saved | None = None


@dataclass(slots=True)
class RunChange:
    """The changes of one run to the namespace."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    was: dict[str, _Was] = field(default_factory=dict)
    held: int = 0
    turn_id: str = ""

    def __bool__(self) -> bool:
        return bool(self.was)

    def __str__(self) -> str:
        parts = (("added", self.added), ("changed", self.changed), ("deleted", self.deleted))
        return "; ".join(f"{verb} {first_of(names, _SHOWN)}" for verb, names in parts if names)


class Watch:
    """Compares a namespace before and after a run.

    Args:
        namespace: the person's variables.
        code: the code to run, as plain Python where possible.
        hidden: names that are IPython's own.
    """

    def __init__(
        self, namespace: Mapping[str, object], code: str, hidden: Collection[str] = ()
    ) -> None:
        self._namespace = namespace
        self._hidden = frozenset(hidden)
        self._before = self._visible()
        budget = CopyBudget(COPY_LIMIT)
        self._saved: dict[str, Saved] = {}
        self.named = names_in(code, self._before)
        for name in sorted(self.named):
            saved = _saved(self._before[name], budget)
            if saved is not None:
                self._saved[name] = saved

    def _visible(self) -> dict[str, object]:
        hidden = self._hidden
        return {
            name: value
            for name, value in tuple(self._namespace.items())
            if type(name) is str and name[:1] != "_" and name not in hidden
        }

    def end(self, others: Collection[str] = ()) -> RunChange:
        """Return the changes since the start.

        Args:
            others: names that somebody else has used meanwhile, whose changes do not count.
        """
        before, after = (
            {name: value for name, value in each.items() if name not in others}
            for each in (self._before, self._visible())
        )
        added = [name for name in after if name not in before]
        deleted = [name for name in before if name not in after]
        known = self._saved.items()
        inside = {name for name, each in known if name not in others and _is_changed(each)}
        changed = [
            name
            for name, value in after.items()
            if name in before and (value is not before[name] or name in inside)
        ]
        change = RunChange(tuple(added), tuple(changed), tuple(deleted))
        for name in (*added, *changed, *deleted):
            was = _Was(before.get(name, _ABSENT), after.get(name, _ABSENT))
            if name in inside:
                was.saved = self._saved[name]
            _weigh(was, change)
            change.was[name] = was
        _save_results(change)
        return change


def _weigh(was: _Was, change: RunChange) -> None:
    """Keep the previous value, unless it would take too much memory."""
    if was.value is _ABSENT:
        return
    size = estimate_size(was.value)
    if change.held + size > HELD_LIMIT:
        was.value, was.saved, was.is_kept = _ABSENT, None, False
    else:
        change.held += size


def _save_results(change: RunChange) -> None:
    """Save what a run left, so that an undo does not destroy what the person changes in it."""
    limit = max(0, min(COPY_LIMIT, HELD_LIMIT - change.held))
    budget = CopyBudget(limit)
    for was in reversed(change.was.values()):  # what the person had before comes first
        was.since = _saved(was.after, budget, is_compared=True)
    change.held += budget.held


def _saved(value: object, budget: CopyBudget, *, is_compared: bool = False) -> Saved | None:
    try:
        return save(value, budget, is_compared=is_compared)
    except Exception:  # half built, or the library raised: compared by identity alone
        return None


def _is_changed(saved: Saved) -> bool:
    try:
        return saved.is_changed()
    except Exception:  # it can no longer be compared, so it counts as changed
        return True


def names_in(code: str, namespace: Mapping[str, object]) -> set[str]:
    """Return the variables that `code` names, itself or through the functions it names."""
    try:
        named = set(_names_of(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, SystemError):  # gh-106905
        named = set(WORD.findall(code))
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


def _names_of(tree: ast.AST) -> Iterator[str]:
    """Yield the names in parsed code, and the words of the texts that it runs as code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Call) and _called(node) in _RUNS_TEXT:
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield from WORD.findall(each.value)


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


class Changes:
    """The changes of the last runs; the newest is undone first."""

    def __init__(self) -> None:
        self._changes: deque[RunChange] = deque(maxlen=_MOST_CHANGES)

    def add(self, change: RunChange) -> None:
        """Add a run; older ones are dropped where they would hold too much memory."""
        self._changes.append(change)
        while len(self._changes) > 1 and sum(c.held for c in self._changes) > HELD_LIMIT:
            self._changes.popleft()

    def put_back(
        self, namespace: MutableMapping[str, Any]
    ) -> tuple[RunChange, dict[str, str]] | None:
        """Undo the last run's changes.

        Returns:
            The change, and the names that were not restored with the reasons; None for no change.
        """
        if not self._changes:
            return None
        change = self._changes.pop()
        return change, _put_back(change, namespace, self._changes)[0]

    def of_turns(self, turns: Collection[str]) -> list[RunChange]:
        """Return the changes by the code of these turns, the newest first."""
        return [change for change in reversed(self._changes) if change.turn_id in turns]

    def put_back_turns(
        self, turns: Collection[str], namespace: MutableMapping[str, Any]
    ) -> tuple[dict[str, str], list[RunChange]]:
        """Undo the changes by the code of these turns.

        Returns:
            The names not restored, and why; what `put_forth` takes to revert this.
        """
        left: dict[str, str] = {}
        undone = []
        for change in self.of_turns(turns):
            reasons, reverse = _put_back(change, namespace, self._changes)
            left |= reasons
            undone.append(reverse)
        kept = [change for change in self._changes if change.turn_id not in turns]
        self._changes = deque(kept, maxlen=_MOST_CHANGES)
        return left, undone

    def put_forth(
        self, undone: Sequence[RunChange], namespace: MutableMapping[str, object]
    ) -> dict[str, str]:
        """Revert `put_back_turns`, once; return the names that stay as they are, and why."""
        left: dict[str, str] = {}
        for change in reversed(undone):
            reasons, reverse = _put_back(change, namespace, undone)
            left |= reasons
            if reverse:
                self.add(reverse)
        return left


def _put_back(
    change: RunChange, namespace: MutableMapping[str, object], others: Iterable[RunChange]
) -> tuple[dict[str, str], RunChange]:
    """Undo a run's changes.

    Args:
        change: what the run changed.
        namespace: the person's variables.
        others: the changes that may be undone after this one.

    Returns:
        The names that were not restored, with the reasons; the change that was made here.
    """
    reverse = RunChange(turn_id=change.turn_id)
    budget = CopyBudget(COPY_LIMIT)
    # All are asked before one is restored: two names may have the same value.
    reasons = {name: _obstacle(name, was, namespace) for name, was in change.was.items()}
    left = {name: reason for name, reason in reasons.items() if reason}
    for name, was in change.was.items():
        if name in left:
            continue
        there = _Was(namespace.get(name, _ABSENT), was.value)
        if was.saved is not None and there.value is was.value:
            there.saved = _saved(there.value, budget)
            there.is_kept = there.saved is not None
        _weigh(there, reverse)
        if was.value is _ABSENT:
            del namespace[name]
        else:
            there.after = was.value if was.saved is None else was.saved.put_back()
            namespace[name] = there.after
            _follow(name, was.value, there.after, others)
        reverse.was[name] = there
    _save_results(reverse)
    return left, reverse


def _follow(name: str, was: object, now: object, changes: Iterable[RunChange]) -> None:
    """Have a restored copy stand for the original in the other changes of a variable."""
    for change in changes:
        for other, each in change.was.items():
            if other != name:
                if each.after is was and now is not was:
                    each.since = None  # the original keeps what was undone here, as if by a person
                continue
            each.value = now if each.value is was else each.value
            if each.after is was:
                each.after = now
                if each.since is not None:
                    each.since.value = now


def _obstacle(name: str, was: _Was, namespace: Mapping[str, object]) -> str:
    """Return why a name cannot be restored, or ""."""
    if namespace.get(name, _ABSENT) is not was.after:
        return "it has been assigned again since"
    if was.since is not None and _is_changed(was.since):
        return "it has been changed since"
    if not was.is_kept or (was.saved is not None and not was.saved.can_be_put_back):
        return "what it was is too large to be kept"
    return ""
