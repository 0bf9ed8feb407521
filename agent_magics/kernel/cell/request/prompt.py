"""Reads ``--prompt NAME field=value``, or ``/NAME field=value``, and fills the prompt in."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from agent_magics.kernel.live.namespace import interpolate
from agent_magics.project.prompts import fill_prompt, find_prompts
from agent_magics.protocol.errors import FatalError

_NAMED = re.compile(r"/([\w-]{1,64})(?:[ \t][^\n]*)?(?:\n|\Z)")


def split_prompt(text: str, workspace: Path) -> tuple[list[str], str]:
    """Split a first line ``/name field=value`` from a cell's text.

    Only the name of a prompt makes it one; ``/tmp`` is text.

    Args:
        text: the cell's text.
        workspace: the folder of the agent.

    Returns:
        The words as those of ``--prompt``, and the rest; no words where the text begins otherwise.
    """
    line = _NAMED.match(text)
    if line is None or line[1] not in {each.name for each in find_prompts(workspace)}:
        return [], text
    return [line[0][1:].rstrip()], text[line.end() :].strip()


def read_prompt(words: Sequence[str], workspace: Path, namespace: dict[str, object]) -> str:
    """Return the text of a named prompt.

    Args:
        words: the name, then ``field=value``; a value may stand in quotes, and ``{{expression}}``
            in it is replaced as in a cell.
        workspace: the folder of the agent.
        namespace: the person's variables.

    Raises:
        FatalError: there is no such prompt, or the fields do not fit.
    """
    try:  # anew: IPython also splits a value in quotes at its spaces
        name, *pairs = shlex.split(" ".join(words))
    except ValueError as error:
        raise FatalError(f"The quotes after --prompt do not fit: {error}.") from None
    values = dict[str, str]()
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals or field in values:
            raise FatalError(f"--prompt {name}: expected field=value once a field, got {pair!r}.")
        values[field] = interpolate(value, namespace)
    return fill_prompt(workspace, name, values)
