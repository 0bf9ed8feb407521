"""agent-magics: an agent's tool loop inside the Jupyter kernel.

``from agent_magics import Agent, tool`` in programs, ``%load_ext agent_magics`` in notebooks.
Importing this package imports nothing heavy; everything else comes when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_magics._version import __version__

if TYPE_CHECKING:
    from agent_magics.app import Agent
    from agent_magics.dispatch.context import ToolContext
    from agent_magics.dispatch.hooks import Abort, Block
    from agent_magics.dispatch.output_guard import OutputGuard
    from agent_magics.dispatch.tool import tool
    from agent_magics.models.scripted import Call, ScriptedModel
    from agent_magics.protocol.errors import AgentMagicsError, FatalError, RespondToModel
    from agent_magics.protocol.tools import DynamicToolSpec

_HOMES = {
    "Abort": "dispatch.hooks",
    "Agent": "app",
    "AgentMagicsError": "protocol.errors",
    "Block": "dispatch.hooks",
    "Call": "models.scripted",
    "DynamicToolSpec": "protocol.tools",
    "FatalError": "protocol.errors",
    "OutputGuard": "dispatch.output_guard",
    "RespondToModel": "protocol.errors",
    "ScriptedModel": "models.scripted",
    "ToolContext": "dispatch.context",
    "tool": "dispatch.tool",
}

__all__ = [
    "Abort",
    "Agent",
    "AgentMagicsError",
    "Block",
    "Call",
    "DynamicToolSpec",
    "FatalError",
    "OutputGuard",
    "RespondToModel",
    "ScriptedModel",
    "ToolContext",
    "__version__",
    "load_ipython_extension",
    "tool",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; called by ``%load_ext agent_magics``, any number of times."""
    import_module(f"{__name__}.kernel.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again; called by ``%unload_ext agent_magics``."""
    import_module(f"{__name__}.kernel.magics").unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "agent-magics"}]
