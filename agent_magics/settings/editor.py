"""Holds what the person has set in JupyterLab's settings editor, as pages report it.

Law: only settings that the person's own file may have too; so never a key.
"""

from collections.abc import Mapping
from typing import Any

from agent_magics.settings.table import settings_in_editor
from agent_magics.settings.validation import validated_in

_reported: dict[str, Any] = {}


def report(values: object) -> None:
    """Replace the reported settings; those that the editor does not have are left out.

    Args:
        values: by the setting's name, unchecked.
    """
    known = settings_in_editor()
    found = values if isinstance(values, Mapping) else {}
    now = {name: value for name, value in found.items() if name in known}
    _reported.clear()
    _reported.update(now)


def read_editor_settings() -> dict[str, object]:
    """Return the reported settings, validated.

    Raises:
        FatalError: one of them is invalid.
    """
    return validated_in(dict(_reported), lambda _: "In JupyterLab's settings editor")
