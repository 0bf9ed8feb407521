"""The undo of one sub-agent's changes takes back what it wrote, and nothing that others wrote."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.file_history.journal import ChangeJournal
from agent_magics.file_history.states import PathChange, look_at
from agent_magics.protocol.errors import FatalError

PERSON, AGENT, ONE, OTHER = "the person", "", "worker-1", "worker-2"
FILES = ("a", "b", "new/c")


class World:
    """A folder, and the journal of what agents change in it."""

    def __init__(self, folder):
        self.root = folder / "root"
        self.root.mkdir()
        for name in FILES[:2]:
            (self.root / name).write_text("begin")
        self.journal = ChangeJournal(str(folder / "journal"))
        self.last = dict.fromkeys(FILES, PERSON)

    def write(self, by, name, text, turn="t1"):
        """Write a file, or remove it where the text is ""; an agent's changes are recorded."""
        path, contents = self.root / name, {}
        watched = [str(path)] if "/" not in name else [str(path.parent), str(path)]

        def look():
            return [
                look_at(each, keep=lambda d, data: not contents.update({d: data}))
                for each in watched
            ]

        before = look()
        if text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        else:
            path.unlink(missing_ok=True)
        changes = [
            PathChange(each, was, now)
            for each, was, now in zip(watched, before, look(), strict=True)
            if was != now
        ]
        if changes:
            self.last[name] = by
        if changes and by != PERSON:
            self.journal.add(turn, "Go.", changes, contents.get, by=by)

    def read(self):
        return {name: self._read(name) for name in FILES}

    def _read(self, name):
        with suppress(FileNotFoundError):
            return (self.root / name).read_text()
        return ""


@pytest.fixture
def world(tmp_path):
    """Return a folder with two files."""
    return World(tmp_path)


def test_what_it_wrote_is_taken_back_alone_and_the_turn_can_still_be_undone(world):
    world.write(AGENT, "a", "agent")
    world.write(ONE, "a", "one")
    world.write(ONE, "new/c", "one")
    world.write(OTHER, "b", "other")
    way = world.journal.undo_sub_agent(ONE)
    assert (way.by, way.obstacles) == (ONE, ())
    assert world.read() == {"a": "agent", "b": "other", "new/c": ""}
    assert not (world.root / "new").exists()
    with pytest.raises(FatalError, match="No change of files by a sub-agent worker-1"):
        world.journal.undo_sub_agent(ONE)
    again = ChangeJournal(world.journal.folder).load()
    assert again.changes_of(again.turns) == world.journal.changes_of(world.journal.turns)
    assert world.journal.undo().obstacles == ()
    assert world.read() == {"a": "begin", "b": "begin", "new/c": ""}


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (PERSON, "you changed it since"),
        (AGENT, "the agent changed it since"),
        (OTHER, "worker-2 changed it since"),
    ],
)
def test_what_others_wrote_since_stays_and_is_named(world, by, reason):
    world.write(ONE, "a", "one")
    world.write(ONE, "b", "one")
    world.write(by, "a", "since")
    way = world.journal.undo_sub_agent(ONE)
    assert [each.reason for each in way.obstacles] == [reason]
    assert world.read() == {"a": "since", "b": "one", "new/c": ""}
    world.journal.undo_sub_agent(ONE, rest=True)
    assert world.read() == {"a": "since", "b": "begin", "new/c": ""}


def test_what_others_wrote_between_stays(world):
    world.write(ONE, "a", "one")
    world.write(OTHER, "a", "other", turn="t2")
    world.write(ONE, "a", "again", turn="t3")
    [obstacle] = world.journal.undo_sub_agent(ONE).obstacles
    assert obstacle.reason == "worker-2 changed it between two of these changes"
    assert world.read()["a"] == "again"


def test_a_folder_in_which_others_wrote_stays(world):
    world.write(ONE, "new/c", "one")
    (world.root / "new/mine").write_text("mine")
    way = world.journal.undo_sub_agent(ONE)
    assert way.kept_folders == (str(world.root / "new"),)
    assert (world.root / "new/mine").read_text() == "mine"


WRITES = st.lists(
    st.tuples(
        st.sampled_from((PERSON, AGENT, ONE, ONE, OTHER)),
        st.sampled_from(FILES),
        st.sampled_from(("", "x", "y", "z")),
        st.sampled_from(("t1", "t2")),
    ),
    max_size=12,
)


@given(WRITES, st.booleans())
def test_no_word_of_others_is_lost(tmp_path_factory, writes, rest):
    world = World(tmp_path_factory.mktemp("world"))
    for by, name, text, turn in writes:
        world.write(by, name, text and f"{text} of {by}", turn)
    before = world.read()
    try:
        way = world.journal.undo_sub_agent(ONE, rest=rest)
    except FatalError:
        way = None
    after = world.read()
    changed = {name for name in FILES if before[name] != after[name]}
    # Each text names its writer; but a file that somebody removed again is as ONE had left it.
    lost = [name for name in changed if before[name] and world.last[name] != ONE]
    assert not lost, (world.last, before, after)
    if way is None or (way.obstacles and not rest):
        assert not changed
    elif not (way.obstacles or way.kept_folders):
        with pytest.raises(FatalError):  # nothing of it is left
            world.journal.undo_sub_agent(ONE)
