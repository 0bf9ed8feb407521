"""Builds the blocks of sub-agents: a row each, with what it did below it, and their questions."""

from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.events import (
    ApprovalRequested,
    ElicitationRequested,
    QuestionResolved,
    SubAgentChanged,
)
from agent_magics.render.blocks.display import Blocks, DisplayBlock, notice_item
from agent_magics.render.describe import describe_form_answer, one_line, shorten

_DECIDED = {"approve": "approved", "deny": "denied", "abort": "stopped"}
_STATUS = {"completed": "completed", "failed": "failed", "stopped": "failed"}


class AgentBlocks:
    """The sub-agents whose work began in a turn; they may outlive it."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._rows: dict[str, tuple[DisplayBlock, list[str]]] = {}
        self._questions: dict[str, tuple[DisplayBlock, bool]] = {}

    @property
    def going_on(self) -> list[DisplayBlock]:
        """The blocks of those at work."""
        return [block for block, _ in self._rows.values()]

    def begin_question(self, event: ApprovalRequested | ElicitationRequested) -> DisplayBlock:
        """Add a line for a question of a sub-agent, whose call has no block in this turn."""
        if is_form := isinstance(event, ElicitationRequested):
            said = event.message
        else:
            said = f"{event.reason}: {event.tool} {event.target}"
        block = self._blocks.begin(f"call:{event.call_id}", notice_item(one_line(said)))
        self._questions[event.question_id] = block, is_form
        return block

    def end_question(self, event: QuestionResolved) -> list[DisplayBlock]:
        """Add the answer to the line of a question, where it is one of a sub-agent."""
        if event.question_id not in self._questions:
            return []
        block, is_form = self._questions.pop(event.question_id)
        if is_form:
            how = describe_form_answer(event)
        else:
            by = {"policy": "", "beforehand": " beforehand"}.get(event.by, f" by the {event.by}")
            decision = "approve" if event.decision.startswith("approve") else event.decision
            how = f"{_DECIDED.get(decision, 'not answered')}{by}"
        block.item["text"] = f"{block.item['text']} ({how})"
        block.done = True
        return [block]

    def follow(self, event: SubAgentChanged) -> list[DisplayBlock]:
        """Show what a sub-agent does now, and at its end what it did and said."""
        row = self._rows.get(event.sub_agent)
        if row is None:
            key, title = f"agent:{event.sub_agent}", one_line(event.task)
            block = self._blocks.begin_call(key, event.sub_agent, title, "", "text")
            row = self._rows[event.sub_agent] = block, []
        block, steps = row
        steps.extend(event.steps)
        block.item["note"] = "" if event.is_over else _progress(event)
        block.item["stop"] = event.conversation
        if event.is_over:
            del block.item["stop"]  # of one at work; a saved row has no button
            del self._rows[event.sub_agent]
            block.item["status"], block.done = _STATUS[event.status], True
            if event.status == "stopped":
                block.item["note"] = "stopped"
        words = [event.text] if event.text else []
        block.item["output"] = shorten("\n".join([*(f"- {step}" for step in steps), *words]))
        return [block]


def _progress(event: SubAgentChanged) -> str:
    """Return what it has spent so far; such numbers are not saved."""
    if event.status == "queued":
        return "waits for a place"
    cost = "" if event.cost is None else f", {dollars(event.cost)}"
    return f"{event.seconds:.0f} s, {event.tokens:,} tokens{cost}" if event.tokens else ""
