"""Makes requests to the model and collects their responses, usage and cost."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from agent_magics.dispatch.context import TurnContext
from agent_magics.engine.arriving import ArrivingCall, DeltaBuffer, WebSearches
from agent_magics.engine.budget import Budget
from agent_magics.engine.context.compaction import Compaction
from agent_magics.engine.context.history import History
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.instructions import compose_instructions
from agent_magics.engine.results.structured import OutputType
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.models.base import (
    CallChunk,
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
    ToolsWanted,
)
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.events import (
    ItemCompleted,
    ModelRetry,
    ReasoningDelta,
    TextDelta,
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

ASIDE = "(A question of an MCP server.)"
STILL_TOO_LONG = "Even after its older part was left out:"


@dataclass(slots=True)
class Response:
    """The items and the usage of one response; `place` is the index of its first item."""

    place: int = 0
    items: list[Item] = field(default_factory=list)
    usage: Usage = Usage()
    finish: Finish = "completed"

    @property
    def calls(self) -> list[CallItem]:
        """The tool calls, in the model's order."""
        return [item for item in self.items if isinstance(item, CALL_TYPES)]

    @property
    def text(self) -> str:
        """The text of the model's messages."""
        texts = (item.text for item in self.items if isinstance(item, AssistantMessage))
        return "\n\n".join(filter(None, texts))


class ModelCaller:
    """Makes the model requests of one turn.

    Args:
        context: the turn's context; its `emit` stamps events with the turn's id.
        model: the client.
        conversation: gets the responses, and is charged for the requests.
        turn_config: the turn's configuration: its tools, its hooks, and the agent that it works
            for, within whose budgets the request for a summary must fit, too.

    Attributes:
        budget: the budgets of the run, and what it has spent.
        requests: the number of requests, without those for summaries of the conversation.
    """

    def __init__(
        self,
        context: TurnContext,
        model: Model,
        conversation: Conversation,
        turn_config: TurnConfig,
    ) -> None:
        self._context = context
        self._model = model
        self._conversation = conversation
        self._history = conversation.history
        self._turn_config = turn_config
        self.budget = Budget(context.config, context.emit, hard=turn_config.parent is not None)
        self.requests = 0
        self._asides = 0
        self._arriving = ArrivingCall(context.emit)

    @cached_property  # a call alone needs none
    def compaction(self) -> Compaction:
        """Shortens the conversation where it has become too long."""
        return Compaction(
            self._context,
            self._model,
            self._history,
            self._conversation.meter,
            plan=lambda: self._conversation.plan,
            prepare=self._prepare,
            spent=self._spend,
        )

    @property
    def is_used_up(self) -> bool:
        """Whether the budget allows no further request but the one for a summary."""
        return self.budget.is_used_up(self.requests)

    async def ask(
        self,
        prompt: str,
        *,
        is_last: bool = False,
        bare: bool = False,
        output: OutputType | None = None,
    ) -> Response:
        """Request the model's next response.

        A server may refuse calls of the past without tools, or tools that must not be called (both
        of them Bedrock, behind LiteLLM's proxy). Then the request is made again with tools that may
        be; the caller does not run them.

        Args:
            prompt: the text that began the turn.
            is_last: whether tools are listed but must not be called.
            bare: whether no tools are listed.
            output: the type of the final answer.

        Raises:
            FatalError: there is no response; the sentence says why.
        """
        self.requests += 1
        once = partial(self._ask_once, prompt, is_last=is_last, bare=bare, output=output)
        try:
            return await self._ask_with_room(prompt, once)
        except ToolsWanted:
            if not (bare or is_last):
                raise
        once = partial(self._ask_once, prompt, is_last=False, bare=False, output=output)
        return await self._ask_with_room(prompt, once)

    async def _ask_with_room(
        self, prompt: str, once: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Make a request; where the context overflows, shorten it and make it once more."""
        try:
            return await once()
        except ContextOverflow as overflow:
            await self.compaction.recover(prompt, overflow)
        try:
            return await once()
        except ContextOverflow as overflow:
            raise FatalError(f"{STILL_TOO_LONG} {short_message(overflow)}") from None

    async def answer(
        self, instructions: str, messages: Sequence[tuple[str, str]], most_tokens: int
    ) -> str:
        """Make a request apart from the conversation, and return the text of the answer.

        Args:
            instructions: for the model.
            messages: (role, text), "assistant" or "user".
            most_tokens: the most tokens of the answer; a longer one is cut, at about four
                characters a token.

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
        texts: list[str] = []
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ItemDone(AssistantMessage(text=words)):
                        texts.append(words)
                    case ResponseDone(usage):
                        self._spend(usage)
        return "\n\n".join(texts)[: most_tokens * 4]

    async def _ask_once(
        self, prompt: str, *, is_last: bool, bare: bool, output: OutputType | None
    ) -> Response:
        config = self._context.config
        features = config.features
        offered = self._turn_config.offer.now().specs(self._context.found)
        with_python = any(each.spec.name == "python" for each in offered)
        instructions = compose_instructions(config, with_python=with_python)
        request = ModelRequest(
            model=config.model,
            instructions=instructions + (output.instructions if output else ""),
            history=self._history,
            tools=() if bare else offered,
            prompt=prompt,
            number=self.requests,
            conversation=self._context.session_id,
            tool_choice="none" if is_last else "auto",
            service_tier=features.get("service_tier", ""),
            reasoning_summary=features.get("reasoning_summary", ""),
            output_schema=output.schema if output else None,
            turn=self._context.turn_id,
        )
        request = await self._prepare(request)
        response = Response(len(self._history.items))
        deltas = DeltaBuffer(self._context.emit)
        searches = WebSearches(self._context.emit, self.requests)
        self._arriving.end()
        try:
            # Closed at once, also on interrupt: the connection must not wait for the collector.
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    self._receive(event, response, deltas, searches)
        finally:
            deltas.flush()
            searches.close()
        self._conversation.meter.measure(response.usage)
        self._spend(response.usage, getattr(self._model, "answered_by", "") or request.model)
        return response

    async def _prepare(self, request: ModelRequest) -> ModelRequest:
        """Let hooks see and change a request."""
        hooks = self._turn_config.hooks
        return request if hooks is None else await hooks.before_model(request, self._context)

    def _spend(self, usage: Usage, model: str = "") -> None:
        """Add a request's usage to the spending of the turn and of the conversation.

        Args:
            usage: the tokens of the request.
            model: the model that answered, where a hook or a recording has chosen another one.
        """
        model = model or self._context.config.model
        self._conversation.charge(model, usage)
        if self._turn_config.parent is not None:
            self._turn_config.parent.charge(model, usage)
        self.budget.add(model, usage)

    def _receive(
        self,
        event: object,
        response: Response,
        deltas: DeltaBuffer,
        searches: WebSearches,
    ) -> None:
        emit = self._context.emit
        match event:
            case TextChunk(text):
                deltas.add(TextDelta, text)
            case ReasoningChunk(text):
                deltas.add(ReasoningDelta, text)
            case CallChunk():
                self._arriving.add(event)
            case ItemDone(item):
                self._arriving.end()
                deltas.flush()
                item = self._identified(item, response)
                response.items.append(item)
                # At once: what was shown stays, also on interrupt, and its calls are answered.
                if _can_be_sent(item):
                    self._history.append(item)
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
        """Return a call with an id that is unique in this response.

        Servers omit ids or repeat them; providers refuse a history with such calls. A native shell
        call without an id stays without: it is never run.
        """
        if not isinstance(item, CALL_TYPES):
            return item
        if isinstance(item, LocalShellCall) and not item.call_id:
            return replace(item, call_id=None)
        taken = {call.call_id for call in response.calls}
        if item.call_id and item.call_id not in taken:
            return item
        # By where it stands in the conversation, so that a replay makes the same ids again.
        base = item.call_id or f"call_{response.place}"
        ids = (f"{base}_{number}" for number in itertools.count(2 if item.call_id else 1))
        return replace(item, call_id=next(each for each in ids if each not in taken))


def _can_be_sent(item: Item) -> bool:
    """Return whether an item may stand in the history: providers refuse calls without an id."""
    return not isinstance(item, CALL_TYPES) or bool(item.call_id)
