"""Lines end in one way."""

import pytest

from agent_magics.text.line_ends import with_newlines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb", "a\nb"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("a\rb\r", "a\nb\n"),
        ("a\r\r\nb\n\r", "a\n\nb\n\n"),
    ],
    ids=["newlines", "of Windows", "returns", "mixed"],
)
def test_lines_end_in_newlines(text: str, expected: str) -> None:
    assert with_newlines(text) == expected
