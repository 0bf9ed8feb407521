"""Calls, changes and long texts in few words: what stands in the headline of a block."""

import json
import re
import shlex
from collections.abc import Sequence

from agent_magics.protocol.events import NamespaceChanged, QuestionResolved
from agent_magics.render.markdown import fenced

# What is kept of one call's output in the notebook; the model may have read more.
SAVED_CHARACTERS = 4_000

_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)
_UNFINISHED_COLOUR = re.compile(r"\x1b(?:\[[0-9;]*)?$")
_NAMED = 12  # variables named of those that live code has changed


def describe_change(event: NamespaceChanged) -> list[str]:
    """Say which variables were added, changed and deleted; the first of each are named."""
    parts = {"added": event.added, "changed": event.changed, "deleted": event.deleted}
    words = []
    for verb, names in parts.items():
        more = len(names) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        if names:
            words.append(f"{verb} {', '.join(names[:_NAMED])}{rest}")
    return words


def describe_form_answer(event: QuestionResolved) -> str:
    """Say what became of a server's question, and why where nobody was asked."""
    by = {"person": " by the person", "program": " by the program", "beforehand": " beforehand"}
    if event.decision.startswith("approve"):
        return f"its question was answered{by.get(event.by, '')}"
    verb = "cancelled" if event.decision == "abort" else "declined"
    why = f": {one_line(event.feedback)}" if event.by == "policy" and event.feedback else ""
    return f"its question was {verb}{by.get(event.by, '')}{why}"


def json_as_code(text: str) -> str:
    """Return an answer that is JSON as a block of code: as Markdown it would be misread."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, (dict, list)):
        return text
    return fenced(shorten(json.dumps(value, indent=2, ensure_ascii=False)), "json")


def describe_call(arguments: str) -> str:
    """Say in one line what a call is about, from its arguments."""
    try:
        return _describe(json.loads(arguments), arguments)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return _files_of(arguments)


def describe_cell(arguments: str) -> str:
    """Say which cell of the open notebook a call is about; of a new one, its text."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict) and isinstance(cell := parsed.get("cell_id"), str) and cell:
        return one_line(f"cell {cell}")
    if isinstance(parsed, dict) and isinstance(source := parsed.get("source"), str):
        return one_line(source)
    return describe_call(arguments)


def _describe(parsed: object, arguments: str) -> str:
    if not isinstance(parsed, dict):
        return one_line(arguments)
    command = parsed.get("command")
    if isinstance(command, list):
        return one_line(shlex.join(map(str, command)))
    if isinstance(parsed.get("patch"), str):
        return _files_of(parsed["patch"])
    for name in ("command", "cmd", "code", "pattern", "query", "path"):
        if isinstance(parsed.get(name), str):
            return one_line(parsed[name])
    return one_line(", ".join(f"{key}={json.dumps(value)}" for key, value in parsed.items()))


def _files_of(patch: str) -> str:
    """Name what a patch touches; what is no patch is shown as it is."""
    files = [f"{verb.lower()} {path}" for verb, path in _PATCHED.findall(patch)]
    return one_line(", ".join(files) or patch)


def one_line(text: str) -> str:
    """Return the first line of `text`, cut, and how many more there are."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = lines[0].strip() if lines else ""
    shown = first if len(first) <= 100 else first[:99] + "…"
    return shown + (f" … ({len(lines)} lines)" if len(lines) > 1 else "")


def command_line(command: Sequence[str]) -> str:
    """Return a command as people write it: of a script for a shell, the script alone."""
    if len(command) == 3 and command[1] in ("-c", "-lc"):
        return command[2]
    return shlex.join(command)


def without_session(arguments: str) -> tuple[str, str]:
    """Return what a call types into a session, as a title, and its arguments without the number."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return "", arguments
    rest = {name: value for name, value in parsed.items() if name != "session_id"}
    typed = json.dumps(parsed["chars"], ensure_ascii=False) if parsed.get("chars") else ""
    return one_line(typed), json.dumps(rest, ensure_ascii=False)


def shorten(text: str, limit: int = SAVED_CHARACTERS) -> str:
    """Keep head and tail of `text`, saying how much was left out."""
    if len(text) <= limit:
        return text
    head = _UNFINISHED_COLOUR.sub("", text[: limit // 2])
    tail = ending(text[limit // 2 :], limit // 2)
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"


def ending(text: str, limit: int) -> str:
    """Return the end of `text`, from a line's start where one is near: no colour is cut in two."""
    start = max(0, len(text) - limit)
    line = text.find("\n", max(0, start - 1), start + limit // 4) + 1
    return text[line or start :]
