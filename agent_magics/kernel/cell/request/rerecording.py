"""Records cells anew: a live model's answers replace the recorded ones, all of a cell or none."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_magics.engine.context.compaction import PROMPT as SUMMARY_OF
from agent_magics.exec.temporary_files import scratch_folder
from agent_magics.models.recordings.format import (
    BY_HAND,
    Header,
    RecordedTurn,
    Recording,
    prompt_key,
    read_recording,
    turns_of,
)
from agent_magics.models.recordings.redaction import personal_paths, prompt_hider
from agent_magics.models.recordings.text import calls_of, with_sub_agents
from agent_magics.models.recordings.writing import rewrite
from agent_magics.render.markdown import code_span
from agent_magics.tools.proposal import NAME, RUN_PROMPT

NOTE = (
    "The live model is asked. Its answers take the place of those in the recording {name} when "
    "this cell has ended well; else {name} stays as it is."
)
SAID = {
    "next": "The next %%agent cell asks the live model, and is recorded anew in {name}.",
    "all": (
        "From now on every %%agent cell asks the live model, and is recorded anew in {name}, until "
        "`%agent recording rerecord off`."
    ),
}


@dataclass(frozen=True, slots=True)
class _Take:
    """One cell that is being recorded anew."""

    path: Path
    staged: Path
    prompt: str


class Rerecording:
    """The cells to be recorded anew, and those in progress."""

    def __init__(self) -> None:
        self._which = "off"
        self._takes: dict[str, _Take] = {}

    def want(self, which: str, path: Path | None) -> str:
        """Record the "next" cell anew, "all" cells, or none any more ("off"); return a sentence.

        Raises:
            FatalError: there is no recording at `path`.
        """
        if path is not None:
            read_recording(path)
        self._which = which
        if path is None:
            return "Recordings are played again."
        return SAID[which].format(name=code_span(path.name))

    def begin(self, agent: str, path: Path, prompt: str, cwd: Path) -> tuple[Path, str] | None:
        """Start to record a cell anew if requested; return the temporary recording, and a note.

        Args:
            agent: the name of the agent that runs it.
            path: the recording.
            prompt: the person's text.
            cwd: the agent's workspace.
        """
        self._takes.pop(agent, None)
        if self._which == "off":
            return None
        agent_part = re.sub(r"[^-\w]", "_", agent)
        # Not beside the recording, where the model's tools could read it.
        staged = scratch_folder() / f"{agent_part}-{path.name}"
        staged.unlink(missing_ok=True)
        key = prompt_key(prompt_hider(personal_paths(cwd))(prompt))
        self._takes[agent] = _Take(path, staged, key)
        return staged, NOTE.format(name=code_span(path.name))

    def use_up_next(self) -> None:
        """Record no later cell anew where the person asked for the next one alone."""
        if self._which == "next":
            self._which = "off"

    def settle(self, agent: str, *, ended_well: bool) -> None:
        """Merge the new answers of the ended cell into its recording, or discard them.

        Args:
            agent: the name of the agent that ran it.
            ended_well: whether the cell succeeded.

        Raises:
            FatalError: the recording cannot be written; it is unchanged.
        """
        take = self._takes.pop(agent, None)
        if take is None:
            return
        try:
            if ended_well:
                new = read_recording(take.staged)
                rewrite(
                    take.path,
                    lambda old: _lines_of(old, take.prompt),
                    new.exchanges,
                    header=lambda old, out: _header_of(old, out, new.header),
                )
        finally:
            take.staged.unlink(missing_ok=True)


def with_prompts_of_plans(turns: Sequence[RecordedTurn]) -> list[RecordedTurn]:
    """Return turns with the prompts of their cells: the run of a plan has that of its plan."""
    plan, found = "", list[RecordedTurn]()
    for turn in turns:
        is_run = plan and turn.prompt in (RUN_PROMPT, f"{SUMMARY_OF} {RUN_PROMPT}")
        prompt = turn.prompt.replace(RUN_PROMPT, plan) if is_run else turn.prompt
        found.append(RecordedTurn(prompt, turn.exchanges))
        answers = (each.answer for each in turn.exchanges if NAME in each.answer.sse)
        plan = turn.prompt if any(NAME in calls_of(answer) for answer in answers) else plan
    return found


def with_what_follows(turns: Sequence[RecordedTurn], prompts: set[str]) -> set[str]:
    """Return `prompts`, those of the sub-agents of their turns, and the requests for summaries."""
    found = with_sub_agents(turns, prompts)
    return found | {prompt_key(f"{SUMMARY_OF} {prompt}") for prompt in found}


def _lines_of(recording: Recording, prompt: str) -> set[int]:
    """Return the line numbers of all turns of `prompt` and of its sub-agents, with the summaries
    requested in them.
    """
    turns = with_prompts_of_plans(turns_of(recording.exchanges))
    prompts = with_what_follows(turns, {prompt})
    return {each.line for turn in turns if turn.prompt in prompts for each in turn.exchanges}


def _header_of(old: Recording, out: Collection[int], new: Header) -> Header:
    """Return the header of a partly replaced recording that was written by hand."""
    header = old.header
    if not header.by.startswith(BY_HAND):
        return header
    if all(exchange.line in out for exchange in old.exchanges):
        return new
    return Header(f"{BY_HAND}, in part; {new.by}", header.model, header.note)
