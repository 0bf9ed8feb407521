"""What a run of code comes to in text and pictures, the same in the kernel and in scratch."""

import base64
import io
import re
import tokenize
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import agent_magics

# Text kept of one run; the model reads far less, and an endless loop must not fill the memory.
KEPT_CHARACTERS = 1_000_000

_IMAGES = ("image/png", "image/jpeg")
# Lines of a traceback below the model's own code; the rest is library insides.
_LIBRARY_FRAMES = 2
# Our own frames between the model's code and the tools that it calls.
_PACKAGE = str(Path(agent_magics.__file__).parent)


class Displayed(NamedTuple):
    """A displayed value: its text, and its picture in base64 with the kind ("" for none)."""

    plain: str
    mime: str = ""
    image: str = ""


def read_display(data: Mapping[str, Any]) -> Displayed:
    """Return what of a display bundle is shown: a picture where there is one, else the text."""
    plain = str(data.get("text/plain", ""))
    mime = next((mime for mime in _IMAGES if mime in data), "")
    if not mime:
        return Displayed(plain)
    encoded = data[mime]
    if isinstance(encoded, bytes):
        encoded = base64.b64encode(encoded).decode("ascii")
    return Displayed(plain, mime, encoded.strip())


def ends_quietly(code: str) -> bool:
    """Tell whether the last statement ends in a semicolon, IPython's sign for "show nothing"."""
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


def describe_error(shell: Any, error: BaseException) -> str:
    """Return the traceback as far as it matters: the model's lines and the last of a library's."""
    last = traceback.format_exception_only(type(error), error)
    if isinstance(error, SyntaxError):
        return "".join(_without_file(last)).rstrip()
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    own = [n for n, frame in enumerate(frames) if is_cell(shell, frame.filename)]
    if not own:
        return "".join(last).rstrip()
    kept = [*(frames[n] for n in own), *frames[own[-1] + 1 :][-_LIBRARY_FRAMES:]]
    lines = [_frame_line(shell, frame) for frame in kept]
    return "\n".join(["Traceback (most recent call last):", *lines, "".join(last).rstrip()])


def is_cell(shell: Any, filename: str) -> bool:
    """Tell whether code of that file name was typed into a cell, or written by a model."""
    return shell.compile.format_code_name(filename) is not None


def refuse_exit() -> None:
    """What ``exit()`` and ``quit()`` do in code of a model's."""
    raise RuntimeError("exit() and quit() would end the person's kernel, so they do nothing here")


def _frame_line(shell: Any, frame: traceback.FrameSummary) -> str:
    place = "the code" if is_cell(shell, frame.filename) else frame.filename
    return f"  line {frame.lineno} of {place}, in {frame.name}\n    {(frame.line or '').strip()}"


def _without_file(lines: list[str]) -> list[str]:
    return [re.sub(r'^  File ".*", line', "  line", line) for line in lines]
