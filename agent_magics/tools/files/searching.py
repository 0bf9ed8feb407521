"""``grep_files``: the lines of files that match a regular expression."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import (
    MAX_RESULTS,
    OutputGuard,
    require,
    require_at_least,
)
from agent_magics.dispatch.tool import tool
from agent_magics.files.search import matches as search
from agent_magics.files.search.candidates import LONGEST_LINE
from agent_magics.files.search.matches import FileCount, Found, Match
from agent_magics.files.text import windows as files
from agent_magics.protocol.items import Json
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import (
    FOR_NOTES,
    Readable,
    assess_read,
    begin_walk,
    count_fitting,
    ignored_note,
    stopped_note,
)

OutputMode = Literal["content", "files_with_matches", "count"]

_MOST_CONTEXT = 20
_MOST_NAMED = 5  # files that were not searched
_LONGEST = f"{LONGEST_LINE >> 20} MiB"


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
    """Find lines that match a regular expression, in a file or below a folder.

    Links are not followed. Binary, dot and gitignored files are left out unless given as path.

    Args:
        file_pattern: a glob, such as *.py or src/**/*.{js,ts}.
        context: lines around each, up to 20.

    Returns:
        Called by hand: a list of `Match`, or of `FileCount`, that prints well.

    Raises:
        RespondToModel: the pattern is no regular expression, or there is no such file or folder.
    """
    most = MAX_RESULTS if max_results is None else max_results
    guard = OutputGuard(max_results=most, max_files=most)
    require_at_least(0, int, context=context)
    require(OutputMode, output_mode=output_mode)
    require(str, pattern=pattern)
    start, shown, rights = begin_walk(path, ctx)
    if not start.is_dir():
        os.close(files.open_regular(start, shown, rights.is_withheld))
    with_lines = output_mode == "content"
    found = search.search(
        start,
        pattern,
        cwd=Path.cwd() if ctx is None else ctx.cwd,
        file_pattern=file_pattern,
        case_sensitive=case_sensitive,
        max_results=guard.most_items if with_lines else 0,
        max_files=0 if with_lines else guard.most_files,
        context=min(context, _MOST_CONTEXT) if with_lines else 0,
        rights=rights,
        roots=() if ctx is None else ctx.config.roots,
    )
    if with_lines:
        return Matches(found, pattern, shown)
    return MatchingFiles(found, pattern, shown, with_counts=output_mode == "count")


class _SearchReport(Readable):
    """The text about a search that both kinds of result share."""

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
            yield stopped_note(search.SECONDS, found.unseen)
        if found.too_long:
            names = ", ".join(found.too_long[:_MOST_NAMED])
            files = number_of(len(found.too_long), "file")
            yield f"{files} not searched, for a line of more than {_LONGEST}: {names}."
        if found.protected:
            yield f"{number_of(found.protected, 'protected place')} left out (files and folders)."
        if found.ignored:
            yield ignored_note(found.ignored, found.ignored_names)
        if found.unreadable:
            yield f"{number_of(found.unreadable, 'file')} could not be read."
        if found.closed:
            yield f"{number_of(found.closed, 'folder')} could not be read."

    def _rest(self, shown: int, total: int) -> str:
        rest = OutputGuard().overflow(shown, total, "narrow the search for others")
        return "" if rest is None else f"; the first {rest.shown:,} follow, {rest.hint}"

    @property
    def _details(self) -> dict[str, Json]:
        return {"total": self.found.total, "files": self.found.files}


class MatchingFiles(_SearchReport, list[FileCount]):
    """The files in which lines matched, the first ones if there are many.

    Attributes:
        found: the true counts.
        pattern: the regular expression.
        shown: the name of the searched file or folder.
    """

    def __init__(self, found: Found, pattern: str, shown: str, *, with_counts: bool) -> None:
        super().__init__(found.counts)
        self.found, self.pattern, self.shown = found, pattern, shown
        self._with_counts = with_counts

    def _text(self, budget: int) -> str:
        lines = [str(file) if self._with_counts else file.path for file in self]
        count = count_fitting(lines, budget - FOR_NOTES)
        rest = self._rest(count, self.found.files)
        return "\n".join((*self._sums(rest), *lines[:count]))


class Matches(_SearchReport, list[Match]):
    """The matching lines, the first ones if there are many.

    Attributes:
        found: the matches with the true counts.
        pattern: the regular expression.
        shown: the name of the searched file or folder.
    """

    def __init__(self, found: Found, pattern: str, shown: str) -> None:
        super().__init__(found.matches)
        self.found, self.pattern, self.shown = found, pattern, shown

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
