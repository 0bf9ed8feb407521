"""A project with a language server, for tests."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent_magics.symbols.servers.lifecycle import LanguageServer
from agent_magics.symbols.servers.manager import ServerManager
from agent_magics.symbols.servers.process import Workplace
from agent_magics.symbols.servers.project import ServerProvider
from agent_magics.symbols.servers.specs import ServerSpec

PROGRAM = Path(__file__).with_name("program.py")


def spec(mode: str = "good", *more: str) -> ServerSpec:
    """Return the small server in one of its modes."""
    argv = (sys.executable, str(PROGRAM), mode, *more)
    return ServerSpec(mode, argv, settings={"a": {"b": 5}})


class Project:
    """A folder with files, and the provider of its server."""

    def __init__(self, folder: Path, which: ServerSpec, manager: ServerManager) -> None:
        self.folder = folder.resolve()
        self.manager = manager
        self.place = Workplace((self.folder,), needs_sandbox=False)
        self._which = which
        self.provider = self.provider_of("python")

    def provider_of(self, language: str) -> ServerProvider:
        """Return the provider of its server for a language."""
        return ServerProvider(self.manager, self._which, language, self.folder, self.place)

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    @property
    def server(self) -> LanguageServer:
        """Its server, which was asked before."""
        return self.manager.named("python")[0]

    def with_limit(self, seconds: float) -> ServerProvider:
        """Return the provider with another limit."""
        each = self.provider
        return ServerProvider(each.manager, each.spec, "python", each.root, each.place, seconds)


@asynccontextmanager
async def project(
    folder: Path, which: ServerSpec | None = None, **limits: Any
) -> AsyncIterator[Project]:
    """Make a project; its server has ended at the end."""
    manager = ServerManager(**limits)
    try:
        yield Project(folder, which or spec(), manager)
    finally:
        await manager.close()


def run(scenario: Any) -> None:
    """Run a coroutine to its end."""
    asyncio.run(scenario)
