"""``edit_symbol``: replaces, inserts, removes and renames symbols, by way of `apply_patch`.

Law: every change is a call of `apply_patch`, so it is asked about with its diff, recorded and
undone like any patch; a rename in several files is one patch, all or none.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.tool import tool
from agent_magics.patch.diff import unified_diff
from agent_magics.patch.files import TextFile
from agent_magics.patch.match import Edit
from agent_magics.patch.plan import PatchResult, read_patch, touched_paths
from agent_magics.protocol.brief import number_of
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.symbols.edits import apply_edits, insert_at_symbol, remove_symbol, replace_symbol
from agent_magics.symbols.parsing import can_parse, parse_symbols, syntax_error
from agent_magics.symbols.servers.languages import language_of
from agent_magics.symbols.servers.project import ServerProvider
from agent_magics.symbols.types import Position, Symbol, TextEdit
from agent_magics.tools.files.access import assess_read
from agent_magics.tools.files.patch import apply_operations
from agent_magics.tools.structure.names import NamedSymbol, find_one
from agent_magics.tools.structure.notebooks import is_notebook, notebooks_with, texts_of
from agent_magics.tools.structure.sources import (
    SECONDS_BESIDE,
    SourceFile,
    read_results,
    scan,
    server_for,
    until_stopped,
)

Action: TypeAlias = Literal["replace", "insert_before", "insert_after", "remove", "rename"]

_MOST_ASKED = 100  # places with the name of a renamed symbol, of which the server is asked
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
    """Change code by symbol: replace a whole definition, insert beside it, remove it, or rename it
    everywhere in one step.

    Args:
        name_path: the symbol, as in `symbols`.
        action: what to do.
        text: the code, at any indentation, or the new name.
        path: the file or folder where it is defined.

    Returns:
        The files that were changed.

    Raises:
        RespondToModel: there is no such symbol, or the code does not fit; nothing was changed.
    """
    named = await find_one(name_path, path, ctx)
    if named.file.cells:
        raise RespondToModel(f"{named} stands in a notebook: change it by notebook_edit_cell.")
    if action == "rename":
        changes, left, doubts = await _renaming(named, text, ctx)
        await run_on_thread(lambda: [_still_parses(*change) for change in changes])
        places = sum(len(edits) for _, edits in changes)
        what = (
            f"Renamed {named.name_path} to {text} in {number_of(places, 'place')} of "
            f"{number_of(len(changes), 'file')}."
        )
        if left:
            what += f" notebook_edit_cell changes what still has the old name: {'; '.join(left)}."
        what += doubts
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


def _names_in(symbols: Sequence[Symbol]) -> Counter[str]:
    """Return how often each name path stands in a tree, which may be part of another."""
    found = list(symbols)
    for each in found:  # which grows meanwhile
        found += each.children
    return Counter(f"{each.container}/{each.name}".lstrip("/") for each in found)


# -- rename ---------------------------------------------------------------------------------------


async def _renaming(
    named: NamedSymbol, name: str, ctx: ToolContext | None
) -> tuple[list[tuple[SourceFile, Sequence[TextEdit]]], list[str], str]:
    """Return the edits that rename a symbol everywhere, by file, and what they leave.

    That is its places in notebooks, and a sentence on places that the server does not understand.

    Raises:
        RespondToModel: the name does not fit, there is no server, or a file may not be read.
    """
    if not _IDENTIFIER.fullmatch(name) or name == named.symbol.name:
        raise RespondToModel(
            f"{name!r} cannot be the new name of {named.name_path}; give another name in text."
        )
    file = named.file
    await run_on_thread(_check_free, named, name)
    server = await server_for(file, "rename", ctx)
    notebooks = await notebooks_with(named.symbol.name, file, ctx)
    server = server.given(texts_of(notebooks))
    edits = dict(await server.rename(file.path, named.symbol.selection.start, name))
    left = [
        f"{notebook.shown} {notebook.lines(each.range)}"
        for path, notebook in notebooks.items()
        for each in edits.get(path, ())
        if each.range.start.line  # the first is none of a cell
    ]
    edits = {path: each for path, each in edits.items() if not is_notebook(path.name)}
    if not any(edits.values()):
        raise RespondToModel(f"{server.name} renames nothing for {named}.")
    files = await run_on_thread(read_results, edits, ctx)
    if not all(each is not None and each.text for each in files.values()):
        raise RespondToModel(
            f"{named.name_path} was not renamed: it is used in a file that may not be read."
        )
    doubts = await _doubts(named, edits, server, ctx)
    if notebooks.note:
        doubts += f" {notebooks.note}"
    return [(files[path], changes) for path, changes in edits.items()], left, doubts


def _check_free(named: NamedSymbol, name: str) -> None:
    """Refuse a name that another symbol of the same container has: one would replace the other."""
    file, container = named.file, named.symbol.container
    if can_parse(file.path):
        taken = f"{container}/{name}".lstrip("/")
        if taken in _names_in(parse_symbols(file.path, file.text, file.shown)):
            raise RespondToModel(
                f"{named.name_path} was not renamed: {file.shown} already has {taken}; give "
                "another name."
            )


async def _doubts(
    named: NamedSymbol,
    edits: Mapping[Path, Sequence[TextEdit]],
    server: ServerProvider,
    ctx: ToolContext | None,
) -> str:
    """Return a sentence on places with the name of which the server knows no meaning; "" for none.

    These are attributes of objects whose type is not known, and names in texts, such as of
    `getattr` and `patch`.
    """
    name, language = named.symbol.name, language_of(named.file.path)
    renamed = {(path, edit.range.start) for path, each in edits.items() for edit in each}

    def is_same(path: str) -> bool:
        return language_of(Path(path)) == language

    def places() -> Iterator[tuple[SourceFile, Position]]:
        files = scan(".", ctx, name, is_same, SECONDS_BESIDE)
        pattern = re.compile(rf"(?<=[.'\"]){re.escape(name)}\b")
        found = ((f, f.source.position(m.start())) for f in files for m in pattern.finditer(f.text))
        return (place for place in found if (place[0].path, place[1]) not in renamed)

    found, stopped = await run_on_thread(until_stopped, places())
    unknown, asked = dict[str, dict[int, None]](), 0
    deadline = time.monotonic() + SECONDS_BESIDE
    for file, start in found[:_MOST_ASKED]:
        if time.monotonic() > deadline:
            break
        asked += 1
        if not (await server.definition(file.path, start)).places:
            unknown.setdefault(file.shown, {})[start.line + 1] = None
    cut = f" Places with {name} as text were sought for {SECONDS_BESIDE:.0f} s only."
    shown = [f"{file}:{','.join(map(str, lines))}" for file, lines in unknown.items()]
    if asked < len(found):
        shown.append(f"{len(found) - asked} places that it was not asked about")
    unsure = f" {server.name} does not know what {name} is in {', '.join(shown)}: edit the lines "
    return f"{unsure}that mean this." * bool(shown) + cut * bool(stopped)


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
