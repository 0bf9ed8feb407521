"""Writes skills for tests, and trusts them."""

from pathlib import Path

import pytest

from agent_magics.project.digests import digest_of_all, trust, untrusted
from agent_magics.project.skills import find_skills

TOOL = """
from agent_magics import tool

@tool
def {name}() -> str:
    "A tool of a skill."
    return "{name}"
"""


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path_factory):
    """Give a test a home of its own; it is used where a module imports its name."""
    place = tmp_path_factory.mktemp("home")
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(place / name))
    (place / "HOME").mkdir()


def write_skill(
    folder: Path, name: str, text: str = "Do it.", about: str = "", **files: str
) -> Path:
    """Write a skill and return its folder.

    Args:
        folder: where it stands, such as ``.agent_magics/skills``.
        name: its name, also of its folder.
        text: its instructions.
        about: its description.
        files: more files by path, with "__" for "/" and "_dot_" for ".".
    """
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {name}\ndescription: {about or f'What {name} is for.'}\n---\n"
    (skill / "SKILL.md").write_text(head + text, encoding="utf-8")
    for path, content in files.items():
        file = skill / path.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return skill


def trust_all(workspace: Path) -> None:
    """Trust all skills of a workspace."""
    found = find_skills(workspace)
    trust("skills", found, digest_of_all(untrusted(found)))
