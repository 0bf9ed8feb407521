"""Asks through a model's client, as a turn does: recordings, scripts, and any provider."""

import asyncio
from contextlib import aclosing

from agent_magics.engine.context.history import History
from agent_magics.engine.cost import cost_of
from agent_magics.models.base import ContextOverflow, ItemDone, Model, ModelRequest, ResponseDone
from agent_magics.models.faults import Fault
from agent_magics.protocol.errors import FatalError, short_message, typed_message
from agent_magics.protocol.items import AssistantMessage, Content, Usage, text_of
from agent_magics.rows.asking import Pace, RowAnswer, RowQuestion

# The package's client needs 2 ms of a processor an answer, so more would only wait.
AT_ONCE = 64


class ModelAsker:
    """Asks a `Model`, some questions side by side; its client retries.

    Args:
        model: the client, which others may use too and which is not closed here.
        at_once: the most questions side by side; None means `AT_ONCE`.
    """

    def __init__(self, model: Model, at_once: int | None = None) -> None:
        self._model = model
        self._allowed = at_once or AT_ONCE
        self._is_chosen = at_once is not None
        self._places = asyncio.Semaphore(self._allowed)
        self._in_flight = 0

    async def ask(self, question: RowQuestion) -> RowAnswer:
        """See `Asker.ask`."""
        async with self._places:
            self._in_flight += 1
            try:
                await asyncio.sleep(0)  # a recording answers at once: the others get their turn
                return await self._ask(question)
            except ContextOverflow as error:
                return RowAnswer(error=short_message(error), kind="too long")
            except Fault as fault:
                return RowAnswer(error=short_message(fault), kind=fault.reason)
            except FatalError as error:
                return RowAnswer(error=short_message(error), kind="no answer")
            except Exception as error:  # a program's own model may raise anything
                return RowAnswer(error=typed_message(error), kind=type(error).__name__)
            finally:
                self._in_flight -= 1

    async def _ask(self, question: RowQuestion) -> RowAnswer:
        terms, first = question.terms, question.items[0]
        history = History()
        history.extend(question.items)
        content: Content = getattr(first, "content", "")
        request = ModelRequest(
            model=terms.model,
            instructions=terms.instructions,
            history=history,
            tools=(),
            prompt=text_of(content),
            number=(len(question.items) + 1) // 2,
            conversation=terms.name,
            service_tier=terms.service_tier,
            reasoning_summary=terms.reasoning_summary,
            output_schema=terms.schema,
        )
        texts, usage, finish = [], Usage(), "completed"
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ItemDone(AssistantMessage(text=text)):
                        texts.append(text)
                    case ResponseDone():
                        usage, finish = event.usage, event.finish
        model = getattr(self._model, "answered_by", "") or terms.model
        cost = cost_of(model, usage)
        if finish != "completed":
            error = f"The answer is not whole ({finish})."
            return RowAnswer(usage=usage, cost=cost, error=error, kind=finish)
        return RowAnswer("\n\n".join(texts), usage, cost)

    def stop(self) -> None:
        """Do nothing: a map asks no more than are sent at once."""

    def pace(self) -> Pace:
        """See `Asker.pace`."""
        full = self._in_flight >= self._allowed
        limit = "your limit" if self._is_chosen else "our client"
        return Pace(self._in_flight, self._allowed, limit if full else "")

    async def close(self) -> None:
        """Do nothing: the model belongs to the agent."""
