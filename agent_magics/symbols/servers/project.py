"""The language servers of one project, as symbol tools and edits ask them."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.servers.languages import language_of
from agent_magics.symbols.servers.manager import ServerManager, shared_manager
from agent_magics.symbols.servers.process import Workplace
from agent_magics.symbols.servers.specs import (
    ServerSpec,
    client_is_missing,
    find_server,
    what_is_missing,
)
from agent_magics.symbols.types import (
    Definition,
    Diagnostic,
    Location,
    Position,
    Symbol,
    SymbolCall,
    TextEdit,
)

if TYPE_CHECKING:
    from agent_magics.symbols.servers.session import RunningServer

Answer = TypeVar("Answer")
Spawn = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]
ANSWER_LIMIT = 60.0  # seconds for the start of a server and its answer


@dataclass(frozen=True, slots=True)
class ServerProvider:
    """Answers questions about source files by a language server, which the first question starts.

    Every question reads the files as they are on disk now, and raises `NotProvided` where this
    server never answers it, `RespondToModel` where it fails this time (the server hangs, has ended,
    is still starting).

    Attributes:
        manager: has the servers.
        spec: the server.
        language: its language.
        root: the folder it works in.
        place: the workspace around it.
        limit: seconds for an answer, with the start.
        starts: whether asking starts it; else it answers only where it is ready.
        texts: the code of notebooks, by file.
    """

    manager: ServerManager
    spec: ServerSpec
    language: str
    root: Path
    place: Workplace
    limit: float = ANSWER_LIMIT
    starts: bool = True
    texts: Mapping[Path, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The server's name."""
        return self.spec.name

    def given(self, texts: Mapping[Path, str]) -> "ServerProvider":
        """Return the provider with the code of notebooks, by file, of which it answers too."""
        return replace(self, texts={**self.texts, **texts})

    async def _ask(self, question: "Callable[[RunningServer], Awaitable[Answer]]") -> Answer:
        server = self.manager.get(self.spec, self.language, self.root)
        if server is None and not self.starts:
            raise RespondToModel(f"The language server {self.name} does not run.")
        if server is None:
            which = (self.spec, self.language, self.root)
            server = await self.manager.get_or_start(*which, self.place)

        def ask(session: "RunningServer") -> Awaitable[Answer]:
            session.give(self.texts)
            return question(session)

        found: Answer = await server.ask(ask, self.limit, starts=self.starts)
        return found

    async def document_symbols(self, path: Path) -> tuple[Symbol, ...]:
        """Return the symbols of a file as a tree, in the order of the file."""
        return await self._ask(lambda each: each.document_symbols(path))

    async def find(self, query: str) -> tuple[Symbol, ...]:
        """Return the symbols of the project whose name fits `query`, without children."""
        return await self._ask(lambda each: each.find(query))

    async def references(
        self, path: Path, position: Position, declaration: bool = True
    ) -> tuple[Location, ...]:
        """Return each place where the symbol at a position is used, in order.

        With `declaration` also where it is defined.
        """
        return await self._ask(lambda each: each.references(path, position, declaration))

    async def definition(self, path: Path, position: Position) -> Definition:
        """Return where the symbol at a position is defined, and what is known of it."""
        return await self._ask(lambda each: each.definition(path, position))

    async def incoming_calls(self, path: Path, position: Position) -> tuple[SymbolCall, ...]:
        """Return the functions that call the one at a position."""
        return await self._ask(lambda each: each.incoming_calls(path, position))

    async def outgoing_calls(self, path: Path, position: Position) -> tuple[SymbolCall, ...]:
        """Return the functions that the one at a position calls."""
        return await self._ask(lambda each: each.outgoing_calls(path, position))

    async def rename(
        self, path: Path, position: Position, new_name: str
    ) -> Mapping[Path, Sequence[TextEdit]]:
        """Return the edits, by file, that rename the symbol at a position; change nothing."""
        return await self._ask(lambda each: each.rename(path, position, new_name))

    async def diagnostics(self, path: Path) -> tuple[Diagnostic, ...]:
        """Return what the server reports about a file."""
        return await self._ask(lambda each: each.diagnostics(path))


class LanguageServers:
    """The language servers of one project, a provider for each language.

    Args:
        table: the servers of the settings, from `read_table`.
        place: the workspace; the first folder is where files elsewhere are asked about.
        spawn: starts a coroutine on the event loop of the servers; from any thread.
    """

    def __init__(
        self, table: Mapping[str, ServerSpec | None], place: Workplace, spawn: Spawn | None = None
    ) -> None:
        self._table = table
        self._place = place
        self.spawn = spawn

    async def provider_for(self, path: Path) -> ServerProvider | None:
        """Return the provider of a file; None where its language has no server.

        Raises:
            RespondToModel: there is one, and it does not answer now; the message says why.
        """
        return self._provider(language_of(path), self._root_of(path))

    async def providers(self) -> Sequence[ServerProvider]:
        """Return the providers of the project that run."""
        running = {(each.language, each.root) for each in shared_manager().running()}
        found = (self._provider(*each) for each in sorted(running) if each[1] in self._place.roots)
        return tuple(each for each in found if each is not None)

    def running_for(self, path: Path) -> ServerProvider | None:
        """Return the provider of a file whose server is ready, which it never starts; else None."""
        provider = self._provider(language_of(path), self._root_of(path))
        if provider is None:
            return None
        found = provider.manager.get(provider.spec, provider.language, provider.root)
        return replace(provider, starts=False) if found is not None else None

    def missing(self, path: Path) -> str:
        """Return one sentence on why a file has no provider, and what helps; "" where it has."""
        language = language_of(path)
        if not language:
            return f"Files such as {path.name} have no language server."
        if language in self._table and self._table[language] is None:
            return f"The setting language_servers turns off the server of {language}."
        if find_server(language, self._table) is None:
            return what_is_missing(language)
        return client_is_missing()

    def _provider(self, language: str, root: Path) -> ServerProvider | None:
        spec = find_server(language, self._table) if language else None
        if spec is None or client_is_missing():
            return None
        return ServerProvider(shared_manager(), spec, language, root, self._place)

    def _root_of(self, path: Path) -> Path:
        """Return the innermost folder of the workspace around a file; else the first one."""
        around = [root for root in self._place.roots if path.is_relative_to(root)]
        return max(around, key=lambda root: len(root.parts), default=self._place.roots[0])
