"""Redacts recordings: personal paths, keys, ids of command sessions.

Paths become placeholders such as {cwd}, which are replaced by paths again on replay. So do the
random ids of command sessions: {session1} is the first in the conversation. Keys are removed
irreversibly.
"""

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from agent_magics.models.error_redaction import NO_KEY, SHORTEST_KEY
from agent_magics.models.providers.keys import environment_keys
from agent_magics.protocol.items import Item, ToolCallOutput, text_of
from agent_magics.text.secrets import BEHIND_ESCAPE, KEY_SHAPES, encodings

Replacements: TypeAlias = Sequence[tuple[str, str]]
"""Pairs of a personal text (a path, a session id) and the name of its placeholder."""

PLACEHOLDERS = ("cwd", "home", "tmp")

_NAMES = "|".join((*PLACEHOLDERS, r"session[1-9]\d*"))
_MARK = re.compile(rf"\{{(literal:)?((?:literal:)*(?:{_NAMES}))\}}(/?)")


def personal_paths(cwd: Path) -> Replacements:
    """Return the paths that identify this machine or person, each also as JSON escapes it, as JSON
    in JSON does, and as addresses do.
    """
    places = {"cwd": Path(cwd), "home": Path.home(), "tmp": Path(tempfile.gettempdir())}
    pairs: dict[str, str] = {}
    for name, place in places.items():
        for path in (os.path.normpath(place.absolute()), os.path.realpath(place)):
            if len(path) > 1:  # "/" identifies nobody
                for spelling in (*_spellings(path), quote(path), quote(path, safe="")):
                    pairs.setdefault(spelling, name)
    return sorted(pairs.items(), key=lambda pair: -len(pair[0]))


def _spellings(text: str) -> Iterator[str]:
    for as_ascii in (True, False):
        spelling = text
        for _ in range(4):  # as it is, and up to JSON in JSON in JSON
            yield spelling
            spelling = json.dumps(spelling, ensure_ascii=as_ascii)[1:-1]


class Hider:
    """Replaces personal texts by placeholders, and removes secrets.

    Args:
        replacements: texts to replace; of two that begin at one place the first counts.
        secrets: texts to remove irreversibly, also where they stand encoded.
        literals: whether text that already looks like a placeholder (the braces of an f-string,
            say) is marked, as {literal:cwd}, so that `show_paths` restores it.

    Attributes:
        found_key: whether a secret was removed so far.
    """

    def __init__(
        self, replacements: Replacements = (), secrets: Iterable[str] = (), *, literals: bool = True
    ) -> None:
        self._names = dict(replacements)
        self._keys = _forms_of(frozenset(key for key in secrets if len(key) >= SHORTEST_KEY))
        self._literals = literals
        self.found_key = False

    def __call__(self, text: str) -> str:
        """Return `text` redacted."""
        return self._pattern_for(text).sub(self._instead, text)

    def in_pieces(self, pieces: Sequence[str]) -> list[str]:
        """Redact a text that is split into pieces, including matches that span several; return
        the pieces.
        """
        whole = "".join(pieces)
        edits = [
            (found.start(), found.end(), self._instead(found))
            for found in self._pattern_for(whole).finditer(whole)
        ]
        return _edited(pieces, edits) if edits else list(pieces)

    def in_json(self, value: object, spared: Collection[tuple[int, Any]] = ()) -> Any:
        """Redact all texts of a JSON value and the names in its objects, in place.

        Args:
            value: the value; objects and lists are changed in place.
            spared: texts that are kept, as (id of the container, name or index in it).

        Returns:
            The value; a new one for a text.
        """
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            entries: Iterable[tuple[Any, Any]] = list(value.items())
            value.clear()
        elif isinstance(value, list):
            entries = enumerate(value)
        else:
            return value
        for name, each in entries:
            is_spared = (id(value), name) in spared
            value[self.in_json(name)] = each if is_spared else self.in_json(each, spared)
        return value

    def _pattern_for(self, text: str) -> re.Pattern[str]:
        keys = tuple(key for key in self._keys if key in text)  # of many forms hardly ever one
        return _pattern_of(tuple(self._names), keys, self._literals)

    def _instead(self, found: re.Match[str]) -> str:
        text = found.group()
        if found.lastgroup == "key":
            self.found_key = True
            return NO_KEY
        if found.lastgroup == "literal":
            return "{literal:" + text[1:]
        return f"{{{self._names[text]}}}"


def prompt_hider(paths: Replacements, secrets: Iterable[str] = ()) -> Hider:
    """Return a `Hider` for prompts, by which exchanges are found: whoever looks for a prompt uses
    this one, so it knows neither sessions nor what else differs from run to run.
    """
    return Hider(paths, (*secrets, *environment_keys(os.environ)))


def _longest(text: str) -> tuple[int, str]:
    return -len(text), text


@lru_cache(maxsize=64)
def _forms_of(keys: frozenset[str]) -> tuple[str, ...]:
    """Return keys as they may stand in a text, the longest first."""
    forms = {form for key in keys for form in encodings(key)}
    return tuple(sorted({each for form in forms for each in _spellings(form)}, key=_longest))


@lru_cache(maxsize=64)
def _pattern_of(places: tuple[str, ...], keys: tuple[str, ...], literals: bool) -> re.Pattern[str]:
    choices = [f"(?P<key>{'|'.join([*map(re.escape, keys), KEY_SHAPES])})"]
    if places:
        # Not where the name goes on: no match of /home/ann in /home/anna, nor in /home/ann.{clock},
        # which was no place before a time of the day was replaced.
        longer = "|".join(map(_place_pattern, places))
        choices.append(rf"(?P<place>(?:{longer})(?![\w-]|\.(?:\w|\{{[a-z]+\}})))")
    if literals:
        choices.append(rf"(?P<literal>\{{(?:literal:)*(?:{_NAMES})\}})")
    return re.compile("|".join(choices))


def _place_pattern(place: str) -> str:
    """Return a pattern for a place: one such as /home/ann wherever it stands (-I/home/ann), one
    such as /tmp, which names nobody, not within a longer path (/home/x/tmp, {cwd}/tmp).
    """
    begins = "" if unquote(place).count("/") > 1 else rf"(?:(?<![\w.}}-])|{BEHIND_ESCAPE})"
    return begins + re.escape(place)


def _edited(pieces: Sequence[str], edits: Sequence[tuple[int, int, str]]) -> list[str]:
    """Apply edits of the joined text to its pieces; the new text goes where the edit begins."""
    result, offset = [], 0
    todo = list(reversed(edits))
    for piece in pieces:
        end, at, kept = offset + len(piece), offset, []
        while todo and todo[-1][0] < end:
            first, last, new = todo[-1]
            if first >= offset:
                kept += [piece[at - offset : first - offset], new]
            at = min(last, end)
            if last > end:
                break
            todo.pop()
        result.append("".join([*kept, piece[at - offset :]]))
        offset = end
    return result


def show_paths(text: str, places: Mapping[str, str]) -> str:
    """Return `text` with placeholders replaced by `places`; the inverse of `Hider`."""

    def show(mark: re.Match[str]) -> str:
        literal, name, slash = mark.groups()
        if literal or name not in places:
            return f"{{{name}}}{slash}"
        return places[name].rstrip("/") + slash if slash else places[name]  # a home may be "/"

    return _MARK.sub(show, text)


# -- sessions -----------------------------------------------------------------------------------

# How our tools say that a session runs: exec_command in its first line, list_sessions, and their
# reprs in Python. Files, and what commands print, speak of other sessions.
_SESSION = re.compile(
    r"\ASession (\d{4,9}) is running\.$|^Session (\d{4,9}): .+, running for [\d.]+ s$"
    r"|\[running as session (\d{4,9}), [\d.]+ s\]",
    re.MULTILINE,
)


class SessionNames:
    """Names the command sessions of conversations "session1", "session2" and so on.

    Each item of a conversation is searched once, however many requests carry it.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, dict[str, str]]] = {}

    def of(self, conversation: str, items: Sequence[Item]) -> dict[str, str]:
        """Return session id -> name for the sessions that run, as tool outputs in `items` say."""
        count, names = self._known.get(conversation, (0, {}))
        if len(items) < count:  # the conversation was restarted
            count, names = 0, {}
        for item in items[count:]:
            if isinstance(item, ToolCallOutput):
                for found in _SESSION.finditer(text_of(item.output)):
                    names.setdefault(found[found.lastindex or 0], f"session{len(names) + 1}")
        self._known[conversation] = (len(items), names)
        return names
