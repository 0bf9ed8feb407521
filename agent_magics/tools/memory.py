"""``get_memory``, ``remember``, ``forget``: notes by topic that outlive the conversation."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.files.paths import literal_path, resolve_path
from agent_magics.project.fingerprints import Anchor, Fingerprints
from agent_magics.project.memory import (
    MOST_ABOUT,
    Note,
    NoteFolder,
    Scope,
    checked_topic,
    note_content,
    note_folders,
    with_changes,
)
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import PatchApplyBegin, PatchApplyEnd
from agent_magics.tools.files.access import judge_of


def _workspace(ctx: ToolContext | None) -> Path:
    return Path.cwd() if ctx is None else ctx.cwd


def _fingerprints(ctx: ToolContext | None) -> Fingerprints:
    live = None if ctx is None else ctx.turn.live_kernel
    return Fingerprints(_workspace(ctx), {} if live is None else live.namespace)


@tool(mutating=False, parallel=True)
def get_memory(topic: str = "", *, ctx: ToolContext | None = None) -> str:
    """Read a note from memory; without topic, list all.

    Where you use it, cite it: "from memory: TOPIC".
    """
    digest = _fingerprints(ctx)
    notes = [each for folder in note_folders(_workspace(ctx)).values() for each in folder.notes()]
    if topic:
        checked_topic(topic)
        notes = [note for note in notes if note.topic == topic]
    notes = [with_changes(note, digest) for note in notes]
    if not notes:
        return f"There is no note about {topic!r}." if topic else "There are no notes."
    return "\n\n".join(map(_read, notes)) if topic else "\n".join(note.line for note in notes)


def _read(note: Note) -> str:
    lines = [f"from memory: {note.topic} ({note.scope}, written {note.written})"]
    if note.moved:
        lines.append(f"STALE: {', '.join(note.moved)} changed since; check before you rely on it.")
    about = f"\n\nAbout: {', '.join(anchor.name for anchor in note.about)}" if note.about else ""
    return "\n".join(lines) + f"\n\n{note.text}{about}"


# -- remember --------------------------------------------------------------------------------------


def _assess_remember(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    folder = note_folders(ctx.cwd)[arguments.get("scope", "user")]
    topic, text = checked_topic(arguments["topic"]), arguments["text"]
    note_content(text)

    def show() -> str:  # on a thread: what it is about may be large
        about = _anchors(arguments.get("about") or (), folder.scope, ctx)
        return folder.diff(topic, note_content(text, about))

    return [_action(folder, topic, show, arguments, ctx)]


def _action(
    folder: NoteFolder,
    topic: str,
    show: Callable[[], str],
    arguments: Mapping[str, Any],
    ctx: ToolContext,
) -> Action:
    return Action(
        ActionKind.MEMORY,
        f"{folder.scope} memory: {topic}",
        fingerprint=fingerprint_of(ctx.name, dict(arguments)),
        family=ctx.name,
        show=show,
    )


@tool(assess=_assess_remember)
def remember(
    topic: str,
    text: str,
    about: list[str] | None = None,
    scope: Scope = "user",
    *,
    ctx: ToolContext | None = None,
) -> str:
    """Keep a note for later conversations; it replaces what the topic said: read that first.

    Keep what took effort to find out and will hold: decisions, pitfalls, what data mean.

    Args:
        topic: in small letters, such as sales-data.
        text: Markdown; the first line says what it is about.
        about: files and variables whose change makes it stale.
        scope: shared in the project, or for this person alone.
    """
    require(Scope, scope=scope)
    require(Sequence[str] | None, about=about)
    folder = note_folders(_workspace(ctx))[scope]
    content = note_content(text, _anchors(about or (), scope, ctx))
    _write(folder, topic, content, ctx)
    return f"Kept under {topic} ({scope}); get_memory reads it from now on."


def _anchors(about: Sequence[str], scope: Scope, ctx: ToolContext | None) -> tuple[Anchor, ...]:
    if len(about) > MOST_ABOUT:
        raise RespondToModel(f"about: expected at most {MOST_ABOUT} names, got {len(about)}.")
    digests = _fingerprints(ctx)
    return tuple(_anchor(name, scope, digests, ctx) for name in dict.fromkeys(about))


def _anchor(name: str, scope: Scope, digests: Fingerprints, ctx: ToolContext | None) -> Anchor:
    variable = digests.of_variable(name)
    if variable is not None:
        return Anchor("variable", name, variable)
    workspace = _workspace(ctx)
    path, judge = resolve_path(name, workspace), judge_of(ctx)
    if reason := judge(str(path)) or judge.denied(literal_path(name, workspace)):
        raise RespondToModel(f"about: {name[:200]!r} may not be read: {reason}.")
    digest = digests.of_file(path)
    if not digest or "`" in str(path) or not str(path).isprintable():
        raise RespondToModel(
            f"about: {name[:200]!r} is neither a file nor a variable of the notebook."
        )
    inside = scope == "project" and path.is_relative_to(workspace)
    return Anchor("file", str(path.relative_to(workspace) if inside else path), digest)


# -- forget ----------------------------------------------------------------------------------------


def _assess_forget(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    topic = arguments["topic"]
    folder = _folder_with(topic, arguments.get("scope"), ctx)
    return [_action(folder, topic, partial(folder.diff, topic, None), arguments, ctx)]


def _folder_with(topic: str, scope: Scope | None, ctx: ToolContext | None) -> NoteFolder:
    """Return the folder that has a topic.

    Raises:
        RespondToModel: none has it, or both have.
    """
    checked_topic(topic)
    found = [
        folder
        for folder in note_folders(_workspace(ctx)).values()
        if scope in (None, folder.scope) and any(e.topic == topic for e in folder.notes())
    ]
    if len(found) > 1:
        raise RespondToModel(f"{topic} is kept for the project and for the user: give the scope.")
    if not found:
        raise RespondToModel(f"There is no note about {topic!r}; get_memory lists them.")
    return found[0]


@tool(assess=_assess_forget)
def forget(topic: str, scope: Scope | None = None, *, ctx: ToolContext | None = None) -> str:
    """Delete a note from memory.

    Args:
        scope: where both have the topic.
    """
    _write(_folder_with(topic, scope, ctx), topic, None, ctx)
    return f"{topic} is forgotten."


def _write(folder: NoteFolder, topic: str, content: str | None, ctx: ToolContext | None) -> None:
    """Change a note, shown as a diff."""
    path = folder.path_of(checked_topic(topic))
    if ctx is None:
        folder.write(topic, content)
        return
    tracker = ctx.diff_tracker
    ctx.emit(PatchApplyBegin, paths=(str(path),))
    diff, success = "", False
    try:
        with nullcontext() if tracker is None else tracker.writing([path]):
            diff, success = folder.write(topic, content), True
    finally:
        ctx.emit(PatchApplyEnd, success=success, diff=diff)
