"""Reads source files for the symbol tools, under the same rules as `read_file` and `grep_files`."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Generic, TypeVar, overload

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.files.paths import resolve_path, shown_below
from agent_magics.files.search.candidates import SearchedFiles
from agent_magics.files.text import windows
from agent_magics.protocol.errors import RespondToModel, short_message
from agent_magics.protocol.items import Json
from agent_magics.symbols.parsing import can_parse, parse_symbols
from agent_magics.symbols.servers.project import ServerProvider
from agent_magics.symbols.text import SourceText
from agent_magics.symbols.types import Range, Symbol
from agent_magics.tools.files.access import Readable, begin_walk, judge_of, opened

Item = TypeVar("Item")

_MOST_BYTES = 4 << 20  # of a file; larger ones are data or made by a program
_LONG = 50_000  # characters, which take some 20 ms to parse
_SECONDS = 10.0  # of one search in the files below a folder
SECONDS_BESIDE = 5.0  # of one that only completes an answer
_MOST_FILES = 50_000  # of one
_MOST_AT_ONCE = 50  # files whose texts are held

# Sixty files are what a question about a few symbols meets again in the next ones.
_parse = lru_cache(maxsize=60)(parse_symbols)


class TooLong(RespondToModel):
    """A search in the files below a folder reached its limit of time or files."""


class ListResult(Readable, Generic[Item]):
    """A tool's result that is a list, or one page of it, of `total` things."""

    found: Sequence[Item]
    total: int

    def __iter__(self) -> Iterator[Item]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        return self.found[at]

    @property
    def _details(self) -> dict[str, Json]:
        return {"total": self.total}


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A code cell of a notebook, as a part of the notebook's code.

    Attributes:
        label: its name for messages, such as "cell 3 (a1b2)".
        first: the line of the notebook's code at which it begins, from 0.
        text: its text, in which magics are blank.
    """

    label: str
    first: int
    text: str


@dataclass(frozen=True)
class SourceFile:
    """A source file as it was read; a notebook is its code cells, one after the other.

    Attributes:
        path: absolute, without symlinks.
        shown: its name for messages.
        text: its text.
        cells: the code cells of a notebook.
    """

    path: Path
    shown: str
    text: str = field(repr=False)
    cells: tuple[CodeCell, ...] = field(default=(), repr=False)

    @property
    def code_path(self) -> Path:
        """The file, by whose ending its language is known; a notebook is Python."""
        return self.path.with_suffix(".py") if self.cells else self.path

    @cached_property
    def source(self) -> SourceText:
        """The text with its lines."""
        return SourceText(self.text)

    def lines(self, place: Range) -> str:
        """Return the lines of a range, from 1: "12-40", "12", or "cell 3 (a1b2):2-5"."""
        first, last, before = place.start.line + 1, place.end.line + 1, ""
        if self.cells:
            first = max(first, self.cells[0].first + 1)
            last = max(first, last)
            cell = [each for each in self.cells if each.first < first][-1]
            first, last, before = first - cell.first, last - cell.first, f"{cell.label}:"
        return f"{before}{first}" if first == last else f"{before}{first}-{last}"


def folder_of(ctx: ToolContext | None) -> Path:
    """Return the folder of a call, absolute and without symlinks."""
    return resolve_path(".", Path.cwd() if ctx is None else ctx.cwd)


def read_source(path: str, ctx: ToolContext | None) -> SourceFile:
    """Read the file at a path argument.

    Raises:
        RespondToModel: it may not be read, is missing, too large, or no text.
    """
    with opened(path, ctx) as (descriptor, resolved, shown):
        if os.fstat(descriptor).st_size > _MOST_BYTES:
            raise RespondToModel(f"{shown} is larger than 4 MiB: read_file shows parts of it.")
        return SourceFile(resolved, shown, windows.read_text(descriptor, shown).text)


def withheld_paths(paths: Iterable[Path], ctx: ToolContext | None) -> set[Path]:
    """Return the files that a call may not read, by their paths; what is opened is judged again."""
    judge = begin_walk(".", ctx)[2].judge
    return set() if judge is None else {path for path in paths if judge(str(path))}


def _read_result(path: Path, ctx: ToolContext | None) -> SourceFile | None:
    """Read a file that a server names in an answer; None where the call may not read it."""
    if ctx is not None and judge_of(ctx)(str(path)):
        return None
    shown = shown_below(path, folder_of(ctx))
    try:
        return read_source(str(path), ctx)
    except RespondToModel:
        return SourceFile(path, shown, "") if ctx is None or not path.exists() else None


def read_results(paths: Iterable[Path], ctx: ToolContext | None) -> dict[Path, SourceFile | None]:
    """Read each of several files once, as `_read_result` does, and as fast as a search reads."""
    wanted, cwd = sorted(set(paths)), folder_of(ctx)
    files = _files_of(".", ctx, can_parse)
    judge = files.rights.judge
    plain = [os.path.split(path) for path in wanted if not (judge and judge(str(path)))]
    batches = (plain[n : n + _MOST_AT_ONCE] for n in range(0, len(plain), _MOST_AT_ONCE))
    found = {each.path: each for each in _read_all(files, batches, cwd)}
    return {path: found.get(path) or _read_result(path, ctx) for path in wanted}


def scan(
    path: str,
    ctx: ToolContext | None,
    needle: str = "",
    accepts: Callable[[str], bool] = can_parse,
    seconds: float = _SECONDS,
) -> Iterator[SourceFile]:
    """Yield the files below a folder that are accepted by name and whose text holds `needle`.

    Hidden and ignored files and what the call may not read are left out, as in a search.

    Raises:
        TooLong: after so many `seconds`, in which the reader's work with the files counts, or after
            `_MOST_FILES`.
        RespondToModel: the folder may not be read, or the call was interrupted.
    """
    files = _files_of(path, ctx, accepts, seconds)
    yield from _read_all(files, files.batches(), folder_of(ctx), needle.encode())
    if files.timed_out or files.searched > _MOST_FILES:
        limit = f"{seconds:.0f} s" if files.timed_out else f"{_MOST_FILES:,} files"
        raise TooLong(
            f"The search below {path} was stopped after {limit}, before its end. Give a file or a "
            "smaller folder as path."
        )


def until_stopped(found: Iterator[Item]) -> tuple[list[Item], str]:
    """Return what was found before a search was stopped, and a sentence on that; "" at its end."""
    items: list[Item] = []
    try:
        items.extend(found)
    except TooLong as stopped:
        return items, short_message(stopped)
    return items, ""


def _read_all(
    files: SearchedFiles, batches: Iterable[list[tuple[str, str]]], cwd: Path, sought: bytes = b""
) -> Iterator[SourceFile]:
    """Yield the files of batches that hold `sought`; those of another encoding are left out."""
    for batch in batches:
        if files.searched > _MOST_FILES:
            return
        with files.opened(batch) as opened:  # other searches wait meanwhile
            texts = [(name, os.read(each, _MOST_BYTES + 1)) for each, name in opened.items()]
        for name, data in texts:
            if files.rights.is_cancelled():
                raise RespondToModel("The search for symbols was interrupted.")
            if files.is_late():
                return
            if sought in data and len(data) <= _MOST_BYTES:
                with suppress(UnicodeDecodeError):
                    path = Path(name)
                    yield SourceFile(path, shown_below(path, cwd), data.decode("utf-8-sig"))


def _files_of(
    path: str,
    ctx: ToolContext | None,
    accepts: Callable[[str], bool],
    seconds: float = _SECONDS,
) -> SearchedFiles:
    root, _, rights = begin_walk(path, ctx)
    deadline = time.monotonic() + seconds
    roots = () if ctx is None else ctx.config.roots
    return SearchedFiles(root, accepts, rights, deadline, roots, most_at_once=_MOST_AT_ONCE)


async def provider_for(file: SourceFile, ctx: ToolContext | None) -> ServerProvider | None:
    """Return the language server for a file or notebook; None where there is none."""
    servers = None if ctx is None else ctx.turn.symbols()
    provider = None if servers is None else await servers.provider_for(file.code_path)
    if provider is None or not file.cells:
        return provider
    return provider.given({file.path: file.text})


async def server_for(file: SourceFile, what: str, ctx: ToolContext | None) -> ServerProvider:
    """Return the language server for a file or notebook.

    Args:
        file: the file.
        what: what is not known without a server, for the error.
        ctx: the call.

    Raises:
        RespondToModel: there is none.
    """
    provider = await provider_for(file, ctx)
    if provider is None:
        servers = None if ctx is None else ctx.turn.symbols()
        by_hand = "A call by hand has none; one by an agent has: await agent.call(NAME, {...})."
        missing = by_hand if servers is None else servers.missing(file.code_path)
        raise RespondToModel(
            f"{what} needs a language server, and none is set up for {file.shown}. {missing} "
            "Without one there are symbols and their edits, except rename; grep_files finds a name "
            "as text."
        )
    return provider


async def symbols_of(file: SourceFile, ctx: ToolContext | None) -> tuple[Symbol, ...]:
    """Return the symbols of a file as a tree: by our own parsers, else by its language server.

    Raises:
        RespondToModel: it cannot be parsed, or nothing here knows its language.
    """
    if can_parse(file.path):
        parts = (file.path, file.text, file.shown)
        is_long = len(file.text) > _LONG
        return await run_on_thread(_parse, *parts) if is_long else _parse(*parts)
    provider = await provider_for(file, ctx)
    if provider is None:
        raise RespondToModel(
            f"The symbols of {file.shown} are not known: there is neither a language server nor a "
            "grammar for it. read_file and grep_files read it as text."
        )
    return await provider.document_symbols(file.path)


def parsed_symbols(file: SourceFile) -> tuple[Symbol, ...]:
    """Return the symbols of a file that `can_parse`; none where it does not parse."""
    try:
        return _parse(file.path, file.text, file.shown)
    except RespondToModel:
        return ()
