"""A text that is cut keeps its head and its tail, and says truly how much is missing."""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_magics.dispatch.results.cutting import cut_text, encodable_json


def test_cut_falls_on_line_ends():
    text = "".join(f"line {number:04}\n" for number in range(1000))
    cut, omitted = cut_text(text, 200)
    head, tail = cut.split(f"… {omitted} characters left out …\n")
    assert text.startswith(head)
    assert head.endswith("\n")
    assert text.endswith(tail)
    assert tail.startswith("line ")
    assert omitted == len(text) - len(head) - len(tail)


def test_text_that_fits_is_not_touched():
    assert cut_text("abc", 3) == ("abc", 0)
    assert cut_text("", 0) == ("", 0)


JSON = st.recursive(
    st.none() | st.integers() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(), max_size=5), inner),
)


@given(JSON)
@example({"\ud83d": ["a\udc80", {"b": "\ud800"}]})
def test_json_of_any_text_can_be_sent(value):
    sent = json.dumps(encodable_json(value), ensure_ascii=False).encode("utf-8")
    if "\\ud" not in json.dumps(value):
        assert json.loads(sent) == value


TEXTS = st.text(alphabet="ab\n", max_size=300) | st.text(max_size=100)


@settings(deadline=None)  # the machine may be busy
@given(TEXTS, st.integers(0, 200))
@example("abc", 0)
@example("\n\n\n\n", 2)
def test_cut_keeps_to_the_budget_and_counts_truly(text, budget):
    cut, omitted = cut_text(text, budget)
    if len(text) <= budget:
        assert (cut, omitted) == (text, 0)
        return
    marker = f"… {omitted} characters left out …\n"
    head, tail = cut.split(marker) if cut.count(marker) == 1 else cut.rsplit(marker, 1)
    assert text.endswith(tail)
    kept = len(text) - omitted
    assert kept <= budget
    assert text[: kept - len(tail)] in (head, head[:-1])
    assert len(cut) <= budget + len(marker) + 1
