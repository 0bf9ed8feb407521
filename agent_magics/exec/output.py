"""Truncates and cleans the output of a command."""

import re
from itertools import groupby

# No character class matches the start of another sequence, so matching takes linear time.
_ESCAPE = re.compile(
    r"("
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\n\x07\x1b\x80-\x9f]*+(?:\x07|\x1b\\|\x9c)"  # OSC …
    r"|\x1b[ -/]++[0-~]"  # character sets
    r"|\x1b[0-~]"
    r")"
)
_ESCAPE_STARTS = "\x1b\x90\x98\x9b\x9d\x9e\x9f"  # each sequence begins with one of them
_UP = re.compile(r"(?:\x1b\[|\x9b)([0-9]{0,4})[AF]")  # the cursor goes up
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")  # SGR: colours, bold, underlined; nothing moves
# placeholder of a colour sequence while lines are edited; removed from the text before
_MARK = "\0"
# placeholder of an erased rest of a line, likewise
_CUT = "\x0b"
_ERASED = re.compile(r"(?:\x1b\[|\x9b)0?K")  # from the cursor to the end of the line
_TO_START = re.compile(r"(?:\x1b\[|\x9b)[01]?G")
_ERASED_WHOLE = re.compile(r"(?:\x1b\[|\x9b)2K")
_MOVE = re.compile("([\r\x08\x0b])")
_CONTROL = re.compile(r"[\x00-\x07\x0c\x0e-\x1f\x7f-\x9f]+")  # all but \b \t \n \v \r
_ASCII_CONTROL = bytes(code for code in range(128) if _CONTROL.match(chr(code)))


def clean_output(text: str) -> str:
    """Return `text` without terminal control sequences.

    Escape sequences and control characters other than newline and tab are removed; of an
    overwritten line (a progress bar), what a terminal would show last is kept. Takes linear time.
    """
    text = text.replace(_CUT, "")
    if any(start in text for start in _ESCAPE_STARTS):
        text = _ESCAPE.sub("", _rewrite_lines(_with_moves(text)))
    return _edit_lines(_without_controls(text))


def fold_lines(text: str) -> str:
    """Replace equal lines in a row by the first of them and their count, where that is shorter."""
    folded: list[str] = []
    for line, equal in groupby(text.split("\n")):
        more = sum(1 for _ in equal) - 1
        marker = f"… {more:,} more lines like this one …"
        is_shorter = more * (len(line) + 1) > len(marker) + 1
        folded += (line, marker) if is_shorter else [line] * (more + 1)
    return "\n".join(folded)


def _with_moves(text: str) -> str:
    """Replace sequences that act within a line by the character for which `_edit_lines` looks."""
    text = _TO_START.sub("\r", _ERASED.sub(_CUT, text))
    return _ERASED_WHOLE.sub("\r" + _CUT, text)


def _rewrite_lines(text: str) -> str:
    """Apply moves of the cursor to lines above: what is written there replaces the line."""
    start, *rest = _UP.split(text)
    if not rest:
        return text
    lines = start.split("\n")
    row = len(lines) - 1
    for count, piece in zip(rest[::2], rest[1::2], strict=True):
        row = max(0, row - int(count or 1))
        for number, written in enumerate(piece.split("\n")):
            row += number > 0
            if row == len(lines):
                lines.append(written)
            elif written.strip("\r"):
                lines[row] = written
    return "\n".join(lines)


def _without_controls(text: str) -> str:
    if text.isascii():  # fifty times as fast, which matters for a megabyte
        return text.encode("ascii").translate(None, _ASCII_CONTROL).decode("ascii")
    return _CONTROL.sub("", text)


def colour_output(text: str) -> str:
    """Return `text` for people: as `clean_output`, but with colour sequences.

    Of all escape sequences only ``ESC [ numbers m`` (SGR, ECMA-48 8.3.117) is kept, which changes
    only the style of characters.
    """
    plain, colours = [], []
    for number, piece in enumerate(
        _ESCAPE.split(_rewrite_lines(_with_moves(text.replace(_CUT, ""))))
    ):
        if number % 2 == 0:  # text between two sequences
            plain.append(_without_controls(piece))
        elif _COLOUR.fullmatch(piece):
            plain.append(_MARK)
            colours.append(piece)
    edited = _edit_lines("".join(plain)).split(_MARK)
    return edited[0] + "".join(map(str.__add__, colours, edited[1:]))


def _edit_lines(text: str) -> str:
    """Apply backspace, carriage return and erasure to lines; all colour placeholders are kept."""
    if "\x08" in text or "\r" in text:
        text = "\n".join(map(_last_shown, text.split("\n")))
    return text.replace(_CUT, "")


def _last_shown(line: str) -> str:
    """Return what a terminal shows at the end of a line in which the cursor goes back.

    Colours of what was written before it went back for the last time come before what follows.
    """
    written = line.rstrip("\r" + _MARK)
    moved = max(written.rfind("\r"), written.rfind("\x08")) + 1
    before, last = written[:moved], written[moved:]
    cells: list[str] = []
    column = 0
    for piece in _MOVE.split(before.replace(_MARK, "")):
        if piece == "\r":
            column = 0
        elif piece == "\x08":
            column = max(0, column - 1)
        elif piece == _CUT:
            del cells[column:]
        else:
            cells[column : column + len(piece)] = piece
            column += len(piece)
    start, width = "".join(cells[:column]), len(last) - last.count(_MARK)
    rest = "" if _CUT in last else "".join(cells[column + width :])
    return (
        start + _MARK * before.count(_MARK) + last + rest + _MARK * line.count(_MARK, len(written))
    )


def cut_middle(text: str, budget: int) -> tuple[str, int]:
    """Return `text` truncated to `budget` characters plus a marker line, and how many were omitted.

    The beginning and the end get half of the budget each, and stop at line ends unless that costs
    most of the half.
    """
    if len(text) <= budget:
        return text, 0
    head = _beginning(text, budget // 2)
    tail = _ending(text[len(head) :], budget - budget // 2)
    omitted = len(text) - len(head) - len(tail)
    return head + omission_marker(omitted, head) + tail, omitted


def join_ends(head: str, tail: str, missing: int, budget: int) -> tuple[str, int]:
    """Truncate like `cut_middle` a text of which `missing` characters in the middle are already
    gone.
    """
    kept_head, kept_tail = _beginning(head, budget // 2), _ending(tail, budget - budget // 2)
    omitted = missing + len(head) + len(tail) - len(kept_head) - len(kept_tail)
    return kept_head + omission_marker(omitted, kept_head) + kept_tail, omitted


def omission_marker(omitted: int, before: str) -> str:
    """Return the line that replaces `omitted` characters after the text `before`."""
    line_start = "" if not before or before.endswith("\n") else "\n"
    return f"{line_start}… {omitted} characters left out …\n"


def _beginning(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    line_end = text.rfind("\n", 0, limit) + 1
    return text[: line_end if line_end > limit // 2 else limit]


def _ending(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    start = len(text) - limit
    line_start = text.find("\n", start - 1 if start else 0) + 1
    return text[line_start if 0 < line_start < start + limit // 2 else start :]
