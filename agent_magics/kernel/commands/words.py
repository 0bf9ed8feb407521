"""Parses what follows a word of ``%agent``: its forms, each with the function that it runs."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.render.tables import table
from agent_magics.text.brief import meant

_OPTION = re.compile(r"\[(--[a-z-]+) ?([A-Z]*)\]")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Returned:
    """A value that the cell of an ``%agent`` line returns, where others show Markdown."""

    value: Any


class Command:
    """One word of ``%agent``, and the forms of what may follow it.

    Of a form, a word in capitals is a value, also ``[NAME]`` (may be left out) and ``NAME ...``
    (one or more); ``N`` is a number from 1; of ``a|b`` one is a value; ``[--option]`` and
    ``[--option VALUE]`` may stand anywhere; any other word stands as it is. A line that begins
    with such a word has no form that does not.

    Args:
        word: the word.
        forms: the functions by their forms; each gets the notebook, the values, and the options by
            name. They return Markdown, or a `Returned`.
        note: ends the sentence that lists the forms.
        text: its help; else the first line of the first function's docstring.
        of_agent: whether the line may name an agent, which the functions get after the notebook:
            by ``--name NAME`` before a text of the person, by its name anywhere otherwise.
        is_verbatim: whether a text of the person follows it, or a key that no error may show.
    """

    def __init__(
        self,
        word: str,
        forms: Mapping[str, Callable[..., Any]],
        *,
        note: str = "",
        text: str = "",
        of_agent: bool = False,
        is_verbatim: bool = False,
    ) -> None:
        self.word, self.is_verbatim = word, is_verbatim
        self._forms, self._note, self._of_agent = forms, note, of_agent
        self.help = text or _first_line(next(iter(forms.values())))

    @property
    def following(self) -> list[str]:
        """The words that stand as they are, for completion."""
        parts = (part.strip("[]") for part in " ".join(self._forms).split())
        return list(dict.fromkeys(each for p in parts if p.islower() for each in p.split("|")))

    @property
    def details(self) -> str:
        """A table of the forms, each with the first line of its function's docstring."""
        return help_table(
            (f"{self.word} {form}", _first_line(a)) for form, a in self._forms.items()
        )

    def usage(self, first: str = "", note: str = "") -> str:
        """Return the sentence that lists the forms, or those alone that begin with a word."""
        forms = ", ".join(form or "nothing" for form in self._of(first))
        return f"%agent {self.word} takes: {forms}{self._note}{note}.".replace("....", "...")

    def act(self, notebook: NotebookAgents, arguments: Sequence[str]) -> Any:
        """Run the function of the first form that fits.

        Raises:
            FatalError: none fits, or there is no such agent.
        """
        if not self._of_agent:
            return self.run(arguments, notebook)
        known = list(dict.fromkeys([notebook.settings.name, *notebook.agents]))
        name, rest = self._addressed(known, arguments)
        note = f"; and the name of an agent: {', '.join(known)}"
        return self.run(rest, notebook, notebook.agent_named(name), note=note)

    def run(self, arguments: Sequence[str], *context: Any, note: str = "") -> Any:
        """Run the function of the first form that fits.

        Args:
            arguments: the words of the line.
            context: what the functions get before the values.
            note: ends the sentence where none fits.

        Raises:
            FatalError: none fits.
        """
        first = "".join(arguments[:1])
        for form in self._of(first):
            read = _read(form, arguments)
            if read is not None:
                return self._forms[form](*context, *read[0], **read[1])
        raise FatalError(self.usage(first, note))

    def _of(self, first: str) -> list[str]:
        """Return the forms of a line that begins with a word."""
        own = [form for form in self._forms if first and _is_literal(form, first)]
        return own or [*self._forms]

    def _addressed(
        self, known: Sequence[str], arguments: Sequence[str]
    ) -> tuple[str, Sequence[str]]:
        """Return the name of an agent that a line holds, "" if none, and the other words."""
        if self.is_verbatim:
            named = arguments[1:2] if arguments[:1] == ["--name"] else []
            rest = arguments[2:] if named else arguments
        else:
            named = [each for each in arguments if each in known and each not in self.following]
            rest = [each for each in arguments if each not in named]
        if len(named) > 1:
            raise FatalError(f"One agent at a time, please: {', '.join(named)}.")
        if named and named[0] not in known:
            raise FatalError(f"There is no agent {named[0]!r}; {meant(named[0], known)}")
        return "".join(named), rest


def help_table(words: Iterable[tuple[str, str]]) -> str:
    """Return the help of words of ``%agent`` as a table."""
    return table(("", ""), [(f"`%agent {word.rstrip()}`", text) for word, text in words])


def _is_literal(form: str, first: str) -> bool:
    part = "".join(form.split()[:1])
    return part.islower() and first in part.split("|")


def _read(form: str, arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the values of a line and its options by name; None where it has not this form."""
    kinds = dict(_OPTION.findall(form))
    options: dict[str, Any] = {}
    words = []
    rest = iter(arguments)
    for word in rest:
        name, equals, given = word.partition("=")
        if not kinds or not word.startswith("--"):
            words.append(word)
            continue
        kind = kinds.get(name)
        if kind is None or (equals and not kind):
            return None
        text = given if equals or not kind else next(rest, None)
        options[name.strip("-").replace("-", "_")] = _value(kind, text) if kind else True
    parts = _OPTION.sub("", form).split()
    if parts[-1:] == ["..."]:
        parts = [*parts[:-1], *parts[-2:-1] * (len(words) - len(parts) + 1)]
    required = sum(not part.startswith("[") for part in parts)
    if not required <= len(words) <= len(parts):
        return None
    parts = [part.strip("[]") for part in parts[: len(words)]]
    values = [*map(_value, parts, words)]
    if None in values or None in options.values():
        return None
    chosen = (not part.islower() or "|" in part for part in parts)
    return list(compress(values, chosen)), options


def _value(part: str, given: str | None) -> str | int | None:
    """Return what a word means at a part of a form; None where it does not fit."""
    if part == "N":
        return int(given) if given and _NUMBER.fullmatch(given) else None
    return given if not part.islower() or given in part.split("|") else None


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]
