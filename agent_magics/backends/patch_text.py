"""One text of a file in place of another: the exact form of a change, beside chunks of lines.

Law: the old text is the whole file or stands in it exactly once; nothing is guessed. As in every
patch, line ends belong to the file, and a last line that is changed gets one.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from agent_magics.backends.patch_files import TextFile
from agent_magics.backends.patch_match import Edit
from agent_magics.protocol.errors import RespondToModel

_MOST_PLACES = 8  # that are named


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Put `new` in place of `old`; an empty `old` stands for a file that is not there or empty."""

    path: str
    old: str
    new: str
    line: int = 1

    @property
    def new_lines(self) -> tuple[str, ...]:
        """The lines of `new`, for a file that holds nothing else."""
        return tuple(_plain(self.new).removesuffix("\n").split("\n")) if self.new else ()


def read_replacement(path: str, old: str, new: str) -> ReplaceText:
    """Return the operation, checked as far as that goes without the file.

    Raises:
        RespondToModel: no text file can hold `new`.
    """
    if "\0" in new:
        raise RespondToModel("updated_content holds a NUL character, and only text can be patched.")
    try:
        new.encode("utf-8")
    except UnicodeEncodeError:
        raise RespondToModel(
            "updated_content holds half of a surrogate pair, which no text file can hold."
        ) from None
    return ReplaceText(path, old, new)


def replace_text(text: TextFile, operation: ReplaceText) -> list[Edit]:
    """Return the edits of whole lines that `operation` comes to.

    Raises:
        RespondToModel: the old text is not there, or in several places.
    """
    lines = text.lines
    whole = "\n".join(lines) + ("\n" if lines and text.terminated else "")
    old, new = _plain(operation.old), _plain(operation.new)
    at = _find_once(whole, old)
    end = at + len(old)
    start = whole.rfind("\n", 0, at) + 1
    line_end = whole.find("\n", end)
    stop = len(whole) if line_end < 0 else line_end + 1
    wanted = whole[start:at] + new + whole[end:stop]
    first = whole.count("\n", 0, start)
    edits = differences(_lines_of(whole[start:stop]), _lines_of(wanted), first)
    last = len(lines)
    ends_last_line = stop == len(whole) and wanted.endswith("\n") and not text.terminated
    if ends_last_line and not (edits and edits[-1].end == last):
        edits.append(Edit(last - 1, last, (lines[-1],)))
    return edits


def differences(old: Sequence[str], new: Sequence[str], first: int = 0) -> list[Edit]:
    """Return the edits that turn lines `old` into `new`; `first` is where `old` starts."""
    codes = difflib.SequenceMatcher(None, old, new).get_opcodes()
    return [
        Edit(first + i, first + j, tuple(new[k:m])) for tag, i, j, k, m in codes if tag != "equal"
    ]


def _find_once(whole: str, old: str) -> int:
    if not old:
        if whole:
            raise RespondToModel(
                "it is there already and not empty; give the text to replace in original_content"
            )
        return 0
    places: list[int] = []
    at = whole.find(old)
    while at >= 0 and len(places) <= _MOST_PLACES:
        places.append(whole.count("\n", 0, at) + 1)
        at = whole.find(old, at + 1)
    if not places:
        raise RespondToModel(
            "original_content is not in it, exactly as given; read the file again and copy the "
            "text to replace"
        )
    if len(places) > 1:
        named = ", ".join(map(str, places[:_MOST_PLACES]))
        more = " and more" if len(places) > _MOST_PLACES else ""
        raise RespondToModel(
            f"original_content stands in several places of it, at lines {named}{more}; give more "
            "of the text around the one you mean"
        )
    return whole.find(old)


def _plain(content: str) -> str:
    """Return `content` without the carriage returns that are part of line ends."""
    return "\n".join(line.removesuffix("\r") for line in content.split("\n"))


def _lines_of(text: str) -> list[str]:
    """Return the lines of `text`; a line end at its end starts no line."""
    return text.removesuffix("\n").split("\n") if text else []
