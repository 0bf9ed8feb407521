"""Completes words after ``%%agent`` and ``%agent``: options, their values, commands."""

import argparse
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_magics import tools as builtin
from agent_magics.kernel.commands.control import WORDS
from agent_magics.kernel.live.namespace import own_tools
from agent_magics.models.providers.catalog import known_models
from agent_magics.models.providers.endpoints import is_known, server_address
from agent_magics.project.digests import usable
from agent_magics.project.prompts import find_prompts
from agent_magics.protocol.errors import FatalError
from agent_magics.settings.sources import Source, resolve


def complete_line(
    line: str,
    parser: argparse.ArgumentParser,
    namespace: Mapping[str, object],
    workspace: Path = Path(),
    agents: Iterable[str] = (),
    given: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[str, list[str]]:
    """Return the begun word at the end of `line`, and what it may become.

    Args:
        line: the line from ``%%agent`` or ``%agent`` up to the cursor.
        parser: the options of ``%%agent`` with their choices.
        namespace: the person's variables, for their own tools.
        workspace: the folder of the agent, for its prompts.
        agents: the names of the agents.
        given: the settings of the notebook.
    """
    *words, begun = re.split(r"[\s=,]+", line)
    if words[0] == "%agent":
        known = WORDS.get(words[1]) if len(words) > 1 else None
        fitting: Iterable[str] = WORDS if len(words) == 1 else known.following if known else ()
    else:
        fitting = _fitting_options(words, begun, parser, namespace, agents, given)
        if "--prompt" in words:
            fitting = [*_fitting_prompts(words, workspace), *fitting]
    return begun, [word for word in fitting if word.startswith(begun)]


def _fitting_prompts(words: list[str], workspace: Path) -> Iterable[str]:
    """Return the names of the prompts; after a name, the fields that are not given yet."""
    _, *given = words[words.index("--prompt") :]
    prompts = {each.name: each.fields for each in usable(find_prompts(workspace))}
    if not given:
        return prompts
    return [f"{field}=" for field in prompts.get(given[0], ()) if field not in given]


def _fitting_options(
    words: list[str],
    begun: str,
    parser: argparse.ArgumentParser,
    namespace: Mapping[str, Any],
    agents: Iterable[str],
    given: Mapping[str, Any],
) -> Iterable[str]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    last = next((word for word in reversed(words) if word.startswith("--")), "")
    if last == "--tools" and not begun.startswith("-"):
        own = [fn.tool_options.name for fn in own_tools(namespace)]
        return [*builtin.TOOL_SETS, *builtin.__all__, *own]
    if last == words[-1] and (action := options.get(last)) and not begun.startswith("-"):
        if last == "--name":
            return agents
        if last in ("--model", "-m"):
            return _models(given)
        return list(action.choices or _values_of(last, namespace))
    return [name for name in options if name.startswith("--")]


def _models(given: Mapping[str, Any]) -> Iterable[str]:
    """Return the catalogue's models; none for a server of one's own, which has others."""
    with suppress(FatalError):
        settings = resolve([Source("notebook", given)]).settings
        if is_known(server_address(settings.base_url)):
            return sorted(known_models())
    return ()


def _values_of(option: str, namespace: Mapping[str, Any]) -> Iterable[str]:
    """Return values that an option without fixed choices may have."""
    if option in ("--map", "--into", "--output", "--engine"):
        wanted = type if option == "--output" else object
        return (
            name
            for name, value in list(namespace.items())
            if issubclass(type(value), wanted) and type(name) is str and name[:1] != "_"
        )
    return ()
