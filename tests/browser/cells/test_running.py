"""What the page shows and takes while a turn runs: streams, interrupts, many calls, a reload."""

import re
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.support.kernels.cells import AGENTS, HISTORY_IS_VALID, scripted
from tests.support.models.responses_server import Reply, ResponsesServer
from tests.support.pages.lab import WIDGET, NotebookPage, items_of

Open = Callable[..., NotebookPage]


# Three thousand words in about three seconds.
CHATTY_MODEL = f"""
import asyncio
from agent_magics.models.base import ItemDone, ResponseDone, TextChunk
from agent_magics.protocol.items import AssistantMessage


class ChattyModel:
    source, name = "script", "chatty"

    async def stream(self, request):
        words = [f"word{{n}} " for n in range(3000)]
        for word in words:
            yield TextChunk(word)
            await asyncio.sleep(0.001)
        yield ItemDone(AssistantMessage("".join(words)))
        yield ResponseDone()

    def secrets(self):
        return ()

    async def close(self):
        pass


{AGENTS}["default"] = Agent(ChattyModel())
"""

DONE = repr("It is done.")
AGENT = "%%agent\nGo.\n"
ASKING = "%%agent --approval untrusted\nGo.\n"  # also about commands in the sandbox
PYTHON = "Call('python', {'code': 'total = 6 * 7\\ntotal'})"


def _bash(script: str) -> str:
    return f"Call('shell', {{'command': ['bash', '-c', {script!r}]}})"


@pytest.mark.parametrize("how", ["button", pytest.param("keys", marks=pytest.mark.long)])
def test_interrupt_at_a_question(notebook: Open, how: str) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, "reached = True", HISTORY_IS_VALID, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    if how == "button":
        page.interrupt()
    else:
        page.page.keyboard.press("Escape")
        page.page.keyboard.press("i")
        page.page.keyboard.press("i")
    page.wait_for_end(1)
    expect(page.questions).to_have_count(0)
    page.wait_for_text(1, "KeyboardInterrupt: Interrupted by the person.")
    page.run(3)
    page.wait_for_text(3, "valid")
    expect(page.area(1)).not_to_contain_text(re.compile("nterrupted(.|\n)*nterrupted"))
    (call,) = items_of(page.save().cells[1])  # and no notice: the cell's own error says it
    assert (call["kind"], call["status"]) == ("tool", "denied")


def test_interrupt_of_a_command_at_full_speed(notebook: Open) -> None:
    page = notebook([scripted(_bash("yes"), DONE), ASKING, HISTORY_IS_VALID, ""])
    page.run(0)
    page.start(1)
    page.answer("Approve")
    stream = page.cell(1).locator(".agm-stream")
    expect(stream).to_contain_text("y\ny\ny")
    page.interrupt()
    page.wait_for_end(1)
    page.wait_for_text(1, "KeyboardInterrupt")
    page.run(2)
    page.wait_for_text(2, "valid")
    expect(page.cell(1).locator(".agm-stream")).to_have_count(0)
    assert items_of(page.save().cells[1])[0]["status"] == "failed"


def test_the_stream_shows_a_long_command_by_what_is_new(notebook: Open) -> None:
    line = "do echo line $n of thirty; sleep 0.1; done; "
    script = f"for n in $(seq 15); {line}: < first; for n in $(seq 16 30); {line}: < second"
    page = notebook([scripted(_bash(script), DONE), ASKING, ""])
    first, second = page.make_gate("first"), page.make_gate("second")
    page.run(0)
    page.start(1)
    page.answer("Approve")
    stream = page.cell(1).locator(".agm-stream[aria-busy=true]")
    expect(stream).to_contain_text("line 9 of")
    expect(stream).to_contain_text("line 15 of")
    first.open()
    expect(stream).to_contain_text("line 30 of")
    second.open()
    page.wait_for_end(1)
    appended = [frame for frame in page.frames if b"comm_msg" in frame and b'"append"' in frame]
    # A view that is drawn gets what came before; besides that each line comes once.
    sent = [re.findall(rb"line (\d+) of", f) for f in appended if b'"view"' not in f]
    numbers = [int(number) for frame in sent for number in frame]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 30
    assert max(map(len, sent[1:])) < 10
    expect(page.cell(1).locator(".agm-stream")).to_have_count(0)
    call, _, gates = items_of(page.save().cells[1])
    assert gates["kind"] == "changes"  # that they are gone
    assert "line 1 of" in call["output"]
    assert "line 30 of" in call["output"]


def test_words_come_in_as_the_model_says_them(notebook: Open) -> None:
    words = " ".join(f"word{n}" for n in range(400))
    reply = Reply(words, pause_after=len(Reply(words).sse()) // 2)
    with ResponsesServer([reply]) as server:
        setup = (
            "%load_ext agent_magics\n%config AgentMagics.model = 'm'\n"
            f"%config AgentMagics.base_url = {server.base_url!r}"
        )
        page = notebook([setup, AGENT, ""])
        page.run(0)
        page.start(1)
        expect(page.outputs(1).first).to_contain_text("word1")
        expect(page.area(1)).not_to_contain_text("word399")
        reply.release.set()
        expect(page.outputs(1).first).to_contain_text("word399")
        page.wait_for_end(1)
    expect(page.outputs(1)).to_have_count(2)


def test_few_messages_however_fast_the_words_come(notebook: Open) -> None:
    page = notebook([scripted(), CHATTY_MODEL, AGENT, ""])
    page.run(0)
    page.run(1)
    began = time.monotonic()
    page.start(2)
    expect(page.outputs(2).first).to_contain_text("word2999 ")
    page.wait_for_end(2)
    seconds = time.monotonic() - began
    updates = [frame for frame in page.frames if b"update_display_data" in frame]
    assert 3 < len(updates) <= 20 * seconds


@pytest.mark.long
def test_a_question_after_two_hundred_calls_is_seen(notebook: Open) -> None:
    # (Each is another one: what goes round in circles is asked about.)
    calls = "*[[Call('list_dir', {'pattern': 'x' * (n + 1)})] for n in range(200)]"
    page = notebook([scripted(calls, PYTHON, DONE), "%%agent --max-turns 300\nGo.\n", ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    expect(question).to_contain_text("total = 6 * 7")
    page.answer("Approve")
    page.wait_for_end(1)
    assert page.value("total") == "42"
    cell = page.save().cells[1]
    assert len(cell.outputs) <= 40
    assert len([item for item in items_of(cell) if item["kind"] == "tool"]) == 201
    assert all(WIDGET not in output.data for output in cell.outputs)
    expect(page.outputs(1).last).to_contain_text("It is done.")


def test_run_all_runs_cell_after_cell(notebook: Open) -> None:
    page = notebook(
        [scripted(PYTHON, DONE, repr("And more."), PYTHON, DONE), *[AGENT] * 3, "total += 1", ""]
    )
    page.run_all()
    page.answer("Approve")
    page.wait_for_end(2)
    page.answer("Approve")
    page.wait_for_end(4)
    page.wait_for_text(2, "And more.")
    assert page.value("total") == "43"
