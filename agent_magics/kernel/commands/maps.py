"""``%agent map``: lists named maps that are not whole, and batches; fetches and ends these."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from agent_magics.app import Agent
from agent_magics.kernel.commands.words import Forms, table
from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span
from agent_magics.rows.batches.ledger import Ledger, Sent
from agent_magics.rows.batches.results import FETCHED
from agent_magics.rows.batches.runs import cancel, refresh
from agent_magics.rows.mapping import cache_file
from agent_magics.rows.runs import RUNNING, OpenMap, Runs

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


def maps_text(agent: Agent, arguments: Sequence[str]) -> str:
    """Return the named runs that are not whole and the batches not taken in yet, as Markdown.

    Args:
        agent: its settings name the server and the key.
        arguments: nothing, ``resume`` (looks at batches first), ``cancel BATCH`` or
            ``forget NAME``; after that ``--cache FILE`` for another file than the user's.

    Raises:
        FatalError: the arguments do not fit, the file is not there, or the server does not answer.
    """
    path = cache_file()
    match arguments:
        case [*arguments, "--cache", file]:
            path = Path(file).expanduser()
            if not path.is_file():
                raise FatalError(f"There is no file {path}; give the one of the map's cache=.")
    problems: dict[str, str] = MAPS.run(arguments, agent, path) or {}
    sent, runs = (Ledger(path).all(), Runs(path).all()) if path.exists() else ([], [])
    parts = []
    if runs:
        parts += [table(RUNS, [_run_row(run) for run in runs]), GO_ON]
    if sent:
        rows = [_row(each, problems.get(each.token, "")) for each in sent]
        parts += [table(HEAD, rows), NEXT]
    return "\n\n".join(parts) or NONE


def _resume(agent: Agent, path: Path) -> dict[str, str]:
    problems = agent.session.engine.spawn(refresh(agent.settings_now().settings, path)).result()
    return dict(problems)


def _cancel(agent: Agent, path: Path, token: str) -> None:
    agent.session.engine.spawn(cancel(agent.settings_now().settings, path, token)).result()


def _forget(_agent: Agent, path: Path, name: str) -> None:
    if not (path.exists() and Runs(path).forget(name)):
        raise FatalError(f"There is no run {name!r}; %agent map lists them.")


MAPS = Forms(
    "%agent map",
    {
        "": lambda *_: None,
        "resume": _resume,
        "cancel BATCH": _cancel,
        "forget NAME": _forget,
    },
    "; and then --cache FILE",
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
