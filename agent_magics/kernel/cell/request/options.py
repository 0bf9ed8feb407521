"""Parses the options on the first line of a ``%%agent`` cell, and evaluates those that are code."""

import argparse
import builtins
import keyword
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unicodedata import normalize

from IPython.core import error as ipython_error
from IPython.core.magic_arguments import MagicArgumentParser

from agent_magics.engine.foreground.interrupt import call_of_person
from agent_magics.kernel.typed_words import split_words
from agent_magics.protocol.config import Where
from agent_magics.protocol.errors import FatalError, short_message, typed_message
from agent_magics.render.visible import show_hidden
from agent_magics.settings.table import settings_in
from agent_magics.text.brief import meant

_REFUSED = re.compile(r"""(["']).*?\1(?=$| \()""")
# What IPython and Python bind in every namespace, and we do beside it (`_agent`, `_r7`).
_OF_SHELL = re.compile(
    r"In|Out|get_ipython|exit|quit|_{1,3}|_i{1,3}|_[iod]h|_[ir]?\d+|_exit_code|_agent|__\w+__"
)
_OF_MAPS = ("ask_above", "parts", "batch", "engine")
_NOT_IN_MAPS = ("plan", "prompt", "new", "tools", "max_turns", "sandbox")


class _Options(argparse.Namespace):
    """Options while a parser reads them: it sets the default of each, then what is given."""

    def __setattr__(self, name: str, value: object) -> None:
        before = vars(self).get(name)
        if before is not None and before is not False:
            raise FatalError(f"{_flag(name)} is given twice; give it once.")
        super().__setattr__(name, value)


class UsageError(ipython_error.UsageError):  # type: ignore[misc] # it has no types
    """An error that is shown as one sentence, and sent as an error: IPython prints its own kind on
    stderr, where `nbval --nbval-lax` takes the cell for one that ended well.
    """

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows."""
        return [f"UsageError: {self}"]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors for the person into such a sentence, which may quote others: nothing of it stays
    hidden, or acts on a terminal. An interrupt is one line, too.
    """
    try:
        yield
    except FatalError as error:
        raise UsageError(show_hidden(short_message(error))) from None
    except KeyboardInterrupt as error:
        line = "KeyboardInterrupt: Interrupted by the person."
        error.__dict__["_render_traceback_"] = lambda: [line]
        raise


def parse_options(parser: MagicArgumentParser, line: str) -> argparse.Namespace:
    """Return the options of a cell's first line.

    Raises:
        FatalError: a word of it is no option; the message says which one may be meant, or where a
            prompt belongs. Or an option is given twice, or has a value that it does not take.
    """
    parser.exit_on_error = False  # so that the sentence is ours
    try:
        found, unknown = parser.parse_known_args(split_words(line), _Options())
    except (argparse.ArgumentError, ipython_error.UsageError) as error:
        raise FatalError(_misused(parser, error)) from None
    if not unknown:
        options = argparse.Namespace(**vars(found))
        _check_values(options)
        _check_beside_map(options)
        _check_into(options)
        return options
    words = " ".join(unknown)
    if not unknown[0].startswith("-"):
        raise FatalError(f"Write the prompt below %%agent, which takes only options: {words}")
    name = unknown[0].partition("=")[0]
    setting = name[2:].replace("-", "_")
    if setting in settings_in(Where.NOTEBOOK):
        raise FatalError(
            f"%%agent has no option {name}; set it for all cells: %config AgentMagics.{setting} = …"
        )
    names = [flag for action in parser._actions for flag in action.option_strings]
    raise FatalError(f"%%agent has no option {name}; {meant(name, names)} %%agent? explains them.")


def _misused(parser: argparse.ArgumentParser, error: Exception) -> str:
    """Return the sentence about an option whose value is missing or does not fit."""
    about = getattr(error, "argument_name", None)
    found = (act for act in parser._actions if "/".join(act.option_strings) == about)
    action = next(found, None)
    if action is None:  # several options begin with the word
        return f"Ambiguous{short_message(error).removeprefix('ambiguous')}."
    name = next(each for each in action.option_strings if each.startswith("--"))
    given = _REFUSED.search(short_message(error))
    if given is None:
        values = meant("", action.choices) if action.choices else "%%agent? explains it."
        return f"{name} needs a value; {values}"
    if action.choices:
        return f"{name} does not take {given[0]}; {meant(given[0][1:-1], action.choices)}"
    number = "a whole number" if action.type is int else "a number"
    takes = "no value" if action.nargs == 0 else number
    return f"{name} takes {takes}, not {given[0]}."


def _check_values(options: argparse.Namespace) -> None:
    """Refuse options whose value is empty: they would count as not given."""
    for name, value in vars(options).items():
        words = value if isinstance(value, list) else [value]
        if all(isinstance(word, str) and not word.strip(" ,") for word in words):
            raise FatalError(f"{_flag(name)} is empty; give it a value, or leave it out.")


def _check_beside_map(options: argparse.Namespace) -> None:
    """Refuse options that would do nothing, with ``--map`` or without it."""
    for name in _NOT_IN_MAPS if options.map else _OF_MAPS:
        if getattr(options, name) not in (None, False):
            needs = "does not go with" if options.map else "needs"
            raise FatalError(f"{_flag(name)} {needs} --map.")


def _check_into(options: argparse.Namespace) -> None:
    """Check the variable's name, and write it as Python does where code names it."""
    given = options.into
    if given is None:
        return
    options.into = name = normalize("NFKC", given)
    if not given.isidentifier() or keyword.iskeyword(name):
        raise FatalError(f"--into {given}: not a variable's name, such as df.")
    if hasattr(builtins, name) or _OF_SHELL.fullmatch(name):
        raise FatalError(f"--into {given}: Python or IPython uses this name; choose another one.")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def evaluate(option: str, expression: str, namespace: Mapping[str, Any], takes: str) -> Any:
    """Return the value of an option's Python expression, in a copy of the person's namespace.

    Args:
        option: the option's name, such as "map".
        expression: what the person wrote.
        namespace: the person's variables.
        takes: what the option takes, for the error.

    Raises:
        FatalError: it raises; the sentence says what the option takes.
    """
    try:
        code = compile(expression, f"--{option}", "eval")
        return call_of_person(eval, code, {**namespace})
    except (Exception, SystemExit) as error:  # the person's expression may raise anything
        raise FatalError(
            f"--{option} {expression}: {typed_message(error)}; it takes {takes}."
        ) from None


def read_type(expression: str | None, namespace: Mapping[str, Any]) -> Any:
    """Evaluate a type expression; None stays None.

    Args:
        expression: such as ``list[Row]``.
        namespace: the person's variables, and the names that their modules define.

    Raises:
        FatalError: it cannot be evaluated. Whether it is a type is checked by `OutputType`.
    """
    if expression is None:
        return None
    source = expression.strip()
    takes = 'a type as you would write it in this notebook, such as "list[Row]"'
    kind = evaluate("output", source, namespace, takes)
    if kind is None:
        raise FatalError(f"--output {source} is no type; leave it out for an answer in words.")
    return kind
