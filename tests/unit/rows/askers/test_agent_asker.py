"""Rows that are small agent runs: `agent.map(..., tools=...)`."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_magics import Agent, tool
from agent_magics.engine.cost import cost_of
from agent_magics.kernel.cell.mapping import progress_lines
from agent_magics.models.base import ItemDone, ResponseDone
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import AssistantMessage, FunctionCall, ToolCallOutput, Usage
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec
from agent_magics.rows.askers.agents import RowRuns
from tests.support.rows.echo import Echo
from tests.support.rows.keeping import map_keeping
from tests.support.rows.watchers import When, wait_until


class Caller:
    """A model that calls a tool with a row's text, `calls` times, and answers with the output.

    Attributes:
        requests: all requests.
    """

    name, source = "caller-1", "caller"

    def __init__(self, name, argument, calls=1, say=str):
        self._call, self._calls, self._say, self.requests = (name, argument), calls, say, []

    async def stream(self, request):
        self.requests.append(request)
        await asyncio.sleep(0)
        name, argument = self._call
        if request.number <= self._calls and request.tools:
            arguments = json.dumps({argument: request.prompt})
            yield ItemDone(FunctionCall(f"c{request.number}", name, arguments))
        else:
            items = reversed(request.history.items)
            output = next(each.output for each in items if isinstance(each, ToolCallOutput))
            yield ItemDone(AssistantMessage(self._say(output)))
        yield ResponseDone(Usage(100, 20))

    async def close(self):
        """Hold nothing."""


def written(count):
    for number in range(count):
        Path(f"{number}.txt").write_text(f"content {number}\n")
    return [f"{number}.txt" for number in range(count)]


def test_the_model_reads_with_the_tools_of_the_agent():
    model = Caller("read_file", "path")
    with Agent(model, ["coding"]) as agent:
        done = agent.map_sync("{{text}}", [*written(20), "missing.txt"], tools=True)
    answers = list(done.frame["answer"])
    assert all(f"content {number}" in answers[number] for number in range(20))
    assert "missing.txt" in answers[20]
    assert not len(done.failed) and set(done.frame["tokens"]) == {240}
    offered = {each.spec.name for each in model.requests[0].tools}
    assert "read_file" in offered and not offered & {"apply_patch", "exec_command", "shell"}
    # Each row's run has its own conversation, and the agent's has none of it.
    assert all(request.number <= 2 for request in model.requests)
    assert not agent.session.conversation.history.items


def test_functions_are_tools_too_and_answers_are_typed():
    @tool
    def length(text: str) -> str:
        """Return how long a text is."""
        return json.dumps({"value": len(text)})

    model = Caller("length", "text", say=lambda output: output)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", ["a", "bb"], tools=[length], output=int)
    assert list(done.frame["answer"]) == [1, 2]
    assert [each.spec.name for each in model.requests[0].tools] == ["length"]


def test_what_needs_a_question_is_refused_whatever_the_policy_of_the_agent(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    key = tmp_path / ".ssh" / "id_rsa"
    key.parent.mkdir()
    key.write_text("secret-4711")
    with Agent(Caller("read_file", "path"), ["coding"], approval="on-request") as agent:
        done = agent.map_sync("{{text}}", [str(key)], tools=True)
    (answer,) = done.frame["answer"]
    assert "4711" not in answer and "never" in answer


def test_a_row_that_needs_too_many_requests_is_an_error_of_its_own():
    files = written(3)
    with Agent(Caller("read_file", "path", calls=9), ["coding"]) as agent:
        done = agent.map_sync("{{text}}", files, tools=True, requests=3)
    assert done.frame["error"].str.contains("budget").all()
    assert set(done.frame["tokens"]) == {360}


def test_answers_are_kept_by_what_was_asked_and_with_which_tools(tmp_path):
    model, files = Caller("read_file", "path"), written(5)
    with Agent(model, ["coding"]) as agent:
        cache = tmp_path / "answers.sqlite"
        map_keeping(agent, "{{text}}", files, cache, tools=True)
        again = map_keeping(agent, "{{text}}", files, cache, tools=True)
        asked = len(model.requests)
        other = map_keeping(agent, "{{text}}", files, cache, tools=["read_file"])
    assert asked == 10 and again.progress.kept == 5
    assert other.progress.kept == 0 and len(model.requests) == 20


def look_up(description, unit=str):
    def look_up(text: unit) -> str:
        return text

    look_up.__doc__ = description
    return tool(mutating=False)(look_up)


@pytest.mark.parametrize(
    ("tools", "options"),
    [
        ([look_up("Looks into last year.")], {}),
        ([look_up("Looks.", unit=str | None)], {}),
        ([look_up("Looks.")], {"requests": 3}),
    ],
    ids=["another description", "another schema", "another limit"],
)
def test_other_runs_under_the_same_names_are_asked_again(tmp_path, tools, options):
    model, cache = Caller("look_up", "text"), tmp_path / "answers.sqlite"
    with Agent(model) as agent:
        map_keeping(agent, "{{text}}", ["a"], cache, tools=[look_up("Looks.")])
        same = map_keeping(agent, "{{text}}", ["a"], cache, tools=[look_up("Looks.")])
        other = map_keeping(agent, "{{text}}", ["a"], cache, tools=tools, **options)
    assert (same.progress.kept, other.progress.kept) == (1, 0)


@pytest.mark.parametrize(("name", "is_same"), [("read_file", True), ("mine", False)])
def test_another_wording_of_built_in_tools_is_the_same_question(name, is_same):
    def keys(description):
        text = {"type": "string", "description": description}
        schema = {"type": "object", "properties": {"text": text, "description": text}}
        spec = ConfiguredToolSpec(FunctionToolSpec(name, description, schema))
        config = SimpleNamespace(specs=[spec], offer=None)
        return RowRuns(config, reads_only=True, requests=3).described()

    assert (keys("Reads.") == keys("Reads a file.")) is is_same


def test_runs_that_only_read_are_others_than_those_with_the_same_tools(tmp_path):
    model, cache = Caller("look_up", "text"), tmp_path / "answers.sqlite"
    with Agent(model, [look_up("Looks.")]) as agent:
        map_keeping(agent, "{{text}}", ["a"], cache, tools=[look_up("Looks.")])
        other = map_keeping(agent, "{{text}}", ["a"], cache, tools=True)
    assert other.progress.kept == 0


def test_stop_ends_the_runs_under_way(monkeypatch):
    monkeypatch.setattr("agent_magics.rows.job.GRACE", 0.0)
    began = []

    class Never(Echo):
        async def stream(self, request):
            began.append(request)
            await asyncio.Event().wait()
            yield

    with Agent(Never(), ["coding"]) as agent:

        def stop(job):
            wait_until(lambda: len(began) == 2)
            agent.session.engine.post(job.stop)

        options = {"tools": True, "concurrency": 2}
        mapping = agent.mapping("{{text}}", ["a", "b", "c"], output=None, options=options)
        done = mapping.wait_sync(When([0], stop))
    assert done.stopped == "you stopped it" and len(done.failed) == 3 and len(began) == 2


@pytest.mark.parametrize("name", ["gpt-5.5", "caller-1"], ids=["priced", "unpriced"])
@pytest.mark.parametrize("whole", [0, 1, 3])
def test_what_a_run_has_spent_counts_where_it_is_given_up(monkeypatch, whole, name):
    """Two runs get answers to `whole` requests each, and none to the next one."""
    monkeypatch.setattr("agent_magics.rows.job.GRACE", 0.0)
    waiting = []

    class Stuck(Caller):
        async def stream(self, request):
            if request.number > whole:
                waiting.append(request)
                await asyncio.Event().wait()
            async for event in super().stream(request):
                yield event

    model = Stuck("look_up", "text", calls=9)
    model.name = name
    with Agent(model) as agent:
        options = {"tools": [look_up("Looks.")], "concurrency": 2}
        mapping = agent.mapping("{{text}}", ["a", "b", "unasked"], options=options)
        stop = When(
            [lambda job: len(waiting) == 2], lambda job: agent.session.engine.post(job.stop)
        )
        done = mapping.wait_sync(stop)
    cost = cost_of(name, Usage(100 * whole, 20 * whole)) if whole else 0.0
    assert list(done.frame["tokens"]) == [120 * whole, 120 * whole, 0]
    assert (done.usage.input_tokens, done.usage.output_tokens) == (200 * whole, 40 * whole)
    assert done.cost == (None if cost is None else pytest.approx(2 * cost))
    assert list(done.frame["error"])[:2] == ["not waited for: you stopped it"] * 2
    assert done.progress.kinds()["not waited for"].count == 2
    assert "and what 2 requests under way took, in" in done.report()


def test_a_stopped_map_says_that_it_waits_for_answers():
    began, release, said = [], asyncio.Event(), []

    class Waits(Echo):
        async def stream(self, request):
            began.append(request)
            await release.wait()
            async for event in super().stream(request):
                yield event

    with Agent(Waits(), ["coding"]) as agent:

        def stop(job):
            wait_until(lambda: len(began) == 2)
            agent.session.engine.post(job.stop)
            wait_until(lambda: job.stopped)
            said.extend(progress_lines(job)[:2])
            agent.session.engine.post(release.set)

        options = {"tools": True, "concurrency": 2}
        mapping = agent.mapping("{{text}}", ["a", "b", "c"], output=None, options=options)
        done = mapping.wait_sync(When([0], stop))
    assert said[0].startswith("0 of 3 rows, stopping, ")
    assert said[1] == "waits up to 5 seconds for 2 answers under way"
    assert len(done.failed) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"requests": 3}, "requests=3: it takes"),
        ({"tools": True, "requests": 1}, "requests=1: it takes"),
        ({"tools": True, "batch": True, "cache": "a.sqlite"}, "of which batch= knows nothing"),
        ({"tools": ["nope"]}, "nope"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options, words):
    with Agent(Echo()) as agent, pytest.raises(FatalError, match=words):
        agent.map_sync("{{text}}", ["a"], **options)
