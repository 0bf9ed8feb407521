"""Expressions in braces, and braces that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.kernel.live.namespace import interpolate
from agent_magics.rows.prompts import Template
from agent_magics.text.braces import split_at_braces

TEXTS = st.text(st.sampled_from("{}\\a \n"))


@given(TEXTS, TEXTS)
def test_braces_behind_a_backslash_are_text_and_hide_no_expression(before, after):
    """So JupyterLab writes texts of others into prompts, and its variables behind them."""
    one, other = (text.replace("{{", r"\{{") for text in (before, after))
    assert split_at_braces(one) == [before]
    assert split_at_braces(f"{one} {{{{x}}}} {other}") == [f"{before} ", "x", f" {after}"]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (r"What is \{{ in {{x}}?", "What is {{ in 1?"),
        (r"{{x}} and \{{", "1 and {{"),
        (r"\{{x}} is {{ x }}", "{{x}} is 1"),
        (r"\{{{x}}} {{x}}", "{{{x}}} 1"),
        ("{{}} and {{x", "{{}} and {{x"),
    ],
)
def test_the_prompts_of_cells_and_of_rows_have_the_same_braces(prompt, text):
    assert interpolate(prompt, {"x": 1}) == Template(prompt).fill((1,)) == text
