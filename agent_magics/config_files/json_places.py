"""Parses JSON files with the line of every key, which the json module does not report."""

import json
import re
from pathlib import Path
from typing import Any

from agent_magics.files.plain_files import load_json
from agent_magics.protocol.errors import FatalError, clause

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def parse_json(text: str, path: Path) -> Any:
    """Parse JSON text.

    Raises:
        FatalError: it is not JSON; the message names file and line.
    """
    try:
        return load_json(text)
    except json.JSONDecodeError as error:
        raise FatalError(f"{path}, line {error.lineno}: this is not JSON: {error.msg}.") from None
    except ValueError as error:
        raise FatalError(f"{path}, line 1: this JSON is not read: {clause(error)}.") from None


class JsonPlaces:
    """Line numbers of the keys of a valid JSON text.

    Attributes:
        twice: path of the first key that occurs twice in one object, or ().
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        self.twice: tuple[str, ...] = ()
        path: list[str] = []
        inside: list[str] = []  # the open brackets, outermost first
        line, at, expects_key = 1, 0, False
        for token in _TOKEN.finditer(text):
            line += text.count("\n", at, token.start())
            at = token.start()
            match token[0]:
                case "{" | "[" as opened:
                    inside.append(opened)
                    path.append("")
                    expects_key = opened == "{"
                case "}" | "]":
                    inside.pop()
                    path.pop()
                case ",":
                    expects_key = inside[-1] == "{"
                case key if expects_key:
                    expects_key = False
                    path[-1] = json.loads(key)
                    self._note(tuple(path), line)

    def _note(self, path: tuple[str, ...], line: int) -> None:
        if path in self._lines and "" not in path and not self.twice:
            self.twice = path
        self._lines[path] = line

    def line_of(self, *path: str) -> int:
        """Return the line of a key, or of the nearest object around it, counted from 1."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 1
