"""agent-magics: an agent's tool loop inside the Jupyter kernel.

``from agent_magics import Agent, tool`` in programs, ``%load_ext agent_magics`` in notebooks.
Importing this package imports nothing heavy; everything else comes when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_magics._version import __version__
from agent_magics.files.trusted_imports import guard_imports

if TYPE_CHECKING:
    from agent_magics.app import Agent, conversations
    from agent_magics.dispatch.context import ToolContext
    from agent_magics.dispatch.hooks import Abort, Block
    from agent_magics.dispatch.results.output_guard import OutputGuard
    from agent_magics.dispatch.tool import tool
    from agent_magics.dispatch.turn.agents import AgentBudget
    from agent_magics.models.recordings.scripted import Call, ScriptedModel
    from agent_magics.protocol.errors import AgentMagicsError, FatalError, RespondToModel
    from agent_magics.protocol.items import InputImage, InputText
    from agent_magics.protocol.tools import DynamicToolSpec

_HOMES = {
    "Abort": "dispatch.hooks",
    "Agent": "app",
    "AgentBudget": "dispatch.turn.agents",
    "AgentMagicsError": "protocol.errors",
    "Block": "dispatch.hooks",
    "Call": "models.recordings.scripted",
    "DynamicToolSpec": "protocol.tools",
    "FatalError": "protocol.errors",
    "InputImage": "protocol.items",
    "InputText": "protocol.items",
    "OutputGuard": "dispatch.results.output_guard",
    "RespondToModel": "protocol.errors",
    "ScriptedModel": "models.recordings.scripted",
    "ToolContext": "dispatch.context",
    "conversations": "app",
    "tool": "dispatch.tool",
}

__all__ = [
    "Abort",
    "Agent",
    "AgentBudget",
    "AgentMagicsError",
    "Block",
    "Call",
    "DynamicToolSpec",
    "FatalError",
    "InputImage",
    "InputText",
    "OutputGuard",
    "RespondToModel",
    "ScriptedModel",
    "ToolContext",
    "__version__",
    "conversations",
    "load_ipython_extension",
    "tool",
    "unload_ipython_extension",
]

guard_imports()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; ``%load_ext agent_magics`` calls this, and a second call does nothing.

    Args:
        shell: the IPython shell.
    """
    import_module(f"{__name__}.kernel.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unregister the magics and close their agents; ``%unload_ext agent_magics`` calls this.

    Args:
        shell: the IPython shell.
    """
    import_module(f"{__name__}.kernel.magics").unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "agent-magics"}]
