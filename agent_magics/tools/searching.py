"""``grep_files``: the lines of files that match a regular expression."""

import os
from collections.abc import Iterator
from pathlib import Path

from agent_magics.backends import files, search
from agent_magics.backends.search import Found, Match
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.file_access import (
    FOR_NOTES,
    MOST_READ_BY_HAND,
    assess_read,
    cancel_check,
    count_fitting,
    number_of,
    place,
    refuse_unasked,
    require_at_least,
)

_MOST_CONTEXT = 20


@tool(parallel=True, mutating=False, assess=assess_read)
def grep_files(
    pattern: str,
    path: str = ".",
    file_pattern: str | None = None,
    case_sensitive: bool = True,
    max_results: int = 200,
    context: int = 0,
    *,
    ctx: ToolContext | None = None,
) -> "Matches":
    """Find the lines that match a regular expression, in a file or in all files below a folder.

    Hidden files, .git and binary files are not searched and links are not followed; ignore files
    such as .gitignore are not looked at, so ignored files are searched too.

    Args:
        pattern: the regular expression, held against one line at a time.
        path: the file or folder; relative to the workspace, absolute, or starting with ~.
        file_pattern: search only files that match this glob, such as *.py, or src/**/*.{js,ts}.
        case_sensitive: false to treat capital and small letters as equal.
        max_results: most matching lines to return; all are counted.
        context: lines to show before and after each, up to 20.

    Returns:
        Called by hand: a list of `Match` that prints well.

    Raises:
        RespondToModel: the pattern is no regular expression, or there is no such file or folder.
    """
    require_at_least(1, max_results=max_results)
    require_at_least(0, context=context)
    resolved, shown = place(path, ctx)
    reason = refuse_unasked(resolved, shown, ctx)
    if not resolved.is_dir():
        os.close(files.open_regular(resolved, shown))
    found = search.search(
        resolved,
        pattern,
        cwd=Path.cwd() if ctx is None else ctx.cwd,
        file_pattern=file_pattern,
        case_sensitive=case_sensitive,
        max_results=max_results,
        context=min(context, _MOST_CONTEXT),
        guarded=ctx is not None and not reason,
        distrusted=() if ctx is None else ctx.config.roots,
        is_cancelled=cancel_check(ctx),
    )
    return Matches(found, pattern, shown)


class Matches(list[Match]):
    """The lines a search found, the first ones if there are many.

    Attributes:
        found: the matches with the true counts.
        pattern: what was looked for.
        shown: the name of the file or folder that was searched.
    """

    def __init__(self, found: Found, pattern: str, shown: str) -> None:
        super().__init__(found.matches)
        self.found, self.pattern, self.shown = found, pattern, shown

    def __repr__(self) -> str:
        return self._text(MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return the counts and as many matches as fit."""
        details = {"total": self.found.total, "files": self.found.files}
        return ToolOutput(self._text(budget), details=details)

    def _text(self, budget: int) -> str:
        lines = list(self._lines())
        count = count_fitting([text for text, _ in lines], budget - FOR_NOTES)
        shown = sum(is_match for _, is_match in lines[:count])
        return "\n".join((*self._notes(shown), *(text for text, _ in lines[:count])))

    def _notes(self, shown: int) -> Iterator[str]:
        found = self.found
        searched = f"{number_of(found.searched, 'file')} searched"
        if found.total:
            total = number_of(found.total, "matching line")
            first = f"; the first {shown:,} follow, narrow the search for others"
            many = first if shown < found.total else ""
            yield f"{total} in {number_of(found.files, 'file')} ({searched}){many}."
        else:
            yield f"No line matches {self.pattern!r} in {self.shown} ({searched})."
        if not found.complete:
            yield f"Stopped after {search.SECONDS:.0f} s: there may be more. Narrow the search."
        if found.protected:
            yield f"{number_of(found.protected, 'protected place')} left out (files and folders)."
        if found.unreadable:
            yield f"{number_of(found.unreadable, 'file')} could not be read."

    def _lines(self) -> Iterator[tuple[str, bool]]:
        """Yield (text, whether it matched): ``path:line: text``, and ``path-line- text`` around."""
        for path, matches in self._by_file().items():
            hits = {match.line: match.text for match in matches}
            around = {n: text for match in matches for n, text in (*match.before, *match.after)}
            previous = None
            for number, text in sorted((around | hits).items()):
                if around and previous is not None and number > previous + 1:
                    yield "--", False
                mark = ":" if number in hits else "-"
                yield f"{path}{mark}{number}{mark} {text}", number in hits
                previous = number

    def _by_file(self) -> dict[str, list[Match]]:
        grouped: dict[str, list[Match]] = {}
        for match in self.found.matches:
            grouped.setdefault(match.path, []).append(match)
        return grouped
