"""A cell stays within the outputs that JupyterLab shows, whatever a turn does."""

from typing import Any

import pytest

from agent_magics.kernel.cell.outputs import CellOutputs
from agent_magics.render.blocks.display import DisplayBlock
from agent_magics.render.mime import ITEM_MIME, to_bundle
from tests.support.pages.items import unfolded

MOST = 40


class Page:
    """The outputs of a cell, as a notebook keeps them."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self.messages = 0

    def publish(self, bundle: dict[str, Any], display_id: str) -> None:
        assert display_id not in self.outputs
        self.outputs[display_id] = bundle
        self.messages += 1

    def update(self, bundle: dict[str, Any], display_id: str) -> None:
        assert display_id in self.outputs
        self.outputs[display_id] = bundle
        self.messages += 1

    @property
    def titles(self) -> list[str]:
        """The titles of the calls, in the order of the page."""
        items = [bundle[ITEM_MIME] for bundle in self.outputs.values() if ITEM_MIME in bundle]
        return [call["title"] for call in unfolded(items) if call["kind"] == "tool"]


def _call(number: int) -> DisplayBlock:
    item = {"version": 1, "kind": "tool", "name": "shell", "title": f"call {number}"}
    item |= {"status": "running", "arguments": "", "language": "bash", "output": "", "note": ""}
    return DisplayBlock(f"call:{number}#{number}", {**item, "exit_code": None})


def _end(block: DisplayBlock) -> DisplayBlock:
    block.item["status"], block.done = "completed", True
    return block


def _finish(outputs: CellOutputs) -> None:
    item = {"version": 1, "kind": "text", "text": "Done."}
    outputs.show(DisplayBlock("text", item, done=True))
    usage = {"input_tokens": 1, "output_tokens": 1, "cached_tokens": 0, "requests": 1}
    outputs.show(DisplayBlock("usage", {"version": 1, "kind": "usage", **usage}, done=True))
    outputs.finish()


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("count", [1, 29, 30, 50, 200])
def test_all_calls_are_kept_in_few_outputs(live: bool, count: int) -> None:
    page = Page()
    outputs = CellOutputs(page, live=live)
    for number in range(count):
        block = _call(number)
        outputs.show(block)
        outputs.show(_end(block))
    _finish(outputs)
    assert page.titles == [f"call {number}" for number in range(count)]
    assert len(page.outputs) <= MOST
    last = list(page.outputs.values())[-2:]
    assert [bundle[ITEM_MIME]["kind"] for bundle in last] == ["text", "usage"]


def test_many_questions_take_turns_in_the_last_outputs() -> None:
    page = Page()
    outputs = CellOutputs(page, live=True)
    for number in range(80):
        block = _call(number)
        outputs.show(block)
        outputs.show_live(block, {"widget": number})
        outputs.tick()
        assert {"widget": number} in page.outputs.values()
        outputs.show(_end(block))
        assert {"widget": number} not in page.outputs.values()
    _finish(outputs)
    assert sorted(page.titles) == sorted(f"call {number}" for number in range(80))
    assert len(page.outputs) <= MOST


def test_quick_calls_do_not_send_their_block_again_and_again() -> None:
    page = Page()
    outputs = CellOutputs(page, live=True)
    for number in range(29 + 160):
        outputs.show(_end(_call(number)))
        outputs.tick()
    outputs.finish()
    assert len(page.titles) == 189
    assert page.messages < 29 + 8 * 2 + 20


def test_without_a_watcher_nothing_is_sent_twice() -> None:
    page = Page()
    outputs = CellOutputs(page, live=False)
    for number in range(100):
        block = _call(number)
        outputs.show(block)
        outputs.show(_end(block))
    _finish(outputs)
    assert page.messages == len(page.outputs)


def _shapes(page: Page) -> list[list[str]]:
    """The titles in each output that shows something."""
    items = [bundle[ITEM_MIME] for bundle in page.outputs.values() if ITEM_MIME in bundle]
    return [[str(each.get("title", each["kind"])) for each in unfolded([one])] for one in items]


def _texts(outputs: CellOutputs, number: int) -> None:
    item = {"version": 1, "kind": "text", "text": "So."}
    outputs.show(DisplayBlock(f"text#{number}", item, done=True))


@pytest.mark.parametrize("live", [True, False])
def test_calls_of_steps_share_an_output_until_words_stand_between(live: bool) -> None:
    page = Page()
    outputs = CellOutputs(page, live=live)
    for number in (0, 1, 2):
        block = _call(number)
        outputs.show(block)
        outputs.show(_end(block))
    _texts(outputs, 3)
    block = _call(4)
    outputs.show(block)
    outputs.show(_end(block))
    _finish(outputs)
    shown = [["call 0", "call 1", "call 2"], ["text"], ["call 4"], ["text"], ["usage"]]
    assert _shapes(page) == shown
    assert len(page.outputs) == 5


def test_the_next_call_takes_the_output_of_the_last_which_folds() -> None:
    page = Page()
    outputs = CellOutputs(page, live=True)
    for number in range(3):
        block = _call(number)
        outputs.show(block)
        outputs.tick()
        outputs.show(_end(block))
    outputs._flush()
    assert _shapes(page) == [["call 0", "call 1"], ["call 2"]]


def test_calls_that_run_side_by_side_share_an_output_until_one_asks() -> None:
    page = Page()
    outputs = CellOutputs(page, live=True)
    blocks = [_call(number) for number in range(4)]
    for block in blocks:
        outputs.show(block)
    outputs._flush()
    assert _shapes(page) == [["call 0", "call 1", "call 2", "call 3"]]
    outputs.show_live(blocks[1], {"widget": 1})
    outputs._flush()
    assert _shapes(page) == [["call 0"], ["call 2", "call 3"]]
    assert list(page.outputs.values())[1] == {"widget": 1}
    for block in blocks:
        outputs.show(_end(block))
    _finish(outputs)
    assert _shapes(page) == [["call 0", "call 1", "call 2", "call 3"], ["text"], ["usage"]]
    assert len(page.outputs) == 3


def test_a_call_that_fails_stays_between_those_that_fold() -> None:
    page = Page()
    outputs = CellOutputs(page, live=True)
    for number in range(5):
        block = _call(number)
        outputs.show(block)
        _end(block)
        if number == 2:
            block.item["status"] = "failed"
        outputs.show(block)
    _finish(outputs)
    block, *_ = (bundle[ITEM_MIME] for bundle in page.outputs.values())
    assert [item["kind"] for item in block["items"]] == ["group", "tool", "group"]


def test_a_new_block_that_is_shown_live_as_it_is_is_sent_once() -> None:
    page = Page()
    outputs = CellOutputs(page, live=True)
    block = _call(0)
    outputs.show_live(block, to_bundle(block))
    assert page.messages == 1
    outputs.show_live(block, {"widget": 0})
    assert list(page.outputs.values()) == [{"widget": 0}]
