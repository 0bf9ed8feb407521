"""Finds the types of sub-agents that a project and the person have written as Markdown files.

Law: a file of a project is used only while the files are, byte for byte, those that the person
trusted; and no file gives a sub-agent a right that its parent does not have (see ``rights``).
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agent_magics.config_files.places import FOLDER, config_folder
from agent_magics.config_files.trust import Trustable, digest_of
from agent_magics.delegation.budgets import DEFAULT_BUDGET, completed
from agent_magics.delegation.types import BUILT_IN, NAME, AgentType
from agent_magics.dispatch.turn import AgentBudget
from agent_magics.files.paths import printable
from agent_magics.project.front_matter import NotFrontMatter, Value, split_front_matter
from agent_magics.project.texts import decode_text, entries_below, opened, reason_of
from agent_magics.protocol.errors import FatalError, clause, short_message

# Characters of the instructions in one file.
_LONGEST = 32 * 1024
_LIMIT = re.compile(r"\b(\w++)\s*+[:=]\s*+(\S++)")
_COMMENT = re.compile(r"(?<!\S)#.*")
_LIMITS = {"requests": int, "tokens": int, "cost": float, "seconds": float}
_KEYS = {"name", "description", "tools", "model", "budget", "python"}
_PYTHON = {"": False, "scratch": False, "live": True}

_File = tuple[str, bytes]


@dataclass(slots=True)
class FoundTypes:
    """The types that sub-agents can have.

    Attributes:
        types: by name, the built-in ones first.
        problems: a sentence for each file that is not used.
    """

    types: dict[str, AgentType] = field(default_factory=lambda: dict(BUILT_IN))
    problems: list[str] = field(default_factory=list)


class ProjectAgents(Trustable[Sequence[_File]]):
    """The files in a project's ``.agent_magics/agents``.

    Args:
        workspace: the workspace.
    """

    what, command, kept = "The agent files", "%agent agents trust", "agents"

    def __init__(self, workspace: Path) -> None:
        super().__init__(Path(os.path.realpath(workspace)) / FOLDER / "agents")

    def read(self) -> Sequence[_File]:
        """Return name and content of each file.

        Raises:
            FatalError: the folder cannot be read, or holds what is no regular file.
        """
        return _files_in(self.folder)

    def digest(self, found: Sequence[_File]) -> str:
        """Return a hash of all names and contents."""
        return digest_of(found)


def find_types(workspace: Path) -> FoundTypes:
    """Return the types of sub-agents in a workspace: built-in, the person's, the project's."""
    found = FoundTypes()
    own, project = config_folder() / "agents", ProjectAgents(workspace)
    sources = (
        (own, partial(_files_in, own, links=True)),
        (project.folder, partial(_trusted, project, found)),
    )
    for folder, read in sources:
        try:
            files = read()
        except FatalError as error:
            found.problems.append(short_message(error))
            continue
        for name, data in files:
            _add(found, folder / name, data)
    return found


def _trusted(project: ProjectAgents, found: FoundTypes) -> Sequence[_File]:
    files = project.read()
    if not files or project.is_trusted(files):
        return files
    found.problems.append(
        f"The agent files in {project.folder} are not used: you have not trusted them (or they "
        f"have changed since). {project.command} shows them."
    )
    return ()


def _files_in(folder: Path, *, links: bool = False) -> Sequence[_File]:
    try:
        with opened(folder, links=links) as descriptor:
            entries = list(entries_below(descriptor))
            files = [each for each in entries if each.path.endswith(".md") and "/" not in each.path]
            return [(each.path, each.read()) for each in files]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FatalError(f"{folder} is not read: {reason_of(error)}.") from None


def _add(found: FoundTypes, path: Path, data: bytes) -> None:
    try:
        kind = parse_type(path.stem, data)
        if kind.name in found.types:
            raise ValueError(f"there is a type {kind.name} already")
    except ValueError as error:
        found.problems.append(f"{printable(str(path))} is not used: {clause(error)}.")
    else:
        found.types[kind.name] = kind


def parse_type(name: str, data: bytes) -> AgentType:
    """Return the type that a Markdown file describes.

    Args:
        name: of the file, without its suffix; its front matter may give another one.
        data: the content of the file.

    Raises:
        ValueError: it describes none; the text says why.
    """
    try:
        values, text = split_front_matter(decode_text(data))
    except NotFrontMatter as error:
        raise ValueError(short_message(error)) from None
    unknown = sorted(values.keys() - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise ValueError(f"the keys are {known}; not {printable(', '.join(unknown))}")
    name = _text(values, "name") or name
    description = " ".join(_text(values, "description").split())
    if not NAME.fullmatch(name):
        raise ValueError("its name is not at most 32 of a-z, 0-9 and -, beginning with a letter")
    if not description or len(description) > 1024:
        raise ValueError("its description has no text, or more than 1,024 characters")
    if len(text) > _LONGEST:
        raise ValueError(f"its text has more than {_LONGEST:,} characters")
    tools, python = _tools(values.get("tools")), _text(values, "python")
    if python not in _PYTHON:
        raise ValueError("python is neither live nor scratch")
    return AgentType(
        name,
        description,
        tools,
        reads_only=tools is None,
        gets_kernel=_PYTHON[python],
        model=_text(values, "model"),
        instructions=text,
        budget=completed(_budget(_text(values, "budget")), DEFAULT_BUDGET),
    )


def _text(values: dict[str, Value], key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is a list")
    return value


def _tools(value: Value | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else value
    return tuple(filter(None, (name.strip() for name in names)))


def _budget(text: str) -> AgentBudget:
    """Return the limits in lines such as "tokens: 50000"."""
    text = _COMMENT.sub("", text)
    pairs = _LIMIT.findall(text)
    try:
        limits = {key: _LIMITS[key](number) for key, number in pairs}
    except (KeyError, ValueError):
        limits = {}
    if len(limits) < len(pairs) or _LIMIT.sub("", text).strip():
        raise ValueError(
            "its budget is not of lines such as `tokens: 50000`, one at most for each of requests, "
            "tokens, cost and seconds"
        )
    if not all(0 < limit < float("inf") for limit in limits.values()):
        raise ValueError("its budget has a limit that is not above 0")
    return replace(AgentBudget(), **limits)
