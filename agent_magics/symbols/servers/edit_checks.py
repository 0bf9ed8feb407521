"""Finds the errors that an edit has brought, where a language server already runs.

Law: an edit starts no server, and waits for one no longer than the limits here.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.files.paths import shown_path
from agent_magics.files.plain_files import read_plain
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.servers.manager import any_ready
from agent_magics.symbols.servers.project import LanguageServers, Spawn
from agent_magics.symbols.text import SourceText
from agent_magics.symbols.types import Diagnostic

BEFORE_LIMIT = 1.0  # seconds that an edit waits for what was reported before it
AFTER_LIMIT = 1.5  # seconds that its answer waits for what is reported now
MOST_ERRORS = 20  # named
_MOST_FILES = 20  # of one edit that are looked at
_MOST_BYTES = 4 << 20  # of a file whose lines are compared

_LOG = logging.getLogger("agent_magics")
# A file's errors with their lines; None where the server did not answer.
_Errors = Mapping[Path, Sequence[tuple[Diagnostic, str]] | None]


def watch_edit(
    symbols: Callable[[], LanguageServers | None], paths: Sequence[Path]
) -> "EditWatch | None":
    """Take note of the errors of files that will be edited; on a thread, not on the event loop.

    Returns:
        What finds the new ones; None where no server runs.
    """
    project = symbols() if any_ready() else None
    if project is None or project.spawn is None:
        return None
    return EditWatch(project, project.spawn, paths)


class EditWatch:
    """The errors of files before and after one edit; used on a thread, not on the event loop.

    Args:
        project: the language servers.
        spawn: starts a coroutine on their event loop.
        paths: the files that will be edited.
    """

    def __init__(self, project: LanguageServers, spawn: Spawn, paths: Sequence[Path]) -> None:
        self._project, self._spawn = project, spawn
        self._paths = tuple(dict.fromkeys(paths))[:_MOST_FILES]
        self._before: _Errors = {}
        asked = spawn(errors_of(project, self._paths))
        try:
            self._before = _answer(asked, BEFORE_LIMIT)
        except TimeoutError:
            asked.cancel()

    def finish(self, cwd: Path, tell_later: Callable[[str], None]) -> str:
        """Return the errors that are new, as text for the model; "" for none.

        Args:
            cwd: paths are shown relative to it.
            tell_later: gets the text where the server is slower than the answer may wait.
        """
        asked = self._spawn(errors_of(self._project, self._paths))
        try:
            return self._describe(_answer(asked, AFTER_LIMIT), cwd)
        except TimeoutError:
            asked.add_done_callback(lambda done: self._tell(done, cwd, tell_later))
            return ""

    def _tell(self, done: "Future[Any]", cwd: Path, tell_later: Callable[[str], None]) -> None:
        with suppress(TimeoutError):  # of the question itself
            if text := self._describe(_answer(done, 0), cwd):
                tell_later(text)

    def _describe(self, after: _Errors, cwd: Path) -> str:
        found = {
            path: new_errors(self._before.get(path), errors)
            for path, errors in after.items()
            if errors
        }
        lines = [_line(each, cwd) for errors in found.values() for each in errors]
        if not lines:
            return ""
        more = [f"({len(lines) - MOST_ERRORS} more)"] if len(lines) > MOST_ERRORS else []
        known = all(self._before.get(path) is not None for path, errors in found.items() if errors)
        what = "Errors since this edit" if known else "Errors now (it is not known which are new)"
        return "\n".join((f"{what}:", *lines[:MOST_ERRORS], *more))


def _answer(asked: "Future[Any]", limit: float) -> _Errors:
    """Return what was found within `limit` seconds; nothing where that failed: an edit goes on.

    Raises:
        TimeoutError: it takes longer.
    """
    found: _Errors = {}
    try:
        found = asked.result(limit)
    except TimeoutError:
        raise
    except CancelledError:  # with its loop
        pass
    except Exception:
        _LOG.exception("the errors of an edit could not be found")
    return found


def new_errors(
    before: Sequence[tuple[Diagnostic, str]] | None, after: Sequence[tuple[Diagnostic, str]]
) -> list[Diagnostic]:
    """Return the errors that a file has more often than before, in order.

    Lines may have moved, so errors are the same where rule and message are; of equal ones those in
    lines that had none count as new first.
    """
    known = Counter((each.code, each.message) for each, _ in before or ())
    places = Counter((each.code, each.message, line) for each, line in before or ())
    left = []
    for each, line in after:  # those in a line as before are not new
        if places[each.code, each.message, line] > 0:
            places[each.code, each.message, line] -= 1
            known[each.code, each.message] -= 1
        else:
            left.append(each)
    new = []
    for each in left:  # those whose line was edited, too
        if known[each.code, each.message] > 0:
            known[each.code, each.message] -= 1
        else:
            new.append(each)
    return new


async def errors_of(project: LanguageServers, paths: Sequence[Path]) -> _Errors:
    """Return the errors of the files whose server is ready, with the text of their lines."""
    found: dict[Path, Sequence[tuple[Diagnostic, str]] | None] = {}
    for path in paths:
        provider = project.running_for(path)
        if provider is None:
            continue
        if not path.is_file():
            found[path] = ()
            continue
        try:
            reported = await provider.diagnostics(path)
        except RespondToModel:
            found[path] = None
            continue
        found[path] = _with_lines(path, [each for each in reported if each.severity == "error"])
    return found


def _with_lines(path: Path, errors: list[Diagnostic]) -> list[tuple[Diagnostic, str]]:
    source = SourceText("")
    if errors:
        with suppress(OSError):
            source = SourceText(read_plain(path, _MOST_BYTES).decode("utf-8", "replace"))
    return [(each, source.line(each.range.start.line).strip()) for each in errors]


def _line(error: Diagnostic, cwd: Path) -> str:
    start = error.range.start
    code = f" ({error.code})" if error.code else ""
    place = f"{shown_path(error.path, cwd)}:{start.line + 1}:{start.character + 1}"
    return f"{place}: {error.message}{code}"
