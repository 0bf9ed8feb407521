"""Streams of other servers, written by hand: golden files and what must come out of them.

Each file says what of it is from the server's documentation and what from memory.
"""

import json
from pathlib import Path

import pytest

from agent_magics.models.base import ItemDone, ReasoningChunk, ResponseDone, TextChunk
from agent_magics.models.faults import Fault
from agent_magics.models.providers.endpoints import dialect_of
from agent_magics.models.wires.chat.model import ChatDecoder
from agent_magics.models.wires.reasoning import details_for
from agent_magics.protocol.items import AssistantMessage, FunctionCall, Usage

GOLDEN = Path(__file__).parent / "golden"
TORONTO = '{"format":"celsius","location":"Toronto"}'

EXPECTED = {
    "ollama_tools": (
        "",
        "The person wants the weather.",
        [FunctionCall("call_vzv8arl7", "get_current_weather", TORONTO)],
        Usage(174, 31),
    ),
    "ollama_older": (
        "",
        "",
        [
            FunctionCall("call_a1", "get_current_weather", '{"location":"Toronto"}'),
            FunctionCall("call_a2", "get_current_weather", '{"location":"Paris"}'),
        ],
        Usage(),
    ),
    "vllm_reasoning_tools": (
        "",
        "Two numbers to add.",
        [FunctionCall("chatcmpl-tool-9f1", "add", '{"a": 1, "b": 2}')],
        Usage(168, 22, 160),
    ),
    "llama_cpp_tools": (
        "Let me see.",
        "Run it.",
        [
            AssistantMessage("Let me see."),
            FunctionCall("Rk2vZ9", "python", '{"code":"print(\'hi\')"}'),
        ],
        Usage(120, 24),
    ),
    "lmstudio_tools": (
        "Let me see.",
        "",
        [
            AssistantMessage("Let me see."),
            FunctionCall("814890118", "get_current_weather", '{"location":"San Francisco"}'),
            FunctionCall("365174485", "get_current_weather", '{"location":"Oslo"}'),
        ],
        Usage(),
    ),
    "openrouter_text": (
        "Good morning.",
        "Greet.",
        [AssistantMessage("Good morning.")],
        Usage(14, 9, 0, 3, 0.0001),
    ),
}


def texts_of(events, kind):
    return "".join(event.text for event in events if isinstance(event, kind))


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_documented_streams(name, line_end):
    data = (GOLDEN / f"{name}.sse").read_bytes().replace(b"\n", line_end)
    text, reasoning, items, usage = EXPECTED[name]
    for size in (1, 7, len(data)):
        decoder = ChatDecoder()
        events = []
        for start in range(0, len(data), size):
            events += decoder.feed(data[start : start + size])
        assert texts_of(events, TextChunk) == text
        assert texts_of(events, ReasoningChunk) == reasoning
        assert [event.item for event in events if isinstance(event, ItemDone)] == items
        assert decoder.done == ResponseDone(usage)


def test_openrouter_s_structured_reasoning_is_kept_to_be_sent_back():
    decoder = ChatDecoder(dialect=dialect_of("https://openrouter.ai/api/v1", "claude"))
    events = decoder.feed((GOLDEN / "openrouter_text.sse").read_bytes())
    reasoning = next(event.item for event in events if isinstance(event, ItemDone))
    blocks = json.loads(b"[%s]" % details_for("claude", reasoning.encrypted))
    thought = {"type": "reasoning.text", "text": "Greet.", "format": "anthropic-claude-v1"}
    assert blocks == [{**thought, "index": 0}]


def test_a_documented_error_passes():
    decoder = ChatDecoder()
    with pytest.raises(Fault, match="Provider disconnected") as caught:
        decoder.feed((GOLDEN / "openrouter_error.sse").read_bytes())
    assert caught.value.passing


def test_every_golden_file_is_looked_at_and_says_where_it_is_from():
    files = {path.stem: path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.sse")}
    assert set(files) == {*EXPECTED, "openrouter_error"}
    assert all("Written by hand from" in text.replace("\n: ", " ") for text in files.values())
