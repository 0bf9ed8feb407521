"""Runs the tool loop: asks the model, runs its calls, returns their outputs, until none is left."""

import asyncio
import json
from collections.abc import Collection, Sequence
from typing import Any

from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.pipeline import ToolCallRuntime
from agent_magics.dispatch.turn import SubAgents
from agent_magics.engine.budget import NO_SUMMARY, NO_VALUE, NOT_CALLED, REACHED, SUMMARY
from agent_magics.engine.channels.additions import Additions
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.model_request import ModelCaller, Response
from agent_magics.engine.notifications import report_repetition
from agent_magics.engine.repetition.detector import say_once
from agent_magics.engine.results.structured import REPAIR, REPAIR_SHOWN, OutputType, UnfitAnswer
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.protocol.errors import FatalError, RespondToModel, clause, full_message
from agent_magics.protocol.events import ModelInformed, PromptAdded, Warned
from agent_magics.protocol.items import (
    CallItem,
    ToolCallOutput,
    UserMessage,
    output_kind_of,
    text_of,
)
from agent_magics.protocol.tools import FunctionPayload, ToolCall, ToolOutput

# Why a response ended early -> the output of its calls, none of which is run.
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
# The same as a sentence for the person, where it was the final answer.
CUT_SHORT = {
    "length": "The answer was cut off at the output token limit.",
    "content_filter": "The provider's content filter ended the answer.",
    "incomplete": "The provider ended the answer before it was complete.",
}
NO_MORE = "Not run: no more tools run in this turn."
ENDED = "the turn that started this code has ended; nobody can be asked."
STEERED = "Not run: the person added a message."


class Turn:
    """One prompt and all requests and calls that follow from it.

    Args:
        context: the data that the turn's tools share; its `emit` stamps events with the turn's id.
        model_caller: makes the model requests.
        runtime: takes calls through their stages.
        conversation: gets the items, and holds the notifications for the model.
        additions: messages and prompts that the person adds meanwhile.
        turn_config: the turn's configuration.

    Attributes:
        agents: the agent's sub-agents; None where it may have none.
        is_over: whether it has ended, so that nobody would answer a call.
    """

    def __init__(
        self,
        context: TurnContext,
        model_caller: ModelCaller,
        runtime: ToolCallRuntime,
        conversation: Conversation,
        additions: Additions,
        turn_config: TurnConfig,
    ) -> None:
        self.context = context
        self.model_caller = model_caller
        self._runtime = runtime
        self._conversation = conversation
        self._history = conversation.history
        self._loops = conversation.loops
        self._additions = additions
        self._turn_config = turn_config
        self._output = turn_config.output
        self._nested = 0
        self.agents: SubAgents | None = None
        self.is_over = False

    async def run(self, prompt: UserMessage) -> str:
        """Run to the model's final answer, also on prompts that were queued; return it.

        Args:
            prompt: the person's message.

        Raises:
            FatalError: only the person can help.
            TurnAbort: the person ended the turn at a question.
        """
        following: UserMessage | None = prompt
        while following is not None:
            if following is not prompt:
                self._emit_added([following])
            text = await self._answer(following)
            is_over = bool(self.model_caller.budget.reached)
            following = None if is_over else self._additions.take_next()
        return text

    async def _answer(self, prompt: UserMessage) -> str:
        """Return the model's final answer to one prompt."""
        self.add_notifications()  # notifications since the last turn precede the prompt
        self._history.append(prompt)
        self._loops.begin_turn()
        text = text_of(prompt.content)
        while True:
            if self.model_caller.is_used_up:
                return await self._wind_up(text)
            self.add_notifications()
            await self.model_caller.compaction.make_room(text)
            is_last = self._loops.denied
            asking = self.model_caller.ask(text, is_last=is_last, output=self._output)
            # A call that a tool has left behind may end the turn meanwhile.
            response = await self.context.stop.watch("", asking)
            if response.calls and response.finish != "completed":
                self._history.close_open_calls(NOT_RUN.get(response.finish, NOT_RUN["incomplete"]))
            elif response.calls and is_last:
                self._history.close_open_calls(NO_MORE)
            elif response.calls:
                self._loops.record_text(response.text)
                await self._run_calls(response.calls)
            # The last word hears no more of the person's: these begin another prompt.
            if is_last or not (self._take_words() or response.calls):
                return await self._last_word(response, text)

    def _take_words(self) -> bool:
        """Add the person's messages to the history; return whether there were any."""
        messages = self._additions.take_words()
        self._emit_added(messages)
        self._history.extend(messages)
        return bool(messages)

    def _emit_added(self, messages: Sequence[UserMessage]) -> None:
        for each in messages:
            self.context.emit(PromptAdded, text=text_of(each.content))

    def add_notifications(self) -> None:
        """Add the notifications to the history, as one message that is not the person's."""
        notes = self._conversation.take_notifications(self._turn_config)
        notes += map(report_repetition, self._loops.take_notes())
        if notes:
            message = "\n".join(note.text for note in notes)
            self._history.append(UserMessage(message, role="developer"))
            shown = " ".join(note.shown for note in notes if note.shown)
            self.context.emit(ModelInformed, message=message, shown=shown)

    async def _wind_up(self, prompt: str) -> str:
        """End the run at its budget, with one more request, without tools, for a summary."""
        fill, emit = self.model_caller.budget.fill, self.context.emit
        emit(Warned, message=fill(REACHED))
        self._take_words()
        self._history.append(UserMessage(fill(SUMMARY), role="developer"))
        text, reason = "", ""
        caller = self.model_caller
        try:
            if not caller.budget.has_no_summary():
                text = (await caller.ask(prompt, bare=True)).text
        except FatalError as error:
            reason = f" ({clause(error)})"
        self._history.close_open_calls(fill(NOT_CALLED))
        if not text:
            emit(Warned, message=fill(NO_SUMMARY, reason))
        if self._output is not None:
            emit(Warned, message=fill(NO_VALUE))
        return text

    async def run_call(self, call: ToolCall) -> ToolOutput:
        """Run one call as if the model had made it, without a trace in the history."""
        return await self._runtime.run(call)

    async def call(self, name: str, arguments: object, parent_call_id: str | None) -> ToolOutput:
        """Run a call made inside another one: with the same checks, questions and events."""
        self._nested += 1
        call_id = f"{parent_call_id}.{self._nested}"
        payload = FunctionPayload(json.dumps(arguments, default=str))
        call = ToolCall(name, call_id, payload, parent_call_id)
        output = await self.context.stop.watch(call_id, self.run_call(call))
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
        """Return an answer of the requested type: `text`, or the model's one correction of it."""
        try:
            output.read(text)
            return text
        except RespondToModel as refusal:
            message = REPAIR.format(problems=full_message(refusal))
        self._history.append(UserMessage(message, role="developer"))
        shown = REPAIR_SHOWN.format(kind=output.name)
        self.context.emit(ModelInformed, message=message, shown=shown)
        # Without tools: some servers cannot hold a model to a schema and offer it tools.
        mended = (await self.model_caller.ask(prompt, bare=True, output=output)).text
        self._history.close_open_calls(NO_MORE)
        try:
            output.read(mended)
        except RespondToModel as refusal:
            raise UnfitAnswer(output.failure(full_message(refusal)), mended) from None
        return mended

    # -- the tools' side ------------------------------------------------------------------------

    async def _run_calls(self, items: Sequence[CallItem]) -> None:
        """Run the calls; outputs are added to the history in the order of the calls."""
        self._loops.arrived(items)
        tasks = [self._start(item) for item in items]
        if self._additions.words:
            self.skip_calls()
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            await cancel_all(tasks)
            raise
        finally:
            self._keep_finished(items, tasks)

    def skip_calls(self) -> None:
        """Answer the calls that have not begun with a note; the person's message comes first."""
        self._runtime.skip(STEERED)

    def _start(self, item: CallItem) -> "asyncio.Task[ToolOutput]":
        try:
            return self._runtime.start(self._runtime.router.build_tool_call(item))
        except RespondToModel as refusal:
            return asyncio.create_task(_refused(full_message(refusal)))

    def _keep_finished(
        self, items: Sequence[CallItem], tasks: Sequence["asyncio.Task[ToolOutput]"]
    ) -> None:
        for item, task in zip(items, tasks, strict=True):
            if task.done() and not task.cancelled() and task.exception() is None:
                content = task.result().content
                if item.call_id:
                    read = say_once(item, content, self._history)
                    self._history.append(ToolCallOutput(item.call_id, read, output_kind_of(item)))
                    self._loops.answered(item.call_id, content)
                else:  # a notification, since there is no call that it could answer
                    self._history.append(UserMessage(content, role="developer"))


async def _refused(reason: str) -> ToolOutput:
    return ToolOutput(reason, success=False)


async def cancel_all(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel tasks and wait until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
