"""Edits one table or key of a TOML text, and leaves all other bytes as they are."""

import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.config_files.toml_places import Statement, TomlPlaces, parse_toml
from agent_magics.files.locks import own_write
from agent_magics.files.plain_files import replace_file
from agent_magics.protocol.errors import FatalError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SWITCH = re.compile(r"(=\s*)(?:true|false)")


# -- values ---------------------------------------------------------------------------------------


def toml_text(text: str) -> str:
    """Return `text` as a TOML string on one line."""
    return '"' + "".join(map(_toml_character, text)) + '"'


def _toml_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\U{ord(character):08X}"


def toml_key(name: str) -> str:
    """Return `name` as a TOML key, quoted where needed."""
    return name if _BARE.fullmatch(name) else toml_text(name)


def toml_value(value: object) -> str:
    """Return a string, number, boolean, list or mapping as TOML on one line."""
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{toml_key(key)} = {toml_value(each)}" for key, each in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)


# -- texts ----------------------------------------------------------------------------------------


def with_table(text: str, path: Sequence[str], values: Mapping[str, object], file: Path) -> str:
    """Append a table to a valid TOML text.

    Args:
        text: content of the file.
        path: names of the new table, outermost first.
        values: its keys.
        file: the file to name in errors.

    Returns:
        The new text.

    Raises:
        FatalError: the text is written in a form to which no table can be added.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(map(toml_key, path))}]"]
    lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items()]
    before = text if not text or text.endswith("\n") else text + end
    gap = end if before else ""
    wanted = parse_toml(text, file)
    _table_of(wanted, path[:-1], file)[path[-1]] = values
    return _checked(before + gap + end.join([*lines, ""]), wanted, path, file)


def without_table(text: str, path: Sequence[str], file: Path) -> str:
    """Remove one table from a valid TOML text, in whatever form it is written.

    Comments between its lines are removed with it; those above and below stay.

    Raises:
        FatalError: it is written in a form from which it cannot be removed automatically.
    """
    wanted = parse_toml(text, file)
    _table_of(wanted, path[:-1], file).pop(path[-1], None)
    places = TomlPlaces(text)
    regions = list(_regions(places.statements, tuple(path)))
    if not regions:
        raise _by_hand(path, file)
    found = without_lines(places.lines, regions)
    try:
        return _checked(found, wanted, path, file)
    except FatalError:
        parent = _table_of(wanted, path[:-2], file)
        if parent.get(path[-2]) != {}:
            raise
        del parent[path[-2]]  # the last table of its kind was also the only mention of the kind
        return _checked(found, wanted, path, file)


def with_switch(text: str, path: Sequence[str], on: bool, file: Path) -> str:
    """Set one key of a valid TOML text to true or false.

    Raises:
        FatalError: it is written in a form in which it cannot be changed automatically.
    """
    wanted = parse_toml(text, file)
    _table_of(wanted, path[:-1], file)[path[-1]] = on
    places = TomlPlaces(text)
    lines = list(places.lines)
    found = {each.path: each for each in reversed(places.statements)}
    literal = "true" if on else "false"
    if (key := found.get(tuple(path))) is not None:
        lines[key.first - 1] = _SWITCH.sub(rf"\g<1>{literal}", lines[key.first - 1], count=1)
    elif (table := found.get(tuple(path[:-1]))) is not None and table.kind == "table":
        carriage = "\r" if lines[table.first - 1].endswith("\r") else ""
        lines.insert(table.first, f"{toml_key(path[-1])} = {literal}{carriage}")
    return _checked("\n".join(lines), wanted, path, file)


def without_lines(lines: Sequence[str], regions: Iterable[tuple[int, int]]) -> str:
    """Return the text without some ranges of lines (first and last, counted from 1).

    An empty line before a range is removed too.
    """
    gone: set[int] = set()
    for first, last in regions:
        gone.update(range(first - 1, last))
        above = first - 2
        if above >= 0 and not lines[above].strip():
            gone.add(above)
    return "\n".join(line for number, line in enumerate(lines) if number not in gone)


def _regions(statements: Sequence[Statement], path: tuple[str, ...]) -> Iterable[tuple[int, int]]:
    """Yield the line ranges of a table: each of its headers with the keys below, and keys
    elsewhere.
    """
    first = last = 0
    for statement in statements:
        belongs = statement.path[: len(path)] == path
        if last and not (belongs and statement.kind == "key"):
            yield first, last
            first = last = 0
        if belongs:
            first, last = first or statement.first, statement.last
    if last:
        yield first, last


def _table_of(data: dict[str, Any], path: Sequence[str], file: Path) -> dict[str, Any]:
    for name in path:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise _by_hand(path, file)
    return data


def _checked(text: str, wanted: Mapping[str, object], path: Sequence[str], file: Path) -> str:
    """Return a changed text if it parses to exactly `wanted`, else raise; no wrong edit reaches a
    file.
    """
    try:
        parsed = parse_toml(text, file)
    except FatalError:
        parsed = None
    if parsed != wanted:
        raise _by_hand(path, file)
    return text


def _by_hand(path: Sequence[str], file: Path) -> FatalError:
    return FatalError(
        f"{'.'.join(map(toml_key, path))} in {file} is written so that it cannot be changed by "
        "itself; change it by hand."
    )


# -- files ----------------------------------------------------------------------------------------


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file atomically; an existing file keeps its mode.

    Args:
        path: the file.
        text: its new content, written as UTF-8.
        mode: permission bits of a new file.

    Raises:
        OSError: it could not be written; the file is unchanged.
    """
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
    with own_write(path):
        replace_file(path, text.encode("utf-8"), mode)
