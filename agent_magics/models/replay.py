"""The doors without a provider: play a recording instead of asking, or make one while asking."""

import asyncio
import difflib
import itertools
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from agent_magics._version import __version__
from agent_magics.models.base import (
    ItemDone,
    ModelEvent,
    ModelRequest,
    Notice,
    ReasoningChunk,
    ResponseDone,
    TextChunk,
)
from agent_magics.models.recording import (
    Exchange,
    Header,
    Replacements,
    append_exchange,
    canonical_sse,
    exchange_json,
    hide_paths,
    normalise_text,
    personal_paths,
    read_recording,
    session_names,
    show_paths,
    start_recording,
)
from agent_magics.models.responses import WAYS_OUT, decode_stream
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    text_of,
)

TurnExchanges: TypeAlias = dict[int, Exchange]

MODEL_ITEMS = (AssistantMessage, Reasoning, *CALL_TYPES)


class ReplayModel:
    """Plays a recording: the model's side only, tools run for real.

    An exchange is found by its prompt and its number within the turn. A prompt that was recorded
    several times is played in the order of the file, and from the start again after the last.

    Args:
        path: the recording.
        cwd: what the placeholder {cwd} stands for.
        strict: whether tool outputs that differ from the recorded ones are an error.
        delay: seconds before each event, to show a stream as it looked.
    """

    def __init__(
        self, path: str | Path, *, cwd: Path, strict: bool = False, delay: float = 0.0
    ) -> None:
        self.path = Path(path)
        self.source = f"recording {self.path.name}"
        recording = read_recording(self.path)
        self.header = recording.header
        self._paths = personal_paths(cwd)
        self._places = {"cwd": os.path.abspath(cwd), **_own_places()}
        self._strict = strict
        self._delay = delay
        self._turns = _turns_by_prompt(recording.exchanges)
        self._plays = {prompt: itertools.cycle(turns) for prompt, turns in self._turns.items()}
        self._current: dict[tuple[str, str], TurnExchanges] = {}
        self._call_numbers = itertools.count(1)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Play the answer to `request`; see `Model.stream`.

        Raises:
            FatalError: the prompt is not in the recording, or outputs differ and `strict` is on.
        """
        exchange = self._find(request)
        sessions = _sessions_of(request)
        drift = self._drift(exchange, request, sessions)
        if drift and self._strict:
            raise FatalError(drift)
        if drift:
            yield Notice(drift)
        places = self._places | {name: session_id for session_id, name in sessions.items()}
        async with aclosing(decode_stream(self._play(exchange))) as events:
            async for event in events:
                yield self._localise(event, places)

    async def close(self) -> None:
        """Nothing is held."""

    async def _play(self, exchange: Exchange) -> AsyncGenerator[bytes, None]:
        sse = exchange.sse.encode("utf-8")
        if not self._delay:
            yield sse
            return
        for event in sse.split(b"\n\n"):
            await asyncio.sleep(self._delay)
            yield event + b"\n\n"

    # -- finding --------------------------------------------------------------------------------

    def _find(self, request: ModelRequest) -> Exchange:
        prompt = _prompt_key(hide_paths(request.prompt, self._paths))
        if prompt not in self._turns:
            raise FatalError(self._unknown_prompt(prompt))
        key = (request.conversation, prompt)
        if request.number == 1 or key not in self._current:
            self._current[key] = next(self._plays[prompt])
        exchange = self._current[key].get(request.number)
        if exchange is None:
            count = len(self._current[key])
            raise FatalError(
                f"The recording {self.path} has {count} answers to {_short(prompt)}, and this "
                f"run asks for answer {request.number}. To go on without it, {WAYS_OUT}."
            )
        return exchange

    def _unknown_prompt(self, prompt: str) -> str:
        nearest = difflib.get_close_matches(prompt, self._turns, n=1, cutoff=0.0)
        hint = f"the nearest it has is {_short(nearest[0])}" if nearest else "it has no prompts"
        return (
            f"The prompt {_short(prompt)} is not in the recording {self.path}; {hint}. "
            f"Restore the recorded prompt, or {WAYS_OUT}."
        )

    # -- what differs -----------------------------------------------------------------------------

    def _drift(self, exchange: Exchange, request: ModelRequest, sessions: Mapping[str, str]) -> str:
        """Return what is different about the tool outputs that were sent, or ""."""
        if exchange.outputs is None:
            return ""
        sent = sent_outputs(request.history.items)
        recorded = [normalise_text(output, self._paths) for output in exchange.outputs]
        if len(sent) != len(recorded):
            return (
                f"This run differs from the recording {self.path.name}: before answer "
                f"{exchange.number} it sent {len(sent)} tool outputs, recorded are {len(recorded)}."
            )
        for output, expected in zip(sent, recorded, strict=True):
            actual = normalise_text(text_of(output.output), [*self._paths, *sessions.items()])
            if actual != expected:
                call = _name_of_call(output, request.history.items)
                return (
                    f"The output of {call} differs from the recording {self.path.name}:\n"
                    + _short_diff(expected, actual)
                )
        return ""

    # -- making it this machine's -----------------------------------------------------------------

    def _localise(self, event: ModelEvent, places: Mapping[str, str]) -> ModelEvent:
        """Put this machine's paths in, and number calls so that no two have the same id."""
        match event:
            case TextChunk(text):
                return TextChunk(show_paths(text, places))
            case ReasoningChunk(text):
                return ReasoningChunk(show_paths(text, places))
            case ItemDone(item):
                return ItemDone(self._localise_item(item, places))
        return event

    def _localise_item(self, item: Item, places: Mapping[str, str]) -> Item:
        match item:
            case AssistantMessage(text):
                return replace(item, text=show_paths(text, places))
            case FunctionCall(arguments=arguments):
                escaped = {name: _inside_json(path) for name, path in places.items()}
                arguments = show_paths(arguments, escaped)
                return replace(item, call_id=self._next_call_id(), arguments=arguments)
            case CustomToolCall(input=text):
                text = show_paths(text, places)
                return replace(item, call_id=self._next_call_id(), input=text)
            case LocalShellCall(command=command, workdir=workdir):
                command = tuple(show_paths(word, places) for word in command)
                workdir = workdir and show_paths(workdir, places)
                call_id = self._next_call_id()
                return replace(item, call_id=call_id, command=command, workdir=workdir)
        return item

    def _next_call_id(self) -> str:
        return f"call_{next(self._call_numbers)}"


def _own_places() -> dict[str, str]:
    return {"home": os.path.expanduser("~"), "tmp": os.path.realpath(tempfile.gettempdir())}


def _turns_by_prompt(exchanges: Iterable[Exchange]) -> dict[str, list[TurnExchanges]]:
    """Group exchanges into turns; number 1 begins a new one."""
    turns: dict[str, list[TurnExchanges]] = {}
    for exchange in exchanges:
        of_prompt = turns.setdefault(_prompt_key(exchange.prompt), [])
        if exchange.number == 1 or not of_prompt:
            of_prompt.append({})
        of_prompt[-1][exchange.number] = exchange
    return turns


def _prompt_key(prompt: str) -> str:
    return " ".join(prompt.split())


def sent_outputs(items: Sequence[Item]) -> list[ToolCallOutput]:
    """Return the tool outputs that came after the model's last word, oldest first."""
    newer = itertools.takewhile(lambda item: not isinstance(item, MODEL_ITEMS), reversed(items))
    return [item for item in newer if isinstance(item, ToolCallOutput)][::-1]


def _sessions_of(request: ModelRequest) -> dict[str, str]:
    """Return the conversation's command sessions: id -> name of the placeholder."""
    outputs = (item for item in request.history.items if isinstance(item, ToolCallOutput))
    return session_names(text_of(output.output) for output in outputs)


def _name_of_call(output: ToolCallOutput, items: Sequence[Item]) -> str:
    for item in reversed(items):
        if isinstance(item, CALL_TYPES) and item.call_id == output.call_id:
            name = "local_shell" if isinstance(item, LocalShellCall) else item.name
            return f"`{name}` ({output.call_id})"
    return output.call_id


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")


def _short_diff(expected: str, actual: str) -> str:
    """The first lines that differ, "-" as recorded, "+" as now."""
    diff = difflib.unified_diff(expected.splitlines(), actual.splitlines(), n=0, lineterm="")
    changes = [line[:120] for line in diff if not line.startswith(("---", "+++", "@@"))]
    return "\n".join([*changes[:6], *(["…"] if len(changes) > 6 else [])])


def _inside_json(path: str) -> str:
    return json.dumps(path, ensure_ascii=False)[1:-1]


# -- recording ------------------------------------------------------------------------------------


class ByteModel(Protocol):
    """A door that shows its answers as the provider's SSE bytes."""

    source: str

    def stream_bytes(self, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Send `request` and yield the answer as it comes."""
        ...

    def secrets(self) -> tuple[str, ...]:
        """What must not be written anywhere."""
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


class RecordingModel:
    """Asks `live` and writes every whole exchange to `path`, after what is there already.

    Args:
        live: the door that answers.
        path: the recording; begun where it does not exist.
        cwd: the folder that is written as {cwd}.
        note: words for the header of a new file.
    """

    def __init__(self, live: ByteModel, path: str | Path, *, cwd: Path, note: str = "") -> None:
        self._live = live
        self._path = Path(path)
        self._paths = personal_paths(cwd)
        self._note = note
        self._started = False
        self.source = f"{live.source}, recorded to {self._path.name}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send `request` through the live door; see `Model.stream`.

        Raises:
            FatalError: what `live` raises, or the file cannot be written.
        """
        if not self._started:
            by = f"agent-magics {__version__}"
            start_recording(self._path, Header(by, request.model, self._note))
            self._started = True
        received: list[bytes] = []
        outputs = [text_of(output.output) for output in sent_outputs(request.history.items)]
        hidden = [*self._paths, *_sessions_of(request).items()]
        chunks = _tee(self._live.stream_bytes(request), received)
        async with aclosing(decode_stream(chunks)) as events:
            async for event in events:
                if isinstance(event, ResponseDone):
                    self._write(request, outputs, b"".join(received), hidden)
                yield event

    async def close(self) -> None:
        """Close the live door."""
        await self._live.close()

    def _write(
        self, request: ModelRequest, outputs: Sequence[str], sse: bytes, hidden: Replacements
    ) -> None:
        exchange = Exchange(
            hide_paths(request.prompt, self._paths),
            request.number,
            tuple(normalise_text(output, hidden) for output in outputs),
            canonical_sse(sse, hidden),
        )
        written = json.dumps(exchange_json(exchange), ensure_ascii=False)
        keys = (*self._live.secrets(), os.environ.get("OPENAI_API_KEY", ""))
        if any(key and key in written for key in keys):
            raise FatalError(
                f"The API key stands in this exchange, so it was not written to {self._path}; "
                "take the key out of the prompt or of what the tools print."
            )
        append_exchange(self._path, exchange)


async def _tee(
    chunks: AsyncGenerator[bytes, None], received: list[bytes]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(chunks):
        async for chunk in chunks:
            received.append(chunk)
            yield chunk
