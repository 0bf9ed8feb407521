"""What one turn runs with; built by the app for each turn, since a cell may set options."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agent_magics.dispatch.context import LiveKernel
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.offer import ToolOffer
from agent_magics.dispatch.registry import ToolRegistry
from agent_magics.engine.structured import OutputType
from agent_magics.models.base import Model
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.tools import ConfiguredToolSpec


class Servers(Protocol):
    """The MCP servers of an agent, as far as a turn looks at them."""

    async def require(self) -> None:
        """Wait for the servers that a run cannot do without.

        Raises:
            FatalError: one of them is not there.
        """
        ...

    def news(self, told: dict[str, str]) -> list[str]:
        """Return what the model does not know yet of the servers, and note in `told` that it does.

        Args:
            told: what this conversation was told, by server.
        """
        ...


class RunSetup:
    """What one turn runs with; built by the app for each turn, since a cell may set options."""

    def __init__(
        self,
        config: RunConfig,
        model: Callable[[], Model],
        specs: Sequence[ConfiguredToolSpec],
        registry: ToolRegistry,
        *,
        env: Mapping[str, str],
        validate_path: Callable[[str, str], Path],
        secrets: Sequence[str] = (),
        live_kernel: LiveKernel | None = None,
        hooks: Hooks | None = None,
        offer: ToolOffer | None = None,
        warnings: Callable[[], Sequence[str]] = tuple,
        output: OutputType | None = None,
        servers: Servers | None = None,
    ) -> None:
        self.config = config
        self.model = model
        self.specs = specs
        self.registry = registry
        self.env = env
        self.validate_path = validate_path
        self.live_kernel = live_kernel
        self.hooks = hooks
        self.offer = offer
        self.warnings = warnings
        self.output = output
        self.servers = servers
        # The longest first: one key may be the beginning of another.
        long_enough = {secret for secret in secrets if len(secret) >= 8}
        self.secrets = tuple(sorted(long_enough, key=len, reverse=True))
