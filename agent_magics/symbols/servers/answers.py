"""Converts between the protocol's types and ours; positions only here.

A server counts characters in its own units (mostly UTF-16), we count code points.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lsprotocol import types

from agent_magics.files.beneath import real_path
from agent_magics.symbols.text import SourceText, one_line
from agent_magics.symbols.types import (
    Diagnostic,
    Location,
    NotProvided,
    Position,
    Range,
    Symbol,
    SymbolCall,
    TextEdit,
)

_LONGEST_CODE = 300  # characters
_LONGEST_URI = 16_000  # characters; no path of a file has as many
_DEEPEST = 64  # symbols inside one another
_SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
_WIDTHS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode("utf-8", "surrogatepass")),
    "utf-16": lambda text: len(text) + sum(char > "\uffff" for char in text),
    "utf-32": len,
}

# A function, the ranges of its calls, and their file; None for the function's own.
FoundCall = tuple[types.CallHierarchyItem, Sequence[types.Range], Path | None]


class Positions:
    """Converts positions between code points and a server's units.

    Args:
        encoding: the server's: "utf-8", "utf-16" or "utf-32".
        text_of: returns the text of a file as the server has it.
    """

    def __init__(self, encoding: str, text_of: Callable[[Path], SourceText | None]) -> None:
        self._width = _WIDTHS.get(encoding, _WIDTHS["utf-16"])
        self._text_of = text_of
        self._texts: dict[Path, SourceText | None] = {}
        self._wide = cache(self._find_wide)
        # An answer may name a file a thousand times; links are resolved once for each folder.
        self._real_folder = cache(real_path)
        self.path_of = cache(partial(path_of, real=self._real))

    def _real(self, path: str) -> str:
        folder, name = os.path.split(path)
        joined = f"{self._real_folder(folder)}/{name}"
        return real_path(path) if name in ("", "..") or os.path.islink(joined) else joined

    def sent(self, path: Path, position: Position) -> types.Position:
        """Return a position in the server's units."""
        before = self._line(path, position.line)[: position.character]
        width = position.character if before.isascii() else self._width(before)
        return types.Position(position.line, width)

    def range(self, path: Path, found: types.Range) -> Range:
        """Return a range of the server in code points."""
        return Range(self._position(path, found.start), self._position(path, found.end))

    def _position(self, path: Path, found: types.Position) -> Position:
        starts, ends, length = self._wide(path, found.line)
        if not starts:
            return Position(found.line, found.character)
        wide = bisect_left(starts, found.character)
        end, more = ends[wide - 1] if wide else (0, 0)
        return Position(found.line, min(max(found.character - more, end), length))

    def _find_wide(self, path: Path, number: int) -> tuple[list[int], list[tuple[int, int]], int]:
        """Return where the characters of several units are in a line, which may be long.

        Returns:
            The unit at which each begins; the characters up to its end, with the units that these
            have beyond one each; and the characters of the line.
        """
        line = self._line(path, number)
        starts, ends, more = list[int](), list[tuple[int, int]](), 0
        for place, character in enumerate("" if line.isascii() else line):
            if character > "\x7f" and (width := self._width(character)) > 1:
                starts.append(place + more)
                more += width - 1
                ends.append((place + 1, more))
        return starts, ends, len(line)

    def _line(self, path: Path, number: int) -> str:
        """Return a line of a file; "" where all of it is ASCII, and units are characters."""
        if path not in self._texts:
            source = self._text_of(path)
            self._texts[path] = None if source is None or source.is_ascii else source
        source = self._texts[path]
        return source.line(number) if source else ""


def path_of(uri: str, real: Callable[[str], str] = real_path) -> Path | None:
    """Return the file that a URI names, without symlinks; None where it names no local file.

    One with a fragment is a cell of a notebook that basedpyright has read by itself, as it was
    saved. We give it notebooks as they are.
    """
    if len(uri) > _LONGEST_URI:
        return None
    try:
        parts = urlsplit(uri)
        uri.encode()
    except ValueError:  # of an address that is none, or half of a surrogate pair
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.fragment:
        return None
    path = unquote(parts.path)
    return Path(real(path)) if path.startswith("/") and "\0" not in path else None


def symbols_of(found: Any, path: Path, positions: Positions) -> tuple[Symbol, ...]:
    """Return the answer to ``textDocument/documentSymbol`` as a tree."""
    items = list(found or ())
    if items and isinstance(items[0], types.SymbolInformation):
        return _nested(list(_of_information(items, positions)))
    return _of_document(items, path, positions, "")


def _of_document(
    items: Sequence[types.DocumentSymbol], path: Path, positions: Positions, container: str
) -> tuple[Symbol, ...]:
    return tuple(
        Symbol(
            name=one_line(item.name),
            kind=kind_name(item.kind),
            path=path,
            range=positions.range(path, item.range),
            selection=positions.range(path, item.selection_range),
            children=_of_document(
                item.children or (),
                path,
                positions,
                "/".join(filter(None, (container, one_line(item.name)))),
            ),
            detail=one_line(item.detail or ""),
            container=container,
        )
        for item in sorted(items, key=_place)
    )


def _place(item: types.DocumentSymbol) -> tuple[int, int]:
    start = item.range.start
    return start.line, start.character


def found_symbols(found: Any, positions: Positions) -> tuple[Symbol, ...]:
    """Return the answer to ``workspace/symbol``."""
    return tuple(_of_information(found or (), positions))


def _of_information(found: Iterable[Any], positions: Positions) -> Iterable[Symbol]:
    for item in found:
        path = positions.path_of(item.location.uri)
        place = getattr(item.location, "range", None)
        if path is not None and place is not None:
            where = positions.range(path, place)
            yield Symbol(
                one_line(item.name),
                kind_name(item.kind),
                path,
                where,
                where,
                container=one_line(item.container_name or "").replace(".", "/"),
            )


def _nested(flat: list[Symbol]) -> tuple[Symbol, ...]:
    """Return symbols of a flat list as a tree: each is in the smallest range around it."""
    flat.sort(key=lambda each: (each.range.start, _reversed(each.range.end)))
    roots: list[tuple[Symbol, list[Any]]] = []
    around: list[tuple[Symbol, list[Any]]] = []
    for symbol in flat:
        while around and around[-1][0].range.end < symbol.range.end:
            around.pop()
        del around[_DEEPEST:]
        entry: tuple[Symbol, list[Any]] = (symbol, [])
        (around[-1][1] if around else roots).append(entry)
        around.append(entry)
    return tuple(_with_children(entry, "") for entry in roots)


def _reversed(position: Position) -> tuple[int, int]:
    return -position.line, -position.character


def _with_children(entry: tuple[Symbol, list[Any]], container: str) -> Symbol:
    symbol, inner = entry
    below = "/".join(filter(None, (container, symbol.name)))
    children = tuple(_with_children(each, below) for each in inner)
    return replace(symbol, children=children, container=container)


def kind_name(kind: types.SymbolKind) -> str:
    """Return the kind of a symbol in lower case: "class", "type parameter"."""
    name = kind.name
    return "".join(f" {c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def locations_of(found: Any, positions: Positions) -> tuple[Location, ...]:
    """Return the answer to ``references`` or ``definition``, each place once, in order."""
    items = found if isinstance(found, Sequence) else [found] if found else ()
    places = (_location(item, positions) for item in items)
    return tuple(sorted({place for place in places if place is not None}, key=_order_of))


def _order_of(place: Location) -> tuple[object, ...]:
    start, end = place.range.start, place.range.end
    return place.path.parts, start.line, start.character, end.line, end.character


def _location(item: Any, positions: Positions) -> Location | None:
    is_link = isinstance(item, types.LocationLink)
    path = positions.path_of(item.target_uri if is_link else item.uri)
    place = item.target_selection_range if is_link else item.range
    return None if path is None else Location(path, positions.range(path, place))


def calls_of(found: Iterable[FoundCall], positions: Positions) -> tuple[SymbolCall, ...]:
    """Return the calls of a call hierarchy."""
    calls = (_call(*each, positions) for each in found)
    return tuple(call for call in calls if call is not None)


def _call(
    item: types.CallHierarchyItem, ranges: Any, at: Path | None, positions: Positions
) -> SymbolCall | None:
    path = positions.path_of(item.uri)
    if path is None:
        return None
    symbol = Symbol(
        one_line(item.name),
        kind_name(item.kind),
        path,
        positions.range(path, item.range),
        positions.range(path, item.selection_range),
        detail=one_line(item.detail or ""),
    )
    return SymbolCall(symbol, tuple(positions.range(at or path, each) for each in ranges))


def edits_of(found: Iterable[Any], positions: Positions) -> Mapping[Path, Sequence[TextEdit]]:
    """Return the edits of several ``WorkspaceEdit``, by file.

    Raises:
        NotProvided: it would make, move or delete files, or change what is no local file; or its
            edits overlap.
    """
    edits: dict[Path, list[TextEdit]] = {}
    for uri, changes in chain.from_iterable(map(_changes_in, found)):
        path = path_of(uri)
        if path is None and "#" in uri:
            continue
        if path is None:
            raise NotProvided(
                f"The rename was refused: it would change {uri[:100]}, no local file."
            )
        edits.setdefault(path, []).extend(
            TextEdit(positions.range(path, change.range), change.new_text) for change in changes
        )
    return {path: _in_order(path, each) for path, each in sorted(edits.items())}


def _in_order(path: Path, edits: Iterable[TextEdit]) -> Sequence[TextEdit]:
    edits = tuple(sorted(dict.fromkeys(edits)))
    places = [place for edit in edits for place in (edit.range.start, edit.range.end)]
    if places != sorted(places):
        raise NotProvided(f"The rename was refused: its edits of {path.name} overlap.")
    return edits


def _changes_in(found: Any) -> Iterable[tuple[str, Sequence[Any]]]:
    if found is None:
        return
    yield from (found.changes or {}).items() if not found.document_changes else ()
    for change in found.document_changes or ():
        if not isinstance(change, types.TextDocumentEdit):
            raise NotProvided("The rename was refused: it would make, move or delete files.")
        yield change.text_document.uri, change.edits


def diagnostics_of(found: Any, path: Path, positions: Positions) -> tuple[Diagnostic, ...]:
    """Return a file's diagnostics in order, each once."""
    all_of_them = (
        Diagnostic(
            path,
            positions.range(path, item.range),
            _SEVERITIES.get(item.severity or 1, "error"),
            one_line(_text(item.message)),
            "" if item.code is None else str(item.code)[:_LONGEST_CODE],
            item.source or "",
        )
        for item in found or ()
    )
    return tuple(sorted(dict.fromkeys(all_of_them)))


def hover_text(found: Any) -> str:
    """Return the text of a hover, without its marks of Markdown fences' languages."""
    if found is None:
        return ""
    contents = found.contents
    parts = contents if isinstance(contents, list | tuple) else [contents]
    return "\n\n".join(_text(part) for part in parts).strip()


def _text(part: Any) -> str:
    return part if isinstance(part, str) else str(getattr(part, "value", ""))
