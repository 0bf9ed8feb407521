"""Skills: where they stand, what trust binds to, and how much of them is always sent."""

from pathlib import Path

import pytest

from agent_magics import FatalError
from agent_magics.config_files.places import config_folder
from agent_magics.project.digests import trust, untrusted, usable
from agent_magics.project.skills import describe_problems, find_skills, render_skills
from tests.support.skills import TOOL, home, trust_all, write_skill

__all__ = ["home"]

MINE = ".agent_magics/skills"


@pytest.fixture
def repository(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a").mkdir()
    return tmp_path


def names(skills):
    return [skill.name for skill in skills]


def own_folder():
    return config_folder() / "skills"


def test_the_nearest_of_the_project_comes_first_then_ones_own_then_other_agents(repository):
    write_skill(repository / MINE, "root")
    write_skill(repository / "a" / MINE, "near")
    write_skill(repository / ".claude/skills", "of-claude")
    write_skill(own_folder(), "own")
    for place in (".agents", ".claude", ".codex"):
        write_skill(Path.home() / place / "skills", f"home{place.replace('.', '-')}")
    assert names(find_skills(repository / "a")) == [
        *("near", "root", "of-claude", "own", "home-agents", "home-claude", "home-codex")
    ]
    assert names(usable(find_skills(repository / "a"))) == ["own"]


def test_a_name_stands_once_and_the_first_one_counts(repository):
    write_skill(repository / MINE, "one", "far")
    write_skill(repository / "a" / MINE, "one", "near")
    write_skill(own_folder(), "one", "own")
    assert [skill.text for skill in usable(find_skills(repository / "a"))] == ["own"]
    trust_all(repository / "a")
    assert [skill.text for skill in usable(find_skills(repository / "a"))] == ["near"]


def test_trust_binds_to_every_file_and_to_one_skill(repository):
    for name in ("one", "two"):
        write_skill(repository / MINE, name, scripts__run_dot_sh="echo 1")
    assert describe_problems(find_skills(repository)) == [
        "These skills, or their tools, are left out: one, two. You have not trusted them (or they "
        "have changed since). %agent skills trust shows them."
    ]
    one, _ = find_skills(repository)
    trust("skills", find_skills(repository), one.digest[:12])
    assert names(usable(find_skills(repository))) == ["one"]
    trust_all(repository)
    assert names(usable(find_skills(repository))) == ["one", "two"]
    (repository / MINE / "two" / "scripts" / "run.sh").write_text("echo 2")
    assert names(usable(find_skills(repository))) == ["one"]
    (repository / MINE / "one" / "more.md").write_text("")
    assert usable(find_skills(repository)) == []


@pytest.mark.parametrize("digest", ["", "abc", "0" * 12, "0" * 64])
def test_only_what_was_shown_can_be_trusted(repository, digest):
    skill = write_skill(repository / MINE, "one")
    seen = find_skills(repository)[0].digest
    (skill / "SKILL.md").write_text("---\nname: one\ndescription: Other.\n---\n")
    for wrong in (digest, seen[:12]):
        with pytest.raises(FatalError, match="%agent skills trust"):
            trust("skills", find_skills(repository), wrong)
    assert usable(find_skills(repository)) == []


def test_ones_own_are_used_at_once_but_their_tools_are_not(repository):
    write_skill(own_folder(), "own", tools_dot_py=TOOL.format(name="mine"))
    (skill,) = find_skills(repository)
    assert skill.is_usable and not skill.is_trusted and untrusted([skill]) == [skill]
    trust_all(repository)
    (skill,) = find_skills(repository)
    assert skill.is_trusted and untrusted([skill]) == []


def test_a_link_to_a_skill_is_followed_in_the_persons_own_folders_alone(repository, tmp_path):
    real = write_skill(tmp_path / "elsewhere", "linked")
    for folder in (own_folder(), repository / MINE):
        folder.mkdir(parents=True)
        (folder / "linked").symlink_to(real)
    first, second = find_skills(repository)
    assert first.problem == "it is a symbolic link" and first.place.is_relative_to(repository)
    assert second.is_usable and second.place == own_folder() / "linked"


def test_at_most_two_thousand_tokens_are_listed(repository):
    for number in range(60):
        write_skill(own_folder(), f"skill-{number:02}", about="word " * 150)
    text = render_skills(find_skills(repository))
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert all(len(line) <= 400 and line.endswith("…") for line in lines)
    assert sum(map(len, lines)) <= 8_000 and len(lines) == 19
    assert "(41 more; read_skill finds them by words of the task.)" in text
    assert render_skills([]) == ""
