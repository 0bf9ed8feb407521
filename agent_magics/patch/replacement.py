"""Replaces one text in a file.

Law: the old text is the whole file or occurs once in it. As in every patch, line breaks
belong to the file; whether the last line has one is determined by the new text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent_magics.patch.files import TextFile
from agent_magics.patch.grammar import AddFile, Chunk
from agent_magics.patch.match import Edit, match_chunks, with_plain_signs
from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import RespondToModel
from agent_magics.text.differences import changed_lines

_MOST_PLACES = 8  # listed in a message


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Replaces `old` by `new`; an empty `old` means a missing or empty file.

    Attributes:
        everywhere: whether to replace all occurrences; otherwise there must be one.
        asked_as: name of the argument for `old`, for messages.
    """

    path: str
    old: str
    new: str
    line: int = 1
    everywhere: bool = False
    asked_as: str = "original_content"

    @property
    def as_file(self) -> AddFile:
        """The operation that writes `new` as the whole file."""
        return read_content(self.path, self.new, self.line)


def read_replacement(
    path: str,
    old: str,
    new: str,
    *,
    everywhere: bool = False,
    names: tuple[str, str] = ("original_content", "updated_content"),
) -> ReplaceText:
    """Create the operation, validated as far as possible without the file.

    Args:
        path: the file.
        old: the text to replace.
        new: its replacement.
        everywhere: whether to replace all occurrences.
        names: names of the arguments for `old` and `new`.

    Raises:
        RespondToModel: `new` cannot be written to a text file.
    """
    check(names[0], old, str, RespondToModel)
    check_text(names[1], new)
    return ReplaceText(path, old, new, everywhere=everywhere, asked_as=names[0])


def read_content(path: str, content: str, line: int = 0) -> AddFile:
    """Create the operation that writes `content` as the whole file.

    Raises:
        RespondToModel: it cannot be written to a text file.
    """
    check_text("content", content)
    lines = content.removesuffix("\n").split("\n") if content else []
    return AddFile(path, tuple(lines), line, terminated=content.endswith("\n") or not content)


def check_text(name: str, content: str) -> None:
    """Refuse characters that no text file can contain.

    Args:
        name: name of the argument.
        content: the text to write.

    Raises:
        RespondToModel: it contains a NUL or a lone surrogate.
    """
    check(name, content, str, RespondToModel)
    if "\0" in content:
        raise RespondToModel(f"{name} holds a NUL character, and only text can be written.")
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        raise RespondToModel(
            f"{name} holds half of a surrogate pair, which no text file can hold."
        ) from None


@dataclass(frozen=True, slots=True)
class Replacement:
    """The effect of replacing one text by another.

    Attributes:
        edits: of whole lines.
        terminated: whether the last line has a line break afterwards.
        notes: "line N: applied by: LEVEL", for an inexact match.
    """

    edits: list[Edit]
    terminated: bool
    notes: tuple[str, ...] = ()


def replace_text(text: TextFile, operation: ReplaceText) -> Replacement:
    """Compute the effect of `operation`.

    Without an exact match, whole lines are matched as in a patch, then parts of lines with dashes,
    quotes and spaces normalised.

    Raises:
        RespondToModel: the old text does not occur, or several times.
    """
    whole = "\n".join(text.lines) + ("\n" if text.lines and text.terminated else "")
    old, new = (text.as_written(_plain(each)) for each in (operation.old, operation.new))
    if not old and whole:
        raise RespondToModel(
            f"it is there already and not empty; give the text to replace in {operation.asked_as}"
        )
    places = _places(whole, old) if old else [0]
    if places:
        return _replaced(text, whole, places, old, new, operation)
    try:
        return _matched(text, old, new, operation)
    except RespondToModel:
        folded = with_plain_signs(old)
        places = _places(with_plain_signs(whole), folded)
        if not places:
            raise
    found = _replaced(text, whole, places, old, new, operation)
    line = whole.count("\n", 0, places[0]) + 1
    return replace(found, notes=(f"line {line}: applied by: punctuation",))


def _matched(text: TextFile, old: str, new: str, operation: ReplaceText) -> Replacement:
    """Match whole lines as a chunk of a patch; lines common to both texts keep the file's form."""
    lines = _chunk_lines(_lines_of(old), _lines_of(new))
    edits, notes = match_chunks(text.lines, [Chunk(lines, asked_as=operation.asked_as)])
    reaches_end = bool(edits) and edits[-1].end == len(text.raw)
    ends = new.endswith("\n") or not new if reaches_end and old.endswith("\n") else text.terminated
    return Replacement(edits, ends, tuple(notes))


def _chunk_lines(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[str, str], ...]:
    lines: list[tuple[str, str]] = []
    end = 0
    for first, last, start, stop in changed_lines(old, new):
        lines += ((" ", line) for line in old[end:first])
        lines += (("-", line) for line in old[first:last])
        lines += (("+", line) for line in new[start:stop])
        end = last
    return (*lines, *((" ", line) for line in old[end:]))


def _replaced(
    text: TextFile,
    whole: str,
    places: Sequence[int],
    old: str,
    new: str,
    operation: ReplaceText,
) -> Replacement:
    """Replace the occurrences of `old` at `places`, offsets in `whole`, by `new`."""
    edits: list[Edit] = []
    terminated = text.terminated
    first = seen = 0
    for start, stop, inside in _spans(whole, places, len(old), operation):
        wanted = _with_pieces(whole[start:stop], [at - start for at in inside], len(old), new)
        first, seen = first + whole.count("\n", seen, start), start
        edits += differences(_lines_of(whole[start:stop]), _lines_of(wanted), first)
        if stop == len(whole):
            terminated = wanted.endswith("\n") or not wanted
    return Replacement(edits, terminated)


def _with_pieces(text: str, places: Sequence[int], length: int, new: str) -> str:
    """Return `text` with `new` at each of `places`; overlapping ones are skipped."""
    parts, done = [], 0
    for at in places:
        if at >= done:
            parts += [text[done:at], new]
            done = at + length
    return "".join((*parts, text[done:]))


def differences(old: Sequence[str], new: Sequence[str], first: int = 0) -> list[Edit]:
    """Return the edits that turn lines `old` into `new`; `first` is the position of `old`."""
    return [Edit(first + i, first + j, tuple(new[k:m])) for i, j, k, m in changed_lines(old, new)]


def _spans(
    whole: str, places: Sequence[int], length: int, operation: ReplaceText
) -> list[tuple[int, int, list[int]]]:
    """Return (start, end, places) of the whole lines around occurrences, in order."""
    name = operation.asked_as
    if len(places) > 1 and not operation.everywhere:
        lines = [whole.count("\n", 0, at) + 1 for at in places[:_MOST_PLACES]]
        more = " and more" if len(places) > _MOST_PLACES else ""
        raise RespondToModel(
            f"{name} stands in several places of it, at lines {', '.join(map(str, lines))}{more}; "
            "give more of the text around the one you mean"
        )
    return _whole_lines(whole, places, length)


def _places(whole: str, old: str) -> list[int]:
    """Return every offset of `old`, including overlapping ones."""
    places = []
    at = whole.find(old)
    while at >= 0:
        places.append(at)
        at = whole.find(old, at + 1)
    return places


def _whole_lines(
    whole: str, places: Sequence[int], length: int
) -> list[tuple[int, int, list[int]]]:
    spans: list[tuple[int, int, list[int]]] = []
    for at in places:
        start, stop, inside = spans[-1] if spans else (0, 0, [])
        if at < stop:
            inside.append(at)
            if at + length >= stop:
                spans[-1] = (start, _end_of_line(whole, at + length), inside)
        else:
            start = whole.rfind("\n", 0, at) + 1
            spans.append((start, _end_of_line(whole, at + length), [at]))
    return spans


def _end_of_line(whole: str, at: int) -> int:
    """Return where the line ends, with its break, in which `at` is: the next one, if a line break
    is replaced.
    """
    end = whole.find("\n", at)
    return len(whole) if end < 0 else end + 1


def _plain(content: str) -> str:
    """Return `content` without the carriage returns of line breaks."""
    return "\n".join(line.removesuffix("\r") for line in content.split("\n"))


def _lines_of(text: str) -> list[str]:
    """Return the lines of `text`; a final line break does not start another one."""
    return text.removesuffix("\n").split("\n") if text else []
