"""Single changes are taken out of a text again, and what a person has typed there stays."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.file_history.diff import file_diff
from agent_magics.file_history.hunks import ChangedText
from agent_magics.file_history.states import PathState

FILE = PathState("file", 0o644)
TEXTS = st.lists(st.sampled_from(["a", "b", "", "é\r", "}"]), max_size=40).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "".join(f"{line}\n" for line in lines)])
)
COUNT = 10_000


def changed(old: bytes, left: bytes) -> ChangedText:
    return ChangedText(left, old, file_diff("x", FILE, FILE, old, left).hunks)


@given(TEXTS, TEXTS, st.randoms())
def test_all_changes_in_any_order_make_the_text_before(
    before: str, after: str, order: random.Random
) -> None:
    old, left = before.encode(), after.encode()
    text, now = changed(old, left), left
    while text.hunks:
        hunk = order.choice(text.hunks)
        without = text.without(hunk, now)
        assert without is not None
        now = without
        text.forget(hunk)
    assert now == old


NUMBERED = [f"{number}\n" for number in range(30)]


@pytest.mark.parametrize(
    ("edit", "is_there"),
    [
        ({}, True),
        ({15: "15\nmine\n"}, True),  # below the change and one line of the agent's
        ({11: "mine\n"}, True),
        ({0: ""}, True),
        ({29: "29\nnew\nB\nmore\n"}, True),  # the same words elsewhere
        ({13: "mine\nnew\n"}, False),  # in it
        ({13: ""}, False),
        ({14: "mine\n"}, False),  # right beside it
        ({29: "12\nnew\n14\n"}, True),  # a copy with less of what stands around it
        ({29: "10\n11\n12\nnew\n14\n15\n16\n"}, False),  # which one is the agent's?
    ],
    ids=str,
)
def test_a_change_is_taken_out_only_where_it_clearly_stands(
    edit: dict[int, str], is_there: bool
) -> None:
    lines = dict(enumerate(NUMBERED))
    left = lines | {13: "new\n"}
    text = changed("".join(NUMBERED).encode(), "".join(left.values()).encode())
    now = "".join((left | edit).values()).encode()
    without = text.without(text.hunks[0], now)
    wanted = "".join((lines | edit).values()).encode() if is_there else None
    assert without == wanted


def test_the_last_line_never_joins_one_that_was_typed_below_it() -> None:
    text = changed(b"a\nend", b"a\nlast\n")
    assert text.without(text.hunks[0], b"a\nlast\nmine\n") is None


def edited(lines: Sequence[str], by: random.Random, word: str, number: int) -> list[str]:
    """Return lines after some edits; the words of each edit are its own."""
    made = list(lines)
    for edit in range(by.randint(1, 3)):
        at = by.randint(0, len(made))
        until = min(len(made), at + by.randint(0, 3))
        made[at:until] = [f"{word} {number}.{edit}.{n}" for n in range(by.randint(0, 2))]
    return made


def typed(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.startswith(b"mine")]


@pytest.mark.soak
def test_nothing_that_a_person_typed_is_lost_in_ten_thousand_interleavings() -> None:
    by = random.Random(17)
    done = refused = 0
    for _ in range(COUNT):
        now = "".join(f"{by.choice('abc')}\n" for _ in range(by.randint(0, 25))).encode()
        texts: list[ChangedText] = []
        for number in range(by.randint(2, 8)):
            lines = now.decode().splitlines()
            match by.choice(["agent", "person", "revert", "revert"]):
                case "agent":
                    left = "".join(f"{x}\n" for x in edited(lines, by, "agent", number)).encode()
                    texts.append(changed(now, left))
                    now = left
                case "person":
                    now = "".join(f"{x}\n" for x in edited(lines, by, "mine", number)).encode()
                case _ if any(text.hunks for text in texts):
                    text = by.choice([text for text in texts if text.hunks])
                    hunk = by.choice(text.hunks)
                    without = text.without(hunk, now)
                    if without is None:
                        refused += 1
                        continue
                    # It may bring back what the agent had deleted.
                    assert [line for line in typed(without) if line in typed(now)] == typed(now)
                    assert len(without) - len(now) == len(hunk.old) - len(hunk.new)
                    text.forget(hunk)
                    now, done = without, done + 1
    assert done > COUNT // 4
    assert refused > COUNT // 40
