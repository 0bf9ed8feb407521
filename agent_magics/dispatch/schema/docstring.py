"""Parses a docstring: the function's description and each parameter's, for the model.

Google, NumPy and reST styles are read. A docstring is prose: whatever does not fit any style stays
part of the description, and nothing here ever raises.
"""

import inspect
import re
from dataclasses import dataclass, field
from functools import lru_cache

_PARAMETER_SECTIONS = frozenset(
    ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments")
) | {"other parameters"}
_ANSWER_SECTIONS = frozenset(("return", "returns", "yield", "yields", "raise", "raises"))
_OTHER_SECTIONS = frozenset(
    ("attributes", "example", "examples", "note", "notes", "references", "see also", "todo")
) | {"receives", "warning", "warnings", "warns"}
_SECTIONS = _PARAMETER_SECTIONS | _ANSWER_SECTIONS | _OTHER_SECTIONS
# "Note: it is slow" on one line is prose for the model; "Returns: the rows" is not.
_ONE_LINE_SECTIONS = _PARAMETER_SECTIONS | _ANSWER_SECTIONS

_HEADER = re.compile(r"([A-Za-z][A-Za-z ]*):(.*)")
_UNDERLINE = re.compile(r"[-=]{3,}\s*")
_GOOGLE_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:(?:\s+(.*)|$)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_REST_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception"
    r"|yields?|ivar|cvar|var)\b([^:]*):(.*)"
)
_REST_PARAMETER_FIELDS = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))


@dataclass(frozen=True, slots=True)
class Docstring:
    """A parsed docstring.

    Attributes:
        summary: the first paragraph, on one line.
        description: everything before the first section: the tool's description for the model.
        params: parameter name -> its description on one line; names without stars.
    """

    summary: str = ""
    description: str = ""
    params: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=256)  # the description and the parameters are asked for one after the other
def parse_docstring(doc: str | None) -> Docstring:
    """Parse a docstring; never raises, an empty or missing one gives empty parts.

    Args:
        doc: the docstring as written, with its indentation.
    """
    if not isinstance(doc, str) or not doc.strip():
        return Docstring()
    # `cleandoc` knows no other line ends; from Python 3.13 on they would count as text.
    lines = inspect.cleandoc("\n".join(doc.splitlines())).splitlines()
    starts = [number for number in range(len(lines)) if _starts_section(lines, number)]
    first = starts[0] if starts else len(lines)
    description = "\n".join(line.rstrip() for line in lines[:first]).strip()
    params: dict[str, str] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        for name, text in _read_section(lines[start:end]):
            params.setdefault(name.lstrip("*"), text)
    summary = " ".join(re.split(r"\n\s*\n", description)[0].split())
    return Docstring(summary, description, {name: text for name, text in params.items() if text})


def _starts_section(lines: list[str], number: int) -> bool:
    line = lines[number]
    if not line or line[0].isspace():
        return False
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if ":" not in line and not following.startswith(("-", "=")):  # most lines
        return False
    if _is_underlined(lines, number) or _REST_FIELD.match(line):
        return True
    header = _HEADER.fullmatch(line)
    if header is None:
        return False
    allowed = _ONE_LINE_SECTIONS if header[2].strip() else _SECTIONS
    return header[1].lower() in allowed


def _is_underlined(lines: list[str], number: int) -> bool:
    known = lines[number].strip().rstrip(":").lower() in _SECTIONS
    return known and number + 1 < len(lines) and bool(_UNDERLINE.fullmatch(lines[number + 1]))


def _read_section(lines: list[str]) -> list[tuple[str, str]]:
    """Return the parameters that one section describes; none for a section of another subject."""
    rest = _REST_FIELD.match(lines[0])
    if rest is not None:
        return _read_rest_field(rest, lines[1:])
    if lines[0].partition(":")[0].strip().lower() not in _PARAMETER_SECTIONS:
        return []
    if _is_underlined(lines, 0):
        return _read_numpy(lines[2:])
    return _read_google(lines[1:])


def _read_rest_field(first: re.Match[str], following: list[str]) -> list[tuple[str, str]]:
    words = first[2].split()
    if first[1] not in _REST_PARAMETER_FIELDS or not words:
        return []
    text = [first[3]]
    for line in following:
        if not line[:1].isspace():
            break
        text.append(line)
    return [(words[-1], _one_line(text))]


def _read_google(lines: list[str]) -> list[tuple[str, str]]:
    """Parse ``name (type): text`` entries; deeper indented lines continue the entry above."""
    entries: list[tuple[str, list[str]]] = []
    indent = None
    for line in lines:
        stripped = line.strip()
        if not stripped:
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = depth if indent is None else indent
        entry = _GOOGLE_ENTRY.fullmatch(stripped) if depth <= indent else None
        if entry is not None:
            entries.append((entry[1], [entry[2] or ""]))
        elif entries:
            entries[-1][1].append(stripped)
    return [(name, _one_line(text)) for name, text in entries]


def _read_numpy(lines: list[str]) -> list[tuple[str, str]]:
    """Parse ``name : type`` lines, each followed by its indented text."""
    entries: list[tuple[list[str], list[str]]] = []
    for line in lines:
        entry = _NUMPY_ENTRY.fullmatch(line.rstrip())
        if line[:1].isspace() or not line:
            if entries:
                entries[-1][1].append(line)
        elif entry is None:
            break
        else:
            entries.append(([name.strip() for name in entry[1].split(",")], []))
    return [(name, _one_line(text)) for names, text in entries for name in names]


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
