"""Reads the pictures that a prompt names, ``![what it is](path)``, to send them with it."""

import re
from collections.abc import Callable
from pathlib import Path

from agent_magics.files.beneath import real_path
from agent_magics.files.paths import is_file
from agent_magics.protocol.errors import FatalError, RespondToModel, full_message
from agent_magics.protocol.items import Content, InputImage, InputText
from agent_magics.tools.files.viewing import view_image

# No file has a name with NUL or half a character.
_NAMED = re.compile(r"!\[[^\]\n]*\]\((?:<([^<>\n\0\ud800-\udfff]+)>|([^()\s\0\ud800-\udfff]+))\)")
_ADDRESS = re.compile(r"\w+:")  # of the web, or data
_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_MOST = 10


def read_pictures(
    text: str, workspace: Path, judge: Callable[[str], str]
) -> tuple[InputImage, ...]:
    """Return the pictures in the workspace that a text names, as the model gets them.

    Other addresses stay text: pages of the web, files that are not there.

    Args:
        text: the cell's text, as the person typed it: what a value of a variable names is not read.
        workspace: the folder of the agent.
        judge: returns why a file is kept from the model, or "".

    Raises:
        FatalError: one may not be read, is no picture, or there are too many.
    """
    found = dict.fromkeys(filter(is_file, _named(text, workspace).values()))
    if len(found) > _MOST:
        raise FatalError(f"The prompt names {len(found)} pictures; send at most {_MOST} at a time.")
    for path in found:
        if reason := judge(str(path)):
            raise FatalError(f"The picture {path.name} of the prompt cannot be sent: {reason}.")
    try:
        outputs = [view_image(str(path)).to_output(0) for path in found]
    except RespondToModel as error:
        raise FatalError(f"A picture of the prompt cannot be sent: {full_message(error)}") from None
    parts = [part for output in outputs for part in output.content]
    return tuple(part for part in parts if isinstance(part, InputImage))


def missing_pictures(text: str, workspace: Path) -> list[str]:
    """Return what a text names as pictures of the workspace that are not there."""
    return [name for name, path in _named(text, workspace).items() if not is_file(path)]


def _named(text: str, workspace: Path) -> dict[str, Path]:
    """Return the paths of pictures below the workspace by the names that a text gives them."""
    root = workspace.resolve()
    names = (match[1] or match[2] for match in _NAMED.finditer(text))
    paths = {name: Path(real_path(root / name)) for name in names if not _ADDRESS.match(name)}
    return {
        name: path
        for name, path in paths.items()
        if path.suffix.lower() in _ENDINGS and path.is_relative_to(root)
    }


def with_pictures(prompt: str, pictures: tuple[InputImage, ...]) -> Content:
    """Return the content of a message of text and pictures."""
    return (InputText(prompt), *pictures) if pictures else prompt
