"""Arguments in other words than a tool's own are taken where they can mean but one thing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics import Agent, tool
from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.protocol.errors import FatalError, RespondToModel

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch"


@pytest.mark.parametrize(
    "arguments",
    [
        {"patch": PATCH},
        {"input": PATCH},
        {"file_path": "new.txt", "original_content": "", "updated_content": "x\n"},
    ],
)
def test_a_patch_comes_under_either_name(tmp_path, arguments):
    with Agent(tools=["apply_patch"], cwd=tmp_path) as agent:
        assert agent.call_sync("apply_patch", arguments).success
        assert (tmp_path / "new.txt").read_text(encoding="utf-8") == "x\n"
        (tmp_path / "new.txt").unlink()
        as_text = agent.call_sync("apply_patch", json.dumps(arguments))
        assert as_text.success, as_text.text
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == "x\n"


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": [{"id": "1", "description": "do it", "status": "pending"}]},
        {"plan": [{"step": "do it", "status": "pending"}]},
        {"plan": [{"step": "do it", "status": "in_progress"}], "explanation": "because"},
        {"todos": [{"content": "do it", "status": "completed"}]},
        {"plan": json.dumps([{"id": "1", "description": "do it", "status": "pending"}])},
        {"plan": json.dumps([{"step": "do it", "status": "pending"}])},
        {"steps": json.dumps([{"content": "do it", "status": "pending"}])},
    ],
)
def test_a_plan_comes_in_the_words_of_other_agents(arguments):
    with Agent(tools=["update_plan"]) as agent:
        output = agent.call_sync("update_plan", arguments)
    assert output.success, output.text
    assert output.text.startswith("Plan updated")


def take(
    names: list[str],
    numbers: dict[str, list[int]] | None = None,
    text: str = "",
    either: str | list[str] = "",
) -> Any:
    """Take them."""
    return names, numbers, text, either


@given(st.lists(st.text()), st.dictionaries(st.text(), st.lists(st.integers())), st.text())
def test_a_list_or_object_may_come_as_a_text_of_json(names, numbers, text):
    plain = {"names": names, "numbers": numbers, "text": text, "either": json.dumps(names)}
    as_texts = {**plain, "names": json.dumps(names), "numbers": json.dumps(numbers)}
    binder = ArgumentBinder(take)
    assert binder.bind_json(json.dumps(as_texts)) == binder.bind_json(json.dumps(plain))
    assert binder.bind(as_texts) == binder.bind(plain)
    assert binder.bind(plain)[1]["either"] == json.dumps(names)  # a text stays one


def test_a_text_that_is_no_list_is_told_as_it_was():
    for wrong in ("a", "[1,", '{"a": 1}', "[[1]]"):
        with pytest.raises(RespondToModel, match="names") as told:
            ArgumentBinder(take).bind_json(json.dumps({"names": wrong}))
        assert "expected" in str(told.value)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("mutatin", r"did you mean mutating\?"),
        ("own", "there are: name, parallel"),
        ("descripton", "there are: name, parallel"),
    ],
)
def test_an_unknown_option_is_one_sentence(option, hint):
    with pytest.raises(FatalError, match=f"@tool has no option '{option}'; {hint}"):
        tool(**{option: True})(lambda x: x)


def test_whether_a_call_changes_something_may_depend_on_its_arguments():
    @tool(mutating=lambda arguments: arguments["write"])
    def act(write: bool) -> str:
        """Act."""
        return "done"

    @tool(mutating=lambda arguments: 1 / 0)
    def broken() -> str:
        """Act."""
        return "done"

    asked = []

    def on_question(question):
        asked.append(question.tool)
        return "deny"

    options = {"approval": "untrusted", "on_question": on_question}
    with Agent(tools=[act, broken], **options) as agent:
        assert agent.call_sync("act", {"write": False}).text == "done"
        assert asked == []
        assert not agent.call_sync("act", {"write": True}).success
        assert not agent.call_sync("broken", {}).success
    assert asked == ["act", "broken"]
