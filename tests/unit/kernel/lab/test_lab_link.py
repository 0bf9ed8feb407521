"""Whatever a page says, nothing fails by it, and what it was asked comes to an end."""

import json
import threading
from typing import Any

import pytest
from comm.base_comm import CommManager
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.kernel.lab.link import (
    CONTROL,
    MOST_PAGES,
    WATCH_LIMIT,
    CellRef,
    Data,
    LabLink,
    Page,
)
from agent_magics.kernel.lab.page_tools import as_response
from agent_magics.protocol.items import InputImage, InputText

TEXT = st.text(max_size=8) | st.sampled_from(["\ud800", "a\udfffb"])  # halves of characters
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = ("id", "call_id", "cell", "cells", "content", "tools", "items", "values", "words", "about")
HEARD = "ask bye drop gone knock ping question reply result say settings stop tools watch"
KINDS = st.sampled_from(HEARD.split())
SAID = st.dictionaries(st.sampled_from(FIELDS), JSON).flatmap(
    lambda fields: KINDS.map(lambda kind: {**fields, "type": kind})
)


class Session:
    """The sending half of a kernel."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, socket: Any, kind: str, content: dict[str, Any], **_: Any) -> None:
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()  # as ipykernel does
        self.sent.append(content["data"])


class SilentKernel:
    """A kernel as far as a page needs one."""

    iopub_socket = None

    def __init__(self) -> None:
        self.session = Session()

    def get_parent(self, channel: str) -> dict[str, Any]:
        return {}


class RecordingComm:
    """A comm as far as a link needs one."""

    def __init__(self, comm_id: str = "comm") -> None:
        self.comm_id = comm_id

    def on_msg(self, _: Any) -> None: ...

    def on_close(self, _: Any) -> None: ...


class KernelWithComms(SilentKernel):
    """A kernel that pages can connect to."""

    def __init__(self) -> None:
        super().__init__()
        self.comm_manager, self.control_handlers = CommManager(), dict[str, Any]()


@settings(max_examples=50)
@given(SAID | JSON)
def test_a_page_can_say_anything(said: Any) -> None:
    page = Page(SilentKernel(), "comm", {})
    LabLink(None)._receive(page, said, "subshell")
    assert page.reach == "", "a ping on the main thread proves nothing"


@pytest.mark.parametrize(
    "said",
    [
        {"type": "ask", "id": "\ud800", "about": "x"},
        {"type": "ask", "id": "1", "about": "\ud800"},
        {"type": "say", "cell": "c", "id": "1", "text": "\ud800", "now": True},
    ],
    ids=["id", "subject", "text"],
)
def test_half_characters_of_a_page_come_back_written_out(said: dict[str, Any]) -> None:
    page = Page(kernel := SilentKernel(), "comm", {})
    LabLink(None)._receive(page, said, "subshell")
    assert "\\ud800" in str(kernel.session.sent)


@settings(max_examples=50)
@given(JSON)
def test_a_page_can_introduce_itself_as_anything(hello: Any) -> None:
    link, kernel = LabLink(None), SilentKernel()
    link._kernel = kernel
    link._open(RecordingComm(), {"content": {"data": hello}})
    assert [said["type"] for said in kernel.session.sent] == ["welcome"]


def test_a_page_that_says_nothing_more_is_not_told_for_ever() -> None:
    """It has crashed, and said no goodbye."""
    link, page = LabLink(None), Page(SilentKernel(), "comm", {"inbox": "i"})
    link._pages["i"] = page
    link._receive(page, {"type": "watch", "words": ""}, "subshell")
    assert link.watching == (page,)
    page.watches_until -= WATCH_LIMIT
    assert link.watching == ()


@settings(max_examples=50)
@given(JSON)
def test_a_result_of_any_kind_becomes_a_response(result: Any) -> None:
    answer = result if isinstance(result, dict) else {"items": result, "success": True}
    response = as_response("c1", answer)
    assert response.content_items
    assert all(isinstance(part, InputText) for part in response.content_items)


def test_pictures_are_taken_as_data_only() -> None:
    items = [
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_image", "image_url": "https://example.org/x.png", "text": "x"},
    ]
    response = as_response("c1", {"items": items, "success": True})
    assert response.content_items == (InputImage("data:image/png;base64,AA=="), InputText("x"))
    assert response.success


def test_what_a_closed_page_was_asked_fails() -> None:
    kernel, link, results = SilentKernel(), LabLink(None), []
    page = Page(kernel, "comm", {"inbox": "i", "tools": [{"name": "pick"}]})
    link._pages["i"] = page
    wish = link.wish(page, "read", CellRef("cell", "client"), {"start": 0})
    assert link.call("pick", "c1", {}, "client", results.append)
    assert not link.call("other", "c2", {}, "client", results.append)
    assert [said["type"] for said in kernel.session.sent] == ["wish", "call"]
    link._pages.clear()
    link.drop(page)
    assert "closed" in str(wish.result(timeout=1))
    assert "closed" in str(results)


def test_an_answer_that_nobody_waits_for_any_more_harms_no_other() -> None:
    """A turn was interrupted, or the page was too slow: its wish is cancelled, not forgotten."""
    link, page = LabLink(None), Page(SilentKernel(), "comm", {})
    given_up, slow, other = (link.wish(page, "read", CellRef("a", ""), {}) for _ in range(3))
    assert given_up.cancel() and slow.cancel()
    link._receive(page, {"type": "reply", "id": page._kernel.session.sent[0]["id"]}, "subshell")
    link.drop(page)
    assert other.result(timeout=0)["refused"] == "its page was closed"


def test_a_page_answers_only_what_it_was_asked_itself() -> None:
    link, results = LabLink(None), []
    asked = Page(SilentKernel(), "comm", {"inbox": "i", "tools": [{"name": "pick"}]})
    other = Page(SilentKernel(), "comm2", {"inbox": "j"})
    reloaded = Page(SilentKernel(), "comm3", {"inbox": "i"})
    link._pages |= {"i": asked, "j": other}
    wish = link.wish(asked, "read", CellRef("a", ""), {})
    which = asked._kernel.session.sent[0]["id"]
    call = link.call("pick", "c1", {}, "client", results.append)
    link._receive(other, {"type": "reply", "id": which, "cells": []}, "subshell")
    link._receive(other, {"type": "result", "call_id": call}, "subshell")
    assert not wish.done() and not results
    link._receive(reloaded, {"type": "reply", "id": which, "cells": [1]}, "subshell")
    link._receive(asked, {"type": "result", "call_id": call}, "subshell")
    link._receive(asked, {"type": "result", "call_id": call}, "subshell")  # replayed
    assert wish.result(timeout=0)["cells"] == [1] and len(results) == 1


def test_calls_that_models_gave_the_same_id_get_each_their_own_result() -> None:
    """Of two agents, or of a turn that has ended while the page was still at it."""
    link, page = LabLink(None), Page(SilentKernel(), "comm", {"tools": [{"name": "pick"}]})
    link._pages[""] = page
    ended, first, second = list[Data](), list[Data](), list[Data]()
    for results in (ended, first, second):
        assert link.call("pick", "call_0", {}, "client", results.append)
    names = [said["call_id"] for said in page._kernel.session.sent]
    link.give_up(names[0])
    for number, name in enumerate(names):
        link._receive(page, {"type": "result", "call_id": name, "items": [number]}, "subshell")
    assert not ended
    assert [each["items"] for each in first + second] == [[1], [2]]


def test_a_wish_that_nobody_waits_for_leaves_nothing() -> None:
    link, page = LabLink(None), Page(SilentKernel(), "comm", {})
    assert link.wish(page, "read", CellRef("a", ""), {}).cancel()
    assert not link._asked


def test_what_a_page_was_asked_before_it_knocked_again_fails_when_it_leaves() -> None:
    link, kernel = LabLink(None), KernelWithComms()
    link._kernel = kernel
    first = link._let_in("a", {"inbox": "i"})
    wish = link.wish(first, "read", CellRef("cell", ""), {})
    second = link._let_in("b", {"inbox": "i"})
    link.drop(first)
    assert not wish.done()
    link.drop(second)
    assert wish.done()


def test_a_page_that_knocked_twice_is_heard_on_both_comms_until_it_leaves() -> None:
    """It speaks on the first one until it hears that the second was let in too."""
    link, heard = LabLink(kernel := KernelWithComms()), list[Data]()
    comms = kernel.comm_manager.comms
    for each in ("first", "second"):
        comms[each] = comm = RecordingComm(each)
        link._open(comm, {"content": {"data": {"inbox": "i"}}})
    link.hear_question("q", heard.append)
    for each in ("first", "second", "another's"):
        said = {"type": "question", "id": "q", "content": {"on": each}}
        link._control(None, None, {"content": {"comm_id": each, "data": said}})
    assert heard == [{"on": "first"}, {"on": "second"}]
    link.drop(link.pages[0])
    assert not comms


def test_the_way_of_a_page_that_has_left_is_not_that_of_the_next() -> None:
    link, kernel = LabLink(None), SilentKernel()
    link._kernel = kernel

    def let_in(inbox: str, *, watcher: bool = False) -> Page:
        return link._let_in(inbox, {"inbox": inbox, "watcher": watcher})

    def ping(page: Page) -> None:
        said = {"type": "ping"}
        thread = threading.Thread(target=link._receive, args=(page, said, "subshell"))
        thread.start()
        thread.join()

    ping(let_in("left"))
    link._pages.clear()
    page = let_in("next")
    ping(let_in("watcher", watcher=True))
    assert not link._pinged.is_set()
    ping(page)
    assert link.wait_for_reach(0) == "subshell"


def test_of_a_link_that_is_closed_no_comm_is_left() -> None:
    """A comm's handlers know the link, and so all that the kernel had of agents."""
    link, comm = LabLink(kernel := KernelWithComms()), RecordingComm()
    comms = kernel.comm_manager.comms
    comms[comm.comm_id] = comm
    link._open(comm, {"content": {"data": {"inbox": "i", "tools": [{"name": "pick"}]}}})
    results = list[Data]()
    link.call("pick", "c1", {}, "client", results.append)
    link.close()
    assert not comms
    assert "closed" in str(results)


def test_a_page_that_was_one_too_many_is_told_and_comes_again_with_all_that_it_missed() -> None:
    link = LabLink(kernel := KernelWithComms())
    sent = kernel.session.sent
    first = link._let_in("first", {"inbox": "first"})
    link._receive(first, {"type": "watch", "words": ""}, "control")
    asked = link.wish(first, "read", CellRef("cell", ""), {})
    sent.clear()
    for number in range(MOST_PAGES):
        link._let_in(f"{number}", {"inbox": f"{number}"})
    assert [said for said in sent if said["type"] == "goodbye"] == [
        {"type": "goodbye", "again": True}
    ]
    assert "closed" in str(asked.result(timeout=0))
    link.keep("ended", {"d": {"text/plain": "The end."}})
    link.show_helper("ended", "helper", "explore-1: looks", 1.0)
    sent.clear()
    knock = {"type": "knock", "inbox": "first", "path": "a.ipynb"}
    link._control(None, None, {"content": {"comm_id": "again", "data": knock}})
    kinds = [said["type"] for said in sent]
    assert kinds == ["goodbye", "welcome", "helper", "redraw"]  # another page is one too many now
    assert link.pages[-1].inbox == "first"


def test_a_page_without_comms_is_heard_on_the_control_channel_until_it_leaves() -> None:
    link, heard = LabLink(kernel := KernelWithComms()), list[Data]()
    link.hear_question("q", heard.append)
    link.answers["cells"] = lambda question: {"cells": []}

    def say(**data: Any) -> None:
        message = {"content": {"comm_id": "own", "data": data}}
        thread = threading.Thread(target=kernel.control_handlers[CONTROL], args=(0, 0, message))
        thread.start()
        thread.join()

    say(type="knock", inbox="i", path="a.ipynb")
    say(type="ping")
    assert link.wait_for_reach(0) == "control"
    say(type="question", id="q", content={"decision": "approve"})
    say(type="ask", id="1", about="cells")
    assert heard == [{"decision": "approve"}]
    assert kernel.session.sent[-1] == {"type": "answer", "id": "1", "cells": []}
    say(type="bye")
    assert link.pages == ()
