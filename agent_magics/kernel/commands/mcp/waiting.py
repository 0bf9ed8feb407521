"""Waits on the cell's thread for a server, until the person interrupts."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

from agent_magics.app import Agent
from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.engine.foreground.interrupt import interruptible
from agent_magics.protocol.errors import FatalError, RespondToModel

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
        raise FatalError(str(error)) from None


@marks_person_code
def _wait(future: "Future[Any]", look_up: Callable[[], None]) -> None:
    while not wait([future], timeout=_BEAT).done:
        look_up()
    look_up()
