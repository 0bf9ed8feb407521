"""Which functions a list of names, sets and functions means."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from agent_magics import tools as builtin
from agent_magics.dispatch.shelf import join_tools
from agent_magics.dispatch.tool import as_tool
from agent_magics.models.families import DEFAULT_FORMS, ToolsConfig
from agent_magics.protocol.errors import FatalError


def resolve_tools(
    wanted: Sequence[str | Callable[..., Any]] | str | None,
    namespace: Mapping[str, Any],
    *,
    live: bool,
    forms: ToolsConfig = DEFAULT_FORMS,
) -> tuple[Callable[..., Any], ...]:
    """Return the tool functions that `wanted` names, each once.

    Args:
        wanted: names, sets and functions; None is the default set.
        namespace: where names that are no built-in are looked up (the notebook's).
        live: whether there is a live kernel, which the default set then has a tool for.
        forms: what the tools of a set are for the run's model.

    Raises:
        FatalError: a name is neither a tool, a set, nor a function in the namespace.
    """
    if wanted is None:
        wanted = ["data"] if live else ["coding"]
    entries = [wanted] if isinstance(wanted, str) or callable(wanted) else list(wanted)
    found: dict[Callable[..., Any], None] = {}
    for entry in entries:
        for fn in _resolve_entry(entry, namespace, forms):
            found[fn] = None
    return tuple(found)


def _resolve_entry(
    entry: Any, namespace: Mapping[str, Any], forms: ToolsConfig
) -> list[Callable[..., Any]]:
    if not isinstance(entry, str):
        return [as_tool(entry)]
    if entry in builtin.TOOL_SETS:
        names = chain.from_iterable(_forms_of(name, forms) for name in builtin.TOOL_SETS[entry])
        return [getattr(builtin, name) for name in names]
    if entry in builtin.__all__:
        return [getattr(builtin, entry)]
    if callable(namespace.get(entry)):
        return [as_tool(namespace[entry])]
    known = ", ".join([*builtin.TOOL_SETS, *builtin.__all__])
    raise FatalError(
        f"There is no tool named {entry!r}; there are: {known}, and your own functions."
    )


def _forms_of(name: str, forms: ToolsConfig) -> tuple[str, ...]:
    """Return the tools that a name in a set stands for, with this model."""
    if name == "shell":
        return (forms.shell,)
    if name == "apply_patch" and forms.apply_patch == "edit_file":
        return ("edit_file", "write_file")
    return () if name == "view_image" and not forms.view_image else (name,)


def check_names(functions: Iterable[Callable[..., Any]]) -> None:
    """Refuse two tools of one name.

    Raises:
        FatalError: there are two; says where both come from.
    """
    join_tools(functions)
