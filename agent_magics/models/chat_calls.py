"""Tool calls of a Chat Completions stream, put together from whatever pieces a server sends.

The API's own form gives every piece an ``index``, and the first one of a call its ``id`` and whole
name. Small servers leave the index out or give all calls index 0, leave ids out, repeat id or name
in every piece, make up a new id for each piece, send whole calls at once, or cut names in two. The
rules below are in `CallAssembler._find`; each says which server it is for.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class CallDraft:
    """A call as far as it has come.

    Attributes:
        index: the place that its pieces name, or None.
        pieces: its arguments.
        size: how many characters of arguments there are.
        extra: what the server wants to have back with the call, opaque to us.
    """

    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    extra: Any = None

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Whether the arguments are a whole JSON object, after which nothing can follow."""
        return self.size > 0 and is_json_object(self.arguments)

    def repeats(self, arguments: str) -> bool:
        """Whether `arguments` are those of this whole call once more."""
        return len(arguments) == self.size and arguments == self.arguments and self.is_whole()


def is_json_object(text: str) -> bool:
    """Return whether `text` is one whole JSON object."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class CallAssembler:
    """Puts the pieces together.

    Args:
        names: the tools that were offered; tells a whole name from the first part of one.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self.drafts: list[CallDraft] = []

    def add(self, pieces: Any) -> None:
        """Take the ``tool_calls`` of one chunk."""
        if isinstance(pieces, Mapping):  # a single call without its list
            pieces = [pieces]
        if not isinstance(pieces, list):
            return
        several = len(pieces) > 1
        for place, piece in enumerate(pieces):
            if isinstance(piece, Mapping):
                self._add_piece(piece, place if several else None)

    def _add_piece(self, piece: Mapping[str, Any], place: int | None) -> None:
        function = piece.get("function") or piece.get("custom") or {}
        if not isinstance(function, Mapping):
            return
        call_id, name = _text(piece.get("id")), _text(function.get("name"))
        # "input" is that of a custom tool; Ollama's own API has arguments as an object.
        arguments = _arguments(function.get("arguments", function.get("input")))
        index = piece.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = place
        draft = self._find(index, call_id, name, arguments)
        if draft is None:
            draft = CallDraft(index)
            self.drafts.append(draft)
        elif draft.repeats(arguments):
            arguments = ""  # a whole call that is sent once more, by a proxy that repeats itself
        draft.id = draft.id or call_id
        draft.name = self._longer_name(draft.name, name)
        draft.pieces.append(arguments)
        draft.size += len(arguments)
        draft.extra = piece.get("extra_content") or draft.extra

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> CallDraft | None:
        """Return the call that a piece goes on with; None: it begins a new one."""
        if index is not None:
            draft = self._last_at(index)
        else:
            draft = self.drafts[-1] if self.drafts else None
        same_id = [each for each in self.drafts if call_id and each.id == call_id]
        if same_id and draft not in same_id and (index is None or not name):
            draft = same_id[-1]  # the id says more than the place does
        if draft is None or not name:
            # Older vLLM makes up a new id for every piece; only a name begins a call.
            return draft
        if draft.repeats(arguments) and (not call_id or call_id == draft.id):
            return draft if call_id else None
        if call_id and draft.id and call_id != draft.id:
            return None  # index 0 for all, but ids that differ: Gemini's endpoint, some proxies
        if draft.is_whole():
            return None  # whole calls one after the other, all without ids or with the same one
        if draft.size or (call_id and call_id == draft.id):
            return draft  # name, or name and id, are repeated in every piece
        # Without arguments yet: the rest of a name, unless the name is whole already.
        return None if index is None and draft.name in self._names else draft

    def _last_at(self, index: int) -> CallDraft | None:
        return next((draft for draft in reversed(self.drafts) if draft.index == index), None)

    def _longer_name(self, name: str, piece: str) -> str:
        """Add a piece of a name; servers that repeat the whole name are taken at their word."""
        if not piece or name == piece or (name in self._names and name + piece not in self._names):
            return name or piece
        return name + piece


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _arguments(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False)
    return _text(value)
