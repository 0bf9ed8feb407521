"""One request to the model: what it carries, what comes of it, and what that costs."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from agent_magics.dispatch.context import Emit, TurnContext
from agent_magics.dispatch.hooks import Hooks
from agent_magics.engine.bill import Bill
from agent_magics.engine.budget import Budget
from agent_magics.engine.history import History
from agent_magics.engine.meter import ContextMeter
from agent_magics.engine.shortening import Shortening
from agent_magics.engine.structured import OutputType
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
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import (
    Event,
    ItemCompleted,
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
    Usage,
    UserMessage,
)
from agent_magics.protocol.tools import ConfiguredToolSpec

# People read text; twenty-five times a second is as live as an eye can tell.
DELTA_INTERVAL = 0.04

ASIDE = "(A question of an MCP server.)"
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


class Asker:
    """Asks the model on behalf of one turn.

    Args:
        context: of the turn; its `emit` stamps events with the turn's id.
        model: the door.
        history: the conversation, which takes in what the model says.
        tools: all that are offered, where the context has no offer of its own.
        charge: told the model and the usage of each request.
        meter: how full the model's context is.
        plan: returns the plan as it stands.
        hooks: see each request before it is sent.

    Attributes:
        bill: what the turn's requests took and cost.
        budget: when the turn has had enough.
        requests: how many were made, those for summaries of the conversation aside.
        shortening: makes room where the conversation has become too long.
    """

    def __init__(
        self,
        context: TurnContext,
        model: Model,
        history: History,
        tools: tuple[ConfiguredToolSpec, ...] = (),
        *,
        charge: Callable[[str, Usage], None] = lambda model, usage: None,
        meter: ContextMeter | None = None,
        plan: Callable[[], Sequence[PlanStep]] = tuple,
        hooks: Hooks | None = None,
    ) -> None:
        self._context = context
        self._model = model
        self._history = history
        self._tools = tools
        self._charge = charge
        self._hooks = hooks
        self._meter = meter or ContextMeter(history)
        self.shortening = Shortening(
            context,
            model,
            history,
            self._meter,
            plan=plan,
            prepare=self._prepare,
            spent=self._spend,
        )
        self.bill = Bill()
        self.budget = Budget(context.config)
        self.requests = 0
        self._asides = 0

    @property
    def is_used_up(self) -> bool:
        """Whether the budget allows no further request but the one for a last word."""
        return self.budget.is_used_up(self.requests, self.bill)

    async def ask(
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

        Raises:
            FatalError: there is no answer; the sentence says why.
        """
        self.requests += 1
        once = partial(self._ask_once, prompt, is_last=is_last, bare=bare, output=output)
        try:
            return await once()
        except ContextOverflow as overflow:
            await self.shortening.recover(prompt, overflow)
        try:
            return await once()
        except ContextOverflow as overflow:
            raise FatalError(f"{STILL_TOO_LONG} {overflow}") from None

    async def answer(
        self, instructions: str, messages: Sequence[tuple[str, str]], most_tokens: int
    ) -> str:
        """Ask beside the conversation, which does not hear of it; return the answer's text.

        Args:
            instructions: for the model.
            messages: (role, text), "assistant" or "user".
            most_tokens: of the answer; what is longer is cut, at about four characters a token.

        Raises:
            FatalError: there is no answer.
        """
        history = History()
        history.extend(
            AssistantMessage(text) if role == "assistant" else UserMessage(text)
            for role, text in messages
        )
        self._asides += 1
        request = ModelRequest(
            model=self._context.config.model,
            instructions=instructions,
            history=history,
            tools=(),
            prompt=ASIDE,
            number=self._asides,
        )
        request = await self._prepare(request)
        said: list[str] = []
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ItemDone(AssistantMessage(text=words)):
                        said.append(words)
                    case ResponseDone(usage):
                        self._spend(usage)
        return "\n\n".join(said)[: most_tokens * 4]

    async def _ask_once(
        self, prompt: str, *, is_last: bool, bare: bool, output: OutputType | None
    ) -> Response:
        config, offer = self._context.config, self._context.offer
        features = config.features
        tools = self._tools if offer is None else offer.specs(self._context.found)
        request = ModelRequest(
            model=self._context.config.model,
            instructions=self._context.config.instructions
            + (output.instructions if output else ""),
            history=self._history,
            tools=() if bare else tools,
            prompt=prompt,
            number=self.requests,
            conversation=self._context.session_id,
            tool_choice="none" if is_last else "auto",
            service_tier=features.get("service_tier", ""),
            reasoning_summary=features.get("reasoning_summary", ""),
            output_schema=output.schema if output else None,
        )
        request = await self._prepare(request)
        response = Response()
        deltas = DeltaBuffer(self._context.emit)
        searches = WebSearches(self._context.emit, self.requests)
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
        return await self._hooks.before_model(request, self._context)

    def _spend(self, usage: Usage, model: str = "") -> None:
        """Put a request on the bills: of this turn, and of the conversation.

        Args:
            model: which one answered: a hook may have chosen another one, or a recording plays.
        """
        model, emit = model or self._context.config.model, self._context.emit
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
        emit = self._context.emit
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


def _can_be_sent(item: Item) -> bool:
    """Whether an item may stand in the history: a provider refuses a call without an id."""
    return not isinstance(item, CALL_TYPES) or bool(item.call_id)


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
