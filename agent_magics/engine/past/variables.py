"""Records the variables that a conversation knows, and finds those that a restart has removed."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_magics.dispatch.results.values import describe_value
from agent_magics.project.fingerprints import schema_digest

_MOST = 200  # variables of one run
_MOST_CELLS = 500  # the newest, in which the one is looked for that made a variable
_MOST_TOLD = 50
_LOOK = "What is there now holds. Make again what you need, or ask the person to run its cell."
_NO_SIZE = 1 << 62  # bytes below which a description leaves the size out


def outlines(names: Iterable[str], namespace: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return outlines of variables: type, shape, fingerprint of the schema."""
    present = [name for name in names if name in namespace][:_MOST]
    return {name: _outline(namespace[name]) for name in present}


def _outline(value: object) -> dict[str, Any]:
    return {"what": describe_value(value, least=_NO_SIZE), "schema": schema_digest(value)}


@dataclass(frozen=True, slots=True)
class VariableDifference:
    """A variable as a conversation knows it, compared with the namespace.

    Attributes:
        what: what it was.
        now: what is there, "" where nothing is.
        made_by: the cell that made it, "" where that is not known.
    """

    name: str
    what: str
    now: str
    state: Literal["gone", "changed", "same"]
    made_by: str


def compare(
    known: Mapping[str, Mapping[str, Any]], namespace: Mapping[str, Any]
) -> list[VariableDifference]:
    """Compare the variables that a conversation knows with the namespace; the gone come first."""
    found = []
    now = outlines(known, namespace)
    for name, was in known.items():
        here = now.get(name)
        same = here is not None and all(here[key] == was.get(key) for key in here)
        state: Literal["gone", "changed", "same"] = "same" if same else "changed"
        found.append(
            VariableDifference(
                name,
                str(was.get("what", "")),
                "" if here is None else here["what"],
                "gone" if here is None else state,
                str(was.get("made_by", "")),
            )
        )
    order = ("gone", "changed", "same")
    return sorted(found, key=lambda each: order.index(each.state))


def tell_differences(differences: Sequence[VariableDifference]) -> str:
    """Return a message to the model on variables that have changed or are gone; "" for none."""
    moved = [each for each in differences if each.state != "same"]
    if not moved:
        return ""
    lines = [
        f"- {each.name}: gone (it was {each.what}"
        + (f", made by {each.made_by})" if each.made_by else ")")
        if each.state == "gone"
        else f"- {each.name}: now {each.now} (it was {each.what})"
        for each in moved[:_MOST_TOLD]
    ]
    more = len(moved) - _MOST_TOLD
    lines += [f"- and {more} more"] if more > 0 else []
    same = [each.name for each in differences if each.state == "same"][:_MOST_TOLD]
    lines += [f"As you know them: {', '.join(same)}."] if same else []
    return "\n".join(["The kernel was restarted; of the variables that you know:", *lines, _LOOK])


def maker_of(name: str, sources: Sequence[str], ids: Mapping[int, str]) -> str:
    """Return which cell assigned a name last, by its execution count and id.

    Args:
        sources: the cells that ran, by execution count.
        ids: their ids in the notebook, as far as they are known.
    """
    for count in range(len(sources) - 1, max(0, len(sources) - _MOST_CELLS), -1):
        if name in sources[count] and name in _assigned(sources[count]):
            cell = ids.get(count, "")
            return f"[{count}]" + (f" (cell {cell[:8]})" if cell else "")
    return ""


def _assigned(source: str) -> set[str]:
    """Return the names that a cell assigns, imports or defines."""
    try:
        return assigned_in(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, SystemError):  # gh-106905
        return set()


def assigned_in(tree: ast.AST) -> set[str]:
    """Return the names that parsed code assigns, imports or defines anywhere."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names
