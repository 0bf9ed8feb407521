"""What the model is told without having asked: how its sessions ended, what tools left for it."""

from dataclasses import dataclass
from pathlib import Path

from agent_magics.backends.exec.output import clean_output, cut_middle
from agent_magics.backends.exec.processes import Session
from agent_magics.backends.paths import shown_path
from agent_magics.backends.workspace_journal import Way

_LAST_LINES = 20
_MOST_SHOWN = 2_000  # characters of them
_SHOWN_COMMAND = 100  # characters
_MOST_PATHS = 50


@dataclass(frozen=True, slots=True)
class Note:
    """One piece of news; `shown` is what people are shown of it, "" nothing."""

    text: str
    shown: str = ""


def told_of_circle(text: str) -> Note:
    """Return what the model is told when it repeats itself, and that people see it."""
    return Note(text, "The agent was told that it repeats itself.")


def told_of_undo(way: Way, cwd: Path, verb: str, then: str) -> str:
    """Return what the model is told when the person undid what it had changed, or redid it."""
    names = [shown_path(Path(path), cwd) for path in way.paths[:_MOST_PATHS]]
    more = f" and {len(way.paths) - _MOST_PATHS} more" if len(way.paths) > _MOST_PATHS else ""
    left = [shown_path(Path(each.change.path), cwd) for each in way.obstacles[:_MOST_PATHS]]
    kept = f" These were left as they are now: {', '.join(left)}." if left else ""
    turns = "your last turn" if len(way.turns) == 1 else f"your last {len(way.turns)} turns"
    return (
        f"The person {verb} the changes to files of {turns} that changed any: "
        f"{', '.join(names)}{more}.{kept} {then}, and read a file again before you change it."
    )


def describe_end(session: Session) -> Note:
    """Say how a session ended, with the last lines of what the model has not read yet."""
    command = " ".join(session.command.split())
    if len(command) > _SHOWN_COMMAND:
        command = command[: _SHOWN_COMMAND - 1] + "…"
    how = _how(session)
    text = f"Session {session.id} ({command}) {how} after {session.seconds:.1f} s; "
    return Note(text + _last_words(session), f"Session `{command}` {how}.")


def _how(session: Session) -> str:
    killed = {"time": "was killed because its time was over"}
    reason = session.process.killed_for
    if reason:
        return killed.get(reason, "was killed")
    if session.exit_code is None:
        return "has ended"
    return f"ended with exit code {session.exit_code}"


def _last_words(session: Session) -> str:
    head, tail, missed, _ = session.process.output.window(session.position)
    unread = clean_output(tail or head).rstrip("\n")
    if not unread.strip():
        return "it printed nothing more."
    lines = unread.split("\n")
    shown, omitted = cut_middle("\n".join(lines[-_LAST_LINES:]), _MOST_SHOWN)
    is_all = not (missed or tail or omitted) and len(lines) <= _LAST_LINES
    rest = "" if is_all else f" (write_stdin with session_id={session.id} returns all)"
    return f"its last lines{rest}:\n{shown}"
