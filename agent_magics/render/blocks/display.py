"""Defines a display block, and the list of a turn's blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_magics.protocol.items import Json
from agent_magics.render.blocks.frames import TABLE, frame_item
from agent_magics.render.visible import show_hidden

VERSION = 1


def notice_item(text: str, level: str = "info") -> dict[str, Json]:
    """Return a notice, one sentence of the level "info", "warning" or "error", as it is saved.

    It may quote names and words of others, of which nothing stays hidden.
    """
    return {"version": VERSION, "kind": "notice", "level": level, "text": show_hidden(text)}


@dataclass(slots=True)
class DisplayBlock:
    """One block of the display.

    Attributes:
        key: identifies the block within the turn; not saved.
        item: the saved form; of a rich output the alternative text of its picture.
        data: a rich output such as a figure.
        done: whether it will not change any more.
    """

    key: str
    item: dict[str, Json] = field(default_factory=dict)
    data: Mapping[str, Json] | None = None
    done: bool = False

    @property
    def kind(self) -> str:
        """The item's kind, or "rich"."""
        return str(self.item.get("kind", "rich"))

    @property
    def is_call(self) -> bool:
        """Whether it shows a tool call, and no session or sub-agent."""
        return self.key.startswith("call:")

    @property
    def number(self) -> int:
        """Its place among the blocks of the turn."""
        return int(self.key.rpartition("#")[2])


class Blocks(list[DisplayBlock]):
    """The blocks of one turn, in the order in which they began."""

    def begin(self, key: str, item: dict[str, Json], *, done: bool = False) -> DisplayBlock:
        """Add a block.

        Args:
            key: the subject; blocks may share one.
            item: its saved form, without the version.
            done: whether it will not change any more.
        """
        saved: dict[str, Json] = {"version": VERSION, **item} if item else {}
        block = DisplayBlock(f"{key}#{len(self)}", saved, done=done)
        self.append(block)
        return block

    def begin_call(
        self, key: str, name: str, title: str, arguments: str, language: str
    ) -> DisplayBlock:
        """Add the block of a call, or of a command, that begins."""
        return self.begin(
            key,
            {
                "kind": "tool",
                "name": name,
                "title": title,
                "status": "running",
                "arguments": arguments,
                "language": language,
                "output": "",
                "exit_code": None,
                "note": "",
            },
        )

    def add_notice(self, level: str, text: str) -> DisplayBlock:
        """Add a notice: one sentence of the level "info", "warning" or "error"."""
        return self.begin("notice", notice_item(text, level), done=True)

    def add_rich(self, data: Mapping[str, Json], alt: str) -> DisplayBlock:
        """Add a rich output such as a figure.

        Args:
            data: its MIME bundle.
            alt: the alternative text of a picture.
        """
        if isinstance(table := data.get(TABLE), Mapping):
            return self.begin("rich", frame_item(table), done=True)
        is_picture = any(mime.startswith("image/") for mime in data)
        item: dict[str, Json] = {"kind": "picture", "alt": alt} if is_picture else {}
        block = self.begin("rich", item, done=True)
        block.data = data
        return block


def add_note(block: DisplayBlock, *texts: str) -> None:
    """Append texts to the note of a call's block."""
    block.item["note"] = "; ".join(filter(None, (str(block.item["note"]), *texts)))
