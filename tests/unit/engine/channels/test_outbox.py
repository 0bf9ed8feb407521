import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from agent_magics.engine.session import Session
from agent_magics.engine.thread import shared_engine
from agent_magics.protocol.events import ToolCallPending, TurnCompleted

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
