"""What must not stand in a recording: personal paths, keys, ids of command sessions.

Paths become placeholders such as {cwd}, which become paths again on replay. So do the ids of
command sessions, which are random: {session1} is the first that the conversation names. Keys are
taken out for good.
"""

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from agent_magics.protocol.items import Item, ToolCallOutput, text_of

Replacements: TypeAlias = Sequence[tuple[str, str]]
"""Pairs of a personal text (a path, a session's id) and the name of its placeholder."""

PLACEHOLDERS = ("cwd", "home", "tmp")
NO_KEY = "[API key]"

# A "key" that is shorter is a word for a server that wants none ("EMPTY", "ollama").
SHORTEST_KEY = 8
# What the keys of providers and code hosts look like: those that nobody has told us about.
KEY_SHAPES = "|".join(
    (
        r"\b[sprk]k-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter, Stripe and others
        r"\bgh[pousr]_[A-Za-z0-9]{30,}",
        r"\bgithub_pat_\w{22,}",
        r"\bglpat-[\w-]{20,}",
        r"\bxox[abprs]-[\w-]{10,}",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bAIza[\w-]{35}",
        r"\bhf_[A-Za-z0-9]{30,}",
        r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",  # a JSON web token
    )
)

# Names in the query of an address whose values are keys.
KEY_NAMES = re.compile(r"key|token|secret|sig|auth|password|code", re.IGNORECASE)

_NAMES = "|".join((*PLACEHOLDERS, r"session[1-9]\d*"))
_MARK = re.compile(rf"\{{(literal:)?((?:literal:)*(?:{_NAMES}))\}}")


def personal_paths(cwd: Path) -> Replacements:
    """Return the paths that say whose machine this is, each also as JSON text may escape it."""
    places = {"cwd": Path(cwd), "home": Path.home(), "tmp": Path(tempfile.gettempdir())}
    pairs: dict[str, str] = {}
    for name, place in places.items():
        for path in (os.path.normpath(place.absolute()), os.path.realpath(place)):
            if len(path) > 1:  # A root folder is nobody's.
                pairs.setdefault(path, name)
                pairs.setdefault(json.dumps(path)[1:-1], name)
    return sorted(pairs.items(), key=lambda pair: -len(pair[0]))


def keys_in_address(address: str) -> tuple[str, ...]:
    """Return the keys that a server's address holds: a password, or a key in its query."""
    parts = urlsplit(address)
    query = parse_qsl(parts.query)
    found = (value for name, value in query if KEY_NAMES.search(name))
    return tuple(filter(None, (unquote(parts.password or ""), parts.password, *found)))


class Hider:
    """Takes out of texts what is personal.

    Args:
        replacements: what gets a placeholder; of two that begin at one place the first counts.
        secrets: what is taken out for good.
        literals: whether text that already looks like a placeholder (the braces of an f-string,
            say) is marked, as {literal:cwd}, so that `show_paths` gives it back as it was.
    """

    def __init__(
        self, replacements: Replacements = (), secrets: Iterable[str] = (), *, literals: bool = True
    ) -> None:
        self._names = dict(replacements)
        keys = tuple(sorted({key for key in secrets if len(key) >= SHORTEST_KEY}, key=_longest))
        self._pattern = _pattern_of(tuple(self._names), keys, literals)
        self.found_key = False

    def __call__(self, text: str) -> str:
        """Return `text` without what is personal."""
        return self._pattern.sub(self._instead, text)

    def in_pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces of one text, also without what stands across several of them."""
        whole = "".join(pieces)
        edits = [
            (found.start(), found.end(), self._instead(found))
            for found in self._pattern.finditer(whole)
        ]
        return _edited(pieces, edits) if edits else list(pieces)

    def in_json(self, value: Any, spared: Collection[tuple[int, Any]] = ()) -> Any:
        """Return a JSON value without what is personal, its texts changed where they stand.

        Args:
            value: the value; objects and lists are changed in place.
            spared: texts that stay, as (id of their container, their name or position there).
        """
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            entries: Iterable[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, list):
            entries = enumerate(value)
        else:
            return value
        for name, each in entries:
            if (id(value), name) not in spared:
                value[name] = self.in_json(each, spared)
        return value

    def _instead(self, found: re.Match[str]) -> str:
        text = found.group()
        if found.lastgroup == "key":
            self.found_key = True
            return NO_KEY
        if found.lastgroup == "literal":
            return "{literal:" + text[1:]
        return f"{{{self._names[text]}}}"


def _longest(text: str) -> tuple[int, str]:
    return -len(text), text


@lru_cache(maxsize=64)
def _pattern_of(places: tuple[str, ...], keys: tuple[str, ...], literals: bool) -> re.Pattern[str]:
    choices = [f"(?P<key>{'|'.join([*map(re.escape, keys), KEY_SHAPES])})"]
    if places:
        # Not inside a longer path: /tmp is not in /home/x/tmp or {cwd}/tmp, /home/ann not in
        # /home/anna.
        longer = "|".join(map(re.escape, places))
        choices.append(rf"(?P<place>(?<![\w.}}-])(?:{longer})(?![\w-]|\.\w))")
    if literals:
        choices.append(rf"(?P<literal>\{{(?:literal:)*(?:{_NAMES})\}})")
    return re.compile("|".join(choices))


def _edited(pieces: Sequence[str], edits: Sequence[tuple[int, int, str]]) -> list[str]:
    """Put each edit's text where it begins; what it replaces goes from all pieces it is in."""
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


def hide_paths(text: str, paths: Replacements) -> str:
    """Return `text` with placeholders for personal paths; see `show_paths`."""
    return Hider(paths)(text)


def show_paths(text: str, places: Mapping[str, str]) -> str:
    """Return `text` with `places` for its placeholders; the inverse of `hide_paths`."""

    def show(mark: re.Match[str]) -> str:
        literal, name = mark.groups()
        return f"{{{name}}}" if literal else places.get(name, mark.group())

    return _MARK.sub(show, text)


# -- sessions -----------------------------------------------------------------------------------

_SESSION = re.compile(r"\bsession (\d{4,9})\b", re.IGNORECASE)


class SessionNames:
    """Names for the command sessions of conversations: "session1" is the first, and so on.

    A conversation's history is read once, however many requests carry it.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, dict[str, str]]] = {}

    def of(self, conversation: str, items: Sequence[Item]) -> dict[str, str]:
        """Return the ids of the sessions that tool outputs among `items` name -> their names."""
        count, names = self._known.get(conversation, (0, {}))
        if len(items) < count:  # it was begun anew
            count, names = 0, {}
        for item in items[count:]:
            if isinstance(item, ToolCallOutput):
                for session_id in _SESSION.findall(text_of(item.output)):
                    names.setdefault(session_id, f"session{len(names) + 1}")
        self._known[conversation] = (len(items), names)
        return names
