"""What became of files, as Markdown, as text and side by side; none of it can act."""

# ruff: noqa: RUF001 - a minus sign, as wide as the plus

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from agent_magics.file_history.diff import file_diff
from agent_magics.file_history.states import ABSENT, PathState, digest_of
from agent_magics.protocol.events import (
    ChangedFile,
    PatchApplyEnd,
    ToolCallCompleted,
    ToolCallPending,
    TurnAborted,
    TurnCompleted,
    TurnDiffUpdated,
)
from agent_magics.render.diffs.changes import LONG, changes_item, same_lines
from agent_magics.render.diffs.side_by_side import side_by_side
from agent_magics.render.mime import to_bundle
from agent_magics.render.view import TurnView

_DIFF = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\n"
_EVENT = TurnDiffUpdated(diff=_DIFF, files=(ChangedFile("a", "changed", 1, 1),))


def _state(data: bytes) -> PathState:
    return PathState("file", 0o644, digest_of(data), len(data))


def _diff(old: bytes | None, new: bytes | None, name: str = "a"):
    states = [ABSENT if data is None else _state(data) for data in (old, new)]
    return file_diff(name, *states, old, new)


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.words = ""
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= set(attrs)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_data(self, data):
        self.words += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def _blocks(*events):
    view = TurnView()
    for event in events:
        view.apply(event)
    return [block for block in view.blocks if block.kind == "changes"]


# -- the block of a turn ---------------------------------------------------------------------------


def test_a_turn_ends_with_one_block_of_its_changes():
    for end in (TurnCompleted(text=""), TurnAborted(reason="stopped")):
        (block,) = _blocks(_EVENT, _EVENT, end)
        bundle = to_bundle(block)
        assert block.done
        assert "**Files changed** (+1 −1)" in bundle["text/markdown"]
        assert "```diff\n" in bundle["text/markdown"]
        assert "  a +1 −1" in bundle["text/plain"]


def test_folders_are_called_so():
    folder = ChangedFile("made/", "added", None, None, "folder")
    for files, heading in (
        ((folder,), "Folders changed"),
        ((folder, *_EVENT.files), "Files and folders changed (+1 −1)"),
    ):
        (block,) = _blocks(TurnDiffUpdated(diff="", files=files), TurnCompleted(text=""))
        assert to_bundle(block)["text/plain"].startswith(f"{heading}\n  made/ added")


def test_without_changes_there_is_none():
    assert not _blocks(TurnDiffUpdated(diff=""), TurnCompleted(text=""))
    assert not _blocks(TurnCompleted(text=""))


def test_what_one_patch_shows_already_is_not_shown_again():
    patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\n"
    called = (
        ToolCallPending(call_id="1", name="apply_patch", arguments=""),
        PatchApplyEnd(call_id="1", success=True, diff=patch),
        ToolCallCompleted(call_id="1", name="apply_patch", output="ok"),
    )
    (block,) = _blocks(*called, _EVENT, TurnCompleted(text=""))
    assert block.item["diff"] == "" and block.item["files"]
    more = TurnDiffUpdated(diff=_DIFF + _DIFF.replace("old", "other"), files=_EVENT.files)
    (block,) = _blocks(*called, more, TurnCompleted(text=""))
    assert block.item["diff"]


def test_a_long_diff_is_left_to_the_word_for_it():
    event = TurnDiffUpdated(diff=_DIFF + "+x\n" * 100, files=_EVENT.files)
    item = changes_item(event)
    assert item["diff"] == "" and item["notes"] == [LONG]
    item = changes_item(event, whole=True)
    assert item["diff"] == event.diff and item["notes"] == []


def test_what_runs_by_itself_is_named():
    event = TurnDiffUpdated(diff=_DIFF, files=_EVENT.files, runs=("a runs by itself: x.",))
    (block,) = _blocks(event, TurnCompleted(text=""))
    bundle = to_bundle(block)
    assert "> **Look at this:** a runs by itself: x." in bundle["text/markdown"]
    assert "Look at this: a runs by itself: x." in bundle["text/plain"]


# -- the diff itself -------------------------------------------------------------------------------


def test_diffs_in_gits_form():
    assert _diff(b"1\n2\n", b"1\n3\n").text == (
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
    )
    assert _diff(None, b"1").text == (
        "diff --git a/a b/a\nnew file mode 100644\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+1\n"
        "\\ No newline at end of file\n"
    )
    assert _diff(b"", None).text == "diff --git a/a b/a\ndeleted file mode 100644\n"
    told = _diff(b"\0", b"\0\1")
    assert (told.added, told.note) == (None, "binary")


def test_a_change_deep_in_a_large_file_has_the_right_line_numbers():
    lines = [b"%d\n" % number for number in range(50_000)]
    changed = [*lines]
    changed[40_000] = b"new\n"
    told = _diff(b"".join(lines), b"".join(changed))
    assert "@@ -39998,7 +39998,7 @@" in told.text
    assert (told.added, told.removed) == (1, 1)
    other = [b"x%d\n" % number for number in range(50_000)]
    told = _diff(b"".join(lines), b"".join(other))
    assert (told.added, told.removed) == (50_000, 50_000)


# -- side by side ----------------------------------------------------------------------------------


def test_old_and_new_stand_side_by_side():
    page = _Page(side_by_side(_diff(b"1\n2\n3\n", b"1\ntwo\n3\n4\n").text, "A turn"))
    assert page.rows[2:] == [
        ["1", "\xa0 1", "1", "\xa0 1"],
        ["2", "− 2", "2", "+ two"],
        ["3", "\xa0 3", "3", "\xa0 3"],
        ["", "", "4", "+ 4"],
    ]


_NAMES = st.sampled_from(["a", "d/a", "b b/b", "x b/x b/x", "/srv/a", "/srv/b /srv/b", "a/a"])


@given(st.lists(_NAMES, min_size=1, unique=True))
def test_each_file_stands_by_itself_under_its_name(names):
    html = side_by_side("".join(_diff(b"1\n", b"2\n", name).text for name in names), "A turn")
    assert re.findall("<summary><code>(.*?)</code>", html) == names
    assert [part.count("+ 2") for part in html.split("<details")] == [0, *[1] * len(names)]


_TAGS = {"div", "strong", "details", "summary", "code", "table", "colgroup", "col", "thead"}


@given(st.text(max_size=60), st.text(max_size=60), st.text(min_size=1, max_size=20))
def test_no_word_of_a_file_becomes_markup(old, new, name):
    nasty = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"
    old_bytes, new_bytes = (f"{text}{nasty}\n".encode("utf-8", "replace") for text in (old, new))
    diff = _diff(old_bytes, new_bytes, name + nasty).text
    page = _Page(side_by_side(diff, name + nasty, [nasty]))
    assert page.tags <= _TAGS | {"tr", "td", "th"}
    assert {name for name, _ in page.attributes} <= {"style", "colspan", "open"}
    assert not any("script" in (value or "") for _, value in page.attributes)


def test_too_many_lines_are_told():
    diff = _diff(None, b"x\n" * 3_000).text
    page = _Page(side_by_side(diff, "A turn"))
    assert "Only the first 2,000 lines are shown." in page.words
    assert len(page.rows) < 2_100


def test_a_patch_shows_the_same_lines_whatever_the_order_of_its_files():
    one, other = _diff(b"old\n", b"new\n").text, _diff(None, b"more\n", "b").text
    assert same_lines(one + other, other + one)
    assert not same_lines(one + other, one)
    assert not same_lines(one, _diff(b"old\n", b"newer\n").text)
    # The same lines, but in one file more.
    parted = _diff(None, b"x\n").text + _diff(None, b"y\n", "b").text
    assert not same_lines(_diff(None, b"x\ny\n").text, parted)
    # Lines that look like the heads of files.
    old, new = b"SELECT 1\n-- never\n\nx\n", b"SELECT 2\n-- never\n\nx\n"
    shown, whole = _diff(old, new).text, _diff(old, b"SELECT 2\n\nx\n++ y\n").text
    assert same_lines(shown, shown) and same_lines(whole, whole)
    assert not same_lines(shown, whole)
    assert not same_lines(shown, _diff(old, b"SELECT 2\n-- never\n\nx\n++ y\n").text)
    assert not same_lines(shown, _diff(old, b"SELECT 2\n\nx\n").text)
