"""Every table and key of a TOML text is found on its line, and odd files are refused."""

import os
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.config_files.toml_places import TomlPlaces, decode, parse_toml, read_settings
from agent_magics.protocol.errors import FatalError

HERE = Path("/p/config.toml")
TEXT = '''\
top = 1
a.b."c d" = 2
[first]  # [no.header]
key = [
  "x = 1", # ]
  "[second]",
]
'quoted.key' = """
last = 0
\\"""
[second]
""""  # [
[ first . "in ner" ]
key = { inline = 3, deep = { er = 4 } }
[[rule]]
key = 5
[[rule]]
key = 6
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 1),
        (("a", "b", "c d"), 2),
        (("a", "b"), 2),
        (("first",), 3),
        (("first", "key"), 4),
        (("first", "quoted.key"), 8),
        (("first", "in ner"), 13),
        (("first", "in ner", "key"), 14),
        (("first", "in ner", "key", "deep", "er"), 14),
        (("first", "not there"), 3),
        (("rule",), 15),
        (("second",), 1),
    ],
)
def test_the_line_of_a_key_or_of_what_it_stands_in(path, line):
    parse_toml(TEXT, HERE)
    assert TomlPlaces(TEXT).line_of(*path) == line


def test_values_over_lines_belong_to_their_statement():
    statements = TomlPlaces(TEXT).statements
    assert [(each.first, each.last) for each in statements if each.first != each.last] == [
        (4, 7),
        (8, 12),
    ]


@pytest.mark.parametrize("quotes", ['"""', "'''"])
@given(data=st.data())
def test_a_text_in_three_quotes_ends_where_it_ends_for_toml(quotes, data):
    inside = data.draw(st.text(st.sampled_from("\"'\\\n#[]{}=ax"), max_size=20))
    text = f"[[t]]\nx = {quotes}{inside}{quotes}\ny = 1\n"
    try:
        keys = [list(table) for table in parse_toml(text, HERE)["t"]]
    except FatalError:
        return
    if keys == [["x", "y"]]:  # else what was drawn ends the text, and begins another key
        lines = {each.path: each.first for each in TomlPlaces(text).statements}
        assert lines == {("t",): 1, ("t", "x"): 2, ("t", "y"): text.count("\n")}


@pytest.mark.soak
@pytest.mark.parametrize("piece", ['\\"""', "\\\\", '"" ', "'", '\\"'])
def test_a_long_line_costs_no_more_than_its_length(piece):
    began = process_time()
    assert TomlPlaces(f'x = """{piece * 200_000}"""\n').line_of("x") == 1
    assert process_time() - began < 2  # 0.1 s; one of 0.8 MB took 6


def test_what_is_not_toml_is_told_with_its_line():
    with pytest.raises(FatalError, match=r"/p/config\.toml, line 2: this is not TOML"):
        parse_toml("a = 1\nb = \n", HERE)
    with pytest.raises(FatalError, match=r"line 3: this is not TOML"):
        parse_toml('a = 1\nb = """\n', HERE)
    with pytest.raises(FatalError, match=r"line 2: this is not UTF-8"):
        decode(b"a = 1\n\xff = 2\n", HERE)


def test_only_a_plain_file_of_bounded_size_is_read(tmp_path):
    assert read_settings(tmp_path / "none", "rules", links=True) is None
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    for name in ("pipe", "large", "."):
        with pytest.raises(FatalError, match=r"The rules in .* cannot be read"):
            read_settings(tmp_path / name, "rules", links=True)
