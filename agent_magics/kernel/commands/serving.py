"""``%agent serve``: serves the notebook's tools to MCP clients; its cell asks their questions."""

import json
import os
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_magics.app import Agent
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.files.plain_files import replace_file
from agent_magics.kernel.cell.publishing import (
    CellPublisher,
    is_watched,
    question_item,
    text_bundle,
    widget_bundle,
)
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.drawing import question_widget
from agent_magics.kernel.questions.ways import CellHost
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.events import ApprovalRequested, Question
from agent_magics.protocol.ops import Answer, denied
from agent_magics.records.places import rollout_folder
from agent_magics.render.markdown import code_span

_NOT_SEEN = (
    "the notebook that serves this tool shows no questions now: its page must be open, on the cell "
    "with %agent serve"
)


class NotebookServeHost:
    """Serves calls of MCP clients from a notebook: its tools, and its cell for their questions.

    It is made in the cell that serves. Each question gets an output there, which is reused for the
    next one after the answer, so that the cell does not grow.

    Args:
        notebook: the agents of this kernel.
        agent: the agent whose tools are served.
    """

    def __init__(self, notebook: NotebookAgents, agent: Agent) -> None:
        self._notebook = notebook
        self._agent = agent
        self._shell = notebook.shell
        self._publisher = CellPublisher(self._shell)
        self._live = is_watched(self._shell)
        self._free: list[str] = []
        self._open: dict[str, tuple[str, Any]] = {}  # question -> its output, its widget
        self._refresh: Callable[[], None] | None = None

    def turn_config(self) -> TurnConfig:
        """Return the configuration that a cell of this agent would run with."""
        if self._notebook.agents.get(self._agent.name) is self._agent:
            turn_config: TurnConfig = self._notebook.turn_config_of(self._agent)
            return turn_config
        return self._agent.turn_config()

    def host(self, client: str) -> "ServedHost":
        """Return the host that asks the questions about the calls of `client`."""
        draws = None
        if self._live:
            draws = CellHost(self._notebook.host, self.draw, self.settle, _not_seen)
        return ServedHost(client, draws, self.settle, self._notebook.host.guard)

    def begin(self, refresh: Callable[[], None]) -> None:
        """List the tools again after each cell, which may have defined some."""
        self._refresh = refresh
        self._shell.events.register("post_run_cell", self._after_cell)

    def _after_cell(self, _result: Any) -> None:
        if self._refresh is not None:
            self._refresh()

    def end(self) -> None:
        """Stop listing; close live widgets, and delete the file with the token."""
        with suppress(ValueError):  # `end` was called before
            self._shell.events.unregister("post_run_cell", self._after_cell)
        for question_id in tuple(self._open):
            self._settle(question_id, "Not answered.")
        _config_path(self._agent).unlink(missing_ok=True)

    # -- questions, on the kernel's main thread ----------------------------------------------------

    def draw(self, question: Question, listen: Callable[[Any], None]) -> None:
        """Draw a question, after `listen` got its widget."""
        widget, words = question_widget(question)
        listen(widget)
        bundle = widget_bundle(widget, question_item(words))
        if self._free:
            display_id = self._free.pop()
            self._publisher.update(bundle, display_id)
        else:
            display_id = uuid.uuid4().hex
            self._publisher.publish(bundle, display_id)
        self._open[question.question_id] = display_id, widget

    def settle(self, question: Question, outcome: str = "Not answered.") -> None:
        """Replace a question's widget by its outcome."""
        what = f"{getattr(question, 'tool', '')}: {getattr(question, 'target', '')}"
        self._settle(question.question_id, f"{outcome} {code_span(what)}")

    def _settle(self, question_id: str, text: str) -> None:
        display_id, widget = self._open.pop(question_id, ("", None))
        if widget is None:
            return
        widget.close()
        self._publisher.update(text_bundle(text), display_id)
        self._free.append(display_id)


class ServedHost:
    """Asks questions about one client's calls in the cell that serves.

    Answers queued by ``%agent answer`` are not used: they were queued for a cell.

    Args:
        client: the client's name, which each question shows.
        draws: asks in the cell; None where no page shows it.
        settle: replaces a question by its outcome.
        guard: see `Host`.
    """

    def __init__(
        self,
        client: str,
        draws: CellHost | None,
        settle: Callable[[Question, str], None],
        guard: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._client = client
        self._draws = draws
        self._settle = settle
        self._guard = guard

    def answer(self, question: Question) -> Answer | Awaitable[Answer]:
        """Ask in the cell."""
        if self._draws is None or not isinstance(question, ApprovalRequested):
            return _not_seen(question)
        question = replace(
            question, reason=f"asked by an MCP client: {self._client}; {question.reason}"
        )
        pending = self._draws.ask(question)
        return pending if isinstance(pending, Answer) else self._wait(question, pending)

    async def _wait(self, question: Question, pending: Awaitable[Answer]) -> Answer:
        outcome = "The client gave up:"
        try:
            answer = await pending
            said_yes = answer.decision.startswith("approve")
            outcome = f"{'Approved' if said_yes else 'Denied'} for {code_span(self._client)}:"
            return answer
        finally:
            self._settle(question, outcome)

    def answer_blocking(self, question: Question) -> Answer:
        """Deny: a click cannot arrive now, and nobody waits at a cell's input."""
        return _not_seen(question)

    def guard(self) -> AbstractContextManager[Any]:
        """Let interrupts raise in the person's code."""
        return self._guard()


def _not_seen(question: Question) -> Answer:
    return denied(question.question_id, _NOT_SEEN)


# -- the word --------------------------------------------------------------------------------------


def _serve(
    notebook: NotebookAgents,
    agent: Agent,
    *,
    tools: str = "",
    port: int = 0,
    token_file: bool = False,
) -> str:
    """Serve the tools to other programs (MCP): ``--tools a,b``, ``--token-file``, ``--stop``."""
    served = agent.served
    if served and (tools or port):
        raise FatalError(
            f"Agent {agent.name!r} is served already, at {served[0].url}; %agent serve --stop "
            "ends that."
        )
    wanted = tools.replace(",", " ").split() or None
    serving = served[0] if served else agent.serve(port, wanted)
    text = _describe(agent, serving)
    if not token_file:
        return text
    path = _write_config(agent, serving.client_config())
    return f"{text}\n\nA client's configuration, with the token: {code_span(str(path))}"


def _describe(agent: Agent, serving: Any) -> str:
    tools = ", ".join(code_span(name) for name in serving.tools)
    return (
        f"Agent {code_span(agent.name)} serves {tools} to MCP clients on this machine, at "
        f"{code_span(serving.url)}. Questions about their calls appear below this cell.\n\n"
        "Clients need a token, which is not shown, since outputs are saved: "
        "`%agent serve --token-file` writes it to a file that only you can read. "
        "`%agent serve --stop` ends it all."
    )


def _stop(_notebook: NotebookAgents, agent: Agent) -> str:
    """Stop serving them."""
    served = agent.served
    for serving in served:
        serving.stop()
    return "Nothing is served any more." if served else "Nothing was served."


def _config_path(agent: Agent) -> Path:
    folder = rollout_folder().parent / "serving"
    safe = "".join(letter if letter.isalnum() else "-" for letter in agent.name)
    return folder / f"{os.getpid()}-{safe}.json"


def _write_config(agent: Agent, config: dict[str, Any]) -> Path:
    """Write a client's configuration to a file that only the person can read.

    Raises:
        FatalError: it cannot be written.
    """
    path = _config_path(agent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, json.dumps(config, indent=2).encode())
    except OSError as error:
        raise FatalError(f"The token could not be written to {path}: {clause(error)}.") from None
    return path


SERVE = Command(
    "serve",
    {"[--tools NAMES] [--port N] [--token-file]": _serve, "--stop": _stop},
    note="; NAMES are separated by commas",
    of_agent=True,
)
