"""What one word of ``%agent`` is: its function, its help, and what may follow it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError

_NUMBER = re.compile(r"[\d.,]+( [\w%]+)?|-|")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; "|" and line ends in the cells are escaped.

    Args:
        head: the headings.
        rows: the cells, as Markdown.
    """

    def row_of(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    columns = zip(*rows, strict=True) if rows else [()] * len(head)
    # Explicit, since JupyterLab aligns everything to the right otherwise.
    sides = [" ---: |" if all(map(_NUMBER.fullmatch, column)) else " :--- |" for column in columns]
    return "\n".join([row_of(head), "|" + "".join(sides), *map(row_of, rows)])


@dataclass(frozen=True, slots=True)
class Returned:
    """A value that the cell of an ``%agent`` line returns, where others show Markdown."""

    value: Any


Action: TypeAlias = Callable[[NotebookAgents, Sequence[str]], str | Returned]


@dataclass(frozen=True, slots=True)
class Command:
    """One word of ``%agent``.

    Attributes:
        act: runs it.
        following: the words that complete it.
        is_alone: whether nothing may follow it.
        is_verbatim: whether the person's words follow it, or a key that no error may show.
        text: its help; else the first line of the function's docstring.
    """

    act: Action
    following: Iterable[str] = ()
    is_alone: bool = False
    is_verbatim: bool = False
    text: str = ""

    @property
    def help(self) -> str:
        """Its help, one line."""
        return self.text or first_line(self.act)


class Forms:
    """The forms of what may follow a word, each with the function that runs it.

    A word of a form in capitals is a value, also ``[NAME]`` (may be left out) and ``NAME ...`` (one
    or more); of ``a|b`` one is a value; any other stands as it is.

    Args:
        line: what stands before, such as ``%agent skills``.
        forms: the functions by their forms; each gets what `run` gets, and the values.
        note: ends the sentence that lists the forms.
    """

    def __init__(self, line: str, forms: Mapping[str, Callable[..., Any]], note: str = "") -> None:
        self._line, self._forms, self._note = line, forms, note

    @property
    def words(self) -> list[str]:
        """Return the words that stand as they are, for completion."""
        parts = (part for part in " ".join(self._forms).split() if part.islower())
        return list(dict.fromkeys(word for part in parts for word in part.strip("[]").split("|")))

    def usage(self, word: str = "") -> str:
        """Return the sentence that lists the forms, or those alone that begin with a word."""
        of_word = [form for form in self._forms if word and form.split()[:1] == [word]]
        forms = ", ".join(form or "nothing" for form in of_word or self._forms)
        return f"{self._line} takes: {forms}{self._note}."

    @property
    def help(self) -> str:
        """The forms, each with the first line of what its function says of itself."""
        return help_table(
            self._line, ((form, first_line(act)) for form, act in self._forms.items())
        )

    def run(self, arguments: Sequence[str], *context: Any) -> Any:
        """Run the function of the first form that fits.

        Raises:
            FatalError: none fits.
        """
        for form, act in self._forms.items():
            values = _values(form, arguments)
            if values is not None:
                return act(*context, *values)
        raise FatalError(self.usage(*arguments[:1]))

    def command(self, text: str) -> Command:
        """Return the command whose functions get the notebook, and the values."""
        return Command(
            lambda notebook, arguments: self.run(arguments, notebook), self.words, text=text
        )


def _values(form: str, arguments: Sequence[str]) -> list[str] | None:
    """Return the values in the arguments; None where they do not have this form."""
    parts = form.split()
    if parts[-1:] == ["..."]:
        parts = [*parts[:-1], *parts[-2:-1] * (len(arguments) - len(parts) + 1)]
    required = sum(not part.startswith("[") for part in parts)
    if not required <= len(arguments) <= len(parts):
        return None
    pairs = [(part.strip("[]"), given) for part, given in zip(parts, arguments, strict=False)]
    if any(part.islower() and given not in part.split("|") for part, given in pairs):
        return None
    return [given for part, given in pairs if not part.islower() or "|" in part]


def first_line(function: Callable[..., Any]) -> str:
    """Return the first line of a docstring."""
    return (function.__doc__ or "").strip().partition("\n")[0]


def help_table(line: str, words: Iterable[tuple[str, str]]) -> str:
    """Return the help of a line magic as a table.

    Args:
        line: what stands before the words.
        words: each with its help.
    """
    return table(("", ""), [(f"`{line} {word}`", text) for word, text in words])
