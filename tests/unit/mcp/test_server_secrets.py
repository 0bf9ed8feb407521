"""Secrets in a server's arguments and variables are in nothing that is told or logged of it."""

import sys

import pytest

from agent_magics.mcp.server_secrets import Redactor
from agent_magics.protocol.mcp import McpServerConfig, McpStatus
from tests.support.mcp.links import LIMIT, McpWorld

SECRET = "zz-1234567890"
KEY = "sk-0123456789abcdef0123456789"


def redactor(*args, **fields):
    return Redactor(McpServerConfig("s", "srv", args, **fields), {})


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key", SECRET],
        [f"--token={SECRET}"],
        ["-e", f"API_KEY={SECRET}"],
        ["--header", f"Authorization: Bearer {SECRET}"],
        ["--header", f"Authorization:{SECRET}"],
        ["--config", f'{{"host": "h", "apiKey": "{SECRET}"}}'],
        [f"Server=db;Password={SECRET};Database=x"],
        [f"https://example.org/mcp?api_key={SECRET}&mode=x"],
        [f"postgresql://app:{SECRET}@db:notaport/x"],
        [f"--dsn=postgresql://app:{SECRET}@db/x"],
    ],
)
def test_a_secret_in_an_argument_is_taken_out(args):
    redact = redactor(*args)
    assert SECRET in redact.secrets
    for argument in args:
        assert SECRET not in redact(f"invalid: {argument}")
    assert redact(f"it was {SECRET}") == "it was [redacted]"


def test_what_looks_like_a_key_is_taken_out():
    redact = redactor("add", f"@{KEY}")
    assert redact.secrets == (KEY,)


def test_the_password_of_an_address_is_taken_out_alone_too():
    redact = redactor(env={"DATABASE_URI": "postgresql://app:S3cret%40Pw@db/x"})
    assert redact.secrets == ("S3cret%40Pw", "S3cret@Pw")
    assert redact("no access for app with S3cret@Pw") == "no access for app with [redacted]"


@pytest.mark.parametrize(
    "args",
    [
        ["-y", "@scope/token-server@1.2.3", "/home/ada/keys"],
        ["--no-auth", "--verbose"],
        ["--auth", "none", "--token-limit", "4000", "--use-keychain=true", "--key", "./id.pem"],
        ["postgresql://postgres:postgres@localhost:5432/app"],
        ["http://keycloak:8080/realms/x"],
        ["sketch-context-mcp"],
    ],
)
def test_common_words_stay(args):
    redact = redactor(*args)
    assert redact.secrets == ()
    assert redact(" ".join(args)) == " ".join(args)


def test_a_server_that_repeats_its_arguments_leaks_none():
    code = "import sys; sys.exit('TypeError: Invalid URL, input: ' + ' '.join(sys.argv[1:]))"
    args = ("-S", "-c", code, f"postgresql://app:{KEY[3:]}@db:no/x", "--access-token", SECRET)
    given = McpServerConfig("pg", sys.executable, args, startup_timeout_sec=LIMIT)
    with McpWorld(given) as world:
        state = world.until_status(McpStatus.FAILED)
        told = (
            state.message + world.manager.server("pg").log.text() + repr(world.history[-1].message)
        )
    assert "Invalid URL" in told
    assert SECRET not in told
    assert KEY[3:] not in told
