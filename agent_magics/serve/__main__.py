"""``python -m agent_magics.serve``: the tools of a folder for one client, over standard streams.

The client starts this program and speaks to it; what tools print goes to standard error. Questions
go to the client's person (elicitation).
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from mcp.server.stdio import stdio_server

from agent_magics import Agent
from agent_magics.protocol.config import ApprovalPolicy, SandboxPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.serve.place import Place
from agent_magics.serve.protocol import ToolServer


async def serve_streams(agent: Agent) -> None:
    """Serve one client over the standard streams until it closes them."""
    with _aside():
        place = Place(agent)
        server = ToolServer(place, ask_client=True)
    agent.session.shelf.watch(lambda: place.soon(server.refresh))
    await asyncio.wrap_future(agent.session.engine.spawn(_speak(server)))


@contextmanager
def _aside() -> Iterator[None]:
    """Send what is printed to standard error, as while it is served.

    Modules of tools may print when they are imported, which is before that.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


async def _speak(server: ToolServer) -> None:
    """Read, answer and write; on the engine's loop, as all that knows the protocol."""
    async with stdio_server() as (reading, writing):
        options = server.server.create_initialization_options()
        await server.server.run(reading, writing, options)
    server.close()


def read_options(words: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m agent_magics.serve", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument(
        "--tools", help="names of tools and sets, with commas; else all that the folder has"
    )
    parser.add_argument("--cwd", default=".", help="the workspace (default: this folder)")
    parser.add_argument(
        "--approval",
        choices=[str(each) for each in ApprovalPolicy],
        default=str(ApprovalPolicy.ON_REQUEST),
        help="when the client's person is asked (default: on-request)",
    )
    parser.add_argument(
        "--sandbox",
        choices=[str(each) for each in SandboxPolicy],
        default=str(SandboxPolicy.WORKSPACE_WRITE),
        help="what commands may touch (default: workspace-write)",
    )
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Serve until the client has gone; say in one line what stands in the way."""
    options = read_options(words)
    wanted = None if options.tools is None else options.tools.replace(",", " ").split()
    try:
        with _aside():
            agent = Agent(
                tools=wanted, cwd=options.cwd, approval=options.approval, sandbox=options.sandbox
            )
        with agent, suppress(KeyboardInterrupt):
            asyncio.run(serve_streams(agent))
    except FatalError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
