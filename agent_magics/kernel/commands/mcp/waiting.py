"""Finds the MCP servers of the notebook's agent, and waits for servers on the cell's thread."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

from agent_magics.app import Agent
from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.engine.foreground.interrupt import interruptible
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.mcp.client.server import McpServer
from agent_magics.protocol.errors import FatalError, RespondToModel, full_message

# Seconds between two looks at what has come meanwhile.
_BEAT = 0.1


def wait_for(
    agent: Agent, coroutine: Coroutine[Any, Any, Any], look_up: Callable[[], None] = lambda: None
) -> Any:
    """Run a coroutine on the engine's loop and return its result.

    Args:
        agent: the agent whose engine runs it.
        coroutine: the work.
        look_up: called several times a second meanwhile.

    Raises:
        FatalError: the server refused; the sentence is for the person.
        KeyboardInterrupt: the person interrupted; the coroutine is cancelled.
    """
    future: Future[Any] = agent.session.engine.spawn(coroutine)
    try:
        with interruptible():
            _wait(future, look_up)
    except BaseException:
        future.cancel()
        raise
    try:
        return future.result()
    except RespondToModel as error:
        raise FatalError(full_message(error)) from None


@marks_person_code
def _wait(future: "Future[Any]", look_up: Callable[[], None]) -> None:
    while not wait([future], timeout=_BEAT).done:
        look_up()
    look_up()


def manager_of(notebook: NotebookAgents) -> McpConnectionManager:
    """Return the connections of the notebook's agent.

    Raises:
        FatalError: it has no servers.
    """
    manager = notebook.agent_named().mcp
    if manager is None:
        raise FatalError("There are no MCP servers; %agent mcp add NAME -- COMMAND adds one.")
    return manager


def ask(
    notebook: NotebookAgents, request: Callable[[McpConnectionManager], Coroutine[Any, Any, Any]]
) -> Any:
    """Start the servers of the notebook's agent, and return what a request to them gives."""
    agent, manager = notebook.agent_named(), manager_of(notebook)
    manager.start()
    return wait_for(agent, request(manager))


def server_of(notebook: NotebookAgents, name: str) -> McpServer:
    """Return a server of the notebook's agent.

    Raises:
        FatalError: there is none of this name.
    """
    try:
        return manager_of(notebook).server(name)
    except RespondToModel as error:
        raise FatalError(full_message(error)) from None
