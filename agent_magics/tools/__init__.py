"""Floor 3: what the model can do; every one is a plain Python function with ``@tool`` on it.

By hand they are functions with your own rights: ``read_file("a.py")`` returns text,
``shell(["ls"])`` a result. Called by a model the same functions go through approval.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "read_file": "reading",
    "list_dir": "listing",
    "glob": "listing",
    "grep_files": "searching",
    "view_image": "viewing",
    "apply_patch": "patch",
    "write_file": "editing",
    "edit_file": "editing",
    "shell": "command",
    "shell_command": "command",
    "local_shell": "command",
    "exec_command": "exec_session",
    "write_stdin": "exec_session",
    "list_sessions": "exec_session",
    "kill_session": "exec_session",
    "update_plan": "plan",
    "python": "live_python",
    "inspect_variables": "inspection",
    "notebook_read": "notebook_cells",
    "notebook_insert_cell": "notebook_changes",
    "notebook_edit_cell": "notebook_changes",
    "notebook_delete_cell": "notebook_changes",
    "notebook_run_cell": "notebook_changes",
    "batch": "batching",
    "tool_search": "finding",
}

READ_ONLY = ("read_file", "list_dir", "grep_files", "glob", "view_image")
SESSIONS = ("exec_command", "write_stdin", "list_sessions", "kill_session")
CODING = (*READ_ONLY, *SESSIONS, "shell", "apply_patch", "update_plan")
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
    "edit_file",
    "exec_command",
    "glob",
    "grep_files",
    "inspect_variables",
    "kill_session",
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
    "shell",
    "shell_command",
    "tool_search",
    "update_plan",
    "view_image",
    "write_file",
    "write_stdin",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # No module may bear its tool's name: importing it would put the module in the tool's place.
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
