"""Defines grants for kinds of actions: wider lasting answers than for one exact call.

Commands are excluded, since rules cover them; so is everything dangerous, protected or outside the
workspace, and everything that a guard rail stops.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from agent_magics.approval.actions import Action, ActionKind

_TOOL = "every call of {}, with any arguments"
_SERVER = "every tool of the server {}, as long as it describes all of them as now"
# What is granted together, and how far that goes; {} stands for the action's family.
COVERED = {
    ActionKind.LIVE_PYTHON: (
        "all Python in this kernel; leaving the workspace, starting programs and connecting "
        "still ask"
    ),
    ActionKind.SCRATCH_PYTHON: "all Python in the sandboxed process beside the kernel",
    ActionKind.OWN_TOOL_MUTATING: _TOOL,
    ActionKind.DYNAMIC_TOOL: _TOOL,
    ActionKind.MEMORY: _TOOL,
    ActionKind.MCP_READING: _SERVER,
    ActionKind.MCP_OTHER: _SERVER,
    ActionKind.WRITE_INSIDE: "every change of files below {}",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of actions that one answer covers.

    Attributes:
        key: identifies the kind.
        covers: a description for the person.
        folder: below which files may be changed; "" for other kinds.
    """

    key: str
    covers: str
    folder: str = ""


def kind_of(actions: Sequence[Action]) -> Kind | None:
    """Return the kind that all `actions` of a question belong to; None where none may be
    granted.
    """
    words = {COVERED.get(action.kind, "") for action in actions}
    families = {action.family for action in actions}
    if len(words) != 1 or "" in words | families:
        return None
    (covers,) = words
    if covers is COVERED[ActionKind.WRITE_INSIDE]:
        folder = os.path.commonpath([PurePath(path).parent for path in families])
        return Kind(f"below:{folder}", covers.format(folder), folder)
    if len(families) != 1:
        return None
    (family,) = families
    return Kind(f"{covers}:{family}", covers.format(family.partition("@")[0]))


def is_of_kind(action: Action, key: str, folder: str) -> bool:
    """Tell whether a grant for the kind `key` covers an action."""
    if action.kind is ActionKind.WRITE_INSIDE and folder and action.family:
        return PurePath(folder) in PurePath(action.family).parents
    kind = kind_of([action])
    return kind is not None and kind.key == key
