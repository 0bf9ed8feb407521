"""Law: no file of a store, whatever it holds, blocks the kernel, leads elsewhere or ends in a bug.

Stores are the records of conversations, the file of answers of maps, and the folder of their parts.
A model can write them where the home, or the folder of a map, is its workspace.
"""

import json
import os
import random
import sqlite3
import tracemalloc
from contextlib import closing

import pyarrow
import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.file_history.journal import FILE as JOURNAL
from agent_magics.file_history.journal import ChangeJournal
from agent_magics.file_history.states import PathChange, PathState, look_at
from agent_magics.protocol.errors import FatalError
from agent_magics.records.index import list_conversations
from agent_magics.records.places import MOST_READ, rollout_folder
from agent_magics.records.reading import read_first, read_record
from agent_magics.records.retention import remove_old
from agent_magics.rows import runs
from agent_magics.rows.store import AnswerReader
from agent_magics.rows.tables.folders import PartFiles

DEEP = "[" * 100_000 + "]" * 100_000
LARGE = "9" * 5_000


def begun(**more):
    first = {"type": "RecordBegun", "conversation": "aaaa", "agent": "a", "cwd": "/"}
    return json.dumps({**first, "notebook": "", "at": 1.0, **more}, separators=(",", ":"))


def past(conversation, size=1_000):
    return begun(past=[{"type": "PastPart", "conversation": conversation, "size": size}])


BEGUN = begun()
STARTED = '{"type":"TurnStarted","seq":1,"turn_id":"t","prompt":"x","at":1}'
RECORDS = {
    "empty": "",
    "no line end": BEGUN,
    "deep first line": f'{{"type":"RecordBegun","notebook":{DEEP}}}',
    "deep prompt": f'{BEGUN}\n{{"type":"TurnStarted","seq":1,"turn_id":"t","prompt":{DEEP}}}',
    "deep item": f'{BEGUN}\n{{"type":"ItemAdded","seq":1,"item":{DEEP}}}',
    "endless time": f'{BEGUN}\n{STARTED}\n{{"type":"TurnCompleted","turn_id":"t","at":1e400}}',
    "far time": f'{BEGUN}\n{STARTED}\n{{"type":"TurnCompleted","turn_id":"t","at":1e18}}',
    "no time": f'{BEGUN}\n{STARTED}\n{{"type":"TurnCompleted","turn_id":"t","at":NaN}}',
    "a large number": f'{BEGUN}\n{{"type":"Foo","seq":{LARGE},"turn_id":"t"}}',
    "a version that is none": begun(version="x"),
    "a version that is a list": begun(version=[]),
    "an agent that is a list": begun(agent=[1]),
    "a past elsewhere": past("../../../../../secret"),
    "a past by path": past("/etc/secret"),
    "a past that is a number": past(5, "x"),
    "half a character": f'{BEGUN}\n{{"type":"ConversationNamed","name":"\\ud800"}}',
    "an item that is none": f'{BEGUN}\n{{"type":"ItemAdded","seq":1,"item":5}}',
    "a list": f"{BEGUN}\n[]",
}


@pytest.fixture
def folder(tmp_path):
    day = tmp_path / "sessions/2026/11/23"
    day.mkdir(parents=True)
    return tmp_path / "sessions"


def use(folder):
    """Do with a record what the package does; only sentences for the person may come of it."""
    listed = list_conversations(folder)
    remove_old(folder)
    for read in (read_first, read_record):
        try:
            read(folder, "aaaa")
        except FatalError:
            continue
    return listed


@pytest.mark.parametrize("name", RECORDS)
def test_a_hostile_record(folder, name):
    (folder / "2026/11/23/aaaa.jsonl").write_text(f"{RECORDS[name]}\n")
    (folder / "2026/11/23/bbbb.jsonl").write_text(f"{begun(conversation='bbbb')}\n")
    assert {each.id for each in use(folder)} == {"aaaa", "bbbb"}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir])
def test_what_is_no_record(folder, make):
    make(folder / "2026/11/23/aaaa.jsonl")
    assert use(folder) == []


@pytest.mark.soak
@pytest.mark.parametrize("size", [200 << 20, 8 << 40], ids=["200 MB", "8 TB"])
def test_a_list_of_records_reads_none_whole(folder, size):
    """In a home that is the workspace a command can make a file as large as it likes."""
    path = folder / "2026/11/23/aaaa.jsonl"
    path.write_text(f"{BEGUN}\n{STARTED}\n")
    os.truncate(path, size)
    tracemalloc.start()
    (listed,) = list_conversations(folder)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 << 20
    assert listed.turns == (1 if size < MOST_READ else 0)


def test_a_line_that_is_longer_than_a_block_is_read(folder):
    path = folder / "2026/11/23/aaaa.jsonl"
    long = STARTED.replace('"x"', f'"{"y" * (9 << 20)}"')
    path.write_text(f"{BEGUN}\n{long}\n{STARTED}\n")
    (listed,) = list_conversations(folder)
    assert (listed.turns, set(listed.title)) == (2, {"y", "…"})


@pytest.mark.parametrize("where", ["{}", "../../../../../secret"])
def test_a_past_does_not_lead_elsewhere(folder, tmp_path, where):
    (tmp_path / "secret.jsonl").write_text(f"{begun(agent='SECRET')}\n")
    (folder / "2026/11/23/aaaa.past").mkdir()
    named = where.format(tmp_path / "secret")
    (folder / "2026/11/23/aaaa.jsonl").write_text(f"{past(named)}\n")
    with pytest.raises(FatalError, match="as its past"):
        read_record(folder, "aaaa")


# -- maps ------------------------------------------------------------------------------------------

ANSWERS = {
    "no JSON": (b"{", 1, 0.1),
    "deep": (b"[" * 100_000, 1, 0.1),
    "no text": (b'"\xff"', 1, 0.1),
    "text, no bytes": ('"x"', 1, 0.1),
    "a number": (5, 1, 0.1),
    "nothing": (None, 1, 0.1),
    "tokens in words": (b'"x"', "many", 0.1),
    "a cost in words": (b'"x"', 1, "much"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_counts_as_missing(tmp_path, name):
    path = tmp_path / "answers.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        # Without types, which SQLite would enforce.
        file.execute("CREATE TABLE answers (number, key UNIQUE, at, model, answer, tokens, cost)")
        file.execute("INSERT INTO answers VALUES (1, x'00', 1, 'm', ?, ?, ?)", ANSWERS[name])
        file.execute("INSERT INTO answers VALUES (2, x'01', 1, 'm', ?, 3, NULL)", (b'"good"',))
    answers = AnswerReader(path)
    try:
        good = (b"\1", b'"good"', 3, None, 2)
        assert answers.find([b"\1"]) == {b"\1": good}  # then the file is read from there
        assert answers.find([b"\0", b"\1"]) == {b"\1": good}
    finally:
        answers.close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (2,)


def test_parts_are_written_through_no_link(tmp_path):
    mine = tmp_path / ".bashrc"
    mine.write_text("mine")
    parts = PartFiles(tmp_path / "out")
    for name in ("part-00000.part", "part-00000.parquet"):
        (tmp_path / "out" / name).symlink_to(mine)
    parts.write(0, pyarrow.table({"row": [1]}))
    assert mine.read_text() == "mine"
    assert parts.read(parts.paths()).num_rows == 1


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_part_is_told(tmp_path, make):
    parts = PartFiles(tmp_path)
    make(tmp_path / "part-00000.parquet")
    with pytest.raises(OSError, match="is no regular file"):
        parts.paths()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_the_name_of_a_run_is_held_by_a_regular_file_alone(tmp_path, kind):
    answers, target = tmp_path / "answers.sqlite", tmp_path / "mine"
    target.write_text("mine")
    with runs._held(answers, "x"):
        (place,) = tmp_path.glob("answers.sqlite-*")
    make = {"link": lambda path: path.symlink_to(target), "pipe": os.mkfifo, "folder": os.mkdir}
    make[kind](place)
    with pytest.raises(FatalError, match="cannot be written"), runs._held(answers, "x"):
        raise AssertionError
    assert target.read_text() == "mine"


# -- conversations that are resumed ----------------------------------------------------------------


def recorded(cwd):
    with Agent(ScriptedModel([Call("read_file", {"path": "x"}), "One."]), cwd=cwd) as agent:
        agent.run_sync("Go.")
        agent.session.conversation.handles.keep_value(b"abc")
        name = agent.conversation_id
    (path,) = rollout_folder().rglob(f"{name}.jsonl")
    return name, path, [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path, lines):
    path.write_text("".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in lines))


def test_a_record_that_a_command_can_write_grants_no_rights(tmp_path, monkeypatch):
    """The home is the workspace, and the folder of records lies in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".local/state"))
    name, path, lines = recorded(tmp_path)
    lines[0]["settings"] = {"approval": "never", "sandbox": "danger-full-access"}
    rewrite(path, lines)
    with Agent.resume(name, ScriptedModel(["Two."])) as agent:
        assert (agent.settings.approval, agent.settings.sandbox) != ("never", "danger-full-access")
        assert "recorded settings are not used" in " ".join(agent.session.conversation.notes)
        assert agent.run_sync("More.").text == "Two."


VALUES = [None, 5, -1, 1e400, "", [], {}, [1], [[]], {"a": 1}, True, {"type": "X"}, 2**70]


def test_values_of_other_types_are_one_sentence(tmp_path):
    name, path, lines = recorded(tmp_path)
    whole = path.read_text()
    places = [
        (number, key)
        for number, line in enumerate(lines)
        for key in line
        if line["type"] in ("RecordBegun", "RequestCharged", "ResultKept", "TurnOpened")
    ]
    chosen = random.Random(13)
    for number, key in places:
        path.write_text(whole)
        forged = json.loads(json.dumps(lines))
        forged[number][key] = chosen.choice(VALUES)
        rewrite(path, forged)
        try:
            Agent.resume(name, ScriptedModel(["Two."]), cwd=tmp_path).close()
        except FatalError:
            continue


# -- journals of file changes ----------------------------------------------------------------------

FILE = {"kind": "file", "mode": 0o644, "digest": "d" * 64, "size": 1}
CHANGE = {"path": "/nowhere/a", "before": {}, "after": FILE}
ROW = {"turn": "t", "title": "x", "certain": True, "changes": [CHANGE]}
NO_TEXT = [None, 5, [], {"a": 1}]
NO_PATH = [*NO_TEXT, "", "a", "../a", "/nowhere/../a", "/a\0b", "/\ud800", "/nowhere/", "//a"]
HOSTILE_ROWS = [
    *({**ROW, name: value} for name in ("turn", "title", "by") for value in NO_TEXT),
    *({**ROW, "certain": value} for value in (None, "yes", 1)),
    *({**ROW, "changes": value} for value in (None, 5, "x", [None], [[]], {"a": 1})),
    *({**ROW, "changes": [{**CHANGE, "path": value}]} for value in NO_PATH),
    *(
        {**ROW, "changes": [{**CHANGE, "after": {**FILE, name: value}}]}
        for name, values in {
            "kind": [*NO_TEXT, "device"],
            "mode": [-1, 0o10000, 10**400, "rw", None],
            "size": [10**400, "x", None],
            "target": [*NO_TEXT, "a\0b", "\ud800"],
            **dict.fromkeys(("digest", "stamp", "why"), NO_TEXT),
            "other": [1],
        }.items()
        for value in values
    ),
    *({"undone": ["t0"], **more} for more in ({}, {"left": 5}, {"left": [[]]})),
    *({"redone": value, "left": []} for value in (None, 5, [[]])),
    *({}, [], 5, None, "changes", {"forgotten": []}),
]


@pytest.mark.parametrize("is_fork", [False, True])
@pytest.mark.parametrize("row", HOSTILE_ROWS, ids=range(len(HOSTILE_ROWS)))
def test_a_hostile_line_of_a_journal_changes_nothing(tmp_path, row, is_fork):
    folder, path = tmp_path / "journal", tmp_path / "a"
    path.write_text("after")
    journal = ChangeJournal(str(folder), {})
    journal.add("t0", "x", [PathChange(str(path), PathState(), look_at(str(path)))], {}.get)
    journal.close()
    with (folder / JOURNAL).open("a") as file:
        file.write(f"{json.dumps(row)}\n")
    if is_fork:
        journal = ChangeJournal(str(tmp_path / "fork"))
        journal.share(str(folder), ["t0"])
    else:
        journal = ChangeJournal(str(folder)).load()
    assert [turn.id for turn in journal.turns] == ["t0"]
    assert [change.path for change in journal.changes_of(journal.turns)] == [str(path)]
    assert journal.undo(1).paths == (str(path),)
    assert not path.exists()
