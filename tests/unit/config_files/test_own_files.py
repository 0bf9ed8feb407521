"""Where our own files stand: moved with the platform's folders, and out of a model's reach."""

import re
from pathlib import Path

import pytest

import agent_magics
from agent_magics.config_files.places import config_folder, state_folder, trust_folder
from agent_magics.files.own_places import OWN_PARTS


def test_they_follow_the_environment(tmp_path, monkeypatch):
    for folder in (tmp_path / "one", tmp_path / "two"):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        assert config_folder() == folder / "agent-magics"
        assert state_folder() == folder / "state" / "agent-magics"


SOURCES = [each.read_text("utf-8") for each in Path(agent_magics.__file__).parent.rglob("*.py")]
KEPT = re.compile(r'what, command, kept = .*"(\w+)"')
TRUSTED = {what for text in SOURCES for what in KEPT.findall(text)}


def test_all_kinds_of_trusted_files_are_known():
    assert {"agents", "mcp", "memory", "settings", "tools"} <= TRUSTED


@pytest.mark.parametrize("what", sorted({*TRUSTED, "prompts", "rules", "skills"}))
def test_what_records_trust_is_protected_where_the_home_is_the_workspace(what, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(trust_folder(what).relative_to(Path.home())) in OWN_PARTS
