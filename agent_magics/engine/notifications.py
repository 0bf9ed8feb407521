"""Builds notifications for the model: ended sessions, undone changes, repetition."""

from dataclasses import dataclass
from pathlib import Path

from agent_magics.exec.output import clean_output, cut_middle
from agent_magics.exec.processes import CommandSession
from agent_magics.file_history.journal import UndoResult
from agent_magics.files.paths import shown_path
from agent_magics.text.brief import brief_line, first_of

_LAST_LINES = 20
_MOST_SHOWN = 2_000  # characters of these lines
_SHOWN_COMMAND = 100  # characters
_MOST_PATHS = 50


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to the model; `shown` is its text for people, "" where they see none."""

    text: str
    shown: str = ""


def report_repetition(text: str) -> Notification:
    """Return the notification that the model repeats itself, which people see, too."""
    return Notification(text, "The agent was told that it repeats itself.")


def report_undo(result: UndoResult, cwd: Path, verb: str, then: str) -> str:
    """Return the message to the model about changes that the person undid or redid."""
    names = first_of([shown_path(path, cwd) for path in result.paths], _MOST_PATHS)
    left = [shown_path(each.change.path, cwd) for each in result.obstacles[:_MOST_PATHS]]
    kept = f" These were left as they are now: {', '.join(left)}." if left else ""
    turns = "your last turn" if len(result.turns) == 1 else f"your last {len(result.turns)} turns"
    whose = f"your sub-agent {result.by}" if result.by else f"{turns} that changed any"
    return (
        f"The person {verb} the changes to files of {whose}: "
        f"{names}.{kept} {then}, and read a file again before you change it."
    )


def describe_end(session: CommandSession) -> Notification:
    """Return the notification of a session's end, with the last unread lines of its output."""
    command = brief_line(session.command, _SHOWN_COMMAND)
    how = _how(session)
    text = f"Session {session.id} ({command}) {how} after {session.seconds:.1f} s; "
    return Notification(text + _last_words(session), f"Session `{command}` {how}.")


def _how(session: CommandSession) -> str:
    killed = {"time": "was killed because its time was over"}
    reason = session.process.killed_for
    if reason:
        return killed.get(reason, "was killed")
    if session.exit_code is None:
        return "has ended"
    return f"ended with exit code {session.exit_code}"


def _last_words(session: CommandSession) -> str:
    head, tail, missed, _ = session.process.output.window(session.position)
    unread = clean_output(tail or head).rstrip("\n")
    if not unread.strip():
        return "it printed nothing more."
    lines = unread.split("\n")
    shown, omitted = cut_middle("\n".join(lines[-_LAST_LINES:]), _MOST_SHOWN)
    is_all = not (missed or tail or omitted) and len(lines) <= _LAST_LINES
    rest = "" if is_all else f" (write_stdin with session_id={session.id} returns all)"
    return f"its last lines{rest}:\n{shown}"
