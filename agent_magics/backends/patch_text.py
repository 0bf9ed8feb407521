"""One text of a file in place of another: the exact form of a change, beside chunks of lines.

Law: the old text is the whole file or stands in it exactly once; nothing is guessed. As in every
patch, line ends belong to the file, and a last line that is changed gets one.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from agent_magics.backends.patch_files import TextFile
from agent_magics.backends.patch_grammar import AddFile
from agent_magics.backends.patch_match import Edit
from agent_magics.protocol.errors import RespondToModel

_MOST_PLACES = 8  # that are named


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Put `new` in place of `old`; an empty `old` stands for a file that is not there or empty.

    Attributes:
        everywhere: in all its places; else there must be one.
        asked_as: what the argument for `old` is called, for messages.
    """

    path: str
    old: str
    new: str
    line: int = 1
    everywhere: bool = False
    asked_as: str = "original_content"

    @property
    def new_lines(self) -> tuple[str, ...]:
        """The lines of `new`, for a file that holds nothing else."""
        return tuple(_plain(self.new).removesuffix("\n").split("\n")) if self.new else ()


def read_replacement(
    path: str,
    old: str,
    new: str,
    *,
    everywhere: bool = False,
    names: tuple[str, str] = ("original_content", "updated_content"),
) -> ReplaceText:
    """Return the operation, checked as far as that goes without the file.

    Args:
        path: the file.
        old: the text to replace.
        new: what comes in its place.
        everywhere: in all places of `old`.
        names: what the arguments for `old` and `new` are called.

    Raises:
        RespondToModel: no text file can hold `new`.
    """
    check_text(names[1], new)
    return ReplaceText(path, old, new, everywhere=everywhere, asked_as=names[0])


def read_content(path: str, content: str) -> AddFile:
    """Return the operation that makes `content` the whole of a file.

    Raises:
        RespondToModel: no text file can hold it.
    """
    check_text("content", content)
    lines = content.removesuffix("\n").split("\n") if content else []
    return AddFile(path, tuple(lines), terminated=content.endswith("\n") or not content)


def check_text(name: str, content: str) -> None:
    """Refuse what no text file can hold.

    Args:
        name: what the argument is called.
        content: what is to be written.

    Raises:
        RespondToModel: there is a NUL or half a character in it.
    """
    if "\0" in content:
        raise RespondToModel(f"{name} holds a NUL character, and only text can be written.")
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise RespondToModel(
            f"{name} holds half of a surrogate pair, which no text file can hold."
        ) from None


def replace_text(text: TextFile, operation: ReplaceText) -> list[Edit]:
    """Return the edits of whole lines that `operation` comes to.

    Raises:
        RespondToModel: the old text is not there, or in several places.
    """
    lines = text.lines
    whole = "\n".join(lines) + ("\n" if lines and text.terminated else "")
    old, new = _plain(operation.old), _plain(operation.new)
    edits: list[Edit] = []
    first = seen = 0
    for start, stop in _spans(whole, old, operation):
        piece = whole[start:stop]
        wanted = piece.replace(old, new) if old else new
        first, seen = first + whole.count("\n", seen, start), start
        edits += differences(_lines_of(piece), _lines_of(wanted), first)
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


def _spans(whole: str, old: str, operation: ReplaceText) -> list[tuple[int, int]]:
    """Return where whole lines with `old` in them begin and end, as offsets, in order."""
    name = operation.asked_as
    if not old and whole:
        raise RespondToModel(
            f"it is there already and not empty; give the text to replace in {name}"
        )
    places = _places(whole, old) if old else [0]
    if not places:
        raise RespondToModel(
            f"{name} is not in it, exactly as given; read the file again and copy the text to "
            "replace"
        )
    if len(places) > 1 and not operation.everywhere:
        lines = [whole.count("\n", 0, at) + 1 for at in places[:_MOST_PLACES]]
        more = " and more" if len(places) > _MOST_PLACES else ""
        raise RespondToModel(
            f"{name} stands in several places of it, at lines {', '.join(map(str, lines))}{more}; "
            "give more of the text around the one you mean"
        )
    return _whole_lines(whole, places, len(old))


def _places(whole: str, old: str) -> list[int]:
    """Return every offset of `old`; also of one that begins within another."""
    places = []
    at = whole.find(old)
    while at >= 0:
        places.append(at)
        at = whole.find(old, at + 1)
    return places


def _whole_lines(whole: str, places: Sequence[int], length: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for at in places:
        start = whole.rfind("\n", 0, at) + 1
        end = whole.find("\n", at + length)  # of the next line, where its own end is replaced
        stop = len(whole) if end < 0 else end + 1
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
        else:
            spans.append((start, stop))
    return spans


def _plain(content: str) -> str:
    """Return `content` without the carriage returns that are part of line ends."""
    return "\n".join(line.removesuffix("\r") for line in content.split("\n"))


def _lines_of(text: str) -> list[str]:
    """Return the lines of `text`; a line end at its end starts no line."""
    return text.removesuffix("\n").split("\n") if text else []
