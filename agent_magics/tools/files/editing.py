"""``write_file`` and ``edit_file``: one file at a time, for models that were not taught patches."""

from collections.abc import Mapping
from typing import Any

from agent_magics.approval.actions import Action
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.patch.plan import Operation, PatchResult
from agent_magics.patch.replacement import read_content, read_replacement
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.patch import apply_operations, assess_operations


def _writing(path: str, content: str) -> tuple[Operation, ...]:
    return (read_content(path, content),)


def _replacing(path: str, old: str, new: str, replace_all: bool = False) -> tuple[Operation, ...]:
    if old == new:
        raise RespondToModel("old and new are the same text: there is nothing to change.")
    operation = read_replacement(path, old, new, everywhere=replace_all, names=("old", "new"))
    return (operation,)


def _assess_writing(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    return assess_operations(_writing(**arguments), arguments, ctx)


def _assess_replacing(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    return assess_operations(_replacing(**arguments), arguments, ctx)


@tool(mutating=True, parallel=False, assess=_assess_writing)
def write_file(path: str, content: str, *, ctx: ToolContext | None = None) -> PatchResult:
    """Write a whole text file: a new one, or in place of what is there, which the answer then says.

    Folders are made as needed. A file that is there keeps its kind of line ends.

    Args:
        path: the file; relative to the workspace, or absolute.
        content: all of its text.

    Returns:
        The file that was written.

    Raises:
        RespondToModel: it cannot be written; nothing was changed.
    """
    return apply_operations(_writing(path, content), ctx)


@tool(mutating=True, parallel=False, assess=_assess_replacing)
def edit_file(
    path: str,
    old: str,
    new: str,
    replace_all: bool = False,
    *,
    ctx: ToolContext | None = None,
) -> PatchResult:
    """Put one text in place of another in a text file.

    Args:
        path: the file; relative to the workspace, or absolute.
        old: the text to replace, exactly as it stands in the file, in one place only; give enough
            of what is around it. Empty for a new file.
        new: what comes in its place.
        replace_all: replace it in all places.

    Returns:
        The file that was changed.

    Raises:
        RespondToModel: `old` is not there, or in several places; nothing was changed.
    """
    return apply_operations(_replacing(path, old, new, replace_all), ctx)
