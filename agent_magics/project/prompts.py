"""Finds prompts: Markdown files with ``{{fields}}`` that a cell names and fills in.

Law: a prompt speaks in the person's name, so one of the project is used only while it is, byte for
byte, the one that the person trusted. Its fields are names and never expressions: nothing of the
file is evaluated.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_magics.config_files.places import FOLDER, config_folder
from agent_magics.config_files.trust import digest_of
from agent_magics.files.paths import printable
from agent_magics.project.digests import ProjectText, describe_problem, is_trusted, usable
from agent_magics.project.front_matter import split_front_matter
from agent_magics.project.root import folders_down
from agent_magics.project.texts import decode_text, names_in, opened, read_file, reason_of
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.text.brief import meant

_FIELD = re.compile(r"\{\{[ \t]*([A-Za-z_]\w{0,63})[ \t]*\}\}")
_NAME = re.compile(r"[\w-]{1,64}")
_LARGEST = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class PromptFile(ProjectText):
    """One prompt; its name is the file's without ``.md``."""

    kind = "prompt"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its fields, in order."""
        return tuple(dict.fromkeys(_FIELD.findall(self.text)))


def find_prompts(workspace: Path) -> list[PromptFile]:
    """Return all prompts of a workspace, also those that are not used: the nearest first.

    Args:
        workspace: the folder of the agent.
    """
    places = [folder / FOLDER for folder in reversed(folders_down(workspace))]
    found = [prompt for place in places for prompt in _prompts_in(place)]
    own = _prompts_in(config_folder(), links=True)
    return [*found, *(replace(prompt, is_own=True) for prompt in own)]


def fill_prompt(workspace: Path, name: str, values: Mapping[str, str]) -> str:
    """Return the text of a prompt with its fields filled in.

    Args:
        workspace: the folder of the agent.
        name: the prompt's name.
        values: a text for each field.

    Raises:
        FatalError: there is no such prompt, or it has other fields.
    """
    prompts = find_prompts(workspace)
    prompt = next((each for each in usable(prompts) if each.name == name), None)
    if prompt is None:
        raise FatalError(_missing(prompts, name))
    lacking = [field for field in prompt.fields if field not in values]
    unknown = [field for field in values if field not in prompt.fields]
    if lacking or unknown:
        fault = f"needs {', '.join(lacking)}" if lacking else f"has no field {', '.join(unknown)}"
        form = " ".join([name, *(f"{field}=..." for field in prompt.fields)])
        raise FatalError(f"The prompt {name} {fault}; write: --prompt {form}")
    return _FIELD.sub(lambda field: values[field[1]], prompt.text)


def _missing(prompts: Sequence[PromptFile], name: str) -> str:
    for prompt in prompts:
        if prompt.name == name:
            return (
                describe_problem(prompt)
                if prompt.problem
                else f"You have not trusted the prompt {name} (or it has changed since): "
                "%agent prompts trust shows it."
            )
    known = meant(name, (each.name for each in usable(prompts)))
    return f"There is no prompt {name!r}; {known} %agent prompts says where they stand."


# -- reading ---------------------------------------------------------------------------------------


def _prompts_in(folder: Path, *, links: bool = False) -> list[PromptFile]:
    """Return the prompts in ``prompts`` of a folder; no link is followed unless `links`."""
    place = folder / "prompts"
    try:
        with opened(place, links=links) as descriptor:
            names = [n for n in names_in(descriptor) if n.endswith(".md") and n[0] != "."]
            return [_read(place / name, descriptor, links) for name in names]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        return [PromptFile("prompts", place, problem=reason_of(error))]


def _read(path: Path, folder: int, links: bool) -> PromptFile:
    name = printable(path.stem)
    try:
        data = read_file(path.name, _LARGEST, folder=folder, links=links)
        values, text = split_front_matter(decode_text(data))
        if not _NAME.fullmatch(path.stem):
            raise ValueError("its name may have letters, digits, - and _, at most 64")
    except OSError as error:
        return PromptFile(name, path, problem=reason_of(error))
    except ValueError as error:
        return PromptFile(name, path, problem=short_message(error))
    digest = digest_of([(path.name, data)])
    description = " ".join(str(values.get("description", "")).split())
    return PromptFile(
        name,
        path,
        description,
        text.strip(),
        digest,
        is_trusted=is_trusted("prompts", path, digest),
    )
