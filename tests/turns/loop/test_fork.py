"""A forked child: the parent's agents say what to do, and new ones work."""

import json

import pytest

from tests.support.turns import run_script

SCRIPT = """
import json, os, sys, threading
from agent_magics import Agent, Call, FatalError, ScriptedModel, tool

@tool(parallel=True)
def pooled() -> str:
    "Run on the pool."
    return "pooled"

@tool
def plain() -> str:
    "Run here."
    return "plain"

def make():
    calls = [Call("pooled"), Call("plain"), Call("shell", {"command": ["echo", "hi"]})]
    turns = [calls, "Ok."] * 2
    return Agent(
        ScriptedModel(turns), [pooled, plain, "shell"], approval="never",
        sandbox="danger-full-access",
    )

def outcome(call):
    try:
        return call()
    except FatalError as error:
        return f"FatalError: {error}"

old = make()
assert old.run_sync("Go").text == "Ok."
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    told = {
        "run": outcome(lambda: old.run_sync("Go").error),
        "again": outcome(lambda: old.run_sync("Go").error),
        "call": outcome(lambda: old.call_sync("plain").text),
        "close": outcome(old.close),
    }
    new = make()
    result = new.run_sync("Go")
    told["new"] = [call.output.splitlines()[-1] for call in result.calls]
    told["status"] = result.status
    new.close()
    os.write(writing, json.dumps(told).encode())
    os._exit(0)
os.close(writing)
told = json.loads(os.fdopen(reading).read())
os.waitpid(child, 0)
told["parent"] = old.run_sync("Go").text
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told():
    # Since 3.12 a fork of a process with threads warns; that it may be done is what is tested.
    return json.loads(run_script(SCRIPT, "-W", "ignore::DeprecationWarning"))


@pytest.mark.soak
@pytest.mark.parametrize("how", ["run", "again", "call"])
def test_the_parent_s_agent_says_to_start_a_new_one(told, how):
    assert "start a new Agent" in told[how]


def test_the_parent_s_agent_can_be_closed_in_the_child(told):
    assert told["close"] is None


def test_a_new_agent_works_in_the_child(told):
    assert told["status"] == "completed"
    assert sorted(told["new"]) == ["hi", "plain", "pooled"]


@pytest.mark.soak
def test_the_parent_goes_on(told):
    assert told["parent"] == "Ok."
