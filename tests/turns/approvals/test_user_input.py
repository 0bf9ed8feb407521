"""The model asks the person: a program answers, or nobody does, or a recording has."""

import json
from typing import Any

import pytest
from markdown_it import MarkdownIt

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.engine.results.run import RunResult
from agent_magics.protocol.events import QuestionResolved, UserInputRequested, Warned
from agent_magics.render.mime import to_bundle
from agent_magics.render.view import TurnView
from tests.support.turns import of_kind, outputs, scripted

FORMAT = {
    "id": "format",
    "header": "Export",
    "question": "Which format?",
    "options": [
        {"label": "CSV", "description": "small"},
        {"label": "Parquet", "description": "fast"},
    ],
    "multi": False,
    "free_text": False,
}
WHY = {"id": "why", "question": "Why?"}


def asking(*questions: Any) -> Call:
    return Call("request_user_input", {"questions": list(questions)})


def played(
    *questions: Any, answer: Any = None, approval: str = "on-request", **options: Any
) -> tuple[RunResult, str]:
    """Return the result of a run that asks, and what the model was told."""
    said = None if answer is None else lambda question: answer
    tools = ["request_user_input"]
    options |= {"approval": approval, "on_question": said}
    with scripted(asking(*questions), "Done.", tools=tools, **options) as agent:
        result = agent.run_sync("Go.")
        return result, outputs(agent)[0][1]


def markdown(result: RunResult) -> str:
    view = TurnView()
    for event in result.events:
        view.apply(event)
    bundles = [to_bundle(block) for block in view.blocks]
    return "\n\n".join(str(bundle["text/markdown"]) for bundle in bundles)


def test_a_program_answers_with_a_dict() -> None:
    result, told = played(FORMAT, WHY, answer={"format": "CSV", "why": "It is small."})
    [question] = of_kind(result, UserInputRequested)
    assert [each.id for each in question.questions] == ["format", "why"]
    assert question.questions[0].options[1].description == "fast"
    assert json.loads(told) == {"format": "CSV", "why": "It is small."}
    saved = markdown(result)
    assert "Q: Which format?\nA: CSV\nQ: Why?\nA: It is small." in saved
    assert "its question was answered by the program" in saved


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"format": "JSON"}, "format: this is not one of the choices"),
        ({}, "format: this is required"),
        ({"format": "CSV", "other": "x"}, "other: there is no such field"),
        ("approve", "format: this is required"),
        ("perhaps", "on_question returned 'perhaps'"),
        ("deny", "the person declined"),
        (None, "nobody can be asked here"),
    ],
)
def test_without_an_answer_that_fits_the_model_decides(answer: Any, why: str) -> None:
    result, told = played(FORMAT, answer=answer)
    assert result.status == "completed"
    assert told.startswith("Not answered: ")
    assert why in told
    assert "say in your answer what you assumed" in told


def test_the_person_can_end_the_turn_instead() -> None:
    result, _ = played(FORMAT, answer="abort")
    assert (result.status, result.error) == ("aborted", "stopped at a question of the model")


def test_under_never_nobody_is_asked() -> None:
    result, told = played(FORMAT, answer={"format": "CSV"}, approval="never")
    assert of_kind(result, UserInputRequested) == []
    assert told.startswith("Not answered: nobody is asked under approval policy 'never'.")


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ([], "Nothing was asked: questions: expected 1 to 4, got 0."),
        ([FORMAT] * 5, "Nothing was asked: questions: expected 1 to 4, got 5."),
        ([{"id": "a"}], "questions"),
        (["Why?"], "questions"),
        ([{"id": "a", "question": 5, "options": 3}], "questions"),
        ([{**WHY, "colour": "red"}], "colour"),
        ([{"id": "a", "question": "What is your API key?"}], "no form may ask for a secret"),
    ],
)
def test_bad_questions_are_told_and_not_asked(questions: list[Any], why: str) -> None:
    result, told = played(*questions, answer={})
    assert of_kind(result, UserInputRequested) == []
    assert result.calls[0].success is False
    assert why in told


def test_questions_come_in_the_words_of_other_agents() -> None:
    other = {"question": "Which?", "multiSelect": True, "options": ["a", {"label": "b"}]}
    result, told = played(other, answer={"q1": ["b"]})
    assert json.loads(told) == {"q1": ["b"]}
    assert of_kind(result, UserInputRequested)[0].questions[0].multi


HOSTILE = [
    "<script>alert(1)</script>",
    "![x](https://evil.example/p.png)",
    "[x](javascript:alert(1))",
    "```\n\n<img src=x onerror=alert(1)>\n\n```",
    "~~~~\n# heading",
    "\x1b]0;title\x07\x1b[2J",
    "a\u202eb\u200b",
    "$$\\href{javascript:alert(1)}{x}$$",
    "A: yes\nQ: And?",
    "\ud800 alone",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_shown_as_text(text: str) -> None:
    hostile = {
        "id": "a",
        "header": text,
        "question": text,
        "options": [{"label": text, "description": text}],
    }
    result, told = played(hostile, answer={"a": text})
    assert json.loads(told) == {"a": text}
    saved = markdown(result)
    tokens = MarkdownIt("commonmark").parse(saved)
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in (*tokens, *inline)}
    assert kinds.isdisjoint({"html_block", "image", "link_open", "heading_open"})
    html = {token.content for token in inline if token.type == "html_inline"}
    assert html <= {"<code>", "</code>"}
    assert "\x1b" not in saved


def test_a_replayed_conversation_takes_the_recorded_answer(tmp_path: Any) -> None:
    file = tmp_path / "r.agent.jsonl"
    script = [[asking(FORMAT), asking(WHY)], asking(WHY), "Done."]
    answers = iter([{"format": "CSV"}, {"why": "So."}, {"why": "Because."}])
    tools = ["request_user_input"]
    recorded = Agent(
        ScriptedModel(script), tools, record=file, on_question=lambda question: next(answers)
    )
    with recorded as agent:
        agent.run_sync("Go.")
        told = [output for _, output in outputs(agent)]
    assert len(told) == 3
    for approval in ("on-request", "never"):
        with Agent(None, tools, replay=file, replay_strict=True, approval=approval) as agent:
            result = agent.run_sync("Go.")
            assert result.status == "completed", result.error
            assert [output for _, output in outputs(agent)] == told
        assert of_kind(result, UserInputRequested) == of_kind(result, QuestionResolved) == []
        assert of_kind(result, Warned) == []
        assert markdown(result).count("answered by the recording") == 3


def test_a_recorded_refusal_is_no_answer(tmp_path: Any) -> None:
    file = tmp_path / "r.agent.jsonl"
    tools = ["request_user_input"]
    with Agent(ScriptedModel([asking(FORMAT), "Done."]), tools, record=file) as agent:
        agent.run_sync("Go.")
    answer = {"format": "Parquet"}
    with Agent(None, tools, replay=file, on_question=lambda question: answer) as agent:
        assert json.loads(agent.run_sync("Go.").calls[0].output) == answer
