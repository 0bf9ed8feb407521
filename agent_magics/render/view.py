"""Folds events into the view of a turn: pure, without I/O, for any front end.

The picture is a list of blocks in the order in which they began. A block is the JSON object that
is saved in the notebook (`application/vnd.agent-magics.item+json`), and whether it will change
still. Nothing volatile (ids, times, durations) goes into it.
"""

from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol import events
from agent_magics.protocol.items import AssistantMessage, Json
from agent_magics.render.blocks.agents import AgentBlocks
from agent_magics.render.blocks.calls import CallBlocks
from agent_magics.render.blocks.commands import CommandBlocks
from agent_magics.render.blocks.display import VERSION, Blocks, DisplayBlock, notice_item
from agent_magics.render.blocks.speech import Speech
from agent_magics.render.blocks.waiting import Wait
from agent_magics.render.diffs.changes import changes_item, same_lines

# The key of the block that shows the wait before a retry.
WAIT = "wait"
# Events that show that a retried request is being answered.
_AFTER_THOUGHTS = (
    events.TextDelta,
    events.ItemCompleted,
    events.ToolCallPending,
    events.TokensCounted,
)
_ANSWERS = (events.ReasoningDelta, *_AFTER_THOUGHTS)


# No numbers: they depend on the lengths of paths, and nbval would compare them.
SUMMARISED = "The conversation had become long: a summary stands for its older part from here on."
PRUNED = "The conversation had become long: old tool outputs are not sent any more."


class TurnView:
    """The blocks of one turn."""

    def __init__(self) -> None:
        self.blocks = Blocks()
        self._speech = Speech(self.blocks)
        self._calls = CallBlocks(self.blocks)
        self._commands = CommandBlocks(self.blocks, self._calls)
        self._agents = AgentBlocks(self.blocks)
        self._plan: DisplayBlock | None = None
        self._wait: tuple[DisplayBlock, Wait] | None = None
        self._diff: events.TurnDiffUpdated | None = None

    @property
    def waits(self) -> bool:
        """Whether a request has failed and its retry has not been answered yet."""
        return self._wait is not None

    def count_down(self, seconds: float) -> list[DisplayBlock]:
        """Update the countdown to the retry of a failed request.

        Args:
            seconds: time from now.

        Returns:
            The block that has changed, if one has.
        """
        if self._wait is None:
            return []
        block, wait = self._wait
        return [block] if wait.count_down(seconds) else []

    def apply(self, event: events.Event) -> list[DisplayBlock]:
        """Apply an event, and return the blocks that are new or changed."""
        if isinstance(event, events.TurnDiffUpdated):
            self._diff = event  # it is shown at the turn's end
            return []
        ended: list[DisplayBlock] = []
        if self._wait is not None and isinstance(event, _ANSWERS):
            ended = self._end_wait("answered")
        if isinstance(event, _AFTER_THOUGHTS):
            ended += self._speech.end_thoughts()
        return [*ended, *self._apply(event)]

    def _apply(self, event: events.Event) -> list[DisplayBlock]:
        match event:
            case events.TextDelta(text=text):
                return [self._speech.add_text(text)]
            case events.ReasoningDelta(text=text):
                return [self._speech.add_thought(text)]
            case events.ItemCompleted(item=AssistantMessage() as message):
                return self._speech.end_text(message)
            case events.ToolCallPending():
                return self._calls.begin_call(event)
            case events.ToolCallChanged() | events.ToolCallRunning() | events.ToolCallUpdated():
                return self._calls.show_progress(event)
            case events.ToolCallCompleted() | events.ToolCallFailed():
                return self._calls.end_call(event)
            case (
                events.ExecCommandBegin()
                | events.ExecCommandOutputDelta()
                | events.ExecCommandEnd()
            ):
                return self._commands.follow(event)
            case events.PatchApplyEnd() | events.LiveOutput() | events.NamespaceChanged():
                return self._calls.show_work(event)
            case events.Question() | events.QuestionResolved():
                return self._follow_question(event)
        return self._show_turn(event)

    def _follow_question(
        self, event: events.Question | events.QuestionResolved
    ) -> list[DisplayBlock]:
        match event:
            case events.QuestionResolved() if ended := self._agents.end_question(event):
                return ended
            case events.ApprovalRequested() | events.ElicitationRequested() if (
                not self._calls.running(event.call_id)
            ):
                return [self._agents.begin_question(event)]
        return self._calls.follow_question(event)

    # -- the turn itself -------------------------------------------------------------------------

    def _show_plan(self, event: events.PlanUpdated) -> list[DisplayBlock]:
        ended = []
        if self._plan is not None and self._calls.proposes:  # the new one stands at its question
            self._plan.done = True
            ended, self._plan = [self._plan], None
        if self._plan is None:
            self._plan = self.blocks.begin("plan", {})
        self._plan.item = {
            "version": VERSION,
            "kind": "plan",
            "steps": [
                {"id": step.id, "description": step.description, "status": step.status}
                for step in event.steps
            ],
            "explanation": event.explanation,
        }
        return [*ended, self._plan, *self._calls.open_proposals()]

    def _show_turn(self, event: events.Event) -> list[DisplayBlock]:
        match event:
            case events.TurnStarted(output=kind):
                self._speech.is_typed = bool(kind)
            case events.PlanUpdated():
                return self._show_plan(event)
            case events.SubAgentChanged():
                return self._agents.follow(event)
            case events.TurnCompleted():
                return [*self._end_open(), *self._show_changes(), *self._show_usage(event)]
            case events.TurnAborted() | events.TurnFailed():
                return self._show_failure(event)
            case events.Warned(message=message):
                return [self.blocks.add_notice("warning", message)]
            case events.ModelRetry():
                return [self._show_wait(event)]
        notice = _notice_of(event)
        return [self.blocks.add_notice("info", notice)] if notice else []

    def _show_failure(self, event: events.TurnAborted | events.TurnFailed) -> list[DisplayBlock]:
        if isinstance(event, events.TurnAborted):
            level, text = "warning", f"{event.reason[:1].upper()}{event.reason[1:]}."
        else:
            level, text = "error", event.error
        blocks = [
            *self._end_wait("failed" if level == "error" else "stopped"),
            *self._end_open(),
            *self._show_changes(),
        ]
        return [*blocks, self.blocks.add_notice(level, text)]

    def _show_changes(self) -> list[DisplayBlock]:
        """Show the turn's changes in files at its end, without a diff that a patch has shown."""
        if self._diff is None or not self._diff.files:
            return []
        shown = [block for block in self.blocks if block.item.get("diff")]
        alone = len(shown) == 1 and same_lines(str(shown[0].item["diff"]), self._diff.diff)
        return [self.blocks.begin("changes", changes_item(self._diff, bare=alone), done=True)]

    def _show_usage(self, event: events.TurnCompleted) -> list[DisplayBlock]:
        usage = event.usage
        if not (usage.input_tokens or usage.output_tokens):
            return []
        cost = f"price of {event.unpriced} not known" if event.unpriced else "cost not known"
        item: dict[str, Json] = {
            "kind": "usage",
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "requests": event.requests,
            "cost": cost if event.cost is None else dollars(event.cost),
        }
        return [self.blocks.begin("usage", item, done=True)]

    def _show_wait(self, event: events.ModelRetry) -> DisplayBlock:
        if self._wait is None:
            block = self.blocks.begin(WAIT, notice_item("", "warning"))
            self._wait = block, Wait(block.item)
        block, wait = self._wait
        wait.begin(event)
        return block

    def _end_wait(self, how: str) -> list[DisplayBlock]:
        if self._wait is None:
            return []
        (block, wait), self._wait = self._wait, None
        wait.end(how)
        block.done = True
        return [block]

    def _end_open(self) -> list[DisplayBlock]:
        """End all blocks but those of sessions and sub-agents, since the turn is over."""
        going_on = [*self._commands.going_on, *self._agents.going_on]
        ended = [block for block in self.blocks if not block.done and block not in going_on]
        self._calls.end()
        self._speech.end()
        for block in ended:
            block.done = True
        return ended


def _notice_of(event: events.Event) -> str:
    """Return the notice that people get of an event, "" for none."""
    match event:
        case events.ModelInformed(shown=shown):
            return shown
        case events.PromptAdded(text=text):
            return f"You added: {text}"
        case events.McpServerChanged(status="failed" | "needs login", message=message):
            return message
        case events.HistoryCompacted(summary=summary):
            return SUMMARISED if summary else PRUNED
    return ""
