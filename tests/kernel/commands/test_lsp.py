"""``%agent lsp`` in a real kernel: a server that edits and questions share, its log, its end."""

import os
import signal
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.support.kernels.cells import scripted
from tests.support.kernels.driver import Kernel
from tests.support.language_servers.project import PROGRAM

TABLE = {"python": {"command": sys.executable, "args": [str(PROGRAM), "good"]}}
pytestmark = pytest.mark.needs("tier 1")


@pytest.fixture
def kernel(tmp_path) -> Iterator[Kernel]:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n\n\nf()\n")
    with Kernel(cwd=str(tmp_path)) as kernel:
        kernel.run("%load_ext agent_magics")
        kernel.run(f"%config AgentMagics.language_servers = {TABLE}")
        kernel.run("%config AgentMagics.approval = 'never'")
        yield kernel


def _ask(kernel: Kernel) -> None:
    call = "Call('references', {'name_path': 'f', 'path': 'a.py'})"
    kernel.run(scripted(call, "'Done.'"))
    assert kernel.run("%%agent --tools references\nGo.\n").status == "ok"


def test_a_server_is_listed_after_a_question_and_checks_edits(kernel):
    assert "No language server was started" in kernel.run("%agent lsp").text
    _ask(kernel)
    listed = kernel.run("%agent lsp").text
    assert "python" in listed and "ready" in listed
    call = "Call('write_file', {'path': 'b.py', 'content': 'wrong = 1'})"
    kernel.run(scripted(call, "'Done.'"))
    answer = kernel.run("%%agent --tools write_file\nGo.\n")
    assert "Errors since this edit:" in str(answer.outputs)
    assert "b.py:1:1: this is wrong (wrongness)" in str(answer.outputs)
    assert kernel.run("%agent lsp restart python").status == "ok"
    assert "ended" in kernel.run("%agent lsp log").text
    assert "not running" in kernel.run("%agent lsp stop").text
    assert kernel.run("%agent lsp nonsense").error == "UsageError"


def test_no_server_outlives_its_kernel(kernel):
    _ask(kernel)
    pid = int(kernel.value("__import__('os').getpid()"))
    servers = [
        each
        for each in psutil.Process(pid).children(recursive=True)
        if str(PROGRAM) in each.cmdline()
    ]
    assert servers
    os.kill(pid, signal.SIGKILL)
    assert psutil.wait_procs(servers, timeout=30)[1] == []
