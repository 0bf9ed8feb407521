"""Writes docs/settings.md and the settings of JupyterLab's editor, so that they are never stale.

Both are made from the table of settings. `python docs/make_settings.py` writes them; with `--check`
it only reports whether they are current.
"""

import json
import sys
from pathlib import Path
from typing import Any

from agent_magics.protocol.config import Setting, Where
from agent_magics.settings.table import (
    DEFAULTS,
    SETTINGS,
    choices_of,
    schema_of,
    settings_in_editor,
)

PAGE = Path(__file__).parent / "settings.md"
SCHEMA = PAGE.parents[1] / "labextension" / "schema" / "settings.json"
HEAD = """\
# Settings

<!-- Written by docs/make_settings.py from agent_magics/protocol/config.py; do not edit. -->

Each setting has one name in all places where it may be given (the table's last column): a keyword
of `Agent(...)`, `%config AgentMagics.NAME = ...`, an option of `%%agent` (`max_turns` is
`--max-turns` there), a key of a configuration file. What is set holds from the next cell, or the
next run, on; only another `cwd` is refused while a conversation goes on (`%%agent --new` begins
one there), and another `name` for an agent.

Who wins, the first first:

1. the option of a cell, for that cell alone;
2. `%config`, or what a program gives (`Agent(...)`, later `agent.configure(...)`);
3. the project's files: `[tool.agent-magics]` in `pyproject.toml`, and `.agent_magics/config.toml`,
   which goes before it. They hold once you have trusted these settings (`%agent settings trust`),
   and only where they make a run *stricter*; a server, a key, hooks or folders they cannot set.
   Trust binds the settings: when they change you are asked again, when the rest of the file
   changes you are not;
4. what you set in JupyterLab: *Settings*, *Settings Editor*, *Agents*. Pages report it to their
   kernels; it holds for all notebooks, and never has a key;
5. your own `config.toml`, in the folder of settings of your platform (on Linux
   `~/.config/agent-magics`);
6. the environment;
7. the default.

`%agent settings` shows each value and where it comes from.

| setting | what it is | default | where |
| --- | --- | --- | --- |
"""
PLACES = {
    Where.CELL: "cell",
    Where.NOTEBOOK: "`%config`",
    Where.USER: "your file",
    Where.PROJECT: "project, stricter only",
}


def described(name: str, setting: Setting) -> str:
    """Return a setting's description, with its choices and its environment variable."""
    text = setting.help
    if choices_of(name):
        text += " One of: " + ", ".join(f"`{each}`" for each in choices_of(name)) + "."
    return text + (f" Also `{setting.variable}`." if setting.variable else "")


def default_of(name: str, setting: Setting) -> str:
    """Return the default as it is written, and that of a notebook where it differs."""
    value = getattr(DEFAULTS, name)
    plain = isinstance(value, str | int | float)
    text = f"`{value}`" if plain else "as described" if name == "loops" else "none"
    if isinstance(value, Path):
        text = "`.`"
    if setting.in_notebook is None:
        return text
    there = setting.in_notebook if isinstance(setting.in_notebook, str) else setting.in_notebook[0]
    return f"{text}; in notebooks `{there}`"


def page() -> str:
    """Return the page."""
    rows = []
    for name, setting in SETTINGS.items():
        places = [text for place, text in PLACES.items() if place in setting.where]
        where = ", ".join(places) or "programs only"
        cells = (f"`{name}`", described(name, setting), default_of(name, setting), where)
        rows.append("| " + " | ".join(cells) + " |")
    return HEAD + "\n".join(rows) + "\n"


def property_of(name: str, setting: Setting) -> dict[str, Any]:
    """Return a setting as JupyterLab's editor shows it."""
    default = getattr(DEFAULTS, name)
    title = name.replace("_", " ").capitalize()
    found = {"title": title, "description": setting.help, **schema_of(name)}
    return found if default in (None, ()) else {**found, "default": default}


def schema() -> str:
    """Return the schema of the settings in JupyterLab's editor."""
    properties = {name: property_of(name, each) for name, each in settings_in_editor().items()}
    made = {
        "title": "Agents",
        "description": "Settings of agents in all notebooks; %agent settings shows which hold.",
        "jupyter.lab.setting-icon": "agent-magics:agent",
        "properties": properties,
        "additionalProperties": False,
        "type": "object",
    }
    return json.dumps(made, indent=2) + "\n"


def main() -> int:
    """Write the page and the schema, or check them."""
    stale = [
        (file, text)
        for file, text in ((PAGE, page()), (SCHEMA, schema()))
        if not file.exists() or file.read_text(encoding="utf-8") != text
    ]
    for file, text in stale:
        if "--check" in sys.argv[1:]:
            print(f"{file} is out of date: run make fmt", file=sys.stderr)
        else:
            file.write_text(text, encoding="utf-8")
    return int(bool(stale) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
