"""Registers the front end of this process: the host for questions, the live kernel, serving."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # loading the extension imports this module, and must be quick
    from agent_magics.dispatch.context import LiveKernel
    from agent_magics.engine.foreground.host import Host
    from agent_magics.engine.turn_config import TurnConfig


class ServeHost(Protocol):
    """The front end's part in serving calls of MCP clients."""

    def turn_config(self) -> "TurnConfig":
        """Return the configuration that the calls run with; called on the thread of `CallPlace`."""

    def host(self, client: str) -> "Host | None":
        """Return the host for questions about calls of `client`; None means the agent's own."""

    def begin(self, refresh: Callable[[], None]) -> None:
        """Call `refresh`, on the thread of `CallPlace`, whenever the tools may have changed."""

    def end(self) -> None:
        """Stop calling `refresh`, and remove displays of calls."""


class FrontEnd(NamedTuple):
    """The parts of a front end that agents use; all None in a plain program.

    Attributes:
        host: answers questions.
        live_kernel: runs code of `python`.
        serve_host: makes the `ServeHost` of an `Agent` (a class of a layer above this module).
        map_watcher: makes what shows a map of an `Agent`, which may block (`planning.Watcher`).
    """

    host: "Host | None" = None
    live_kernel: "LiveKernel | None" = None
    serve_host: Callable[[Any], ServeHost] | None = None
    map_watcher: Callable[[Any, bool], Any] | None = None

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The variables of the live kernel; none outside of one."""
        return {} if self.live_kernel is None else self.live_kernel.namespace


class FrontEndRegistry:
    """Holds the front end of this process, made when an agent first needs it."""

    def __init__(self) -> None:
        self._make: Callable[[], FrontEnd] | None = None

    def register(self, make: Callable[[], FrontEnd] | None) -> None:
        """Register the function that makes the front end; None removes it."""
        self._make = make

    @property
    def has_kernel(self) -> bool:
        """Whether agents here can run code in a live kernel."""
        return self._make is not None

    def current(self) -> FrontEnd:
        """Return the front end; without one, an empty `FrontEnd`."""
        return FrontEnd() if self._make is None else self._make()


FRONT_ENDS = FrontEndRegistry()
