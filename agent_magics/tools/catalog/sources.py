"""Reads lists of tools: built-in tools and sets, tools of a program, and names of MCP tools."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from agent_magics import tools as builtin
from agent_magics.dispatch.handlers.handed import Given, to_tool
from agent_magics.dispatch.tool import Tool
from agent_magics.models.providers.families import DEFAULT_FORMS, ToolsConfig
from agent_magics.protocol.errors import FatalError
from agent_magics.text.brief import meant
from agent_magics.tools.mcp.names import PREFIX, WORD

Entry: TypeAlias = str | Given
# What `Agent(tools=...)` takes; one entry need not stand in a list, None is the default set.
ToolList: TypeAlias = Sequence[Entry] | Entry | None


def entries_of(wanted: ToolList) -> list[Any]:
    """Return the entries of a list of tools; a single tool or name counts as a list of one."""
    if isinstance(wanted, list):  # as nearly always
        return wanted
    if wanted is None:
        return []
    if isinstance(wanted, str):
        return [*filter(None, map(str.strip, wanted.split(",")))] or [wanted]
    return [*wanted] if isinstance(wanted, Iterable) else [wanted]


def names_only_built_in(wanted: ToolList) -> bool:
    """Return whether all names in a list are those of built-in tools and sets."""
    names = (each for each in entries_of(wanted) if isinstance(each, str))
    return all(each in builtin.TOOL_SETS or each in builtin.__all__ for each in names)


def names_sets(wanted: ToolList) -> bool:
    """Return whether a list names a set of tools; None names the default one."""
    return wanted is None or any(
        isinstance(each, str) and each in builtin.TOOL_SETS for each in entries_of(wanted)
    )


def split_tools(
    wanted: ToolList, namespace: Mapping[str, Any]
) -> tuple[list[Any] | None, tuple[str, ...]]:
    """Split a list of tools into the entries of the program and the names of MCP tools.

    Args:
        wanted: names, sets and tools; None names nothing.
        namespace: tools by name, which take precedence over those of MCP servers.
    """
    if wanted is None:
        return None, ()
    rest: list[Any] = []
    names: dict[str, None] = {}
    for entry in entries_of(wanted):
        if _is_of_server(entry) and not callable(namespace.get(entry)):
            names[entry] = None
        else:
            rest.append(entry)
    return rest, tuple(names)


def _is_of_server(entry: object) -> bool:
    return isinstance(entry, str) and (entry == WORD or entry.startswith(PREFIX))


def resolve_tools(
    wanted: ToolList,
    namespace: Mapping[str, Any],
    *,
    live: bool,
    forms: ToolsConfig = DEFAULT_FORMS,
    absent: Collection[str] = (),
) -> tuple[Tool, ...]:
    """Return the tools that `wanted` names, without repeats.

    Args:
        wanted: names, sets and tools; None means the default set.
        namespace: tools for names that are not built in (the notebook's variables).
        live: whether there is a live kernel, which adds a tool to the default set.
        forms: the forms in which the run's model is offered tools.
        absent: tools that a set does not bring here; each can still be named itself.

    Raises:
        FatalError: an entry is neither a tool, a set, nor the name of one in the namespace.
    """
    if wanted is None:
        wanted = "data" if live else "coding"
    found = (_resolve_entry(entry, namespace, forms, absent) for entry in entries_of(wanted))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def _resolve_entry(
    entry: object, namespace: Mapping[str, Any], forms: ToolsConfig, absent: Collection[str]
) -> list[Tool]:
    if not isinstance(entry, str):
        return [to_tool(entry)]
    if entry in builtin.TOOL_SETS:
        members = (name for name in builtin.TOOL_SETS[entry] if name not in absent)
        names = chain.from_iterable(_forms_of(name, forms) for name in members)
        return [getattr(builtin, name) for name in names]
    if entry in builtin.__all__:
        return [getattr(builtin, entry)]
    named = namespace.get(entry)
    if callable(named) or hasattr(named, "handle"):
        return [to_tool(named)]
    known = [*builtin.TOOL_SETS, *builtin.__all__]
    raise FatalError(f"There is no tool named {entry!r}; {meant(entry, known)}")


def _forms_of(name: str, forms: ToolsConfig) -> tuple[str, ...]:
    """Return the tools that a name in a set means for the run's model."""
    if name == "shell":
        return (forms.shell,)
    if name == "apply_patch" and forms.apply_patch == "edit_file":
        return ("edit_file", "write_file")
    return () if name == "view_image" and not forms.view_image else (name,)
