"""``references``, ``definition``, ``call_graph``: how symbols are related, as servers know it."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.results.output_guard import (
    OutputGuard,
    require,
    require_at_least,
)
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Json
from agent_magics.symbols.servers.project import ServerProvider
from agent_magics.symbols.types import Location, Position, Range, Symbol, SymbolCall
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import FOR_NOTES, Readable, assess_read, count_fitting
from agent_magics.tools.structure.live import find_live
from agent_magics.tools.structure.names import NamedSymbol, find_one
from agent_magics.tools.structure.notebooks import Notebooks, is_notebook, notebooks_with, texts_of
from agent_magics.tools.structure.sources import (
    ListResult,
    SourceFile,
    provider_for,
    read_results,
    read_source,
    server_for,
    withheld_paths,
)

Direction: TypeAlias = Literal["callers", "callees"]

_LONGEST_LINE = 200
_LONGEST_HOVER = 2_000
_MOST_DEPTH = 3
_MOST_CALLS = 200
_SECONDS = 30.0  # of following calls


# -- what is shown --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A place in a source file that the call may read.

    Attributes:
        file: the file.
        location: the range.
    """

    file: SourceFile
    location: Location

    def __str__(self) -> str:
        start = self.location.range.start
        where = f"{self.file.shown}:{self.file.lines(Range(start, start))}"
        return f"{where}: {self.file.source.line(start.line).strip()[:_LONGEST_LINE]}"


@dataclass(frozen=True, repr=False)
class Places(ListResult[CodePlace]):
    """Places in source files, or one page of them.

    Attributes:
        found: the places of this page.
        total: how many there are that may be read.
        withheld: how many are in files that may not be read.
        heading: the first line.
        guard: the requested page.
        more: text below the places, such as a type.
    """

    found: Sequence[CodePlace]
    total: int
    withheld: int
    heading: str
    guard: OutputGuard
    more: str = ""

    def _text(self, budget: int) -> str:
        lines = list(map(str, self.found))
        room = budget - FOR_NOTES - len(self.more)
        count = count_fitting(lines, room)
        notes = [self.more] if self.more else []
        rest = self.guard.overflow(count, self.total, 'detail_level="full" shows pages')
        if rest is not None:
            notes.append(str(rest))
        if self.withheld:
            notes.append(f"{number_of(self.withheld, 'place')} in protected files left out.")
        return "\n".join((self.heading, *lines[:count], *notes))


def _places(
    locations: Sequence[Location],
    heading: str,
    guard: OutputGuard,
    ctx: ToolContext | None,
    known: Mapping[Path, SourceFile],
) -> Places:
    """Return a page of places, of which alone the files are read; for a thread."""
    withheld = withheld_paths({each.path for each in locations} - known.keys(), ctx)
    readable = [each for each in locations if each.path not in withheld]
    page, _ = guard.cap_items(readable)
    files = {**known, **read_results({each.path for each in page} - known.keys(), ctx)}
    shown = [CodePlace(file, each) for each in page if (file := files[each.path]) is not None]
    total = len(readable) - len(page) + len(shown)
    return Places(shown, total, len(locations) - total, heading, guard)


async def _files_of(
    paths: set[Path], known: Mapping[Path, SourceFile], ctx: ToolContext | None
) -> Mapping[Path, SourceFile | None]:
    """Return the files of an answer: those that the call has read, and the others read now."""
    others = paths - known.keys()
    return {**known, **(await run_on_thread(read_results, others, ctx) if others else {})}


# -- the tools ------------------------------------------------------------------------------------


@tool(parallel=True, mutating=False, assess=assess_read)
async def references(
    name_path: str,
    path: str = ".",
    detail_level: Literal["full"] | None = None,
    offset: int = 0,
    limit: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> Places:
    """List where a symbol is used, by meaning and not by name.

    Args:
        name_path: as in symbols.
        path: where it is defined.
        detail_level: "full" for pages of 50.

    Raises:
        RespondToModel: there is no such symbol, or no language server for it.
    """
    guard = OutputGuard(detail_level, offset, limit)
    require(str, name_path=name_path)
    named = await find_one(name_path, path, ctx)
    server = await server_for(named.file, "references", ctx)
    symbol = named.symbol
    notebooks = await notebooks_with(symbol.name, named.file, ctx)
    server = server.given(texts_of(notebooks))
    found = await server.references(symbol.path, symbol.selection.start, declaration=False)

    def show() -> Places:
        shown = [each for each in found if _is_shown(each.path, each.range, notebooks)]
        files = len({each.path for each in shown})
        heading = (
            f"{named} is used in {number_of(len(shown), 'place')} of {number_of(files, 'file')}:"
            if shown
            else f"{named} is used nowhere that {server.name} sees."
        )
        heading = "\n".join(filter(None, (notebooks.note, heading)))
        return _places(shown, heading, guard, ctx, {named.file.path: named.file, **notebooks})

    places: Places = await run_on_thread(show)
    return places


def _is_shown(path: Path, place: Range, notebooks: Notebooks) -> bool:
    """Tell whether a place stands in no notebook, or in a cell of one that was given."""
    if path not in notebooks:  # the server may know of it from an earlier question
        return not is_notebook(path.name)
    return place.end.line >= notebooks[path].cells[0].first


@tool(parallel=True, mutating=False, assess=assess_read)
async def definition(
    name: str,
    path: str = ".",
    line: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> Places:
    """Tell where a name is defined, with type, signature and documentation.

    Args:
        name: in a line of a file; without line a symbol, or a name of the live kernel.

    Raises:
        RespondToModel: the name does not stand there, or there is no language server for it.
    """
    guard = OutputGuard()
    require(str, name=name)
    require_at_least(1, line=line)
    if line is None:
        return await _describe_named(name, path, guard, ctx)
    if is_notebook(path):
        raise RespondToModel(
            f"{path} is a notebook, whose lines are counted in each cell: leave line out, and "
            "definition finds the symbol by its name."
        )
    file = await run_on_thread(read_source, path, ctx)
    position = _position_of(name, line, file)
    server = await server_for(file, "definition", ctx)
    found = await server.definition(file.path, position)
    is_known = f"{name} is defined at:"
    heading = is_known if found.places else f"{server.name} knows no definition of {name}."
    known = {file.path: file}
    places: Places = await run_on_thread(_places, found.places, heading, guard, ctx, known)
    if places.withheld:  # what the server says of it may be taken from there
        return places
    return replace(places, more=found.text.strip()[:_LONGEST_HOVER])


async def _describe_named(
    name: str, path: str, guard: OutputGuard, ctx: ToolContext | None
) -> Places:
    """Return where a symbol is defined, its type from the server, and what the kernel knows of it.

    Raises:
        RespondToModel: neither the files nor the kernel have it, or several files do.
    """
    live = find_live(name, ctx)
    try:
        named = await find_one(name, path, ctx)
    except RespondToModel:
        if live is None:
            raise
        return Places((), 0, 0, f"{name} exists in the live kernel alone.", guard, str(live))
    place = CodePlace(named.file, Location(named.symbol.path, named.symbol.range))
    what = f"{named.symbol.kind} {named.name_path}{named.symbol.detail}"
    server = await provider_for(named.file, ctx)
    if server is not None:
        start = named.symbol.selection.start
        what = (await server.definition(named.symbol.path, start)).text.strip() or what
    more = "\n".join([what[:_LONGEST_HOVER], *([] if live is None else [str(live)])])
    return Places((place,), 1, 0, f"{named} is defined at:", guard, more)


def _position_of(name: str, line: int, file: SourceFile) -> Position:
    """Return where `name` stands in line `line`, from 1.

    Raises:
        RespondToModel: it does not; the sentence names what does.
    """
    text = file.source.line(line - 1)
    last = name.rpartition(".")[2]
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    if match is None or not last:
        words = list(dict.fromkeys(re.findall(r"[^\W\d]\w*", text)))
        there = f"It has: {', '.join(words[:20])}." if words else "It has no names."
        raise RespondToModel(f"{name!r} does not stand in line {line} of {file.shown}. {there}")
    return Position(line - 1, match.end() - len(last))


@tool(parallel=True, mutating=False, assess=assess_read)
async def call_graph(
    name_path: str,
    path: str = ".",
    direction: Direction = "callers",
    depth: int = 1,
    *,
    ctx: ToolContext | None = None,
) -> "CallTree":
    """Show which functions call a function, or which it calls.

    Args:
        name_path: as in symbols.
        path: where it is defined.
        depth: at most 3.

    Raises:
        RespondToModel: there is no such symbol, or no language server for it.
    """
    require(str, name_path=name_path)
    require(Direction, direction=direction)
    require_at_least(1, int, depth=depth)
    if depth > _MOST_DEPTH:
        raise RespondToModel(f"depth is {depth}, but has to be from 1 to {_MOST_DEPTH}.")
    named = await find_one(name_path, path, ctx)
    server = await server_for(named.file, "call_graph", ctx)
    walk = _CallWalk(server, direction, ctx)
    await walk.follow(named.symbol, named.file, 1, depth)
    return CallTree(named, direction, walk.lines, walk.withheld, server.name, walk.note)


@dataclass(frozen=True, repr=False)
class CallTree(Readable):
    """The callers or callees of a function, each step indented.

    Attributes:
        root: the function.
        direction: "callers" or "callees".
        lines: a line for each function.
        withheld: how many are in files that may not be read.
        server: the name of the language server.
        note: what was not looked into; "" for nothing.
    """

    root: NamedSymbol
    direction: Direction
    lines: Sequence[str]
    withheld: int
    server: str
    note: str = ""

    @property
    def _details(self) -> dict[str, Json]:
        return {"total": len(self.lines)}

    def _text(self, budget: int) -> str:
        if not self.lines and not self.withheld:
            nothing = f"{self.root} has no {self.direction} that {self.server} sees."
            return "\n".join(filter(None, (self.note, nothing)))
        count = count_fitting(self.lines, budget - FOR_NOTES)
        notes = [self.note] if self.note else []
        if count < len(self.lines) or len(self.lines) >= _MOST_CALLS:
            notes.append(f"{count} shown, and there are more; use a smaller depth.")
        if self.withheld:
            notes.append(f"{number_of(self.withheld, 'function')} in protected files left out.")
        return "\n".join((f"{self.direction} of {self.root}:", *self.lines[:count], *notes))


class _CallWalk:
    """Follows calls from function to function, each function once."""

    def __init__(
        self, server: ServerProvider, direction: Direction, ctx: ToolContext | None
    ) -> None:
        self._ctx = ctx
        self._server, self._direction = server, direction
        self._seen: set[tuple[Path, Position]] = set()
        self.lines: list[str] = []
        self._deadline = time.monotonic() + _SECONDS
        self.withheld = 0
        self.note = ""

    async def follow(self, symbol: Symbol, file: SourceFile, level: int, depth: int) -> None:
        """Add the calls of a function of a file, and theirs up to `depth`."""
        self._seen.add((symbol.path, symbol.selection.start))
        if time.monotonic() > self._deadline:
            self.note = f"Stopped after {_SECONDS:.0f} s: there may be more."
            return
        # Of a function in a file no callee is in a notebook.
        is_sought = file.cells or self._direction == "callers"
        notebooks = await notebooks_with(symbol.name, file, self._ctx) if is_sought else Notebooks()
        self.note = self.note or notebooks.note
        calls = await self._calls(symbol, notebooks)
        known = {file.path: file, **notebooks}
        files = await _files_of({each.symbol.path for each in calls}, known, self._ctx)
        for call in calls:
            if len(self.lines) >= _MOST_CALLS:
                return
            other = call.symbol
            found = files[other.path]
            if found is None:
                self.withheld += 1
                continue
            again = (other.path, other.selection.start) in self._seen
            line = _call_line(call, found, found if self._direction == "callers" else file)
            self.lines.append(f"{'  ' * level}{line}{' …' * again}")
            if level < depth and not again:
                await self.follow(other, found, level + 1, depth)

    async def _calls(self, symbol: Symbol, notebooks: Notebooks) -> Sequence[SymbolCall]:
        server = self._server.given(texts_of(notebooks))
        ask = server.incoming_calls if self._direction == "callers" else server.outgoing_calls
        calls = await ask(symbol.path, symbol.selection.start)
        return [
            call for call in calls if _is_shown(call.symbol.path, self._place_of(call), notebooks)
        ]

    def _place_of(self, call: SymbolCall) -> Range:
        """Return the place of a call; code outside of functions begins before the first cell."""
        is_caller = self._direction == "callers" and call.ranges
        return call.ranges[0] if is_caller else call.symbol.range


def _call_line(call: SymbolCall, file: SourceFile, caller: SourceFile) -> str:
    """Return a call as a line; its places are in the file of the caller."""
    symbol = call.symbol
    name = f"{symbol.container}/{symbol.name}" if symbol.container else symbol.name
    where = f"{file.shown}:{file.lines(symbol.range)} {name}"
    starts = {each.start.line: Range(each.start, each.start) for each in sorted(call.ranges)}
    lines = [caller.lines(each) for each in starts.values()]
    shown = ", ".join((*lines[:8], *(["…"] if len(lines) > 8 else [])))
    return f"{where} (called in {'' if caller.cells else 'line '}{shown})" if lines else where
