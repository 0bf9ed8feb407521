"""Runs our MCP client for the official conformance suite, with the address of its test server.

It connects, logs in as often as that is required, and calls all listed tools.
"""

import json
import os
import sys
import threading
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from agent_magics.mcp.elicitation.answers import accepted
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.protocol.mcp import Elicitation, ElicitationAnswer, McpServerConfig, McpStatus
from agent_magics.tools.mcp.callbacks import answer_of
from tests.support.mcp.links import LIMIT, Callbacks, McpWorld

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
MOST_LOGINS = 4
SETTLED = (McpStatus.READY, McpStatus.NEEDS_LOGIN, McpStatus.FAILED)


def tell(*words: Any) -> None:
    """Print a line about the progress, for the reader of a failed scenario."""
    sys.stderr.write(f"{' '.join(map(str, words))}\n")


class Willing(Callbacks):
    """Accepts each form with its defaults, by the code path of a program's answers."""

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Accept."""
        asked = ElicitationRequested(
            question_id="q",
            call_id="",
            server=question.server,
            message=question.message,
            schema=question.schema,
            url=question.url,
        )
        return answer_of(question, accepted(asked, {}))


def open_address(address: str) -> None:
    """Open an address as a person's browser would."""

    def read() -> None:
        with urllib.request.urlopen(address, timeout=LIMIT) as answer:
            answer.read()

    threading.Thread(target=read, daemon=True).start()


def settle(world: McpWorld) -> bool:
    """Wait until the server is ready, logging in if required; return whether it is."""
    for _ in range(MOST_LOGINS):
        state = world.until(lambda state: state.status in SETTLED)
        if state.status is not McpStatus.NEEDS_LOGIN:
            tell(state.status, state.message)
            return state.status is McpStatus.READY
        world.run(world.manager.server(world.name).login(open_address, LIMIT))
    return False


def call(world: McpWorld, tool: str) -> Any:
    """Call a tool; again after each login that it requires."""
    for _ in range(MOST_LOGINS):
        try:
            return world.call(tool, Willing(), **ARGUMENTS.get(tool, {}))
        except RespondToModel as error:
            tell(error)
            if "login" not in str(error) or not settle(world):
                return None
    return None


def issuer_of(address: str) -> str:
    """Return where the server's login is, as a person reads it in the server's manual."""
    parts = urlsplit(address)
    place = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    with urllib.request.urlopen(place, timeout=LIMIT) as answer:
        return str(json.load(answer)["authorization_servers"][0])


def main(address: str) -> int:
    """Connect, log in and call the tools."""
    client = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    environment = {**os.environ, "SECRET": client.get("client_secret", "")}
    config = McpServerConfig(
        "conformance",
        url=address,
        transport="http",
        startup_timeout_sec=LIMIT,
        tool_timeout_sec=LIMIT,
        oauth_client_id=client.get("client_id"),
        oauth_client_secret_env_var="SECRET" if environment["SECRET"] else None,
        oauth_issuer=issuer_of(address) if environment["SECRET"] else None,
    )
    with McpWorld(config, environment=environment) as world:
        try:
            if settle(world):
                for tool in world.state.tools:
                    tell(tool.name, call(world, tool.name))
        except FatalError as error:
            tell(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
