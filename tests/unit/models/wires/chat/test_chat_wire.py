"""Items and tool specs as messages and functions of Chat Completions."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.engine.context.history import History
from agent_magics.models.base import ItemDone
from agent_magics.models.providers.endpoints import Dialect, dialect_of
from agent_magics.models.wires.chat.messages import (
    EXTRA_MARK,
    ChatForm,
    decode_call,
    decode_usage,
)
from agent_magics.models.wires.chat.model import ChatDecoder
from agent_magics.models.wires.chat.tools import encode_choice, encode_tools, tool_json
from agent_magics.models.wires.reasoning import ReasoningDetails
from agent_magics.models.wires.responses.items import ResponsesTranscript
from agent_magics.models.wires.transforms import strict_form
from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
    WebSearchCall,
)
from agent_magics.protocol.tools import (
    FunctionToolSpec,
    LocalShellSpec,
    WebSearchSpec,
)
from tests.support.models.wire_shapes import GRAMMAR, HISTORIES, IMAGE, PARTS, PNG, SCHEMA, offered

PLAIN = Dialect()
OPENROUTER = "https://openrouter.ai/api/v1"
BETWEEN = {"role": "assistant", "content": "…"}
MISTRAL = dialect_of("https://api.mistral.ai/v1", "mistral-medium-latest")
OPENAI = dialect_of("https://api.openai.com/v1", "gpt-5.5")
IMAGE_JSON = {
    "type": "image_url",
    "image_url": {"url": PNG, "detail": "low"},
}


def messages_of(*items, dialect=PLAIN):
    transcript = ChatForm(dialect)()
    for item in items:
        transcript.add(item)
    return json.loads(b"[%s]" % transcript.encoded())


def call_of(call_id, name, arguments):
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def tool(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_a_text_and_the_calls_beside_it_are_one_message():
    assert messages_of(
        UserMessage("go"),
        AssistantMessage("Two things."),
        FunctionCall("a", "f", '{"x": 1}'),
        FunctionCall("b", "g", ""),
        ToolCallOutput("a", "one"),
        ToolCallOutput("b", "two"),
        AssistantMessage("Done."),
        UserMessage("thanks"),
    ) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "Two things.",
            "tool_calls": [call_of("a", "f", '{"x": 1}'), call_of("b", "g", "{}")],
        },
        tool("a", "one"),
        tool("b", "two"),
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "thanks"},
    ]


def test_calls_without_text_have_no_content():
    assert messages_of(FunctionCall("a", "f", "{}")) == [
        {"role": "assistant", "content": None, "tool_calls": [call_of("a", "f", "{}")]}
    ]


def test_each_step_of_a_growing_history_is_valid_and_encoded_once():
    items = [
        UserMessage("go"),
        AssistantMessage("a"),
        FunctionCall("1", "f", "{}"),
        FunctionCall("2", "f", "{}"),
        ToolCallOutput("1", "x"),
        ToolCallOutput("2", PARTS),
        UserMessage("and?"),
        AssistantMessage("b"),
    ]
    history, form = History(), ChatForm(PLAIN)
    for count, item in enumerate(items, 1):
        history.append(item)
        grown = json.loads(b"[%s]" % history.encoded(form))
        assert grown == messages_of(*items[:count])
        # The other wire on the same history, in between.
        assert json.loads(b"[%s]" % history.encoded(ResponsesTranscript))
    assert history.encoded(ChatForm(Dialect())) == history.encoded(form)  # equal, so the same one


def test_things_said_one_after_the_other_are_one_message():
    said = (UserMessage("news", "developer"), UserMessage("go"), UserMessage((IMAGE,)))
    parts = [{"type": "text", "text": "news"}, {"type": "text", "text": "go"}, IMAGE_JSON]
    assert messages_of(*said[:2]) == [{"role": "user", "content": "news\n\ngo"}]
    assert messages_of(*said) == [{"role": "user", "content": parts}]
    assert messages_of(*said[:2], dialect=OPENAI) == [
        {"role": "developer", "content": "news"},
        {"role": "user", "content": "go"},
    ]


def test_images_of_outputs_follow_the_last_output_of_the_row():
    outputs = (
        FunctionCall("a", "f", "{}"),
        FunctionCall("b", "f", "{}"),
        ToolCallOutput("a", PARTS),
        ToolCallOutput("b", "plain"),
    )
    images = [{"type": "text", "text": "Image of the output of a:"}, IMAGE_JSON]
    assert messages_of(*outputs)[1:] == [
        tool("a", "see\n[image]"),
        tool("b", "plain"),
        {"role": "user", "content": images},
    ]
    more = messages_of(*outputs, UserMessage("go on"), AssistantMessage("ok"))
    assert more[3:] == [
        {"role": "user", "content": [*images, {"type": "text", "text": "go on"}]},
        {"role": "assistant", "content": "ok"},
    ]
    assert messages_of(*outputs, AssistantMessage("ok"))[3:] == [
        {"role": "user", "content": images},
        {"role": "assistant", "content": "ok"},
    ]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([UserMessage("and?")], [BETWEEN, {"role": "user", "content": "and?"}]),
        (
            [UserMessage("Sum up.", "developer"), UserMessage("and?")],
            [BETWEEN, {"role": "user", "content": "Sum up.\n\nand?"}],
        ),
        ([AssistantMessage("ok")], [{"role": "assistant", "content": "ok"}]),
        ([Reasoning(("hm",)), UserMessage("and?")], [BETWEEN, {"role": "user", "content": "and?"}]),
        (
            [AssistantMessage("ok"), UserMessage("and?")],
            [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "and?"}],
        ),
        ([], []),
    ],
    ids=["a person", "notes", "an answer", "reasoning alone", "an answer, then", "nothing"],
)
def test_mistral_gets_an_answer_between_an_output_and_what_is_said_next(after, expected):
    items = (FunctionCall("abcdefghi", "f", "{}"), ToolCallOutput("abcdefghi", "done"), *after)
    assert messages_of(*items, dialect=MISTRAL)[2:] == expected
    assert BETWEEN not in messages_of(*items)


def test_mistral_gets_an_answer_between_outputs_and_their_images():
    calls = [FunctionCall(name, "f", "{}") for name in ("abcdefghi", "bcdefghij")]
    outputs = [ToolCallOutput(call.call_id, PARTS) for call in calls]
    first, *others = messages_of(*calls, *outputs, UserMessage("and?"), dialect=MISTRAL)
    assert [message["role"] for message in others] == ["tool", "tool", "assistant", "user"]
    assert others[2] == BETWEEN and others[3]["content"].count(IMAGE_JSON) == 2
    assert messages_of(*calls, *outputs, dialect=MISTRAL)[:4] == [first, *others[:3]]


def test_reasoning_goes_back_only_where_it_is_wanted():
    items = (Reasoning(("why",)), FunctionCall("a", "f", "{}"))
    assert "reasoning_content" not in messages_of(*items)[0]
    wanted = Dialect(reasoning_field="reasoning_content")
    assert messages_of(*items, dialect=wanted)[0]["reasoning_content"] == "why"
    assert messages_of(Reasoning(("why",)), UserMessage("x"), dialect=wanted) == [
        {"role": "user", "content": "x"}
    ]


def test_freeform_and_shell_calls_are_functions_or_custom_calls():
    patch = CustomToolCall("a", "apply_patch", "*** Begin\n")
    shell = LocalShellCall("b", ("ls", "-l"), "/x", 5)
    (message,) = messages_of(patch, shell)
    assert message["tool_calls"] == [
        call_of("a", "apply_patch", '{"input":"*** Begin\\n"}'),
        call_of("b", "local_shell", '{"command":["ls","-l"],"workdir":"/x","timeout_ms":5}'),
    ]
    (message,) = messages_of(patch, dialect=OPENAI)
    custom = {"name": "apply_patch", "input": "*** Begin\n"}
    assert message["tool_calls"] == [{"id": "a", "type": "custom", "custom": custom}]


def test_what_the_model_wrote_wrongly_goes_back_readable():
    (message,) = messages_of(FunctionCall("a", "functions.f x", '{"cut'))
    assert message["tool_calls"] == [call_of("a", "functions_f_x", '{"invalid_json":"{\\"cut"}')]


def test_what_is_no_json_though_python_reads_it_goes_back_as_text():
    (message,) = messages_of(FunctionCall("a", "f", '{"x": NaN}'))
    assert message["tool_calls"] == [call_of("a", "f", '{"invalid_json":"{\\"x\\": NaN}"}')]
    (message,) = messages_of(FunctionCall("a", "f", "{}", f'{EXTRA_MARK}{{"s": Infinity}}'))
    assert message["tool_calls"][0]["extra_content"] == {"s": None}


def test_structured_reasoning_goes_back_with_what_was_said_next_and_nowhere_else():
    blocks = [{"type": "reasoning.text", "text": "é", "index": 0}]
    details = ReasoningDetails()
    details.add(blocks)
    items = (Reasoning(("é",), details.kept()), AssistantMessage("a"), FunctionCall("1", "f", "{}"))
    wanted = Dialect(reasoning_details=True)
    (message,) = messages_of(*items, dialect=wanted)
    assert message["reasoning_details"] == blocks
    assert messages_of(items[0], UserMessage("x"), AssistantMessage("b"), dialect=wanted) == [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "b"},
    ]
    assert "reasoning_details" not in messages_of(*items)[0]
    assert (
        "reasoning_details" not in messages_of(Reasoning((), "enc"), *items[1:], dialect=wanted)[0]
    )


def test_a_web_search_of_the_other_wire_is_left_out_with_its_citations():
    said = AssistantMessage("Cats.", citations=(Citation("https://a", "A"),))
    assert messages_of(UserMessage("?"), WebSearchCall({"type": "search"}), said) == [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "Cats."},
    ]


@pytest.mark.parametrize(
    ("choice", "dialect", "sent"),
    [
        ("required", PLAIN, "required"),
        ("f", PLAIN, {"type": "function", "function": {"name": "f"}}),
        ("patch", PLAIN, {"type": "function", "function": {"name": "patch"}}),
        ("patch", OPENAI, {"type": "custom", "custom": {"name": "patch"}}),
    ],
)
def test_which_tool_must_be_called(choice, dialect, sent):
    tools = offered(FunctionToolSpec("f", "Do.", SCHEMA), GRAMMAR)
    assert encode_choice(choice, tools, dialect) == sent


def test_ids_that_do_not_fit_are_made_anew_alike_for_call_and_output():
    long = "call_" + "x" * 60
    for dialect, pattern in ((PLAIN, 40), (Dialect(call_ids="mistral"), 9)):
        said, output = messages_of(
            FunctionCall(long, "f", "{}"), ToolCallOutput(long, ""), dialect=dialect
        )
        assert said["tool_calls"][0]["id"] == output["tool_call_id"]
        assert len(output["tool_call_id"]) <= pattern
        assert output["tool_call_id"].isalnum()


def test_what_a_server_wants_back_with_a_call_comes_back():
    extra = {"google": {"thought_signature": "abc"}}
    call = decode_call("a", "f", "{}", None, extra)
    (message,) = messages_of(call)
    assert message["tool_calls"][0]["extra_content"] == extra


@pytest.mark.parametrize(
    ("maker", "model", "gets_them"),
    [
        ("anthropic/claude-sonnet-4", "anthropic/claude-sonnet-4", True),
        ("anthropic/claude-sonnet-4", "Anthropic/claude-opus-4.5:beta", True),
        ("anthropic/claude-sonnet-4", "openai/gpt-5.5", False),
        ("openai/o3", "google/gemini-3-pro", False),
        ("openai/o3", "deepseek/deepseek-r1", False),
        ("deepseek/deepseek-r1", "deepseek/deepseek-v3", True),
        ("a[b:c/d", "a[b:c/d", True),
        ("a[b:c/d", "a[b/d", False),
        ("no-vendor", "no-vendor", True),
        ("no-vendor", "another", False),
    ],
)
def test_structured_reasoning_goes_only_to_models_of_its_maker(maker, model, gets_them):
    blocks = [{"type": "reasoning.encrypted", "data": "se:[cret"}]
    decoder = ChatDecoder((), dialect_of(OPENROUTER, maker))
    message = {"content": "yo", "reasoning": "hm", "reasoning_details": blocks}
    answer = {"choices": [{"message": message, "finish_reason": "stop"}]}
    events = [*decoder.feed(json.dumps(answer).encode()), *decoder.close()]
    items = [event.item for event in events if isinstance(event, ItemDone)]
    history, sent = History((*items, UserMessage("and?"))), []
    for name in (maker, model, maker):  # a conversation goes from one to the other and back
        form = ChatForm(dialect_of(OPENROUTER, name))
        sent.append(json.loads(b"[%s]" % history.encoded(form))[0])
    assert sent[0]["reasoning_details"] == sent[2]["reasoning_details"] == blocks
    assert sent[1].get("reasoning_details") == (blocks if gets_them else None)
    assert sent[1]["content"] == "yo"


def test_structured_reasoning_of_an_unknown_maker_is_sent():
    old = Reasoning((), 'reasoning_details:[{"data":"x"}]')
    for name in ("openai/o3", "auto"):
        (message,) = messages_of(old, AssistantMessage("yo"), dialect=dialect_of(OPENROUTER, name))
        assert message["reasoning_details"] == [{"data": "x"}]


@given(
    HISTORIES,
    st.sampled_from(
        [
            PLAIN,
            OPENAI,
            Dialect(reasoning_field="reasoning_content"),
            Dialect(reasoning_details=True),
            Dialect(answered_outputs=True),
        ]
    ),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_any_history_is_json_whenever_it_is_asked_for(items, dialect, stops):
    transcript = ChatForm(dialect)()
    for count, item in enumerate(items):
        transcript.add(item)
        if count in stops:
            json.loads(b"[%s]" % transcript.encoded())
    assert json.loads(b"[%s]" % transcript.encoded()) == messages_of(*items, dialect=dialect)
    roles = [message["role"] for message in messages_of(*items, dialect=dialect)]
    pairs = list(itertools.pairwise(roles))
    assert all(before != after or before == "tool" for before, after in pairs)
    assert ("tool", "user") not in pairs or not dialect.answered_outputs


# -- tools ---------------------------------------------------------------------------------------


def test_tools_by_dialect():
    spec = FunctionToolSpec("f", "Do.", SCHEMA, strict=True)
    lean = {word: value for word, value in SCHEMA.items() if word != "additionalProperties"}
    plain = {"name": "f", "description": "Do.", "parameters": lean}
    assert tool_json(spec, PLAIN) == {"type": "function", "function": plain}
    strict = {**plain, "parameters": strict_form(SCHEMA), "strict": True}
    assert tool_json(spec, OPENAI) == {"type": "function", "function": strict}


def test_freeform_tools_are_functions_with_one_text_or_custom_tools():
    function = tool_json(GRAMMAR, PLAIN)["function"]
    assert function["parameters"]["required"] == ["input"]
    assert "lark grammar:\nstart: /x/" in function["description"]
    assert tool_json(GRAMMAR, OPENAI) == {
        "type": "custom",
        "custom": {
            "name": "patch",
            "description": "Change files.",
            "format": {
                "type": "grammar",
                "grammar": {"syntax": "lark", "definition": "start: /x/"},
            },
        },
    }


def test_the_native_shell_is_a_function_and_web_search_is_left_out():
    tools = offered(LocalShellSpec(), WebSearchSpec())
    (only,) = json.loads(encode_tools(tools, PLAIN))
    assert only["function"]["name"] == "local_shell"
    assert encode_tools(tools[1:], PLAIN) == b""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"*** Begin"}', "*** Begin"),
        ("*** Begin", "*** Begin"),
        ('{"patch":"x"}', '{"patch":"x"}'),
        ('{"input":3}', '{"input":3}'),
    ],
)
def test_the_text_of_a_freeform_call(arguments, text):
    assert decode_call("a", "patch", arguments, GRAMMAR) == CustomToolCall("a", "patch", text)


def test_shell_calls_come_back():
    shell = LocalShellSpec()
    given = '{"command":["ls","-l"],"workdir":"/x","timeout_ms":5}'
    assert decode_call("a", "local_shell", given, shell) == LocalShellCall(
        "a", ("ls", "-l"), "/x", 5
    )
    assert decode_call("", "local_shell", '{"command":"ls | wc"}', shell) == LocalShellCall(
        None, ("bash", "-c", "ls | wc")
    )
    assert isinstance(decode_call("a", "local_shell", "{", shell), FunctionCall)


def test_usage():
    assert (
        decode_usage(None) == decode_usage("x") == decode_usage({"prompt_tokens": None}) == Usage()
    )
    whole = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert decode_usage(whole) == Usage(7, 5, 3, 2)
    assert decode_usage({"prompt_tokens": 7, "prompt_cache_hit_tokens": 6}) == Usage(7, 0, 6)
    assert decode_usage({"prompt_tokens": 7, "cached_tokens": 6}) == Usage(7, 0, 6)


@pytest.mark.parametrize(
    ("counts", "details", "answered", "thought"),
    [
        ((20, 424, 1_016), {}, 996, 572),  # Gemini
        ((10_120, 1_499, 14_428), {"reasoning_tokens": 2_809}, 4_308, 2_809),  # xAI
        ((7, None, 12), {}, 5, 5),  # thoughts alone, up to the limit
        ((7, 5, 12), {"reasoning_tokens": 2}, 5, 2),
        ((7, 5, None), {}, 5, 0),
        ((None, None, 12), {}, 0, 0),  # of which nobody knows what is what
    ],
)
def test_thoughts_that_only_the_total_counts_are_paid_for(counts, details, answered, thought):
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    told = {**dict(zip(names, counts, strict=True)), "completion_tokens_details": details}
    assert decode_usage(told) == Usage(counts[0] or 0, answered, 0, thought)


def test_what_is_cached_beside_the_question_is_no_thought():
    told = {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 5_010}
    assert decode_usage({**told, "cached_tokens": 4_000}) == Usage(1_000, 10, 4_000)


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ({"cost": 0.5}, 0.5),
        ({"cost": 0.5, "cost_details": {"upstream_inference_cost": 0.4}}, 0.5),  # is in it
        (
            {"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.25}},
            0.25,
        ),
        ({"cost": 0, "is_byok": True}, None),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": "1"}}, None),
        ({"cost": True}, None),
    ],
)
def test_a_cost_is_all_that_is_paid(told, cost):
    assert decode_usage(told).reported_cost == cost
