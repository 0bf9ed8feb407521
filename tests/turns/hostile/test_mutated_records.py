"""Law: a record with two changes, wherever they are, is used or refused in a sentence."""

import copy
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics import Agent, FatalError, ScriptedModel
from agent_magics.engine.context.history import History
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.wires.chat.messages import ChatForm
from agent_magics.models.wires.responses.items import ResponsesTranscript
from agent_magics.protocol import events, items, records
from agent_magics.protocol.codec import to_json
from agent_magics.records.places import rollout_folder
from tests.support.turns import assert_valid

ID = "5591938ef0eb49e895f61730ae2d0386"
IMAGE = items.InputImage("data:image/png;base64,iVBORw0KGgo=", "low")
ITEMS = (
    items.UserMessage((items.InputText("Look."), IMAGE)),
    items.Reasoning(("Two.",), "opaque", "rs_1"),
    items.WebSearchCall({"type": "search", "query": "x"}, id="ws_1"),
    items.CustomToolCall("c1", "apply_patch", "*** Begin Patch", "i1"),
    items.LocalShellCall("c2", ("ls", "-l"), "/", 5, "i2"),
    items.FunctionCall("c3", "look", '{"what": "x"}', "i3"),
    items.ToolCallOutput("c1", "Done.", "custom"),
    items.ToolCallOutput("c2", (items.InputText("x"), IMAGE), "local_shell"),
    items.AssistantMessage("Seen.", "m1", (items.Citation("https://x", "X", 0, 2),)),
)
AGENT = events.SubAgentChanged(
    sub_agent="scout", status="completed", steps=("looked",), tools=("look",), cost=0.5,
    budget={"max_tokens": 9}, conversation="a" * 32,
)  # fmt: skip
NOUNS = (
    records.RecordBegun(
        conversation=ID,
        agent="a",
        cwd="/",
        settings={"model": "m", "max_turns": 3},
        lost=("hooks",),
    ),
    events.TurnStarted(seq=1, turn_id="t1", prompt="Look."),
    records.TurnOpened(turn_id="t1"),
    *(records.ItemAdded(item=item) for item in ITEMS),
    events.PlanUpdated(steps=(events.PlanStep("1", "Look", "pending"),)),
    records.ContextCounted(tokens=50),
    records.RequestCharged(model="m", usage=items.Usage(5, 6, 1, 1, 0.5)),
    records.HistoryShortened(items=(items.UserMessage("Before: looked."),), replaced=2),
    records.ToolsFound(names=("look",)),
    records.ServersTold(told={"things": "ready"}),
    records.NoticeWaiting(text="The person took a change back."),
    records.ResultKept(name="@r1", text="text", what="text"),
    events.VariablesKnown(variables={"df": {"what": "DataFrame", "schema": "s", "made_by": "[1]"}}),
    events.CellChanged(turn_id="t1", cell="c", cell_type="code", before="1", after="2", step="s"),
    AGENT,
    events.ExecCommandBegin(call_id="c2", command=("ls",), cwd="/", session_id="s1"),
    events.TurnStarted(seq=2, turn_id="t2", prompt="Again."),
    records.TurnOpened(turn_id="t2"),
    records.AdditionsWaiting(turn_id="t2", texts=("And left.",)),
    records.ItemAdded(item=items.UserMessage("Again.")),
    records.TurnsTakenBack(turn_id="t2"),
    records.TurnsRestored(),
    records.ItemAdded(item=items.FunctionCall("c9", "look", "{}")),
    events.ToolCallCompleted(turn_id="t2", call_id="c9", name="look", output="x"),
    records.ConversationNamed(name="Looks"),
)
LINES = [to_json(noun) for noun in NOUNS]
VALUES = st.sampled_from(
    [None, True, 0, -1, 2**70, 1.5, float("inf"), float("nan"), "", "x", "\ud800", "t1", [], [5],
     [None], ["x"], [["x"]], {}, {"x": 1}, {"type": "UserMessage", "content": 5}, {"type": "Usage"},
     {"type": "InputText", "text": 5}, {"type": "FunctionCall", "call_id": "c9", "name": "x",
     "arguments": "{"}, {"type": "TurnOpened", "turn_id": "t1"}]
)  # fmt: skip


def places(value, before=()):
    """Yield the path of each value inside, but for the type of a line."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(inside):
        if (*before, key) != ("type",):
            yield (*before, key)
        if isinstance(each, dict | list):
            yield from places(each, (*before, key))


@st.composite
def mutated(draw):
    """Return the lines of a record with two changes."""
    lines = copy.deepcopy(LINES)
    for _ in range(2):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["put", "put", "put", "put", "take", "drop", "double", "move"])):
            case "drop":
                del lines[at]
            case "double":
                lines.insert(draw(st.integers(0, len(lines))), copy.deepcopy(lines[at]))
            case "move":
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
            case how if len(lines[at]) > 1:
                *path, last = draw(st.sampled_from(sorted(places(lines[at]), key=str)))
                inside = lines[at]
                for key in path:
                    inside = inside[key]
                if how == "put":
                    inside[last] = copy.deepcopy(draw(VALUES))
                else:
                    del inside[last]
    return written(lines)


def look(what: str) -> str:
    """Look at something."""
    return what


def written(lines) -> str:
    """Return lines as they stand in a record."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def go_on(text: str) -> History | None:
    """Resume a record, and run a turn; only a sentence for the person may come of it.

    Returns:
        The history after it; None where the record was refused.
    """
    path = rollout_folder() / "2026/01/01" / f"{ID}.jsonl"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    try:
        resumed = Agent.resume(ID, ScriptedModel(["Here."]), [look], cwd=os.getcwd())
    except FatalError:
        return None
    with resumed:
        assert_valid(resumed)
        history = resumed.session.conversation.history
        json.loads(b"[%s]" % history.encoded(ResponsesTranscript))
        json.loads(b"[%s]" % history.encoded(ChatForm(Dialect())))
        assert resumed.run_sync("Go on.").text == "Here."
        return history


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_record_that_was_changed_twice_goes_on_or_is_refused(text):
    go_on(text)


def test_unchanged_it_goes_on():
    go_on("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in LINES))


@pytest.mark.parametrize("at", range(1, len(LINES)))
def test_a_record_that_lacks_a_line_goes_on_with_the_others(at):
    lines = [*LINES[:at], *LINES[at + 1 :]]
    without = len(go_on(written(lines)).items)
    assert without >= len(go_on(written(LINES)).items) - 2  # a call and its output


@pytest.mark.parametrize("call_id", [None, ""])
@pytest.mark.parametrize(
    "kind", ["FunctionCall", "CustomToolCall", "LocalShellCall", "ToolCallOutput"]
)
def test_no_call_without_an_id_which_every_provider_refuses_goes_on(kind, call_id):
    lines = copy.deepcopy(LINES)
    next(line for line in lines if line.get("item", {}).get("type") == kind)["item"]["call_id"] = (
        call_id
    )
    history = go_on(written(lines))
    assert history is None or all(getattr(item, "call_id", "x") for item in history.items)


def without_a_call():
    """Return the lines without that of a call."""
    return [line for line in LINES if line.get("item", {}).get("name") != "apply_patch"]


def test_an_output_whose_call_is_missing_is_left_out_alone():
    lines = without_a_call()
    assert len(lines) == len(LINES) - 1
    texts = [str(item) for item in go_on(written(lines)).items]
    assert any("Seen." in text for text in texts)
    assert not any("'c1'" in text for text in texts)


def test_what_was_shortened_stays_so_where_a_call_is_missing():
    at = NOUNS.index(next(each for each in NOUNS if isinstance(each, records.HistoryShortened)))
    lines = without_a_call()
    lines[at - 1] = {**lines[at - 1], "replaced": ITEMS.index(ITEMS[-1])}  # all but the last
    first, second, *_ = map(str, go_on(written(lines)).sent)
    assert "Before: looked." in first and "Seen." in second
