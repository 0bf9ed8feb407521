"""Selects the settings that a conversation's record keeps for when it is resumed."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from agent_magics.models.error_redaction import keys_in_address

# Keys, and what may hold them; functions and objects of the program are seen by their type.
_NEVER = ("api_key", "mcp_servers", "language_servers", "on_question", "hooks")
_PLAIN = (str, int, float, bool, type(None))


def recordable(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings that JSON can represent and that are not secret.

    Args:
        values: settings by name, as they were given.

    Returns:
        The settings, and the names of those left out or shortened.
    """
    kept: dict[str, Any] = {}
    lost = []
    for name, value in values.items():
        try:
            if name in _NEVER or (name == "base_url" and keys_in_address(value or "")):
                raise TypeError
            kept[name], whole = _tools(value) if name == "tools" else (_plain(value), True)
        except TypeError:
            whole = value is None
        if not whole:
            lost.append(name)
    return kept, tuple(lost)


def _tools(value: Any) -> tuple[Any, bool]:
    """Return the names in a list of tools, and whether it holds nothing else."""
    if value is None or isinstance(value, str):
        return value, True
    names = [each for each in value if isinstance(each, str)]
    return names, len(names) == len(value)


def _plain(value: object) -> Any:
    """Convert a value to plain JSON data.

    Raises:
        TypeError: JSON cannot represent it.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, _PLAIN):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")
