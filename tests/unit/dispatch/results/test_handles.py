"""Kept results: names that lead to files, within bounds, and never silently gone."""

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.approval.read_rules import ReadRules
from agent_magics.approval.rules_file import Rule
from agent_magics.dispatch.results.stored import (
    TEXT_LIMIT,
    HandleStore,
    Origin,
    StoredResult,
    is_handle,
)
from agent_magics.protocol.errors import RespondToModel
from tests.support import forks


class Growing:
    """A source that the test lets grow."""

    def __init__(self, text: str, grows: bool = True) -> None:
        self.text = text
        self.is_open = grows

    @property
    def size(self) -> int:
        return len(self.text)

    in_memory = size

    def pieces(self) -> Iterator[str]:
        for start in range(0, len(self.text), 3):
            yield self.text[start : start + 3]

    def grows(self) -> bool:
        return self.is_open


def test_names_count_up_and_lead_to_files_for_this_user_only():
    store = HandleStore()
    assert [store.keep("first"), store.keep("grüße\n")] == ["@r1", "@r2"]
    path = store.path_of("@r2")
    assert path.read_text(encoding="utf-8") == "grüße\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert store.path_of("@r1").read_text(encoding="utf-8") == "first"


def test_only_a_whole_name_is_a_name():
    assert is_handle("@r1") and is_handle("@r120")
    assert not any(map(is_handle, ("@r", "r1", "./@r1", "@r1.txt", "@R1", "@r1\n", "@x1")))


def test_an_unknown_name_is_told_with_those_there_are():
    store = HandleStore()
    with pytest.raises(RespondToModel, match="no @r1 in this conversation; no result has been"):
        store.path_of("@r1")
    for number in range(12):
        store.keep(str(number))
    with pytest.raises(RespondToModel, match=r"there are: … @r3, .*@r12\.$"):
        store.path_of("@r13")


def test_line_breaks_of_a_text_stay_as_they_are():
    store = HandleStore()
    store.keep("a\r\nb\rc\n")
    store.path_of("@r1")
    store._entries["@r1"].source = None  # as where it was moved to disk
    assert store.value_of("@r1") == "a\r\nb\rc\n"
    store.close()


def test_a_source_keeps_its_name_and_its_file_grows_with_it():
    store, source = HandleStore(), Growing("abcdefg")
    assert store.keep(source) == store.keep(source) == "@r1"
    assert store.path_of("@r1").read_text(encoding="utf-8") == "abcdefg"
    source.text += "hij"
    assert store.path_of("@r1").read_text(encoding="utf-8") == "abcdefghij"


def test_beyond_the_memory_the_oldest_go_to_disk():
    store = HandleStore(memory_limit=25)
    growing = Growing("x" * 10)
    assert store.keep(growing) == "@r1"  # what may still grow stays
    store.keep("a" * 10)
    folder = store.path_of("@r1").parent
    assert [file.name for file in folder.iterdir()] == ["r1.txt"]
    store.keep("b" * 10)
    assert sorted(file.name for file in folder.iterdir()) == ["r1.txt", "r2.txt"]
    texts = [store.path_of(name).read_text(encoding="utf-8") for name in ("@r1", "@r2", "@r3")]
    assert texts == ["x" * 10, "a" * 10, "b" * 10]


def test_beyond_the_disk_the_oldest_is_dropped_and_that_is_said():
    store = HandleStore(memory_limit=5, disk_limit=25)
    for letter in "abc":
        store.keep(letter * 10)
    with pytest.raises(RespondToModel, match=r"@r1 was dropped: .* there are: @r2, @r3\.$"):
        store.path_of("@r1")
    assert store.path_of("@r3").read_text(encoding="utf-8") == "c" * 10
    assert store.keep("d") == "@r4"  # no name is used twice


def test_what_no_disk_takes_stays_in_memory(tmp_path):
    place = tmp_path / "place"

    def parent() -> Path:
        return place

    store = HandleStore(memory_limit=5, parent=parent)  # a folder that is not there
    store.keep("a" * 10)
    with pytest.raises(RespondToModel, match="@r1 cannot be written to a file: No such file"):
        store.path_of("@r1")
    place.mkdir()
    assert store.path_of("@r1").read_text(encoding="utf-8") == "a" * 10


def test_half_characters_do_no_harm():
    store = HandleStore()
    name = store.keep("a\ud800b")
    assert store.path_of(name).read_text(encoding="utf-8") == "a?b"


def test_the_end_removes_the_files_of_this_process_alone():
    store = HandleStore()
    path = store.path_of(store.keep("text"))
    forks.call(store.close)
    assert path.is_file()
    store.close()
    assert not path.parent.exists()
    with pytest.raises(RespondToModel, match="no @r1"):
        store.path_of("@r1")


# -- values --------------------------------------------------------------------------------------


class Big:
    """Takes as much memory as it says, and lets itself be watched."""

    def __init__(self, size: int) -> None:
        self.held = "x" * size


def test_a_value_is_the_object_itself_and_keeps_its_name():
    store, value, other = HandleStore(), {"a": [1]}, {"a": [1]}
    assert [store.keep_value(value), store.keep_value(other)] == ["@r1", "@r2"]
    assert store.keep_value(value) == "@r1"
    assert store.value_of("@r1") is value
    assert store.value_of("@r2") is other


def test_a_text_and_a_file_stand_for_each_other():
    store, value = HandleStore(memory_limit=3), {"a": [1]}
    text, kept = store.keep("words"), store.keep_value(value)
    assert store.value_of(text) == "words"
    assert store.path_of(kept).read_text() == '{\n "a": [\n  1\n ]\n}'
    value["a"].append(2)
    assert "2" in store.path_of(kept).read_text()


def test_a_table_is_a_file_of_comma_separated_values():
    store = HandleStore()
    name = store.keep_value(pandas.DataFrame({"a": [1, 2]}))
    assert store.path_of(name).read_text() == ",a\n0,1\n1,2\n"


def test_the_oldest_values_are_let_go_by_name_and_the_newest_never():
    store = HandleStore(memory_limit=1000)
    first, second = Big(900), [1] * 500
    store.keep_value(first)
    store.keep_value(second)
    assert store.take_let_go() == ["@r1"]
    assert store.take_let_go() == []
    assert store.value_of("@r2") is second
    assert store.value_of("@r1") is first, "a variable holds it still"
    del first
    with pytest.raises(RespondToModel, match=r"@r1 is gone: .*no variable holds it.*: @r2\.$"):
        store.value_of("@r1")
    with pytest.raises(RespondToModel, match="@r1 is gone"):
        store.path_of("@r1")


def test_a_value_that_came_back_gets_a_new_name():
    store, value = HandleStore(memory_limit=100), Big(900)
    store.keep_value(value)
    store.keep_value([1] * 100)
    assert store.keep_value(value) == "@r3"


def test_what_is_huge_is_not_written_out():
    store = HandleStore()
    name = store.keep_value(numpy.zeros(TEXT_LIMIT // 8 + 1))
    with pytest.raises(RespondToModel, match=r"too large to be written out.*use _r1 in python"):
        store.path_of(name)


# -- what hooks and rules say of results ---------------------------------------------------------


def ruled(*patterns: str) -> ReadRules:
    """Return rules that forbid reading what matches these patterns."""
    return ReadRules(Path("/project"), [Rule("read", each, "forbid") for each in patterns])


@pytest.mark.parametrize("passes", [True, False])
def test_results_that_waited_are_told_in_their_order_each_once(passes: bool):
    store, held, told = HandleStore(), list[str](), list[str]()
    store.on_keep = lambda name, entry: told.append(name)
    value = object()
    for number in range(30):
        store.keep(str(number), Origin(held=held))
        store.keep_value(value, Origin(held=held))
    assert told == []
    store.settle(held, passes)
    assert told == list(dict.fromkeys(held))


READS = st.lists(st.sampled_from(["/project/", "/project/sub/", "/project/sub/file"]), max_size=2)
PATTERNS = st.sets(st.sampled_from(["sub/file", "sub/**", "*.key"]), max_size=2)


@given(st.lists(st.tuples(READS, PATTERNS), min_size=1, max_size=4), PATTERNS)
def test_a_value_is_withheld_where_a_rule_of_now_was_none_at_some_reading(named, now):
    """However often calls have named it, and only then."""
    store, value = HandleStore(), [1]
    for reads, patterns in named:
        store.read_rules = lambda patterns=patterns: ruled(*sorted(patterns))
        store.keep_value(value, Origin(tuple(reads)))
    rules = ruled(*sorted(now))
    store.read_rules = lambda: rules
    try:
        is_shown = store.value_of("@r1") is value
    except RespondToModel:
        is_shown = False
    may_be = not any(rules.forbids_result(reads, patterns) for reads, patterns in named)
    assert may_be or not is_shown
    if all(patterns == now for reads, patterns in named if reads):
        assert is_shown == may_be


def test_a_result_that_is_lent_is_told_with_the_rules_of_its_reading():
    store, other, told = HandleStore(), HandleStore(), list[StoredResult]()
    store.read_rules = lambda: ruled("*.key")
    name = store.keep_value([1], Origin(("/project/",)))
    other.on_keep = lambda name, entry: told.append(replace(entry))
    store.lend(name, other)
    assert [entry.known for entry in told] == [("*.key",)]
