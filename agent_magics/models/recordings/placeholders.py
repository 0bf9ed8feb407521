"""Replaces placeholders in recordings by this run's paths, session ids and call ids."""

import itertools
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agent_magics.models.base import ItemDone, ModelEvent, ReasoningChunk, TextChunk
from agent_magics.models.recordings.redaction import show_paths
from agent_magics.models.wires.bodies import json_text
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
)


class PlaceholderResolver:
    """Replaces placeholders in recorded events, and numbers calls so that each id is unique.

    Args:
        cwd: the value of {cwd}.
    """

    def __init__(self, cwd: str | Path) -> None:
        self._places = {
            "cwd": os.path.normpath(Path(cwd).absolute()),
            "home": str(Path.home()),
            "tmp": os.path.realpath(tempfile.gettempdir()),
        }
        self._call_numbers = itertools.count(1)

    def show(self, text: str) -> str:
        """Return a recorded text with the paths of this run."""
        return show_paths(text, self._places)

    def localise(self, event: ModelEvent, sessions: Mapping[str, str]) -> ModelEvent:
        """Return a recorded event with the values of this run.

        Args:
            event: the recorded event.
            sessions: the ids of this run's command sessions -> their names in recordings.
        """
        places = self._places | {name: session_id for session_id, name in sessions.items()}
        match event:
            case TextChunk(text):
                return TextChunk(show_paths(text, places))
            case ReasoningChunk(text):
                return ReasoningChunk(show_paths(text, places))
            case ItemDone(item):
                return ItemDone(self._localise_item(item, places))
        return event

    def _localise_item(self, item: Item, places: Mapping[str, str]) -> Item:
        """Return the item without its recorded id, to which nothing refers."""
        match item:
            case AssistantMessage(text):
                return replace(item, text=show_paths(text, places), id=None)
            case FunctionCall(arguments=arguments):
                escaped = {name: json_text(path)[1:-1] for name, path in places.items()}
                arguments = show_paths(arguments, escaped)
                return replace(item, call_id=self._call_id(), id=None, arguments=arguments)
            case CustomToolCall(input=text):
                text = show_paths(text, places)
                return replace(item, call_id=self._call_id(), id=None, input=text)
            case LocalShellCall(command=command, workdir=workdir):
                command = tuple(show_paths(argument, places) for argument in command)
                workdir = workdir and show_paths(workdir, places)
                return replace(
                    item, call_id=self._call_id(), id=None, command=command, workdir=workdir
                )
        return item

    def _call_id(self) -> str:
        return f"call_{next(self._call_numbers)}"
