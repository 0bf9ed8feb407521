"""The arguments of `Agent`, checked and put together: one sentence for each mistake."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from agent_magics.backends.paths import is_denied_read, literal_path, resolve_path, write_kind
from agent_magics.models.catalog import DATE, find_model
from agent_magics.models.endpoints import endpoint_of
from agent_magics.models.families import check_features
from agent_magics.protocol.config import (
    DEFAULT_MODEL,
    ApprovalPolicy,
    LoopLimits,
    RunConfig,
    SandboxPolicy,
    parse_choice,
)
from agent_magics.protocol.errors import FatalError, RespondToModel

INSTRUCTIONS = """\
You are an agent inside a Jupyter notebook; your words are shown as Markdown below the cell.
The workspace is {cwd}. Relative paths start there.
Use the tools to look and to act; do not guess what you can look up. {python} \
Some calls are put to the person first; when one is
denied, read the reason and go another way.
Be brief. Say what you found and what you changed, with the numbers that matter.
"""

# What INSTRUCTIONS say of the python tool, by where its code runs.
_PYTHON = {
    "live": """\
The python tool runs in the
person's own kernel: their variables are there, and what you define stays there. Prefer it for
data, and commands or patches for files.""",
    "scratch": """\
The python tool runs in a
process of its own, not in the person's kernel: pass it their variables with values; what you
define stays there. Prefer it for data, and commands or patches for
files.""",
    "off": """\
The person has
switched the python tool off; use commands and patches.""",
}

_NO_WORKSPACE = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/proc", "/run", "/sbin", "/sys"),
        *("/usr", "/var", "/Users", "/Library", "/System"),
    }
)


def make_config(
    *,
    model: Any,
    cwd: Any,
    instructions: str | None,
    writable_roots: Any,
    features: Mapping[str, Any] | None,
    **settings: Any,
) -> RunConfig:
    """Return the settings of an agent.

    Raises:
        FatalError: one of them is not usable; the message says which and why.
    """
    root = _folder("cwd", cwd)
    valid = checked({**settings, "features": {} if features is None else features})
    config = RunConfig(
        model=model if isinstance(model, str) else _model_name(model),
        cwd=root,
        instructions=_instructions(root, valid.get("python", "live"), instructions),
        writable_roots=_folders(writable_roots),
        **valid,
    )
    check_roots(config)
    return config


def config_for_run(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Return the settings of one run: the agent's, and what is different in it.

    Raises:
        FatalError: a name is no setting, or a value is not usable.
    """
    changed = replace(config, **checked(settings))
    before, now = _PYTHON[config.python], _PYTHON[changed.python]
    return replace(changed, instructions=changed.instructions.replace(before, now, 1))


def check_roots(config: RunConfig) -> None:
    """Refuse a workspace that would make a sandbox mean nothing.

    One's home is allowed, since on Binder the notebooks stand in it; its start files are then
    protected.

    Raises:
        FatalError: a folder that may be written is the whole machine, or the system's own.
    """
    if config.sandbox is not SandboxPolicy.WORKSPACE_WRITE:
        return
    for root in config.roots:
        if str(root) in _NO_WORKSPACE:
            raise FatalError(
                f"{str(root)!r} cannot be written as a whole in sandbox='workspace-write': start "
                "in a folder of your own (cwd=...), or use sandbox='read-only' or "
                "'danger-full-access'."
            )


def check_kinds(*, model: Any, instructions: Any, on_question: Any, wire_api: Any) -> None:
    """Refuse what would only be noticed in the middle of a run.

    Raises:
        FatalError: an argument is of the wrong kind.
    """
    if wire_api not in ("auto", "responses", "chat"):
        raise FatalError(f"wire_api={wire_api!r} is not one of: auto | responses | chat.")
    if not (model is None or isinstance(model, str) or hasattr(model, "stream")):
        raise FatalError(
            f"model={model!r} is neither a model's name nor a model (no stream method)."
        )
    if not (instructions is None or isinstance(instructions, str)):
        raise FatalError(f"instructions={instructions!r} must be text.")
    if not (on_question is None or callable(on_question)):
        raise FatalError(f"on_question={on_question!r} must be a function of the question.")


def _folder(option: str, path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise FatalError(f"{option}={path!r} is not a path.")
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise FatalError(f"{option}={str(path)!r} is not a folder; give one that exists.")
    return folder


def _folders(paths: Any) -> tuple[Path, ...]:
    if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable):
        raise FatalError(f"writable_roots={paths!r} must be a list of folders.")
    return tuple(_folder("writable_roots", path) for path in paths)


def _instructions(cwd: Path, python: str, more: str | None) -> str:
    text = INSTRUCTIONS.format(cwd=cwd, python=_PYTHON[python])
    return text + (f"\n{more}\n" if more else "")


def _model_name(model: Any) -> str:
    return getattr(model, "name", None) or DEFAULT_MODEL


def _positive(option: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FatalError(f"{option}={value!r} must be a whole number of at least 1.")
    return value


def _loops(value: Any) -> LoopLimits:
    if value is None or isinstance(value, LoopLimits):
        return value or LoopLimits()
    known = [field.name for field in fields(LoopLimits)]
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        raise FatalError(f"loops={value!r} takes these and no others: {', '.join(known)}.")
    for name, count in value.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise FatalError(f"loops: {name}={count!r} must be a whole number of at least 1.")
    return LoopLimits(**value)


def _flag(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise FatalError(f"{option}={value!r} must be True or False.")
    return value


def _choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise FatalError(f"{option}={value!r} is not one of: {' | '.join(choices)}.")
    return value


def _amount(option: str, value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise FatalError(f"{option}={value!r} must be a number greater than 0.")
    return float(value)


def check_price(config: RunConfig, address: str) -> None:
    """Refuse a budget in money where nobody can say what a request costs.

    Args:
        address: of the server; some say in each answer what it cost.

    Raises:
        FatalError: `max_cost` is set, and the price of the model is not known.
    """
    if config.max_cost is None or endpoint_of(address).reports_cost:
        return
    card = find_model(config.model)
    if card is None or card.input_price is None:
        raise FatalError(
            f"max_cost={config.max_cost:g} cannot be kept: the price of {config.model} is not "
            f"known (price list of {DATE}); use max_tokens or max_turns."
        )


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "approval": lambda value: parse_choice(ApprovalPolicy, value, "approval"),
    "sandbox": lambda value: parse_choice(SandboxPolicy, value, "sandbox"),
    "network": lambda value: _flag("network", value),
    "max_turns": lambda value: _positive("max_turns", value),
    "max_tokens": lambda value: None if value is None else _positive("max_tokens", value),
    "max_cost": lambda value: None if value is None else _amount("max_cost", value),
    "output_budget": lambda value: _positive("output_budget", value),
    "context_window": lambda value: None if value is None else _positive("context_window", value),
    "loops": lambda value: _loops(value),
    "python": lambda value: _choice("python", value, ("live", "scratch", "off")),
    "features": check_features,
}


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` of a run as `RunConfig` wants them.

    Raises:
        FatalError: a name is no setting, or a value is not usable.
    """
    known = {field.name for field in fields(RunConfig)}
    for name in settings:
        if name not in known:
            raise FatalError(f"{name!r} is not a setting of a run.")
    unchanged: Callable[[Any], Any] = lambda value: value  # noqa: E731
    return {name: _CHECKS.get(name, unchanged)(value) for name, value in settings.items()}


class PathJudge:
    """Turns a path as the model wrote it into a real one that this run may touch."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def __call__(self, path: str, mode: str) -> Path:
        """Return the real path; mode "judged" means that approval has looked at it already.

        Raises:
            RespondToModel: it may not be read or written.
        """
        resolved = resolve_path(path, self._config.cwd)
        # Judged as written and by what it leads to: a link may itself have a protected name.
        written = literal_path(path, self._config.cwd)
        reason = ""
        if mode == "read":
            reason = is_denied_read(written) or is_denied_read(resolved)
        elif mode == "write":
            read_only = self._config.sandbox is SandboxPolicy.READ_ONLY
            allowed, why = write_kind(written, self._config.roots, read_only)
            if allowed:  # and what was found just now, should a link have been swapped since
                allowed, why = write_kind(resolved, self._config.roots, read_only)
            reason = "" if allowed else why
        if reason:
            raise RespondToModel(f"{path} may not be touched ({mode}): {reason}.")
        return resolved
