"""Notes by topic: where they stand, what is read of hostile ones, and what a model is told."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.config_files.places import config_folder, trust_folder
from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.files.locks import is_held
from agent_magics.files.plain_files import read_plain
from agent_magics.project import memory
from agent_magics.project.fingerprints import Anchor, Fingerprints
from agent_magics.project.memory import (
    MOST_BYTES,
    MOST_TEXT,
    MOST_TOKENS,
    MOST_TOPICS,
    Note,
    NoteFolder,
    list_contents,
    note_content,
    note_folders,
    render_contents,
    with_changes,
)
from agent_magics.protocol.errors import RespondToModel
from tests.support.users import call_as_user


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def project(workspace: Path) -> NoteFolder:
    return note_folders(workspace)["project"]


def placed(workspace: Path, **files: str) -> NoteFolder:
    """Write notes as a repository brings them."""
    folder = workspace / ".agent_magics" / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return project(workspace)


def test_a_note_is_a_plain_file_that_can_be_read_at_once(workspace: Path) -> None:
    about = (Anchor("file", "a.csv", "0" * 16), Anchor("variable", "df", "1" * 16))
    for scope, base in (("project", workspace / ".agent_magics"), ("user", config_folder())):
        folder = note_folders(workspace)[scope]
        diff = folder.write("sales-data", note_content("# Sales\n\nIn euros.", about))
        assert diff.startswith("--- /dev/null\n+++ ")
        assert "+In euros." in diff
        path = base / "memory" / "sales-data.md"
        assert path == folder.path_of("sales-data")
        assert path.read_text(encoding="utf-8").startswith("# Sales\n\nIn euros.\n\nAbout:\n- file")
        [note] = folder.notes()
        assert (note.text, note.about, note.scope) == ("# Sales\n\nIn euros.", about, scope)
        assert "-In euros." in folder.diff("sales-data", None)
        folder.write("sales-data", None)
        assert folder.notes() == ()
    assert not list(config_folder().rglob("*.md"))
    assert config_folder().joinpath("memory").stat().st_mode & 0o022 == 0


@given(st.text(max_size=200))
def test_any_text_is_read_back_as_it_was_kept(text: str) -> None:
    try:
        content = note_content(text, (Anchor("file", "a b.csv", "a" * 16),))
    except RespondToModel:
        return
    again = note_content(content)
    assert again.strip() == content.strip()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected Markdown, got none"),
        (" \n\x00\u200b", "expected Markdown, got none"),
        ("x" * (MOST_TEXT + 1), "expected at most 16,000 characters, got 16,001"),
        ("The key is sk-" + "a1" * 12, "no note keeps those"),
        ("token ghp_" + "a" * 36, "no note keeps those"),
    ],
)
def test_what_no_note_may_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(RespondToModel, match=why):
        note_content(text)


# -- trust -----------------------------------------------------------------------------------------


def test_notes_of_a_repository_are_used_once_they_are_trusted(workspace: Path) -> None:
    folder = placed(workspace, one="One.", two="Two.")
    assert folder.notes() == ()
    assert list_contents(workspace, {}) == ""
    with pytest.raises(RespondToModel, match="has not trusted them"):
        folder.write("three", "Three.\n")
    folder.trust(folder.digest(folder.read())[:SHOWN_DIGEST])
    assert [note.topic for note in folder.notes()] == ["one", "two"]
    folder.write("three", "Three.\n")
    folder.write("one", None)
    assert [note.topic for note in folder.notes()] == ["three", "two"], "our own writes keep it"
    placed(workspace, two="Two, and another thing.")
    assert folder.notes() == (), "a change from elsewhere does not"


def test_notes_written_first_are_trusted_and_later_strangers_are_not(workspace: Path) -> None:
    folder = project(workspace)
    folder.write("own", "Own.\n")
    assert len(folder.notes()) == 1
    placed(workspace, strange="Strange.")
    assert folder.notes() == ()


# -- hostile folders and files ---------------------------------------------------------------------


def test_no_other_kernel_writes_between_the_reading_of_notes_and_their_trust(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, held = project(workspace), list[bool | None]()
    for part in ("_put", "read"):
        step = getattr(folder, part)

        def note(*args: Any, step: Any = step) -> Any:
            held.append(is_held(trust_folder("memory")))
            return step(*args)

        monkeypatch.setattr(folder, part, note)
    folder.write("a", note_content("One."))
    assert held == [True, True] and is_held(trust_folder("memory")) is False
    folder.trust(folder.digest(folder.read()))
    assert held[-1] is True
    assert [note.topic for note in project(workspace).notes()] == ["a"]


@pytest.mark.parametrize("link", [".agent_magics", ".agent_magics/memory"])
def test_a_link_in_the_way_is_not_followed(workspace: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "memory").mkdir(parents=True)
    (outside / "x.md").write_text("secret", encoding="utf-8")
    (outside / "memory" / "x.md").write_text("secret", encoding="utf-8")
    (workspace / link).parent.mkdir(parents=True, exist_ok=True)
    (workspace / link).symlink_to(outside)
    folder = project(workspace)
    assert folder.read().files == {}
    assert folder.read().problems
    for content in ("Changed.\n", None):
        with pytest.raises(RespondToModel, match="Nothing was changed"):
            folder.write("x", content)
    assert {path.read_text() for path in outside.rglob("*.md")} == {"secret"}
    assert len(list(outside.rglob("*"))) == 3


def _link(path: Path) -> None:
    path.symlink_to(path.parents[3] / "secret")


def _hanging_link(path: Path) -> None:
    path.symlink_to(path.parents[3] / "new")


def _large(path: Path) -> None:
    path.write_bytes(b"x" * (MOST_BYTES + 1))


@pytest.mark.parametrize(
    "make",
    [_link, _hanging_link, Path.mkdir, os.mkfifo, _large],
    ids=["link", "hanging link", "folder", "fifo", "large"],
)
def test_what_is_no_plain_file_is_neither_read_nor_replaced(workspace: Path, make: object) -> None:
    secret = workspace.parent / "secret"
    secret.write_text("secret", encoding="utf-8")
    folder = placed(workspace)
    path = folder.path_of("odd")
    make(path)  # type: ignore[operator]
    before = os.lstat(path)
    found = folder.read()
    assert found.files == {}
    assert list(found.problems) == ["odd.md"]
    for content in ("Changed.\n", None):
        with pytest.raises(RespondToModel, match="Nothing was changed"):
            folder.write("odd", content)
    assert os.lstat(path).st_ino == before.st_ino
    assert secret.read_text(encoding="utf-8") == "secret"
    assert not (workspace.parent / "new").exists()


def test_a_note_that_another_run_deletes_meanwhile_is_one_as_it_was(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = note_folders(workspace)["user"]
    folder.write("mine", note_content("Mine.", ()))

    def read_and_delete(name: str, most: int, *, folder: int) -> bytes:
        data = read_plain(name, most, folder=folder)
        os.unlink(name, dir_fd=folder)
        return data

    monkeypatch.setattr(memory, "read_plain", read_and_delete)
    [note] = folder.notes()
    assert note.text == "Mine."
    assert folder.notes() == ()


def test_odd_names_and_bytes_are_reported_or_read_as_text(workspace: Path) -> None:
    folder = placed(workspace, good="Good.")
    for name in ("Big.md", "a b.md", "notes.txt", "ü.md", "x" * 65 + ".md", ".hidden.md"):
        (folder.folder / name).write_text("odd", encoding="utf-8")
    (folder.folder / "bytes.md").write_bytes(b"\xff\xfe\x00A\x1b[2J\xe2\x80\xae")
    found = folder.read()
    assert sorted(found.files) == ["bytes", "good"]
    assert len(found.problems) == 5
    [odd, _] = folder.all_notes(found)
    assert "\x1b" not in odd.text
    assert "\u202e" not in odd.text


def test_too_many_notes_are_neither_read_nor_written(workspace: Path) -> None:
    names = {f"n{number:04}": "Text." for number in range(MOST_TOPICS + 5)}
    folder = placed(workspace, **names)
    found = folder.read()
    assert len(found.files) == MOST_TOPICS
    assert "more than 300" in found.problems["…"]
    folder.trust(folder.digest(found))
    with pytest.raises(RespondToModel, match="there are too many"):
        folder.write("zz", "Text.\n")


# -- what has changed ------------------------------------------------------------------------------


class Frame:
    """As a data frame says what it is."""

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)
        self.dtypes = ["int64"] * len(columns)


def moved(note: Note, workspace: Path, namespace: dict[str, object]) -> tuple[str, ...]:
    return with_changes(note, Fingerprints(workspace, namespace)).moved


def test_a_note_is_stale_when_its_file_or_its_frame_changes(workspace: Path) -> None:
    table = workspace / "a.csv"
    table.write_text("a,b\n", encoding="utf-8")
    namespace: dict[str, object] = {"df": Frame("a", "b")}
    now = Fingerprints(workspace, namespace)
    file, frame = now.of_file(table), now.of_variable("df")
    assert file
    assert frame
    about = (Anchor("file", "a.csv", file), Anchor("variable", "df", frame))
    note = Note("t", "user", "T.", about)
    assert moved(note, workspace, namespace) == ()
    assert moved(note, workspace, {"df": Frame("a", "b"), "other": 1}) == ()
    assert moved(note, workspace, {}) == (), "a kernel that has just started knows nothing yet"
    assert moved(note, workspace, {"df": Frame("a")}) == ("`df`",)
    assert moved(note, workspace, {"df": [1, 2]}) == ("`df`",)
    table.write_text("a,c\n", encoding="utf-8")
    assert moved(note, workspace, namespace) == ("`a.csv`",)
    table.unlink()
    assert moved(note, workspace, namespace) == ("`a.csv`",)
    table.mkdir()
    assert moved(note, workspace, namespace) == ("`a.csv`",)


def _of_closed_folder(top: str) -> list[tuple[str, ...]]:
    workspace, folder = Path(top), Path(top, "data")
    folder.mkdir()
    (folder / "a.csv").write_text("a\n", encoding="utf-8")
    found = []
    note = Note("t", "user", "T.", (Anchor("file", "data/a.csv", "0" * 16),))
    for closed, mode in ((folder / "a.csv", 0o000), (folder, 0o000), (folder, 0o444)):
        before = closed.stat().st_mode
        closed.chmod(mode)
        found.append(moved(note, workspace, {}))
        closed.chmod(before)
    return found


def test_of_a_file_that_cannot_be_looked_at_nothing_is_known() -> None:
    assert call_as_user(_of_closed_folder) == [()] * 3


def test_files_beyond_the_limit_are_not_judged(workspace: Path) -> None:
    (workspace / "a.bin").write_bytes(b"x" * 100)
    note = Note("t", "user", "T.", (Anchor("file", "a.bin", "0" * 16),))
    assert with_changes(note, Fingerprints(workspace, {}, 99)).moved == ()
    assert with_changes(note, Fingerprints(workspace, {}, 100)).moved == ("`a.bin`",)


# -- the table of contents -------------------------------------------------------------------------


def test_the_most_relevant_come_first() -> None:
    anchor = (Anchor("file", "a.csv", "0" * 16),)
    notes = [
        Note("stale", "project", "# S", anchor, "2026-03-01", ("`a.csv`",)),
        Note("mine-new", "user", "Mine", (), "2026-02-02"),
        Note("mine-old", "user", "Mine", (), "2026-01-01"),
        Note("shared", "project", "## Shared things\n\nMore.", (), "2025-01-01"),
        Note("file", "user", "About a file", anchor, "2024-01-01"),
    ]
    text = render_contents(notes)
    assert text.splitlines()[1:] == [
        "- file (user): About a file",
        "- shared (project): Shared things",
        "- mine-new (user): Mine",
        "- mine-old (user): Mine",
        "- stale (project): S [stale: `a.csv` changed]",
    ]
    assert 'say so: "from memory: TOPIC"' in text
    assert render_contents([]) == ""


@given(
    st.lists(
        st.builds(
            Note,
            st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True),
            st.sampled_from(["project", "user"]),
            st.text(),
            moved=st.lists(st.text(max_size=300), max_size=3).map(tuple),
        ),
        max_size=80,
    )
)
def test_the_table_of_contents_keeps_to_its_budget(notes: list[Note]) -> None:
    text = render_contents(notes)
    assert len(text.encode("utf-8", "replace")) <= MOST_TOKENS * 3


def test_an_interrupt_just_after_a_note_was_written_is_told_as_one(workspace: Path) -> None:
    folder = note_folders(workspace)["user"]
    replace = os.replace
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*args: str, **kwargs: int) -> None:
            replace(*args, **kwargs)
            raise KeyboardInterrupt

        patched.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            folder.write("a", "text\n")
    assert os.listdir(folder.folder) == ["a.md"]


def test_an_interrupt_just_after_a_note_was_begun_leaves_nothing(workspace: Path) -> None:
    folder = note_folders(workspace)["user"]
    create = memory.create_file
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*args: Any) -> None:
            os.close(create(*args))
            raise KeyboardInterrupt

        patched.setattr(memory, "create_file", interrupt)
        with pytest.raises(KeyboardInterrupt):
            folder.write("a", "text\n")
    assert os.listdir(folder.folder) == []
