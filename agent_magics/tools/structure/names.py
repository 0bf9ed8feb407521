"""Names symbols by paths such as ``Class/method``, and finds the one that a path means."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.files.paths import resolve_path
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import can_parse
from agent_magics.symbols.servers.languages import endings_of
from agent_magics.symbols.types import Symbol
from agent_magics.text.brief import first_of
from agent_magics.tools.files.access import place
from agent_magics.tools.structure.live import find_live
from agent_magics.tools.structure.notebooks import (
    is_notebook,
    notebook_symbols,
    read_notebook,
    read_open_notebook,
)
from agent_magics.tools.structure.sources import (
    SECONDS_BESIDE,
    SourceFile,
    TooLong,
    folder_of,
    parsed_symbols,
    read_results,
    read_source,
    scan,
    symbols_of,
)

_MOST_NAMED = 8  # places listed in an error
_MOST_COMPARED = 20_000  # names among which near ones are sought
_INDEX = re.compile(r"\[\d+\]$")


@dataclass(frozen=True, slots=True)
class NamedSymbol:
    """A symbol of a file, and its name there.

    Attributes:
        file: the file as it was read.
        symbol: the symbol.
        name_path: the names from the outermost symbol to this one, with "/" between; of several
            equal ones in one place the second is ``name[2]``.
        depth: how many symbols are around it.
    """

    file: SourceFile
    symbol: Symbol
    name_path: str
    depth: int = 0

    @property
    def lines(self) -> str:
        """Its first and last line, from 1: "12-40", or "12"."""
        return self.file.lines(self.symbol.range)

    def __str__(self) -> str:
        return f"{self.file.shown}:{self.lines} {self.name_path}"


def named_symbols(
    file: SourceFile, symbols: Sequence[Symbol], above: str = "", depth: int = 0
) -> Iterator[NamedSymbol]:
    """Yield all symbols of a tree with their names, in the order of the file."""
    count = Counter(each.name for each in symbols)
    seen: Counter[str] = Counter()
    for each in symbols:
        seen[each.name] += 1
        name = each.name if count[each.name] == 1 else f"{each.name}[{seen[each.name]}]"
        path = f"{above}/{name}" if above else name
        yield NamedSymbol(file, each, path, depth)
        yield from named_symbols(file, each.children, path, depth + 1)


def parts_of(name_path: str) -> list[str]:
    """Return the names of a path; dots separate as "/" does.

    Raises:
        RespondToModel: the path names nothing.
    """
    parts = [part for part in re.split(r"[/.]", name_path.strip()) if part]
    if not parts:
        raise RespondToModel("name_path is empty; give a name such as Class/method.")
    return parts


def fits(parts: Sequence[str], name_path: str) -> bool:
    """Return whether the last names of `name_path` are `parts`; an index may be left out."""
    names = name_path.split("/")
    if len(parts) > len(names):
        return False
    pairs = zip(parts, names[-len(parts) :], strict=True)
    return all(part in (name, _INDEX.sub("", name)) for part, name in pairs)


async def find_one(name_path: str, path: str, ctx: ToolContext | None) -> NamedSymbol:
    """Return the symbol that a name path means, in a file or below a folder.

    A path of all names from the top of a file goes before one that leaves some out.

    Args:
        name_path: such as ``Class/method``, or its last names.
        path: the file or folder.
        ctx: the call; None for one by hand.

    Raises:
        RespondToModel: there is none (with the nearest names), or there are several.
    """
    found = await find_all(name_path, path, ctx)
    if len(found) > 1:
        first = first_of(list(map(str, found)), _MOST_NAMED, "; ")
        raise RespondToModel(
            f"{name_path} names {len(found)} symbols: {first}. Give the file as path, and "
            "the whole name with its [number]."
        )
    return found[0]


async def find_all(name_path: str, path: str, ctx: ToolContext | None) -> list[NamedSymbol]:
    """Return the symbols that a name path fits, in a file or below a folder; at least one.

    Raises:
        RespondToModel: there is none; the sentence names the nearest.
    """
    parts = parts_of(name_path)
    everything = await _candidates(_INDEX.sub("", parts[-1]), path, ctx)
    found = [each for each in everything if fits(parts, each.name_path)]
    whole = [each for each in found if len(parts) == each.depth + 1]
    if whole or found:
        return whole or found
    raise RespondToModel(await _not_found(name_path, path, everything, ctx))


async def _candidates(name: str, path: str, ctx: ToolContext | None) -> list[NamedSymbol]:
    """Return all symbols of the files at or below `path` in which a name stands."""
    file = await one_file(path, ctx)
    if file is not None:
        return list(named_symbols(file, await tree_of(file, ctx)))
    found: list[NamedSymbol] = await run_on_thread(_parsed, path, name, ctx)
    found += await in_open_notebook(path, ctx)
    if not any(each.symbol.name == name for each in found):
        found += [e for e in await found_by_servers(name, path, ctx) if e.symbol.name == name]
    return found


async def one_file(path: str, ctx: ToolContext | None) -> SourceFile | None:
    """Return the file that a path argument names; None for a folder.

    Raises:
        RespondToModel: it may not be read, or is missing.
    """
    if place(path, ctx)[0].is_dir():
        return None
    if is_notebook(path):
        return await read_notebook(path, ctx)
    return await run_on_thread(read_source, path, ctx)  # type: ignore[no-any-return]


async def tree_of(file: SourceFile, ctx: ToolContext | None) -> tuple[Symbol, ...]:
    """Return the symbols of a file or notebook as a tree."""
    return notebook_symbols(file) if file.cells else await symbols_of(file, ctx)


async def in_open_notebook(path: str, ctx: ToolContext | None) -> list[NamedSymbol]:
    """Return the symbols of the open notebook, where it stands in a folder."""
    file = await read_open_notebook(ctx)
    if file is None or not file.path.is_relative_to(resolve_path(path, folder_of(ctx))):
        return []
    return list(named_symbols(file, notebook_symbols(file)))


def _parsed(path: str, name: str, ctx: ToolContext | None) -> list[NamedSymbol]:
    files = scan(path, ctx, name)
    return [each for file in files for each in named_symbols(file, parsed_symbols(file))]


async def found_by_servers(query: str, path: str, ctx: ToolContext | None) -> list[NamedSymbol]:
    """Return what servers find for a query below `path`, in files that no parser of ours reads.

    Asked only where our parsers found nothing: a server may take seconds for a project.
    """
    servers = None if ctx is None else ctx.turn.symbols()
    if servers is None or not query:
        return []
    below, found = resolve_path(path, folder_of(ctx)), list[Symbol]()
    for provider in await servers.providers():
        endings = endings_of(provider.language)
        if endings and all(can_parse(f"a{ending}") for ending in endings):
            continue
        with suppress(RespondToModel):  # it cannot search, or not now: the others may
            found += await provider.find(query)

    def named() -> list[NamedSymbol]:
        others = [e for e in found if e.path.is_relative_to(below) and not can_parse(e.path)]
        files = read_results({each.path for each in others}, ctx)
        return [_of_server(file, each) for each in others if (file := files[each.path]) is not None]

    symbols: list[NamedSymbol] = await run_on_thread(named)
    return symbols


def _of_server(file: SourceFile, symbol: Symbol) -> NamedSymbol:
    path = f"{symbol.container}/{symbol.name}" if symbol.container else symbol.name
    return NamedSymbol(file, symbol, path, path.count("/"))


async def _not_found(
    name_path: str, path: str, seen: Iterable[NamedSymbol], ctx: ToolContext | None
) -> str:
    where = "" if path in ("", ".") else f" in {path}"
    if find_live(name_path, ctx) is not None:
        alone = "it exists in the live kernel alone, and definition describes it"
        return f"There is no symbol {name_path}{where}: {alone}."
    names = {each.name_path for each in seen}
    is_folder = place(path, ctx)[0].is_dir()
    if is_folder and len(names) < _MOST_COMPARED:  # of files in which it does not even stand
        names |= await run_on_thread(_all_names, path, ctx)
    near = _nearest(name_path, names)
    hint = f" Did you mean {' or '.join(near)}?" if near else " symbols lists what there is."
    return f"There is no symbol {name_path}{where}.{hint}"


def _all_names(path: str, ctx: ToolContext | None) -> set[str]:
    names: set[str] = set()
    with suppress(TooLong):
        for file in scan(path, ctx, seconds=SECONDS_BESIDE):
            names.update(each.name_path for each in named_symbols(file, parsed_symbols(file)))
            if len(names) > _MOST_COMPARED:
                break
    return names


def _nearest(name_path: str, names: Iterable[str]) -> list[str]:
    """Return up to three names that are similar as wholes, else in their last part."""
    wanted = "/".join(parts_of(name_path))
    by_end: dict[str, str] = {}
    for name in sorted(names):
        by_end.setdefault(name.rpartition("/")[2].lower(), name)
    near = difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.7)
    last = wanted.rpartition("/")[2].lower()
    near += [by_end[each] for each in difflib.get_close_matches(last, by_end, n=3, cutoff=0.6)]
    return list(dict.fromkeys(near))[:3]
