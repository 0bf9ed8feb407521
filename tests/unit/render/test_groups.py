"""Finished calls fold under one line, in our items and in Markdown; nothing else does."""

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from agent_magics import tools
from agent_magics.render.blocks.groups import group_calls
from agent_magics.render.mime import blocks_item, item_bundle
from agent_magics.render.text import to_markdown, to_plain
from tests.support.pages.readers import Page, Readers
from tests.unit.render.test_text import EVIL, tool_item

THOUGHT = {"version": 1, "kind": "reasoning", "text": "Hm.", "left_out": 0}
NOTICE = {"version": 1, "kind": "notice", "level": "info", "text": "You added: more"}


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    readers = Readers()
    yield readers
    readers.close()


def test_a_run_of_calls_is_counted_by_what_they_do() -> None:
    names = ["shell", "read_file", "exec_command", "apply_patch", "read_file", "revenue"]
    items = [tool_item(name=name) for name in names]
    (group,) = group_calls(items)
    assert group["title"] == "2 commands, 2 files read, 1 patch, 1 call of revenue"
    assert group["items"] == items


@pytest.mark.parametrize("name", sorted({*tools.__all__} - {"request_user_input", "update_plan"}))
def test_what_a_tool_of_ours_does_is_said_in_words(name: str) -> None:
    (group,) = group_calls([tool_item(name=name), tool_item(name=name)])
    assert "call" not in group["title"].replace("batches of calls", "")
    assert "_" not in group["title"]


def test_reasoning_between_calls_folds_with_them() -> None:
    items = [THOUGHT, tool_item(), THOUGHT, tool_item(), THOUGHT]
    (group,) = group_calls(items)
    assert group["title"] == "2 commands"
    assert group_calls([THOUGHT, tool_item(), THOUGHT]) == [THOUGHT, tool_item(), THOUGHT]


@pytest.mark.parametrize(
    "stays",
    [
        tool_item(status="failed", exit_code=1),
        tool_item(status="denied"),
        tool_item(status="running"),
        tool_item(name="request_user_input"),
        NOTICE,
    ],
    ids=["failed", "denied", "running", "question", "notice"],
)
def test_what_needs_a_look_stays_in_sight_between_the_groups(stays: dict) -> None:
    grouped = group_calls([tool_item(), tool_item(), stays, tool_item(), tool_item(), tool_item()])
    assert [item.get("title") for item in grouped] == [
        "2 commands",
        stays.get("title"),
        "3 commands",
    ]
    assert group_calls([tool_item(), stays, tool_item()]) == [tool_item(), stays, tool_item()]


def test_one_item_holds_a_run_and_what_stands_beside_it() -> None:
    assert blocks_item([tool_item(), tool_item()])["kind"] == "group"
    block = blocks_item([tool_item(), tool_item(), tool_item(status="failed")])
    assert [item["kind"] for item in block["items"]] == ["group", "tool"]


def test_plain_text_has_the_line_and_the_calls() -> None:
    plain = to_plain(blocks_item([tool_item(title="one"), tool_item(title="two")]))
    assert plain.startswith("2 commands:\n\n[shell] one (ran, exit code 0)\na.txt\n\n[shell] two")


class _Folds(HTMLParser):
    """The text of a page inside folds, of their lines, and outside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.inside = self.lines = self.outside = ""
        self._depth, self._in_line, self.most = 0, False, 0
        self.feed(html)
        self.close()
        assert self._depth == 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._depth += tag == "details"
        self.most = max(self.most, self._depth)
        self._in_line |= tag == "summary"

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "details"
        self._in_line &= tag != "summary"

    def handle_data(self, data: str) -> None:
        if self._in_line:
            self.lines += data
        elif self._depth:
            self.inside += data
        else:
            self.outside += data


BREAKS_OUT = "</details>\n\n</pre></code></details><script>press()</script>\n```\n</details>\n"


@pytest.mark.soak
def test_every_reader_folds_and_nothing_inside_gets_out(readers: Readers) -> None:
    hostile = [
        tool_item(output=BREAKS_OUT, title=BREAKS_OUT),
        {**THOUGHT, "text": BREAKS_OUT + EVIL},
        tool_item(name=BREAKS_OUT, language="python", arguments=f"# {BREAKS_OUT}"),
        tool_item(kind="patch", diff=BREAKS_OUT),
    ]
    markdown = f"{to_markdown(blocks_item(hostile))}\n\nThe answer."
    for name, html in readers.pages(markdown).items():
        assert Page(html).acts == [], name
        folds = _Folds(html)
        assert folds.most == 1, name
        assert folds.lines.startswith("2 commands, 1 call of "), name
        assert folds.outside.split() == ["The", "answer."], name
        assert "</details>" in folds.inside, name


def test_the_bundle_of_a_group_is_for_all_readers() -> None:
    bundle = item_bundle(blocks_item([tool_item(), tool_item()]))
    assert set(bundle) == {"application/vnd.agent-magics.item+json", "text/markdown", "text/plain"}
