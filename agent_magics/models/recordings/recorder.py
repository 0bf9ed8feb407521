"""Records the exchanges of another model client into a file."""

import asyncio
import hashlib
import itertools
import json
import os
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

from agent_magics._version import __version__
from agent_magics.models.base import Model, ModelEvent, ModelRequest, Notice, ResponseDone
from agent_magics.models.error_redaction import NO_KEY
from agent_magics.models.faults import passes
from agent_magics.models.providers.keys import environment_keys
from agent_magics.models.recordings.cleaning import clean_sse
from agent_magics.models.recordings.drift import normalise_text
from agent_magics.models.recordings.format import Exchange, Header, RecordedAnswer, prompt_key
from agent_magics.models.recordings.redaction import (
    Hider,
    SessionNames,
    personal_paths,
    prompt_hider,
)
from agent_magics.models.recordings.writing import append_exchange, start_recording
from agent_magics.models.wire_capture import CapturedAnswer, WireCapture
from agent_magics.models.wires.responses.items import encode_answer, encode_tools
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import MODEL_ITEMS, Item, ToolCallOutput, text_of

KEY_FOUND = (
    "A key stood in what was recorded; in {path} it is {mark}. Take it out of the prompt, or of "
    "what the tools print."
)


class RecordingModel:
    """A model client that forwards requests to `live` and appends every exchange to `path`.

    Args:
        live: the client that answers. One that does not use `WireCapture` is recorded from its
            events, in the format of the Responses API.
        path: the recording; created if it does not exist.
        cwd: the folder to write as {cwd}.
    """

    def __init__(self, live: Model, path: str | Path, *, cwd: Path) -> None:
        self._live = live
        self._path = Path(path)
        self._paths = personal_paths(cwd)
        self._started = False
        self._sessions = SessionNames()
        self._turns: dict[tuple[str, ...], str] = {}
        self.source = f"{live.source}, recorded to {self._path.name}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send `request` through the live client; see `Model.stream`.

        Raises:
            FatalError: raised by `live`, or the file cannot be written.
        """
        # In a thread: another kernel may hold the file's lock.
        notice = await asyncio.to_thread(self._start, request)
        if notice:
            yield Notice(notice)
        capture, encoded = WireCapture(), bytearray()
        sent = sent_outputs(request.history.items)  # now, since the answer joins them as it comes
        try:
            async with aclosing(self._live.stream(replace(request, capture=capture))) as events:
                async for event in events:
                    encoded += encode_answer(event)
                    if isinstance(event, ResponseDone):
                        notice = await self._write(request, sent, capture, encoded)
                        if notice:
                            yield Notice(notice)
                    yield event
        except FatalError:
            if capture.answers:
                with suppress(FatalError):  # the first error is the one to report
                    await self._write(request, sent, capture, encoded, failed=True)
            raise

    async def close(self) -> None:
        """Close the live client."""
        await self._live.close()

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets of the live client, which must not be written anywhere."""
        return tuple(getattr(self._live, "secrets", tuple)())

    # -- one exchange -----------------------------------------------------------------------------

    def _start(self, request: ModelRequest) -> str:
        """Create or check the file before a request is sent and paid for."""
        if self._started and self._path.exists():
            return ""
        by = f"agent-magics {__version__}"
        model = prompt_hider(self._paths, self.secrets())(request.model)  # a local server's: a path
        notice = start_recording(self._path, Header(by, model))
        self._started = True  # not where the file is refused: the next request looks again
        return notice

    async def _write(
        self,
        request: ModelRequest,
        sent: Sequence[ToolCallOutput],
        capture: WireCapture,
        encoded: bytearray,
        *,
        failed: bool = False,
    ) -> str:
        """Append the exchange; return a warning for the person, or ""."""
        if not capture.answers:
            capture.begin("responses")
            capture.feed(bytes(encoded))
        names = self._sessions.of(request.conversation, request.history.items)
        hidden = [*self._paths, *names.items()]
        secrets = (*self.secrets(), *environment_keys(os.environ))
        hider, irreversible_hider = Hider(hidden, secrets), Hider(hidden, secrets, literals=False)
        of_prompts = prompt_hider(self._paths, secrets)
        outputs = tuple(normalise_text(text_of(each.output), irreversible_hider) for each in sent)
        answers = _cleaned(capture.answers, hider, failed=failed)
        exchange = Exchange(
            of_prompts(request.prompt),
            request.number,
            answers[-1],
            outputs,
            self._turn_of(request),
            hider(request.model),
            digest_of(request, outputs, of_prompts),
            tuple(answers[:-1]),
        )
        await asyncio.to_thread(append_exchange, self._path, exchange)
        found = any(each.found_key for each in (hider, irreversible_hider, of_prompts))
        return KEY_FOUND.format(path=self._path.name, mark=NO_KEY) if found else ""

    def _turn_of(self, request: ModelRequest) -> str:
        """Return the id of the request's turn, unique among agents and kernels that share the
        file.
        """
        key = (request.conversation, prompt_key(request.prompt), request.turn)
        if key not in self._turns or (request.number == 1 and not request.turn):
            self._turns[key] = uuid.uuid4().hex[:8]
        return self._turns[key]


def digest_of(request: ModelRequest, outputs: Sequence[str], hider: Hider) -> str:
    """Return a digest of a request that is the same on every machine.

    It covers the model, the instructions, the tools with their schemas, the answer's schema, the
    prompt, the number and the new tool outputs as recorded; not the whole conversation, whose
    digest would take longer with every request.
    """
    asked = {
        "model": hider(request.model),
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
    """Return the tool outputs after the model's last item, oldest first."""
    newer = itertools.takewhile(lambda item: not isinstance(item, MODEL_ITEMS), reversed(items))
    return [item for item in newer if isinstance(item, ToolCallOutput)][::-1]


def _cleaned(
    answers: Sequence[CapturedAnswer], hider: Hider, *, failed: bool
) -> list[RecordedAnswer]:
    """Return the answers as they are recorded; `failed` means that there was no final answer.

    Refusals while detecting the wire API or the accepted form of a request are left out: they were
    followed by a different request, not by a repeated one.
    """
    pairs = itertools.zip_longest(answers, answers[1:])
    tried = [answer for answer, after in pairs if after is None or _is_repeated(answer, after)]
    cleaned = [_clean(answer, hider) for answer in tried]
    marked = [replace(answer, ended=answer.ended or "error") for answer in cleaned]
    return marked if failed else [*marked[:-1], cleaned[-1]]


def _is_repeated(answer: CapturedAnswer, after: CapturedAnswer) -> bool:
    refused = answer.status not in (0, 200) and not passes(answer.status)
    return after.wire == answer.wire and (
        not refused or answer.headers.get("x-should-retry") == "true"
    )


def _clean(answer: CapturedAnswer, hider: Hider) -> RecordedAnswer:
    body = bytes(answer.body)
    headers = {name: hider(value) for name, value in answer.headers.items()}
    if answer.status == 200:
        sse = clean_sse(body, hider)
        return RecordedAnswer(sse, answer.wire, answer.status, headers, ended=answer.ended)
    text = hider(body.decode("utf-8", "backslashreplace"))
    return RecordedAnswer("", answer.wire, answer.status, headers, text, answer.ended)
