"""Makes tool contexts for tests that call a tool without an engine."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.exec.environment import command_environment
from agent_magics.exec.processes import ProcessManager
from agent_magics.files.paths import is_denied_read, resolve_path
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import RespondToModel


def make_context(cwd: Path, env: Mapping[str, str] | None = None, **config: Any) -> ToolContext:
    """Return a context that collects its events in `context.extra["events"]`."""
    events = []

    def validate_path(path: str, mode: str) -> Path:
        resolved = resolve_path(path, cwd)
        if mode == "read" and is_denied_read(resolved):
            raise RespondToModel(f"{path} may not be read.")
        return resolved

    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="a",
        config=RunConfig(cwd=cwd, **config),
        env=command_environment(os.environ) if env is None else env,
        emit=lambda kind, **fields: events.append((kind, fields)),
        ask=None,
        call=None,
        validate_path=validate_path,
        messages=tuple,
        main_thread=None,
        processes=ProcessManager(),
        extra={"events": events},
    )
    return ToolContext(turn, "call_1", "shell")


def in_turn(context: ToolContext, **fields: Any) -> ToolContext:
    """Return the context of the same call in a turn with other fields."""
    return ToolContext(replace(context.turn, **fields), context.call_id, context.name)
