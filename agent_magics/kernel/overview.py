"""Tells pages what the agents of this kernel do: for the panel beside the notebooks.

A page that asks gets the state at once, and again whenever it has changed, once a second at most.
All text is shortened, with invisible characters written out: the page shows it as plain text.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agent_magics.app import Agent, conversations
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.thread import shared_engine
from agent_magics.kernel.lab.link import LabLink, Page
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerState
from agent_magics.records.index import RecordedConversation, matching
from agent_magics.render.visible import show_shortened

if TYPE_CHECKING:
    from agent_magics.kernel.notebook import NotebookAgents

# Seconds between two looks at the state, and between two looks at the recorded conversations.
INTERVAL, LISTING = 1.0, 15.0
# Conversations, and helpers of one kind, that are sent at most; characters of a line, of arguments.
_MOST, _LINE, _ARGUMENTS = 30, 200, 5_000

Data = dict[str, Any]


class Overview:
    """What this kernel's agents do, for the pages that watch.

    Args:
        lab: the connected pages.
        agents_now: returns the agents of this kernel; None where none was needed yet.
    """

    def __init__(self, lab: LabLink, agents_now: "Callable[[], NotebookAgents | None]") -> None:
        self._lab = lab
        self._agents_now = agents_now
        self._sent: dict[Page, Data] = {}  # one that knocks again is another: it has forgotten all
        self._recorded: list[RecordedConversation] = []
        self._listed_at = 0.0
        self._at_work: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin to tell the pages that watch, or tell anew; from any thread."""
        shared_engine().post(self._begin)

    def _begin(self) -> None:
        self._listed_at = 0.0
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="overview")

    async def _follow(self) -> None:
        while pages := self._lab.watching:
            if time.monotonic() - self._listed_at > LISTING or not self._listed_at:
                self._listed_at = time.monotonic()
                self._recorded = await asyncio.wrap_future(POOL.submit(conversations))
            state = self._state()
            if self._has_ended(state["agents"]):
                self._listed_at = 0.0
            self._sent = {page: sent for page, sent in self._sent.items() if page in pages}
            for page in pages:
                self._tell(page, {**state, **self._found(page.watching or "")})
            await asyncio.sleep(INTERVAL if self._listed_at else 0)
        self._sent.clear()

    def _has_ended(self, agents: list[Data]) -> bool:
        """Return whether an agent has come to rest since the last look: its record has grown."""
        before, self._at_work = self._at_work, {each["name"] for each in agents if each["doing"]}
        return bool(before - self._at_work)

    def _tell(self, page: Page, state: Data) -> None:
        if self._sent.get(page) != state:
            self._sent[page] = state
            page.say("overview", **state)

    def _state(self) -> Data:
        notebook = self._agents_now()
        today = {"today": _cost_today(self._recorded)}
        if notebook is None:
            return {**today, "agents": [], "questions": [], "helpers": []}
        agents = tuple(notebook.agents.values())
        return {
            **today,
            "agents": [_agent_row(notebook, agent) for agent in agents],
            "questions": list(_questions(notebook)),
            "helpers": [row for agent in agents for row in _helpers(agent)],
        }

    def _found(self, words: str) -> Data:
        found = matching(self._recorded, words.split())
        found.sort(key=lambda each: not each.pinned)
        rows = [_conversation_row(each) for each in found[:_MOST]]
        return {"conversations": rows, "more": len(found) - len(rows)}


def _agent_row(notebook: "NotebookAgents", agent: Agent) -> Data:
    run = notebook.run_of(agent)
    conversation = agent.session.conversation
    return {
        "name": _short(agent.name),
        "model": _short(conversation.spending.last_model or agent.config.model),
        "doing": _short(run.activity) if run else "",
        "cell": run.cell if run else "",
        "background": bool(notebook.background.get(agent.name)),
        "conversation": conversation.id,
        "turns": len(conversation.history.turns),
        "cost": conversation.spending.cost,
        "can_fork": agent.name == notebook.settings.name,
    }


def _questions(notebook: "NotebookAgents") -> Iterator[Data]:
    for run in notebook.runs:
        for which, widget in run.questions.items():
            # A form's fields are filled in at its cell.
            asks = widget.has_trait("tool")
            yield {
                "id": which,
                "agent": _short(run.agent.name),
                "cell": run.cell,
                "tool": widget.tool if asks else "",
                "target": widget.target if asks else _short(widget.text),
                "arguments": show_shortened(widget.arguments, _ARGUMENTS) if asks else "",
                "ending": widget.ending if asks else "",
                "reason": widget.reason if asks else "",
                "dangerous": asks and widget.dangerous,
                "choices": list(widget.choices) if asks else [],
            }


def _helpers(agent: Agent) -> Iterator[Data]:
    of = _short(agent.name)
    for child in agent.sub_agents.states[-_MOST:]:
        state = ": ".join(filter(None, (child.status, child.doing)))
        yield {"kind": "agent", "name": _short(child.sub_agent), "state": _short(state), "of": of}
    for command in agent.session.conversation.processes.sessions():
        if not command.ended:
            yield {"kind": "command", "name": _short(command.command), "state": "", "of": of}
    for server in _servers(agent):
        name, state = _short(server.config.name), str(server.status)
        yield {"kind": "server", "name": name, "state": state, "of": of}


def _servers(agent: Agent) -> Sequence[McpServerState]:
    try:
        manager = agent.mcp
    except FatalError:  # a faulty file, which the next cell reports
        return ()
    return () if manager is None else manager.states()


def _conversation_row(each: RecordedConversation) -> Data:
    return {
        "id": each.id,
        "title": _short(each.title),
        "notebook": _short(each.notebook),
        "ended": each.ended,
        "turns": each.turns,
        "cost": each.cost,
        "end": each.end,
        "pinned": each.pinned,
    }


def _cost_today(recorded: list[RecordedConversation]) -> float:
    """Return the known cost in USD of the turns that ended on this day, by local time."""
    today = time.strftime("%Y-%m-%d")
    return sum(each.costs.get(today, 0.0) for each in recorded)


def _short(text: str) -> str:
    return show_shortened(" ".join(text.split()), _LINE)
