"""What of a run is shown in a cell: text and pictures in their order, and nothing else."""

from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.notebook.changes import _outputs_of

PNG = InputImage("data:image/png;base64,AA==")


def _kinds(output: ToolOutput) -> list[str]:
    return [str(o.get("text") or o["data"]) for o in _outputs_of(output)]


def test_a_picture_stands_where_it_was_drawn() -> None:
    text = "before\n[figure: <Figure>]\nafter\n"
    output = ToolOutput((InputText(text), PNG), details={"output": text})
    picture = str({"image/png": "AA==", "text/plain": "[figure]"})
    assert _kinds(output) == ["before\n", picture, "after\n"]


def test_words_that_look_like_a_picture_lead_to_none() -> None:
    text = "[figure: printed]\n"
    assert _kinds(ToolOutput(text, details={"output": text})) == [text]


def test_no_picture_is_lost_where_its_place_was_cut() -> None:
    output = ToolOutput((InputText("a lot"), PNG, PNG), details={"output": "a lot"})
    assert len(_outputs_of(output)) == 3


def test_an_error_goes_to_stderr() -> None:
    output = ToolOutput("NameError: x", success=False, details={"output": "NameError: x"})
    assert [o["name"] for o in _outputs_of(output)] == ["stderr"]
