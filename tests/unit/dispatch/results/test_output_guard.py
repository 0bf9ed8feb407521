"""How many results are shown, and what is said of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.results.output_guard import OutputGuard, Overflow
from agent_magics.protocol.errors import RespondToModel


def test_exploring_shows_the_first_and_has_no_next_page():
    page, rest = OutputGuard().cap_items(range(1_423), "narrow the pattern")
    assert page == list(range(200))
    assert rest == Overflow(200, 1_423, "narrow the pattern")
    assert rest.as_json() == {"shown": 200, "total": 1_423, "hint": "narrow the pattern"}
    assert str(rest) == "200 of 1,423 shown; narrow the pattern."
    assert not OutputGuard().should_include_body()


def test_focusing_goes_page_by_page():
    guard = OutputGuard("full")
    assert guard.should_include_body()
    page, rest = guard.cap_items(range(120), "x")
    assert (page, rest) == (list(range(50)), Overflow(50, 120, "x", 50))
    assert rest.as_json()["next_offset"] == 50
    assert str(rest) == "50 of 120 shown; go on with offset=50."
    page, rest = OutputGuard("full", 100).cap_items(range(120))
    assert (page, rest) == (list(range(100, 120)), None)


def test_an_explicit_limit_caps_exploring_too():
    guard = OutputGuard(limit=10)
    assert len(guard.cap_items(range(300))[0]) == 10
    assert len(guard.cap_files(range(300))[0]) == 10
    assert len(OutputGuard(limit=500).cap_items(range(300))[0]) == 200
    assert len(OutputGuard("full", limit=250).cap_items(range(300))[0]) == 250


def test_files_have_a_cap_of_their_own():
    guard = OutputGuard(max_results=3, max_files=2)
    assert len(guard.cap_items("abcd")[0]) == 3
    assert len(guard.cap_files("abcd")[0]) == 2


@pytest.mark.parametrize("level", ["compact", "", None])
def test_any_other_level_explores(level):
    assert not OutputGuard(level).focused


def test_what_fits_says_nothing_and_what_lies_behind_the_end_says_so():
    assert OutputGuard().cap_items([1, 2]) == ([1, 2], None)
    assert OutputGuard().cap_items([]) == ([], None)
    rest = Overflow(0, 2, "there is none from offset=9 on")
    assert OutputGuard("full", 9).cap_items([1, 2], "see others") == ([], rest)


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"limit": 0}, {"max_results": 0}])
def test_numbers_that_mean_nothing_are_named(wrong):
    with pytest.raises(RespondToModel, match=f"{next(iter(wrong))} is"):
        OutputGuard(**wrong)


@given(st.integers(0, 200), st.integers(1, 60))
def test_the_pages_are_the_whole(total, limit):
    seen, offset = [], 0
    while offset is not None:
        page, rest = OutputGuard("full", offset, limit).cap_items(range(total))
        seen += page
        offset = rest.next_offset if rest is not None else None
    assert seen == list(range(total))
