"""What a command line leads to: equal while nothing changes, different when anything does."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.approval.commands.identity import find_program, identity_of_command


@pytest.fixture
def place(tmp_path):
    (tmp_path / "bin").mkdir()
    write(tmp_path / "bin/tool", "echo one")
    write(tmp_path / "x.sh", "echo one")
    (tmp_path / "sub").mkdir()
    return tmp_path


def write(path, text, mode=0o755):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(mode)


def identity(place, argv, cwd=None, writable=True, **env):
    variables = {"PATH": f"{place}/bin:/usr/bin:/bin", **env}
    folders = [str(place)] if writable else ["/nowhere"]
    return json.dumps(identity_of_command(argv, str(cwd or place), variables, folders))


TOOL, SCRIPT = ["tool", "-x"], ["sh", "x.sh"]


@pytest.mark.parametrize(
    "argv", [TOOL, SCRIPT, ["./x.sh"], ["bash", "-c", "tool && sh x.sh"], ["no"]]
)
def test_it_is_equal_while_nothing_changes(place, argv):
    assert identity(place, argv) == identity(place, argv)


@pytest.mark.parametrize("writable", [True, False])
def test_another_program_is_another_identity(place, writable):
    before = identity(place, TOOL, writable=writable)
    write(place / "bin/tool", "echo two")
    assert identity(place, TOOL, writable=writable) != before


def test_a_program_that_others_may_write_is_known_by_its_content(place):
    before, kept = identity(place, TOOL), os.stat(place / "bin/tool")
    write(place / "new", "echo two")  # of the same size
    os.utime(place / "new", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    (place / "new").rename(place / "bin/tool")
    assert identity(place, TOOL) != before
    write(place / "bin/tool", "echo one")
    assert identity(place, TOOL) == before, "the content is what it was"


@pytest.mark.parametrize(
    "argv",
    [
        SCRIPT,
        ["./x.sh"],
        ["bash", "x.sh", "--flag"],
        ["python3", "-u", "x.sh"],
        ["bash", "-c", "ls && sh x.sh"],
        ["bash", "-c", "sh x.sh > out"],
        ["bash", "-c", "cat $(sh x.sh)"],
    ],
)
def test_a_script_is_known_by_its_content(place, argv):
    before = identity(place, argv)
    write(place / "x.sh", "echo two")
    assert identity(place, argv) != before
    write(place / "x.sh", "echo one")
    assert identity(place, argv) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda place: write(place / "bin/ls", "echo evil"),  # comes first in the search
        lambda place: (place / "bin").rename(place / "gone"),
        lambda place: (place / "bin/tool").chmod(0o644),
        lambda place: (place / "bin/tool").unlink(),
    ],
    ids=["earlier", "folder", "mode", "gone"],
)
def test_another_search_is_another_identity(place, change):
    argv = ["bash", "-c", "tool && ls"]
    before = identity(place, argv)
    change(place)
    assert identity(place, argv) != before


def test_a_program_that_appears_is_a_change(place):
    before = identity(place, ["later"])
    write(place / "bin/later", "echo")
    assert identity(place, ["later"]) != before


def test_words_folder_and_environment_belong_to_it(place):
    base = identity(place, TOOL)
    assert identity(place, [*TOOL, "y"]) != base
    assert identity(place, TOOL, cwd=place / "sub") != base
    assert identity(place, TOOL, LANG="C") != base
    old = identity(place, TOOL, cwd=place / "sub")
    (place / "other").mkdir()
    (place / "sub").rename(place / "gone")
    (place / "other").rename(place / "sub")
    assert identity(place, TOOL, cwd=place / "sub") != old, "another folder of the same name"


def test_a_pipe_or_a_huge_file_is_not_read(place):
    os.mkfifo(place / "pipe")
    assert identity(place, ["sh", "pipe"]) == identity(place, ["sh", "pipe"])
    with (place / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert identity(place, ["sh", "huge"]) == identity(place, ["sh", "huge"])


def test_a_program_is_found_as_execvp_finds_it(place):
    (place / "bin/folder").mkdir()
    write(place / "bin/plain", "echo", mode=0o644)
    search = f"{place}/none:{place}/bin:/usr/bin:/bin"
    assert find_program("tool", search) == f"{place}/bin/tool"
    assert find_program("folder", search) is None
    assert find_program("plain", search) is None
    assert find_program("sh", search) in ("/usr/bin/sh", "/bin/sh")
    assert find_program("a\0b", search) is None


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_words_have_an_identity(words):
    assert json.dumps(identity_of_command(words, "/", {"PATH": "/bin"}, ["/tmp"]))


MEANWHILE = {
    "run.log": (0o644, True),
    "steps.csv": (0o644, True),
    "n.ipynb": (0o644, True),
    "a.out": (0o755, False),
    "x.sh": (0o644, False),
    "other": (0o644, False),
}


@pytest.mark.parametrize(("name", "mode", "is_same"), [(n, *of) for n, of in MEANWHILE.items()])
def test_logs_may_grow_where_a_name_is_composed(place, name, mode, is_same):
    argv, env = ["bash", "-c", "tool $X"], {"PATH": f"{place}/bin"}
    before = identity_of_command(argv, str(place), env, [str(place)], once=True)
    write(place / name, "echo two two", mode)
    after = identity_of_command(argv, str(place), env, [str(place)], once=True)
    assert (before == after) is is_same
