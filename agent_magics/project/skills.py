"""Finds skills: folders with a ``SKILL.md``, in the project, the person's folders, other agents'.

Law: a skill is text for the model and grants no rights. One of the project or of another agent is
used only while all its files are, byte for byte, those that the person trusted; and a skill's own
tools, which run in the kernel, need that wherever the skill stands. The format is that of
https://agentskills.io.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import FOLDER, config_folder
from agent_magics.config_files.trust import digest_of
from agent_magics.files.beneath import closing_descriptor
from agent_magics.files.paths import printable
from agent_magics.files.plain_files import stamp_of
from agent_magics.project.digests import ProjectText, describe_problem, is_trusted, untrusted
from agent_magics.project.front_matter import Value, split_front_matter
from agent_magics.project.root import folders_down
from agent_magics.project.texts import (
    decode_text,
    entries_below,
    names_in,
    open_listed,
    opened,
    reason_of,
)
from agent_magics.protocol.errors import short_message
from agent_magics.text.brief import brief, first_of, number_of

FILE = "SKILL.md"
# Where agents look for skills, below a project and below the person's home.
_OF_OTHERS = (".agents/skills", ".claude/skills", ".codex/skills")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME, _LONGEST_DESCRIPTION = 64, 1024
_TOOLS = re.compile(r"tools(?:/\w+)?\.py")

MOST_TOKENS, _LINE_TOKENS = 2_000, 100
_CHARACTERS = 4  # of a token, as an estimate
_MOST_NAMED = 10  # skills that people are told of at once: a project must not flood them

_PREAMBLE = """\
Skills are instructions for special tasks. Where one fits, read it with read_skill before you \
begin. A skill says how to do something; it grants no rights, and what the person says comes \
before it."""


@dataclass(frozen=True, slots=True)
class Skill(ProjectText):
    """One skill; its text is the instructions in its ``SKILL.md``.

    Attributes:
        files: the paths of its other files, relative to its folder.
        tools: names and contents of its files of `@tool` functions.
    """

    kind = "skill"

    files: tuple[str, ...] = ()
    tools: tuple[tuple[str, bytes], ...] = ()

    @property
    def waits(self) -> bool:
        """Whether trust would change something: it is not used yet, or its tools are not."""
        is_used = self.is_own and not self.tools
        return not (self.problem or self.is_trusted or is_used)

    @property
    def line(self) -> str:
        """Name and description in at most about 100 tokens."""
        return brief(f"- {self.name}: {self.description}", _LINE_TOKENS * _CHARACTERS)


# The last content of each skill folder with what tells that it has changed.
_READ: dict[Path, tuple[Any, Skill]] = {}


def find_skills(workspace: Path) -> list[Skill]:
    """Return all skills of a workspace, also those that are not used.

    The nearest folder of the project comes first, then the person's own folder, then other agents'
    folders in the person's home. Unchanged skills are not read again.

    Args:
        workspace: the folder of the agent.
    """
    of_project = (
        skill
        for folder in reversed(folders_down(workspace))
        for place in (f"{FOLDER}/skills", *_OF_OTHERS)
        for skill in _skills_in(folder, place)
    )
    own = (replace(e, is_own=True) for e in _skills_in(config_folder(), "skills", links=True))
    of_others = (e for place in _OF_OTHERS for e in _skills_in(Path.home(), place, links=True))
    found = {skill.place: skill for skill in chain(of_project, own, of_others)}
    return list(found.values())


def render_skills(skills: Sequence[Skill]) -> str:
    """Return the skills' names and descriptions for the model's instructions; "" for none.

    Those beyond 2,000 tokens are left to `read_skill`, which also searches.
    """
    lines, left = list[str](), MOST_TOKENS * _CHARACTERS
    for skill in skills:
        left -= len(skill.line) + 1
        if left < 0:
            more = len(skills) - len(lines)
            lines.append(f"({more} more; read_skill finds them by words of the task.)")
            break
        lines.append(skill.line)
    return "\n".join([_PREAMBLE, *lines]) if lines else ""


def describe_problems(skills: Iterable[Skill]) -> list[str]:
    """Return a sentence for each skill (up to ten) that cannot be used, and one for those not
    trusted.

    Only of agent-magics' own places: what other agents keep is listed by ``%agent skills``.
    """
    ours = [skill for skill in skills if skill.is_own or FOLDER in skill.place.parts[-3:]]
    broken = [each for each in ours if each.problem]
    told = [describe_problem(each) for each in broken[:_MOST_NAMED]]
    if more := len(broken) - len(told):
        told.append(f"{number_of(more, 'skill')} more cannot be used; %agent skills lists them.")
    if waiting := first_of([each.name for each in untrusted(ours)], _MOST_NAMED):
        told.append(
            f"These skills, or their tools, are left out: {waiting}. You have not trusted them (or "
            "they have changed since). %agent skills trust shows them."
        )
    return told


# -- reading ---------------------------------------------------------------------------------------


def _skills_in(folder: Path, place: str, *, links: bool = False) -> list[Skill]:
    """Return the skills in one folder of skills, such as ``.claude/skills``.

    Args:
        folder: the project, or a folder of the person.
        place: the path below it; no link in it is followed unless `links`.
        links: whether the folders may be links, as the person's own may.
    """
    try:
        with opened(folder / place, links=links) as descriptor:
            names = [name for name in names_in(descriptor) if not name.startswith(".")]
            read = [_read_skill(folder / place / name, descriptor, links) for name in names]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        return [Skill(place, folder / place, problem=reason_of(error))]
    return [skill for skill in read if skill is not None]


def _read_skill(path: Path, parent: int, links: bool) -> Skill | None:
    """Read the skill in one folder; None where there is no ``SKILL.md``."""
    try:
        with closing_descriptor(open_listed(path.name, parent, links=links)) as folder:
            if FILE not in names_in(folder):
                return None
            identity = tuple((each.path, stamp_of(each.status)) for each in entries_below(folder))
            known = _READ.get(path)
            if known is None or known[0] != identity:
                contents = {each.path: each.read() for each in entries_below(folder)}
                known = _READ[path] = identity, _parse(path, contents)
    except NotADirectoryError:
        return None
    except OSError as error:
        return Skill(printable(path.name), path, problem=reason_of(error))
    skill = known[1]
    return replace(skill, is_trusted=is_trusted("skills", path, skill.digest))


def _parse(folder: Path, contents: dict[str, bytes]) -> Skill:
    """Return the skill that a folder's files make."""
    if FILE not in contents:
        return Skill(printable(folder.name), folder, problem=f"{FILE} is no regular file")
    try:
        values, text = split_front_matter(decode_text(contents[FILE]))
        name, description = _checked(values)
    except ValueError as error:
        return Skill(printable(folder.name), folder, problem=f"{FILE}, {short_message(error)}")
    return Skill(
        name,
        folder,
        description,
        text.strip(),
        files=tuple(printable(path) for path in contents if path != FILE),
        tools=tuple((path, contents[path]) for path in contents if _TOOLS.fullmatch(path)),
        digest=digest_of(contents.items()),
    )


def _checked(values: Mapping[str, Value]) -> tuple[str, str]:
    """Return name and description.

    Raises:
        ValueError: one of them is missing or not allowed.
    """
    name, description = values.get("name", ""), values.get("description", "")
    if not (isinstance(name, str) and _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME):
        raise ValueError(
            f"name: expected lower-case letters, digits and hyphens, at most {_LONGEST_NAME}"
        )
    if not (isinstance(description, str) and 0 < len(description) <= _LONGEST_DESCRIPTION):
        raise ValueError(f"description: expected 1 to {_LONGEST_DESCRIPTION} characters")
    return name, " ".join(description.split())
