"""Collects text and images that a run of code displays, in the kernel and in scratch."""

import base64
import io
import re
import tokenize
import traceback
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import agent_magics
from agent_magics.dispatch.results.outline import MOST_CHARACTERS
from agent_magics.dispatch.results.output import brief_text
from agent_magics.dispatch.results.values import defines, plain_text
from agent_magics.exec.output import omission_marker

# Text kept of one run; the model reads far less, and an endless loop must not fill the memory.
KEPT_CHARACTERS = 1_000_000

_IMAGES = ("image/png", "image/jpeg")
# Lines of a traceback below the model's own code; the rest is library insides.
_LIBRARY_FRAMES = 2
# Our own frames between the model's code and the tools that it calls.
_PACKAGE = str(Path(agent_magics.__file__).parent)
_MOST_PIECES = 1_000  # in which the end of a text is held


class KeptText:
    """The beginning and the end of a text that comes in pieces.

    Args:
        most: the characters that are kept.

    Attributes:
        ends_line: whether the next piece begins a line.
    """

    def __init__(self, most: int = KEPT_CHARACTERS) -> None:
        self._half = most // 2
        self._head: list[str] = []
        self._room = self._half
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._omitted = 0
        self.ends_line = True

    def add(self, text: str) -> str:
        """Add a piece, and return the part of it that belongs to the beginning."""
        first, rest = text[: self._room], text[self._room :]
        if first:
            self._head.append(first)
            self._room -= len(first)
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            self._shorten()
        if text:
            self.ends_line = text.endswith("\n")
        return first

    @property
    def rest(self) -> str:
        """What follows the beginning: the end, after a line that says what is left out between."""
        tail = "".join(self._tail)
        excess = max(0, len(tail) - self._half)
        omitted = self._omitted + excess
        if not omitted:
            return tail
        return omission_marker(omitted, self._head[-1] if self._head else "") + tail[excess:]

    @property
    def text(self) -> str:
        """The beginning and the end."""
        return "".join((*self._head, self.rest))

    def _shorten(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._half:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._omitted += gone
        if len(self._tail) > _MOST_PIECES:
            joined = "".join(self._tail)
            excess = max(0, len(joined) - self._half)
            self._tail = deque((joined[excess:],))
            self._tail_size -= excess
            self._omitted += excess


class Displayed(NamedTuple):
    """A displayed value: its text, and its image in base64 with the MIME type ("" for none)."""

    plain: str
    mime: str = ""
    image: str = ""


def read_display(data: Mapping[str, Any]) -> Displayed:
    """Return the image of a display bundle where it has one, else its text."""
    plain = plain_text(str(data.get("text/plain", "")))
    mime = next((mime for mime in _IMAGES if mime in data), "")
    encoded = data.get(mime, "")
    if isinstance(encoded, bytes):
        encoded = base64.b64encode(encoded).decode("ascii")
    if not isinstance(encoded, str) or not encoded.isascii():  # no image, whatever it is called
        return Displayed(plain)
    return Displayed(plain, mime, encoded.strip())


def in_brief(value: object, data: Mapping[str, object]) -> tuple[dict[str, object], bool]:
    """Return a display bundle with its text outlined if too long, and whether it was.

    So is a value whose repr raised, which would look as if there were none. The texts of str and
    bytes are left as they are: they are cut together with printed text, where they count as cut if
    their ends alone are kept.
    """
    is_shown = any(mime in data for mime in ("text/plain", *_IMAGES))
    if not (is_shown or defines(type(value), "_ipython_display_")):
        return {**data, "text/plain": brief_text(value)}, True
    plain = str(data.get("text/plain", ""))
    if len(plain) <= MOST_CHARACTERS:
        return dict(data), False
    if issubclass(type(value), (str, bytes)):
        return dict(data), len(plain) > KEPT_CHARACTERS // 2
    return {**data, "text/plain": brief_text(value)}, True


def ends_quietly(code: str) -> bool:
    """Return whether the last statement ends in a semicolon (IPython: show no value)."""
    last = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.OP:
                last = token.string
            elif token.type not in (
                tokenize.COMMENT,
                tokenize.NL,
                tokenize.NEWLINE,
                tokenize.ENDMARKER,
                tokenize.DEDENT,
            ):
                last = ""
    except (tokenize.TokenError, SyntaxError):
        return False  # magics are no Python; they show what they show
    return last == ";"


def describe_error(shell: object, error: BaseException) -> str:
    """Return the traceback reduced to the model's lines and the last of a library's."""
    last = traceback.format_exception_only(type(error), error)
    if isinstance(error, SyntaxError):
        return "".join(_without_file(last)).rstrip()
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not frame.filename.startswith(_PACKAGE)]
    own = [n for n, frame in enumerate(frames) if is_cell(shell, frame.filename)]
    if not own:
        return "".join(last).rstrip()
    kept = [*(frames[n] for n in own), *frames[own[-1] + 1 :][-_LIBRARY_FRAMES:]]
    lines = [_frame_line(shell, frame) for frame in kept]
    return "\n".join(["Traceback (most recent call last):", *lines, "".join(last).rstrip()])


def is_cell(shell: Any, filename: str) -> bool:
    """Return whether a file name is that of a cell's code, the person's or the model's."""
    return shell.compile.format_code_name(filename) is not None


def refuse_exit() -> None:
    """Raise an error in place of ``exit()`` and ``quit()`` in code of a model."""
    raise RuntimeError("exit() and quit() would end the person's kernel, so they do nothing here")


def _frame_line(shell: object, frame: traceback.FrameSummary) -> str:
    place = "the code" if is_cell(shell, frame.filename) else frame.filename
    return f"  line {frame.lineno} of {place}, in {frame.name}\n    {(frame.line or '').strip()}"


def _without_file(lines: list[str]) -> list[str]:
    return [re.sub(r'^  File ".*", line', "  line", line) for line in lines]
