"""Whatever the history: what is sent of it is valid, and nothing of the person is lost."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.engine.context.history import History
from agent_magics.engine.context.pruning import SHORTEST, prune
from agent_magics.engine.context.summary import (
    LONGEST_ENTRY,
    SplitConversation,
    SummaryHistory,
    keep_words,
    replacement,
    split,
    write_record,
)
from agent_magics.engine.context.tokens import count_item, count_items, guess_text
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.wires.chat.messages import ChatTranscript
from agent_magics.models.wires.responses.items import ResponsesTranscript
from agent_magics.protocol.events import PlanStep
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    InputImage,
    InputText,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    UserMessage,
    text_of,
)

IMAGE = InputImage("data:image/png;base64,AAAA")
texts = st.builds(
    lambda words, times: words * times, st.text(min_size=1, max_size=8), st.integers(1, 200)
)
parts = st.one_of(st.builds(InputText, texts), st.just(IMAGE))
contents = st.one_of(
    texts,
    st.lists(st.one_of(st.builds(InputText, texts), st.just(IMAGE)), min_size=1, max_size=3).map(
        tuple
    ),
)
said = st.builds(UserMessage, contents)
notes = st.builds(UserMessage, texts, st.just("developer"))


@st.composite
def steps(draw) -> list:
    """An answer of the model with its calls' outputs; ids may be used again in a later one."""
    items = draw(
        st.lists(
            st.one_of(
                st.builds(Reasoning, st.just(("hm",)), st.just("sealed"), st.just("rs")),
                st.builds(AssistantMessage, texts),
            ),
            max_size=2,
        )
    )
    ids = draw(st.lists(st.sampled_from("abcdef"), max_size=4, unique=True))
    kinds = [draw(st.sampled_from(("function", "custom", "local_shell"))) for _ in ids]
    made = {
        "function": lambda call_id: FunctionCall(call_id, "look", draw(texts)),
        "custom": lambda call_id: CustomToolCall(call_id, "patch", draw(texts)),
        "local_shell": lambda call_id: LocalShellCall(call_id, ("ls", draw(texts))),
    }
    calls = [made[kind](call_id) for call_id, kind in zip(ids, kinds, strict=True)]
    outputs = [
        ToolCallOutput(call_id, draw(contents), kind)
        for call_id, kind in zip(ids, kinds, strict=True)
    ]
    if outputs and draw(st.booleans()):
        outputs.insert(draw(st.integers(0, len(outputs))), draw(notes))
    if isinstance((items or [None])[-1], Reasoning) and not calls:
        items.append(AssistantMessage("So."))  # what a provider never leaves out
    return [*items, *calls, *outputs]


groups = st.one_of(steps(), said.map(lambda m: [m]), notes.map(lambda m: [m]))
histories = st.lists(groups, max_size=8).map(
    lambda groups: [item for group in groups for item in group]
)
bounds = st.integers(0, 2_000)
# On a loaded machine an example takes as long as it takes.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Shelf:
    """Keeps texts under handles, as the store of a conversation does."""

    def __init__(self) -> None:
        self.texts = {}

    def keep(self, text: str) -> str:
        name = f"@r{len(self.texts) + 1}"
        self.texts[name] = text
        return name


def assert_valid(items) -> None:
    """Check that every call has exactly one output after it, and reasoning what it led to."""
    waiting = []
    for place, item in enumerate(items):
        if isinstance(item, CALL_TYPES):
            waiting.append(item.call_id)
        elif isinstance(item, ToolCallOutput):
            waiting.remove(item.call_id)
        elif isinstance(item, Reasoning):
            assert isinstance(items[place + 1], (AssistantMessage, Reasoning, *CALL_TYPES))
    assert waiting == []


def encode(items) -> None:
    """Check that both wires can say it."""
    history = History(items)
    history.encoded(ResponsesTranscript)
    history.encoded(lambda: ChatTranscript(Dialect()))


@relaxed
@given(histories, bounds, st.booleans())
def test_pruning_changes_nothing_but_old_outputs(items, kept, unread):
    shelf = Shelf()
    pruned = prune(items, kept, shelf.keep, unread=unread)
    assert_valid(pruned.items)
    assert len(pruned.items) == len(items)
    changed = [pair for pair in zip(items, pruned.items, strict=True) if pair[0] != pair[1]]
    assert len(changed) == pruned.count
    for before, after in changed:
        assert isinstance(before, ToolCallOutput)
        assert (before.call_id, before.kind) == (after.call_id, after.kind)
        assert count_item(after) < count_item(before)
        handle = after.output.removesuffix(".]").rpartition(" ")[2]
        if any(not isinstance(part, InputImage) for part in before.output):
            assert shelf.texts[handle] == text_of(before.output)
    # Again, there is nothing left to do.
    assert prune(pruned.items, kept, shelf.keep, unread=unread) == type(pruned)(pruned.items, 0)
    encode(pruned.items)


@relaxed
@given(histories, bounds)
def test_the_newest_outputs_stay_whole(items, kept):
    pruned = prune(items, kept, Shelf().keep)
    left = kept
    for before, after in reversed(list(zip(items, pruned.items, strict=True))):
        if not isinstance(before, ToolCallOutput):
            continue
        left -= count_item(before)
        if left >= 0 or count_item(before) < SHORTEST:
            assert after == before


@relaxed
@given(histories, bounds)
def test_a_cut_tears_nothing_apart(items, kept):
    parts = split(items, kept)
    assert [*parts.old, *parts.recent] == items
    assert_valid(parts.old)
    assert_valid(parts.recent)
    if kept == 0:
        assert parts.recent == []
    elif count_items(parts.recent) > kept:  # the last step alone is longer
        assert split(parts.recent, kept).old == []


PLAN = (PlanStep("1", "look", "in_progress"),)


LONG_TEXT = f"{'x' * 18_000} MIDDLE {'x' * 18_000}"
SUMMARISED = replacement(SplitConversation([UserMessage("Go.")], []), LONG_TEXT, 100, PLAN, ())


def replaced(items, kept, words) -> list:
    return replacement(split(items, kept), "What was done.", words, PLAN, ())


@relaxed
@given(histories, bounds, bounds)
def test_what_stands_in_place_of_the_past_is_valid_and_keeps_the_persons_words(items, kept, words):
    result = replaced(items, kept, words)
    assert_valid(result)
    encode(result)
    (note,) = [i for i in result if isinstance(i, UserMessage) and "What was done." in i.content]
    assert note.role == "developer" and "[in_progress] 1: look" in note.content
    place = result.index(note)
    parts = split(items, kept)
    assert result[place + 1 :] == parts.recent
    spoken = [i for i in parts.old if isinstance(i, UserMessage) and i.role == "user"]
    assert count_items(result[:place]) <= words
    if count_items(spoken) <= words:
        assert result[:place] == spoken
    else:
        # The newest are whole; only the oldest that is there may be cut.
        whole = result[1:place]
        assert whole == spoken[len(spoken) - len(whole) :]


@relaxed
@given(histories, bounds, bounds)
def test_a_second_time_keeps_what_the_first_has_kept(items, kept, words):
    once = replaced(items, kept, words)
    twice = replaced(once, kept, words)
    assert_valid(twice)
    people = [i for i in once if isinstance(i, UserMessage) and i.role == "user"]
    again = [i for i in twice if isinstance(i, UserMessage) and i.role == "user"]
    if count_items(people) <= words:
        assert again == people


@relaxed
@given(histories, st.integers(1, 3_000))
def test_a_record_is_as_short_as_it_must_be(items, tokens):
    text = write_record(items, tokens)
    assert guess_text(text) <= tokens + 20  # the line that says what is missing
    text.encode("utf-8", "replace")


def test_a_record_has_the_beginning_and_the_end():
    items = [UserMessage(f"message {number} " + "x" * 300) for number in range(100)]
    text = write_record(items, 1_000)
    assert text.startswith("## The person\nmessage 0 ")
    assert "characters left out" in text
    assert "message 99 " in text and "message 50 " not in text


def test_one_long_output_does_not_fill_a_record():
    items = [
        FunctionCall("c", "look", "{}"),
        ToolCallOutput("c", "x" * 100_000),
        AssistantMessage("Seen."),
    ]
    text = write_record(items, 100_000)
    assert len(text) < LONGEST_ENTRY + 200
    assert text.endswith("## The agent\nSeen.")


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ([*SUMMARISED, AssistantMessage("Seen.")], True),
        ([UserMessage("What came.", "developer"), *SUMMARISED], True),
        ([UserMessage(LONG_TEXT, "developer")], False),
        ([UserMessage(LONG_TEXT)], False),
        ([AssistantMessage(text_of(SUMMARISED[-1].content))], False),
    ],
    ids=["a summary", "after a note", "a note", "words of the person", "words of the agent"],
)
def test_only_an_earlier_summary_stands_whole_in_a_record(items, kept):
    assert ("MIDDLE" in write_record(items, 100_000)) == kept


def test_a_request_for_a_summary_knows_the_whole_conversation_and_sends_one_message():
    items = [UserMessage("hi"), AssistantMessage("Hello.")]
    record = SummaryHistory(items, "the record")
    assert record.items is items
    (message,) = record.sent
    assert message.content.startswith("the record\n\n(End of the record.)")
    assert record.encoded(ResponsesTranscript).count(b'"role"') == 1


def test_a_message_that_is_too_long_is_cut_in_its_middle():
    long = UserMessage("begin " + "x" * 10_000 + " end")
    (cut,), whole = keep_words([UserMessage("old"), long], 500)
    assert not whole
    assert cut.content.startswith("begin") and cut.content.endswith("end")
    assert "characters left out" in cut.content
    assert count_item(cut) <= 500


def test_after_a_base_only_what_is_new_is_encoded():
    seen = []

    class Names:
        def __init__(self) -> None:
            self.names = []

        def add(self, item) -> None:
            seen.append(item)
            self.names.append(type(item).__name__.encode())

        def encoded(self) -> bytes:
            return b",".join(self.names)

    history = History([UserMessage("a"), AssistantMessage("b"), UserMessage("c")])
    history.encoded(Names)
    history.shorten([UserMessage("base")], 2)
    seen.clear()
    assert history.encoded(Names) == b"UserMessage,UserMessage"
    assert seen == [UserMessage("base"), UserMessage("c")] == list(history.sent)
    history.append(AssistantMessage("d"))
    history.encoded(Names)
    assert seen[2:] == [AssistantMessage("d")]
    assert len(history.items) == 4
    history.shorten([UserMessage("shorter")], 4)
    assert list(history.sent) == [UserMessage("shorter")]
    assert history.encoded(Names) == b"UserMessage"


def test_what_the_model_has_not_read_stays_with_its_call_whatever_came_after_it():
    old = [UserMessage("hi"), AssistantMessage("Hello."), UserMessage("Look!")]
    unread = [
        FunctionCall("c", "look", "{}"),
        ToolCallOutput("c", "x" * 50_000),
        UserMessage("A session has ended.", "developer"),
        UserMessage("And hurry up."),
    ]
    assert split([*old, *unread], 10) == SplitConversation(old, unread)
    prompt = [UserMessage("A session has ended.", "developer"), UserMessage("x" * 50_000)]
    assert split([*old[:2], *prompt], 10) == SplitConversation(old[:2], prompt)


def test_parts_of_nothing():
    assert split([], 100) == SplitConversation([], [])
    assert split([], 0) == SplitConversation([], [])
