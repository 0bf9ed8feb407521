"""The official conformance suite of the Model Context Protocol, for our client and for our server.

What does not apply stands here with its reason, and each scenario of the suite stands somewhere.
"""

import base64
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_magics import Agent, ToolContext, tool
from agent_magics.protocol.items import InputImage
from agent_magics.protocol.tools import ToolOutput
from tests.support.mcp.foreign_servers import node_program
from tests.support.mcp.token_proxy import TokenProxy

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

ROOT = Path(__file__).parents[2]
CLIENT = f"{sys.executable} -m tests.support.mcp.conformance_client"
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n nothing is drawn of it here").decode()

CLIENT_SCENARIOS = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    *(f"auth/metadata-{each}" for each in ("default", "var1", "var2", "var3")),
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-retry-limit",
    *(f"auth/token-endpoint-auth-{each}" for each in ("basic", "post", "none")),
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/pre-registration",
)
SERVER_SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)

_MACHINE = "a login is a person's, in a browser: there are no logins of machines"
_TOOLS_ONLY = "our server offers tools alone"
_OTHER_THAN_TOOLS = (
    *(f"resources-{each}" for each in ("list", "read-text", "read-binary", "templates-read")),
    *(f"resources-{each}" for each in ("subscribe", "unsubscribe")),
    *(f"prompts-{each}" for each in ("list", "get-simple", "get-with-args", "get-with-image")),
    "prompts-get-embedded-resource",
    "completion-complete",
)
NOT_OF_OURS = {
    "auth/basic-cimd": "we have no page on the web that could say who we are; we register instead",
    "auth/scope-step-up": "a call that wants more scopes fails with the sentence that a login is "
    "wanted, which then asks for them; none is begun by itself",
    "auth/2025-03-26-oauth-metadata-backcompat": "its metadata name another issuer than where they "
    "stand, which the SDK refuses (RFC 8414, section 3.3)",
    "auth/client-credentials-jwt": _MACHINE,
    "auth/client-credentials-basic": _MACHINE,
    "auth/cross-app-access-complete-flow": _MACHINE,
    "logging-set-level": "our server sends no log messages",
    "tools-call-with-logging": "our server sends no log messages",
    "tools-call-audio": "tools return text, pictures and data; there is no sound",
    "tools-call-embedded-resource": _TOOLS_ONLY,
    "tools-call-mixed-content": _TOOLS_ONLY,
    "tools-call-sampling": "our server asks no client's model",
    "tools-call-elicitation": "our server asks its own questions, and has no tool that asks",
    "elicitation-sep1034-defaults": "our server's one form has one box, without a default",
    "elicitation-sep1330-enums": "our server's one form has no choices",
    "json-schema-2020-12": "schemas are made from Python signatures, which have no $schema",
    "server-sse-polling": "our server never closes a stream under way; the suite only warns",
    **dict.fromkeys(_OTHER_THAN_TOOLS, _TOOLS_ONLY),
}


@tool(mutating=False)
def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@tool(mutating=False)
def test_image_content() -> ToolOutput:
    """Return a picture."""
    return ToolOutput((InputImage(f"data:image/png;base64,{PIXEL}"),))


@tool(mutating=False)
def test_error_handling() -> str:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool(mutating=False)
def test_tool_with_progress(ctx: ToolContext) -> str:
    """Tell how far it is."""
    for share in (0.0, 0.5, 1.0):
        ctx.update(progress=share)
        time.sleep(0.05)  # as the suite wants its tool to do
    return "done"


# The names are the suite's; for pytest these are no tests.
FIXTURES = (test_simple_text, test_image_content, test_error_handling, test_tool_with_progress)
for each in FIXTURES:
    each.__test__ = False


def suite(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the suite's command."""
    programs = Path(node_program("conformance")[0]).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*node_program("conformance"), *words],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    """Every check of a scenario has passed, and there was one."""
    said = done.stdout + done.stderr
    passed = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", said)
    assert done.returncode == 0, said
    assert passed, said
    assert passed[1] == passed[2] != "0", said


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("conformance")
    with (
        Agent(tools=FIXTURES, cwd=folder) as agent,
        agent.serve() as serving,
        TokenProxy(serving) as address,
    ):
        yield address


def test_every_scenario_of_the_suite_stands_here() -> None:
    listed = set(re.findall(r"^ +- (\S+) \[", suite("list").stdout, re.MULTILINE))
    ours = [*CLIENT_SCENARIOS, *SERVER_SCENARIOS, *NOT_OF_OURS]
    assert listed == set(ours)
    assert len(ours) == len(set(ours))


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
def test_our_client(scenario: str) -> None:
    check(suite("client", "--command", CLIENT, "--scenario", scenario, "--timeout", "90000"))


@pytest.mark.parametrize("scenario", SERVER_SCENARIOS)
def test_our_server(address: str, scenario: str) -> None:
    check(suite("server", "--url", address, "--scenario", scenario))
