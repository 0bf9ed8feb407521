"""A map whose answers are kept in a file, though a program's own model gives them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from agent_magics import Agent
from agent_magics.rows.planning import MapOptions
from agent_magics.rows.result import MapResult


def map_keeping(
    agent: Agent,
    prompt: str | Callable[[Any], Any],
    rows: Any,
    path: Path,
    **options: Unpack[MapOptions],
) -> MapResult:
    """Run a map as `Agent.map_sync` does, with its answers kept as those of a server are."""
    mapping = agent.mapping(prompt, rows, options=options)
    mapping._planned = replace(mapping._planned, cache=path)
    return mapping.wait_sync()
