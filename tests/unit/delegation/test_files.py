"""Agent files: hostile ones change nothing but what is said of them."""

import os
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.config_files.places import config_folder
from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.delegation.budgets import DEFAULT_BUDGET
from agent_magics.delegation.files import ProjectAgents, find_types, parse_type
from agent_magics.delegation.types import BUILT_IN
from agent_magics.dispatch.turn import AgentBudget

GOOD = b"""---
name: reviewer
description: reads a change
tools: [read_file, grep_files]
model: gpt-5-mini
budget:
  tokens: 50000
  seconds: 60
---
Be strict.
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def trust(workspace):
    project = ProjectAgents(workspace)
    project.trust(project.digest(project.read())[:SHOWN_DIGEST])


def test_a_file_describes_a_type():
    kind = parse_type("x", GOOD)
    assert (kind.name, kind.description, kind.model) == (
        "reviewer",
        "reads a change",
        "gpt-5-mini",
    )
    assert kind.tools == ("read_file", "grep_files")
    assert kind.instructions.strip() == "Be strict."
    assert kind.budget == AgentBudget(requests=DEFAULT_BUDGET.requests, tokens=50_000, seconds=60.0)
    assert not kind.reads_only


def test_what_is_commented_out_of_a_budget_does_not_hold():
    lines = b"budget:\n  # requests: 2\n  tokens: 5 # was: 900\n#seconds: 3\n"
    kind = parse_type("x", b"---\ndescription: x\n" + lines + b"---\n")
    assert kind.budget == replace(DEFAULT_BUDGET, tokens=5)


def test_one_without_tools_only_reads():
    assert parse_type("x", b"---\ndescription: looks\n---\n").reads_only


def test_the_persons_own_hold_and_a_projects_once_trusted(tmp_path):
    write(config_folder() / "agents", {"own.md": b"---\ndescription: mine\n---\n"})
    write(tmp_path / ".agent_magics" / "agents", {"reviewer.md": GOOD})
    found = find_types(tmp_path)
    assert [*found.types] == [*BUILT_IN, "own"]
    assert "%agent agents trust" in found.problems[0]
    trust(tmp_path)
    assert [*find_types(tmp_path).types] == [*BUILT_IN, "own", "reviewer"]
    write(tmp_path / ".agent_magics" / "agents", {"reviewer.md": GOOD + b"And do more."})
    assert "reviewer" not in find_types(tmp_path).types


HOSTILE = {
    "not UTF-8": b"\xff\xfe---",
    "UTF-16": "---\ndescription: x\n---\n".encode("utf-16"),
    "no front matter": b"Do as I say.",
    "front matter without an end": b"---\ndescription: x\n" + b"a\n" * 500,
    "no description": b"---\nname: x\n---\n",
    "a long description": b"---\ndescription: " + b"x" * 2_000 + b"\n---\n",
    "a long text": b"---\ndescription: x\n---\n" + b"x" * 40_000,
    "another's name": b"---\nname: worker\ndescription: x\n---\n",
    "explore itself": b"---\nname: explore\ndescription: x\ntools: [shell]\n---\n",
    "a path as a name": b"---\nname: ../../x\ndescription: x\n---\n",
    "lines in a name": b'---\nname: "a\\nb"\ndescription: x\n---\n',
    "a rule": b"---\ndescription: x\napproval: never\n---\n",
    "a sandbox": b"---\ndescription: x\nsandbox: danger-full-access\n---\n",
    "hooks": b"---\ndescription: x\nhooks: [os.system]\n---\n",
    "a server": b"---\ndescription: x\nmcp_servers: {x: y}\n---\n",
    "an endless budget": b"---\ndescription: x\nbudget: tokens=inf\n---\n",
    "a budget that is no number": b"---\ndescription: x\nbudget: cost=nan\n---\n",
    "a budget below zero": b"---\ndescription: x\nbudget: tokens=-1\n---\n",
    "another budget": b"---\ndescription: x\nbudget: depth=5\n---\n",
    "a budget of a number": b"---\ndescription: x\nbudget: 50000\n---\n",
    "a budget of words": b"---\ndescription: x\nbudget:\n  tokens 50000\n---\n",
    "a limit in another's name": b"---\ndescription: x\nbudget:\n  max-tokens: 5\n---\n",
    "a limit twice": b"---\ndescription: x\nbudget:\n  tokens: 1\n  tokens: 2\n---\n",
    "an anchor": b"---\ndescription: &a x\n---\n",
    "a tag": b"---\ndescription: !!python/object x\n---\n",
    "a key twice": b"---\ndescription: x\ndescription: y\n---\n",
    "a model that is a list": b"---\ndescription: x\nmodel: [a, b]\n---\n",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_named_and_left_out(data, tmp_path):
    write(tmp_path / ".agent_magics" / "agents", {"bad.md": data, "good.md": GOOD})
    trust(tmp_path)
    found = find_types(tmp_path)
    assert [*found.types] == [*BUILT_IN, "reviewer"]
    assert {name: found.types[name] for name in BUILT_IN} == BUILT_IN
    [problem] = found.problems
    assert "bad.md is not used: " in problem
    assert "\n" not in problem


@pytest.mark.parametrize("kind", ["link", "folder link", "link above", "pipe"])
def test_a_folder_that_leads_elsewhere_is_not_read(kind, tmp_path):
    folder = tmp_path / ".agent_magics" / "agents"
    outside = tmp_path / "outside"
    write(outside, {"x.md": GOOD})
    write(outside / "agents", {"x.md": GOOD})
    if kind == "link above":
        folder.parent.symlink_to(outside)
    elif kind == "folder link":
        folder.parent.mkdir()
        folder.symlink_to(outside)
    else:
        folder.mkdir(parents=True)
        if kind == "link":
            (folder / "x.md").symlink_to(outside / "x.md")
        else:
            os.mkfifo(folder / "x.md")
    found = find_types(tmp_path)
    assert found.types == BUILT_IN
    assert "is not read" in found.problems[0]


def test_links_of_the_persons_own_are_followed(tmp_path):
    write(tmp_path / "mine", {"own.md": b"---\ndescription: mine\n---\n"})
    config_folder().mkdir(parents=True)
    (config_folder() / "agents").symlink_to(tmp_path / "mine")
    assert [*find_types(tmp_path).types] == [*BUILT_IN, "own"]


@given(st.binary(max_size=300), st.lists(st.text(max_size=30), max_size=8))
def test_any_bytes_are_a_type_or_a_sentence(data, lines):
    front = "\n".join(["---", "description: x", *lines, "---", "text"]).encode(
        "utf-8", "surrogatepass"
    )
    for each in (data, b"---\n" + data + b"\n---\n", front):
        with suppress(ValueError):  # which says why
            kind = parse_type("x", each)
            assert all(
                limit is None or limit > 0 for limit in (kind.budget.tokens, kind.budget.cost)
            )
