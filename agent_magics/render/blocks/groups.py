"""Groups finished calls that stand side by side under one line, such as "6 commands, 2 searches".

What failed, was refused or still runs stays outside, and so does what a person was asked.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from agent_magics.protocol.items import Json, JsonMapping
from agent_magics.render.blocks.display import VERSION
from agent_magics.text.brief import brief

# One call is not worth a line of its own above it.
_LEAST = 2
_LONGEST_NAME = 40
_ALWAYS_SHOWN = ("request_user_input", "propose_plan")
# The same noun for all tools that do the same, as one and as many.
_COMMANDS = ("command", "commands")
_EDITS = ("file written", "files written")
_SEARCHES = ("search", "searches")
_NOTES = ("note", "notes")
_LOOKUPS = ("symbol looked up", "symbols looked up")
_NOUNS = {
    **dict.fromkeys(("shell", "shell_command", "exec_command", "local_shell"), _COMMANDS),
    **dict.fromkeys(("write_file", "edit_file"), _EDITS),
    **dict.fromkeys(("grep_files", "glob", "tool_search"), _SEARCHES),
    **dict.fromkeys(("get_memory", "remember", "forget"), _NOTES),
    "read_file": ("file read", "files read"),
    "list_dir": ("folder listed", "folders listed"),
    "apply_patch": ("patch", "patches"),
    "python": ("piece of Python", "pieces of Python"),
    "python (scratch)": ("piece of Python", "pieces of Python"),
    "inspect_variables": ("look at variables", "looks at variables"),
    "view_image": ("picture viewed", "pictures viewed"),
    "web_search": ("web search", "web searches"),
    "symbols": ("symbol search", "symbol searches"),
    **dict.fromkeys(("references", "definition", "call_graph"), _LOOKUPS),
    "edit_symbol": ("symbol edited", "symbols edited"),
    "diagnostics": ("check of code", "checks of code"),
    "notebook_read": ("look at the notebook", "looks at the notebook"),
    "notebook_insert_cell": ("cell inserted", "cells inserted"),
    "notebook_edit_cell": ("cell edited", "cells edited"),
    "notebook_delete_cell": ("cell deleted", "cells deleted"),
    "notebook_run_cell": ("cell run", "cells run"),
    "write_stdin": ("input to a command", "inputs to commands"),
    "kill_session": ("command ended", "commands ended"),
    "list_sessions": ("look at commands", "looks at commands"),
    "batch": ("batch of calls", "batches of calls"),
    "read_skill": ("skill read", "skills read"),
    "spawn_agent": ("sub-agent begun", "sub-agents begun"),
    "resume_agent": ("sub-agent resumed", "sub-agents resumed"),
    "close_agent": ("sub-agent closed", "sub-agents closed"),
    "list_agents": ("look at sub-agents", "looks at sub-agents"),
    "send_input": ("message to a sub-agent", "messages to sub-agents"),
    "wait": ("wait for sub-agents", "waits for sub-agents"),
}


def group_calls(items: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
    """Put each run of finished calls, with the reasoning between them, into an item of their own.

    Args:
        items: saved items, in the order of the display.

    Returns:
        The items; two or more calls in a row are one item of kind "group", with a title that
        counts them.
    """
    grouped: list[dict[str, Json]] = []
    for folds, each in groupby(items, may_fold):
        run = list(each)
        calls = [item for item in run if item["kind"] != "reasoning"]
        if not folds or len(calls) < _LEAST:
            grouped += run
        else:
            inside: list[Json] = [*run]
            title = _counted(calls)
            grouped.append({"version": VERSION, "kind": "group", "title": title, "items": inside})
    return grouped


def may_fold(item: JsonMapping) -> bool:
    """Return whether an item may stand folded in a group: reasoning, or a call that went well."""
    if item.get("kind") == "reasoning":
        return True
    is_call = item.get("kind") in ("tool", "patch")
    return is_call and item["status"] == "completed" and item["name"] not in _ALWAYS_SHOWN


def _counted(calls: Iterable[JsonMapping]) -> str:
    counts = Counter(_noun(str(call["name"])) for call in calls)
    return ", ".join(
        f"{count} {one if count == 1 else many}" for (one, many), count in counts.items()
    )


def _noun(name: str) -> tuple[str, str]:
    if name in _NOUNS:
        return _NOUNS[name]
    shown = brief(name, _LONGEST_NAME)
    return f"call of {shown}", f"calls of {shown}"
