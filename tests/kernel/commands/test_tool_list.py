"""``%agent tools`` in a real kernel: costs and counts, hiding, and trust in a project's files."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.cells import AGENTS, scripted
from tests.support.kernels.driver import Kernel

DONE = repr("Done.")
AGENT = "%%agent\nGo.\n"
FOUND = "from agent_magics import tool\n@tool\ndef found() -> int:\n    'Found.'\n    return 1\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The kernel's workspace."""
    return tmp_path


@pytest.fixture
def kernel(place: Path) -> Iterator[Kernel]:
    with Kernel(cwd=str(place)) as kernel:
        assert kernel.run("%load_ext agent_magics\n" + scripted(DONE, DONE, DONE)).status == "ok"
        yield kernel


def shown(kernel: Kernel, line: str) -> str:
    outcome = kernel.run(line)
    assert outcome.status == "ok", outcome.text
    return "".join(str(item) for item in outcome.items)


def offered(kernel: Kernel) -> str:
    """Return the names that the last request offered."""
    model = f"{AGENTS}['default']._models.given"
    return kernel.value(f"[each.spec.name for each in {model}.requests[-1].tools]")


def test_costs_counts_and_hiding(kernel: Kernel) -> None:
    listing = shown(kernel, "%agent tools")
    assert re.search(r"read_file\(.*\|\s*no \|\s*\d+ \|\s*0 \|\s*yes", listing), listing
    assert "four characters a token" in listing
    assert "Hidden: `shell`" in shown(kernel, "%agent tools hide shell")
    assert kernel.run(AGENT).status == "ok"
    assert "'shell'" not in offered(kernel)
    assert "Hidden" not in shown(kernel, "%agent tools show shell")
    assert kernel.run(AGENT).status == "ok"
    assert "'shell'" in offered(kernel)
    wrong = kernel.run("%agent tools hide nothing")
    assert (wrong.status, wrong.error) == ("error", "UsageError")


def test_a_projects_tools_are_offered_once_they_are_trusted(kernel: Kernel, place: Path) -> None:
    folder = place / ".agent_magics" / "tools"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(FOUND)
    first = kernel.run(AGENT)
    assert first.status == "ok"
    assert "you have not trusted these files" in "".join(str(item) for item in first.items)
    assert "'found'" not in offered(kernel)

    said = shown(kernel, "%agent tools trust")
    digest = re.search(r"%agent tools trust ([0-9a-f]{12})", said)
    assert digest is not None, said
    assert "mine.py" in said
    assert kernel.run("%agent tools trust 000000000000").status == "error"
    assert "`found`" in shown(kernel, f"%agent tools trust {digest[1]}")
    assert kernel.run(AGENT).status == "ok"
    assert "'found'" in offered(kernel)

    (folder / "mine.py").write_text(FOUND + "#")
    assert kernel.run(AGENT).status == "ok"
    assert "'found'" not in offered(kernel)


def test_a_registered_tool_joins_the_notebooks_own(kernel: Kernel) -> None:
    kernel.run(AGENT)
    kernel.run(
        f"def extra() -> int:\n    'Extra.'\n    return 1\n{AGENTS}['default'].register(extra)"
    )
    assert kernel.run(AGENT).status == "ok"
    assert "'extra'" in offered(kernel)
