"""The built-in tools: each is a plain Python function with ``@tool`` on it.

Read ``files/reading`` (`read_file`) first: it shows what a tool is.

By hand they are functions with your own rights: ``read_file("a.py")`` returns text,
``shell(["ls"])`` a result. Called by a model the same functions go through approval.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` says to type checkers that a name is public
    from agent_magics.tools.agents import close_agent as close_agent
    from agent_magics.tools.agents import list_agents as list_agents
    from agent_magics.tools.agents import resume_agent as resume_agent
    from agent_magics.tools.agents import send_input as send_input
    from agent_magics.tools.agents import spawn_agent as spawn_agent
    from agent_magics.tools.agents import wait as wait
    from agent_magics.tools.asking import request_user_input as request_user_input
    from agent_magics.tools.batching import batch as batch
    from agent_magics.tools.catalog.search import tool_search as tool_search
    from agent_magics.tools.code.inspection import inspect_variables as inspect_variables
    from agent_magics.tools.code.python import python as python
    from agent_magics.tools.commands.sessions import exec_command as exec_command
    from agent_magics.tools.commands.sessions import kill_session as kill_session
    from agent_magics.tools.commands.sessions import list_sessions as list_sessions
    from agent_magics.tools.commands.sessions import write_stdin as write_stdin
    from agent_magics.tools.commands.shell import local_shell as local_shell
    from agent_magics.tools.commands.shell import shell as shell
    from agent_magics.tools.commands.shell import shell_command as shell_command
    from agent_magics.tools.files.editing import edit_file as edit_file
    from agent_magics.tools.files.editing import write_file as write_file
    from agent_magics.tools.files.listing import glob as glob
    from agent_magics.tools.files.listing import list_dir as list_dir
    from agent_magics.tools.files.patch import apply_patch as apply_patch
    from agent_magics.tools.files.reading import read_file as read_file
    from agent_magics.tools.files.searching import grep_files as grep_files
    from agent_magics.tools.files.viewing import view_image as view_image
    from agent_magics.tools.memory import forget as forget
    from agent_magics.tools.memory import get_memory as get_memory
    from agent_magics.tools.memory import remember as remember
    from agent_magics.tools.notebook.cells import notebook_read as notebook_read
    from agent_magics.tools.notebook.changes import notebook_delete_cell as notebook_delete_cell
    from agent_magics.tools.notebook.changes import notebook_edit_cell as notebook_edit_cell
    from agent_magics.tools.notebook.changes import notebook_insert_cell as notebook_insert_cell
    from agent_magics.tools.notebook.changes import notebook_run_cell as notebook_run_cell
    from agent_magics.tools.plan import update_plan as update_plan
    from agent_magics.tools.skills import read_skill as read_skill
    from agent_magics.tools.structure.checks import diagnostics as diagnostics
    from agent_magics.tools.structure.editing import edit_symbol as edit_symbol
    from agent_magics.tools.structure.listing import symbols as symbols
    from agent_magics.tools.structure.relations import call_graph as call_graph
    from agent_magics.tools.structure.relations import definition as definition
    from agent_magics.tools.structure.relations import references as references

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
        "notebook_insert_cell notebook_edit_cell notebook_run_cell notebook_delete_cell"
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
SESSIONS = tuple(_TOOLS["commands.sessions"].split())
AGENTS = tuple(_TOOLS["agents"].split())
MEMORY = tuple(_TOOLS["memory"].split())
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
NOTEBOOK = ("notebook_read", *_TOOLS["notebook.changes"].split())
TOOL_SETS = {"read-only": READ_ONLY, "coding": CODING, "data": DATA, "notebook": NOTEBOOK}

if not TYPE_CHECKING:  # which read lists only where they are written out
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
