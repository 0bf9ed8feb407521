"""Builds the blocks of sub-agents: one row each, with what it did unfolded below it."""

from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.events import SubAgentChanged
from agent_magics.render.blocks.display import Blocks, DisplayBlock
from agent_magics.render.describe import one_line, shorten

_STATUS = {"completed": "completed", "failed": "failed", "stopped": "failed"}


class AgentBlocks:
    """The sub-agents whose work began in a turn; they may outlive it."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._rows: dict[str, tuple[DisplayBlock, list[str]]] = {}

    @property
    def going_on(self) -> list[DisplayBlock]:
        """The blocks of those at work."""
        return [block for block, _ in self._rows.values()]

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
    return f"{event.seconds:.0f} s, {event.tokens:,} tokens{cost}"
