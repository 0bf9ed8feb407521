"""Calls are understood, looked up, and answered; what does not fit is told."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.approval.grants import ApprovalStore
from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.dispatch.call import CallInProgress
from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.pipeline import ToolCallRuntime
from agent_magics.dispatch.registry import ToolRegistryBuilder
from agent_magics.dispatch.router import ToolRouter
from agent_magics.dispatch.stages.orchestrator import ToolOrchestrator
from agent_magics.dispatch.tool import offered_specs, tool
from agent_magics.protocol.config import ApprovalPolicy, RunConfig
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import CustomToolCall, FunctionCall, LocalShellCall
from agent_magics.protocol.tools import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    McpPayload,
    ToolCall,
)
from agent_magics.tools.batching import BatchCall


@tool(inline=True, parallel=True)
def read_file(path: str) -> str:
    """Read."""
    return f"read {path}"


@tool(inline=True, freeform=("lark", "start: /.+/"))
def apply_patch(patch: str) -> str:
    """Patch."""
    return f"patched {patch}"


def make_router(*functions):
    builder = ToolRegistryBuilder()
    for fn in functions:
        builder.push_spec_with_parallel_support(offered_specs(fn), fn.tool_options.parallel)
        builder.register_handler(fn.tool_options.name, FunctionToolHandler(fn))
    return ToolRouter(builder.build()[1])


def dispatch(router, call, **config):
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="a",
        config=RunConfig(cwd=Path.cwd(), approval=ApprovalPolicy.NEVER, **config),
        env={},
        emit=lambda kind, **fields: None,
        ask=None,
        call=None,
        validate_path=None,
        messages=tuple,
        main_thread=None,
    )
    runtime = ToolCallRuntime(router, turn, ToolOrchestrator(ApprovalStore()))
    return asyncio.run(runtime.dispatch(CallInProgress(call, turn)))


def function_call(name, arguments="{}"):
    return ToolCall(name, "c", FunctionPayload(arguments))


def test_items_become_calls_with_their_payload():
    router = make_router()
    assert router.build_tool_call(FunctionCall("c", "n", "{}")) == ToolCall(
        "n", "c", FunctionPayload("{}")
    )
    assert router.build_tool_call(CustomToolCall("c", "n", "text")) == ToolCall(
        "n", "c", CustomPayload("text")
    )
    assert router.build_tool_call(LocalShellCall("c", ("ls",), "/", 5)) == ToolCall(
        "local_shell", "c", LocalShellPayload(("ls",), "/", 5)
    )


def test_a_native_shell_call_without_an_id_is_told():
    with pytest.raises(RespondToModel, match="no call_id"):
        make_router().build_tool_call(LocalShellCall(None, ("ls",)))


def test_a_call_is_dispatched():
    output = dispatch(make_router(read_file), function_call("read_file", '{"path": "a"}'))
    assert (output.text, output.success) == ("read a", True)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("readfile", "read_file"),
        ("READ_FILE", "read_file"),
        ("functions.read_file", "read_file"),
        ("applypatch", "apply_patch"),
    ],
)
def test_unknown_names_are_answered_with_what_was_meant(name, nearest):
    output = dispatch(make_router(read_file, apply_patch), function_call(name))
    assert not output.success
    assert f"Did you mean {nearest}" in output.text
    assert "Available tools: apply_patch, read_file." in output.text


def test_an_unknown_name_that_is_near_to_nothing_is_answered_with_the_list():
    output = dispatch(make_router(read_file), function_call("zzz"))
    assert "Did you mean" not in output.text
    assert "Available tools: read_file." in output.text


def test_an_unknown_name_where_nothing_is_offered():
    output = dispatch(make_router(), function_call("zzz"))
    assert "no tools are offered" in output.text


@pytest.mark.parametrize(
    "payload",
    [CustomPayload("text"), LocalShellPayload(("ls",)), McpPayload("server", "tool", "{}")],
)
def test_a_wrong_payload_kind_is_answered_with_how_to_call(payload):
    output = dispatch(make_router(read_file), ToolCall("read_file", "c", payload))
    assert output.text.startswith("read_file was not run. Call read_file as a function")


@pytest.mark.parametrize(
    "payload",
    [
        CustomPayload("text"),
        FunctionPayload('{"patch": "text"}'),
        FunctionPayload('{"input": "text"}'),
    ],
)
def test_a_freeform_tool_takes_text_or_json_or_the_alias(payload):
    output = dispatch(make_router(apply_patch), ToolCall("apply_patch", "c", payload))
    assert output.text == "patched text"


def test_arguments_that_do_not_fit_are_an_output_and_no_exception():
    output = dispatch(make_router(read_file), function_call("read_file", '{"path": "a'))
    assert not output.success
    assert "cut short" in output.text


def test_a_fatal_error_goes_through():
    @tool(inline=True)
    def broken() -> None:
        """Break."""
        raise FatalError("No licence.")

    with pytest.raises(FatalError, match="No licence"):
        dispatch(make_router(broken), function_call("broken"))


def test_what_may_run_side_by_side():
    router = make_router(read_file, apply_patch)
    assert router.supports_parallel(function_call("read_file"))
    assert not router.supports_parallel(function_call("apply_patch"))
    assert router.supports_parallel(function_call("unknown"))


def test_a_name_can_be_offered_and_registered_once():
    builder = ToolRegistryBuilder()
    builder.push_spec_with_parallel_support(read_file.spec, False)
    builder.register_handler("read_file", FunctionToolHandler(read_file))
    with pytest.raises(FatalError, match="Two tools"):
        builder.push_spec_with_parallel_support(read_file.spec, False)
    with pytest.raises(FatalError, match="Two tools"):
        builder.register_handler("read_file", FunctionToolHandler(read_file))
    specs, registry = builder.build()
    assert not specs[0].supports_parallel_tool_calls
    assert registry.names == ("read_file",)
    assert registry.handler("other") is None


# -- groups --------------------------------------------------------------------------------------


@tool(group=True)
def group(calls: list[BatchCall]) -> str:
    """Make calls."""
    return ""


def written(value, at, depth=0):
    """Return a value with some of its parts as JSON text, as models write them."""
    if isinstance(value, dict):
        value = {key: written(each, at, depth + 1) for key, each in value.items()}
    elif isinstance(value, list):
        value = [written(each, at, depth + 1) for each in value]
    return json.dumps(value) if depth in at and isinstance(value, dict | list) else value


@given(
    names=st.lists(st.sampled_from(["read_file", "apply_patch", "unknown"]), max_size=3),
    at=st.sets(st.integers(1, 3)),
    twice=st.booleans(),
)
def test_a_group_shares_its_place_only_where_all_calls_that_it_makes_may(names, at, twice):
    router = make_router(read_file, apply_patch, group)
    made = {"calls": [{"tool": name, "arguments": {}} for name in names]}
    text = json.dumps(written(made, at))
    if twice:  # the last of two with the same name holds
        text = text.replace('"tool": ', '"tool": "read_file", "tool": ')
    call = function_call("group", text)
    try:
        _, bound = ArgumentBinder(group).bind_json(text)
    except RespondToModel:
        return
    made = [each.tool for each in bound["calls"]]
    is_shared = router.supports_parallel(call)
    assert not (is_shared and "apply_patch" in made)
    assert at or is_shared == ("apply_patch" not in names)


@pytest.mark.parametrize("calls", ["null", "5", '"x"', "[5]", "[null]", '[{"tool": 5}]', "[{}]"])
def test_a_group_that_is_written_otherwise_runs_alone(calls):
    router = make_router(read_file, apply_patch, group)
    assert not router.supports_parallel(function_call("group", f'{{"calls": {calls}}}'))
    assert not router.supports_parallel(function_call("group", calls))
