"""Computes what a rename changes: what the server says, and texts that can mean nothing else.

Where neither is known, such as in attributes of objects without a type, the lines are named.
"""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import PYTHON
from agent_magics.symbols.servers.languages import language_of
from agent_magics.symbols.servers.project import ServerProvider
from agent_magics.symbols.types import Location, Position, Range, TextEdit
from agent_magics.tools.structure.names import NamedSymbol, named_symbols
from agent_magics.tools.structure.notebooks import is_notebook, notebooks_with, texts_of
from agent_magics.tools.structure.sources import (
    SECONDS_BESIDE,
    SourceFile,
    parsed_symbols,
    read_results,
    scan,
    server_for,
    until_stopped,
)

_MOST_ASKED = 100  # places with the name, of which the server is asked
_LONGEST_BEFORE = 300  # characters of a text before the name
_WORD = re.compile(r"(\w+)")
_DOTTED = re.compile(  # "package.module. or patch("module. (alone, "module.x" may be a file)
    r"(\b(?:patch|patch\.dict|setattr|delattr|import_string|resolve_name)\(\s*)?"
    r"['\"]((?:[^\W\d]\w*\.)+)$"
)
_OF_OWNER = re.compile(  # getattr(package.module, "
    r"\b(?:[gs]etattr|hasattr|delattr|patch\.object)\(\s*((?:[^\W\d]\w*\.)*[^\W\d]\w*)\s*,\s*['\"]$"
)
_ENDS = re.compile(r"['\"]|\.\w")

_Edits = Mapping[Path, Sequence[TextEdit]]


async def renaming(
    named: NamedSymbol, name: str, ctx: ToolContext | None
) -> tuple[list[tuple[SourceFile, Sequence[TextEdit]]], list[str], str]:
    """Return the edits that rename a symbol everywhere, by file, and what they leave.

    That is its places in notebooks, and a sentence on places that the server does not understand.

    Raises:
        RespondToModel: there is no server, or a file may not be read.
    """
    file = named.file
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
    edits = {path: of_names(files[path], each) for path, each in edits.items()}
    texts = _Texts(named, server, edits, files)
    doubts = await texts.look(ctx)
    if notebooks.note:
        doubts += f" {notebooks.note}"
    files.update(texts.files)
    for path, places in texts.places.items():
        edits[path] = (*edits.get(path, ()), *(TextEdit(each, name) for each in places))
    return [(files[path], changes) for path, changes in edits.items()], left, doubts


def of_names(file: SourceFile, edits: Sequence[TextEdit]) -> Sequence[TextEdit]:
    """Return edits that replace names alone, where a server replaces lines or a whole file."""
    return [part for each in edits for part in _parts(file, each)]


def _parts(file: SourceFile, edit: TextEdit) -> Iterator[TextEdit]:
    start, old = file.source.offset(edit.range.start), file.source.part(edit.range)
    before, after = _WORD.split(old), _WORD.split(edit.text)
    if [gap.split() for gap in before[::2]] != [gap.split() for gap in after[::2]]:
        yield edit
        return
    for match, new in zip(_WORD.finditer(old), after[1::2], strict=True):
        if match[0] != new:
            yield TextEdit(file.source.range(start + match.start(), start + match.end()), new)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place with the name, behind a dot or a quote, that the server does not rename.

    Attributes:
        file: its file.
        range: the name.
        path: the dotted names in front of it, where it ends a text that begins with these and
            that can be no file's name.
        owner: where the last name of the object stands that has an attribute called so.
    """

    file: SourceFile
    range: Range
    path: str = ""
    owner: Position | None = None


class _Texts:
    """The places of a renamed symbol that the server leaves out.

    Args:
        named: the symbol.
        server: is asked what stands there.
        edits: the server's, by file.
        files: these files.

    Attributes:
        places: those that mean the symbol, by file.
        files: these files.
    """

    def __init__(
        self,
        named: NamedSymbol,
        server: ServerProvider,
        edits: _Edits,
        files: Mapping[Path, SourceFile | None],
    ) -> None:
        self._named, self._server = named, server
        self._name = named.symbol.name
        self._edits = edits
        self._owners = {Location(path, _START) for path in _binding(named, edits, files)}
        self._paths = {module_of(each.path) for each in self._owners}
        if named.symbol.container:
            self._owners = set(_class_of(named))
            inside = named.symbol.container.replace("/", ".")
            self._paths = {f"{module_of(named.file.path)}.{inside}"}
        self.places: dict[Path, list[Range]] = {}
        self.files: dict[Path, SourceFile] = {}

    async def look(self, ctx: ToolContext | None) -> str:
        """Find the places; return a sentence on those of which the meaning is not known."""
        found, stopped = await run_on_thread(until_stopped, self._find(ctx))
        certain = [each for each in found if each.path in self._paths]
        others = [each for each in found if each.path not in self._paths]
        unknown, asked = dict[str, dict[int, None]](), 0
        deadline = time.monotonic() + SECONDS_BESIDE
        for each in others[:_MOST_ASKED]:
            if time.monotonic() > deadline:
                break
            asked += 1
            if await self._means(each):
                certain.append(each)
            elif not await self._defined(each.file, each.range.start):
                unknown.setdefault(each.file.shown, {})[each.range.start.line + 1] = None
        for each in certain:
            self.files[each.file.path] = each.file
            self.places.setdefault(each.file.path, []).append(each.range)
        doubts = self._doubts(unknown, len(others) - asked)
        if stopped:
            doubts += (
                f" Places with {self._name} as text were sought for {SECONDS_BESIDE:.0f} s only."
            )
        return doubts

    def _doubts(self, unknown: Mapping[str, Collection[int]], not_asked: int) -> str:
        """Return a sentence on lines that may mean the symbol, by file; "" where there are none."""
        shown = [f"{file}:{','.join(map(str, lines))}" for file, lines in unknown.items()]
        if not_asked:
            shown.append(f"{not_asked} places that it was not asked about")
        if not shown:
            return ""
        unsure = f" {self._server.name} does not know what {self._name} is in {', '.join(shown)}"
        return f"{unsure}: edit the lines that mean this."

    async def _means(self, place: _Place) -> bool:
        """Tell whether the object whose attribute a text names is the symbol's module or class."""
        if place.owner is None:
            return False
        found = await self._defined(place.file, place.owner)
        return bool(found) and all(
            Location(each.path, Range(each.range.start, each.range.start)) in self._owners
            for each in found
        )

    async def _defined(self, file: SourceFile, place: Position) -> Sequence[Location]:
        return (await self._server.definition(file.path, place)).places

    def _find(self, ctx: ToolContext | None) -> Iterator[_Place]:
        language = language_of(self._named.file.path)
        is_class = self._named.symbol.kind == "class"
        pattern = re.compile(rf"(?<=[.'\"]){re.escape(self._name)}\b")
        for file in scan(
            ".", ctx, self._name, lambda each: language_of(Path(each)) == language, SECONDS_BESIDE
        ):
            for match in pattern.finditer(file.text):
                place = file.source.range(match.start(), match.end())
                if not self._is_renamed(file.path, place.start):
                    yield (
                        _described(file, place, match, is_class=is_class)
                        if language == "python"
                        else _Place(file, place)
                    )

    def _is_renamed(self, path: Path, place: Position) -> bool:
        ranges = (edit.range for edit in self._edits.get(path, ()))
        return any(each.start <= place < each.end for each in ranges)


_START = Range(Position(0, 0), Position(0, 0))  # where servers say that a module is


def _described(file: SourceFile, place: Range, match: re.Match[str], *, is_class: bool) -> _Place:
    begins = max(match.start() - _LONGEST_BEFORE, 0)
    before = file.text[begins : match.start()]
    if _ENDS.match(file.text, match.end()):
        if dotted := _DOTTED.search(before):
            path = dotted[2][:-1]
            is_whole = file.text[match.end()] != "."  # else what follows may end a file's name
            is_sure = dotted[1] or ("." in path and (is_whole or is_class))
            return _Place(file, place, path=path if is_sure else "")
        if owner := _OF_OWNER.search(before):
            return _Place(file, place, owner=file.source.position(begins + owner.end(1) - 1))
    return _Place(file, place)


def _binding(
    named: NamedSymbol, edits: _Edits, files: Mapping[Path, SourceFile | None]
) -> Iterator[Path]:
    """Yield the files whose modules have a top-level symbol as an attribute of its name."""
    for path, each in edits.items():
        file = files[path]
        if path.suffix in PYTHON and file is not None:
            starts = (file.source.offset(edit.range.start) for edit in each)
            if path == named.file.path or any(file.text[at - 1 : at] != "." for at in starts):
                yield path


def _class_of(named: NamedSymbol) -> Iterator[Location]:
    """Yield where the class of a symbol is defined."""
    file, container = named.file, named.symbol.container
    for each in named_symbols(file, parsed_symbols(file)):
        if each.name_path == container:
            start = each.symbol.selection.start
            yield Location(file.path, Range(start, start))


def module_of(path: Path) -> str:
    """Return the dotted name by which a Python file is imported, by the packages around it."""
    names: Collection[str] = () if path.stem == "__init__" else (path.stem,)
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name:
        names, folder = (folder.name, *names), folder.parent
    return ".".join(names)
