"""Events folded into blocks: a pure function, and nothing volatile in what is saved."""

import copy
import inspect
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics import render
from agent_magics.exec.output import colour_output
from agent_magics.protocol import events
from agent_magics.protocol.events import (
    ApprovalRequested,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    LiveOutput,
    ModelInformed,
    ModelRetry,
    PatchApplyEnd,
    PlanStep,
    PlanUpdated,
    QuestionResolved,
    ReasoningDelta,
    TextDelta,
    TokensCounted,
    ToolCallChanged,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
    ToolCallUpdated,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    Warned,
)
from agent_magics.protocol.items import (
    AssistantMessage,
    FunctionCall,
    InputImage,
    InputText,
    Usage,
)
from agent_magics.render.describe import SAVED_CHARACTERS, describe_call, describe_cell, shorten
from agent_magics.render.mime import ITEM_MIME, blocks_item, harmless, picture_metadata, to_bundle
from agent_magics.render.pictures import MOST_OF_ONE, MOST_OF_TURN
from agent_magics.render.text import to_markdown, to_plain
from agent_magics.render.view import TurnView


def fold(*events):
    view = TurnView()
    for event in events:
        view.apply(event)
    return view


def items(*events):
    return [block.item for block in fold(*events).blocks]


def pending(name="shell", arguments='{"command": ["ls", "-la"]}', call_id="c"):
    return ToolCallPending(call_id=call_id, name=name, arguments=arguments)


def completed(output="out", call_id="c", name="shell", details=None):
    return ToolCallCompleted(
        call_id=call_id, name=name, output=output, details=details or {}, duration=1
    )


def failed(output="no", call_id="c", name="shell"):
    return ToolCallFailed(call_id=call_id, name=name, output=output)


def question(call_id="c"):
    return ApprovalRequested(
        question_id="q", call_id=call_id, tool="shell", target="t", arguments="{}", reason="r"
    )


def answer(decision, by="person"):
    return QuestionResolved(question_id="q", decision=decision, by=by)


@pytest.mark.parametrize(
    ("decision", "by", "said"),
    [
        ("approve_for_session", "person", "approved by the person"),
        ("approve", "program", "approved by the program"),
        ("approve", "beforehand", "approved beforehand"),
        ("deny", "person", "denied by the person"),
        ("deny", "policy", "denied"),
        ("abort", "person", "stopped by the person"),
        ("closed", "policy", "not answered"),
    ],
)
def test_a_question_of_a_sub_agent_is_a_line_of_its_own(decision, by, said):
    (asked,) = items(question("default/worker-1/c"))
    assert asked["text"] == "r: shell t"
    (block,) = fold(question("default/worker-1/c"), answer(decision, by)).blocks
    assert (block.done, block.item["text"]) == (True, f"r: shell t ({said})")
    assert to_plain(block.item) == f"Note: r: shell t ({said})"


def test_a_whole_turn():
    assert items(
        TextDelta(text="I "),
        TextDelta(text="look."),
        ItemCompleted(item=AssistantMessage("I look.")),
        ItemCompleted(item=FunctionCall("c", "shell", "{}")),
        TokensCounted(request=Usage(1), turn=Usage(1)),
        pending(),
        question(),
        answer("approve"),
        ToolCallRunning(call_id="c", name="shell"),
        ExecCommandOutputDelta(call_id="c", text="a\n"),
        completed("exit code 0\na\n", details={"output": "a\n", "exit_code": 0}),
        TextDelta(text="Done."),
        ItemCompleted(item=AssistantMessage("Done.")),
        TurnCompleted(text="Done.", usage=Usage(10, 5, 2, 1), requests=2, cost=0.0421),
    ) == [
        {"version": 1, "kind": "text", "text": "I look."},
        {
            "version": 1,
            "kind": "tool",
            "name": "shell",
            "title": "ls -la",
            "status": "completed",
            "arguments": '{"command": ["ls", "-la"]}',
            "language": "bash",
            "output": "a\n",
            "exit_code": 0,
            "note": "approved by the person",
        },
        {"version": 1, "kind": "text", "text": "Done."},
        {
            "version": 1,
            "kind": "usage",
            "input_tokens": 10,
            "output_tokens": 5,
            "cached_tokens": 2,
            "reasoning_tokens": 1,
            "requests": 2,
            "cost": "0.042 USD",
        },
    ]


def test_apply_returns_what_is_new_or_changed():
    view = TurnView()
    [first] = view.apply(TextDelta(text="a"))
    [again] = view.apply(TextDelta(text="b"))
    assert first is again
    assert not first.done
    assert view.apply(ItemCompleted(item=AssistantMessage("ab"))) == [first]
    assert first.done
    assert view.apply(TokensCounted(request=Usage(), turn=Usage())) == []
    [call] = view.apply(pending())
    assert view.apply(completed()) == [call]
    assert call.done


def test_the_fold_is_pure_and_nothing_volatile_is_saved():
    def events(seq, call_id):
        stamp = {"seq": seq, "at": seq * 1.5, "turn_id": f"t{seq}"}
        return [
            ToolCallPending(call_id=call_id, name="shell", arguments="{}", **stamp),
            ToolCallCompleted(call_id=call_id, name="shell", output="o", duration=seq, **stamp),
            TurnCompleted(text="", usage=Usage(1, 1), **stamp),
        ]

    one, two = items(*events(1, "call_a")), items(*events(2, "call_b"))
    assert one == two
    before = copy.deepcopy(events(1, "x"))
    same = events(1, "x")
    fold(*same)
    assert same == before


def test_every_saved_item_is_json():
    for block in fold(pending(), completed(), Warned(message="w"), TurnAborted(reason="r")).blocks:
        assert json.loads(json.dumps(block.item)) == block.item


@pytest.mark.parametrize(
    ("events", "status", "note"),
    [
        ((completed(),), "completed", ""),
        ((failed(),), "failed", ""),
        ((question(), answer("deny"), failed()), "denied", ""),
        ((question(), answer("abort")), "running", ""),
        ((question(), answer("approve", "program"), failed()), "failed", "approved by the program"),
        ((question(), answer("approve_for_session"), completed()), "completed", None),
        ((question(), answer("approve", "beforehand"), completed()), "completed", None),
        ((question(), answer("closed", "engine"), TurnAborted(reason="r")), "denied", ""),
    ],
)
def test_what_became_of_a_call(events, status, note):
    item = items(pending(), *events)[0]
    assert item["status"] == status
    if note is None:
        assert item["note"].startswith("approved")
    else:
        assert item["note"] == note


def changed(by, arguments='{"command": ["echo", "mine"]}'):
    return ToolCallChanged(call_id="c", name="shell", arguments=arguments, by=by)


@pytest.mark.parametrize(
    ("events", "note"),
    [
        (
            [question(), answer("approve"), changed("approver")],
            "changed and approved by the person",
        ),
        (
            [question(), answer("approve", "program"), changed("approver")],
            "changed and approved by the program",
        ),
        (
            [question(), answer("approve"), changed("approver"), question(), answer("approve")],
            "changed and approved by the person",
        ),
        ([changed("hook")], "changed by a hook"),
        (
            [changed("hook"), question(), answer("approve")],
            "approved by the person; changed by a hook",
        ),
    ],
)
def test_of_a_changed_call_it_is_shown_what_ran(events, note):
    [item] = items(pending(), *events, completed())
    assert (item["title"], item["note"]) == ("echo mine", note)
    assert "mine" in item["arguments"] and "ls" not in to_markdown(item) + to_plain(item)


def test_an_empty_message_is_no_block():
    assert items(ItemCompleted(item=AssistantMessage("  "))) == []


def test_words_that_come_whole_are_a_block():
    assert items(ItemCompleted(item=AssistantMessage("Hi")))[0]["text"] == "Hi"


def test_the_plan_is_one_block_and_its_calls_are_not_shown():
    def plan(status):
        return PlanUpdated(steps=(PlanStep("a", "look", status),), explanation="why")

    view = fold(
        pending("update_plan", "{}", "p1"),
        plan("pending"),
        completed("ok", "p1", "update_plan"),
        pending("update_plan", "{}", "p2"),
        plan("completed"),
        completed("ok", "p2", "update_plan"),
    )
    [block] = view.blocks
    assert block.item == {
        "version": 1,
        "kind": "plan",
        "steps": [{"id": "a", "description": "look", "status": "completed"}],
        "explanation": "why",
    }


def test_a_plan_call_that_failed_is_shown():
    [item] = items(pending("update_plan", "{}", "p"), failed("twice", "p", "update_plan"))
    assert (item["status"], item["output"]) == ("failed", "twice")


def test_a_patch_shows_its_diff():
    [item] = items(
        pending("apply_patch", "*** Begin Patch"),
        PatchApplyEnd(call_id="c", success=True, diff="-a\n+b\n"),
        completed("Done", name="apply_patch"),
    )
    assert (item["kind"], item["diff"], item["status"]) == ("patch", "-a\n+b\n", "completed")


def test_a_patch_of_five_thousand_lines_stays_small_in_the_notebook():
    lines = [f"+    value_{n} = compute(previous, {n})  # step {n}\n" for n in range(5_000)]
    patch = f"*** Begin Patch\n*** Add File: made.py\n{''.join(lines)}*** End Patch"
    events = (
        pending("apply_patch", json.dumps({"patch": patch})),
        PatchApplyEnd(call_id="c", success=True, diff=f"+++ b/made.py\n{''.join(lines)}"),
        completed("Done", name="apply_patch"),
    )
    [block] = fold(*events).blocks
    assert block.item["title"] == "add made.py"
    assert "value_0 " in block.item["diff"] and "value_4999 " in block.item["diff"]
    assert "characters left out" in block.item["diff"]
    assert json.loads(block.item["arguments"])["patch"].startswith("*** Begin Patch")
    assert len(json.dumps(to_bundle(block))) < 100_000


def test_long_arguments_that_are_no_json_are_cut():
    [item] = items(pending("shell", "x" * 50_000))
    assert len(item["arguments"]) < 11_000


def test_figures_follow_their_call():
    view = fold(
        pending("python", '{"code": "plot()"}'),
        LiveOutput(call_id="c", data={"image/png": "aGk=", "text/plain": "[figure]"}),
        completed("[figure]", name="python"),
    )
    call, figure = view.blocks
    assert call.item["language"] == "python"
    assert figure.done
    words = {"version": 1, "kind": "picture", "alt": "Picture from python: plot()"}
    bundle = to_bundle(figure)
    assert bundle == {ITEM_MIME: words, "image/png": "aGk=", "text/plain": "[figure]"}
    assert picture_metadata(bundle) == {"image/png": {"alt": words["alt"]}}


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg", "image/gif", "image/webp"])
def test_pictures_that_a_tool_returned_follow_their_call(mime):
    output = (InputText("See"), InputImage(f"data:{mime};base64,aGk="), InputText("above."))
    call, picture = fold(pending("draw", "{}"), completed(output, name="draw")).blocks
    assert call.item["output"] == "See\nabove."
    assert picture.done
    words = {"version": 1, "kind": "picture", "alt": "Picture from draw"}
    assert to_bundle(picture) == {ITEM_MIME: words, mime: "aGk=", "text/plain": "[image]"}


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("https://example.org/a.png", "only an address"),
        ("data:image/svg+xml;base64,aGk=", "no PNG"),
        ('data:image/png;base64,aGk=" onload=x', "no PNG"),
        ("data:image/png,hi", "no PNG"),
        ("data:image/png;base64," + "A" * MOST_OF_ONE, "1.0 MB"),
    ],
)
def test_a_picture_that_is_not_shown_is_named(address, why):
    [block] = fold(pending("draw"), completed((InputImage(address),), name="draw")).blocks
    assert why in block.item["output"]
    assert len(block.item["output"]) < 100


def test_the_pictures_of_a_turn_have_a_limit():
    image = InputImage("data:image/png;base64," + "A" * (MOST_OF_ONE - 100))
    events = [(pending("draw"), completed((image, image), name="draw"))] * 4
    blocks = fold(*(event for pair in events for event in pair)).blocks
    shown = [block for block in blocks if block.data is not None]
    assert len(shown) == MOST_OF_TURN // MOST_OF_ONE
    assert "the pictures of this turn are too many" in blocks[-1].item["output"]


def test_what_a_tool_itself_shows_has_no_pictures_twice():
    output = (InputText("[figure]"), InputImage("data:image/png;base64,aGk="))
    view = fold(
        pending("python", '{"code": "plot()"}'),
        LiveOutput(call_id="c", data={"image/png": "aGk=", "text/plain": "[figure]"}),
        completed(output, name="python", details={"output": "[figure]"}),
    )
    assert [block.kind for block in view.blocks] == ["tool", "picture"]


def test_scratch_stands_in_the_headline():
    started = ToolCallUpdated(call_id="c", name="python", metadata={"where": "scratch"})
    [item] = items(pending("python", '{"code": "1"}'), started, completed("1", name="python"))
    assert (item["name"], item["language"]) == ("python (scratch)", "python")
    assert to_markdown(item).startswith("**python (scratch)** (ran)")
    [other] = items(pending("mine", "{}"), started, completed("1", name="mine"))
    assert other["name"] == "mine"


def test_what_could_act_in_the_page_is_not_published():
    data = {"text/html": "<b>", "image/svg+xml": "<svg>", "application/javascript": "x"}
    assert harmless({**data, "text/plain": "p"}) == {"text/plain": "p"}


def test_a_bundle_has_the_item_and_two_readable_forms():
    [block] = fold(Warned(message="careful")).blocks
    assert to_bundle(block) == {
        ITEM_MIME: {"version": 1, "kind": "notice", "level": "warning", "text": "careful"},
        "text/markdown": "> **Warning:** careful",
        "text/plain": "Warning: careful",
    }
    assert blocks_item([block.item])["items"] == [block.item]


@pytest.mark.parametrize(
    ("event", "level", "words"),
    [
        (TurnAborted(reason="interrupted by the person"), "warning", "interrupted by the person"),
        (TurnFailed(error="No key."), "error", "No key."),
        (Warned(message="w"), "warning", "w"),
    ],
)
def test_notices(event, level, words):
    [item] = items(event)
    assert (item["kind"], item["level"]) == ("notice", level)
    assert words.lower() in item["text"].lower()


def test_thoughts_are_one_block_that_ends_when_the_model_speaks_or_acts():
    for end in (TextDelta(text="Hi"), pending(), TurnAborted(reason="r"), TurnFailed(error="e")):
        view = fold(ReasoningDelta(text="**Look"), ReasoningDelta(text="ing**"))
        [block] = view.blocks
        assert not block.done
        assert block.item["text"] == "**Looking**"
        assert block in view.apply(end) and block.done
    again = fold(ReasoningDelta(text="a"), TextDelta(text="b"), ReasoningDelta(text="c"))
    assert [block.item["kind"] for block in again.blocks] == ["reasoning", "text", "reasoning"]
    assert to_bundle(block)["text/plain"] == "Thinking: **Looking**"
    assert to_bundle(block)["text/markdown"] == "> **Thinking:** **Looking**"


def test_of_long_thoughts_the_end_is_kept():
    words = [f"word {number}\n" for number in range(1_000)]
    [item] = items(*(ReasoningDelta(text=word) for word in words))
    assert len(item["text"]) <= SAVED_CHARACTERS
    assert item["text"].endswith(words[-1])
    assert item["left_out"] + len(item["text"]) == len("".join(words))
    assert "characters left out" in to_plain(item)


BUSY = ModelRetry(reason="Busy.", attempt=1, delay=11.2, tries=6)


def test_a_wait_is_counted_down_in_whole_seconds():
    view = fold(BUSY)
    [block] = view.blocks
    assert (block.done, block.item["level"]) == (False, "warning")
    assert block.item["text"] == "Trying again in 12 s (attempt 2 of 6): Busy."
    assert view.count_down(11.1) == []
    assert view.count_down(11.0) == [block]
    assert block.item["text"] == "Trying again in 11 s (attempt 2 of 6): Busy."
    assert view.count_down(-0.1) == [block]
    assert block.item["text"] == "Trying again (attempt 2 of 6): Busy."


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (TextDelta(text="Hi"), "The model answered at attempt 3; before that: Cut off."),
        (ReasoningDelta(text="Hm"), "The model answered at attempt 3; before that: Cut off."),
        (TurnAborted(reason="r"), "Stopped before attempt 3: Cut off."),
        (TurnFailed(error="e"), "Gave up."),
    ],
)
def test_of_several_waits_one_quiet_line_stays(end, says):
    view = fold(BUSY, ModelRetry(reason="Cut off", attempt=2, delay=1.0, tries=6))
    [block] = view.blocks
    assert view.waits
    view.apply(end)
    assert (block.done, block.item["level"], block.item["text"]) == (True, "info", says)
    assert not view.waits and view.count_down(1.0) == []


def test_the_next_request_has_a_wait_of_its_own():
    view = fold(BUSY, TextDelta(text="Hi"), BUSY)
    assert [block.item["kind"] for block in view.blocks] == ["notice", "text", "notice"]
    assert view.blocks[0].done and not view.blocks[2].done


@pytest.mark.parametrize("end", [TurnAborted(reason="r"), TurnFailed(error="e")])
def test_when_the_turn_is_over_nothing_runs_any_more(end):
    view = fold(TextDelta(text="half"), pending(), end)
    assert all(block.done for block in view.blocks)
    assert view.blocks[1].item["status"] == "failed"
    assert (view.blocks[1].item["output"], view.blocks[1].item["note"]) == ("", "not finished")
    assert view.apply(completed())[0] is not view.blocks[1]


def test_the_usage_line_says_what_is_not_known_of_the_cost():
    [item] = items(TurnCompleted(text="x", usage=Usage(1, 1), unpriced="gpt-99"))
    assert item["cost"] == "price of gpt-99 not known"
    [item] = items(TurnCompleted(text="x", usage=Usage(1, 1)))
    assert item["cost"] == "cost not known"


def test_an_answer_of_a_type_is_shown_as_code():
    message = ItemCompleted(item=AssistantMessage('{"a_b": [1, "*x*"]}'))
    [item] = items(TurnStarted(prompt="x", output="Row"), message)
    assert item["text"].startswith("```json\n{\n")
    assert json.loads(item["text"].strip("`").removeprefix("json")) == {"a_b": [1, "*x*"]}
    assert items(TurnStarted(prompt="x"), message)[0]["text"] == '{"a_b": [1, "*x*"]}'


@pytest.mark.parametrize("text", ["words", "7", "[" * 100_000, '{"half'])
def test_what_is_no_json_object_stays_text(text):
    started = TurnStarted(prompt="x", output="int")
    assert items(started, ItemCompleted(item=AssistantMessage(text)))[0]["text"] == text


def test_no_tokens_no_usage_line():
    assert items(TurnCompleted(text="x")) == []


def test_progress_is_shown_until_the_call_ends():
    view = fold(
        pending(), ToolCallUpdated(call_id="c", name="shell", title="half way", progress=0.5)
    )
    assert view.blocks[0].item["output"] == "half way 50%"
    view.apply(completed("all"))
    assert view.blocks[0].item["output"] == "all"


@pytest.mark.parametrize("end", [completed("all"), TurnAborted(reason="r")])
def test_the_seconds_of_a_call_do_not_outlast_it(end):
    view = fold(pending())
    title = view.blocks[0].item["title"]
    counted = {"seconds": 40, "of": 600.0}
    view.apply(ToolCallUpdated(call_id="c", name="shell", metadata=counted))
    assert view.blocks[0].item["title"] == f"{title} (40 s of 600 s)"
    view.apply(end)
    assert view.blocks[0].item["title"] == title


def test_a_stream_keeps_its_tail_and_an_output_head_and_tail():
    view = fold(pending())
    for number in range(100):
        view.apply(ExecCommandOutputDelta(call_id="c", text=f"{number:03}" * 40))
    output = view.blocks[0].item["output"]
    assert re.match(r"… \d+ characters left out …\n", output) and output.endswith("099" * 40)
    assert len(output) <= SAVED_CHARACTERS + 50
    view.apply(completed("a" * 10_000))
    assert "6000 characters left out" in view.blocks[0].item["output"]
    assert len(shorten("x" * SAVED_CHARACTERS)) == SAVED_CHARACTERS


@given(st.lists(st.sampled_from(["10%", "9%", "\r", "\n", "\b", "\x1b[", "31m", "0K", "\x1b[A"])))
@example(["10%\r", "9%\r"])
def test_while_a_command_runs_it_shows_what_a_terminal_would(pieces):
    """However its output is cut into pieces."""
    view = fold(pending(), *(ExecCommandOutputDelta(call_id="c", text=text) for text in pieces))
    assert view.blocks[0].item["output"] == colour_output("".join(pieces))


def test_an_event_of_an_unknown_call_is_no_error():
    assert items(ExecCommandOutputDelta(call_id="x", text="t")) == []
    [item] = items(completed("out", "x"))
    assert (item["status"], item["output"]) == ("completed", "out")


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ('{"command": ["ls", "-la"]}', "ls -la"),
        ('{"command": ["bash", "-lc", "ls | wc"]}', "ls | wc"),
        ('{"command": ["python", "-c", "x"]}', "python -c x"),
        ('{"command": []}', ""),
        ('{"path": "a.py", "limit": 3}', "a.py"),
        ('{"code": "x = 1\\ny = 2"}', "x = 1 … (2 lines)"),
        ('{"month": "2024-03", "n": 1}', 'month="2024-03", n=1'),
        ('{"text": "結果は42です", "n": "é"}', 'text="結果は42です", n="é"'),
        ('{"steps": ["Read `a`", "Plot"], "explanation": "So."}', "Read `a`; Plot"),
        ("*** Begin Patch\n*** End Patch", "*** Begin Patch … (2 lines)"),
        ("[1, 2]", "[1, 2]"),
        ("{}", ""),
        ("", ""),
        ('{"code": "' + "x" * 200 + '"}', "x" * 99 + "…"),
    ],
)
def test_a_call_in_one_line(arguments, title):
    assert describe_call(arguments) == title


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ('{"cell_id": "a1", "source": "x = 1", "version": "9"}', "cell a1"),
        ('{"cell_id": "", "limit": 3}', 'cell_id="", limit=3'),
        ('{"source": "x = 1\\ny = 2", "after": "a1"}', "x = 1 … (2 lines)"),
        ("{}", ""),
        ("{", "{"),
    ],
)
def test_a_call_about_a_cell_in_one_line(arguments, title):
    assert describe_cell(arguments) == title


# -- sessions ------------------------------------------------------------------------------------

COMMAND = ("bash", "-c", "npm run dev")


def goes_on(session_id="48213"):
    return ExecCommandBegin(call_id="c", command=COMMAND, cwd="/w", session_id=session_id)


def prints(text, session_id="48213"):
    return ExecCommandOutputDelta(call_id="c", text=text, session_id=session_id)


def ends(exit_code, session_id="48213"):
    return ExecCommandEnd(call_id="c", exit_code=exit_code, duration=3.0, session_id=session_id)


CALL = pending("exec_command", '{"cmd": "npm run dev"}')
RETURNS = completed("Session 48213 is running.", details={"output": "starting\n"})


def test_a_session_has_a_block_of_its_own_that_outlives_the_turn():
    view = fold(
        CALL,
        ExecCommandBegin(call_id="c", command=COMMAND, cwd="/w"),
        ExecCommandOutputDelta(call_id="c", text="starting\n"),
        goes_on(),
        RETURNS,
        prints("\x1b[32mup\x1b[0m \x1b[2J\r\n"),
        TurnCompleted(text="It runs."),
    )
    call, session = view.blocks
    assert call.done and call.item["output"] == "starting\n"
    assert call.item["note"] == "goes on as a session"
    assert not session.done and session.item["status"] == "running"
    assert session.item["title"] == "npm run dev"
    assert session.item["output"] == "\x1b[32mup\x1b[0m \n"
    assert view.apply(prints("down\n")) == [session]
    assert view.apply(ends(0)) == [session]
    assert session.done and session.item["status"] == "completed"
    assert session.item["output"].endswith("up\x1b[0m \ndown\n")
    assert view.apply(prints("late")) == view.apply(ends(0)) == []
    assert "48213" not in str([block.item for block in view.blocks])


@pytest.mark.parametrize(
    ("exit_code", "status", "note"),
    [(0, "completed", ""), (3, "failed", ""), (None, "completed", "killed")],
)
def test_how_a_session_ended(exit_code, status, note):
    _, session = items(CALL, goes_on(), RETURNS, ends(exit_code))
    assert (session["status"], session["exit_code"], session["note"]) == (status, exit_code, note)


@pytest.mark.soak
def test_of_a_long_session_the_end_is_kept_from_a_line_start():
    view = fold(CALL, goes_on(), RETURNS)
    for number in range(500):
        view.apply(prints(f"\x1b[31mline {number}\x1b[0m\n"))
    output = view.blocks[1].item["output"]
    assert re.match(r"… \d+ characters left out …\n\x1b\[31mline \d+\x1b\[0m\n", output)
    assert output.endswith("line 499\x1b[0m\n") and len(output) <= SAVED_CHARACTERS + 50


def test_calls_about_a_session_name_it_by_its_command():
    details = {"output": "42\n", "session": "python3 -i"}
    [item] = items(
        pending("write_stdin", '{"session_id": 48213, "chars": "6*7\\n"}'),
        completed("…", name="write_stdin", details=details),
    )
    assert item["title"] == 'python3 -i: "6*7\\n"'
    assert item["arguments"] == '{"chars": "6*7\\n"}'
    [item] = items(
        pending("kill_session", '{"session_id": 48213}'),
        completed("…", name="kill_session", details=details),
    )
    assert item["title"] == "python3 -i" and item["arguments"] == "{}"
    [item] = items(pending("write_stdin", "no json"))
    assert item["arguments"] == "no json"


def test_what_the_model_was_told_is_a_notice_where_people_should_know():
    told = ModelInformed(message="Session 48213 …", shown="Session `x` ended.")
    [notice] = items(told)
    assert (notice["level"], notice["text"]) == ("info", "Session `x` ended.")
    assert items(ModelInformed(message="…")) == []


def test_a_cut_leaves_no_half_of_a_colour():
    text = "a" * (SAVED_CHARACTERS // 2 - 3) + "\x1b[31m" + "b" * SAVED_CHARACTERS
    head = shorten(text).partition("\n")[0]
    assert head == "a" * (SAVED_CHARACTERS // 2 - 3)


# For programs and the record; people see the call, or the question, that each belongs to.
NOT_SHOWN = {
    "ApprovalDecided",
    "CellChanged",
    "DynamicToolCallRequest",
    "PatchApplyBegin",
    "SessionConfigured",
    "VariablesKnown",
}


def test_every_kind_of_event_is_shown_or_meant_for_programs():
    (folder,) = render.__path__
    text = "".join(file.read_text("utf-8") for file in Path(folder).rglob("*.py"))
    kinds = [each for _, each in inspect.getmembers(events, inspect.isclass)]
    kinds = [each for each in kinds if issubclass(each, events.Event) and each is not events.Event]
    shown = {each for each in kinds if re.search(rf"\bevents\.{each.__name__}\b", text)}
    assert {each.__name__ for each in kinds if not shown & set(each.__mro__)} == NOT_SHOWN
