"""``symbols``: the classes, functions and variables of a file, a folder, or with a name."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.results.output_guard import (
    OutputGuard,
    require,
    require_at_least,
)
from agent_magics.dispatch.tool import tool
from agent_magics.tools.files.access import FOR_NOTES, assess_read, count_fitting
from agent_magics.tools.structure.live import OF_IPYTHON, LiveName, find_live, namespace_of
from agent_magics.tools.structure.names import (
    NamedSymbol,
    find_all,
    found_by_servers,
    in_open_notebook,
    named_symbols,
    one_file,
    tree_of,
)
from agent_magics.tools.structure.sources import ListResult, parsed_symbols, scan, until_stopped

_MOST_LIVE = 20  # names of the live kernel


@tool(parallel=True, mutating=False, assess=assess_read)
async def symbols(
    path: str = ".",
    name_path: str = "",
    query: str = "",
    depth: int | None = None,
    detail_level: Literal["full"] | None = None,
    offset: int = 0,
    limit: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "Symbols":
    """List classes, functions and variables of code, with lines: of a file or folder, the one of
    name_path, or all whose name holds query.

    Args:
        name_path: such as Class/method, or its last names; of equal ones name[2] is the second.
        depth: levels inside.
        detail_level: "full" shows bodies, in pages.

    Returns:
        Called by hand: a list of `NamedSymbol` that prints well.

    Raises:
        RespondToModel: there is no such file or symbol, or it cannot be parsed.
    """
    guard = OutputGuard(detail_level, offset, limit)
    require_at_least(0, depth=depth)
    require(str, name_path=name_path, query=query)
    note = ""
    if name_path:
        chosen = await find_all(name_path, path, ctx)
        found = [inner for each in chosen for inner in _with_inner(each, _depth(guard, depth, 1))]
    elif query:
        found, note = await _with_name(path, query, ctx)
    else:
        found, note = await _below(path, guard, depth, ctx)
    page, _ = guard.cap_items(found)
    live = live_matches(query, found, ctx) if query else ()
    return Symbols(page, len(found), name_path or query or path, guard, live, note)


def live_matches(
    query: str, found: Sequence[NamedSymbol], ctx: ToolContext | None
) -> tuple[LiveName, ...]:
    """Return the names that hold `query` and exist in the live kernel alone."""
    static = {each.name_path for each in found}
    present = [name for name in namespace_of(ctx) if type(name) is str and name[:1] != "_"]
    names = sorted(name for name in present if name not in static and name not in OF_IPYTHON)
    fitting = [name for name in names if query.lower() in name.lower()]
    described = (find_live(name, ctx) for name in fitting[:_MOST_LIVE])
    return tuple(each for each in described if each is not None)


def _depth(guard: OutputGuard, depth: int | None, otherwise: int) -> int:
    """Return the levels to show; a body shows what is inside."""
    return 0 if guard.should_include_body() else otherwise if depth is None else depth


def _with_inner(named: NamedSymbol, depth: int) -> Iterator[NamedSymbol]:
    yield named
    for each in named_symbols(named.file, named.symbol.children, named.name_path, named.depth + 1):
        if each.depth - named.depth <= depth:
            yield each


async def _with_name(
    path: str, query: str, ctx: ToolContext | None
) -> tuple[list[NamedSymbol], str]:
    """Return the symbols whose name holds `query`, and a sentence where there may be more."""

    def fitting(found: Iterable[NamedSymbol]) -> Iterator[NamedSymbol]:
        return (each for each in found if query.lower() in each.symbol.name.lower())

    file = await one_file(path, ctx)
    if file is not None:
        return list(fitting(named_symbols(file, await tree_of(file, ctx)))), ""
    found, note = await run_on_thread(until_stopped, fitting(_with_text(path, query, ctx)))
    found += fitting(await in_open_notebook(path, ctx))
    if not (found or note):
        found = list(fitting(await found_by_servers(query, path, ctx)))
    return found, note


def _with_text(folder: str, text: str, ctx: ToolContext | None) -> Iterator[NamedSymbol]:
    for file in scan(folder, ctx):
        if text.lower() in file.text.lower():
            yield from named_symbols(file, parsed_symbols(file))


async def _below(
    path: str, guard: OutputGuard, depth: int | None, ctx: ToolContext | None
) -> tuple[list[NamedSymbol], str]:
    file, note = await one_file(path, ctx), ""
    levels = _depth(guard, depth, 0 if file is None else 1)
    if file is not None:  # whatever is wrong with it is reported
        trees = [(file, await tree_of(file, ctx))]
    else:
        parsed = ((each, parsed_symbols(each)) for each in scan(path, ctx))
        trees, note = await run_on_thread(until_stopped, parsed)
    found = [
        each for file, tree in trees for each in named_symbols(file, tree) if each.depth <= levels
    ]
    return found, note


@dataclass(frozen=True, repr=False)
class Symbols(ListResult[NamedSymbol]):
    """Symbols of source files, or one page of them.

    Attributes:
        found: the symbols of this page.
        total: how many there are.
        wanted: what was asked for.
        guard: the requested page.
        live: names that exist in the live kernel alone.
        note: a sentence where the search was stopped; "" where it was not.
    """

    found: Sequence[NamedSymbol]
    total: int
    wanted: str
    guard: OutputGuard
    live: tuple[LiveName, ...] = ()
    note: str = ""

    def _text(self, budget: int) -> str:
        live = [str(each).partition("\n")[0] for each in self.live]
        notes = [self.note] if self.note else []
        if not self.total:
            return "\n".join([*(live or [f"No symbols for {self.wanted}."]), *notes])
        blocks = list(self._blocks())
        count = count_fitting(blocks, budget - FOR_NOTES)
        if count == 1 and len(blocks[0]) > budget - FOR_NOTES:
            cut = blocks[0][: budget - FOR_NOTES].rpartition("\n")[0]
            blocks[0] = f"{cut}\n… cut: read_file shows the rest"
        rest = self.guard.overflow(count, self.total, "narrow path or query for others")
        if rest is not None:
            notes.append(str(rest))
        return "\n".join((*blocks[:count], *live, *notes))

    def _blocks(self) -> Iterator[str]:
        """Yield the text of each symbol, the file's name above the first of each file."""
        file, shown = "", set[str]()
        for each in self.found:
            head = ""
            if each.file.shown != file:
                file, shown = each.file.shown, set()
                head = f"{file}\n"
            shown.add(each.name_path)
            above, _, own = each.name_path.rpartition("/")
            # Below the symbol around it the own name is enough.
            indent, name = ("  " * each.depth, own) if above in shown else ("", each.name_path)
            line = f"{head}  {indent}{each.lines} {each.symbol.kind} {name}{each.symbol.detail}"
            yield f"{line}\n{_body(each)}" if self.guard.should_include_body() else line


def _body(named: NamedSymbol) -> str:
    first, last = named.symbol.range.start.line, named.symbol.range.end.line
    return "\n".join(f"{n + 1:4}| {named.file.source.line(n)}" for n in range(first, last + 1))
