"""Computes which files the read rules withhold from commands, and reports rules it cannot enforce.

A sandbox takes paths, and rules are patterns: the matching paths are therefore looked up before
each command.
"""

from dataclasses import dataclass
from itertools import islice

from agent_magics.approval.read_rules import MOST_ENTRIES, ReadRules
from agent_magics.dispatch.context import ToolContext
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.files.beneath import is_below

_MOST_PLACES = 500  # passed to the sandbox


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The paths that commands must not read.

    Attributes:
        places: the files and folders, without symlinks.
        is_whole: whether the list is complete; False where there are too many to look up.
    """

    places: tuple[str, ...] = ()
    is_whole: bool = True


def find_unreadable(rules: ReadRules) -> Unreadable:
    """Look up the files and folders that read rules forbid or ask about."""
    places: dict[str, None] = {}
    is_whole = True
    for start in rules.starts() if rules.strict else ():
        seen = list(islice(rules.entries(start), MOST_ENTRIES + 1))
        is_whole = is_whole and len(seen) <= MOST_ENTRIES
        places.update((path, None) for path, is_ruled in seen if is_ruled)
    return Unreadable(tuple(islice(places, _MOST_PLACES)), is_whole and len(places) <= _MOST_PLACES)


def rules_not_kept(ctx: ToolContext, confinement: Confinement | None) -> str:
    """Name the read rules that the sandbox does not enforce for a command; "" for none."""
    rules = ctx.turn.read_rules()
    if not rules.strict or ctx.bypass_sandbox:
        return ""
    found = find_unreadable(rules)
    if confinement is None:
        open_places, why = found.places, "no sandbox confines commands here"
    elif confinement.tier < 2:
        # Landlock cannot deny a file inside a folder that it grants.
        open_places = tuple(p for p in found.places if is_below(p, confinement.writable))
        why = "a sandbox of tier 1 takes nothing back inside the workspace"
    else:
        open_places = tuple(p for p in found.places if not is_below(p, confinement.hidden))
        why = "the command needs folders inside"
    if not open_places and found.is_whole:
        return ""
    if not open_places:
        why = "there is more below than is looked up before a command"
    patterns = ", ".join(dict.fromkeys(str(rule.pattern) for rule in rules.strict))
    return f"[Rules about reading {patterns} cannot be kept for commands ({why}). Keep to them.]"
