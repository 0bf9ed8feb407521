"""Lists the tools that MCP clients see: names, schemas and hints."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from mcp_types import Tool, ToolAnnotations

from agent_magics.dispatch.registry import ToolHandler
from agent_magics.dispatch.tool import is_tool
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import FunctionToolSpec
from agent_magics.text.brief import meant
from agent_magics.tools import TOOL_SETS
from agent_magics.tools.mcp.joining import GENERIC
from agent_magics.tools.mcp.names import PREFIX


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The served tools at one moment.

    Attributes:
        tools: the definitions that clients get.
        data: names of the tools that return values, not text.
        digest: a hash of the definitions, to detect changes.
    """

    tools: tuple[Tool, ...]
    data: frozenset[str]
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in order."""
        return tuple(tool.name for tool in self.tools)


def list_tools(
    turn_config: TurnConfig, wanted: Sequence[str] | None, *, complete: bool
) -> ToolListing:
    """Return the tools of a run as MCP definitions.

    Args:
        turn_config: the configuration of the calls.
        wanted: names of tools and sets; None means all of the agent's tools but those of other MCP
            servers.
        complete: whether a wanted tool that is missing is an error; else it is left out.

    Raises:
        FatalError: a wanted tool is missing.
    """
    there = [
        each.spec.name for each in turn_config.specs if turn_config.registry.handler(each.spec.name)
    ]
    if wanted is None:
        names = [name for name in there if not _is_foreign(name)]
    else:
        names = _chosen(wanted, there, complete=complete)
    specs = {each.spec.name: each.spec for each in turn_config.specs}
    functions = turn_config.registry.functions
    tools = []
    for name in names:
        spec = specs[name]
        if not isinstance(spec, FunctionToolSpec):  # a grammar or native: list its function
            function = functions[name]
            assert is_tool(function)  # what is data is offered as a function
            spec = function.spec
        handler = turn_config.registry.handler(name)
        assert handler is not None
        tools.append(_described(spec, handler))
    data = frozenset(name for name in names if _returns_data(name, functions, turn_config))
    digest = json.dumps([tool.model_dump(mode="json") for tool in tools], sort_keys=True)
    return ToolListing(tuple(tools), data, digest)


def _is_foreign(name: str) -> bool:
    """Return whether a tool belongs to another MCP server and is therefore not served again.

    An agent that is its own client would otherwise offer its tools to itself.
    """
    return name.startswith(PREFIX) or name in GENERIC


def _chosen(wanted: Sequence[str], there: Sequence[str], *, complete: bool) -> list[str]:
    """Expand names of tools and sets to tool names without repeats."""
    names: dict[str, None] = {}
    for entry in wanted:
        members = [name for name in TOOL_SETS.get(entry, (entry,)) if name in there]
        if complete and not members:
            raise FatalError(f"There is no tool {entry!r} to serve; {meant(entry, there)}")
        names.update(dict.fromkeys(members))
    return list(names)


def _described(spec: FunctionToolSpec, handler: ToolHandler) -> Tool:
    title = spec.name.replace("_", " ").replace("-", " ").strip().capitalize()
    return Tool(
        name=spec.name,
        title=title,
        description=spec.description,
        input_schema={"type": "object", **spec.parameters},
        annotations=ToolAnnotations(title=title, read_only_hint=not handler.options.mutating),
    )


def _returns_data(
    name: str, functions: Mapping[str, Callable[..., Any]], turn_config: TurnConfig
) -> bool:
    """Return whether a tool's JSON text is a value; our own tools return text for a model."""
    handler = turn_config.registry.handler(name)
    function = functions.get(name)
    if handler is None or handler.options.own:
        return False
    if function is None:
        return True
    try:
        returned = get_type_hints(inspect.unwrap(function)).get("return")
    except Exception:  # an annotation that names what is not there
        return True
    return returned is not str
