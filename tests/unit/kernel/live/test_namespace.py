"""What stands in a prompt for `{{expression}}`."""

import pytest

from agent_magics.kernel.live.namespace import interpolate


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("None", "None"),
        ("{}.get('a')", "None"),
        ("[None]", "[null]"),
        ("''", ""),
        ("'  a  '", "  a  "),
        ("False", "false"),
    ],
)
def test_a_value_reads_as_itself_and_not_as_what_a_tool_has_done(
    expression: str, text: str
) -> None:
    assert interpolate(f"<{{{{{expression}}}}}>", {}) == f"<{text}>"
