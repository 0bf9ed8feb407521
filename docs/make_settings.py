"""Writes docs/settings.md from the table of settings, so that the page is never stale.

`python docs/make_settings.py` writes the page; with `--check` it only reports whether it is
current.
"""

import sys
from pathlib import Path

from agent_magics.protocol.config import Setting, Where
from agent_magics.settings.table import DEFAULTS, SETTINGS, choices_of

PAGE = Path(__file__).parent / "settings.md"
HEAD = """\
# Settings

<!-- Written by docs/make_settings.py from agent_magics/protocol/config.py; do not edit. -->

Each setting has one name everywhere: a keyword of `Agent(...)`, `%config AgentMagics.NAME = ...`,
an option of `%%agent` (`max_turns` is `--max-turns` there), a key of a configuration file. What is
set holds from the next cell, or the next run, on; only another `cwd` is refused while a
conversation goes on (`%%agent --new` begins one there), and another `name` for an agent.

Who wins, the first first:

1. the option of a cell, for that cell alone;
2. `%config`, or what a program gives;
3. the project's files: `[tool.agent-magics]` in `pyproject.toml`, and `.agent_magics/config.toml`,
   which goes before it. They hold once you have trusted these settings (`%agent settings trust`),
   and only where they make a run *stricter*; a server, a key, hooks or folders they cannot set.
   Trust binds the settings: when they change you are asked again, when the rest of the file
   changes you are not;
4. your own `config.toml`, in the folder of settings of your platform (on Linux
   `~/.config/agent-magics`);
5. the environment;
6. the default.

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


def main() -> int:
    """Write the page, or check it."""
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE} is out of date: run make fmt", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
