"""Prompts: where they stand, what is trusted, and how fields are filled in."""

import pytest

from agent_magics import FatalError
from agent_magics.config_files.places import config_folder
from agent_magics.project.digests import digest_of_all, trust, untrusted
from agent_magics.project.prompts import fill_prompt, find_prompts
from tests.support.skills import home

__all__ = ["home"]


@pytest.fixture
def repository(tmp_path):
    (tmp_path / ".git").mkdir()
    return tmp_path


def write(folder, name, text):
    (folder / "prompts").mkdir(parents=True, exist_ok=True)
    (folder / "prompts" / name).write_text(text, encoding="utf-8")


def trust_all(workspace):
    found = find_prompts(workspace)
    return trust("prompts", found, digest_of_all(untrusted(found)))


def test_the_persons_own_is_used_at_once_and_that_of_the_project_once_trusted(repository):
    write(config_folder(), "hello.md", "Hello {{name}}.")
    write(repository / ".agent_magics", "hello.md", "Bye {{name}}.")
    assert fill_prompt(repository, "hello", {"name": "Ada"}) == "Hello Ada."
    trust_all(repository)
    assert fill_prompt(repository, "hello", {"name": "Ada"}) == "Bye Ada."
    write(repository / ".agent_magics", "hello.md", "Changed {{name}}.")
    assert fill_prompt(repository, "hello", {"name": "Ada"}) == "Hello Ada."


def test_the_mark_of_an_editor_is_no_prompt(repository):
    """Emacs makes a link to nothing beside each file that is being edited."""
    write(config_folder(), "hello.md", "Hello.")
    (config_folder() / "prompts/.#hello.md").symlink_to("me@here.1")
    assert [prompt.name for prompt in find_prompts(repository)] == ["hello"]


def test_what_is_given_must_be_the_fields(repository):
    write(config_folder(), "p.md", "{{a}} {{ b }} {{a}} {{ 1 }} {{a.b}} {c}")
    assert find_prompts(repository)[0].fields == ("a", "b")
    form = "write: --prompt p a=... b=...$"
    for values, fault in (
        ({}, "needs a, b; "),
        ({"a": ""}, "needs b; "),
        ({"a": "", "b": "", "c": ""}, "has no field c; "),
    ):
        with pytest.raises(FatalError, match=f"The prompt p {fault}{form}"):
            fill_prompt(repository, "p", values)
    assert (
        fill_prompt(repository, "p", {"a": "{{b}}", "b": "2"})
        == "{{b}} 2 {{b}} {{ 1 }} {{a.b}} {c}"
    )


def test_trust_needs_the_digest_that_was_shown(repository):
    write(repository / ".agent_magics", "p.md", "One.")
    for digest in ("", "0" * 12, find_prompts(repository)[0].digest[:11]):
        with pytest.raises(FatalError, match="%agent prompts trust"):
            trust("prompts", find_prompts(repository), digest)
    with pytest.raises(FatalError, match="You have not trusted the prompt p"):
        fill_prompt(repository, "p", {})
