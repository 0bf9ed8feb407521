"""Globs of rules: what each token stands for, and what is no glob."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.approval import glob
from agent_magics.approval.glob import is_glob, matches_glob


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("src/**", ["src", "src/a", "src/a/b.py"], ["srcs", "lib/src/a", "src2/a", ""]),
        ("**/*.py", ["a.py", "a/b/c.py"], ["a.pyc", "py"]),
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyx"]),
        ("**", ["", "a", "a/b"], []),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("a[bc]d", ["abd", "acd"], ["aed", "abcd"]),
        ("a[!bc]d", ["aed"], ["abd", "a/d"]),
        ("[", ["["], ["a"]),
        ("a.b", ["a.b"], ["axb"]),
        ("mcp__git__*", ["mcp__git__log"], ["mcp__hub__log"]),
        ("/etc/**", ["/etc", "/etc/passwd"], ["etc/passwd"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/bx"]),
        ("[]]", ["]"], ["["]),
    ],
)
def test_what_a_pattern_fits(pattern, fitting, others):
    assert is_glob(pattern)
    for text in fitting:
        assert matches_glob(pattern, text), text
    for text in others:
        assert not matches_glob(pattern, text), text


@pytest.mark.parametrize("pattern", ["[z-a]", "**/**/**/**/**", "a" * 1_001])
def test_what_cannot_be_matched_soon_is_no_glob(pattern):
    assert not is_glob(pattern)


@given(st.text(alphabet="ab/.-_ ()+\\^$|{}", max_size=30))
def test_ordinary_text_fits_itself_alone(text):
    assert matches_glob(text, text)
    assert not matches_glob(text, text + "x")


@given(st.text(alphabet="a*?[]!/-^", max_size=30), st.text(alphabet="a/-", max_size=30))
def test_any_pattern_is_matched_or_is_none(pattern, text):
    if is_glob(pattern):
        assert matches_glob(pattern, text) in (True, False)


@given(
    st.lists(st.sampled_from(["a", "b", "/", "?", "[ab]", "*", "**", "**/", "/**"]), max_size=8),
    st.text(alphabet="ab/", max_size=12),
)
def test_both_ways_of_matching_agree(tokens, text):
    pattern = "".join(tokens)
    if pattern.count("**") <= 2:
        by_places = glob._fits(glob._tokens(pattern), text)
        assert by_places is (glob._compiled(pattern).match(text) is not None)


@pytest.mark.parametrize("pattern", ["**/*a**/*a**/*a**b", "*a" * 50 + "b", "**a*a**a*a**a*a**a*b"])
@pytest.mark.parametrize("text", ["a/" * 150, "a" * 2_000], ids=["folders", "a name"])
def test_the_worst_patterns_are_quick(pattern, text):
    began = time.process_time()
    assert not matches_glob(pattern, text)
    assert time.process_time() - began < 5
