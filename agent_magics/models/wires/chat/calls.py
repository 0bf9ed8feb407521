"""Assembles tool calls of a Chat Completions stream from their fragments.

By the API every fragment has an ``index``, and the first one of a call its ``id`` and whole
name. Small servers leave the index out or give all calls index 0, leave ids out, repeat id or name
in every fragment, make up a new id for each fragment, send whole calls at once, or split names. The
rules are in `CallAssembler._find`; each names the server that needs it.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_magics.models.bounds import MOST_PARTS, NAME_LENGTH, TEXT_LENGTH, too_large
from agent_magics.protocol.items import JsonMapping, json_object


@dataclass(slots=True)
class CallDraft:
    """A call as received so far.

    Attributes:
        index: the index in its fragments, or None.
        pieces: fragments of its arguments.
        size: number of characters of the arguments.
        extra: opaque data that the server requires to be sent back with the call.
    """

    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    extra: Any = None
    _depth: int = 0
    _in_text: bool = False
    _escape: str = ""
    _closed: bool = False
    _parsed: bool | None = None

    def add(self, piece: str) -> None:
        """Append a fragment of the arguments, and track the depth of brackets without parsing."""
        if not piece:
            return
        self.pieces.append(piece)
        self.size += len(piece)
        if self.size > TEXT_LENGTH:
            raise too_large("a call's arguments", TEXT_LENGTH)
        if self._closed and piece.strip():
            self._parsed = False  # nothing may follow a complete object
        marks = _MARKS.findall(self._escape + piece)
        self._escape = "\\" if marks and marks[-1] == "\\" else ""
        for mark in marks:
            if mark == '"':
                self._in_text = not self._in_text
            elif not self._in_text and mark in "{}":
                self._depth += 1 if mark == "{" else -1
                self._closed |= self._depth <= 0

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Tell whether the arguments are a complete JSON object, after which nothing can follow."""
        if self._closed and self._parsed is None:
            self._parsed = is_json_object(self.arguments)
        return bool(self._parsed)

    def repeats(self, arguments: str) -> bool:
        """Tell whether this call is complete and `arguments` repeats all of its arguments."""
        return len(arguments) == self.size and arguments == self.arguments and self.is_whole()


def is_json_object(text: str) -> bool:
    """Tell whether `text` is one complete JSON object."""
    return text.rstrip().endswith("}") and json_object(text) is not None


# A lone backslash at a fragment's end escapes the first character of the next.
_MARKS = re.compile(r"\\.|[\\\"{}]", re.DOTALL)


class CallAssembler:
    """Assembles calls from fragments.

    Args:
        names: names of the offered tools, to recognise complete names.
        tell: called with each new piece of arguments, after the name of its call.
    """

    def __init__(
        self,
        names: Collection[str] = (),
        tell: Callable[[str, str], None] = lambda name, piece: None,
    ) -> None:
        self._names = names
        self._tell = tell
        self.drafts: list[CallDraft] = []
        self._last_at: dict[int, CallDraft] = {}
        self._last_of: dict[str, CallDraft] = {}  # by id

    def add(self, pieces: object) -> None:
        """Add the ``tool_calls`` of one chunk."""
        if isinstance(pieces, Mapping):  # a single call, not in a list
            pieces = [pieces]
        if not isinstance(pieces, list):
            return
        several = len(pieces) > 1
        for place, piece in enumerate(pieces):
            if isinstance(piece, Mapping):
                self._add_piece(piece, place if several else None)

    def _add_piece(self, piece: JsonMapping, place: int | None) -> None:
        function = piece.get("function") or piece.get("custom") or {}
        if not isinstance(function, Mapping):
            return
        call_id, name = _text(piece.get("id")), _text(function.get("name"))
        # "input" belongs to custom tools; Ollama's own API sends arguments as an object.
        arguments = _arguments(function.get("arguments", function.get("input")))
        index = piece.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = place
        draft = self._find(index, call_id, name, arguments)
        if draft is None:
            draft = self._begin(index)
        elif draft.repeats(arguments):
            arguments = ""  # a complete call sent again by a proxy
        if call_id and not draft.id:
            draft.id = call_id
            self._last_of[call_id] = draft
        draft.name = self._longer_name(draft.name, name)
        if len(draft.name) + len(draft.id) > NAME_LENGTH:
            raise too_large("a call's name", NAME_LENGTH)
        draft.add(arguments)
        if arguments:
            self._tell(draft.name, arguments)
        draft.extra = piece.get("extra_content") or draft.extra

    def _begin(self, index: int | None) -> CallDraft:
        draft = CallDraft(index)
        self.drafts.append(draft)
        if len(self.drafts) > MOST_PARTS:
            raise too_large("a number of calls", MOST_PARTS)
        if index is not None:
            self._last_at[index] = draft
        return draft

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> CallDraft | None:
        """Return the call that a fragment continues, or None if it begins a new one."""
        if index is not None:
            draft = self._last_at.get(index)
        else:
            draft = self.drafts[-1] if self.drafts else None
        same_id = self._last_of.get(call_id)
        if same_id and (draft is None or draft.id != call_id) and (index is None or not name):
            draft = same_id  # the id is more reliable than the index
        if draft is None or not name:
            # Older vLLM makes up a new id for every fragment; only a name begins a call.
            return draft
        if draft.repeats(arguments) and (not call_id or call_id == draft.id):
            return draft if call_id else None
        if call_id and draft.id and call_id != draft.id:
            return None  # index 0 for all, but different ids: Gemini's endpoint, some proxies
        if draft.is_whole():
            return None  # complete calls in sequence, without ids or with the same one
        if draft.size or (call_id and call_id == draft.id):
            return draft  # name, or name and id, are repeated in every fragment
        # No arguments yet: the rest of a name, unless the name is complete.
        return None if index is None and draft.name in self._names else draft

    def _longer_name(self, name: str, piece: str) -> str:
        """Append a fragment of a name, unless it repeats a complete name."""
        if not piece or name == piece or (name in self._names and name + piece not in self._names):
            return name or piece
        return name + piece


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _arguments(value: object) -> str:
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False)
    return _text(value)
