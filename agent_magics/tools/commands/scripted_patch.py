"""Recognises patches in shell commands (``apply_patch <<'EOF'``), which models write.

Such a command is not run: its patch is checked, approved and applied as one. A patch that is only a
part of a longer script is refused before anything of it runs, since half of it would have been done
when the shell finds no such program.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_magics.approval.commands.script import is_shell, split_script
from agent_magics.dispatch.context import ToolContext
from agent_magics.patch.grammar import UpdateFile
from agent_magics.patch.plan import Operation, PatchResult, read_patch
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.patch import apply_operations

_NAMES = ("apply_patch", "applypatch")
_NAME = r"(?:apply_patch|applypatch)"
_HEREDOC = re.compile(
    rf"(?P<head>[^\n]*?){_NAME}[ \t]*<<-?[ \t]*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)[ \t]*\n"
    r"(?P<text>.*\n)[ \t]*(?P=word)\s*",
    re.DOTALL,
)
_QUOTED = re.compile(rf"(?P<head>[^\n]*?){_NAME}[ \t]+'(?P<text>[^']*)'\s*", re.DOTALL)
# The places at which a shell expects the name of a program.
_AS_PROGRAM = re.compile(
    rf"(?:^|[;&|(]|\b(?:then|do|else)\b)[^\S\n]*+{_NAME}(?=\s|$|<)", re.MULTILINE
)
_HINT = "apply_patch is a tool: call it by itself, not in a command."


def find_patch(
    argv: Sequence[str], workdir: str | None, env: Mapping[str, str]
) -> tuple[Operation, ...] | None:
    """Parse a command that is an ``apply_patch`` call; return None for any other command.

    Args:
        argv: the words of the command.
        workdir: the folder that it would run in, as the model named it.
        env: its environment variables; a program named apply_patch may be on their PATH.

    Returns:
        The patch's operations, with paths relative to the workspace.

    Raises:
        RespondToModel: the patch is malformed, or a part of a longer script.
    """
    last = argv[-1]
    if len(argv) == 2 and argv[0] in _NAMES:
        return _placed(read_patch(last), workdir, "")
    is_script = len(argv) == 3 and argv[1] in ("-c", "-lc") and is_shell(argv[0])
    if not is_script or not any(name in last for name in _NAMES):
        return None
    found = _HEREDOC.fullmatch(last) or _QUOTED.fullmatch(last)
    folder = _folder_of(found["head"]) if found else None
    if found is None or folder is None or _ends_early(found):
        _refuse_part(last, env)
        return None
    if "quote" in found.groupdict() and not found["quote"] and re.search(r"[$`\\]", found["text"]):
        raise RespondToModel(
            "The patch was not applied: a shell would replace $, ` and \\ in it. Write "
            f"<<'{found['word']}' with quotes, or better: {_HINT}"
        )
    return _placed(read_patch(found["text"]), workdir, folder)


def apply_found(operations: Sequence[Operation], ctx: ToolContext | None) -> PatchResult:
    """Apply the operations of `find_patch`, with a note that no command was run.

    Raises:
        RespondToModel: the patch does not fit; nothing was changed.
    """
    result = apply_operations(operations, ctx)
    return replace(result, summary=f"{result.summary}[No command was run. {_HINT}]\n")


def _folder_of(head: str) -> str | None:
    """Return the folder of ``cd DIR &&``, "" for an empty text, None for anything else."""
    head = head.strip()
    if not head:
        return ""
    commands = split_script(head.removesuffix("&&")) if head.endswith("&&") else None
    if commands is None or len(commands) != 1 or commands[0][0] != "cd":
        return None
    folders = [word for word in commands[0][1:] if word != "--"]
    # A "~" that stands here was quoted: a folder of that name to a shell, a home to us.
    return folders[0] if len(folders) == 1 and not folders[0].startswith(("-", "~")) else None


def _ends_early(found: re.Match[str]) -> bool:
    """Return whether a shell would end the here-document before the end that we found."""
    word = found.groupdict().get("word")
    return word is not None and word in map(str.strip, found["text"].splitlines())


def _placed(
    operations: Sequence[Operation], workdir: str | None, folder: str
) -> tuple[Operation, ...]:
    """Return the operations with their paths relative to the workspace."""
    start = Path(workdir or "") / folder
    if start == Path():
        return tuple(operations)
    placed = []
    for each in operations:
        moved = replace(each, path=str(start / each.path))
        if isinstance(moved, UpdateFile) and moved.move_to is not None:
            moved = replace(moved, move_to=str(start / moved.move_to))
        placed.append(moved)
    return tuple(placed)


def _refuse_part(script: str, env: Mapping[str, str]) -> None:
    """Refuse a script that calls the missing program ``apply_patch`` after other commands."""
    if any(shutil.which(name, path=env.get("PATH")) for name in _NAMES):
        return
    commands = split_script(script)
    if commands is not None and not any(words[0] in _NAMES for words in commands):
        return  # it stands in the words of other commands: a search for it, say
    before = re.split(r"\*\*\* Begin Patch", script, maxsplit=1)[0]
    if _AS_PROGRAM.search(before):
        raise RespondToModel(
            "Nothing of this script was run: apply_patch in it is no program. "
            f"{_HINT} Run the other commands separately."
        )
