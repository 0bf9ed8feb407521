"""Summarises calls, changes and long texts for the headline of a block."""

import json
import re
import shlex
from collections.abc import Sequence

from agent_magics.protocol.events import NamespaceChanged, QuestionResolved
from agent_magics.protocol.items import json_object, json_or
from agent_magics.render.markdown import fenced

# What is kept of one call's output in the notebook; the model may have read more.
SAVED_CHARACTERS = 4_000
# Of a patch's diff; it is saved three times, as our item, as Markdown and as text.
SAVED_DIFF = 20_000
_SAVED_ARGUMENTS = 10_000

_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)
_SHELL = re.compile(r"(^|/)(ba|da|z)?sh$")
_UNFINISHED_COLOUR = re.compile(r"\x1b(?:\[[0-9;]*)?$")
_NAMED = 12  # variables named of those that live code has changed


def describe_change(event: NamespaceChanged) -> list[str]:
    """List the variables that live code added, changed and deleted, naming the first 12 of each."""
    parts = {"added": event.added, "changed": event.changed, "deleted": event.deleted}
    changes = []
    for verb, names in parts.items():
        more = len(names) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        if names:
            changes.append(f"{verb} {', '.join(names[:_NAMED])}{rest}")
    return changes


def describe_form_answer(event: QuestionResolved) -> str:
    """Describe how an MCP server's question was answered and by whom."""
    by = {"person": " by the person", "program": " by the program", "beforehand": " beforehand"}
    if event.decision.startswith("approve"):
        return f"its question was answered{by.get(event.by, '')}"
    verb = "cancelled" if event.decision == "abort" else "declined"
    why = f": {one_line(event.feedback)}" if event.by == "policy" and event.feedback else ""
    return f"its question was {verb}{by.get(event.by, '')}{why}"


def json_as_code(text: str) -> str:
    """Return JSON text as a fenced code block, since Markdown would misread it."""
    value = json_or(text, None)
    if not isinstance(value, (dict, list)):
        return text
    return fenced(shorten(json.dumps(value, indent=2, ensure_ascii=False)), "json")


def describe_call(arguments: str) -> str:
    """Summarise a tool call in one line from its arguments (JSON text)."""
    try:
        return _describe(json.loads(arguments), arguments)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return _files_of(arguments)


def describe_cell(arguments: str) -> str:
    """Summarise a notebook tool's call in one line: the cell's id, or the source of a new cell."""
    parsed = json_object(arguments) or {}
    if isinstance(cell := parsed.get("cell_id"), str) and cell:
        return one_line(f"cell {cell}")
    if isinstance(source := parsed.get("source"), str):
        return one_line(source)
    return describe_call(arguments)


def _describe(parsed: object, arguments: str) -> str:
    if not isinstance(parsed, dict):
        return one_line(arguments)
    command = parsed.get("command")
    if isinstance(command, list):
        return one_line(command_line(list(map(str, command))))
    if isinstance(questions := parsed.get("questions"), list):
        return one_line(" ".join(str(q.get("question")) for q in questions if isinstance(q, dict)))
    if isinstance(steps := parsed.get("steps"), list):
        return one_line("; ".join(map(str, steps)))
    if isinstance(parsed.get("patch"), str):
        return _files_of(parsed["patch"])
    for name in ("command", "cmd", "code", "pattern", "query", "path", "topic"):
        if isinstance(parsed.get(name), str):
            return one_line(parsed[name])
    values = {key: json.dumps(value, ensure_ascii=False) for key, value in parsed.items()}
    return one_line(", ".join(f"{key}={value}" for key, value in values.items()))


def _files_of(patch: str) -> str:
    """List the files that a patch adds, updates or deletes; return other text in one line."""
    files = [f"{verb.lower()} {path}" for verb, path in _PATCHED.findall(patch)]
    return one_line(", ".join(files) or patch)


def one_line(text: str) -> str:
    """Return the first non-empty line of `text`, at most 100 characters, and the line count."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = lines[0].strip() if lines else ""
    shown = first if len(first) <= 100 else first[:99] + "…"
    return shown + (f" … ({len(lines)} lines)" if len(lines) > 1 else "")


def command_line(command: Sequence[str]) -> str:
    """Return an argument list as one shell command line; of ``sh -c SCRIPT`` only the script."""
    if len(command) == 3 and command[1] in ("-c", "-lc") and _SHELL.search(command[0]):
        return command[2]
    return shlex.join(command)


def without_session(arguments: str) -> tuple[str, str]:
    """Split a session call's arguments: typed text as a title, and the JSON without ``session_id``.

    The number of a session differs in every run and is therefore not saved.
    """
    parsed = json_object(arguments)
    if parsed is None:
        return "", arguments
    rest = {name: value for name, value in parsed.items() if name != "session_id"}
    typed = json.dumps(parsed["chars"], ensure_ascii=False) if parsed.get("chars") else ""
    return one_line(typed), json.dumps(rest, ensure_ascii=False)


def shorten(text: str, limit: int = SAVED_CHARACTERS) -> str:
    """Keep the head and the tail of `text`, with the count of missing characters between them."""
    if len(text) <= limit:
        return text
    head = _UNFINISHED_COLOUR.sub("", text[: limit // 2])
    tail = ending(text[limit // 2 :], limit // 2)
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"


def shorten_arguments(arguments: str) -> str:
    """Shorten long arguments (JSON text): of each long string the middle goes, so it stays JSON."""
    if len(arguments) <= _SAVED_ARGUMENTS:
        return arguments
    parsed = json_object(arguments)
    if parsed is not None:
        short = {
            name: shorten(value) if isinstance(value, str) else value
            for name, value in parsed.items()
        }
        arguments = json.dumps(short, ensure_ascii=False)
    return shorten(arguments, _SAVED_ARGUMENTS)


def ending(text: str, limit: int) -> str:
    """Return at most `limit` last characters of `text`, from the start of a line if one is near.

    Colour sequences (ECMA-48) are thereby seldom cut in two.
    """
    start = max(0, len(text) - limit)
    line = text.find("\n", max(0, start - 1), start + limit // 4) + 1
    return text[line or start :]
