"""Defines the types of answers about source code: positions, symbols, places, calls, edits.

Positions count lines and characters (code points) from 0, as Python indexes text; what
talks to a server converts from and to its units. Paths are absolute and without symlinks.
"""

from dataclasses import dataclass
from pathlib import Path

from agent_magics.protocol.errors import RespondToModel


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two characters of a text: line and character, both from 0."""

    line: int
    character: int


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The text from `start` up to, and without, `end`."""

    start: Position
    end: Position

    def moved(self, lines: int) -> "Range":
        """Return the range moved down by some lines, or up for a negative number."""
        start = Position(self.start.line + lines, self.start.character)
        return Range(start, Position(self.end.line + lines, self.end.character))


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A range of a file."""

    path: Path
    range: Range


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named part of a file.

    Attributes:
        name: its own name, without those of the symbols around it.
        kind: one word in lower case: "class", "function", "method", "variable", "constant",
            "property", "module", "interface", "enum", "field" and so on, as the protocol of
            language servers names kinds.
        path: the file.
        range: all of it, with decorators and body.
        selection: its name where it is defined; inside `range`.
        children: the symbols in it, in the order of the file.
        detail: a signature or a type; "" where none is known.
        container: the names around it, joined by "/"; "" at the top of a file or where the
            provider does not know them.
    """

    name: str
    kind: str
    path: Path
    range: Range
    selection: Range
    children: tuple["Symbol", ...] = ()
    detail: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class SymbolCall:
    """A symbol that calls or is called, and the places of those calls.

    Attributes:
        symbol: the caller (of incoming calls) or the callee (of outgoing ones).
        ranges: where the calls stand; in the file of the caller.
    """

    symbol: Symbol
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """What a checker reports about a range of a file.

    Attributes:
        path: the file.
        range: the text that it is about.
        severity: "error", "warning", "information" or "hint".
        message: the text of the report.
        code: the checker's name of the rule; "" where it has none.
        source: the checker's name; "" where it does not say it.
    """

    path: Path
    range: Range
    severity: str
    message: str
    code: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, order=True)
class TextEdit:
    """A range of a file, and the text that replaces it."""

    range: Range
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a symbol is defined, and what is known of it.

    Attributes:
        places: where; none where that is not known.
        text: its type, signature and documentation; "" where none are known.
    """

    places: tuple[Location, ...]
    text: str = ""


class NotProvided(RespondToModel):
    """A provider cannot answer a question of this kind; the message says which, and what can."""
