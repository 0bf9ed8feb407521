"""``%agent map``: lists named maps that are not whole, and batches; fetches and ends these."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from agent_magics.app import Agent
from agent_magics.files.paths import is_file, typed_path
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.rows.batches.ledger import Ledger, Sent
from agent_magics.rows.batches.results import FETCHED
from agent_magics.rows.batches.runs import cancel, refresh
from agent_magics.rows.runs import RUNNING, OpenMap, Runs
from agent_magics.rows.store import cache_file

RUNS = ("Run", "Began", "Last seen", "Model", "Rows", "Answered", "Cost", "State")
GO_ON = (
    "Calling the map of that name again, in any kernel, asks only what has no answer. "
    "`%agent map forget NAME` removes a run from this list; its answers stay."
)
HEAD = ("Batch", "Sent", "Model", "Rows", "Answered", "State")
NONE = (
    "No named run is open, and no batch is under way; `agent.map(..., name=...)` names one, "
    "`agent.map(..., batch=True)` sends batches."
)
NEXT = (
    "`%agent map resume` looks at them and fetches the results of those that have ended; calling "
    "the same map again takes them in. `%agent map cancel BATCH` ends one."
)


def _cache(file: str) -> Path:
    """Return the file of answers, the user's if none is named.

    Raises:
        FatalError: the named one is not there.
    """
    path = typed_path(file) if file else cache_file()
    if file and not is_file(path):
        raise FatalError(f"There is no file {path}; give the one of the map's cache=.")
    return path


def _listed(path: Path, problems: Mapping[str, str]) -> str:
    sent, runs = (Ledger(path).all(), Runs(path).all()) if path.exists() else ([], [])
    parts = []
    if runs:
        parts += [table(RUNS, [_run_row(run) for run in runs]), GO_ON]
    if sent:
        rows = [_row(each, problems.get(each.token, "")) for each in sent]
        parts += [table(HEAD, rows), NEXT]
    return "\n\n".join(parts) or NONE


def _list(_notebook: NotebookAgents, _agent: Agent, *, cache: str = "") -> str:
    """List the named runs that are not whole, and the batches not taken in yet."""
    return _listed(_cache(cache), {})


def _resume(_notebook: NotebookAgents, agent: Agent, *, cache: str = "") -> str:
    """Look at the batches, and fetch the results of those that have ended."""
    path = _cache(cache)
    refreshing = refresh(agent.settings_now().settings, path)
    return _listed(path, agent.session.engine.spawn(refreshing).result())


def _cancel(_notebook: NotebookAgents, agent: Agent, batch: str, *, cache: str = "") -> str:
    """End a batch at the provider."""
    path = _cache(cache)
    agent.session.engine.spawn(cancel(agent.settings_now().settings, path, batch)).result()
    return _listed(path, {})


def _forget(_notebook: NotebookAgents, _agent: Agent, name: str, *, cache: str = "") -> str:
    """Remove a run from the list; its answers stay."""
    path = _cache(cache)
    if not (path.exists() and Runs(path).forget(name)):
        raise FatalError(f"There is no run {name!r}; %agent map lists them.")
    return _listed(path, {})


MAPS = Command(
    "map",
    {
        "[--cache FILE]": _list,
        "resume [--cache FILE]": _resume,
        "cancel BATCH [--cache FILE]": _cancel,
        "forget NAME [--cache FILE]": _forget,
    },
    text="List open named maps and batches; ``resume``, ``cancel BATCH``, ``forget NAME``.",
    of_agent=True,
)


def _run_row(run: OpenMap) -> tuple[str, ...]:
    state = run.state
    if state == RUNNING:
        state = "under way" if run.is_alive else "its kernel ended"
    return (
        code_span(run.name),
        _time(run.began),
        _time(run.seen),
        code_span(run.model),
        "not known" if run.rows is None else f"{run.rows:,}",
        f"{run.answered:,}",
        "not known" if run.cost is None else dollars(run.cost),
        code_span(state),
    )


def _time(at: int) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def _row(sent: Sent, problem: str) -> tuple[str, ...]:
    state = "ended, its results are here" if sent.state == FETCHED else sent.state
    return (
        code_span(sent.token[:8]),
        _time(sent.at),
        code_span(sent.model),
        f"{sent.rows:,}",
        f"{sent.completed:,}",
        code_span(problem) if problem else state.replace("_", " "),
    )
