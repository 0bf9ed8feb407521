"""The `apply_patch` tool: by hand, called by a model, and what it says it would do."""

import asyncio
import inspect
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_magics import Agent
from agent_magics.approval.actions import Action, ActionKind
from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.tool import offered_specs
from agent_magics.files.paths import resolve_path
from agent_magics.patch.grammar import PATCH_GRAMMAR
from agent_magics.protocol.config import RunConfig, SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import PatchApplyBegin, PatchApplyEnd
from agent_magics.protocol.tools import CustomPayload, FunctionPayload, ToolCall, ToolPayload
from agent_magics.tools.files.patch import apply_patch, assess_patch
from tests.support.contexts import in_turn

ADD = "*** Begin Patch\n*** Add File: n.txt\n+one\n*** End Patch\n"


def context(cwd: Path, events: list[Any], **config: Any) -> ToolContext:
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="default",
        config=RunConfig(cwd=cwd, **config),
        env={},
        emit=lambda kind, **fields: events.append(kind(**fields)),
        ask=None,
        call=None,
        validate_path=lambda path, mode: resolve_path(path, cwd),
        messages=tuple,
        main_thread=None,
    )
    return ToolContext(turn, "c1", "apply_patch")


def assess(cwd: Path, *paths: str, **config: Any) -> list[Action]:
    body = "".join(f"*** Delete File: {path}\n" for path in paths)
    arguments = {"patch": f"*** Begin Patch\n{body}*** End Patch\n"}
    return assess_patch(arguments, context(cwd, [], **config))


def test_by_hand_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    result = apply_patch(ADD)
    assert (tmp_path / "n.txt").read_bytes() == b"one\n"
    assert repr(result) == "Success. Updated the following files:\nA n.txt\n"
    assert result.diff == "--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+one\n"


def test_by_hand_follows_links(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").write_bytes(b"1\n")
    (tmp_path / "link").symlink_to("real")
    apply_patch("*** Begin Patch\n*** Update File: link\n-1\n+2\n*** End Patch")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"2\n"


def test_called_by_a_model_tells_before_and_after(tmp_path: Path) -> None:
    events: list[Any] = []
    result = apply_patch(ADD, ctx=context(tmp_path, events))
    assert (tmp_path / "n.txt").read_bytes() == b"one\n"
    assert events == [
        PatchApplyBegin(call_id="c1", paths=("n.txt",)),
        PatchApplyEnd(call_id="c1", success=True, diff=result.diff),
    ]
    output = result.to_output(10_000)
    assert output.content == "Success. Updated the following files:\nA n.txt\n"
    assert output.details == {"diff": result.diff}


def test_failed_write_is_told(tmp_path: Path) -> None:
    events: list[Any] = []
    text = ADD.replace("*** End", "*** Add File: n.txt/below\n+1\n*** End")
    with pytest.raises(RespondToModel, match=r"n\.txt is a directory"):
        apply_patch(text, ctx=context(tmp_path, events))
    assert events[1:] == [PatchApplyEnd(call_id="c1", success=False)]
    assert list(tmp_path.iterdir()) == []


def test_patch_that_does_not_fit_is_no_event(tmp_path: Path) -> None:
    events: list[Any] = []
    with pytest.raises(RespondToModel, match="no such file"):
        apply_patch(
            "*** Begin Patch\n*** Delete File: n\n*** End Patch", ctx=context(tmp_path, events)
        )
    assert events == []


def test_interrupted_turn_writes_nothing(tmp_path: Path) -> None:
    ctx = context(tmp_path, [])
    ctx.cancelled.set()
    with pytest.raises(RespondToModel, match="interrupted"):
        apply_patch(ADD, ctx=ctx)
    assert list(tmp_path.iterdir()) == []


def test_path_that_may_not_be_touched_stops_all(tmp_path: Path) -> None:
    ctx = context(tmp_path, [])

    def validate_path(path: str, mode: str) -> Path:
        if path == "n.txt" and mode == "write":
            raise RespondToModel("n.txt may not be written")
        return tmp_path / path

    ctx = in_turn(ctx, validate_path=validate_path)
    with pytest.raises(RespondToModel, match=r"n\.txt may not be written"):
        apply_patch(ADD.replace("*** Add", "*** Add File: m\n+1\n*** Add", 1), ctx=ctx)
    assert list(tmp_path.iterdir()) == []


def test_assess_names_every_path_of_every_operation(tmp_path: Path) -> None:
    text = (
        "*** Begin Patch\n*** Add File: a/n\n+1\n*** Update File: b\n*** Move to: ../out\n"
        "*** Delete File: d\n*** End Patch"
    )
    cwd = tmp_path / "work"
    cwd.mkdir()
    out = tmp_path / "out"
    actions = assess_patch({"patch": text}, context(cwd, []))
    blank = {"fingerprint": "", "identity": "", "subject": None, "written": "", "family": ""}
    assert [action.subject for action in actions] == [
        *(f"{cwd}/a/n", f"{cwd}/b", str(out), f"{cwd}/d"),
    ]
    assert [replace(action, **blank) for action in actions] == [
        Action(ActionKind.WRITE_INSIDE, "a/n"),
        Action(ActionKind.WRITE_INSIDE, "b"),
        Action(ActionKind.WRITE_OUTSIDE, str(out), "outside the workspace"),
        Action(ActionKind.WRITE_INSIDE, "d"),
    ]
    assert len({action.fingerprint for action in actions}) == 4
    assert list(tmp_path.iterdir()) == [cwd]


def test_always_is_bound_to_the_patch_s_text_and_where_it_leads(tmp_path: Path) -> None:
    def fingerprint(**arguments: str) -> str:
        (action,) = assess_patch(arguments, context(tmp_path, []))
        return action.fingerprint

    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    (tmp_path / "d").symlink_to("x")
    text = ADD.replace("n.txt", "d/n.txt")
    first = fingerprint(patch=text)
    assert first == fingerprint(patch=text)
    others = [
        fingerprint(patch=text.replace("+one", "+two")),
        fingerprint(file_path="d/n.txt", original_content="", updated_content="one\n"),
        fingerprint(file_path="d/n.txt", original_content="", updated_content="two\n"),
    ]
    (tmp_path / "d").unlink()
    (tmp_path / "d").symlink_to("y")
    others.append(fingerprint(patch=text))
    assert len({first, *others}) == 5


@pytest.mark.parametrize("path", [".git/config", "gitdata/config", "sub/.git/config", "g/config"])
def test_assess_knows_git_s_folder_behind_a_link_and_by_its_link(path: str, tmp_path: Path) -> None:
    (tmp_path / "gitdata").mkdir()
    (tmp_path / ".git").symlink_to("gitdata")
    (tmp_path / "g").symlink_to(".git")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.git").symlink_to("../other")
    (action,) = assess(tmp_path, path)
    assert (action.kind, action.reason) == (
        ActionKind.WRITE_OUTSIDE,
        "protected: git's own folder",
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".git/config", "protected: git's own folder"),
        ("sub/.git/hooks/pre-commit", "protected: git's own folder"),
        (".agent_magics/rules.toml", "protected: the project's agent settings"),
        ("/etc/passwd", "outside the workspace"),
        ("../x", "outside the workspace"),
        ("link/x", "outside the workspace"),
    ],
)
def test_assess_of_what_is_outside_or_protected(path: str, reason: str, tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    (cwd / "link").symlink_to(tmp_path)
    (action,) = assess(cwd, path)
    assert (action.kind, action.reason) == (ActionKind.WRITE_OUTSIDE, reason)


@pytest.mark.parametrize("operation", ["*** Delete File: l", "*** Update File: l\n*** Move to: m"])
@pytest.mark.parametrize("target", ["/etc/hostname", "../x", "nowhere", "l", "file", "."])
def test_an_operation_on_a_link_is_judged_by_where_the_link_stands(
    operation: str, target: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x\n", encoding="utf-8")
    (tmp_path / "l").symlink_to(target)
    text = f"*** Begin Patch\n{operation}\n*** End Patch"
    with Agent(tools=["apply_patch"], cwd=tmp_path, approval="never") as agent:
        output = agent.call_sync("apply_patch", {"patch": text})
    assert output.success, output.text
    assert not os.path.lexists(tmp_path / "l")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x\n"


def test_assess_knows_the_writable_roots(tmp_path: Path) -> None:
    cwd, extra = tmp_path / "work", tmp_path / "extra"
    cwd.mkdir()
    extra.mkdir()
    (action,) = assess(cwd, "../extra/x", writable_roots=(extra,))
    assert (action.kind, action.target) == (ActionKind.WRITE_INSIDE, str(extra / "x"))


def test_assess_under_the_read_only_policy(tmp_path: Path) -> None:
    actions = assess(tmp_path, "a", "/b", sandbox=SandboxPolicy.READ_ONLY)
    assert [(action.kind, action.reason) for action in actions] == [
        (ActionKind.WRITE_OUTSIDE, "the sandbox policy is read-only")
    ] * 2


def test_assess_refuses_what_is_no_patch(tmp_path: Path) -> None:
    with pytest.raises(RespondToModel, match="line 1 of the patch"):
        assess_patch({"patch": "rm -rf /"}, context(tmp_path, []))


def test_spec_offers_the_grammar_and_shows_the_format() -> None:
    spec = offered_specs(apply_patch)
    assert (spec.kind, spec.syntax, spec.definition) == ("freeform", "lark", PATCH_GRAMMAR)
    assert "\n*** Update File: src/app.py\n" in spec.description
    properties = apply_patch.spec.parameters["properties"]
    assert list(properties) == ["patch", "file_path", "original_content", "updated_content"]
    assert all(described.get("description") for described in properties.values())


def test_example_of_the_description_is_a_patch(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/app.py").write_bytes(b'def greet(name):\n    print("Hi")\n    return True\n')
    (tmp_path / "old.txt").write_bytes(b"")
    doc = inspect.getdoc(apply_patch) or ""
    example = re.search(r"\*\*\* Begin Patch\n.*?\n\*\*\* End Patch", doc, re.DOTALL)
    assert example is not None
    apply_patch(example[0])
    assert (tmp_path / "src/app.py").read_bytes() == (
        b'def greet(name):\n    print(f"Hi {name}")\n    return True\n'
    )


# -- one text in place of another ----------------------------------------------------------------


def call(payload: ToolPayload, ctx: ToolContext) -> tuple[list[Action], str]:
    """Take a call the way of the engine: arguments, assessment, run."""
    handler = FunctionToolHandler(apply_patch)
    invocation = handler.prepare(ToolCall("c1", "apply_patch", payload), ctx)
    actions = handler.assess(invocation)
    return actions, asyncio.run(handler.handle(invocation)).content


def replacing(path: str, old: str, new: str) -> FunctionPayload:
    named = {"file_path": path, "original_content": old, "updated_content": new}
    return FunctionPayload(json.dumps(named))


@pytest.mark.parametrize(
    "payload",
    [
        CustomPayload(ADD),
        FunctionPayload(json.dumps({"patch": ADD})),
        FunctionPayload(json.dumps({"input": ADD})),
        FunctionPayload(json.dumps({"patch": ADD, "file_path": None, "original_content": ""})),
        replacing("n.txt", "", "one\n"),
    ],
)
def test_every_form_goes_the_same_way(payload: ToolPayload, tmp_path: Path) -> None:
    actions, answer = call(payload, context(tmp_path, []))
    assert [(action.kind, action.target) for action in actions] == [
        (ActionKind.WRITE_INSIDE, "n.txt")
    ]
    assert answer == "Success. Updated the following files:\nA n.txt\n"
    assert (tmp_path / "n.txt").read_bytes() == b"one\n"


def test_a_text_is_replaced_with_events_and_a_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\n2\n3\n")
    events: list[Any] = []
    _, answer = call(replacing("a.txt", "2", "two"), context(tmp_path, events))
    assert answer == "Success. Updated the following files:\nM a.txt\n"
    assert (tmp_path / "a.txt").read_bytes() == b"1\ntwo\n3\n"
    assert events[1].diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"


def test_replacing_outside_is_assessed_as_such(tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    arguments = {"file_path": "../x", "original_content": "", "updated_content": "1"}
    (action,) = assess_patch(arguments, context(cwd, []))
    assert (action.kind, action.reason) == (ActionKind.WRITE_OUTSIDE, "outside the workspace")


@pytest.mark.parametrize(
    ("path", "old", "why"),
    [
        ("a.txt", "5", "a.txt: original_content was not found"),
        ("a.txt", "1", "a.txt: original_content stands in several places of it, at lines 1, 3"),
        ("a.txt", "", "a.txt: it is there already"),
        ("b.txt", "1", "b.txt cannot be updated: there is no such file; beside it there is a.txt"),
    ],
)
def test_a_text_that_does_not_fit_changes_nothing(
    path: str, old: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\n2\n1\n")
    with pytest.raises(RespondToModel, match=why):
        call(replacing(path, old, "x"), context(tmp_path, []))
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.txt", b"1\n2\n1\n")]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"patch": ADD, "file_path": "a"},
        {"patch": ADD, "original_content": "a"},
        {"patch": ADD, "updated_content": "a"},
        {"original_content": "a", "updated_content": "b"},
    ],
)
def test_mixtures_of_the_forms_are_refused(arguments: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(RespondToModel, match="either patch alone, or file_path with"):
        assess_patch(arguments, context(tmp_path, []))
    with pytest.raises(RespondToModel, match="either patch alone, or file_path with"):
        apply_patch(**arguments)


# -- what changes between the check and the run --------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"patch": "*** Begin Patch\n*** Update File: d/f\n-1\n+2\n*** End Patch"},
        {"patch": "*** Begin Patch\n*** Delete File: d/f\n*** End Patch"},
        {"patch": "*** Begin Patch\n*** Update File: g\n*** Move to: d/new\n*** End Patch"},
        {"file_path": "d/f", "original_content": "1", "updated_content": "2"},
        {"file_path": "d/f", "original_content": "guess", "updated_content": ""},
    ],
)
@pytest.mark.parametrize("target", ["../outside", "elsewhere"])
def test_a_link_put_there_after_the_check_leads_nowhere(
    arguments: dict[str, str], target: str, tmp_path: Path
) -> None:
    cwd = tmp_path / "work"
    for folder in ("d", "elsewhere", "../outside"):
        (cwd / folder).mkdir(parents=True)
        (cwd / folder / "f").write_bytes(b"1\n")
    (cwd / "g").write_bytes(b"1\n")
    ctx = context(cwd, [])
    assess_patch(arguments, ctx)
    (cwd / "d").rename(cwd / "old")
    (cwd / "d").symlink_to(target)
    with pytest.raises(RespondToModel, match=r"leads to .* now and did not"):
        apply_patch(**arguments, ctx=ctx)
    assert all(path.read_bytes() == b"1\n" for path in tmp_path.rglob("*") if path.is_file())
    assert not (tmp_path / "outside/new").exists()


def test_a_check_is_for_one_call_and_each_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n")
    (tmp_path / "b").write_bytes(b"1\n")
    text = "*** Begin Patch\n*** Delete File: b\n*** Update File: a\n-1\n+2\n*** End Patch"
    ctx = context(tmp_path, [])
    assess_patch({"patch": text}, ctx)
    with pytest.raises(RespondToModel, match="was checked"):
        apply_patch(ADD, ctx=ctx)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "a").symlink_to("b")
    with pytest.raises(RespondToModel, match="a leads to b now"):
        apply_patch(text, ctx=ctx)
    (tmp_path / "a").unlink()
    (tmp_path / "c").rename(tmp_path / "a")
    apply_patch(text, ctx=ctx)
    assert (tmp_path / "a").read_bytes() == b"2\n"
