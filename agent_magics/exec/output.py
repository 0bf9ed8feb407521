"""What a command printed, made fit to read: bounded while it comes, clean and short afterwards."""

import re

# No class goes beyond where the next sequence may start: nothing is scanned twice (linear time).
_ESCAPE = re.compile(
    r"("
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\n\x07\x1b\x80-\x9f]*+(?:\x07|\x1b\\|\x9c)"  # OSC …
    r"|\x1b[ -/]++[0-~]"  # character sets
    r"|\x1b[0-~]"
    r")"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,64}m")  # SGR: colours, bold, underlined; nothing moves
_MARK = "\0"  # stands for a colour sequence while lines are edited; never in the text by then
_OVERSTRUCK = re.compile(r"[^\n\x08\0](\0*+)\x08")
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]+")  # all but \b \t \n \r
_ASCII_CONTROL = bytes(code for code in range(128) if _CONTROL.match(chr(code)))


def clean_output(text: str) -> str:
    """Return `text` without what only a terminal understands.

    Escape sequences and control characters other than newline and tab are removed; of a line
    that was overwritten (a progress bar), what stood there last is kept. Time is linear.
    """
    if "\x1b" in text or not text.isascii():
        text = _ESCAPE.sub("", text)
    return _edit_lines(_without_controls(text))


def _without_controls(text: str) -> str:
    if text.isascii():  # fifty times as fast, which counts for a megabyte
        return text.encode("ascii").translate(None, _ASCII_CONTROL).decode("ascii")
    return _CONTROL.sub("", text)


def colour_output(text: str) -> str:
    """Return `text` for people: as `clean_output`, but the colour sequences stay.

    Of all escape sequences only ``ESC [ numbers m`` (SGR, ECMA-48 8.3.117) is left, which changes
    how letters look and nothing else.
    """
    plain, colours = [], []
    for number, piece in enumerate(_ESCAPE.split(text)):
        if number % 2 == 0:  # what stands between two sequences
            plain.append(_without_controls(piece))
        elif _COLOUR.fullmatch(piece):
            plain.append(_MARK)
            colours.append(piece)
    edited = _edit_lines("".join(plain)).split(_MARK)
    return edited[0] + "".join(map(str.__add__, colours, edited[1:]))


def _edit_lines(text: str) -> str:
    """Do what backspace and carriage return do to a line; marks of colours all stay."""
    if "\x08" in text:
        text = _OVERSTRUCK.sub(r"\1", text).replace("\x08", "")
    if "\r" in text:
        text = "\n".join(map(_last_written, text.split("\n")))
    return text


def _last_written(line: str) -> str:
    written = line.rstrip("\r" + _MARK)
    overwritten, _, last = written.rpartition("\r")
    after = line.count(_MARK, len(written))
    return _MARK * overwritten.count(_MARK) + last + _MARK * after


def cut_middle(text: str, budget: int) -> tuple[str, int]:
    """Return `text` in at most `budget` characters and a marker line, and how many were left out.

    The beginning and the end get half of the budget each and stop at line ends where that does
    not cost most of the half.
    """
    if len(text) <= budget:
        return text, 0
    head = _beginning(text, budget // 2)
    tail = _ending(text[len(head) :], budget - budget // 2)
    omitted = len(text) - len(head) - len(tail)
    return head + omission_marker(omitted, head) + tail, omitted


def join_ends(head: str, tail: str, missing: int, budget: int) -> tuple[str, int]:
    """Like `cut_middle`, for a text of which `missing` characters are already gone in between."""
    kept_head, kept_tail = _beginning(head, budget // 2), _ending(tail, budget - budget // 2)
    omitted = missing + len(head) + len(tail) - len(kept_head) - len(kept_tail)
    return kept_head + omission_marker(omitted, kept_head) + kept_tail, omitted


def omission_marker(omitted: int, before: str) -> str:
    """Return the line that stands for `omitted` characters after the text `before`."""
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
