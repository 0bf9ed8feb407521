"""Shows the model's live code, exports it as cells, and undoes its changes of variables."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_magics.app import Agent
from agent_magics.engine.channels.redaction import redact
from agent_magics.files.paths import typed_path
from agent_magics.kernel.commands.conversations.rewinding import not_restored
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.live.namespace import RanCode
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.render.markdown import code_span, fenced
from agent_magics.text.brief import number_of
from agent_magics.text.line_ends import with_newlines


def codes_of(notebook: NotebookAgents, name: str) -> list[RanCode]:
    """Return the code that an agent has run in its present conversation, in order."""
    agent = notebook.agents.get(name)
    if agent is None:
        return []
    ran = tuple(notebook.live_kernel.ran)
    return [each for each in ran if each.session_id == agent.session.conversation.id]


def show_code(notebook: NotebookAgents, agent: Agent) -> str:
    """Show the code that the model ran, in the kernel or in scratch, as it was approved."""
    codes = codes_of(notebook, agent.name)
    return "\n\n".join(map(_shown, codes)) or "No code has run in this conversation."


def _export(notebook: NotebookAgents, agent: Agent, file: str) -> str:
    """Write the model's code as cells into a new notebook."""
    codes = codes_of(notebook, agent.name)
    if not codes:
        raise FatalError("No code has run in this conversation, so there is nothing to export.")
    path = typed_path(file)
    if path.suffix != ".ipynb":
        raise FatalError(f"%agent export {file}: the file's name has to end in .ipynb.")
    cells = redact(notebook.secrets, _notebook_of(codes))
    text = json.dumps(cells, ensure_ascii=False, indent=1) + "\n"
    try:
        _create(path, text.encode("utf-8", "backslashreplace"))  # half a character, as JSON has it
    except FileExistsError:
        raise FatalError(f"{path} exists and is left as it is; choose another name.") from None
    except OSError as error:
        raise FatalError(f"{path} cannot be written: {clause(error)}.") from None
    return f"{number_of(len(codes), 'cell')} written to {code_span(str(path))}."


def _create(path: Path, content: bytes) -> None:
    """Write a new file; leave none where that fails."""
    with path.open("xb") as opened:
        try:
            opened.write(content)
            opened.flush()
        except BaseException:
            path.unlink()
            raise


def undo_variables(notebook: NotebookAgents, _agent: Agent) -> str:
    """Restore the variables that the model's last code changed."""
    done = notebook.live_kernel.changes.put_back(notebook.shell.user_ns)
    if done is None:
        raise FatalError("No change of the variables is left that could be put back.")
    change, left = done
    back = [name for name in change.was if name not in left]
    return "\n".join([*([f"- Put back: {_names(back)}."] if back else ()), *not_restored(left)])


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(code_span, names))


def _shown(ran: RanCode) -> str:
    return "\n\n".join(filter(None, (_note(ran), fenced(ran.code.rstrip(), "python"))))


def _note(ran: RanCode) -> str:
    """Return the heading of code that did not run in the kernel."""
    if ran.place == "live":
        return ""
    copies = f", with copies of {_names(ran.copied)}" if ran.copied else ""
    return f"*In scratch{copies}:*"


def _notebook_of(codes: Sequence[RanCode]) -> dict[str, Any]:
    """Return a notebook of nbformat 4.5 with the code as cells."""
    cells = [cell for number, ran in enumerate(codes, start=1) for cell in _cells_of(number, ran)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _cells_of(number: int, ran: RanCode) -> list[dict[str, Any]]:
    """Return code as a cell; that of scratch with a tag, and a text cell above it.

    A comment in the cell would break one that begins with a magic.
    """
    note = _note(ran)
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": f"code-{number}",
        "metadata": {"tags": ["scratch"]} if note else {},
        "outputs": [],
        "source": with_newlines(ran.code).rstrip().splitlines(keepends=True),
    }
    above = {"cell_type": "markdown", "id": f"text-{number}", "metadata": {}, "source": [note]}
    return [above, cell] if note else [cell]


EXPORT = Command(
    "export",
    {"": show_code, "FILE": _export},
    text="Write the model's code as cells into a new notebook FILE; without FILE, show it here.",
    of_agent=True,
)
