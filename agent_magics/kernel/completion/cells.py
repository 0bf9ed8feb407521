"""Completes at the cursor of a cell: options and words of its line, mentions in its prompt."""

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from agent_magics.kernel.completion.mentions import Candidate, complete_column, complete_mention
from agent_magics.kernel.completion.options import complete_line

# A line of ours up to the cursor; `plan = %agent tools` is one too.
_LINE = re.compile(r"\s*+(?:[\w, ]++= *+)?(%%?agent\s.*)")
# The line that makes a cell an agent's: the first one, or below another cell magic such as %%time.
_PROMPT = re.compile(r"\s*(?:%%(?!agent\b)\w[^\n]*\n)*%%agent(?:[ \t][^\n]*)?\n")
# In its first lines the variable with the rows that are asked about.
_MAP = re.compile(r"\s--map[ \t=]+[\"']?(\w+)[\"']?(?=\s)")


class Completions(NamedTuple):
    """What may stand from `start` to the cursor instead of what stands there.

    Attributes:
        start: offset in the cell, in characters.
        found: the candidates, the likeliest first.
    """

    start: int
    found: tuple[Candidate, ...] = ()


def complete_cell(
    code: str,
    offset: int,
    parser: argparse.ArgumentParser,
    namespace: Mapping[str, object],
    hidden: Iterable[str] = (),
    workspace: Path = Path(),
    agents: Iterable[str] = (),
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Completions:
    """Return the completions at the cursor of a cell; none where it is not an agent's place.

    Args:
        code: the whole text of the cell.
        offset: the cursor's place in it, in characters.
        parser: the options of ``%%agent`` with their choices.
        namespace: the variables of the kernel.
        hidden: names of variables that are not the person's.
        workspace: the folder of the agent, for its files and prompts.
        agents: the names of the agents.
        given: the settings of the notebook.
    """
    before = code[:offset]
    line = before.rpartition("\n")[2]
    if ours := _LINE.fullmatch(line):
        begun, words = complete_line(ours[1], parser, namespace, workspace, agents, given)
        return Completions(offset - len(begun), tuple(map(Candidate, words)))
    if prompt := _PROMPT.match(before):
        text = before[prompt.end() :]
        if " --map" in prompt[0]:  # there braces name columns, and no variables
            rows = _MAP.search(prompt[0])
            begun, found = complete_column(text, rows and namespace.get(rows[1]))
        else:
            begun, found = complete_mention(text, namespace, hidden, workspace)
        return Completions(offset - len(begun), found)
    return Completions(offset)
