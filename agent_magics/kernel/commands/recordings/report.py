"""``%agent recording``: shows a recording, trims unused turns, compares two recordings."""

from pathlib import Path

from agent_magics.files.paths import typed_path
from agent_magics.kernel.cell.request.rerecording import with_prompts_of_plans, with_what_follows
from agent_magics.kernel.commands.recordings.notebook_prompts import (
    NotebookPrompts,
    prompts_of_notebook,
)
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.models.recordings.format import (
    BY_HAND,
    Exchange,
    RecordedTurn,
    Recording,
    read_recording,
    turns_of,
)
from agent_magics.models.recordings.redaction import personal_paths, prompt_hider
from agent_magics.models.recordings.text import calls_of, differences, ending_of, is_whole
from agent_magics.models.recordings.writing import recording_beside_notebook, rewrite
from agent_magics.project.prompts import find_prompts
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.tables import table
from agent_magics.text.brief import brief

# Characters of a prompt, and changed lines of one prompt, that people look at.
PROMPT_WIDTH = 60
DIFF_LINES = 60


def _own(notebook: NotebookAgents, hint: str = "") -> Path:
    """Return the recording that this notebook plays or writes."""
    chosen = notebook.settings.replay
    if chosen and chosen != "auto":
        return typed_path(chosen)
    path = recording_beside_notebook()
    if path is None and notebook.settings.record:
        return typed_path(notebook.settings.record)
    if path is None:
        hint = hint or f"name a file. {RECORDINGS.usage()}"
        raise FatalError(f"This notebook plays no recording; {hint}")
    return path


# -- show -----------------------------------------------------------------------------------------


def show_recording(path: Path) -> str:
    """Return a table of all exchanges in the recording `path`."""
    recording = read_recording(path)
    header = recording.header
    by = "written by hand" if header.by == BY_HAND else f"by {header.by or 'nobody knows whom'}"
    about = [code_span(path.name), by, header.model and f"model {code_span(header.model)}"]
    rows = []
    for number, turn in enumerate(turns_of(recording.exchanges), 1):
        for place, exchange in enumerate(turn.exchanges):
            label = (
                (str(number), code_span(brief(turn.prompt, PROMPT_WIDTH)))
                if place == 0
                else ("", "")
            )
            rows.append((*label, *_row_of(exchange)))
    head = ("Turn", "Prompt", "Request", "Line", "Tools", "Answer", "Bytes", "Digest")
    parts = [
        ", ".join(filter(None, about)) + (f". {header.note}" if header.note else "."),
        table(head, rows) if rows else "It holds no exchanges yet.",
        recording.notice,
    ]
    return "\n\n".join(filter(None, parts))


def _row_of(exchange: Exchange) -> tuple[str, ...]:
    answer = exchange.answer
    tools = ", ".join(map(code_span, calls_of(answer)))
    size = len((answer.sse or answer.body).encode("utf-8", "replace"))
    ending = ending_of(exchange) or "whole"
    digest = code_span(exchange.request) if exchange.request else ""
    return str(exchange.number), str(exchange.line), tools, ending, str(size), digest


# -- diff -----------------------------------------------------------------------------------------


def show_differences(first: Path, second: Path) -> str:
    """Return a text with the differences between two recordings."""
    found = differences(read_recording(first), read_recording(second))
    if not found:
        return f"{code_span(first.name)} and {code_span(second.name)} say the same."
    parts = [f"`-` as in {code_span(str(first))}, `+` as in {code_span(str(second))}."]
    for each in found:
        parts.append(f"{code_span(brief(each.prompt, PROMPT_WIDTH))}: {each.what}")
        if each.lines:
            more = len(each.lines) - DIFF_LINES
            rest = (f"… {more} more lines",) if more > 0 else ()
            parts.append(fenced("\n".join((*each.lines[:DIFF_LINES], *rest)), "diff"))
    return "\n\n".join(parts)


# -- trim -----------------------------------------------------------------------------------------


def trim_recording(path: Path, cwd: str, cells: Path | None = None) -> str:
    """Remove the turns that no cell of the notebook uses; the old file is kept beside it.

    Args:
        path: the recording ``x.agent.jsonl``.
        cwd: the workspace of the notebook's agents.
        cells: the notebook, as it was saved last; else ``x.ipynb`` beside the recording.
    """
    cells = cells or path.with_name(path.name.removesuffix(".agent.jsonl") + ".ipynb")
    workspace = typed_path(cwd).resolve()
    hide = prompt_hider(personal_paths(workspace))
    prompts = prompts_of_notebook(cells, hide, find_prompts(workspace))
    dropped: list[RecordedTurn] = []

    def choose(recording: Recording) -> set[int]:
        dropped[:] = _unused(recording, prompts)
        return {exchange.line for turn in dropped for exchange in turn.exchanges}

    backup = path.with_name(path.name + ".bak")
    count = rewrite(path, choose, backup=backup)
    if not count:
        return f"All of {code_span(path.name)} is used; nothing was changed."
    names = "\n".join(f"- {code_span(brief(turn.prompt, PROMPT_WIDTH))}" for turn in dropped)
    return (
        f"Exchanges that no cell of {code_span(cells.name)} uses were left out of "
        f"{code_span(path.name)}: {count}. The old file is {code_span(backup.name)}. They were "
        f"of these prompts:\n\n{names}"
    )


def _unused(recording: Recording, prompts: NotebookPrompts) -> list[RecordedTurn]:
    """Return the turns of other prompts, and failed or stopped ones that another one repeats."""
    turns = turns_of(recording.exchanges)
    answered = {turn.prompt for turn in turns if is_whole(turn)}
    of_cells = with_prompts_of_plans(turns)
    used = with_what_follows(of_cells, {t.prompt for t in of_cells if prompts.uses(t.prompt)})
    return [
        turn
        for turn, of_cell in zip(turns, of_cells, strict=True)
        if of_cell.prompt not in used or (turn.prompt in answered and not is_whole(turn))
    ]


# -- the command ----------------------------------------------------------------------------------


def _show(notebook: NotebookAgents, file: str = "") -> str:
    """Show the exchanges of a recording."""
    return show_recording(typed_path(file) if file else _own(notebook))


def _diff(notebook: NotebookAgents, first: str, second: str = "") -> str:
    """Show what B answers differently from A."""
    if second:
        return show_differences(typed_path(first), typed_path(second))
    return show_differences(_own(notebook), typed_path(first))


def _trim(notebook: NotebookAgents, file: str = "", cells: str = "") -> str:
    """Remove what no cell of the saved notebook uses."""
    path = typed_path(file) if file else _own(notebook)
    return trim_recording(path, notebook.settings.cwd, typed_path(cells) if cells else None)


def _rerecord(notebook: NotebookAgents, which: str) -> str:
    """Ask the live model in the next cell, or in all, and replace its answers."""
    hint = 'name one (%config AgentMagics.replay = "FILE"), or make one (%%agent --record FILE).'
    return notebook.rerecording.want(which, None if which == "off" else _own(notebook, hint))


RECORDINGS = Command(
    "recording",
    {
        "": _show,
        "show [FILE]": _show,
        "diff A [B]": _diff,
        "trim [FILE] [NOTEBOOK]": _trim,
        "rerecord next|all|off": _rerecord,
    },
    note="; without a file it is the one that this notebook plays",
    text="Show or change a recording: ``show``, ``diff A B``, ``trim``, ``rerecord next|all|off``.",
)
