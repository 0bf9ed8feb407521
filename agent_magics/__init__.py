"""agent-magics: an agent's tool loop inside the Jupyter kernel.

``from agent_magics import Agent, tool`` in programs, ``%load_ext agent_magics`` in notebooks.
Importing this package imports nothing heavy; everything else comes when it is first used.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_magics._version import __version__ as __version__
from agent_magics.files.trusted_imports import guard_imports

if TYPE_CHECKING:  # `as` says to type checkers that a name is public
    from agent_magics.app import Agent as Agent
    from agent_magics.app import conversations as conversations
    from agent_magics.dispatch.context import ToolContext as ToolContext
    from agent_magics.dispatch.hooks import Abort as Abort
    from agent_magics.dispatch.hooks import Block as Block
    from agent_magics.dispatch.results.output_guard import OutputGuard as OutputGuard
    from agent_magics.dispatch.tool import tool as tool
    from agent_magics.dispatch.turn import AgentBudget as AgentBudget
    from agent_magics.models.recordings.scripted import Call as Call
    from agent_magics.models.recordings.scripted import ScriptedModel as ScriptedModel
    from agent_magics.protocol.errors import AgentMagicsError as AgentMagicsError
    from agent_magics.protocol.errors import FatalError as FatalError
    from agent_magics.protocol.errors import RespondToModel as RespondToModel
    from agent_magics.protocol.items import InputImage as InputImage
    from agent_magics.protocol.items import InputText as InputText
    from agent_magics.protocol.tools import DynamicToolSpec as DynamicToolSpec

_HOMES = {
    "Abort": "dispatch.hooks",
    "Agent": "app",
    "AgentBudget": "dispatch.turn",
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

if not TYPE_CHECKING:  # which read lists only where they are written out
    __all__ = sorted([*_HOMES, "__version__", "load_ipython_extension", "unload_ipython_extension"])

guard_imports()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collects = gc.isenabled()
    try:
        gc.disable()  # what an import makes stays; to look for garbage takes a tenth of the time
        value = getattr(import_module(f"{__name__}.{home}"), name)
    finally:
        if collects:
            gc.enable()
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
