"""Notes in a kernel: about variables, and ``%agent memory`` for people."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.cells import outputs, scripted
from tests.support.kernels.driver import Kernel

AGENT = "%%agent --approval never\nGo.\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    with Kernel(cwd=str(folder)) as kernel:
        yield kernel


def _play(kernel: Kernel, *calls: str) -> str:
    """Run a cell that makes these calls, and return the outputs."""
    assert kernel.run("%reload_ext agent_magics\n" + scripted(*calls, "'Done.'")).status == "ok"
    assert kernel.run(AGENT).status == "ok"
    return kernel.value(outputs())


def _keep(topic: str, **arguments: object) -> str:
    return f"Call('remember', {{'topic': {topic!r}, **{arguments!r}}})"


def test_people_list_show_edit_delete_and_trust(kernel: Kernel, folder: Path) -> None:
    kernel.run("rates = {'a': 1, 'b': 2}")
    text = "# <b>Rates</b> | of change\n\nA line."
    told = _play(kernel, _keep("rates", text=text, about=["rates"], scope="project"))
    assert "Kept under rates (project)" in told
    file = folder / ".agent_magics" / "memory" / "rates.md"
    assert "- variable `rates` (" in file.read_text(encoding="utf-8")

    listed = kernel.run("%agent memory").items[0]["text"]
    assert "`rates`" in listed
    assert "current" in listed
    kernel.run("rates = {'a': 1}")
    assert "stale: `rates` changed" in kernel.run("%agent memory").items[0]["text"]
    assert "A line." in kernel.run("%agent memory show rates").items[0]["text"]

    payload = "sent = get_ipython().payload_manager.read_payload()"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    kernel.run(f"%agent memory edit rates\n{payload}")
    cells = kernel.value("[each['text'] for each in sent]")
    assert "\\n\\nA line." in cells and "\\r" not in cells, "as its editor counts the lines"
    file.write_text("# Rates, changed by hand\n", encoding="utf-8")
    listed = kernel.run("%agent memory").items[0]["text"]
    assert "not trusted" in listed
    assert "no note about" in _play(kernel, "Call('get_memory', {'topic': 'rates'})")
    digest = listed.partition("%agent memory trust ")[2][:12]
    assert "are used" in kernel.run(f"%agent memory trust {digest}").items[0]["text"]
    assert "changed by hand" in _play(kernel, "Call('get_memory', {'topic': 'rates'})")

    assert "deleted" in kernel.run("%agent memory delete rates project").items[0]["text"]
    assert not file.exists()
    assert "There are no notes" in kernel.run("%agent memory").items[0]["text"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("show", "takes: show TOPIC"),
        ("show nothing", "There is no note 'nothing'"),
        ("delete ../../x", "There is no note '../../x'"),
        ("edit", "takes: edit TOPIC"),
        ("trust 0123456789ab", "are not (or no longer) those"),
        ("whatever", "takes: nothing, show TOPIC"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_in_one_sentence(
    kernel: Kernel, line: str, why: str
) -> None:
    outcome = kernel.run(f"%agent memory {line}")
    assert outcome.status == "error"
    assert why in outcome.text
