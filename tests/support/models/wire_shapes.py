"""The items and tools that tests of both wires encode."""

from hypothesis import strategies as st

from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    CustomToolCall,
    FunctionCall,
    InputImage,
    InputText,
    Reasoning,
    ToolCallOutput,
    UserMessage,
    WebSearchCall,
)
from agent_magics.protocol.tools import ConfiguredToolSpec, FreeformToolSpec, ToolSpec

PNG = "data:image/png;base64,AA=="
IMAGE = InputImage(PNG, "low")
PARTS = (InputText("see"), IMAGE)
GRAMMAR = FreeformToolSpec("patch", "Change files.", "lark", "start: /x/")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
# One argument is optional and one schema is open: strict mode wants both otherwise.
LOOSE = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "n": {"type": "integer", "default": 5}},
    "required": ["a"],
}

# Half a surrogate pair, which a program's output may hold, is text, too.
TEXTS = st.text() | st.just("\ud800\udc00x\udc80")
ITEMS = st.one_of(
    st.builds(UserMessage, TEXTS, st.sampled_from(["user", "developer"])),
    st.builds(UserMessage, st.tuples(st.builds(InputText, TEXTS), st.just(IMAGE))),
    st.builds(AssistantMessage, TEXTS, citations=st.tuples(st.builds(Citation, TEXTS, TEXTS))),
    st.builds(AssistantMessage, TEXTS),
    st.builds(Reasoning, st.tuples(TEXTS), st.none() | TEXTS),
    st.builds(WebSearchCall, st.dictionaries(TEXTS, TEXTS, max_size=2)),
    st.builds(FunctionCall, TEXTS, TEXTS, TEXTS),
    st.builds(CustomToolCall, TEXTS, TEXTS, TEXTS),
    st.builds(ToolCallOutput, TEXTS, TEXTS),
    st.builds(ToolCallOutput, TEXTS, st.just((IMAGE,))),
)
HISTORIES = st.lists(ITEMS, max_size=12)


def offered(*specs: ToolSpec) -> tuple[ConfiguredToolSpec, ...]:
    """Return the specs as a request offers them."""
    return tuple(map(ConfiguredToolSpec, specs))
