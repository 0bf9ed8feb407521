"""``%agent diff``, ``undo`` and ``redo`` in a real kernel: what they show, and what they do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.cells import scripted
from tests.support.kernels.driver import Kernel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("undo")


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    with Kernel(cwd=str(folder)) as kernel:
        yield kernel


@pytest.fixture
def fresh(kernel: Kernel, folder: Path) -> Kernel:
    """The kernel, in an empty workspace."""
    for path in folder.iterdir():
        path.unlink()
    return kernel


def _write(path: str, content: str) -> str:
    return f"Call('write_file', {{'path': {path!r}, 'content': {content!r}}})"


def _turn(kernel: Kernel, *calls: str):
    assert kernel.run(scripted(*calls, repr("Done."))).status == "ok"
    return _go(kernel, "Change it.")


def _go(kernel: Kernel, prompt: str):
    outcome = kernel.run(f"%%agent --approval never --tools write_file python\n{prompt}\n")
    assert outcome.status == "ok", outcome.text
    return outcome


def _bundle(outcome):
    """Return the one rich output of a cell that is no item of ours."""
    (bundle,) = (
        message["content"]["data"]
        for message in outcome.messages
        if "text/html" in message["content"].get("data", {})
    )
    return bundle


def test_a_turn_is_shown_undone_and_made_again(fresh: Kernel, folder: Path) -> None:
    (folder / "a.txt").write_text("one\ntwo\n")
    outcome = _turn(fresh, _write("a.txt", "one\nTWO\n"), _write("conftest.py", "import os\n"))
    (item,) = outcome.items_of("changes")
    assert [(file["path"], file["added"], file["removed"]) for file in item["files"]] == [
        ("a.txt", 1, 1), ("conftest.py", 1, 0),
    ]  # fmt: skip
    assert item["runs"] == ["conftest.py runs by itself: pytest imports it before any test."]
    bundle = _bundle(fresh.run("%agent diff"))
    assert "Changes of: Change it." in bundle["text/html"] and "<table" in bundle["text/html"]
    assert "-two\n+TWO" in bundle["text/markdown"] and "-two\n+TWO" in bundle["text/plain"]
    outcome = fresh.run("%agent undo")
    assert "Undone: `Change it.`\n" in outcome.text and "- `a.txt`" in outcome.text
    assert (folder / "a.txt").read_text() == "one\ntwo\n"
    assert not (folder / "conftest.py").exists()
    assert "Done again: `Change it.`\n" in fresh.run("%agent redo").text
    assert (folder / "a.txt").read_text() == "one\nTWO\n"


def test_of_many_files_each_form_says_how_many_more_there_are(fresh: Kernel) -> None:
    code = "for number in range(50): open(str(number), 'w').close()"
    _turn(fresh, f"Call('python', {{'code': {code!r}}})")
    shown = _bundle(fresh.run("%agent diff"))
    forms = ("text/html", "text/markdown", "text/plain")
    assert ["10 more files changed." in shown[form] for form in forms] == [True] * 3


def test_turns_are_counted_back_and_listed(fresh: Kernel, folder: Path) -> None:
    calls = [_write("n.txt", f"{number}\n") for number in (1, 2)]
    fresh.run(scripted(calls[0], "'Done.'", calls[1], "'Done.'"))
    for number in (1, 2):
        _go(fresh, f"Write {number}.")
    assert "+2" in _bundle(fresh.run("%agent diff 1"))["text/plain"]
    assert "+1" in _bundle(fresh.run("%agent diff 2"))["text/plain"]
    listed = fresh.run("%agent diff list").text
    assert listed.index("Write 2.") < listed.index("Write 1.")
    assert fresh.run("%agent undo 2").status == "ok"
    assert not (folder / "n.txt").exists()


def test_an_edit_since_is_shown_and_nothing_is_changed(fresh: Kernel, folder: Path) -> None:
    _turn(fresh, _write("a.txt", "1\n"), _write("b.txt", "1\n"))
    (folder / "a.txt").write_text("mine\n")
    outcome = fresh.run("%agent undo")
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert "Nothing was changed" in outcome.text and "you changed it since" in outcome.text
    assert "-1\n+mine" in _bundle(outcome)["text/markdown"]
    assert (folder / "b.txt").exists()
    outcome = fresh.run("%agent undo --force")
    assert "Left alone: `a.txt`" in outcome.text
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    "code",
    [
        "x = 41\nopen('a.txt', 'w').write('from code')",
        "x = 41\nwrite_file('a.txt', 'one')\nwrite_file('a.txt', 'two')",
    ],
    ids=["by itself", "by a tool, and again"],
)
def test_live_code_that_writes_files_counts_and_its_variables_are_put_back_apart(
    fresh: Kernel, folder: Path, code: str
) -> None:
    outcome = _turn(fresh, f"Call('python', {{'code': {code!r}}})")
    assert [file["path"] for file in outcome.items_of("changes")[0]["files"]] == ["a.txt"]
    assert fresh.run("%agent undo").status == "ok"
    assert not (folder / "a.txt").exists() and fresh.value("x") == "41"
    assert "Put back: `x`." in fresh.run("%agent undo --namespace").text
    assert fresh.value("'x' in dir()") == "False"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("diff 99", "of this conversation changed files"),
        ("diff x", "%agent diff takes: [N], all, list; N counts"),
        ("diff 0", "%agent diff takes: [N], all, list; N counts"),
        ("undo x", "%agent undo takes: [N] [--force] [--sessions], --namespace"),
        ("undo 99", "of this conversation changed files"),
        ("undo --namespace 2", "%agent undo takes: --namespace;"),
        ("redo 2", "%agent redo takes: nothing; and the name of an agent: "),
    ],
)
def test_what_does_not_fit_is_said(fresh: Kernel, line: str, words: str) -> None:
    _turn(fresh, _write("a.txt", "1\n"))
    outcome = fresh.run(f"%agent {line}")
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert words in outcome.text


def test_changes_are_listed_kept_and_reverted_by_their_numbers(fresh: Kernel, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    _turn(fresh, _write("a.txt", "two\n"), _write("b.txt", "new\n"))
    listed = fresh.run("%agent review").text
    assert "1. `a.txt` open" in listed
    assert "-one\n+two" in listed
    (folder / "b.txt").write_text("mine\n")
    outcome = fresh.run("%agent review revert 1 2")
    assert "1. `a.txt` reverted" in outcome.text
    assert "2: Nothing was reverted, since b.txt is otherwise now" in outcome.text
    assert (folder / "a.txt").read_text() == "one\n"
    assert (folder / "b.txt").read_text() == "mine\n"
    assert "2. `b.txt` kept" in fresh.run("%agent review keep all").text
    assert (
        "%agent review takes: keep|revert all, keep|revert N ..."
        in fresh.run("%agent review revert").text
    )
