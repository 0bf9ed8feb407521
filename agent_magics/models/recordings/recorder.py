"""A door that writes down, for replaying, what the provider says while another door asks it."""

import asyncio
import hashlib
import itertools
import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

from agent_magics._version import __version__
from agent_magics.models.base import Model, ModelEvent, ModelRequest, Notice, ResponseDone
from agent_magics.models.cleaning import clean_sse
from agent_magics.models.drift import normalise_text
from agent_magics.models.faults import passes
from agent_magics.models.hiding import NO_KEY, Hider, SessionNames, personal_paths
from agent_magics.models.keys import environment_keys
from agent_magics.models.recording import Answer, Exchange, Header, prompt_key
from agent_magics.models.recording_file import append_exchange, start_recording
from agent_magics.models.responses_wire import encode_answer, encode_tools
from agent_magics.models.tape import Tape, TapedAnswer
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import MODEL_ITEMS, Item, ToolCallOutput, text_of

KEY_FOUND = (
    "A key stood in what was recorded; in {path} it is {mark}. Take it out of the prompt, or of "
    "what the tools print."
)


class RecordingModel:
    """Asks `live` and writes every exchange to `path`, after what is there already.

    Args:
        live: the door that answers. One that knows nothing of `Tape` is recorded as it answers,
            in the form of the Responses API.
        path: the recording; begun where it does not exist.
        cwd: the folder that is written as {cwd}.
        note: words for the header of a new file.
    """

    def __init__(self, live: Model, path: str | Path, *, cwd: Path, note: str = "") -> None:
        self._live = live
        self._path = Path(path)
        self._paths = personal_paths(cwd)
        self._note = note
        self._started = False
        self._sessions = SessionNames()
        self._turns: dict[tuple[str, str], str] = {}
        self.source = f"{live.source}, recorded to {self._path.name}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send `request` through the live door; see `Model.stream`.

        Raises:
            FatalError: what `live` raises, or the file cannot be written.
        """
        notice = self._start(request)
        if notice:
            yield Notice(notice)
        tape, said = Tape(), bytearray()
        try:
            async with aclosing(self._live.stream(replace(request, tape=tape))) as events:
                async for event in events:
                    said += encode_answer(event)
                    if isinstance(event, ResponseDone):
                        notice = await self._write(request, tape, said)
                        if notice:
                            yield Notice(notice)
                    yield event
        except FatalError:
            if tape.answers:
                with suppress(FatalError):  # what went wrong first is what must be told
                    await self._write(request, tape, said, failed=True)
            raise

    async def close(self) -> None:
        """Close the live door."""
        await self._live.close()

    def secrets(self) -> tuple[str, ...]:
        """What must not be written anywhere."""
        return tuple(getattr(self._live, "secrets", tuple)())

    # -- one exchange -----------------------------------------------------------------------------

    def _start(self, request: ModelRequest) -> str:
        """Make sure of the file before anything is asked, and paid."""
        if self._started and self._path.exists():
            return ""
        self._started = True
        by = f"agent-magics {__version__}"
        return start_recording(self._path, Header(by, request.model, self._note))

    async def _write(
        self, request: ModelRequest, tape: Tape, said: bytearray, *, failed: bool = False
    ) -> str:
        """Add the exchange; return what the person should know about it, or ""."""
        if not tape.answers:
            tape.begin("responses")
            tape.feed(said)
        names = self._sessions.of(request.conversation, request.history.items)
        hidden = [*self._paths, *names.items()]
        secrets = (*self.secrets(), *environment_keys())
        hider, for_good = Hider(hidden, secrets), Hider(hidden, secrets, literals=False)
        sent = sent_outputs(request.history.items)
        outputs = tuple(normalise_text(text_of(each.output), for_good) for each in sent)
        answers = _cleaned(tape.answers, hider, failed=failed)
        exchange = Exchange(
            hider(request.prompt),
            request.number,
            answers[-1],
            outputs,
            self._turn_of(request),
            hider(request.model),
            digest_of(request, outputs, hider),
            tuple(answers[:-1]),
        )
        # Off the loop: another kernel may be writing.
        await asyncio.to_thread(append_exchange, self._path, exchange)
        found = hider.found_key or for_good.found_key
        return KEY_FOUND.format(path=self._path.name, mark=NO_KEY) if found else ""

    def _turn_of(self, request: ModelRequest) -> str:
        """Return the turn's name; agents and kernels that write to one file each have their own."""
        key = (request.conversation, prompt_key(request.prompt))
        if request.number == 1 or key not in self._turns:
            self._turns[key] = uuid.uuid4().hex[:8]
        return self._turns[key]


def digest_of(request: ModelRequest, outputs: Sequence[str], hider: Hider) -> str:
    """Return a digest that is the same where the same was asked, on any machine.

    Over the model, the instructions, the tools with their schemas, the wanted form of the answer,
    the prompt, the number and the new tool outputs as they are recorded; not over the whole
    conversation, or recording would take the longer the longer it gets.
    """
    asked = {
        "model": request.model,
        "instructions": hider(request.instructions),
        "tools": encode_tools(request.tools).decode("utf-8", "replace"),
        "schema": getattr(request, "output_schema", None),
        "prompt": prompt_key(hider(request.prompt)),
        "number": request.number,
        "outputs": outputs,
    }
    text = json.dumps(asked, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def sent_outputs(items: Sequence[Item]) -> list[ToolCallOutput]:
    """Return the tool outputs that came after the model's last word, oldest first."""
    newer = itertools.takewhile(lambda item: not isinstance(item, MODEL_ITEMS), reversed(items))
    return [item for item in newer if isinstance(item, ToolCallOutput)][::-1]


def _cleaned(answers: Sequence[TapedAnswer], hider: Hider, *, failed: bool) -> list[Answer]:
    """Return what stands in a file for all that was received; `failed` says that no answer came.

    The search for the wire and the form that the server takes is left out: refusals that another
    request came right after, not a repeated one.
    """
    pairs = itertools.zip_longest(answers, answers[1:])
    tried = [answer for answer, after in pairs if after is None or _is_repeated(answer, after)]
    cleaned = [_clean(answer, hider) for answer in tried]
    marked = [replace(answer, ended=answer.ended or "error") for answer in cleaned]
    return marked if failed else [*marked[:-1], cleaned[-1]]


def _is_repeated(answer: TapedAnswer, after: TapedAnswer) -> bool:
    refused = answer.status not in (0, 200) and not passes(answer.status)
    return after.wire == answer.wire and (
        not refused or answer.headers.get("x-should-retry") == "true"
    )


def _clean(answer: TapedAnswer, hider: Hider) -> Answer:
    body = bytes(answer.body)
    headers = {name: hider(value) for name, value in answer.headers.items()}
    if answer.status == 200:
        sse = clean_sse(body, hider)
        return Answer(sse, answer.wire, answer.status, headers, ended=answer.ended)
    said = hider(body.decode("utf-8", "backslashreplace"))
    return Answer("", answer.wire, answer.status, headers, said, answer.ended)
