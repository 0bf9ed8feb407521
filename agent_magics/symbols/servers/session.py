"""Asks one running language server, after bringing its documents into step."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types

from agent_magics.exec.process import Process
from agent_magics.exec.servers import LogRing
from agent_magics.symbols.servers import answers
from agent_magics.symbols.servers.connection import Connection, RequestFailed, ServerLost
from agent_magics.symbols.servers.documents import Documents
from agent_magics.symbols.servers.specs import ServerSpec
from agent_magics.symbols.types import (
    Definition,
    Diagnostic,
    Location,
    NotProvided,
    Position,
    Symbol,
    SymbolCall,
    TextEdit,
)

Made = TypeVar("Made")
ASKING_FAILED = (RequestFailed, ServerLost)

_LIMIT = 600.0  # seconds of a request; the limit of its question is always shorter
_PUSHED_LIMIT = 30.0  # seconds to wait for diagnostics of a server that only pushes them
_SCAN_LIMIT = 20.0  # seconds to wait until a server has found the files of the project
_RESCAN_LIMIT = 5.0  # seconds, after files came or went; not every such file is one of the project
# Seconds without a change and without news, after which those of no version count as the last.
_QUIET = 1.0
_FEW = 1_000  # parts of an answer that are read at once
_PUSH_LOOK = 0.02  # seconds between two looks whether they came

_CAPABILITIES = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(
        position_encodings=[types.PositionEncodingKind.Utf32, types.PositionEncodingKind.Utf16]
    ),
    text_document=types.TextDocumentClientCapabilities(
        document_symbol=types.DocumentSymbolClientCapabilities(
            hierarchical_document_symbol_support=True
        ),
        publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
        # Without the dynamic one basedpyright pushes diagnostics of every text it gets.
        diagnostic=types.DiagnosticClientCapabilities(dynamic_registration=True),
        hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.PlainText]),
        call_hierarchy=types.CallHierarchyClientCapabilities(),
        rename=types.RenameClientCapabilities(),
    ),
    workspace=types.WorkspaceClientCapabilities(
        configuration=True,
        workspace_folders=True,
        workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
        did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
            dynamic_registration=True
        ),
    ),
)


async def _made(make: Callable[..., Made], found: Any, *more: Any) -> Made:
    """Return what is made of an answer: of a long one in a thread, as it may take seconds."""
    parts = found if isinstance(found, Sequence) else ()
    inner = (len(each[1]) for each in parts if isinstance(each, tuple))  # the ranges of a call
    if len(parts) + sum(inner) <= _FEW:
        return make(found, *more)
    return await asyncio.to_thread(make, found, *more)


class RunningServer:
    """One running server process: its connection, documents and abilities.

    Args:
        spec, language, root: as of the server that this is a run of.
        process: its process.
        log: gets what it writes beside the protocol.
        on_end: called with this once the process has ended by itself.
    """

    def __init__(
        self,
        spec: ServerSpec,
        language: str,
        root: Path,
        process: Process,
        log: LogRing,
        on_end: Callable[["RunningServer"], None],
    ) -> None:
        self._spec, self._root = spec, root
        self._process = process
        self.connection = Connection(spec.settings, log, lambda: on_end(self))
        self._documents = Documents(self.connection, root, language)
        self._looking = asyncio.Lock()  # held while the disk is looked at, never for a server
        self._encoding = "utf-16"
        self._can: Any = None
        self._is_pyright = any("pyright" in word for word in spec.argv)
        self._scan_limit = _SCAN_LIMIT  # seconds; 0 where the server has found all files

    async def open(self) -> None:
        """Connect, and initialize the server.

        Raises:
            RequestFailed: the server refuses.
            ServerLost: it has ended.
        """
        await self.connection.open(self._process)
        # Before the server reads any file: what changes later is seen by the next look.
        await asyncio.to_thread(self._documents.look)
        uri = self._root.as_uri()
        params = types.InitializeParams(
            process_id=None,  # the launcher ends it with the kernel
            root_uri=uri,
            workspace_folders=[types.WorkspaceFolder(uri, self._root.name)],
            capabilities=_CAPABILITIES,
            initialization_options=self._spec.options,
        )
        result = await self.connection.request(types.INITIALIZE, params, _LIMIT)
        self._can = result.capabilities
        self._encoding = self._can.position_encoding or "utf-16"
        self.connection.notify(types.INITIALIZED, types.InitializedParams())
        if self._spec.settings:
            self.connection.notify(
                types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                types.DidChangeConfigurationParams(dict(self._spec.settings)),
            )

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    # -- documents ---------------------------------------------------------------------------------

    def give(self, texts: Mapping[Path, str]) -> None:
        """Send the server the code of notebooks, by file."""
        for path, text in texts.items():
            self._documents.open(path, text)

    def _positions(self) -> answers.Positions:
        return answers.Positions(str(self._encoding), self._documents.text_of)

    async def _look(self) -> None:
        async with self._looking:
            if self._documents.send(await asyncio.to_thread(self._documents.look)):
                self.connection.has_scanned.clear()
                self._scan_limit = max(self._scan_limit, _RESCAN_LIMIT)

    async def _in_step(self, path: Path | None) -> answers.Positions:
        """Bring all files into step, and open one."""
        # A look that has begun ends, also where nobody waits any more: what it found must be sent.
        await asyncio.shield(self._look())
        if path is not None:
            self._documents.open(path)
        return self._positions()

    async def _at(
        self, path: Path, position: Position
    ) -> tuple[types.TextDocumentIdentifier, types.Position]:
        positions = await self._in_step(path)
        return types.TextDocumentIdentifier(path.as_uri()), positions.sent(path, position)

    async def _scanned(self, file: types.TextDocumentIdentifier | None = None) -> None:
        """Wait until a Pyright has found the project's files, also after some came or went.

        Before that its references and renames silently leave out the files that are not open; and
        names in texts, such as ``bound="Shape"``, in a `file` that it has not checked.

        Raises:
            RequestFailed: it goes on looking for them after the limit.
        """
        if not self._is_pyright:
            return
        if self._scan_limit:
            try:
                async with asyncio.timeout(self._scan_limit):
                    await self.connection.has_scanned.wait()
            except TimeoutError:
                if self.connection.scans:
                    raise RequestFailed(
                        f"it still looks for the source files below {self._root} after "
                        f"{self._scan_limit:g} s; ask again later, or work in a smaller folder"
                    ) from None
        self._scan_limit = 0.0
        if file is not None and self.connection.pulls:
            params = types.DocumentDiagnosticParams(file)
            await self._ask(types.TEXT_DOCUMENT_DIAGNOSTIC, params)

    def _require(self, ability: str, what: str) -> None:
        if not getattr(self._can, ability):
            raise NotProvided(f"The language server {self._spec.name} does not {what}.")

    async def _ask(self, method: str, params: Any) -> Any:
        return await self.connection.request(method, params, _LIMIT)

    # -- questions ---------------------------------------------------------------------------------

    async def document_symbols(self, path: Path) -> tuple[Symbol, ...]:
        """Return the symbols of a file; see `ServerProvider`."""
        self._require("document_symbol_provider", "list the symbols of a file")
        self._documents.open(path)  # its own text is all that this depends on
        params = types.DocumentSymbolParams(types.TextDocumentIdentifier(path.as_uri()))
        found = await self._ask(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, params)
        return await asyncio.to_thread(answers.symbols_of, found, path, self._positions())

    async def find(self, query: str) -> tuple[Symbol, ...]:
        """Return the symbols of the project whose name fits; see `ServerProvider`."""
        self._require("workspace_symbol_provider", "search symbols of the project")
        await self._in_step(None)
        await self._scanned()
        found = await self._ask(types.WORKSPACE_SYMBOL, types.WorkspaceSymbolParams(query))
        return await asyncio.to_thread(answers.found_symbols, found, self._positions())

    async def references(
        self, path: Path, position: Position, declaration: bool
    ) -> tuple[Location, ...]:
        """Return where a symbol is used; see `ServerProvider`."""
        self._require("references_provider", "find references")
        name, at = await self._at(path, position)
        await self._scanned(name)
        context = types.ReferenceContext(include_declaration=declaration)
        params = types.ReferenceParams(context, name, at)
        found = await self._ask(types.TEXT_DOCUMENT_REFERENCES, params)
        return await _made(answers.locations_of, found, self._positions())

    async def definition(self, path: Path, position: Position) -> Definition:
        """Return where a symbol is defined, and what is known of it; see `ServerProvider`."""
        self._require("definition_provider", "find definitions")
        name, at = await self._at(path, position)
        asked = [self._ask(types.TEXT_DOCUMENT_DEFINITION, types.DefinitionParams(name, at))]
        if self._can.hover_provider:
            asked.append(self._ask(types.TEXT_DOCUMENT_HOVER, types.HoverParams(name, at)))
        found, *text = await asyncio.gather(*asked)
        places = await _made(answers.locations_of, found, self._positions())
        return Definition(places, "".join(map(answers.hover_text, text)))

    async def incoming_calls(self, path: Path, position: Position) -> tuple[SymbolCall, ...]:
        """Return the functions that call one; see `ServerProvider`."""
        calls: list[answers.FoundCall] = []
        for item in await self._call_items(path, position):
            params = types.CallHierarchyIncomingCallsParams(item)
            found = await self._ask(types.CALL_HIERARCHY_INCOMING_CALLS, params) or ()
            calls += [(each.from_, each.from_ranges, None) for each in found]
        return await _made(answers.calls_of, calls, self._positions())

    async def outgoing_calls(self, path: Path, position: Position) -> tuple[SymbolCall, ...]:
        """Return the functions that one calls; see `ServerProvider`."""
        calls: list[answers.FoundCall] = []
        for item in await self._call_items(path, position):
            params = types.CallHierarchyOutgoingCallsParams(item)
            found = await self._ask(types.CALL_HIERARCHY_OUTGOING_CALLS, params) or ()
            calls += [(each.to, each.from_ranges, answers.path_of(item.uri)) for each in found]
        return await _made(answers.calls_of, calls, self._positions())

    async def _call_items(
        self, path: Path, position: Position
    ) -> Sequence[types.CallHierarchyItem]:
        self._require("call_hierarchy_provider", "know who calls whom")
        name, at = await self._at(path, position)
        await self._scanned()
        params = types.CallHierarchyPrepareParams(name, at)
        return await self._ask(types.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY, params) or ()

    async def rename(
        self, path: Path, position: Position, new_name: str
    ) -> "dict[Path, Sequence[TextEdit]]":
        """Return the edits of a rename; see `ServerProvider`."""
        self._require("rename_provider", "rename")
        name, at = await self._at(path, position)
        await self._scanned(name)
        found, positions = [], self._positions()
        for each, start in [(path, position), *await self._overrides(path, position, at)]:
            name = types.TextDocumentIdentifier(each.as_uri())
            params = types.RenameParams(name, positions.sent(each, start), new_name)
            found.append(await self._ask(types.TEXT_DOCUMENT_RENAME, params))
        return dict(await asyncio.to_thread(answers.edits_of, found, positions))

    async def _overrides(
        self, path: Path, position: Position, at: types.Position
    ) -> list[tuple[Path, Position]]:
        """Return where subclasses define a method anew, which Pyright's renames leave out."""
        if not (self._is_pyright and self._can.implementation_provider):
            return []
        params = types.ImplementationParams(types.TextDocumentIdentifier(path.as_uri()), at)
        found = await self._ask(types.TEXT_DOCUMENT_IMPLEMENTATION, params)
        names = {  # of a class it finds the subclasses, which have other names
            (each.path, each.range.start): source.part(each.range)
            for each in answers.locations_of(found, self._positions())
            if (source := self._documents.text_of(each.path)) is not None
        }
        own = names.pop((path, position), None)
        return [place for place, each in names.items() if each == own]

    async def diagnostics(self, path: Path) -> tuple[Diagnostic, ...]:
        """Return what the checker reports; see `ServerProvider`."""
        positions = await self._in_step(path)
        pushed = await self._pulls_or_pushed(path, self._documents.open(path).version)
        if pushed is not None:
            return await _made(answers.diagnostics_of, pushed, path, positions)
        params = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(path.as_uri()))
        report = await self._ask(types.TEXT_DOCUMENT_DIAGNOSTIC, params)
        items = getattr(report, "items", ())
        return await _made(answers.diagnostics_of, items, path, positions)

    async def _pulls_or_pushed(self, path: Path, version: int) -> Any:
        """Wait until the server has pushed what it reports; None where it can be asked instead."""
        try:
            async with asyncio.timeout(_PUSHED_LIMIT):
                while not (self._can.diagnostic_provider or self.connection.pulls):
                    when, pushed = self.connection.pushed.get(path, (0.0, None))
                    if pushed is not None and (
                        pushed.version == version
                        if pushed.version is not None
                        else time.monotonic() > max(when, self._documents.changed) + _QUIET
                    ):
                        return pushed.diagnostics
                    await asyncio.sleep(_PUSH_LOOK)
        except TimeoutError:
            raise RequestFailed("it has pushed no diagnostics of this text") from None
        return None
