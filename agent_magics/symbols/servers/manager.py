"""Holds the language servers of this process: one for each language and folder, few at a time.

All agents and their sub-agents share them.
"""

import asyncio
import logging
import time
from pathlib import Path
from weakref import WeakKeyDictionary

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.servers.lifecycle import LanguageServer, ServerState
from agent_magics.symbols.servers.process import Workplace
from agent_magics.symbols.servers.specs import ServerSpec

MOST_SERVERS = 4  # that run at once
MOST_MEMORY = 2 << 30  # bytes of all of them
IDLE_LIMIT = 600.0  # seconds without a question, after which a server is ended
_LOOK_EVERY = 10.0  # seconds between two looks at memory and idleness

_LOG = logging.getLogger("agent_magics")
_Key = tuple[str, str, Path]


class ServerManager:
    """The servers of one event loop, on which all methods run.

    Args:
        most: servers that run at once.
        most_memory: bytes of all of them; above, the largest one without a question is ended, and
            one that alone holds more is ended in any case.
        idle_limit: seconds without a question, after which a server is ended.
        look_every: seconds between two looks at both.
    """

    def __init__(
        self,
        most: int = MOST_SERVERS,
        most_memory: int = MOST_MEMORY,
        idle_limit: float = IDLE_LIMIT,
        look_every: float = _LOOK_EVERY,
    ) -> None:
        self._most, self._most_memory = most, most_memory
        self._idle_limit, self._look_every = idle_limit, look_every
        self._servers: dict[_Key, LanguageServer] = {}
        self._looking: asyncio.Task[None] | None = None

    async def get_or_start(
        self, spec: ServerSpec, language: str, root: Path, place: Workplace
    ) -> LanguageServer:
        """Return the server of a language and folder; its first question starts it.

        Raises:
            RespondToModel: too many servers run, and none is idle.
        """
        key = (spec.key, language, root)
        server = self._servers.get(key)
        if server is None:
            server = self._servers[key] = LanguageServer(spec, language, root, place)
        await self._admit(server)
        return server

    def get(self, spec: ServerSpec, language: str, root: Path) -> LanguageServer | None:
        """Return a server that is ready; None where it would have to be started."""
        server = self._servers.get((spec.key, language, root))
        return server if server is not None and server.running is not None else None

    def states(self) -> tuple[ServerState, ...]:
        """Return the state of every server that was started."""
        return tuple(server.state for server in self._servers.values())

    @property
    def has_ready(self) -> bool:
        """Whether any server is ready; from any thread."""
        return any(server.running is not None for server in list(self._servers.values()))

    def named(self, word: str) -> list[LanguageServer]:
        """Return the servers of a name or a language; all for ""."""
        return [
            server
            for server in self._servers.values()
            if word in ("", server.spec.name, server.language)
        ]

    async def restart(self, word: str) -> None:
        """End servers, and start again those asked for last, as many as may run at once.

        Args:
            word: a name or a language; "" for all.

        Raises:
            RespondToModel: one cannot be started, or too many others are at work.
        """
        servers = sorted(self.named(word), key=_last_used, reverse=True)
        await asyncio.gather(*(server.stop() for server in servers))
        for server in servers:
            server.forgive()
        await asyncio.gather(*(self._start(server) for server in servers[: self._most]))

    async def _start(self, server: LanguageServer) -> None:
        await self._admit(server)
        await server.session()

    async def close(self) -> None:
        """End all servers."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
        servers, self._servers = list(self._servers.values()), {}
        # Each is ended, also where nobody waits any more: no other place knows of them.
        await asyncio.shield(asyncio.gather(*(server.stop() for server in servers)))

    async def _admit(self, server: LanguageServer) -> None:
        """Make room for a server that is about to start, and look after all from now on.

        Raises:
            RespondToModel: too many servers run, and none is idle.
        """
        server.busy += 1  # so it counts for others that want room meanwhile
        try:
            await self._make_room(server)
        finally:
            server.busy -= 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._watch(), name="language servers")

    async def _make_room(self, wanted: LanguageServer) -> None:
        """End the one without a question that was not asked for longest, where too many run."""
        others = [each for each in self.running() if each is not wanted]
        if wanted.is_running or len(others) < self._most:
            return
        idle = sorted((each for each in others if not each.busy), key=_last_used)
        if not idle:
            names = ", ".join(f"{each.spec.name} in {each.root}" for each in others)
            raise RespondToModel(
                f"{self._most} language servers are at work, and more may not run: {names}. Ask "
                "again when one of them has answered."
            )
        idle[0].log.note("ended, to make room for another server")
        await idle[0].stop()

    def running(self) -> list[LanguageServer]:
        """Return the servers that run, or are about to."""
        return [each for each in self._servers.values() if each.is_running or each.busy]

    async def _watch(self) -> None:
        """Look at memory and idleness while any server runs."""
        while self.running():
            await asyncio.sleep(self._look_every)
            try:
                await self.look()
            except RuntimeError:  # no thread is to be had: this program is about to end
                break
            except Exception:
                _LOG.exception("looking after the language servers failed")
        self._looking = None

    async def look(self) -> None:
        """End servers that are idle for too long, and those that hold too much memory."""
        now = time.monotonic()
        for server in self.running():
            if not server.busy and now - server.last_used > self._idle_limit:
                await server.stop()
        running = self.running()
        sizes = await asyncio.to_thread(lambda: {each: each.memory() for each in running})
        for server in sorted(running, key=lambda each: (bool(each.busy), -sizes[each])):
            total = sum(sizes.values())
            if total <= self._most_memory or (server.busy and sizes[server] <= self._most_memory):
                continue
            server.log.note(
                f"ended: the language servers hold {total >> 20} MiB, more than "
                f"{self._most_memory >> 20} MiB"
            )
            del sizes[server]
            await server.stop()


def _last_used(server: LanguageServer) -> float:
    return server.last_used


_managers: "WeakKeyDictionary[asyncio.AbstractEventLoop, ServerManager]" = WeakKeyDictionary()


def shared_manager() -> ServerManager:
    """Return the manager of the running event loop."""
    return _managers.setdefault(asyncio.get_running_loop(), ServerManager())


def any_ready() -> bool:
    """Return whether any server of this process is ready; from any thread."""
    return any(manager.has_ready for manager in list(_managers.values()))
