"""A server's form is filled in at the page; what does not fit is told beside its field."""

import json
import sys
from collections.abc import Callable, Sequence

from playwright.sync_api import Locator, expect

from tests.support.kernels.cells import outputs, scripted
from tests.support.mcp import PROGRAMS
from tests.support.pages.accessibility import faults, taken_keys, unreachable
from tests.support.pages.lab import WIDGET, Lab, NotebookPage, mimes_of

Open = Callable[..., NotebookPage]


SERVER = str(PROGRAMS / "asking_server.py")
SERVERS = {"asking": {"command": sys.executable, "args": [SERVER], "startup_timeout_sec": 60}}
GO = "%%agent\nGo.\n"


def call(name: str, **arguments: str) -> str:
    return f"Call('mcp__asking__{name}', {arguments!r})"


def field(form: Locator, name: str) -> Locator:
    return form.locator(f"[data-field={name}]")


def problem(form: Locator, name: str) -> Locator:
    return form.locator(f".agm-form-field:has([data-field={name}]) .agm-problem")


def send(form: Locator) -> None:
    form.get_by_role("button", name="Send", exact=True).click()


def test_a_form_is_filled_in_and_an_address_is_opened(
    notebook: Open, lab: Lab, looks: Sequence[str]
) -> None:
    address = f"{lab.url}/api?next=https://bank.example"
    script = scripted(call("book"), call("busy"), call("visit", address=address), repr("Done."))
    page = notebook([f"{script}%config AgentMagics.mcp_servers = {SERVERS!r}", GO, ""])
    page.run(0)
    page.start(1)

    form = page.wait_for_question()
    expect(form).to_contain_text("The MCP server asking asks:")
    expect(form.locator(".agm-message")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(form).to_contain_text("In <b>euros</b>.")
    expect(form.locator("img, b")).to_have_count(0)
    expect(form.locator(".agm-required")).to_have_count(3)
    expect(field(form, "day")).to_have_value("2026-12-24")
    expect(field(form, "window")).to_be_checked()

    send(form)
    for name in ("name", "guests", "meal"):
        expect(problem(form, name)).to_have_text("this is required")
    expect(field(form, "name")).to_be_focused()

    field(form, "name").fill("Ann")
    field(form, "email").fill("nobody")
    field(form, "guests").fill("many")
    field(form, "meal").select_option(label="Fish")
    for extra in ("wine", "music"):
        field(form, "extras").get_by_label(extra).check()
    field(form, "window").uncheck()
    send(form)
    expect(problem(form, "guests")).to_have_text("this must be a number")
    expect(problem(form, "email")).to_have_text("this must be such as name@example.org")
    expect(problem(form, "extras")).to_have_text("choose at most 2")
    expect(problem(form, "name")).to_be_empty()
    assert faults(page, "form", looks=looks) == []
    assert unreachable(page) == []
    assert taken_keys(page) == []

    field(form, "guests").fill("3")
    field(form, "email").fill("")
    field(form, "extras").get_by_label("cake").uncheck()
    field(form, "guests").press("Enter")  # sends, as in every form, and does not edit the cell

    busy = page.page.locator(".agm-form:has-text('Sure?')")
    expect(busy.get_by_role("button", name="Decline", exact=True)).to_be_enabled()
    busy.get_by_role("button", name="Decline", exact=True).click()

    visit = page.page.locator(".agm-form:has-text('Please sign in.')")
    expect(visit.locator(".agm-host")).to_have_text(address.split("/")[2])
    expect(visit.locator(".agm-url")).to_have_text(address)
    with page.page.context.expect_page() as opened:
        visit.get_by_role("button", name="Open the page", exact=True).click()
    assert opened.value.url == address
    opened.value.close()

    page.wait_for_end(1)
    expect(page.questions).to_have_count(0)
    booked, sure, visited = json.loads(page.value(f"__import__('json').dumps({outputs()})"))
    answer, _, content = booked.partition(" ")
    assert (answer, json.loads(content)) == (
        "accept",
        {
            "name": "Ann",
            "day": "2026-12-24",
            "guests": 3,
            "window": False,
            "meal": "f",
            "extras": ["wine", "music"],
        },
    )
    assert (sure, visited) == ("decline null", "accept")
    assert all(WIDGET not in mimes for mimes in mimes_of(page.save()))
