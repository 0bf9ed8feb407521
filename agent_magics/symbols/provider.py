"""Defines what is asked about source code: the interface of language servers and of parsers.

Positions count lines and characters (code points) from 0, as Python indexes text; a provider
converts from and to the units of its server. Paths are absolute and without symlinks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
        """Return the range that many lines further down, or up for a negative number."""
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
class Call:
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


class SymbolProvider(Protocol):
    """Answers questions about the source files of one language below one folder.

    Every method reads the files as they are on disk now, and raises `NotProvided` where this
    provider never answers the question, `RespondToModel` where it fails this time (the server
    hangs, has ended, is still starting).
    """

    @property
    def name(self) -> str:
        """The name for people and models, such as "basedpyright" or "Python's parser"."""
        ...

    def given(self, texts: Mapping[Path, str]) -> "SymbolProvider":
        """Return the provider with the code of notebooks, by file, of which it answers too."""
        ...

    async def document_symbols(self, path: Path) -> tuple[Symbol, ...]:
        """Return the symbols of a file as a tree, in the order of the file."""
        ...

    async def find(self, query: str) -> tuple[Symbol, ...]:
        """Return the symbols of the project whose name fits `query`, without children."""
        ...

    async def references(
        self, path: Path, position: Position, declaration: bool = True
    ) -> tuple[Location, ...]:
        """Return each place where the symbol at a position is used, in order.

        With `declaration` also where it is defined.
        """
        ...

    async def definition(self, path: Path, position: Position) -> Definition:
        """Return where the symbol at a position is defined, and what is known of it."""
        ...

    async def incoming_calls(self, path: Path, position: Position) -> tuple[Call, ...]:
        """Return the functions that call the one at a position."""
        ...

    async def outgoing_calls(self, path: Path, position: Position) -> tuple[Call, ...]:
        """Return the functions that the one at a position calls."""
        ...

    async def rename(
        self, path: Path, position: Position, new_name: str
    ) -> Mapping[Path, Sequence[TextEdit]]:
        """Return the edits, by file, that rename the symbol at a position; change nothing."""
        ...

    async def diagnostics(self, path: Path) -> tuple[Diagnostic, ...]:
        """Return what the checker reports about a file."""
        ...


class EditCheck(Protocol):
    """What a checker reports about files before and after an edit."""

    def finish(self, cwd: Path, tell_later: Callable[[str], None]) -> str:
        """Return the errors that are new as text, "" for none; late ones go to `tell_later`."""
        ...


class SymbolProviders(Protocol):
    """The providers of a project, one for each language; a turn's calls ask it for theirs."""

    async def provider_for(self, path: Path) -> SymbolProvider | None:
        """Return the provider for a file, started where it must be; None where there is none.

        Raises:
            RespondToModel: there is one, and it does not answer now; the message says why.
        """
        ...

    def missing(self, path: Path) -> str:
        """Return one sentence on why a file has no provider, and what helps; "" where it has."""
        ...

    def check_edit(self, paths: Sequence[Path]) -> EditCheck | None:
        """Take note of the errors of files that will be edited; on a thread, not on the event loop.

        Returns:
            What finds the new ones; None where no server runs.
        """
        ...

    async def providers(self) -> Sequence[SymbolProvider]:
        """Return the providers that search the whole project, those that run or can start."""
        ...
