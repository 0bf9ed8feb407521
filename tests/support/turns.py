"""Shared by turn tests: an agent with a script, its person, and queries about its events."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agent_magics
from agent_magics import Agent, ScriptedModel, ToolContext, tool
from agent_magics.engine.results.run import RunResult
from agent_magics.models.base import ModelEvent, ModelRequest, TextChunk
from agent_magics.protocol.events import Event
from agent_magics.protocol.items import CALL_TYPES, ToolCallOutput

# Seconds until a test that hangs fails; nothing here waits for time.
PATIENCE = 60


def scripted(*turns: Any, tools: Any = (), approval: str = "never", **options: Any) -> Agent:
    """Return an agent whose model responds with `turns`."""
    return Agent(ScriptedModel(turns), list(tools), approval=approval, **options)


def kinds(result: RunResult) -> list[str]:
    """Return the class names of the events, in order."""
    return [type(event).__name__ for event in result.events]


def of_kind(result: RunResult, kind: type[Event]) -> list[Any]:
    """Return the events of one type, in order."""
    return [event for event in result.events if isinstance(event, kind)]


def outputs(agent: Agent) -> list[tuple[str, Any]]:
    """Return (call id, output) of the history's outputs, in order."""
    items = agent.session.conversation.history.items
    return [(item.call_id, item.output) for item in items if isinstance(item, ToolCallOutput)]


def assert_valid(agent: Agent) -> None:
    """Check that every call has exactly one output, which stands after it."""
    items = agent.session.conversation.history.items
    called = [item.call_id for item in items if isinstance(item, CALL_TYPES)]
    answered = [item.call_id for item in items if isinstance(item, ToolCallOutput)]
    assert sorted(called) == sorted(answered)
    for position, item in enumerate(items):
        if isinstance(item, ToolCallOutput):
            before = [each for each in items[:position] if isinstance(each, CALL_TYPES)]
            assert item.call_id in [each.call_id for each in before]


def sticking() -> tuple[threading.Event, Callable[..., str]]:
    """Return the tool ``stick``, which returns when its turn is stopped, and an event it sets."""
    begun = threading.Event()

    @tool(mutating=False, parallel=True)
    def stick(ctx: ToolContext) -> str:
        """Return when the turn is stopped."""
        begun.set()
        assert ctx.cancelled.wait(PATIENCE)
        return ""

    return begun, stick


class StuckModel:
    """Streams one word and then nothing, until it is stopped; later requests get an answer.

    Attributes:
        streaming: set when the word was sent.
        closed: set when the stream was closed.
    """

    source, name = "script", "stuck"

    def __init__(self, later: str = "Back again.") -> None:
        self.streaming = threading.Event()
        self.closed = threading.Event()
        self._later = ScriptedModel([later])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the word, then wait; or yield the later answer."""
        if self.streaming.is_set():
            async for event in self._later.stream(request):
                yield event
            return
        try:
            yield TextChunk("Well, ")
            self.streaming.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def close(self) -> None:
        """Do nothing: no resource is held."""


async def happened(event: threading.Event) -> None:
    """Wait for an event that another thread sets, without blocking this loop."""
    assert await asyncio.to_thread(event.wait, PATIENCE), "it did not happen"


def in_thread(function: Callable[[], Any]) -> "Background":
    """Run `function` on a thread of its own."""
    return Background(function)


class Background:
    """A thread whose result can be awaited."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the thread is stuck"
        if self._error is not None:
            raise self._error
        return self._value


def run_script(code: str, *flags: str) -> str:
    """Run `code` in an interpreter of its own and return what it prints; stderr must be empty."""
    root = str(Path(agent_magics.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@dataclass
class Reply:
    """An answer with more than its decision, as `on_question` may return it."""

    decision: str
    feedback: str = ""
    edited_text: str | None = None
    edited_arguments: object = None


class Person:
    """Answers questions in turn, the last answer again and again, and remembers the questions."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)

    def __call__(self, question: Any) -> Any:
        self.asked.append(question)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
