"""AGENTS.md: which files count, in which order, how much of them, and what hostile ones do."""

import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics import Agent, ScriptedModel
from agent_magics.files import plain_files
from agent_magics.project import instructions
from agent_magics.project.instructions import (
    MOST,
    NAMES,
    describe_instructions,
    describe_problems,
    read_instructions,
    render_instructions,
)


@pytest.fixture
def repository(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    return tmp_path


def names(files):
    return [file.path for file in files]


def test_from_the_root_down_and_the_nearest_last(repository):
    for place in ("AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"):
        (repository / place).write_text(f"of {place}")
    files = read_instructions(repository / "a" / "b")
    assert names(files) == ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"]
    text = render_instructions(files)
    assert (
        text.index("of AGENTS.md") < text.index("of a/AGENTS.md") < text.index("of a/b/AGENTS.md")
    )
    assert names(read_instructions(repository)) == ["AGENTS.md"]
    assert describe_instructions(read_instructions(repository)) == (
        "The project's instructions are read: `AGENTS.md`."
    )


def test_outside_a_repository_that_of_the_workspace_alone(tmp_path):
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "work").mkdir()
    assert read_instructions(tmp_path / "work") == ()
    (tmp_path / "work" / "AGENTS.md").write_text("mine")
    assert names(read_instructions(tmp_path / "work")) == ["AGENTS.md"]
    assert render_instructions(()) == describe_instructions(()) == ""


def test_a_workspace_behind_a_link_is_where_the_link_leads(repository, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "work"
    link.symlink_to(repository / "a")
    for place in ("AGENTS.md", "a/AGENTS.md"):
        (repository / place).write_text(f"of {place}")
    with Agent(ScriptedModel([]), [], cwd=link) as agent:
        agent.turn_config()
        assert names(agent.project) == ["AGENTS.md", "a/AGENTS.md"]


def test_another_name_counts_where_it_stands_alone(repository):
    (repository / "CLAUDE.md").write_text("root")
    (repository / "a" / "CLAUDE.md").write_text("no")
    (repository / "a" / "AGENTS.md").write_text("yes")
    files = read_instructions(repository / "a")
    assert names(files) == ["CLAUDE.md", "a/AGENTS.md"]
    assert [file.text for file in files] == ["root", "yes"]


def test_what_is_too_long_is_cut_where_it_is_farthest_and_that_is_said(repository):
    (repository / "AGENTS.md").write_text("r" * 1000)
    (repository / "a" / "AGENTS.md").write_text("n" * (MOST - 10))
    files = read_instructions(repository / "a")
    assert [len(file.text) for file in files] == [10, MOST - 10]
    assert "(990 more bytes; read the file for them.)" in render_instructions(files)
    assert describe_instructions(files) == (
        "The project's instructions are read: `AGENTS.md` (990 bytes left out: more than 32 KiB), "
        "`a/AGENTS.md`."
    )


def _fifo(path):
    os.mkfifo(path)


def _socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        server.bind(path.name)


def _sparse(path):
    with open(path, "wb") as file:
        file.truncate(20 << 30)


HOSTILE = {
    "a FIFO": (_fifo, "it is no regular file"),
    "a socket": (_socket, "it is no regular file"),
    "a link to a secret": (lambda path: path.symlink_to("/etc/shadow"), "it is a symbolic link"),
    "a link to zeros": (lambda path: path.symlink_to("/dev/zero"), "it is a symbolic link"),
    "a link to itself": (lambda path: path.symlink_to(path), "it is a symbolic link"),
    "a folder": (lambda path: path.mkdir(), "it is no regular file"),
    "a sparse file": (_sparse, "it is larger than 1 MiB"),
}


@pytest.mark.parametrize(("make", "reason"), HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_file_is_not_read_and_that_is_said(repository, make, reason):
    make(repository / "AGENTS.md")
    (repository / "a" / "AGENTS.md").write_text("good")
    files = read_instructions(repository / "a")
    assert describe_instructions(files) == "The project's instructions are read: `a/AGENTS.md`."
    assert describe_problems(files) == [f"AGENTS.md is not read: {reason}."]
    assert "good" in render_instructions(files)
    (repository / "CLAUDE.md").write_text("instead")
    assert [file.text for file in read_instructions(repository)] == ["instead"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_become_text_that_can_be_sent(repository, data):
    (repository / "AGENTS.md").write_bytes(data)
    files = read_instructions(repository)
    render_instructions(files).encode("utf-8")
    assert not any(file.problem or file.left_out for file in files)
    assert not set(files[0].text) & {"\x1b", "\u202e", "\x00", "\x9b"}


CHANGES = {
    "written in place": lambda file, number: file.write_text("x" * number),
    "replaced": lambda file, number: _new(file, number).replace(file),
    "removed": lambda file, number: file.unlink(missing_ok=True),
    # To a file of the test's own, which "written in place" then writes.
    "a link": lambda file, number: (file.unlink(missing_ok=True), file.symlink_to("linked")),
    "a folder": lambda file, number: (file.unlink(missing_ok=True), file.mkdir()),
}


def _new(file, number):
    new = file.with_name(f"new-{number}")
    new.write_text("y" * number)
    return new


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(list(CHANGES)), st.sampled_from(NAMES)), min_size=2))
def test_after_any_change_it_is_read_again(tmp_path_factory, monkeypatch, changes):
    monkeypatch.setattr(plain_files, "_TICK", 0)  # as if each change were long ago
    folder = tmp_path_factory.mktemp("work")
    for number, (change, name) in enumerate(changes, 1):
        if not (folder / name).is_dir():
            CHANGES[change](folder / name, number)
        seen = read_instructions(folder)
        anew = instructions._read(((folder, tuple((each, ()) for each in NAMES)),))
        assert seen == anew
