"""THE LOOP: ask the model, run its calls, give it their outputs, until it calls no more."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from agent_magics.dispatch.context import Emit, TurnContext
from agent_magics.dispatch.parallel import ToolCallRuntime
from agent_magics.dispatch.router import ToolRouter
from agent_magics.engine.history import History, output_kind_of
from agent_magics.engine.news import Note
from agent_magics.models.base import (
    ItemDone,
    Model,
    ModelRequest,
    Notice,
    ReasoningChunk,
    ResponseDone,
    RetryWait,
    TextChunk,
)
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.events import (
    Event,
    ItemCompleted,
    ModelInformed,
    ModelRetry,
    ReasoningDelta,
    TextDelta,
    TokensCounted,
    Warned,
)
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    CallItem,
    Item,
    LocalShellCall,
    ToolCallOutput,
    Usage,
    UserMessage,
    text_of,
)
from agent_magics.protocol.tools import FunctionPayload, ToolCall, ToolOutput

# People read text; twenty-five times a second is as live as an eye can tell.
DELTA_INTERVAL = 0.04

CUT_SHORT = (
    "Not run: your answer was cut off at the output token limit, so the call may be incomplete. "
    "Send it again, smaller or in parts."
)


@dataclass(slots=True)
class Response:
    """What one request brought."""

    items: list[Item] = field(default_factory=list)
    usage: Usage = Usage()
    finish: str = "completed"

    @property
    def calls(self) -> list[CallItem]:
        """The calls, in the model's order."""
        return [item for item in self.items if isinstance(item, CALL_TYPES)]

    @property
    def text(self) -> str:
        """What the model said."""
        said = (item.text for item in self.items if isinstance(item, AssistantMessage))
        return "\n\n".join(filter(None, said))


class Turn:
    """One prompt and everything that follows from it.

    Args:
        context: what the turn's tools share; its `emit` stamps events with the turn's id.
        steered: returns (and forgets) what the person added since it was last called.
        news: returns (and forgets) what the model is to be told without having asked.
    """

    def __init__(
        self,
        context: TurnContext,
        model: Model,
        router: ToolRouter,
        history: History,
        *,
        redact: Callable[[str], str] = str,
        steered: Callable[[], Sequence[UserMessage]] = tuple,
        news: Callable[[], Sequence[Note]] = tuple,
    ) -> None:
        self.context = context
        self._model = model
        self._router = router
        self._history = history
        self._steered = steered
        self._news = news
        self.runtime = ToolCallRuntime(router, context, redact)
        self.usage = Usage()
        self.requests = 0
        self._nested = 0

    async def run(self, prompt: UserMessage) -> str:
        """Run to the model's last word, and return it.

        Raises:
            FatalError: only the person can help.
            TurnAbort: the person ended the turn at a question.
        """
        self._tell_news()  # what happened since the last turn stands before the prompt
        self._history.append(prompt)
        while True:
            self._check_limits()
            self._tell_news()
            response = await self._request(text_of(prompt.content))
            if response.calls and response.finish == "length":
                self._history.close_open_calls(CUT_SHORT)
            elif response.calls:
                await self._run_calls(response.calls)
            steered = self._steered()
            if not response.calls and not steered:
                return self._last_word(response)
            self._history.extend(steered)

    def _tell_news(self) -> None:
        """Put what happened meanwhile into the history, as one message that is not the person's."""
        notes = self._news()
        if notes:
            message = "\n".join(note.text for note in notes)
            self._history.append(UserMessage(message, role="developer"))
            shown = " ".join(note.shown for note in notes if note.shown)
            self.context.emit(ModelInformed, message=message, shown=shown)

    def _check_limits(self) -> None:
        config = self.context.config
        tokens = self.usage.input_tokens + self.usage.output_tokens
        if self.requests >= config.max_turns:
            reached = f"{self.requests} requests to the model", f"max_turns={config.max_turns}"
        elif config.max_tokens is not None and tokens >= config.max_tokens:
            reached = f"{tokens} tokens", f"max_tokens={config.max_tokens}"
        else:
            return
        raise FatalError(
            f"Stopped after {reached[0]} in this turn ({reached[1]}); what was done stands. "
            f"Run again to go on, or raise {reached[1].partition('=')[0]}."
        )

    async def run_call(self, call: ToolCall) -> ToolOutput:
        """Run one call as if the model had made it; the history does not see it."""
        task = self.runtime.start(call)
        try:
            return await task
        except BaseException:
            await _cancel([task])
            raise

    async def call(self, name: str, arguments: Any, parent_call_id: str | None) -> ToolOutput:
        """Run a call made from inside another one: same checks, same questions, same events."""
        self._nested += 1
        call_id = f"{parent_call_id}.{self._nested}"
        payload = FunctionPayload(json.dumps(arguments, default=str))
        return await self.run_call(ToolCall(name, call_id, payload, parent_call_id))

    # -- the model's side -----------------------------------------------------------------------

    async def _request(self, prompt: str) -> Response:
        self.requests += 1
        request = ModelRequest(
            model=self.context.config.model,
            instructions=self.context.config.instructions,
            history=self._history,
            tools=self._router.specs,
            prompt=prompt,
            number=self.requests,
            conversation=self.context.session_id,
        )
        response = Response()
        deltas = DeltaBuffer(self.context.emit)
        try:
            # Closed at once, also on interrupt: the connection must not wait for the collector.
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    self._receive(event, response, deltas)
        finally:
            deltas.flush()
            # Also on interrupt: what the model said stays, and its calls are answered.
            self._history.extend(item for item in response.items if _can_be_sent(item))
        self.usage = self.usage + response.usage
        self.context.emit(TokensCounted, request=response.usage, turn=self.usage)
        return response

    def _receive(self, event: object, response: Response, deltas: "DeltaBuffer") -> None:
        emit = self.context.emit
        match event:
            case TextChunk(text):
                deltas.add(TextDelta, text)
            case ReasoningChunk(text):
                deltas.add(ReasoningDelta, text)
            case ItemDone(item):
                deltas.flush()
                item = self._identified(item, response)
                response.items.append(item)
                emit(ItemCompleted, item=item)
            case RetryWait(reason, attempt, delay):
                emit(ModelRetry, reason=reason, attempt=attempt, delay=delay)
            case Notice(message):
                emit(Warned, message=message)
            case ResponseDone(usage, finish):
                response.usage, response.finish = usage, finish

    def _identified(self, item: Item, response: Response) -> Item:
        """Return a call under an id that no other call of this answer has.

        Servers leave ids out or use one twice; providers refuse a history with such calls. A native
        shell call without an id stays without: it is never run.
        """
        if not isinstance(item, CALL_TYPES):
            return item
        if isinstance(item, LocalShellCall) and not item.call_id:
            return replace(item, call_id=None)
        taken = {call.call_id for call in response.calls}
        if item.call_id and item.call_id not in taken:
            return item
        # By where it stands in the conversation, so that a replay makes the same ids again.
        base = item.call_id or f"call_{len(self._history.items)}"
        ids = (f"{base}_{number}" for number in itertools.count(2 if item.call_id else 1))
        return replace(item, call_id=next(each for each in ids if each not in taken))

    def _last_word(self, response: Response) -> str:
        if response.finish == "length":
            self.context.emit(Warned, message="The answer was cut off at the output token limit.")
        elif response.finish == "content_filter":
            self.context.emit(Warned, message="The provider's content filter ended the answer.")
        return response.text

    # -- the tools' side ------------------------------------------------------------------------

    async def _run_calls(self, items: Sequence[CallItem]) -> None:
        """Run the calls; outputs go into the history in call order, whatever order they end in."""
        tasks = [self._start(item) for item in items]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            await _cancel(tasks)
            raise
        finally:
            self._keep_finished(items, tasks)

    def _start(self, item: CallItem) -> "asyncio.Task[ToolOutput]":
        try:
            return self.runtime.start(self._router.build_tool_call(item))
        except RespondToModel as refusal:
            return asyncio.create_task(_refused(str(refusal)))

    def _keep_finished(
        self, items: Sequence[CallItem], tasks: Sequence["asyncio.Task[ToolOutput]"]
    ) -> None:
        for item, task in zip(items, tasks, strict=True):
            if task.done() and not task.cancelled() and task.exception() is None:
                content = task.result().content
                if item.call_id:
                    output = ToolCallOutput(item.call_id, content, output_kind_of(item))
                    self._history.append(output)
                else:  # told, but not as an output: there is no call that it would belong to
                    self._history.append(UserMessage(content, role="developer"))


def _can_be_sent(item: Item) -> bool:
    """Whether an item may stand in the history: a provider refuses a call without an id."""
    return not isinstance(item, CALL_TYPES) or bool(item.call_id)


async def _refused(reason: str) -> ToolOutput:
    return ToolOutput(reason, success=False)


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Stop calls and wait until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class DeltaBuffer:
    """Gathers pieces of text for a moment, so that 20,000 deltas are not 20,000 events."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._kind: type[Event] = TextDelta
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kind: type[Event], text: str) -> None:
        """Keep `text`; it is shown at the latest `DELTA_INTERVAL` seconds from now."""
        if kind is not self._kind:
            self.flush()
            self._kind = kind
        self._pieces.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELTA_INTERVAL, self.flush)

    def flush(self) -> None:
        """Show what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._emit(self._kind, text=text)
