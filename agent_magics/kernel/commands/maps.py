"""``%agent map``: lists what maps have sent to batch APIs, looks at it, ends it."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from agent_magics.app import Agent
from agent_magics.kernel.commands.table import table
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span
from agent_magics.rows.batches.ledger import Ledger, Sent
from agent_magics.rows.batches.results import FETCHED
from agent_magics.rows.batches.runs import cancel, refresh
from agent_magics.rows.mapping import cache_file

HEAD = ("Batch", "Sent", "Model", "Rows", "Answered", "State")
NONE = "No batch is under way; `agent.map(..., batch=True)` sends them."
NEXT = (
    "`%agent map resume` looks at them and fetches the results of those that have ended; calling "
    "the same map again takes them in. `%agent map cancel BATCH` ends one."
)
USAGE = "%agent map takes nothing, resume, or cancel BATCH, and then --cache FILE."


def maps_text(agent: Agent, arguments: Sequence[str]) -> str:
    """Return the batches that were not taken in yet, as Markdown.

    Args:
        agent: its settings name the server and the key.
        arguments: nothing, ``resume`` (looks at them first) or ``cancel BATCH``; after that
            ``--cache FILE`` for a file of answers that is not the user's.

    Raises:
        FatalError: the arguments do not fit, the file is not there, or the server does not answer.
    """
    path, settings = cache_file(), agent.settings_now().settings
    problems: dict[str, str] = {}
    match arguments:
        case [*arguments, "--cache", file]:
            path = Path(file).expanduser()
            if not path.is_file():
                raise FatalError(f"There is no file {path}; give the one of the map's cache=.")
    match arguments:
        case []:
            sent = Ledger(path).all() if path.exists() else []
        case ["resume"]:
            problems = agent.session.engine.spawn(refresh(settings, path)).result()
            sent = Ledger(path).all()
        case ["cancel", token]:
            agent.session.engine.spawn(cancel(settings, path, token)).result()
            sent = Ledger(path).all()
        case _:
            raise FatalError(USAGE)
    if not sent:
        return NONE
    rows = [_row(each, problems.get(each.token, "")) for each in sent]
    return f"{table(HEAD, rows)}\n\n{NEXT}"


def _row(sent: Sent, problem: str) -> tuple[str, ...]:
    at = datetime.fromtimestamp(sent.at).astimezone().strftime("%Y-%m-%d %H:%M")
    state = "ended, its results are here" if sent.state == FETCHED else sent.state
    return (
        code_span(sent.token[:8]),
        at,
        code_span(sent.model),
        f"{sent.rows:,}",
        f"{sent.completed:,}",
        code_span(problem) if problem else state.replace("_", " "),
    )
