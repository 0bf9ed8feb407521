"""How two recordings differ, as people read it."""

import pytest

from agent_magics.models.recordings.format import Exchange, Header, RecordedAnswer, Recording
from agent_magics.models.recordings.handwritten import write_reply
from agent_magics.models.recordings.text import differences
from agent_magics.protocol.items import AssistantMessage


def recording(letters):
    sse = write_reply([AssistantMessage("\n".join(letters))]).decode()
    return Recording(Header("hand"), (Exchange("go", 1, RecordedAnswer(sse)),))


def shown(before, after):
    (found,) = differences(recording(before), recording(after))
    return "".join(line[0] + line[-1] if line != "…" else "…" for line in found.lines)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("abcdefgh", "abcDefgh", "… c-d+D e"),
        ("abcdefgh", "Abcdefgh", "… 1-a+A b"),  # below the number of the request
        ("abcdefgh", "abcdefgH", "… g-h+H"),
        ("abcdefgh", "aBcdEfgh", "… a-b+B c d-e+E f"),  # two equal lines between
        ("abcdefgh", "aBcdeFgh", "… a-b+B c… e-f+F g"),
        ("abcdefgh", "abcdefghi", "… h+i"),
        ("ab" * 5000, "ab" * 2000 + "c" + "ab" * 3000, "… b+c a"),
    ],
)
def test_what_differs_is_shown_with_its_neighbours(before, after, lines):
    assert shown(before, after) == lines


def test_long_recordings_with_the_same_lines_are_compared_at_once():
    lines = shown("c" + "ab" * 3000 + "c", "d" + "ba" * 2000 + "d")
    assert (lines.count("-"), lines.count("+")) == (6002, 4002)
