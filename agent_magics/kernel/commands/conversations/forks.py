"""``%agent fork``: makes a second conversation that shares this one's past."""

from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span
from agent_magics.text.brief import number_of
from agent_magics.text.typed import as_typed


def _fork(notebook: NotebookAgents, turn: int | None = None, *, name: str = "") -> str:
    """Fork the conversation after TURN into a new one; ``--name`` names its agent."""
    parent = notebook.agent_named()
    name = name or _free_name(notebook, parent.name)
    if name in notebook.agents:
        raise FatalError(f"There is an agent {name!r} already; choose another --name.")
    notebook.agents[name] = child = parent.fork(turn, name=name)
    if parent in notebook.resumed:
        notebook.resumed[child] = notebook.resumed[parent]
    known = len(child.session.conversation.history.turns)
    cell = code_span(f"%%agent --name {as_typed(name)}")
    return (
        f"{cell} goes on with a fork of {code_span(parent.name)} that knows its "
        f"first {number_of(known, 'turn')}; {code_span(parent.name)} goes on by itself."
    )


def _free_name(notebook: NotebookAgents, name: str) -> str:
    number = 2
    while f"{name}-{number}" in notebook.agents:
        number += 1
    return f"{name}-{number}"


FORK = Command(
    "fork", {"[N] [--name NAME]": _fork}, note="; N is the last turn that the fork knows"
)
