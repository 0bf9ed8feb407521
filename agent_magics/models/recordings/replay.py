"""Replays a recording as a model client, without a provider."""

import asyncio
import difflib
import itertools
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from agent_magics.files.plain_files import file_stamp
from agent_magics.models.base import ItemDone, ModelEvent, ModelRequest, Notice
from agent_magics.models.faults import FEW_TRIES, Fault, cut_short, silent
from agent_magics.models.providers.keys import environment_keys
from agent_magics.models.recordings.cleaning import sse_bytes
from agent_magics.models.recordings.drift import normalise_text, short_diff
from agent_magics.models.recordings.format import (
    Exchange,
    RecordedAnswer,
    RecordedTurn,
    Recording,
    prompt_key,
    read_recording,
    turns_of,
)
from agent_magics.models.recordings.placeholders import PlaceholderResolver
from agent_magics.models.recordings.recorder import sent_outputs
from agent_magics.models.recordings.redaction import (
    Hider,
    SessionNames,
    personal_paths,
    prompt_hider,
)
from agent_magics.models.recordings.text import is_whole
from agent_magics.models.refusals import StatusError, explain_status
from agent_magics.models.retry import RetryPolicy, stream_with_retries
from agent_magics.models.wires.answer import read_answer
from agent_magics.models.wires.chat.model import ChatWire
from agent_magics.models.wires.remote import Wire
from agent_magics.models.wires.responses.model import ResponsesWire
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.items import CALL_TYPES, Item, LocalShellCall, ToolCallOutput, text_of
from agent_magics.text.brief import brief, number_of

LIVE = (
    "ask a live model, for which OPENAI_API_KEY must be set or OPENAI_BASE_URL name an "
    "OpenAI-compatible server: into the recording (%agent recording rerecord next, or record=FILE "
    'in a program), or without it (%config AgentMagics.replay = "" and no --replay, or no replay= '
    "in a program)"
)
SERVER = "the recorded server"
# Tools whose outputs depend on which sub-agent ends first, so that a difference is no drift.
TIMED = frozenset(("wait", "list_agents"))
# Seconds; nothing waits that long on replay, the number only appears in the error of a time-out.
RECORDED_TIMEOUT = 300.0


class ReplayModel:
    """A model client that answers from a recording; tools run for real.

    An exchange is found by its prompt and its number within the turn. A prompt that was recorded
    several times is played in the order of the file, and from the start again after the last; turns
    that ended with an error, or were stopped, are played only if the prompt has no other. A changed
    file is read again at the next prompt.

    Args:
        path: the recording.
        cwd: the value of the placeholder {cwd}.
        strict: whether tool outputs that differ from the recorded ones are an error.
        delay: seconds before each event, to show a stream at its pace.
    """

    def __init__(
        self, path: str | Path, *, cwd: Path, strict: bool = False, delay: float = 0.0
    ) -> None:
        self.path = Path(path)
        self.source = f"recording {self.path.name}"
        self._paths = personal_paths(cwd)
        self._resolver = PlaceholderResolver(cwd)
        self._strict = strict
        self._delay = delay
        self._wires: dict[str, Wire] = {"responses": ResponsesWire(), "chat": ChatWire()}
        self._sessions = SessionNames()
        self._current: dict[tuple[str, ...], _Playing] = {}
        self._outputs: dict[str, str | None] = {}
        self._recording: Recording | None = None
        self._read()

    @property
    def answered_by(self) -> str:
        """The recorded model, whose prices apply; "" if none is recorded."""
        return self.header.model

    def _read(self) -> None:
        self._signature, recording = file_stamp(self.path), read_recording(self.path)
        if recording == self._recording:  # turns go on from where they are
            return
        self._recording = recording
        self.header = recording.header
        self._notice = recording.notice
        self._turns = _turns_by_prompt(turns_of(recording.exchanges), self._key_of)
        self._plays = {prompt: itertools.cycle(turns) for prompt, turns in self._turns.items()}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Replay the answer to `request`; see `Model.stream`.

        Raises:
            FatalError: the prompt is not in the recording, outputs differ and `strict` is on, or
                the answer was an error when it was recorded.
        """
        exchange = self._find(request)
        notice, self._notice = self._notice, ""
        if notice:
            yield Notice(notice)
        sessions = self._sessions.of(request.conversation, request.history.items)
        drift = self._drift(exchange, request, sessions)
        if drift and self._strict:
            raise FatalError(f"{drift}\nreplay_strict makes this an error; {self._rerecord()}.")
        if drift:
            yield Notice(drift)
        outputs = iter(self._current[self._key(request)].outputs_after(exchange))
        try:
            async with aclosing(self._play(exchange, request)) as events:
                async for event in events:
                    localised = self._resolver.localise(event, sessions)
                    if isinstance(localised, ItemDone) and isinstance(localised.item, CALL_TYPES):
                        self._outputs[str(localised.item.call_id)] = next(outputs, None)
                    yield localised
        except FatalError as error:
            raise self._placed(error, exchange) from None

    def recorded_output(self, call_id: str) -> str | None:
        """Return the recorded output of a call; None where there is none."""
        return self._outputs.get(call_id)

    async def close(self) -> None:
        """Do nothing; a recording holds no connections."""

    # -- replaying --------------------------------------------------------------------------------

    def _play(self, exchange: Exchange, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Replay all answers to a request, including failed ones before a retry, without the
        waits.
        """
        answers = iter((*exchange.failed, exchange.answer))
        policy = _RecordedRetries(tries=len(exchange.failed) + 1, wait=_no_wait, chance=float)
        return stream_with_retries(lambda: self._answer(next(answers), request), policy)

    async def _answer(
        self, answer: RecordedAnswer, request: ModelRequest
    ) -> AsyncGenerator[ModelEvent, None]:
        """Replay one answer through the decoder of its wire API."""
        wire = self._wires[answer.wire]
        if answer.status != 200:
            raise _refusal(answer, wire, request)
        chunks = self._chunks(answer)
        async with aclosing(read_answer(chunks, wire.decoder(request, ""))) as events:
            async for event in events:
                yield event

    async def _chunks(self, answer: RecordedAnswer) -> AsyncGenerator[bytes, None]:
        sse = sse_bytes(answer.sse)
        if self._delay or answer.ended:
            # One by one, so that events before an error are emitted before it.
            for event in sse.split(b"\n\n"):
                await asyncio.sleep(self._delay)
                yield event + b"\n\n"
        else:
            yield sse
        if answer.ended == "cut":
            raise cut_short("the connection broke")
        if answer.ended == "silent":
            raise silent(SERVER, RECORDED_TIMEOUT)

    def _placed(self, error: FatalError, exchange: Exchange) -> FatalError:
        """Add to an error where it comes from: recorded as such, or a malformed line."""
        where = f"{self.path.name}, line {exchange.line}"
        if exchange.answer.ended:
            message = f"As recorded in {where}: {short_message(error)}"
        else:
            message = (
                f"The answer in the recording {where}, cannot be played ({short_message(error)}). "
                f"Was it changed by hand? Mend the line, or {self._rerecord()}."
            )
        error.args = (message,)
        return error

    def _rerecord(self) -> str:
        return "record it anew with a live model (%agent recording rerecord next)"

    # -- finding --------------------------------------------------------------------------------

    def _key(self, request: ModelRequest) -> tuple[str, ...]:
        recorded = prompt_hider(self._paths)(request.prompt)
        return request.conversation, self._key_of(recorded), request.turn

    def _key_of(self, prompt: str) -> str:
        """Return a recorded prompt with the placeholders of this machine: its home may be the
        workspace.
        """
        return prompt_key(prompt_hider(self._paths)(self._resolver.show(prompt)))

    def _find(self, request: ModelRequest) -> Exchange:
        if request.number == 1 and file_stamp(self.path) != self._signature:
            self._read()
        key = self._key(request)
        prompt = key[1]
        if key not in self._current or (request.number == 1 and not request.turn):
            if prompt not in self._turns:
                raise FatalError(self._unknown_prompt(prompt))
            self._current[key] = _Playing(next(self._plays[prompt]))
        exchange = self._current[key].find(request.number)
        if exchange is None:
            recorded = {each.number for each in self._current[key].turn.exchanges}
            answers = number_of(len(recorded), "answer")
            raise FatalError(
                f"The recording {self.path} has {answers} to {_short(prompt)}, and this run "
                f"asks for answer {request.number}: it went another way than the recorded one. "
                f"Put back what was changed, or {LIVE}."
            )
        return exchange

    def _unknown_prompt(self, prompt: str) -> str:
        nearest = difflib.get_close_matches(prompt, self._turns, n=1, cutoff=0.0)
        if not nearest:
            return f"The recording {self.path} has no prompts yet, so {LIVE}."
        here, there = _where_they_differ(prompt, nearest[0])
        return (
            f"The prompt {here} is not in the recording {self.path}; the nearest it has is "
            f"{there}. Restore the recorded prompt, or {LIVE}."
        )

    # -- drift ------------------------------------------------------------------------------------

    def _drift(self, exchange: Exchange, request: ModelRequest, sessions: Mapping[str, str]) -> str:
        """Return a description of how the sent tool outputs differ from the recorded ones, or
        "".
        """
        if exchange.outputs is None:
            return ""
        items = request.history.items
        sent = sent_outputs(items)
        if len(sent) != len(exchange.outputs):
            return (
                f"This run differs from the recording {self.path.name}: before answer "
                f"{exchange.number} it sent {len(sent)} tool outputs, recorded are "
                f"{len(exchange.outputs)}."
            )
        keys = environment_keys(os.environ)
        here = Hider([*self._paths, *sessions.items()], keys, literals=False)
        differing = []
        for output, recorded in zip(sent, exchange.outputs, strict=True):
            if _tool_of(output, items) in TIMED:
                continue
            # With the paths of this run in both: the home may be the workspace here, or "/".
            texts = map(self._resolver.show, (recorded, text_of(output.output)))
            expected, actual = (normalise_text(text, here) for text in texts)
            if actual != expected:
                diff = short_diff(expected, actual) or "(only in its line ends)"
                differing.append((_name_of_call(output, items), diff))
        return "\n".join(
            f"The output of {call} differs from the recording {self.path.name}:\n{diff}"
            for call, diff in differing
        )


# -- recorded failures -----------------------------------------------------------------------------


class _RecordedRetries(RetryPolicy):
    """Retries as often as was recorded, whatever this version thinks of the error."""

    def delay(self, attempt: int, fault: Fault) -> float | None:
        if attempt >= self.tries:
            return None
        return super().delay(attempt, fault) or 0.0


async def _no_wait(_: float) -> None:
    """Return at once, instead of the wait before a retry."""


def _refusal(answer: RecordedAnswer, wire: Wire, request: ModelRequest) -> FatalError:
    """Return the error that the recorded answer caused."""
    if answer.status == 0:
        if answer.ended == "silent":
            return silent(SERVER, RECORDED_TIMEOUT)
        sentence = f"Cannot connect to {SERVER}."
        reason = f"Cannot connect to {SERVER}"
        return Fault(sentence, passing=True, reason=reason, tries=FEW_TRIES)
    return explain_status(
        StatusError(answer.status, answer.headers, answer.body.encode("utf-8", "replace")),
        address=SERVER,
        model=request.model,
        api=wire.api,
        key_way="set a valid one",
    )


# -- finding --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Playing:
    """A turn that is being replayed.

    A number that is requested repeatedly (for example after the history was compacted) is replayed
    in the order of the file; the last one is repeated.
    """

    turn: RecordedTurn
    _rest: dict[int, Iterator[Exchange]] = field(default_factory=dict)
    _last: dict[int, Exchange] = field(default_factory=dict)

    def find(self, number: int) -> Exchange | None:
        """Return the next exchange with that number, or None."""
        of_number = (each for each in self.turn.exchanges if each.number == number)
        exchange = next(self._rest.setdefault(number, of_number), self._last.get(number))
        if exchange is not None:
            self._last[number] = exchange
        return exchange

    def outputs_after(self, exchange: Exchange) -> tuple[str, ...]:
        """Return the recorded outputs of an exchange's calls, in the order of the calls."""
        later = self.turn.exchanges[self.turn.exchanges.index(exchange) + 1 :]
        found = (each.outputs or () for each in later if each.number == exchange.number + 1)
        return next(found, ())


def _turns_by_prompt(
    turns: Sequence[RecordedTurn], key_of: Callable[[str], str]
) -> dict[str, list[RecordedTurn]]:
    by_prompt: dict[str, list[RecordedTurn]] = {}
    for turn in turns:
        by_prompt.setdefault(key_of(turn.prompt), []).append(turn)
    return {
        prompt: found if len(found) == 1 else [*filter(is_whole, found)] or found
        for prompt, found in by_prompt.items()
    }


def _name_of_call(output: ToolCallOutput, items: Sequence[Item]) -> str:
    name = _tool_of(output, items)
    return f"`{name}` ({output.call_id})" if name else output.call_id


def _tool_of(output: ToolCallOutput, items: Sequence[Item]) -> str:
    """Return the name of the tool that gave an output, "" where that is not known."""
    for item in reversed(items):
        if isinstance(item, CALL_TYPES) and item.call_id == output.call_id:
            return "local_shell" if isinstance(item, LocalShellCall) else item.name
    return ""


def _short(text: str) -> str:
    return repr(brief(text, 80))


def _where_they_differ(prompt: str, other: str) -> tuple[str, str]:
    """Return both prompts, shortened to where they first differ."""
    same = next(
        (at for at, pair in enumerate(zip(prompt, other, strict=False)) if pair[0] != pair[1]),
        min(len(prompt), len(other)),
    )
    if same <= 60:
        return _short(prompt), _short(other)
    begin = same - 30
    return _short(f"…{prompt[begin:]}"), _short(f"…{other[begin:]}")
