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
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.serve.place import CallPlace
from agent_magics.serve.protocol import ToolServer


async def serve_streams(agent: Agent) -> None:
    """Serve one MCP client over standard input and output until it closes them."""
    with _aside():
        place = CallPlace(agent)
        server = ToolServer(place, ask_client=True)
    agent.session.registrations.watch(lambda: place.soon(server.refresh))
    await asyncio.wrap_future(agent.session.engine.spawn(_speak(server)))


@contextmanager
def _aside() -> Iterator[None]:
    """Redirect standard output to standard error, since the protocol uses standard output.

    Modules of tools may print when they are imported, which is before a client is served.
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
    """Run the MCP server on the standard streams; called on the engine's event loop."""
    async with stdio_server() as (reading, writing):
        options = server.server.create_initialization_options()
        try:
            await server.server.run(reading, writing, options)
        finally:
            sys.stdout.flush()  # what calls printed, while it still goes to standard error
    server.close()


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
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
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Serve until the client disconnects; print one line on standard error where it cannot.

    Returns:
        The exit status of the process.
    """
    options = read_options(arguments)
    wanted = None if options.tools is None else options.tools.replace(",", " ").split()
    try:
        with _aside():
            agent = Agent(
                tools=wanted, cwd=options.cwd, approval=options.approval, sandbox=options.sandbox
            )
        with agent, suppress(KeyboardInterrupt):
            asyncio.run(serve_streams(agent))
    except FatalError as error:
        sys.stderr.write(f"{short_message(error)}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
