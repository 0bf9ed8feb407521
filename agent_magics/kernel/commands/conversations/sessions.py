"""``%agent sessions`` and ``%agent resume``: lists, deletes, continues recorded conversations."""

import re
import time
from pathlib import Path

from agent_magics.app import Agent, conversations
from agent_magics.engine.conversation import Conversation
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.typed_words import unquoted
from agent_magics.protocol.errors import FatalError
from agent_magics.records.index import RecordedConversation, matching
from agent_magics.records.places import rollout_folder
from agent_magics.records.retention import delete, pin
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.text.brief import number_of

_MOST_SHOWN = 20
_SHORT_ID = 8
_WORD = re.compile(r"""(["'])(.+?)\1(?!\S)|(\S+)""")  # some in quotes belong together


def _list(notebook: NotebookAgents, *text: str) -> str:
    """List the recorded conversations; with a text, those that have its words."""
    wanted = [quoted or word for _, quoted, word in _WORD.findall(" ".join(text))]
    found = matching(_in_order(notebook), wanted)
    notebook.listed = [each.id for each in found[:_MOST_SHOWN]]
    if not found:
        return "No conversation is recorded" + (" that has these words." if text else ".")
    here = _cwd(notebook)
    rows = [(str(number), *_row(each, here)) for number, each in enumerate(found[:_MOST_SHOWN], 1)]
    listed = table(("", "Title", "Notebook", "Last", "Turns", "USD", "Ended", "Id"), rows)
    more = len(found) - _MOST_SHOWN
    listed += f"\n\n{more} more; words find them." if more > 0 else ""
    return f"{listed}\n\n`%agent resume N` goes on with one."


def _change(notebook: NotebookAgents, act: str, which: str) -> str:
    """Delete, pin or unpin the conversation with a number or an id."""
    chosen = _chosen(notebook, which)
    if act == "delete":
        delete(rollout_folder(), chosen.id)
    else:
        pin(rollout_folder(), chosen.id, pinned=act == "pin")
    return f"{act}: {_title(chosen)}"


def _rename(notebook: NotebookAgents, which: str, *words: str) -> str:
    """Give the conversation with a number or an id a name."""
    chosen, name = _chosen(notebook, which), unquoted(words)
    here = (each for each in notebook.agents.values() if each.session.conversation.id == chosen.id)
    agent = next(here, None) or notebook.agent_named()
    agent.session.rename(chosen.id, name)
    return f"rename: {_title(chosen)} is {code_span(one_line(name))} now."


def _resume(notebook: NotebookAgents, which: str = "") -> str:
    """Resume a recorded conversation: this notebook's, ``last``, N of the list, or an id."""
    chosen = _chosen(notebook, which)
    for name, each in notebook.agents.items():
        if each.session.conversation.id == chosen.id:
            raise FatalError(
                f"This is the conversation of agent {name!r} here: a %%agent cell goes on with it."
            )
    agent = notebook.agent_named()
    if Path(chosen.cwd) == agent.settings.cwd or not Path(chosen.cwd).is_dir():
        agent.session.resume(chosen.id, notebook.shell.user_ns)
    else:
        agent = _resumed_elsewhere(notebook, chosen)
    notes = agent.session.conversation.take_notes()
    turns = number_of(chosen.turns, "turn")
    lines = [
        f"Resumed: {_title(chosen)}, {turns}. The next `%%agent` cell goes on with it.",
        *notes,
    ]
    return "\n\n".join([*lines, *_what_went(agent.session.conversation)])


def _what_went(conversation: Conversation) -> list[str]:
    """Return what the person sees of that which went with the kernel."""
    found = []
    if conversation.differences:
        rows = [
            (code_span(each.name), each.what, each.now or "-", each.state, each.made_by or "-")
            for each in conversation.differences
        ]
        found.append(table(("Variable", "It was", "Now", "", "Made by"), rows))
        again = [each.made_by for each in conversation.differences if each.state == "gone"]
        if any(again):
            found.append(f"To run again: {', '.join(dict.fromkeys(filter(None, again)))}.")
    gone = conversation.handles.gone
    if gone:
        named = ", ".join(f"{code_span(name)} ({what})" for name, what in gone.items())
        found.append(f"Results that went with the kernel: {named}.")
    if conversation.reported_servers:
        found.append(f"MCP servers are started anew: {', '.join(conversation.reported_servers)}.")
    return found


def _resumed_elsewhere(notebook: NotebookAgents, chosen: RecordedConversation) -> Agent:
    """Resume a conversation in its own workspace; return its agent, now the notebook's own."""
    agent = Agent(name=notebook.settings.name, cwd=chosen.cwd)
    notebook.resumed[agent] = notebook.settings.cwd
    with notebook.closing_unused(agent):
        notebook.give(agent)
        agent.session.resume(chosen.id, notebook.shell.user_ns)
        notebook.begin_with(agent)
    return agent


def _chosen(notebook: NotebookAgents, which: str) -> RecordedConversation:
    """Return the conversation with a number, an id, "last", or "" for this notebook's or the last.

    Raises:
        FatalError: there is none.
    """
    now = {agent.session.conversation.id for agent in notebook.agents.values()}
    if which in ("", "last"):
        found = notebook.earlier_conversation.find() if not which else None
        here = _cwd(notebook)
        others = (each for each in conversations() if each.cwd == here and each.turns)
        found = found or next((each for each in others if each.id not in now), None)
        if found is None:
            raise FatalError(
                "No earlier conversation of this project is recorded; %agent sessions lists all."
            )
        return found
    if which.isdecimal() and int(which) <= _MOST_SHOWN:
        if not 1 <= int(which) <= len(notebook.listed):
            raise FatalError(f"%agent sessions has listed no number {which}; call it first.")
        which = notebook.listed[int(which) - 1]
    found_by_id = [each for each in conversations() if each.id.startswith(which)]
    if len(found_by_id) != 1:
        problem = "several begin so" if found_by_id else "there is none"
        raise FatalError(f"Conversation {which!r}: {problem}; see %agent sessions.")
    return found_by_id[0]


def _in_order(notebook: NotebookAgents) -> list[RecordedConversation]:
    """Return all conversations, those of this workspace first, and the newest of each first."""
    here = _cwd(notebook)
    return sorted(conversations(), key=lambda each: each.cwd != here)


def _cwd(notebook: NotebookAgents) -> str:
    return str(notebook.agent_named().settings.cwd)


def _row(each: RecordedConversation, here: str) -> tuple[str, ...]:
    place = Path(each.notebook).name if each.notebook else ""
    if each.cwd != here:
        place = f"{place} in {each.cwd}".strip()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.ended))
    cost = f"{each.cost:.2f}" if each.cost else "-"
    pinned = " (pinned)" if each.pinned else ""
    ended = each.end or "no turn"
    shown = code_span(each.id[:_SHORT_ID]) + pinned
    return (
        _title(each),
        code_span(place) if place else "",
        when,
        str(each.turns),
        cost,
        ended,
        shown,
    )


def _title(each: RecordedConversation) -> str:
    return code_span(one_line(each.title) or "(no prompt yet)")


SESSIONS = Command(
    "sessions",
    {
        "": _list,
        "delete|pin|unpin WHICH": _change,
        "rename WHICH NAME ...": _rename,
        "TEXT ...": _list,
    },
    note="; WHICH is a number from the list or an id",
    text="List conversations; TEXT filters; ``delete``, ``pin``, ``unpin`` N, ``rename`` N NAME.",
    is_verbatim=True,
)
RESUME = Command(
    "resume", {"[WHICH]": _resume}, note="; WHICH is a number from %agent sessions, an id, or last"
)
