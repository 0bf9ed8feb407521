"""Matches relative paths against globs, in linear time."""

import fnmatch
import re
from collections.abc import Callable

from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import RespondToModel

_MOST_GLOBS = 100
_BRACES = re.compile(r"\{([^{}]*)\}")
# What no path below a folder begins with, or holds. A model may mean an absolute path by it.
_OUTSIDE = re.compile(r"!|~?/|(?:.*/)?\.\.(?:/|$)", re.DOTALL)


def name_matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return a predicate that tells whether a relative path matches a glob.

    A pattern without "/" is matched against the name alone, one with "/" against the whole relative
    path, where ``**`` matches any number of folders. ``{a,b}`` means either. None matches
    everything.

    Raises:
        RespondToModel: `pattern` fits no path, or its braces expand to too many globs.
    """
    check("pattern", pattern, str | None, RespondToModel)
    if pattern is None:
        return lambda path: True
    written = _without_braces(pattern)
    if not pattern:
        raise RespondToModel("The pattern is empty; give one such as *.py or src/**/*.ts.")
    if any(map(_OUTSIDE.match, written)):
        raise RespondToModel(
            f"The pattern {pattern!r} fits no file: it is held against paths below path, so write "
            "it without !, / or ~/ at its start and without '..', and give the folder as path."
        )
    globs = list(map(_as_parts, written))
    if "/" not in pattern.strip("/"):
        return lambda path: any(_fits(parts, [path.rpartition("/")[2]]) for parts in globs)
    return lambda path: any(_fits(parts, path.split("/")) for parts in globs)


_GlobParts = list[re.Pattern[str] | None]  # None stands for ``**``


def _as_parts(glob: str) -> _GlobParts:
    return [
        None if part == "**" else re.compile(fnmatch.translate(part))
        for part in glob.removeprefix("./").strip("/").split("/")
    ]


def _fits(globs: _GlobParts, parts: list[str]) -> bool:
    """Match path components against `globs`, tracking all positions at once, as an NFA does."""
    reached = _past_stars(globs, {0})
    for part in parts:
        following = set()
        for at in reached:
            if at < len(globs):
                glob = globs[at]
                if glob is None:
                    following.add(at)
                elif glob.match(part):
                    following.add(at + 1)
        reached = _past_stars(globs, following)
    return len(globs) in reached


def _past_stars(globs: _GlobParts, reached: set[int]) -> set[int]:
    everywhere = set(reached)
    for at in reached:
        while at < len(globs) and globs[at] is None:
            at += 1
            everywhere.add(at)
    return everywhere


def _without_braces(pattern: str) -> list[str]:
    """Expand ``a{b,c}d`` to ``abd``, ``acd``; an unbalanced brace is literal."""
    globs = [pattern]
    while found := next(filter(None, map(_BRACES.search, globs)), None):
        choices = found[1].split(",")
        globs = [
            whole
            for glob in globs
            for whole in (
                [glob.replace(found[0], choice, 1) for choice in choices]
                if found[0] in glob
                else [glob]
            )
        ]
        if len(globs) > _MOST_GLOBS:
            raise RespondToModel(
                f"The braces of {pattern!r} mean over {_MOST_GLOBS} globs; use fewer."
            )
    return globs
