"""JSON files with the line of every key, which the json module does not tell."""

import json
import re
from pathlib import Path
from typing import Any

from agent_magics.protocol.errors import FatalError

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def parse_json(text: str, path: Path) -> Any:
    """Return what a JSON text says.

    Raises:
        FatalError: it is not JSON; says file and line.
    """
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise FatalError(f"{path}, line {error.lineno}: this is not JSON: {error.msg}.") from None
    except RecursionError:
        raise FatalError(f"{path}, line 1: this JSON is nested too deeply.") from None


class JsonPlaces:
    """The lines of the keys of a valid JSON text.

    Attributes:
        twice: the path of the first key that stands twice in one object, () where there is none.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        self.twice: tuple[str, ...] = ()
        path: list[str] = []
        inside: list[str] = []  # "{" or "[" of what is open
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
                case word if expects_key:
                    expects_key = False
                    path[-1] = json.loads(word)
                    self._note(tuple(path), line)

    def _note(self, path: tuple[str, ...], line: int) -> None:
        if path in self._lines and "" not in path and not self.twice:
            self.twice = path
        self._lines[path] = line

    def line_of(self, *path: str) -> int:
        """Return the line of a key, else of the nearest thing that it stands in."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 1
