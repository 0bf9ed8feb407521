"""``diagnostics``: what a language server reports about files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Literal

from agent_magics.approval.actions import Action
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.results.output_guard import OutputGuard, require
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Json
from agent_magics.symbols.text import one_line
from agent_magics.symbols.types import Diagnostic, Range
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import FOR_NOTES, Readable, assess_read, count_fitting
from agent_magics.tools.structure.names import one_file
from agent_magics.tools.structure.notebooks import is_mistake, is_notebook, without_broken
from agent_magics.tools.structure.sources import SourceFile, server_for

_MOST_FILES = 50
_SEVERITIES = ("error", "warning", "information", "hint")


def _assess(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    each = (assess_read({**arguments, "path": path}, ctx) for path in arguments["paths"])
    return list(chain.from_iterable(each))


@tool(parallel=True, mutating=False, assess=_assess)
async def diagnostics(
    paths: list[str],
    detail_level: Literal["full"] | None = None,
    offset: int = 0,
    limit: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "Diagnostics":
    """List errors and warnings of the language server about files.

    Args:
        paths: at most 50.
        detail_level: "full" shows information and hints too, in pages of 50.

    Raises:
        RespondToModel: a file cannot be read, or there is no language server for it.
    """
    paths = [paths] if isinstance(paths, str | Path) else paths  # in a call by hand
    require(Sequence[str | Path], paths=paths)
    if not 1 <= len(paths) <= _MOST_FILES:
        raise RespondToModel(f"paths has {len(paths)} files; give 1 to {_MOST_FILES}.")
    guard = OutputGuard(detail_level, offset, limit)
    found: list[tuple[SourceFile, Diagnostic]] = []
    for path in dict.fromkeys(paths):
        file = await one_file(path, ctx)
        if file is None:
            raise RespondToModel(f"{path} is a folder; paths are files.")
        found += zip(repeat(file), await _reports_of(file, ctx))
    shown = found if guard.focused else [e for e in found if e[1].severity in _SEVERITIES[:2]]
    page, _ = guard.cap_items(shown)
    return Diagnostics(page, len(shown), len(found) - len(shown), len(set(paths)), guard)


async def _reports_of(file: SourceFile, ctx: ToolContext | None) -> Sequence[Diagnostic]:
    if is_notebook(file.path.name) and not file.cells:
        return ()
    server = await server_for(file, "diagnostics", ctx)
    if not file.cells:
        return await server.diagnostics(file.path)
    text, wrong = await run_on_thread(without_broken, file)
    found = await server.given({file.path: text}).diagnostics(file.path)
    mistakes = await run_on_thread(lambda: [each for each in found if is_mistake(each, file)])
    return sorted([*wrong, *mistakes])


@dataclass(frozen=True, repr=False)
class Diagnostics(Readable):
    """Reports about files, or one page of them.

    Attributes:
        found: (file, report) of this page.
        total: how many there are.
        minor: how many pieces of information and hints are left out.
        files: how many files were checked.
        guard: the requested page.
    """

    found: Sequence[tuple[SourceFile, Diagnostic]]
    total: int
    minor: int
    files: int
    guard: OutputGuard

    def __iter__(self) -> Iterator[Diagnostic]:
        return (each for _, each in self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def _details(self) -> dict[str, Json]:
        return {"total": self.total, "files": self.files}

    def _text(self, budget: int) -> str:
        lines = [_line(*each) for each in self.found]
        count = count_fitting(lines, budget - FOR_NOTES)
        checked = number_of(self.files, "file")
        notes = [] if lines else [f"No errors or warnings in {checked}."]
        rest = self.guard.overflow(count, self.total, 'detail_level="full" shows pages')
        if rest is not None:
            notes.append(str(rest))
        if self.minor:
            notes.append(f'{number_of(self.minor, "hint")} left out; detail_level="full" has them.')
        return "\n".join((*lines[:count], *notes))


def _line(file: SourceFile, each: Diagnostic) -> str:
    rule = f" ({each.code})" if each.code else ""
    lines = file.lines(Range(each.range.start, each.range.start))
    return f"{file.shown}:{lines}: {each.severity}: {one_line(each.message)}{rule}"
