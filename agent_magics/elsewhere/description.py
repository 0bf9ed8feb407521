"""Describes a sub-agent so that another process can make it: settings, tools, type of the answer.

It is an argument of the worker's task, which may be shown and kept: no key is in it.
"""

import pickle
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

from agent_magics import tools as builtin
from agent_magics.dispatch.catalog.offer import ToolOffer
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.registry import ToolHandler, ToolRegistry, ToolRegistryBuilder
from agent_magics.dispatch.tool import Tool, offered_specs
from agent_magics.engine.results.structured import OutputType
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.models.providers.families import tools_config
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import FatalError, RespondToModel, typed_message
from agent_magics.protocol.tools import ConfiguredToolSpec

# The built-in tools that need nothing of the kernel: files, commands and Python of the worker.
THERE = frozenset(
    (
        *builtin.READ_ONLY,
        *builtin.SESSIONS,
        *("shell", "shell_command", "local_shell", "apply_patch", "write_file", "edit_file"),
        *("python", "update_plan", "batch"),
    )
)

STAYS = (
    "tools: {names} cannot be used in a worker: what needs this kernel, its notebook, its servers "
    "or its notes stays here. A sub-agent with engine= can have: {there}."
)
NO_HOOKS = "engine=: the agent's hooks are objects of this process, and would not see the calls."
NO_SHARE = (
    "share={name!r}: results are stored in this kernel, and a worker cannot read them; write it "
    "into the task, or give a tool that returns it."
)
NOT_SENT = (
    "{what} cannot be sent to a worker ({error}): it must be pickled, or importable there (a "
    "function of a notebook needs the package cloudpickle, which comes with Dask)."
)
NOT_READ = "{what} cannot be read in the worker on {host} ({error})."
NO_FOLDER = (
    "The worker on {host} has no folder {folder}: a sub-agent with engine= works in the folder of "
    "that name there; cwd= names another one."
)


@dataclass(frozen=True, slots=True)
class Description:
    """All that a worker needs to make a sub-agent, in a form that can be pickled.

    Attributes:
        path: the names of its parent and itself.
        config: the settings of its turns.
        built_in: names of its built-in tools.
        functions: its other tools, pickled, by name.
        output: the type of its answer, pickled; b"" is text.
    """

    path: str
    config: RunConfig = field(repr=False)
    built_in: tuple[str, ...] = ()
    functions: dict[str, bytes] = field(default_factory=dict, repr=False)
    output: bytes = field(default=b"", repr=False)


def describe(
    turn_config: TurnConfig, asked: Collection[str] | None, share: Collection[str]
) -> Description:
    """Return what a worker needs to make a sub-agent.

    Args:
        turn_config: the configuration that it would have here.
        asked: the tools that were asked for by name; None means all that can be there.
        share: what its parent is to share; see `SubAgentRequest`.

    Raises:
        RespondToModel: it was to have a tool or a result that stays here.
        FatalError: something of it cannot be sent.
    """
    if turn_config.hooks is not None:
        raise FatalError(NO_HOOKS)
    for name in share:
        if name.startswith("@"):
            raise RespondToModel(NO_SHARE.format(name=name))
    names = [each.spec.name for each in turn_config.offer.now().all]
    tools = {
        name: tool for name in names if (tool := _portable(turn_config.registry.handler(name)))
    }
    stay = [name for name in names if name not in tools and name in (asked or ())]
    if stay:
        there = ", ".join(sorted(tools)) or "none"
        raise RespondToModel(STAYS.format(names=", ".join(stay), there=there))
    output = (
        b""
        if turn_config.output is None
        else _pickled("The type of the answer", turn_config.output.kind)
    )
    return Description(
        turn_config.asker,
        replace(turn_config.config, features=dict(turn_config.config.features)),
        tuple(name for name, tool in tools.items() if tool.tool_options.own),
        {
            name: _pickled(f"The tool {name}", (tool, _resolved(tool)))
            for name, tool in tools.items()
            if not tool.tool_options.own
        },
        output,
    )


def _portable(handler: ToolHandler | None) -> Tool | None:
    """Return the tool of a handler that can run elsewhere; None for others."""
    if not isinstance(handler, FunctionToolHandler):
        return None
    options = handler.options
    return handler.function if not options.own or options.name in THERE else None


def _resolved(tool: Tool) -> dict[str, Any]:
    """Return the annotations of a function where some are texts: a pickle omits what these name."""
    written = getattr(tool, "__annotations__", {})
    if not (isinstance(tool, FunctionType) and any(isinstance(e, str) for e in written.values())):
        return {}
    with suppress(Exception):  # some name of theirs is not there: the schema could do without
        return get_type_hints(tool, include_extras=True)
    return {}


def tools_of(description: Description) -> tuple[tuple[ConfiguredToolSpec, ...], ToolRegistry]:
    """Return the tools that were sent, in the worker.

    Raises:
        FatalError: one of them cannot be read.
    """
    config = description.config
    freeform = tools_config(config.model, config.features).apply_patch == "freeform"
    tools = [getattr(builtin, name) for name in description.built_in]
    for name, data in description.functions.items():
        tool, annotations = _read(f"The tool {name}", data)
        if annotations:
            tool.__annotations__ = annotations
        tools.append(tool)
    builder = ToolRegistryBuilder()
    for tool in tools:
        handler = FunctionToolHandler(tool)
        spec = offered_specs(tool, freeform=freeform)
        builder.push_spec_with_parallel_support(spec, handler.supports_parallel)
        builder.register_handler(handler.options.name, handler)
    return builder.build()


def offer_of(specs: tuple[ConfiguredToolSpec, ...]) -> ToolOffer:
    """Return an offer of all tools in each request."""
    return ToolOffer(specs, {each.spec.name for each in specs})


def output_of(description: Description) -> OutputType | None:
    """Return the type of the answer, in the worker; None is text.

    Raises:
        FatalError: it cannot be read.
    """
    if not description.output:
        return None
    return OutputType(_read("The type of the answer", description.output))


def check_folders(folders: Collection[Path]) -> None:
    """Check that the folders of a sub-agent are there, in the worker.

    Raises:
        FatalError: one is missing.
    """
    for folder in folders:
        if not folder.is_dir():
            raise FatalError(NO_FOLDER.format(host=socket.gethostname(), folder=folder))


def _pickled(what: str, thing: Any) -> bytes:
    try:
        from cloudpickle import dumps  # noqa: PLC0415 - comes with Dask
    except ModuleNotFoundError:
        dumps = pickle.dumps
    try:
        data: bytes = dumps(thing)
    except Exception as error:  # an object's own code may raise anything
        raise FatalError(NOT_SENT.format(what=what, error=typed_message(error))) from None
    return data


def _read(what: str, data: bytes) -> Any:
    try:
        # It came as an argument of the task, from who may run any code in this worker.
        return pickle.loads(data)
    except Exception as error:  # it may need a module that is not here
        words = {"what": what, "host": socket.gethostname(), "error": typed_message(error)}
        raise FatalError(NOT_READ.format(**words)) from None
