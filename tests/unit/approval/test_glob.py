"""Globs of rules: what each token stands for, and what is no glob."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.glob import is_glob, matches_glob


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


def test_the_worst_pattern_is_quick():
    began = time.process_time()
    assert not matches_glob("**/*a**/*a**/*a**b", "a/" * 150)
    assert time.process_time() - began < 5
