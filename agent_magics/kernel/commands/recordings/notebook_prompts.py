"""Reads the prompts in the cells of a saved notebook."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magics.files.plain_files import load_json, read_plain
from agent_magics.kernel.cell.request.reading import NAMED, text_of
from agent_magics.models.recordings.format import prompt_key
from agent_magics.models.recordings.text import words_of
from agent_magics.project.prompts import PromptFile
from agent_magics.protocol.errors import FatalError, clause

_MOST_NOTEBOOK = 64 << 20  # bytes, pictures and all
# Other magics, such as %%time, may stand above it.
_MAGIC = re.compile(r"\s*(?:%%[^\n]*\n\s*)*?%%agent\b([^\n]*)(?:\n(.*))?", re.DOTALL)
_OPTION = re.compile(r"\s--pr\w*[ \t=]+[\"']?([\w-]+)")
# Where another one begins in it, it ends there: text of others is matched in linear time. Behind a
# backslash it may be a field of a prompt, or is text, which is a part of "any text", too.
_EXPRESSION = re.compile(r"\\?\{\{(?:(?!\{\{).)*?\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NotebookPrompts:
    """The prompts of a notebook's cells.

    Attributes:
        cells: the prompts of its ``%%agent`` cells, as the texts between their expressions.
        code: its other code cells, which may contain prompts as strings of a program.
    """

    cells: tuple[tuple[str, ...], ...]
    code: str

    def uses(self, prompt: str) -> bool:
        """Return whether a cell contains `prompt`, whatever its white space."""
        prompt = prompt_key(prompt)
        return any(_fits(cell, prompt) for cell in self.cells) or words_of(prompt) in self.code


def prompts_of_notebook(
    path: Path, hide: Callable[[str], str], named: Sequence[PromptFile] = ()
) -> NotebookPrompts:
    """Read the prompts of the notebook file `path`, as it was saved last.

    Args:
        path: the notebook.
        hide: replaces personal paths by placeholders, as in recordings.
        named: the prompts that a cell may name, trusted or not.

    Raises:
        FatalError: there is no such notebook.
    """
    cells, code = [], []
    for source in _sources(path):
        magic = _MAGIC.match(source)
        if magic is not None:
            texts = _texts_of(magic[1], text_of(magic[2] or ""), named)
            cells += [_fixed_parts(hide(text)) for text in texts]
        else:
            code.append(prompt_key(hide(source)))
    return NotebookPrompts(tuple(cells), "\n".join(code))


def _sources(path: Path) -> list[str]:
    try:
        cells = load_json(read_plain(path, _MOST_NOTEBOOK, links=True))["cells"]
        return [_text(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except OSError as error:
        raise FatalError(f"Cannot read the notebook {path}: {clause(error)}; name it.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FatalError(f"{path} is not a notebook.") from None


def _text(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def _texts_of(line: str, text: str, named: Sequence[PromptFile]) -> list[str]:
    """Return what a cell may ask: its text, below that of each prompt with the name that it gives
    in the line of options or in the first one of its text.
    """
    option, first = _OPTION.search(line), NAMED.match(text)
    name = option or first
    rest = text[first.end() :] if first and not option else text
    return [f"{each.text}\n\n{rest}" for each in named if name and each.name == name[1]] or [text]


def _fixed_parts(prompt: str) -> tuple[str, ...]:
    return tuple(map(prompt_key, _EXPRESSION.split(prompt)))


def _fits(fixed: Sequence[str], prompt: str) -> bool:
    """Tell whether a prompt is these texts in their order, with any text between them."""
    first, *others = fixed
    if not others:
        return prompt == first
    *middle, last = others
    at, end = len(first), len(prompt) - len(last)
    for part in middle:
        found = prompt.find(part, at, max(end, 0))
        if found < 0:
            return False
        at = found + len(part)
    return at <= end and prompt.startswith(first) and prompt.endswith(last)
