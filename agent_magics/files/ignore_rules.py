"""Applies ``.gitignore`` files exactly as git does.

The rules are those of gitignore(5) and of git's own matcher, which compares bytes: a ``?`` is one
byte of a name. So texts and names are decoded as Latin-1 here, where each character is one byte.
Matching takes linear time for any pattern, also a hostile one: no regex made here backtracks
without bound.
"""

import os
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from agent_magics.files.beneath import open_folder
from agent_magics.files.plain_files import read_plain

IGNORE_FILE = ".gitignore"
# Limit of an ignore file; a larger one is not read. One pattern is fast, 100,000 are not.
_MOST_BYTES = 64 * 1024
_NEVER = "(?!)"
_BYTES = frozenset(map(chr, range(256)))
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": " \t\n\r\v\f",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}


def as_bytes(name: str) -> str:
    """Return a file name decoded as Latin-1, so that each byte is one character."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


# -- one pattern -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _IgnorePattern:
    """One pattern of an ignore file.

    Attributes:
        parts: one regex for each path component, None for ``**``.
        by_name: whether it is matched against the name alone, at any depth.
    """

    parts: tuple[re.Pattern[str] | None, ...]
    by_name: bool
    only_folders: bool
    negated: bool

    def matches(self, folders: Sequence[str], name: str) -> bool:
        if self.by_name:
            return self.parts[0] is None or self.parts[0].match(name) is not None
        reached = {0}
        for part in (*folders, name):
            reached = self._step(reached, part)
            if not reached:
                return False
        return len(self.parts) in reached

    def _step(self, reached: set[int], part: str) -> set[int]:
        """Advance all matching positions by one component, as an NFA does, in linear time."""
        following = set()
        waiting = list(reached)
        while waiting:
            at = waiting.pop()
            if at == len(self.parts):
                continue
            regex = self.parts[at]
            if regex is None:
                # A final `**` matches one or more components, any other zero or more.
                following.add(at)
                if at + 1 == len(self.parts):
                    following.add(at + 1)
                else:
                    waiting.append(at + 1)
            elif regex.match(part):
                following.add(at + 1)
        return following


def _parse_line(line: str) -> tuple[_IgnorePattern, str | None] | None:
    """Return a line's rule, and its text if it is a plain name without wildcards; None for a
    line without rule.
    """
    if not line or line.startswith("#"):
        return None
    line = _without_trailing_spaces(line.removesuffix("\r"))
    negated = line.startswith("!")
    line = line.removeprefix("!")
    only_folders = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    by_name = "/" not in line
    texts = [line] if by_name else list(_split(line.removeprefix("/")))
    plain = line if by_name and not re.search(r"[*?[\\]", line) else None
    regexes = tuple(None if re.fullmatch(r"\*\*+", text) else _compiled(text) for text in texts)
    return _IgnorePattern(regexes, by_name, only_folders, negated), plain


def _without_trailing_spaces(line: str) -> str:
    kept = re.match(r"(?:\\.|[^\\ ]| +(?! |\Z))*", line, re.DOTALL)
    rest = line[kept.end() :] if kept else line
    return line if rest.strip(" ") else line[: len(line) - len(rest)]


def _split(pattern: str) -> Iterator[str]:
    """Split a pattern at its slashes, except those within brackets."""
    start = at = 0
    while at < len(pattern):
        if pattern[at] == "[":
            found = _read_class(pattern, at)
            at = len(pattern) if found is None else found[1]
        elif pattern[at] == "\\" and pattern[at + 1 : at + 2] == "/":
            yield pattern[start:at]
            at = start = at + 2
        elif pattern[at] == "\\":
            at += 2
        else:
            at += 1
            if pattern[at - 1] == "/":
                yield pattern[start : at - 1]
                start = at
    yield pattern[start:]


def _compiled(part: str) -> re.Pattern[str]:
    """Return a regex for one component; atomic groups keep its time linear in the number of
    stars.
    """
    pieces, at = [""], 0
    while at < len(part):
        character = part[at]
        at += 1
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "."
        elif character == "[":
            found = _read_class(part, at - 1)
            if found is None:
                return re.compile(_NEVER)
            pieces[-1] += found[0]
            at = found[1]
        elif character == "\\":
            if at == len(part):
                return re.compile(_NEVER)
            pieces[-1] += re.escape(part[at])
            at += 1
        else:
            pieces[-1] += re.escape(character)
    first, *middle = pieces
    last = f".*{middle.pop()}" if middle else ""
    between = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(f"{first}{between}{last}\\Z", re.DOTALL)


def _read_class(text: str, at: int) -> tuple[str, int] | None:
    """Return (regex, end) of the bracket expression at `at`; None if it is unclosed or invalid."""
    at += 1
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    members: set[str] = set()
    previous, first = "", True
    while first or text[at : at + 1] != "]":
        first = False
        here = text[at : at + 1]
        if not here:
            return None
        if here == "\\":
            at += 1
            previous = text[at : at + 1]
            if not previous:
                return None
            members.add(previous)
        elif here == "-" and previous and text[at + 1 : at + 2] not in ("", "]"):
            at += 2 if text[at + 1] == "\\" else 1
            if at >= len(text):
                return None
            members |= {chr(code) for code in range(ord(previous), ord(text[at]) + 1)}
            previous = ""
        elif text.startswith("[:", at) and (named := _posix_class(text, at)) != (None, at):
            if named[0] is None:
                return None
            members |= named[0]
            at, previous = named[1], ""
        else:
            members.add(here)
            previous = here
        at += 1
    wanted = sorted((_BYTES - members if negated else members) - {"/"})
    return (f"[{''.join(map(re.escape, wanted))}]" if wanted else _NEVER), at + 1


def _posix_class(text: str, at: int) -> tuple[set[str] | None, int]:
    """Return (characters, last index) of the class ``[:name:]`` at `at`; (None, `at`) if it is
    none.
    """
    end = text.find("]", at + 2)
    if end < 0:
        return None, -1
    if end - at < 3 or text[end - 1] != ":":
        return None, at
    named = _POSIX.get(text[at + 2 : end - 1])
    return (None if named is None else set(named)), end


# -- one file --------------------------------------------------------------------------------------


class IgnoreFile:
    """The parsed rules of one ignore file."""

    def __init__(self, text: str) -> None:
        rules, plain_names, name_regexes = [], set(), []
        for line in text.removeprefix("\xef\xbb\xbf").split("\n"):
            found = _parse_line(line)
            if found is None:
                continue
            rule, plain = found
            rules.append(rule)
            if plain is not None:
                plain_names.add(plain)
            elif rule.by_name:
                name_regexes.append(".*" if rule.parts[0] is None else rule.parts[0].pattern)
        self._rules = tuple(reversed(rules))
        self._plain_names = frozenset(plain_names)
        self._any_name = re.compile("|".join(name_regexes), re.DOTALL) if name_regexes else None
        by_path = [rule for rule in rules if not rule.by_name]
        self._any_depth = any(None in rule.parts for rule in by_path)
        self._depths = frozenset(len(rule.parts) for rule in by_path)

    def verdict(self, folders: Sequence[str], name: str, is_folder: bool) -> bool | None:
        """Tell whether an entry is ignored; None where no rule of this file matches.

        Args:
            folders: names of the folders between this file's folder and the entry, see `as_bytes`.
            name: name of the entry, see `as_bytes`.
            is_folder: whether it is a folder, and not a link to one.
        """
        if not (
            name in self._plain_names
            or self._any_depth
            or len(folders) + 1 in self._depths
            or (self._any_name is not None and self._any_name.match(name))
        ):
            return None
        for rule in self._rules:
            if (is_folder or not rule.only_folders) and rule.matches(folders, name):
                return not rule.negated
        return None


@lru_cache(256)
def parse_ignore_file(data: bytes) -> IgnoreFile:
    """Parse the bytes of an ignore file."""
    return IgnoreFile(data.decode("latin-1"))


def read_ignore_file(name: str, folder: int) -> IgnoreFile | None:
    """Read an ignore file in an opened folder; None where git would read none."""
    try:
        return parse_ignore_file(read_plain(name, _MOST_BYTES, folder=folder))
    except OSError:
        return None


# -- the files that apply to a folder -------------------------------------------------------------


class IgnoreRules(NamedTuple):
    """The ignore files that apply to the entries of one folder, the nearest last.

    Attributes:
        files: each with the names of the folders between its own folder and this one.
    """

    files: tuple[tuple[IgnoreFile, tuple[str, ...]], ...] = ()

    def ignores(self, name: str, is_folder: bool) -> bool:
        """Tell whether an entry of the folder is ignored."""
        name = as_bytes(name)
        for file, folders in reversed(self.files):
            verdict = file.verdict(folders, name, is_folder)
            if verdict is not None:
                return verdict
        return False

    def with_file(self, file: IgnoreFile | None) -> "IgnoreRules":
        """Return these rules extended by the folder's own ignore file."""
        return self if file is None else IgnoreRules((*self.files, (file, ())))

    def below(self, name: str) -> "IgnoreRules":
        """Return the rules that apply in the subfolder `name`."""
        name = as_bytes(name)
        return IgnoreRules(tuple((file, (*folders, name)) for file, folders in self.files))


def rules_above(folder: str) -> IgnoreRules:
    """Return the rules from the ignore files above `folder` in its git repository.

    If they ignore `folder` itself they are left out: a caller who names it wants its contents.
    """
    parts = folder.strip("/").split("/")
    for depth in range(len(parts), 0, -1):
        top = "/" + "/".join(parts[:depth])
        if os.path.lexists(f"{top}/.git"):
            break
    else:
        return IgnoreRules()
    rules = IgnoreRules().with_file(_file_in(f"{top}/.git/info", "exclude"))
    for name in parts[depth:]:
        rules = rules.with_file(_file_in(top, IGNORE_FILE))
        rules = IgnoreRules() if rules.ignores(name, is_folder=True) else rules.below(name)
        top = f"{top}/{name}"
    return rules


def _file_in(folder: str, name: str) -> IgnoreFile | None:
    try:
        opened = open_folder(folder)
    except OSError:
        return None
    try:
        return read_ignore_file(name, opened)
    finally:
        os.close(opened)
