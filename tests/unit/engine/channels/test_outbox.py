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


async def _flush(session):
    session.outbox.flush()
