"""Composes what a run tells the model of its project, and what it tells the person, once."""

from collections.abc import Sequence
from pathlib import Path

from agent_magics.engine.conversation import Conversation
from agent_magics.engine.front_end import FRONT_ENDS
from agent_magics.project.digests import usable
from agent_magics.project.instructions import (
    InstructionFile,
    describe_instructions,
    describe_problems,
    read_instructions,
    render_instructions,
)
from agent_magics.project.memory import describe_untrusted, list_contents
from agent_magics.project.skills import render_skills
from agent_magics.protocol.config import Settings
from agent_magics.tools.catalog.agent_tools import RunTools, ToolCatalog


class Briefing:
    """What the model and the person read at the beginning of an agent's runs.

    Args:
        catalog: the agent's tools and skills.

    Attributes:
        project: the instruction files that the last run read.
    """

    def __init__(self, catalog: ToolCatalog) -> None:
        self._catalog = catalog
        self._told: set[str] = set()
        self.project: tuple[InstructionFile, ...] = ()

    def instructions(
        self, settings: Settings, run: RunTools, conversation: Conversation
    ) -> str | None:
        """Return the text that follows the built-in instructions, the person's own last.

        Args:
            settings: the settings of the run.
            run: its tools.
            conversation: what it continues.
        """
        self.project = read_instructions(settings.cwd)
        has = run.registry.handler
        texts = (
            render_instructions(self.project),
            render_skills(usable(self._catalog.skills()) if has("read_skill") else []),
            _contents(settings, conversation) if has("get_memory") else "",
            settings.instructions,
            _plan_first() if has("propose_plan") else None,
        )
        return "\n\n".join(filter(None, texts)) or None

    def new_warnings(
        self, of_settings: Sequence[str], cwd: Path, *, found: bool
    ) -> tuple[str, ...]:
        """Return the warnings that the person has not seen yet.

        Args:
            of_settings: those of the run's settings.
            cwd: the workspace.
            found: whether the run uses tools that were found in folders and packages.
        """
        of_tools = self._catalog.warnings() if found else ()
        of_project = (*describe_problems(self.project), describe_untrusted(cwd))
        return self._new(*of_settings, *of_project, *of_tools)

    def new_notes(self) -> tuple[str, ...]:
        """Return what the person was not yet told of the project's files that the run reads."""
        return self._new(describe_instructions(self.project))

    def _new(self, *messages: str) -> tuple[str, ...]:
        new = tuple(each for each in dict.fromkeys(messages) if each and each not in self._told)
        self._told.update(new)
        return new


def _contents(settings: Settings, conversation: Conversation) -> str:
    """Return the table of contents of the memory, as it was when the conversation began.

    It stays as it is, so that the provider's prompt cache holds.
    """
    if conversation.memory is None:
        conversation.memory = list_contents(settings.cwd, FRONT_ENDS.current().namespace)
    return conversation.memory


def _plan_first() -> str:
    from agent_magics.tools.proposal import INSTRUCTIONS  # noqa: PLC0415 - for plans

    return INSTRUCTIONS
