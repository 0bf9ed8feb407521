"""Turns the text and the options of one ``%%agent`` cell into a prompt and its turn's settings."""

import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_magics.app import Agent
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.files.paths import is_file, typed_path
from agent_magics.kernel.cell.request.options import read_type
from agent_magics.kernel.cell.request.rerecording import Rerecording
from agent_magics.kernel.lab.page_tools import PageTools
from agent_magics.kernel.live.namespace import interpolate, own_tools
from agent_magics.kernel.typed_words import split_words
from agent_magics.model_clients import ONE_OF_BOTH
from agent_magics.models.recordings.writing import recording_beside_notebook
from agent_magics.project.prompts import fill_prompt, find_prompts
from agent_magics.protocol.config import Where
from agent_magics.protocol.errors import FatalError
from agent_magics.settings.table import settings_in
from agent_magics.settings.validation import validated
from agent_magics.tools.catalog.sources import entries_of


class CellReader:
    """Reads a cell's prompt and options; an option goes before the notebook's setting.

    Args:
        shell: the IPython shell.
        settings: the traits of `AgentMagics`; read again for each cell.

    Attributes:
        rerecording: the cells that are recorded anew.
    """

    def __init__(self, shell: Any, settings: Any) -> None:
        self._shell = shell
        self._settings = settings
        self._page_tools = PageTools(settings.lab)
        self.rerecording = Rerecording()

    def prompt(self, options: Namespace, cell: str, workspace: Path | None = None) -> str:
        """Return the text for the model: the named prompt, then the cell's own text.

        Args:
            options: the cell's options.
            cell: its text.
            workspace: the folder of its agent; None where that does not exist yet.

        Raises:
            FatalError: there is no text or no workspace, or the named prompt cannot be filled in.
        """
        namespace = self._shell.user_ns
        workspace = workspace or validated({"cwd": self._settings.cwd or "."})["cwd"]
        words, text = options.prompt, text_of(cell)
        if not words:
            words, text = split_prompt(text, workspace)
        named = read_prompt(words, workspace, namespace) if words else ""
        prompt = "\n\n".join(filter(None, (named, interpolate(text, namespace))))
        if not prompt:
            raise FatalError("The cell is empty: write what the agent should do below %%agent.")
        return prompt

    def turn(
        self, agent: Agent, options: Namespace, prompt: str | None = None
    ) -> tuple[TurnConfig, list[str]]:
        """Return the configuration of a cell's turn, and notes about its recording and tools.

        Args:
            agent: the agent that runs.
            options: the cell's options; those of the recording change where it is recorded anew.
            prompt: the prompt whose turn is recorded anew; None begins no such recording.

        Raises:
            FatalError: a setting is invalid, or there is no such recording.
        """
        replay, notes = self._recording(options)
        take = None
        if replay is not None and prompt is not None:
            take = self.rerecording.begin(agent.name, replay, prompt, agent.config.cwd)
            if take is not None:  # also for the run of a plan in the same cell
                replay = options.replay = None
                options.record, note = take
                notes = [note]
        namespace = self._shell.user_ns
        own = own_tools(namespace)
        notes = [*notes, *self._page_tools.give(agent, own)]
        given = " ".join(options.tools or ()).replace(",", " ").split()
        named = self._with_notebook(given or self._settings.tools)
        turn_config = agent.turn_config(
            tools=named if options.tools else [*named, *own],
            namespace=namespace,
            more=not options.tools,
            output=None if options.plan else read_type(options.output, namespace),
            plan=options.plan,
            **self._given(options, replay),
        )
        if take is not None:  # no option of this cell is refused any more
            self.rerecording.use_up_next()
        return turn_config, notes

    def settings_of(self, options: Namespace) -> dict[str, Any]:
        """Return the settings that a cell gives, with the recording that it plays or makes.

        Raises:
            FatalError: there is no such recording.
        """
        return self._given(options, self._recording(options)[0])

    def _given(self, options: Namespace, replay: Path | None) -> dict[str, Any]:
        given = {
            name: value
            for name in settings_in(Where.CELL)
            if name not in ("name", "tools") and (value := getattr(options, name)) is not None
        }
        record = options.record or (None if replay else self._settings.record or None)
        return {**given, "replay": replay, "record": record}

    def _with_notebook(self, named: Any) -> list[Any]:
        """Add the notebook's tools to "data" in a list of tool names, where a page is connected."""
        names = entries_of(named)
        return [*names, "notebook"] if "data" in names and self._settings.lab.pages else names

    def _recording(self, options: Namespace) -> tuple[Path | None, list[str]]:
        """Return the recording to play, and notes about it."""
        if options.record and options.replay:
            raise FatalError(ONE_OF_BOTH)
        if options.record or (self._settings.record and not options.replay):
            return None, []
        chosen = options.replay or self._settings.replay
        if chosen and chosen != "auto":
            path = typed_path(chosen)
            if not is_file(path):
                raise FatalError(
                    f"There is no recording {chosen}; --replay takes a .agent.jsonl file."
                )
        else:
            beside = recording_beside_notebook() if chosen == "auto" else None
            if beside is None:
                return None, []
            path = beside
        note = f"The model's side is played from the recording `{path.name}`; tools run for real."
        return path, [note]


_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
# A first line that may name a prompt.
NAMED = re.compile(r"[ \t]*/([\w-]{1,64})(?:[ \t][^\n]*)?(?:\n|\Z)")


def text_of(cell: str) -> str:
    """Return a cell's text without blank lines around it; its first line keeps its margin."""
    return _BLANK_LINES.sub("", cell).rstrip()


def split_prompt(text: str, workspace: Path) -> tuple[list[str], str]:
    """Split a first line ``/name field=value`` from a cell's text.

    Only the name of a prompt makes it one; ``/tmp`` is text.

    Args:
        text: the cell's text.
        workspace: the folder of the agent.

    Returns:
        The words as those of ``--prompt``, and the rest; no words where the text begins otherwise.
    """
    line = NAMED.match(text)
    if line is None or line[1] not in {each.name for each in find_prompts(workspace)}:
        return [], text
    return split_words(line[0].strip()[1:]), text_of(text[line.end() :])


def read_prompt(words: Sequence[str], workspace: Path, namespace: dict[str, object]) -> str:
    """Return the text of a named prompt.

    Args:
        words: the name, then ``field=value``; ``{{expression}}`` in a value is replaced as in a
            cell.
        workspace: the folder of the agent.
        namespace: the person's variables.

    Raises:
        FatalError: there is no such prompt, or the fields do not fit.
    """
    name, *pairs = words
    values = dict[str, str]()
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals or field in values:
            raise FatalError(f"--prompt {name}: expected field=value once a field, got {pair!r}.")
        values[field] = interpolate(value, namespace)
    return fill_prompt(workspace, name, values)
