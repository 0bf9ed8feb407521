"""What stands in place of a pruned output: how long it was, and where the whole of it is."""

import pytest

from agent_magics.engine.context.pruning import prune
from agent_magics.protocol.items import (
    AssistantMessage,
    FunctionCall,
    InputImage,
    InputText,
    ToolCallOutput,
)

IMAGE = InputImage("data:image/png;base64,AAAA")
LONG = "word " * 1_000

OUTPUTS = {
    "text": (LONG, "[5,000 characters of output left out here; the whole is @r7.]"),
    "parts": (
        (InputText(LONG), IMAGE, IMAGE),
        "[5,000 characters of output and 2 images left out here; the whole is @r7.]",
    ),
    "an image alone": ((IMAGE,), "[1 image left out here; make the call again to see more.]"),
    "a command that was cut": (
        LONG + "@r3 (1,200 lines; read_file and grep_files take it as a path)",
        "[5,061 characters of output left out here; the whole is @r7.]\n"
        "@r3 (1,200 lines; read_file and grep_files take it as a path)",
    ),
    "a value that was cut": (
        LONG + "\n[@r4: the whole text, 90,000 characters; read_file and grep_files take it as a "
        "path; _r4 in python code]",
        "[5,105 characters of output left out here; the whole is @r7.]\n"
        "[@r4: the whole text, 90,000 characters; read_file and grep_files take it as a path; _r4 "
        "in python code]",
    ),
    "an object": (
        LONG + "\n[@r5: DataFrame, 3 columns; it stands for this object in arguments]",
        "[5,068 characters of output left out here; the whole is @r7.]\n"
        "[@r5: DataFrame, 3 columns; it stands for this object in arguments]",
    ),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_one_line_stands_for_it(case):
    output, line = OUTPUTS[case]
    items = [
        FunctionCall("c", "look", "{}"),
        ToolCallOutput("c", output, "custom"),
        AssistantMessage("Seen."),
    ]
    kept = []
    pruned = prune(items, 0, lambda text: kept.append(text) or "@r7")
    assert pruned.items == [items[0], ToolCallOutput("c", line, "custom"), items[2]]
    assert len(kept) == ("@r7" in line)  # its text is kept, whatever a line of it names


def test_short_outputs_stay():
    items = [FunctionCall("c", "look", "{}"), ToolCallOutput("c", "ok"), AssistantMessage("So.")]
    assert prune(items, 0, str).items == items


def test_what_the_model_has_not_read_stays_unless_there_is_no_other_way():
    items = [FunctionCall("c", "look", "{}"), ToolCallOutput("c", LONG)]
    assert prune(items, 0, lambda text: "@r1").count == 0
    assert prune(items, 0, lambda text: "@r1", unread=True).count == 1
