"""THE LOOP: ask the model, run its calls, give it their outputs, until it calls no more."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent_magics.dispatch.context import Emit, TurnContext
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.parallel import ToolCallRuntime
from agent_magics.dispatch.router import ToolRouter
from agent_magics.engine.bill import Bill
from agent_magics.engine.budget import NO_SUMMARY, NO_VALUE, NOT_CALLED, REACHED, SUMMARY, Budget
from agent_magics.engine.history import History, output_kind_of
from agent_magics.engine.loop_guard import LoopGuard
from agent_magics.engine.meter import ContextMeter
from agent_magics.engine.news import Note, told_of_circle
from agent_magics.engine.shortening import Shortening
from agent_magics.engine.structured import REPAIR, REPAIR_SHOWN, OutputType, UnfitAnswer
from agent_magics.engine.web_searches import WebSearches
from agent_magics.models.base import (
    ContextOverflow,
    Finish,
    ItemDone,
    Model,
    ModelRequest,
    Notice,
    ReasoningChunk,
    ResponseDone,
    RetryWait,
    SearchProgress,
    TextChunk,
)
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.events import (
    Event,
    ItemCompleted,
    ModelInformed,
    ModelRetry,
    PlanStep,
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

# How an answer ended -> what the model is told of its calls, none of which is run.
NOT_RUN = {
    "length": (
        "Not run: your answer was cut off at the output token limit, so the call may be "
        "incomplete. Send it again, smaller or in parts."
    ),
    "content_filter": (
        "Not run: the provider's content filter ended your answer, so the call may be incomplete. "
        "Go another way, or say what you cannot do."
    ),
    "incomplete": (
        "Not run: your answer ended before it was complete, so the call may be incomplete. "
        "Send it again."
    ),
}
# The same for the person, where the answer was the last one.
CUT_SHORT = {
    "length": "The answer was cut off at the output token limit.",
    "content_filter": "The provider's content filter ended the answer.",
    "incomplete": "The provider ended the answer before it was complete.",
}
NO_MORE = "Not run: no more tools run in this turn."
STILL_TOO_LONG = "Even after its older part was left out:"


@dataclass(slots=True)
class Response:
    """What one request brought."""

    items: list[Item] = field(default_factory=list)
    usage: Usage = Usage()
    finish: Finish = "completed"

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
        meter: how full the model's context is.
        loops: notices when the model goes round in circles; the router asks it, too.
        plan: returns the plan as it stands.
        charge: told the model and the usage of each request.
        output: the type that the answer is to have; None is text.
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
        charge: Callable[[str, Usage], None] = lambda model, usage: None,
        output: OutputType | None = None,
        meter: ContextMeter | None = None,
        loops: LoopGuard | None = None,
        plan: Callable[[], Sequence[PlanStep]] = tuple,
        hooks: Hooks | None = None,
    ) -> None:
        self.context = context
        self._model = model
        self._router = router
        self._hooks = hooks
        self._history = history
        self._steered = steered
        self._news = news
        self._charge = charge
        self._output = output
        self._meter = meter or ContextMeter(history)
        self._loops = loops or LoopGuard(context.config.loops)
        self.shortening = Shortening(
            context,
            model,
            history,
            self._meter,
            plan=plan,
            prepare=self._prepare,
            spent=self._spend,
        )
        self.runtime = ToolCallRuntime(router, context, redact)
        self.bill = Bill()
        self.budget = Budget(context.config)
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
        self._loops.begin_turn()
        words = text_of(prompt.content)
        while True:
            if self.budget.is_used_up(self.requests, self.bill):
                return await self._wind_up(words)
            self._tell_news()
            await self.shortening.make_room(words)
            is_last = self._loops.denied
            response = await self._request(words, is_last=is_last, output=self._output)
            if response.calls and response.finish != "completed":
                self._history.close_open_calls(NOT_RUN.get(response.finish, NOT_RUN["incomplete"]))
            elif response.calls and is_last:
                self._history.close_open_calls(NO_MORE)
            elif response.calls:
                self._loops.said(response.text)
                await self._run_calls(response.calls)
            steered = self._steered()
            self._history.extend(steered)
            if is_last or not (response.calls or steered):
                return await self._last_word(response, words)

    def _tell_news(self) -> None:
        """Put what happened meanwhile into the history, as one message that is not the person's."""
        notes = [*self._news(), *map(told_of_circle, self._loops.take_notes())]
        if notes:
            message = "\n".join(note.text for note in notes)
            self._history.append(UserMessage(message, role="developer"))
            shown = " ".join(note.shown for note in notes if note.shown)
            self.context.emit(ModelInformed, message=message, shown=shown)

    async def _wind_up(self, prompt: str) -> str:
        """End the run at its budget, with one request more: for a summary, without tools."""
        told, emit = self.budget.told, self.context.emit
        emit(Warned, message=told(REACHED))
        self._history.extend(self._steered())
        self._history.append(UserMessage(told(SUMMARY), role="developer"))
        text, reason = "", ""
        try:
            text = (await self._request(prompt, bare=True)).text
        except FatalError as error:
            reason = f" ({str(error).rstrip('.')})"
        self._history.close_open_calls(told(NOT_CALLED))
        if not text:
            emit(Warned, message=told(NO_SUMMARY, reason))
        if self._output is not None:
            emit(Warned, message=told(NO_VALUE))
        return text

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

    async def _request(
        self,
        prompt: str,
        *,
        is_last: bool = False,
        bare: bool = False,
        output: OutputType | None = None,
    ) -> Response:
        """Ask the model; where the conversation is too long for it, shorten it and ask once more.

        Args:
            prompt: the words that began the turn.
            is_last: the model may answer, but not call.
            bare: no tools are offered.
            output: the type that its answer is to have.
        """
        self.requests += 1
        ask = partial(self._ask, prompt, is_last=is_last, bare=bare, output=output)
        try:
            return await ask()
        except ContextOverflow as overflow:
            await self.shortening.recover(prompt, overflow)
        try:
            return await ask()
        except ContextOverflow as overflow:
            raise FatalError(f"{STILL_TOO_LONG} {overflow}") from None

    async def _ask(
        self, prompt: str, *, is_last: bool, bare: bool, output: OutputType | None
    ) -> Response:
        features = self.context.config.features
        offer = self.context.offer
        tools = self._router.specs if offer is None else offer.specs(self.context.found)
        request = ModelRequest(
            model=self.context.config.model,
            instructions=self.context.config.instructions + (output.instructions if output else ""),
            history=self._history,
            tools=() if bare else tools,
            prompt=prompt,
            number=self.requests,
            conversation=self.context.session_id,
            tool_choice="none" if is_last else "auto",
            service_tier=features.get("service_tier", ""),
            reasoning_summary=features.get("reasoning_summary", ""),
            output_schema=output.schema if output else None,
        )
        request = await self._prepare(request)
        response = Response()
        deltas = DeltaBuffer(self.context.emit)
        searches = WebSearches(self.context.emit, self.requests)
        try:
            # Closed at once, also on interrupt: the connection must not wait for the collector.
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    self._receive(event, response, deltas, searches)
        finally:
            deltas.flush()
            searches.close()
            # Also on interrupt: what the model said stays, and its calls are answered.
            self._history.extend(item for item in response.items if _can_be_sent(item))
        self._meter.measure(response.usage)
        self._spend(response.usage, getattr(self._model, "answered_by", "") or request.model)
        return response

    async def _prepare(self, request: ModelRequest) -> ModelRequest:
        """Let hooks see what is about to be asked, and change it."""
        if self._hooks is None:
            return request
        return await self._hooks.before_model(request, self.context)

    def _spend(self, usage: Usage, model: str = "") -> None:
        """Put a request on the bills: of this turn, and of the conversation.

        Args:
            model: which one answered: a hook may have chosen another one, or a recording plays.
        """
        model, emit = model or self.context.config.model, self.context.emit
        self.bill = self.bill.add(model, usage)
        self._charge(model, usage)
        emit(TokensCounted, request=usage, turn=self.bill.usage, cost=self.bill.cost)
        if warning := self.budget.warning(self.bill):
            emit(Warned, message=warning)

    def _receive(
        self,
        event: object,
        response: Response,
        deltas: "DeltaBuffer",
        searches: WebSearches,
    ) -> None:
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
            case SearchProgress():
                deltas.flush()
                searches.receive(event)
            case RetryWait(reason, attempt, delay, tries):
                searches.close()
                emit(ModelRetry, reason=reason, attempt=attempt, delay=delay, tries=tries)
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

    async def _last_word(self, response: Response, prompt: str) -> str:
        if response.finish in CUT_SHORT:
            self.context.emit(Warned, message=CUT_SHORT[response.finish])
        if self._output is None:
            return response.text
        return await self._fitting(response.text, self._output, prompt)

    async def _fitting(self, text: str, output: OutputType, prompt: str) -> str:
        """Return an answer of the wanted type: `text`, or what the model mends of it, once."""
        try:
            output.read(text)
            return text
        except RespondToModel as refusal:
            message = REPAIR.format(problems=refusal)
        self._history.append(UserMessage(message, role="developer"))
        shown = REPAIR_SHOWN.format(kind=output.name)
        self.context.emit(ModelInformed, message=message, shown=shown)
        # Without tools: some servers cannot hold a model to a schema and offer it tools.
        mended = (await self._request(prompt, bare=True, output=output)).text
        self._history.close_open_calls()
        try:
            output.read(mended)
        except RespondToModel as refusal:
            raise UnfitAnswer(output.failure(str(refusal)), mended) from None
        return mended

    # -- the tools' side ------------------------------------------------------------------------

    async def _run_calls(self, items: Sequence[CallItem]) -> None:
        """Run the calls; outputs go into the history in call order, whatever order they end in."""
        self._loops.arrived(items)
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
                    self._loops.answered(item.call_id, content)
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
