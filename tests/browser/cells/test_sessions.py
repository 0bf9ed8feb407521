"""A session in JupyterLab: it outlives its cell, goes on being drawn, and ends as plain output."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.kernels.cells import scripted
from tests.support.pages.lab import WIDGET, NotebookPage, items_of

Open = Callable[..., NotebookPage]


# Each step waits for the test, which opens its gate.
SCRIPT = (
    r"printf '\033[31mred\033[0m\n'; "
    "for step in 1 2 3; do : < go$step; "
    r"printf '\033[32mstep %s\033[0m <b>bold</b>\n' $step; done; exit 3"
)
SESSION = f"Call('exec_command', {{'cmd': {SCRIPT!r}, 'yield_time_ms': 1000}})"
AGENT = "%%agent --approval never --sandbox danger-full-access\nGo.\n"
BUSY = "import asyncio\nfor n in range(600):\n    await asyncio.sleep(0.1)\n"


def test_a_session_outlives_its_cell(notebook: Open) -> None:
    page = notebook([scripted(SESSION, repr("It runs.")), AGENT, BUSY, ""])
    gates = [page.make_gate(f"go{step}") for step in (1, 2, 3)]
    page.run(0)
    page.run(1)
    call, session = page.cards(1).nth(0), page.cards(1).nth(1)
    expect(call).to_contain_text("goes on as a session")
    expect(call.locator(".am-fg")).to_have_text("red")
    expect(session).to_have_class(re.compile("am-running"))
    # While another cell runs, what the session prints appears in the cell that began it.
    page.start(2)
    gates[0].open()
    stream = page.cell(1).locator(".agm-stream")
    expect(stream).to_have_text("step 1 <b>bold</b>\n")
    expect(stream.locator(".agm-fg")).to_have_text("step 1")
    expect(page.cell(1).locator(".agm-live-head")).to_have_text(re.compile(r"session \d{5}: "))
    gates[1].open()
    expect(stream).to_have_text("step 1 <b>bold</b>\nstep 2 <b>bold</b>\n")
    # Its end, still while that cell runs.
    gates[2].open()
    expect(stream).to_have_count(0)
    expect(session).to_have_class(re.compile("am-failed"))
    expect(session).to_contain_text("exit 3")
    page.interrupt()
    page.wait_for_end(2)
    appended = [f for f in page.frames if b"comm_msg" in f and b'"append"' in f and b"step 2" in f]
    assert len(appended) == 1  # nothing is sent twice
    saved = page.save()
    outputs = saved.cells[1].outputs
    assert all(WIDGET not in output.data for output in outputs)
    (call_item, session_item, _) = items_of(saved.cells[1])
    assert session_item["name"] == "session" and session_item["exit_code"] == 3
    assert "\x1b[32mstep 3\x1b[0m" in session_item["output"]
    plain = [output.data for output in outputs if "step 3" in output.data["text/plain"]]
    assert len(plain) == 1 and "\x1b" not in plain[0]["text/plain"] + plain[0]["text/markdown"]
    assert call_item["note"] == "goes on as a session"
