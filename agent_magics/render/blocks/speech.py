"""Builds the blocks of the model's text and reasoning."""

from agent_magics.protocol.items import AssistantMessage, Json
from agent_magics.render.blocks.display import Blocks, DisplayBlock
from agent_magics.render.describe import SAVED_CHARACTERS, ending, json_as_code
from agent_magics.render.sources import sources_of


class Speech:
    """The text and the reasoning of one turn's answers.

    Attributes:
        is_typed: whether the answer is JSON of a requested type.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._text: DisplayBlock | None = None
        self._thoughts: DisplayBlock | None = None
        self.is_typed = False

    def add_text(self, text: str) -> DisplayBlock:
        """Show the next piece of the answer."""
        if self._text is None:
            self._text = self._blocks.begin("text", {"kind": "text", "text": ""})
        self._text.item["text"] = str(self._text.item["text"]) + text
        return self._text

    def end_text(self, message: AssistantMessage) -> list[DisplayBlock]:
        """Replace the pieces of a message by the complete one."""
        if not message.text.strip() and self._text is None:
            return []
        block = self._text or self._blocks.begin("text", {"kind": "text", "text": ""})
        text = json_as_code(message.text) if self.is_typed else message.text
        block.item["text"], block.done = text, True
        sources = sources_of(message.citations)
        if sources:
            block.item["sources"] = sources
        self._text = None
        return [block]

    def add_thought(self, text: str) -> DisplayBlock:
        """Show the next piece of the reasoning; of a long one, the end."""
        if self._thoughts is None:
            item: dict[str, Json] = {"kind": "reasoning", "text": "", "left_out": 0}
            self._thoughts = self._blocks.begin("reasoning", item)
        item = self._thoughts.item
        whole = str(item["text"]) + text
        kept = ending(whole, SAVED_CHARACTERS) if len(whole) > SAVED_CHARACTERS else whole
        item["text"] = kept
        item["left_out"] = int(str(item["left_out"])) + len(whole) - len(kept)
        return self._thoughts

    def end_thoughts(self) -> list[DisplayBlock]:
        """End the reasoning, since the answer has begun; return its block, if there is one."""
        block, self._thoughts = self._thoughts, None
        if block is None:
            return []
        block.done = True
        return [block]

    def end(self) -> None:
        """End the turn."""
        self._text = self._thoughts = None
