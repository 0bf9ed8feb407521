"""The list of conversations: what records say, whatever becomes of the index."""

import errno
import itertools
import json
import os
import random
import select
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from agent_magics.files.locks import open_locked
from agent_magics.protocol.codec import to_json
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import TurnAborted, TurnCompleted, TurnFailed, TurnStarted
from agent_magics.protocol.records import RecordBegun
from agent_magics.records import index
from agent_magics.records.index import list_conversations
from agent_magics.records.retention import delete, pin, remove_old
from tests.support.forks import child, start


def record(folder: Path, number: int, *nouns, day="2026/01/01", at: int = 0, **begun) -> Path:
    path = folder / day / f"{number:032x}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    given = {"agent": "a", "cwd": "/w", "notebook": "/w/n.ipynb", "at": 1.0, **begun}
    write(path, RecordBegun(conversation=path.stem, **given), *nouns)
    os.utime(path, (at or number, at or number))
    return path


def write(path: Path, *nouns) -> None:
    with path.open("a") as file:
        path.chmod(0o600)
        file.writelines(json.dumps(to_json(noun), separators=(",", ":")) + "\n" for noun in nouns)


def turn(number: int, prompt: str, kind=TurnCompleted, **fields) -> list:
    given = {"text": ""} if kind is TurnCompleted else fields
    started = TurnStarted(turn_id=f"t{number}", prompt=prompt)
    return [started, kind(turn_id=f"t{number}", cost=0.25, **given)]


@pytest.fixture
def always_written(monkeypatch):
    monkeypatch.setattr(index, "_WORTH_WRITING", -1)


@pytest.mark.parametrize("number", range(4))
def test_a_record_whose_deletion_is_interrupted_is_found_until_it_is_deleted(
    tmp_path, monkeypatch, number
):
    path = record(tmp_path, 1)
    path.with_suffix(".past").mkdir()
    path.with_suffix(".past").joinpath("x").touch()
    pin(tmp_path, path.stem)
    unlink, left = os.unlink, itertools.count(-number)

    def interrupt(*args, **kwargs):
        unlink(*args, **kwargs)
        if next(left) == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", interrupt)
        with suppress(KeyboardInterrupt):
            delete(tmp_path, path.stem)
    if path.exists():
        delete(tmp_path, path.stem)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_record_that_cannot_be_deleted_is_not_told_as_deleted(tmp_path, monkeypatch):
    path = record(tmp_path, 1)

    def refuse(*args, **kwargs):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        with pytest.raises(FatalError, match="cannot be deleted"):
            delete(tmp_path, path.stem)
    delete(tmp_path, path.stem)
    assert not path.exists()


def test_the_records_of_its_sub_agents_are_deleted_with_a_conversation(tmp_path):
    folder = tmp_path / "sessions"
    path, other = record(folder, 1, *turn(1, "p")), record(folder, 2, *turn(1, "p"))
    parents = (path, path, other, path)
    subs = [record(folder, 3 + n, parent=each.stem) for n, each in enumerate(parents)]
    changes = [tmp_path / "changes" / each.stem for each in subs]
    for each in changes:
        each.mkdir(parents=True)
    with os.fdopen(open_locked(subs[-1])):  # by a fork, in which it goes on
        delete(folder, path.stem)
    for each in (subs, changes):
        assert [one.exists() for one in each] == [False, False, True, True]
    assert other.exists() and not path.exists()


@pytest.mark.usefixtures("always_written")
def test_a_row_says_what_its_record_says_and_goes_on_with_it(tmp_path):
    path = record(
        tmp_path, 5, *turn(1, "Count\nthe rows."), *turn(2, "More.", TurnAborted, reason="")
    )
    for _ in range(2):  # from the record, then from the index
        [row] = list_conversations(tmp_path)
        assert (row.id, row.title, row.agent, row.cwd) == (path.stem, "Count the rows.", "a", "/w")
        assert (row.notebook, row.started, row.ended) == ("/w/n.ipynb", 1.0, 5.0)
        assert (row.turns, row.cost, row.end, row.pinned) == (2, 0.5, "stopped", False)
    write(path, TurnStarted(turn_id="t3", prompt="Third"))
    [row] = list_conversations(tmp_path)
    assert (row.turns, row.end) == (3, "cut short")
    write(path, TurnFailed(turn_id="t3", error="No."))
    [row] = list_conversations(tmp_path)
    assert (row.turns, row.end, row.title) == (3, "failed", "Count the rows.")


@pytest.mark.usefixtures("always_written")
@pytest.mark.parametrize("broken", [b"", b"[]", b"{", b'{"columns": []}', b"\xff", b"null"])
def test_an_index_that_is_lost_or_broken_is_made_anew(tmp_path, broken):
    for number in range(1, 4):
        record(tmp_path, number, *turn(1, f"p{number}"))
    before = list_conversations(tmp_path)
    (tmp_path / index.FILE).write_bytes(broken)
    assert list_conversations(tmp_path) == before
    (tmp_path / index.FILE).unlink()
    assert list_conversations(tmp_path) == before
    assert [row.title for row in before] == ["p3", "p2", "p1"]


@pytest.mark.usefixtures("always_written")
def test_an_index_of_others_is_not_believed(tmp_path):
    record(tmp_path, 1, *turn(1, "mine"))
    list_conversations(tmp_path)
    path = tmp_path / index.FILE
    path.write_text(path.read_text().replace("mine", "theirs"))
    path.chmod(0o666)
    assert list_conversations(tmp_path)[0].title == "mine"


@pytest.mark.parametrize("line", ['{"type":"TurnStarted"}', '{"type":"RecordBegun","at":[]}', "{}"])
def test_a_line_that_says_nonsense_is_passed_over(tmp_path, line):
    path = record(tmp_path, 1, *turn(1, "p"))
    path.write_text(path.read_text() + line + "\n" + '{"type":"TurnSt')
    assert [(row.title, row.end) for row in list_conversations(tmp_path)] == [("p", "completed")]


@pytest.mark.usefixtures("always_written")
@pytest.mark.parametrize("then", ["it is finished", "it is cut off"])
def test_half_a_line_is_read_when_it_is_whole(tmp_path, then):
    path = record(tmp_path, 5, *turn(1, "One."))
    line = json.dumps(to_json(TurnStarted(turn_id="t2", prompt="Two. " * 9)), separators=(",", ":"))
    with path.open("a") as file:
        file.write(line[:40])
    assert [row.turns for row in list_conversations(tmp_path)] == [1]
    if then == "it is finished":
        with path.open("a") as file:
            file.write(line[40:] + "\n")
    else:
        os.truncate(path, path.stat().st_size - 40)
        write(path, TurnStarted(turn_id="t2", prompt="Two. " * 9))
    assert [row.turns for row in list_conversations(tmp_path)] == [2]


@pytest.mark.usefixtures("always_written")
def test_a_record_that_was_cut_off_further_up_is_read_anew(tmp_path):
    path = record(tmp_path, 5, *turn(1, "One."), *turn(2, "Two."))
    assert [row.turns for row in list_conversations(tmp_path)] == [2]
    os.truncate(path, path.read_bytes().index(b"Two."))
    with path.open("a") as file:
        file.write('"}\n')
    write(path, *turn(3, "Three, and this one is longer than what it stands for. " * 9))
    assert [row.turns for row in list_conversations(tmp_path)] == [3]


def test_where_there_is_no_folder_there_are_none(tmp_path):
    assert list_conversations(tmp_path / "none") == []


def test_the_pinned_and_the_open_stay_and_the_oldest_beyond_the_limit_go(tmp_path):
    paths = [record(tmp_path, number, *turn(1, "x" * 1000)) for number in range(1, 7)]
    pin(tmp_path, paths[0].stem)
    size = paths[0].stat().st_size
    remove_old(tmp_path, days=90, most=2 * size)
    assert [path.exists() for path in paths] == [True, False, False, False, True, True]
    pin(tmp_path, paths[0].stem, pinned=False)
    remove_old(tmp_path, days=90, most=size)
    assert [path.exists() for path in paths] == [False] * 5 + [True]
    delete(tmp_path, paths[-1].stem)
    assert list_conversations(tmp_path) == []
    assert [*tmp_path.glob("*/*/*")] == []


def add_and_list(folder: Path, which: int) -> None:
    """Be one of several kernels: add conversations, write on, and list, with an index each time."""
    mine = []
    for number in range(20):
        mine.append(record(folder, 1000 * which + number, *turn(1, f"p{which}-{number}")))
        write(mine[number // 2], *turn(2, "More."))
        found = {row.id: row for row in list_conversations(folder)}
        assert {path.stem for path in mine} <= found.keys()
        assert found[mine[number // 2].stem].turns >= 2


@pytest.mark.soak
@pytest.mark.usefixtures("always_written")
def test_several_kernels_write_the_index_at_once(tmp_path):
    children = [start(partial(add_and_list, tmp_path, which)) for which in range(1, 5)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    said = list_conversations(tmp_path)
    assert len(said) == 80
    (tmp_path / index.FILE).unlink()
    assert list_conversations(tmp_path) == said
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [index.FILE]


def work_until_killed(folder: Path, which: int, progress: int) -> None:
    """Add conversations, write on in pieces, and list; a byte of progress after each step."""
    for number in itertools.count():
        path = record(folder, 10_000 * which + number, *turn(1, f"p{which}-{number}"))
        line = json.dumps(to_json(TurnStarted(turn_id="t2", prompt="More.")), separators=(",", ":"))
        for piece in (line[:30], line[30:] + "\n"):
            with path.open("a") as file:
                file.write(piece)
            list_conversations(folder)
            os.write(progress, b".")


@pytest.mark.soak
@pytest.mark.usefixtures("always_written")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))]
)
def test_kernels_that_write_the_index_are_killed_at_any_moment(tmp_path, seed):
    """What is listed is what the files say, and what the killed were writing is removed."""
    chance = random.Random(seed)
    for life in range(6):
        reader, writer = os.pipe()
        with ExitStack() as kernels, os.fdopen(reader, "rb", 0) as steps, os.fdopen(writer):
            for which in (1, 2):
                act = partial(work_until_killed, tmp_path, 10 * life + which, writer)
                kernels.enter_context(child(act))
            steps.read(1)
            for _ in range(chance.randrange(1, 12)):
                steps.read(1)
            # Half a step more or less: anywhere in the writing of records and of the index.
            select.select([], [], [], chance.random() / 200)
        listed = list_conversations(tmp_path)
        assert len(listed) == len([*tmp_path.glob("*/*/*/*.jsonl")])
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [index.FILE]
        (tmp_path / index.FILE).unlink()
        assert list_conversations(tmp_path) == listed
