"""THE LOOP: ask the model, run its calls, give it their outputs, until it calls no more."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.parallel import ToolCallRuntime
from agent_magics.dispatch.router import ToolRouter
from agent_magics.engine.asking import Asker, Response
from agent_magics.engine.budget import NO_SUMMARY, NO_VALUE, NOT_CALLED, REACHED, SUMMARY
from agent_magics.engine.history import History, output_kind_of
from agent_magics.engine.loop_guard import LoopGuard
from agent_magics.engine.news import Note, told_of_circle
from agent_magics.engine.structured import REPAIR, REPAIR_SHOWN, OutputType, UnfitAnswer
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.events import (
    ModelInformed,
    Warned,
)
from agent_magics.protocol.items import (
    CallItem,
    ToolCallOutput,
    UserMessage,
    text_of,
)
from agent_magics.protocol.tools import FunctionPayload, ToolCall, ToolOutput

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


class Turn:
    """One prompt and everything that follows from it.

    Args:
        context: what the turn's tools share; its `emit` stamps events with the turn's id.
        asker: asks the model.
        router: runs its calls.
        history: the conversation.
        redact: takes keys out of what a tool's failure says.
        steered: returns (and forgets) what the person added since it was last called.
        news: returns (and forgets) what the model is to be told without having asked.
        loops: notices when the model goes round in circles; the router asks it, too.
        output: the type that the answer is to have; None is text.
    """

    def __init__(
        self,
        context: TurnContext,
        asker: Asker,
        router: ToolRouter,
        history: History,
        *,
        redact: Callable[[str], str] = str,
        steered: Callable[[], Sequence[UserMessage]] = tuple,
        news: Callable[[], Sequence[Note]] = tuple,
        loops: LoopGuard | None = None,
        output: OutputType | None = None,
    ) -> None:
        self.context = context
        self.asker = asker
        self._router = router
        self._history = history
        self._steered = steered
        self._news = news
        self._loops = loops or LoopGuard(context.config.loops)
        self._output = output
        self.runtime = ToolCallRuntime(router, context, redact)
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
            if self.asker.is_used_up:
                return await self._wind_up(words)
            self._tell_news()
            await self.asker.shortening.make_room(words)
            is_last = self._loops.denied
            response = await self.asker.ask(words, is_last=is_last, output=self._output)
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
        told, emit = self.asker.budget.told, self.context.emit
        emit(Warned, message=told(REACHED))
        self._history.extend(self._steered())
        self._history.append(UserMessage(told(SUMMARY), role="developer"))
        text, reason = "", ""
        try:
            text = (await self.asker.ask(prompt, bare=True)).text
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
        output = await self.run_call(ToolCall(name, call_id, payload, parent_call_id))
        self._loops.answered_to_code(name, payload.arguments, output.content)
        return output

    # -- the last word --------------------------------------------------------------------------

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
        mended = (await self.asker.ask(prompt, bare=True, output=output)).text
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


async def _refused(reason: str) -> ToolOutput:
    return ToolOutput(reason, success=False)


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Stop calls and wait until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
