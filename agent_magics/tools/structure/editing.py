"""``edit_symbol``: replaces, inserts, removes and renames symbols, by way of `apply_patch`.

Law: every change is a call of `apply_patch`, so it is asked about with its diff, recorded and
undone like any patch; a rename in several files is one patch, all or none.
"""

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.patch.diff import unified_diff
from agent_magics.patch.files import TextFile
from agent_magics.patch.match import Edit
from agent_magics.patch.plan import PatchResult, read_patch, touched_paths
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.symbols.bindings import bound_names
from agent_magics.symbols.edits import apply_edits, insert_at_symbol, remove_symbol, replace_symbol
from agent_magics.symbols.parsing import PYTHON, can_parse, parse_symbols, syntax_error
from agent_magics.symbols.python_syntax import NotPython
from agent_magics.symbols.types import Symbol, TextEdit
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import assess_read
from agent_magics.tools.files.patch import apply_operations
from agent_magics.tools.structure.names import NamedSymbol, find_one
from agent_magics.tools.structure.renaming import renaming
from agent_magics.tools.structure.sources import SourceFile

Action: TypeAlias = Literal["replace", "insert_before", "insert_after", "remove", "rename"]

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_DONE = {
    "replace": "Replaced",
    "insert_before": "Inserted before",
    "insert_after": "Inserted after",
    "remove": "Removed",
}


@tool(mutating=True, parallel=False, assess=assess_read)
async def edit_symbol(
    name_path: str,
    action: Action,
    text: str = "",
    path: str = ".",
    *,
    ctx: ToolContext | None = None,
) -> ToolOutput | PatchResult:
    """Replace a whole definition, insert beside it, remove it, or rename it everywhere.

    Args:
        name_path: as in symbols.
        text: the code, at any indentation, or the new name.
        path: where it is defined.

    Returns:
        The files that were changed.

    Raises:
        RespondToModel: there is no such symbol, or the code does not fit; nothing was changed.
    """
    require(str, name_path=name_path, text=text)
    require(Action, action=action)
    named = await find_one(name_path, path, ctx)
    if named.file.cells:
        raise RespondToModel(f"{named} stands in a notebook: change it by notebook_edit_cell.")
    if action == "rename":
        await run_on_thread(_check_free, named, text)
        changes, left, doubts = await renaming(named, text, ctx)
        await run_on_thread(_check_importers, named, text, [file for file, _ in changes])
        await run_on_thread(lambda: [_still_parses(*change) for change in changes])
        places = sum(len(edits) for _, edits in changes)
        if left:
            cells = "; ".join(left)
            doubts = f" notebook_edit_cell changes what still has the old name: {cells}.{doubts}"
        if doubts and ctx is not None:  # the question, which shows the diff alone, comes below it
            ctx.update(title=doubts.strip())
        what = (
            f"Renamed {named.name_path} to {text} in {number_of(places, 'place')} of "
            f"{number_of(len(changes), 'file')}.{doubts}"
        )
    else:
        edit = _edit(named, action, text)
        changes = [(named.file, [edit])]
        if await run_on_thread(_still_parses, named.file, [edit]):
            await run_on_thread(_check_others, named, edit)
        what = f"{_DONE[action]} {named}."
    patch = await run_on_thread(patch_of, changes)
    if not patch:
        raise RespondToModel(f"{named} reads so already: there is nothing to change.")
    if ctx is None:
        result: PatchResult = await run_on_thread(apply_operations, read_patch(patch), None)
        return result
    output = await ctx.call("apply_patch", {"patch": patch})
    if not output.success:
        raise RespondToModel(output.text)
    return ToolOutput(f"{what}\n{output.text}", details={"output": what}, value=output.value)


def _edit(named: NamedSymbol, action: Action, text: str) -> TextEdit:
    source, symbol = named.file.source, named.symbol
    if action == "remove":
        return remove_symbol(source, symbol)
    if action == "replace":
        return replace_symbol(source, symbol, text)
    return insert_at_symbol(source, symbol, text, after=action == "insert_after")


def _still_parses(file: SourceFile, edits: Sequence[TextEdit]) -> bool:
    """Refuse edits after which a file that parsed does not; return whether it is known to."""
    if not can_parse(file.path) or syntax_error(file.path, file.text):
        return False
    if why := syntax_error(file.path, apply_edits(file.source, edits)):
        raise RespondToModel(f"Nothing was changed: {file.shown} would not parse any more ({why}).")
    return True


def _check_others(named: NamedSymbol, edit: TextEdit) -> None:
    """Refuse an edit of one symbol that also removes others."""
    file = named.file
    before = parse_symbols(file.path, file.text, file.shown)
    after = parse_symbols(file.path, apply_edits(file.source, [edit]), file.shown)
    own = _names_in([named.symbol])
    if lost := _names_in(before) - own - _names_in(after):
        raise RespondToModel(
            f"Nothing was changed: with {named} this would also remove {', '.join(lost)} (of the "
            "same statement, perhaps); edit the lines."
        )


def _check_free(named: NamedSymbol, name: str) -> None:
    """Refuse what is no name, or one that the container has: one would hide the other.

    Raises:
        RespondToModel: it cannot be the new name.
    """
    is_word = named.file.path.suffix in PYTHON and keyword.iskeyword(name)
    if not _IDENTIFIER.fullmatch(name) or is_word or name == named.symbol.name:
        raise RespondToModel(
            f"{name!r} cannot be the new name of {named.name_path}; give another name in text."
        )
    _check_free_in(named.file, named, name)


def _check_importers(named: NamedSymbol, name: str, files: Iterable[SourceFile]) -> None:
    """Refuse the name where a module that has imported the symbol binds that name, too."""
    for file in files:
        if not named.symbol.container and named.symbol.name in _paths_in(file, ""):
            _check_free_in(file, named, name)


def _check_free_in(file: SourceFile, named: NamedSymbol, name: str) -> None:
    container = named.symbol.container
    taken = f"{container}/{name}".lstrip("/")
    if taken in _paths_in(file, container):
        raise RespondToModel(
            f"{named.name_path} was not renamed: {file.shown} already has {taken}; give "
            "another name."
        )


def _paths_in(file: SourceFile, container: str) -> Collection[str]:
    """Return the name paths of a file; of a container in Python, with all that it binds."""
    if not can_parse(file.path):
        return ()
    found = _names_in(parse_symbols(file.path, file.text, file.shown))
    if file.path.suffix in PYTHON:
        with suppress(NotPython):  # which tree-sitter has read
            bound = bound_names(file.text, container, file.shown)
            found.update(f"{container}/{each}".lstrip("/") for each in bound)
    return found


def _names_in(symbols: Sequence[Symbol]) -> Counter[str]:
    """Return how often each name path stands in a tree, which may be part of another."""
    found = list(symbols)
    for each in found:  # which grows meanwhile
        found += each.children
    return Counter(f"{each.container}/{each.name}".lstrip("/") for each in found)


# -- edits as a patch -----------------------------------------------------------------------------


def patch_of(changes: Sequence[tuple[SourceFile, Sequence[TextEdit]]]) -> str:
    """Return edits of files as one unified diff; "" where they change nothing.

    Raises:
        RespondToModel: a file's name or its line breaks cannot stand in a patch.
    """
    parts = []
    for file, edits in sorted(changes, key=lambda change: change[0].shown):
        if re.search(r"\r(?!\n)", file.text):
            raise RespondToModel(
                f"{file.shown} has carriage returns alone as line breaks, which no patch keeps; "
                "nothing was changed."
            )
        lines, new = file.text.split("\n"), apply_edits(file.source, edits).split("\n")
        is_ended = not lines[-1]
        text = TextFile(tuple(lines[:-1] if is_ended else lines), is_ended)
        if not new[-1] and (is_ended or len(new) == 1):  # behind the last break there is no line
            new.pop()
        old = [line.removesuffix("\r") for line in text.lines]
        found = _line_edits(old, [line.removesuffix("\r") for line in new])
        if found:
            diff = unified_diff(file.shown, file.shown, text, found, open_end=not is_ended)
            if touched_paths(read_patch(diff)) != (file.shown,):
                raise RespondToModel(f"{file.shown!r} has signs that cannot stand in a patch.")
            parts.append(diff)
    return "".join(parts)


def _line_edits(old: list[str], new: list[str]) -> list[Edit]:
    """Return the edits that make some lines of others."""
    if len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [Edit(number, number + 1, (b,)) for number, (a, b) in pairs if a != b]
    # The last line always is in it where the end changes: it may have no line break.
    first = min(_equal(old, new), max(len(old) - 1, 0), max(len(new) - 1, 0))
    last = _equal(old[first:][::-1], new[first:][::-1])
    return [Edit(first, len(old) - last, tuple(new[first : len(new) - last]))]


def _equal(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines are equal from the first."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))
