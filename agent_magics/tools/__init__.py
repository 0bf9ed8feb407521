"""The built-in tools: each is a plain Python function with ``@tool`` on it.

Read ``files/reading`` (`read_file`) first: it shows what a tool is.

By hand they are functions with your own rights: ``read_file("a.py")`` returns text,
``shell(["ls"])`` a result. Called by a model the same functions go through approval.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_magics.tools.agents import (
        close_agent,
        list_agents,
        resume_agent,
        send_input,
        spawn_agent,
        wait,
    )
    from agent_magics.tools.asking import request_user_input
    from agent_magics.tools.batching import batch
    from agent_magics.tools.catalog.search import tool_search
    from agent_magics.tools.code.inspection import inspect_variables
    from agent_magics.tools.code.python import python
    from agent_magics.tools.commands.sessions import (
        exec_command,
        kill_session,
        list_sessions,
        write_stdin,
    )
    from agent_magics.tools.commands.shell import local_shell, shell, shell_command
    from agent_magics.tools.files.editing import edit_file, write_file
    from agent_magics.tools.files.listing import glob, list_dir
    from agent_magics.tools.files.patch import apply_patch
    from agent_magics.tools.files.reading import read_file
    from agent_magics.tools.files.searching import grep_files
    from agent_magics.tools.files.viewing import view_image
    from agent_magics.tools.memory import forget, get_memory, remember
    from agent_magics.tools.notebook.cells import notebook_read
    from agent_magics.tools.notebook.changes import (
        notebook_delete_cell,
        notebook_edit_cell,
        notebook_insert_cell,
        notebook_run_cell,
    )
    from agent_magics.tools.plan import update_plan
    from agent_magics.tools.skills import read_skill
    from agent_magics.tools.structure.checks import diagnostics
    from agent_magics.tools.structure.editing import edit_symbol
    from agent_magics.tools.structure.listing import symbols
    from agent_magics.tools.structure.relations import call_graph, definition, references

# The tools by module. No module or folder here may bear a tool's name: imported, it would stand in
# the tool's place.
_TOOLS = {
    "agents": "spawn_agent send_input wait resume_agent close_agent list_agents",
    "asking": "request_user_input",
    "batching": "batch",
    "catalog.search": "tool_search",
    "code.inspection": "inspect_variables",
    "code.python": "python",
    "commands.sessions": "exec_command write_stdin list_sessions kill_session",
    "commands.shell": "shell shell_command local_shell",
    "files.editing": "write_file edit_file",
    "files.listing": "list_dir glob",
    "files.patch": "apply_patch",
    "files.reading": "read_file",
    "files.searching": "grep_files",
    "files.viewing": "view_image",
    "memory": "get_memory remember forget",
    "notebook.cells": "notebook_read",
    "notebook.changes": (
        "notebook_insert_cell notebook_edit_cell notebook_delete_cell notebook_run_cell"
    ),
    "plan": "update_plan",
    "skills": "read_skill",
    "structure.checks": "diagnostics",
    "structure.editing": "edit_symbol",
    "structure.listing": "symbols",
    "structure.relations": "references definition call_graph",
}
_HOMES = {name: module for module, names in _TOOLS.items() for name in names.split()}

READ_ONLY = ("read_file", "list_dir", "grep_files", "glob", "view_image")
SESSIONS = ("exec_command", "write_stdin", "list_sessions", "kill_session")
AGENTS = ("spawn_agent", "send_input", "wait", "resume_agent", "close_agent", "list_agents")
MEMORY = ("get_memory", "remember", "forget")
STRUCTURE = ("symbols", "references", "definition", "call_graph", "diagnostics", "edit_symbol")
CODING = (
    *READ_ONLY,
    *SESSIONS,
    "shell",
    "apply_patch",
    "update_plan",
    "request_user_input",
    *AGENTS,
    *MEMORY,
    *STRUCTURE,
)
DATA = (*CODING, "python", "inspect_variables")
NOTEBOOK = (
    "notebook_read",
    "notebook_insert_cell",
    "notebook_edit_cell",
    "notebook_run_cell",
    "notebook_delete_cell",
)
TOOL_SETS = {"read-only": READ_ONLY, "coding": CODING, "data": DATA, "notebook": NOTEBOOK}

__all__ = [
    "apply_patch",
    "batch",
    "call_graph",
    "close_agent",
    "definition",
    "diagnostics",
    "edit_file",
    "edit_symbol",
    "exec_command",
    "forget",
    "get_memory",
    "glob",
    "grep_files",
    "inspect_variables",
    "kill_session",
    "list_agents",
    "list_dir",
    "list_sessions",
    "local_shell",
    "notebook_delete_cell",
    "notebook_edit_cell",
    "notebook_insert_cell",
    "notebook_read",
    "notebook_run_cell",
    "python",
    "read_file",
    "read_skill",
    "references",
    "remember",
    "request_user_input",
    "resume_agent",
    "send_input",
    "shell",
    "shell_command",
    "spawn_agent",
    "symbols",
    "tool_search",
    "update_plan",
    "view_image",
    "wait",
    "write_file",
    "write_stdin",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
