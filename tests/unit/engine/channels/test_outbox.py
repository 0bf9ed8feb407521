import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from agent_magics.engine.session import Session
from agent_magics.engine.thread import shared_engine
from agent_magics.protocol.events import TextDelta, ToolCallPending, TurnCompleted, Warned

KEY = "sk-canary-canary"


def test_what_code_of_an_earlier_turn_does_later_is_recorded_without_keys(tmp_path):
    session = Session(shared_engine(), "default", tmp_path)
    session.outbox.listen("first", lambda event: None, (KEY,))
    session.outbox.emit("first", TurnCompleted, text="")
    shared_engine().spawn(_flush(session)).result()
    session.outbox.listen("second", lambda event: None)
    call = {"call_id": "c", "name": "look", "parent_call_id": None}
    session.outbox.emit("first", ToolCallPending, arguments=f'{{"key": "{KEY}"}}', **call)
    session.close()
    (record,) = tmp_path.rglob("*.jsonl")
    text = record.read_text()
    assert "ToolCallPending" in text and KEY not in text


def test_that_nothing_is_recorded_is_told_once(tmp_path):
    """Pieces of a text are not recorded in any case, and so are no sign that the rest is."""
    (tmp_path / "taken").touch()
    session, shown = Session(shared_engine(), "default", tmp_path / "taken"), []
    session.outbox.listen("turn", shown.append)
    for _ in range(3):
        for kind, fields in ((Warned, {"message": "It happened."}), (TextDelta, {"text": "a"})):
            session.outbox.emit("turn", kind, **fields)
            shared_engine().spawn(_flush(session)).result()
    session.close()
    told = [event.message for event in shown if isinstance(event, Warned)]
    assert sum("not recorded" in message for message in told) == 1


@pytest.fixture
def hasty():
    """Let threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_begin_turns_at_the_same_time(hasty):
    session, barrier = Session(shared_engine(), "default", None), Barrier(4)

    def begin(thread):
        barrier.wait()
        for number in range(300):
            secret = f"sk-{thread}-{number % 50}-canary"
            session.outbox.listen(f"{thread} {number}", lambda event: None, (secret,))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(begin, range(4)))
    assert len(session.outbox.secrets) == 200
    session.close()


async def _flush(session):
    session.outbox.flush()
