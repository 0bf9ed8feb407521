"""``%agent mcp login`` in a real cell: the address is shown, and opened as a browser opens it."""

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.driver import Kernel, Outcome
from tests.support.mcp.http_server import Guard, HttpServer

SLOW = 60.0  # seconds that a step may take on a busy machine
ADDRESS = re.compile(r"`(http://127\.0\.0\.1:\d+/auth/authorize\?[^`]+)`")


class Browser:
    """Opens the address that the cell shows, once, on a thread of its own."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self._threads: list[threading.Thread] = []

    def __call__(self, message: dict[str, object]) -> None:
        found = ADDRESS.search(json.dumps(message["content"], default=str))
        if found and not self._threads:
            self._threads.append(threading.Thread(target=self._open, args=(found[1],)))
            self._threads[0].start()

    def _open(self, address: str) -> None:
        with urllib.request.urlopen(address, timeout=SLOW) as answer:
            self.pages.append(answer.read().decode())

    def close(self) -> None:
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with HttpServer() as server:
        guard = Guard(server)
        guard.address = server.address
        yield guard


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The person's folder for settings and keys."""
    return tmp_path_factory.mktemp("config")


@pytest.fixture(scope="module")
def kernel(guard: Guard, config: Path) -> Iterator[Kernel]:
    env = {
        "XDG_CONFIG_HOME": str(config),
        "XDG_STATE_HOME": str(config),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }
    with Kernel(cwd=str(config), env=env) as kernel:
        assert kernel.run("%load_ext agent_magics").status == "ok"
        servers = {"small": {"url": guard.address, "startup_timeout_sec": SLOW}}
        assert kernel.run(f"%config AgentMagics.mcp_servers = {servers!r}").status == "ok"
        yield kernel


def log_in(kernel: Kernel) -> tuple[Outcome, Browser]:
    browser = Browser()
    outcome = kernel.run("%agent mcp login small", limit=2 * SLOW, on_message=browser)
    browser.close()
    return outcome, browser


def status(kernel: Kernel) -> str:
    outcome = kernel.run("%agent mcp status", limit=2 * SLOW)
    assert outcome.status == "ok", outcome.text
    return str(outcome.items[0]["text"])


def kept(config: Path) -> str:
    """What stands in the files that only the person may read."""
    files = list(config.rglob("credentials.json"))
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    return "".join(file.read_text(encoding="utf-8") for file in files)


def test_a_login_that_is_refused_is_one_sentence(kernel: Kernel, guard: Guard) -> None:
    assert "| needs login |" in status(kernel)
    guard.refuse = True
    outcome, browser = log_in(kernel)
    guard.refuse = False
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert "The login was refused: The person said no." in outcome.text
    assert "The login was refused" in browser.pages[0]


def test_a_login_and_its_end(kernel: Kernel, guard: Guard, config: Path) -> None:
    outcome, browser = log_in(kernel)
    assert outcome.status == "ok", outcome.text
    first, *_, last = (str(item["text"]) for item in outcome.items)
    assert "To log in to MCP server `small`, open [this page of 127.0.0.1:" in first
    assert last == "You are logged in to MCP server `small`."
    assert "You are logged in" in browser.pages[0]
    assert "| ready |" in status(kernel)
    assert kernel.value("mcp.small.add(1, 2)") == "3"

    (token,) = guard.valid
    assert token in kept(config)
    shown = json.dumps(outcome.outputs, default=str) + kernel.run("%agent mcp logs small").text
    assert token not in shown
    assert token not in status(kernel)

    assert kernel.run("%agent mcp logout small", limit=2 * SLOW).status == "ok"
    assert token not in kept(config)
    assert "| needs login |" in status(kernel)
    assert "wants a login" in kernel.run("mcp.small.add(1, 2)", limit=2 * SLOW).text
