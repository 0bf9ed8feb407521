"""A request that fails is made again, and the cell says so: a countdown, then one short line."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kernels.driver import ITEM, Kernel, Outcome
from tests.support.models.responses_server import Reply
from tests.support.models.server import ModelServer

CELL = "%reload_ext agent_magics\n"
RUN = "%%agent --new --tools read-only\nGo.\n"
WRAPPERS = pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])


def _busy(header: str, value: str) -> Reply:
    return Reply(status=503, error="overloaded", headers=((header, value),))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(chat=[_busy("retry-after-ms", "1"), "Hello."]) as server:
        yield server


@pytest.fixture
def kernel(server: ModelServer) -> Iterator[Kernel]:
    with Kernel(env={"OPENAI_BASE_URL": server.base_url}) as kernel:
        assert kernel.run(CELL).status == "ok"
        yield kernel


def _notices(outcome: Outcome) -> list[str]:
    return [item["text"] for item in outcome.items_of("notice")]


@WRAPPERS
def test_what_stays_of_a_wait_is_one_short_line(kernel: Kernel, wrapper: str) -> None:
    outcome = kernel.run(wrapper + RUN, notebook=True, allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    [line] = _notices(outcome)
    assert re.fullmatch(r"The model answered at attempt 2; before that: .+ status 503\.", line)
    assert [item["text"] for item in outcome.items_of("text")] == ["Hello."]


def test_where_nobody_watches_the_line_is_the_same(kernel: Kernel) -> None:
    outcome = kernel.run(RUN)
    [line] = _notices(outcome)
    assert line.startswith("The model answered at attempt 2")


def test_a_console_prints_the_wait_when_it_begins_and_nothing_more(kernel: Kernel) -> None:
    outcome = kernel.run(RUN, allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    lines = [line for line in outcome.text.splitlines() if "attempt" in line]
    assert len(lines) == 1
    assert re.fullmatch(r"Warning: Trying again in 1 s \(attempt 2 of 6\): .+503\.", lines[0])


class Watcher:
    """Reads the countdown, and interrupts when it has been drawn a second time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.seen: list[int] = []

    def __call__(self, message: dict[str, Any]) -> None:
        item = message["content"].get("data", {}).get(ITEM, {})
        found = re.match(r"Trying again in (\d+) s \(attempt 2 of 6\): ", item.get("text", ""))
        if found:
            self.seen.append(int(found[1]))
            if len(self.seen) == 2:
                self._kernel.interrupt()


@WRAPPERS
def test_the_countdown_goes_on_and_an_interrupt_ends_it(wrapper: str) -> None:
    with (
        ModelServer(chat=[_busy("retry-after", "100")]) as server,
        Kernel(env={"OPENAI_BASE_URL": server.base_url}) as kernel,
    ):
        assert kernel.run(CELL).status == "ok"
        watcher = Watcher(kernel)
        outcome = kernel.run(
            wrapper + RUN, notebook=True, allow_stdin=True, on_message=watcher, limit=60
        )
        assert kernel.value("_agent.status") == "aborted"
    assert outcome.error == "KeyboardInterrupt"
    first, second, *_ = watcher.seen
    assert 100 <= first <= 110 and second < first
    (waited,) = _notices(outcome)
    assert waited.startswith("Stopped before attempt 2")
    assert "Interrupted by the person." in outcome.outputs[-1]["text"]
    assert len(server.requests) == 2  # the Responses API was looked for first
