"""Declares the keywords of `Agent` for editors and type checkers, as tested against the table."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from agent_magics.protocol.config import LoopLimits, PythonPlace, WireApi

PathLike = str | os.PathLike[str]


class AgentKeywords(TypedDict, total=False):
    """The keywords of `Agent` beside `model` and `tools`; `protocol.config` describes each."""

    name: str
    cwd: PathLike
    instructions: str | None
    approval: Literal["untrusted", "on-request", "on-failure", "never"]
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"]
    network: bool
    writable_roots: Iterable[PathLike]
    base_url: str | None
    api_key: str | None
    wire_api: WireApi
    mcp_servers: Mapping[str, Any] | None
    language_servers: Mapping[str, Any] | None
    replay: PathLike | None
    replay_strict: bool
    record: PathLike | None
    on_question: Callable[[Any], Any] | None
    hooks: Sequence[Any]
    max_turns: int
    max_tokens: int | None
    max_cost: float | None
    python: PythonPlace
    output_budget: int
    context_window: int | None
    loops: LoopLimits | Mapping[str, int] | None
    allow_dangerous: bool
    check_edits: bool
    features: Mapping[str, Any] | None
    tool_budget: int
    rollout_days: int
