"""What a turn changes is seen, told, taken back exactly, and made again."""

import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_magics.engine.file_changes.turn import Described, DiffTracker, describe, diff_event
from agent_magics.file_history import scan as workspace_scan
from agent_magics.file_history import states as workspace_states
from agent_magics.file_history import workspace
from agent_magics.file_history.journal import ChangeJournal, TurnChanges
from agent_magics.file_history.states import ABSENT, PathChange, PathState
from agent_magics.file_history.workspace import memory_of
from agent_magics.file_history.writers import Writers
from agent_magics.files.beneath import real_path
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.events import TurnDiffUpdated, Warned
from tests.support.files.random_trees import CONTENTS, EDITS, PATHS, edit, tree_of

SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_EDITED = st.lists(st.tuples(st.booleans(), EDITS), min_size=1, max_size=4)
TURNS = st.lists(st.tuples(st.booleans(), _EDITED), min_size=1, max_size=3)


class Work:
    """A workspace, its journal, and turns that change it.

    Attributes:
        events: those that the turns sent.
    """

    def __init__(self, parent: Path) -> None:
        self.parent = Path(tempfile.mkdtemp(dir=parent))
        self.root = self.parent / "root"
        self.root.mkdir()
        self.journal = ChangeJournal(str(self.parent / "journal"), {"agent": "test"})
        self.events: list = []
        self._told: set[str] = set()
        self._turns = 0

    def turn(self, **others) -> DiffTracker:
        self._turns += 1
        roots = (self.root,)
        tracker = DiffTracker(
            self.journal, f"t{self._turns}", self.root, roots, self._emit, self._told, **others
        )
        tracker.title = f"turn {self._turns}"
        return tracker

    def _emit(self, kind, **fields) -> None:
        self.events.append(kind(**fields))

    @contextmanager
    def command(self):
        """Whatever is done inside, a command of a turn of its own has done."""
        tracker = self.turn()
        watch = tracker.watch()
        yield tracker
        watch.finish()
        tracker.finish()

    @property
    def last(self) -> TurnDiffUpdated:
        return [event for event in self.events if isinstance(event, TurnDiffUpdated)][-1]

    def tree(self):
        return tree_of(self.root)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def _whole(root: Path, name: str) -> list[Path]:
    """Return a path, what stands below it, and the folders above: all that an edit may touch."""
    path = root / name
    below = list(path.rglob("*")) if path.is_dir() and not path.is_symlink() else []
    above = [each for each in path.parents if each != root and each.is_relative_to(root)]
    return [*above, path, *below]


def _play(work: Work, turns) -> list:
    """Do the turns, each edit by a command or by a tool that knows its paths; or all of a turn's by
    one piece of code, which may call such tools.
    """
    trees = [work.tree()]
    for is_code, edits in turns:
        tracker = work.turn()
        code = tracker.watch() if is_code else None
        for by_tool, (what, name, more) in edits:
            paths = _whole(work.root, name)
            usable = all(real_path(path.parent) == str(path.parent) for path in paths)
            if by_tool and what in ("write", "append", "mode", "remove") and usable:
                with tracker.writing(paths):
                    edit(work.root, what, name, more)
            else:
                watch = code or tracker.watch()
                edit(work.root, what, name, more)
                if code is None:
                    watch.finish()
        if code is not None:
            code.finish()
        tracker.finish()
        trees.append(work.tree())
    return trees


# -- random trees, random edits --------------------------------------------------------------------


@SOME
@given(before=st.lists(EDITS, max_size=6), turns=TURNS)
@example(before=[], turns=[(True, [(True, ("write", "a", b"one\n")), (True, ("write", "a", b""))])])
@example(
    before=[("write", "a", b"")],
    turns=[(True, [(True, ("write", "a", b"one\n")), (False, ("append", "a", b"one\n"))])],
)
def test_undo_gives_the_tree_before_and_redo_the_tree_after(tmp_path, before, turns):
    work = Work(tmp_path)
    for each in before:
        edit(work.root, *each)
    trees = _play(work, turns)
    changed = [n for n, (a, b) in enumerate(pairwise(trees)) if a != b]
    assert len(work.journal.turns) >= len(changed)
    count = len(work.journal.turns)
    if not count:
        return
    way = work.journal.undo(count)
    assert (way.obstacles, way.doubtful, way.kept_folders) == ((), (), ())
    assert work.tree() == trees[0]
    for _ in range(count):
        assert not work.journal.redo().obstacles
    assert work.tree() == trees[-1]
    for _ in range(count):
        assert not work.journal.undo().obstacles
    assert work.tree() == trees[0]


@SOME
@given(turns=TURNS, name=PATHS, content=CONTENTS.filter(bool), force=st.booleans())
def test_what_the_person_did_since_is_never_lost(tmp_path, turns, name, content, force):
    work = Work(tmp_path)
    _play(work, turns)
    mine = content + b"mine"
    edit(work.root, "write", name, mine)
    path = work.root / name
    if not path.is_file() or path.read_bytes() != mine or not work.journal.turns:
        return
    path = Path(real_path(path))  # a link on the way may be undone
    tree = work.tree()
    way = work.journal.undo(len(work.journal.turns), rest=force)
    if way.obstacles and not force:
        assert work.tree() == tree
    assert path.read_bytes() == mine


# -- conflicts -------------------------------------------------------------------------------------


def test_an_edit_between_two_turns_is_in_the_way_of_undoing_both(work):
    file = work.root / "a"
    file.write_text("1")
    with work.command():
        file.write_text("2")
    file.write_text("mine")
    with work.command():
        file.write_text("3")
    way = work.journal.undo(2)
    assert [each.reason for each in way.obstacles] == [
        "you changed it between two of these changes"
    ]
    assert file.read_text() == "3"
    assert not work.journal.undo().obstacles
    assert file.read_text() == "mine"
    assert [each.reason for each in work.journal.undo().obstacles] == ["you changed it since"]
    assert file.read_text() == "mine"


def test_forced_undo_leaves_alone_what_is_in_the_way_and_redo_too(work):
    with work.command():
        (work.root / "a").write_text("1")
        (work.root / "b").write_text("1")
    (work.root / "a").write_text("mine")
    way = work.journal.undo(rest=True)
    assert [Path(each.change.path).name for each in way.obstacles] == ["a"]
    assert {path: entry[2] for path, entry in work.tree().items()} == {"a": b"mine"}
    assert not work.journal.redo().obstacles
    assert {path: entry[2] for path, entry in work.tree().items()} == {"a": b"mine", "b": b"1"}


def test_what_is_already_as_it_was_is_not_in_the_way(work):
    (work.root / "a").write_text("1")
    with work.command():
        (work.root / "a").write_text("2")
        (work.root / "b").write_text("2")
    (work.root / "a").write_text("1")
    assert not work.journal.undo().obstacles
    assert {path: entry[2] for path, entry in work.tree().items()} == {"a": b"1"}


def test_a_folder_with_something_of_the_persons_stays(work):
    with work.command():
        (work.root / "made").mkdir()
        (work.root / "made/a").write_text("1")
    (work.root / "made/mine").write_text("mine")
    way = work.journal.undo()
    assert [Path(path).name for path in way.kept_folders] == ["made"]
    assert set(work.tree()) == {"made", "made/mine"}


def test_nothing_is_written_through_a_folder_that_became_a_link(work):
    outside = work.parent / "outside"
    outside.mkdir()
    (work.root / "d").mkdir()
    (work.root / "d/a").write_text("1")
    with work.command():
        (work.root / "d/a").write_text("2")
    (work.root / "d").rename(outside / "d")
    (work.root / "d").symlink_to(outside / "d")
    way = work.journal.undo()
    assert [each.reason for each in way.obstacles] == ["a folder on its path is a link now"]
    assert (outside / "d/a").read_text() == "2"


def test_a_command_keeps_what_it_did_beside_a_tool_of_another_turn(work):
    (work.root / "tool").write_text("1")
    command, other = work.turn(), work.turn()
    watch = command.watch()
    for text in "23":
        (work.root / f"command{text}").write_text(text)
        with other.writing([work.root / "tool"]):
            (work.root / "tool").write_text(text)
            (work.root / f"meanwhile{text}").write_text(text)
    watch.finish()
    paths = {
        turn.id: {Path(change.path).name for change in work.journal.changes_of([turn])}
        for turn in work.journal.turns
    }
    done = {f"{when}{text}" for when in ("command", "meanwhile") for text in "23"}
    assert paths == {"t1": done, "t2": {"tool"}}
    assert not work.journal.undo(2).obstacles
    assert {path: entry[2] for path, entry in work.tree().items()} == {"tool": b"1"}


@pytest.mark.parametrize("name", ["a", "./d/../a", "up/root/a", "to_a", "new/a", "to_d/new/a"])
def test_a_tool_may_name_its_file_in_any_way(work, monkeypatch, name):
    monkeypatch.chdir(work.root)
    (work.root / "d").mkdir()
    (work.root / "up").symlink_to("..")
    (work.root / "to_a").symlink_to("a")
    (work.root / "to_d").symlink_to("d")
    tree = work.tree()
    with work.turn().writing([Path(name)]):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("1")
    assert work.tree() != tree
    assert not work.journal.undo().obstacles
    assert work.tree() == tree


@pytest.mark.parametrize("written", ["a", "link"])
@pytest.mark.parametrize("again", ["a", "link"])
def test_a_file_that_was_read_may_be_written_by_any_name(work, written, again):
    (work.root / "a").write_text("1")
    (work.root / "link").symlink_to("a")
    writers = Writers()
    one, other = (work.turn(agent=name, writers=writers) for name in ("one", "other"))
    with one.writing([work.root / written]):
        (work.root / "a").write_text("2")
    is_told = pytest.raises(RespondToModel, match="was changed by agent one")
    with is_told, other.writing([work.root / again]):
        raise AssertionError("it has not read it")
    with one.writing([work.root / written]):
        (work.root / "a").write_text("3")
    other.saw(work.root / "a")
    with other.writing([work.root / again]):
        (work.root / "a").write_text("4")
    assert (work.root / "a").read_text() == "4"


def test_a_path_behind_a_link_does_not_hinder_the_tool(work):
    (work.root / "loop").symlink_to("loop")
    (work.root / "d").mkdir()
    (work.root / "link").symlink_to("d")
    paths = [work.root / name for name in ("loop/a", "link/a", "d/a")]
    with work.turn().writing(paths):
        (work.root / "d/a").write_text("1")
    assert [file.path for file in work.last.files] == ["d/a"]


def test_a_turn_after_an_undo_ends_what_could_be_made_again(work):
    with work.command():
        (work.root / "a").write_text("1")
    work.journal.undo()
    with work.command():
        (work.root / "b").write_text("1")
    with pytest.raises(FatalError, match="no undone turn"):
        work.journal.redo()
    assert [turn.title for turn in work.journal.turns] == ["turn 2"]


def test_more_turns_than_there_are_are_refused(work):
    with pytest.raises(FatalError, match="No turn of this conversation changed files"):
        work.journal.undo()
    with work.command():
        (work.root / "a").write_text("1")
    with pytest.raises(FatalError, match="Only 1 turn of"):
        work.journal.undo(2)
    assert (work.root / "a").exists()


@pytest.mark.parametrize("before", ["old", "", None], ids=["a text", "empty", "absent"])
def test_a_copy_that_finds_the_disk_full_is_told_at_once(work, monkeypatch, before):
    if before is not None:
        (work.root / "a").write_text(before)
    work.turn().watch().finish()
    monkeypatch.setattr(workspace_states.ContentStore, "put", lambda *_: False)
    with work.command():
        (work.root / "a").write_text("new")
    (file,) = work.last.files
    assert file.note.endswith("cannot be undone") == (before is not None)


def test_what_is_not_kept_is_told_and_not_undone(work, monkeypatch):
    monkeypatch.setattr(workspace_states, "MOST_FILE", 10)
    (work.root / "large").write_text("x" * 20)
    with work.command():
        (work.root / "large").write_text("y" * 21)
    (file,) = work.last.files
    assert file.note.endswith("cannot be undone")
    way = work.journal.undo()
    assert "what it was is not kept" in way.obstacles[0].reason
    assert (work.root / "large").read_text() == "y" * 21


def test_a_secret_is_noticed_and_never_copied(work):
    (work.root / ".env").write_text("KEY=first-secret\n")
    with work.command():
        (work.root / ".env").write_text("KEY=second-secret\n")
    assert work.last.files[0].path == ".env"
    assert "secret" not in work.last.diff
    kept = [path.read_text() for path in work.parent.glob("journal/**/*") if path.is_file()]
    assert not any("-secret" in text for text in kept)


# -- what is seen ----------------------------------------------------------------------------------


def test_what_the_person_did_before_a_command_is_not_its_doing(work):
    (work.root / "a").write_text("1")
    with work.command():
        pass
    (work.root / "a").write_text("mine")
    with work.command():
        (work.root / "b").write_text("1")
    assert [file.path for file in work.last.files] == ["b"]


def test_a_change_within_a_clock_tick_of_the_look_is_seen(work):
    """The file is as long as before, and its time stamps may be the same."""
    for number in range(20):
        (work.root / "a").write_text(f"{number:03}")
        with work.command():
            (work.root / "a").write_text(f"{number + 500:03}")
        assert f"-{number:03}" in work.last.diff


def test_left_out_folders_are_neither_seen_nor_walked(work):
    (work.root / ".gitignore").write_text("build/\n*.log\n!keep.log\n")
    for name in ("node_modules/x", "build", "mine/__pycache__", "environment"):
        (work.root / name).mkdir(parents=True)
    (work.root / "environment/pyvenv.cfg").touch()
    with work.command():
        for name in ("node_modules/x/y", "build/y", "mine/__pycache__/y", "environment/y"):
            (work.root / name).write_text("1")
        for name in ("a.log", "keep.log", "seen"):
            (work.root / name).write_text("1")
    assert [file.path for file in work.last.files] == ["keep.log", "seen"]
    told = memory_of(str(work.root)).left_out
    assert told == ["environment/", "mine/__pycache__/", "node_modules/"]


def test_files_that_a_command_begins_to_ignore_do_not_seem_to_be_gone(work):
    (work.root / "a").write_text("1")
    with work.command():
        (work.root / ".gitignore").write_text("a\n")
    assert [file.path for file in work.last.files] == [".gitignore"]
    with work.command():
        (work.root / "b").write_text("1")
    assert [file.path for file in work.last.files] == ["b"]


def test_a_workspace_that_is_too_large_is_told_once_and_tools_are_still_seen(work, monkeypatch):
    monkeypatch.setattr(workspace_scan, "MOST_ENTRIES", 3)
    for number in range(5):
        (work.root / str(number)).write_text("1")
    for _ in range(2):
        with work.command():
            (work.root / "0").write_text("2")
    assert [type(event) for event in work.events] == [Warned]
    assert "so what commands and code change there is not seen" in work.events[0].message
    with work.turn().writing([work.root / "0"]):
        (work.root / "0").write_text("3")
    assert work.last.files[0].path == "0"


def test_a_turn_without_changes_tells_nothing_and_writes_nothing(work):
    work.turn().finish()
    with work.command():
        pass
    assert not work.events
    assert not (work.parent / "journal").exists()


def test_a_turn_is_told_at_each_change_and_once_more_at_its_end(work):
    tracker = work.turn()
    for name in ("a", "b"):
        with tracker.writing([work.root / name]):
            (work.root / name).write_text("1\n")
    tracker.finish()
    assert [len(event.files) for event in work.events] == [1, 2, 2]
    assert work.events[1].diff == work.events[2].diff


def test_what_cancels_out_is_not_told(work):
    tracker = work.turn()
    for content in ("1", "2"):
        with tracker.writing([work.root / "a"]):
            (work.root / "a").write_text(content)
    with tracker.writing([work.root / "a"]):
        (work.root / "a").unlink()
    tracker.finish()
    assert work.last.files == () and work.last.diff == ""


# -- sessions --------------------------------------------------------------------------------------


def test_what_a_session_does_later_is_told_and_left_alone_by_undo(work):
    (work.root / "mine").write_text("1")
    session = work.turn().watch()
    (work.root / "a").write_text("in the call")
    session.hand_over()
    (work.root / "mine").write_text("edited by the person while it runs")
    (work.root / "b").write_text("after the call")
    tracker = work.turn()
    watch = tracker.watch()
    (work.root / "c").write_text("by a command")
    watch.finish()
    tracker.finish()
    assert [file.path for file in work.last.files] == ["b", "c", "mine"]
    assert "background sessions" in work.last.notes[0]
    way = work.journal.undo()
    assert sorted(Path(path).name for path in way.doubtful) == ["b", "mine"]
    assert set(work.tree()) == {"a", "b", "mine"}
    assert (work.root / "mine").read_text().startswith("edited")
    session.finish()
    assert not work.journal.undo().obstacles
    assert set(work.tree()) == {"b", "mine"}


def test_what_a_session_does_in_a_later_call_is_certain(work):
    session = work.turn().watch()
    session.hand_over()
    for name in ("a", "b"):
        session.take_back()
        (work.root / name).write_text("in a call")
        session.hand_over()
    session.finish()
    assert not work.journal.undo().obstacles
    assert work.tree() == {}
    assert not any(memory.is_busy for memory in session._tracker._memories())


def test_what_tools_write_while_a_session_runs_is_certain(work):
    session = work.turn().watch()
    session.hand_over()
    tracker = work.turn()
    with tracker.writing([work.root / "a"]):
        (work.root / "a").write_text("1")
    with work.command():
        pass
    tracker.finish()
    assert not work.last.notes
    session.finish()
    assert not work.journal.undo().obstacles
    assert work.tree() == {}


def test_two_commands_at_once_lose_nothing(work):
    tracker = work.turn()
    one, other = tracker.watch(), tracker.watch()
    (work.root / "a").write_text("1")
    one.finish()
    (work.root / "b").write_text("1")
    other.finish()
    tracker.finish()
    assert [file.path for file in work.last.files] == ["a", "b"]
    assert not work.last.notes


# -- the journal on disk ---------------------------------------------------------------------------


def test_a_journal_is_read_back_and_goes_on(work):
    for content in ("1", "2"):
        with work.command():
            (work.root / "a").write_text(content)
    work.journal.undo()
    work.journal.close()
    again = ChangeJournal(work.journal.folder).load()
    assert again.about == {"agent": "test"}
    assert [turn.title for turn in again.turns] == ["turn 1"]
    again.redo()
    assert (work.root / "a").read_text() == "2"
    again.undo(2)
    again.close()
    assert work.tree() == {}


def test_a_line_cut_short_by_a_crash_is_left_out(work):
    with work.command():
        (work.root / "a").write_text("1")
    work.journal.close()
    file = Path(work.journal.folder, "changes.jsonl")
    file.write_bytes(file.read_bytes() + b'{"turn": "t2", "title": "tu')
    again = ChangeJournal(work.journal.folder).load()
    assert [turn.title for turn in again.turns] == ["turn 1"]


def test_what_a_change_costs_does_not_grow_with_the_turns_before_it(work):
    def seconds(act) -> float:
        def once() -> float:
            began = time.process_time()
            for _ in range(100):
                act()
            return time.process_time() - began

        return min(once() for _ in range(5))

    def change() -> None:
        work.journal.add("t1", "", [PathChange("/a", ABSENT, PathState("folder"))], {}.get, by="w")

    def find_authors() -> None:
        assert work.journal.authors(["t1"]) == {"/a": "by w"}

    change()
    few = seconds(find_authors), seconds(change)
    work.journal._turns |= {f"{n}": TurnChanges(f"{n}", "") for n in range(20_000)}
    work.journal._turns["t1"].steps[1:] = []
    assert seconds(find_authors) < 4 * few[0]
    assert seconds(change) < 4 * few[1]


def test_a_file_is_described_again_only_where_its_change_is_another(tmp_path):
    def seconds() -> float:
        began = time.process_time()
        assert len(describe(changes, tmp_path, {"d": b"text\n"}.get, known)) == 500
        return time.process_time() - began

    written = PathState("file", 0o644, "d", 5)
    changes = [PathChange(f"{tmp_path}/{number}", ABSENT, written) for number in range(500)]
    known: Described = {}
    first = seconds()
    assert 10 * min(seconds() for _ in range(5)) < first
    changes[7] = PathChange(changes[7].path, written, ABSENT)
    shown, _ = describe(changes, tmp_path, {"d": b"text\n"}.get, known, {changes[8].path: "by w"})[
        7
    ]
    assert (shown.path, shown.change, shown.removed) == ("7", "removed", 1)
    again = describe(changes, tmp_path, {"d": b"text\n"}.get, known, {changes[8].path: "by w"})
    assert [file.note for file, _ in again[7:10]] == ["", "by w", ""]


@pytest.mark.soak
def test_many_new_folders_are_described_in_a_time_that_grows_with_their_number(tmp_path):
    folder, root = PathState("folder", 0o755), str(tmp_path)
    changes = [PathChange(f"{root}/{n % 100}/{n}", ABSENT, folder) for n in range(100, 20_000)]
    changes += [PathChange(f"{root}/{n}", ABSENT, folder) for n in range(200)]
    began = time.process_time()
    shown = {file.path for file, _ in describe(changes, tmp_path, {}.get)}
    assert time.process_time() - began < 8  # 0.5 s; the square of their number took a minute
    assert len(shown) == 20_000 - 100 + 100
    assert "7/" not in shown and {"7/107/", "107/"} <= shown


def test_the_oldest_turns_go_when_too_much_is_kept(work, monkeypatch):
    monkeypatch.setattr("agent_magics.file_history.journal.MOST_KEPT", 100)
    for number in range(5):
        with work.command():
            (work.root / f"{number}").write_text(f"{number}" * 30)
    kept = [turn.title for turn in work.journal.turns]
    assert kept[0] == "turn 5" and len(kept) < 5
    assert not work.journal.undo(len(kept)).obstacles


def test_copies_that_fill_up_begin_anew(work, monkeypatch):
    monkeypatch.setattr(workspace, "MOST_COPIES", 100)
    for number in range(6):
        with work.command():
            (work.root / "a").write_text(f"{number}" * 40)
    assert not work.journal.undo(2).obstacles
    assert (work.root / "a").read_text() == "3" * 40


def test_the_diff_of_several_turns_is_that_of_all_in_all(work):
    for content in ("1\n", "1\n2\n"):
        with work.command():
            (work.root / "a").write_text(content)
    event = diff_event(work.journal, work.journal.turns, work.root)
    assert [(file.change, file.added, file.removed) for file in event.files] == [("added", 2, 0)]
