"""A TOML text is changed in one place, and every other byte of it stays."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_magics.config_files.toml_edit import (
    toml_key,
    toml_value,
    with_switch,
    with_table,
    without_table,
    write_text,
)
from agent_magics.protocol.errors import FatalError

HERE = Path("/p/config.toml")
PERSON = """\
# My servers; "[mcp_servers.fake]" in a comment is none.
[mcp_servers.git]   # reads my repositories
command = 'uvx'
args = [
  "mcp-server-git",  # ] not yet
  "[mcp_servers.fake]",
]

[mcp_servers.git.env]
TEXT = \"\"\"
[mcp_servers.fake]
\"\"\"

# about the docs server
[mcp_servers."my docs"]
url = "https://example.org/mcp"
# the end
"""

names = st.text(min_size=1, max_size=12)
texts = st.text(max_size=20)
values = st.dictionaries(
    st.sampled_from(["command", "args", "env", "enabled", "tool_timeout_sec"]),
    st.one_of(
        texts,
        st.booleans(),
        st.integers(-(2**60), 2**60),
        st.lists(texts, max_size=3),
        st.dictionaries(names, texts, max_size=3),
    ),
    max_size=4,
)
# Lines as people leave them, in any mixture that is valid.
line = st.sampled_from(
    [
        "",
        "   ",
        '# a comment with [brackets] and "quotes',
        "[mcp_servers.one]",
        "[mcp_servers.one.env]",
        '[ mcp_servers . "two" ] # two',
        "[other]",
        "[[rule]]",
        "[mcp_servers]",
        'command = "x"  # why',
        "args = ['''\n[mcp_servers.two]\n''', \"b\"]",
        'three = { command = "y" }',
        'mcp_servers.four.command = "z"',
        "enabled = true",
        'A = """\\"""" # odd',
    ]
)


def is_toml(text):
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def valid_part(lines):
    """Return the lines without those that would make no TOML of the ones before."""
    kept = []
    for each in lines:
        if is_toml("\n".join([*kept, each])):
            kept.append(each)
    return "\n".join(kept)


toml_texts = st.tuples(st.lists(line, max_size=12), st.booleans(), st.booleans()).map(
    lambda parts: (valid_part(parts[0]) + "\n" * parts[1]).replace(
        "\n", "\r\n" if parts[2] else "\n"
    )
)


def subtracted(whole, rest):
    """Return the lines that `rest` lacks, or None where it is not `whole` without some lines."""
    missing, lines = [], iter(rest)
    wanted = next(lines, None)
    for each in whole:
        if each == wanted:
            wanted = next(lines, None)
        else:
            missing.append(each)
    return missing if wanted is None else None


@settings(deadline=None)  # the machine may be busy
@given(text=texts)
def test_any_text_is_one_line_of_toml(text):
    assert tomllib.loads(f"k = {toml_value(text)}")["k"] == text
    assert len(toml_value(text).splitlines()) == 1


@settings(deadline=None)  # the machine may be busy
@given(name=names, value=values)
def test_any_settings_are_written_as_they_are(name, value):
    assert tomllib.loads(f"{toml_key(name)} = {toml_value(value)}") == {name: value}


@settings(deadline=None)  # the machine may be busy
@given(text=toml_texts, name=names, settings=values)
@example(text=PERSON, name="new one", settings={"command": "x", "args": ["a"]})
@example(text="a = 1", name="x", settings={})
def test_what_is_added_stands_behind_what_was_there_and_can_be_taken_out(text, name, settings):
    try:
        added = with_table(text, ("mcp_servers", name), settings, HERE)
    except FatalError:
        assert name in tomllib.loads(text).get("mcp_servers", {}) or "mcp_servers" in text
        return
    assert added.startswith(text)
    data = tomllib.loads(text)
    data.setdefault("mcp_servers", {})[name] = settings
    assert tomllib.loads(added) == data
    if name in tomllib.loads(text).get("mcp_servers", {}):
        return
    taken = without_table(added, ("mcp_servers", name), HERE)
    assert taken.rstrip("\r\n") == text.rstrip("\r\n") or taken == text


@settings(deadline=None)  # the machine may be busy
@given(text=toml_texts)
@example(text=PERSON)
def test_a_table_is_taken_out_and_no_other_line_changes(text):
    for name in tomllib.loads(text).get("mcp_servers", {}):
        try:
            left = without_table(text, ("mcp_servers", name), HERE)
        except FatalError:
            continue
        wanted, found = tomllib.loads(text), tomllib.loads(left)
        del wanted["mcp_servers"][name]
        assert {"mcp_servers": {}, **found} == wanted
        assert subtracted(text.split("\n"), left.split("\n") if left else []) is not None


@settings(deadline=None)  # the machine may be busy
@given(text=toml_texts, on=st.booleans())
@example(text=PERSON, on=False)
def test_a_switch_changes_one_line(text, on):
    for name in tomllib.loads(text).get("mcp_servers", {}):
        try:
            changed = with_switch(text, ("mcp_servers", name, "enabled"), on, HERE)
        except FatalError:
            continue
        wanted = tomllib.loads(text)
        wanted["mcp_servers"][name]["enabled"] = on
        assert tomllib.loads(changed) == wanted
        before, after = text.split("\n"), changed.split("\n")
        if len(before) == len(after):
            assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1
        else:
            assert len(subtracted(after, before)) == 1


def test_a_persons_file_keeps_comments_order_and_spaces():
    assert without_table(PERSON, ("mcp_servers", "git"), HERE) == (
        '# My servers; "[mcp_servers.fake]" in a comment is none.\n'
        "\n"
        "# about the docs server\n"
        '[mcp_servers."my docs"]\n'
        'url = "https://example.org/mcp"\n'
        "# the end\n"
    )
    assert with_switch(PERSON, ("mcp_servers", "my docs", "enabled"), False, HERE) == (
        PERSON.replace('docs"]\n', 'docs"]\nenabled = false\n')
    )


def test_what_stands_in_one_line_with_others_is_left_to_the_person():
    text = 'mcp_servers = { a = { command = "x" }, b = { command = "y" } }\n'
    for change in (
        lambda: without_table(text, ("mcp_servers", "a"), HERE),
        lambda: with_table(text, ("mcp_servers", "c"), {"command": "z"}, HERE),
        lambda: with_switch(text, ("mcp_servers", "a", "enabled"), True, HERE),
    ):
        with pytest.raises(FatalError, match=r"mcp_servers\.\w.* in /p/config\.toml .*by hand"):
            change()


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path):
    file = tmp_path / "config.toml"
    write_text(file, "a = 1\n", mode=0o600)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    write_text(file, "a = 2\n")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("a = 2\n", 0o640)
    assert os.listdir(tmp_path) == ["config.toml"]
