"""``grep_files``: the lines of files that match a regular expression."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agent_magics.backends import files, search
from agent_magics.backends.search import FileCount, Found, Match
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.output_guard import MAX_RESULTS, OutputGuard
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.file_access import (
    FOR_NOTES,
    MOST_READ_BY_HAND,
    assess_read,
    cancel_check,
    count_fitting,
    ignored_note,
    number_of,
    place,
    refuse_unasked,
    require_at_least,
)

OutputMode = Literal["content", "files_with_matches", "count"]

_MOST_CONTEXT = 20


@tool(parallel=True, mutating=False, assess=assess_read)
def grep_files(
    pattern: str,
    path: str = ".",
    file_pattern: str | None = None,
    case_sensitive: bool = True,
    max_results: int | None = None,
    context: int = 0,
    output_mode: OutputMode = "content",
    *,
    ctx: ToolContext | None = None,
) -> "Matches | MatchingFiles":
    """Find the lines that match a regular expression, in a file or in all files below a folder.

    Hidden files, .git, binary files and what .gitignore names are not searched, and links are not
    followed. What is left out is searched when it is given as path.

    Args:
        pattern: the regular expression, held against one line at a time.
        path: the file or folder; relative to the workspace, absolute, or starting with ~.
        file_pattern: search only files that match this glob, such as *.py, or src/**/*.{js,ts}.
        case_sensitive: false to treat capital and small letters as equal.
        max_results: most lines, or files, to return; 200 if not given; all are counted.
        context: lines to show before and after each, up to 20.
        output_mode: content for the lines; files_with_matches for the names of their files; count
            for these with the number of lines.

    Returns:
        Called by hand: a list of `Match`, or of `FileCount`, that prints well.

    Raises:
        RespondToModel: the pattern is no regular expression, or there is no such file or folder.
    """
    most = MAX_RESULTS if max_results is None else max_results
    guard = OutputGuard(max_results=most, max_files=most)
    require_at_least(0, context=context)
    resolved, shown = place(path, ctx)
    reason = refuse_unasked(resolved, shown, ctx)
    if not resolved.is_dir():
        os.close(files.open_regular(resolved, shown))
    with_lines = output_mode == "content"
    found = search.search(
        resolved,
        pattern,
        cwd=Path.cwd() if ctx is None else ctx.cwd,
        file_pattern=file_pattern,
        case_sensitive=case_sensitive,
        max_results=guard.most_items if with_lines else 0,
        max_files=0 if with_lines else guard.most_files,
        context=min(context, _MOST_CONTEXT) if with_lines else 0,
        guarded=ctx is not None and not reason,
        distrusted=() if ctx is None else ctx.config.roots,
        is_cancelled=cancel_check(ctx),
    )
    if with_lines:
        return Matches(found, pattern, shown)
    return MatchingFiles(found, pattern, shown, with_counts=output_mode == "count")


class _Told:
    """What both kinds of result say of the search."""

    found: Found
    pattern: str
    shown: str

    def _sums(self, rest: str) -> Iterator[str]:
        found = self.found
        searched = f"{number_of(found.searched, 'file')} searched"
        if found.total:
            total = number_of(found.total, "matching line")
            yield f"{total} in {number_of(found.files, 'file')} ({searched}){rest}."
        else:
            yield f"No line matches {self.pattern!r} in {self.shown} ({searched})."
        if not found.complete:
            yield f"Stopped after {search.SECONDS:.0f} s: there may be more. Narrow the search."
        if found.protected:
            yield f"{number_of(found.protected, 'protected place')} left out (files and folders)."
        if found.ignored:
            yield ignored_note(found.ignored, found.ignored_names)
        if found.unreadable:
            yield f"{number_of(found.unreadable, 'file')} could not be read."

    def _rest(self, shown: int, total: int) -> str:
        rest = OutputGuard().overflow(shown, total, "narrow the search for others")
        return "" if rest is None else f"; the first {rest.shown:,} follow, {rest.hint}"

    @property
    def _details(self) -> dict[str, int]:
        return {"total": self.found.total, "files": self.found.files}


class MatchingFiles(_Told, list[FileCount]):
    """The files in which lines matched, the first ones if there are many.

    Attributes:
        found: the true counts.
        pattern: what was looked for.
        shown: the name of the file or folder that was searched.
    """

    def __init__(self, found: Found, pattern: str, shown: str, *, with_counts: bool) -> None:
        super().__init__(found.counts)
        self.found, self.pattern, self.shown = found, pattern, shown
        self._with_counts = with_counts

    def __repr__(self) -> str:
        return self._text(MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return the counts and as many files as fit."""
        return ToolOutput(self._text(budget), details=self._details)

    def _text(self, budget: int) -> str:
        lines = [str(file) if self._with_counts else file.path for file in self]
        count = count_fitting(lines, budget - FOR_NOTES)
        rest = self._rest(count, self.found.files)
        return "\n".join((*self._sums(rest), *lines[:count]))


class Matches(_Told, list[Match]):
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
        return ToolOutput(self._text(budget), details=self._details)

    def _text(self, budget: int) -> str:
        lines = list(self._lines())
        count = count_fitting([text for text, _ in lines], budget - FOR_NOTES)
        shown = sum(is_match for _, is_match in lines[:count])
        rest = self._rest(shown, self.found.total)
        return "\n".join((*self._sums(rest), *(text for text, _ in lines[:count])))

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
