"""Secrets in a server's arguments and variables are in nothing that is told or logged of it."""

import sys
from urllib.parse import unquote, unquote_plus

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


@pytest.mark.parametrize(
    "name",
    [
        *("--api-key", "--apiKey", "--apikey", "--api_key", "--token", "-token", "--access-token"),
        *("--auth-token", "--password", "--db-password", "--passwd", "--client-secret", "--secret"),
        *(
            "--private-key",
            "--secret-key",
            "--credentials",
            "--auth",
            "--key",
            "--pat",
            "--db-pass",
        ),
        *("API_KEY", "API_TOKEN", "OPENAI_API_KEY_2", "GITHUB_PAT", "PGPASSWORD", "DB_PASS"),
        *("API_KEY_PROD", "SECRET_KEY_BASE", "--secret-id", "--password-value", "PGPASS"),
        *("AWS_SECRET_ACCESS_KEY", "X-Api-Key", "Authorization", "Cookie", "PRIVATE-TOKEN"),
    ],
)
def test_a_name_says_at_its_end_that_its_value_is_secret(name):
    ways = [[f"{name}={SECRET}"], [f"{name}: {SECRET}"], ["-e", f"{name}={SECRET}"]]
    ways += [[name, SECRET]] if name.startswith("-") else []
    for args in ways:
        assert redactor(*args).secrets == (SECRET,), args


@pytest.mark.parametrize(
    "option",
    [
        *(
            "--password",
            "--passphrase",
            "--token",
            "--access-token",
            "--api-key",
            "--client-secret",
        ),
        *("--secret", "--bearer", "--credential", "--session-cookie", "--auth-token"),
    ],
)
def test_a_secret_may_be_plain_words(option):
    for args in ([option, "correct-horse"], [f"{option}=correct-horse"]):
        assert redactor(*args).secrets == ("correct-horse",)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            ("--key-column", "customer_id"),
            ("--primary-key", "identifier"),
            ("--key", "customerId"),
        ),
        *(("--primary-key", "order_id_2"), ("--sort-key", "created_at_2"), ("--auth", "workspace")),
        *(("--auth-mode", "workspace"), ("--auth-type", "kerberos_v5"), ("--oauth", "interactive")),
        *(("--max-tokens", "unlimited"), ("--token-limit", "unlimited"), ("--tokens", "32768-max")),
        *(
            ("--secret-scan", "everything"),
            ("--secrets-backend", "keyring-v2"),
            ("--key", "order_id"),
        ),
        *(
            ("--tokenizer", "cl100k_base"),
            ("--token-budget", "16000-tokens"),
            ("--pattern", "x1y2z3a4"),
        ),
        *(
            ("--passthrough", "headers-v2"),
            ("--bypass", "localhost:8080"),
            ("--keyspace", "orders_v2"),
        ),
        *(
            ("--author", "ada-lovelace-1"),
            ("--private-mode", "strict-v2"),
            ("--path", "data-2024-x"),
        ),
        *(
            ("--keyword", "quarterly-2024"),
            ("--cookie-policy", "same-site-2"),
            ("--compass", "north-w1"),
        ),
        *(
            ("--auth-url", "example.org/login"),
            ("--dedupe-key", "customer_id"),
            ("--monkey", "banana-split"),
        ),
    ],
)
def test_the_value_of_an_ordinary_option_stays(option, value):
    for args in ([option, value], [f"{option}={value}"]):
        redact = redactor(*args)
        assert redact.secrets == ()
        assert redact(" ".join(args)) == " ".join(args)


def test_what_looks_like_a_key_is_taken_out():
    redact = redactor("add", f"@{KEY}")
    assert redact.secrets == (KEY,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", f"Bearer {SECRET} "),
        ("Cookie", f"session={SECRET}; theme=dark"),
        ("X-Api-Key", f"{SECRET} extra"),
        ("X-Auth", f"{SECRET},v2"),
        ("X-Auth-Session", SECRET),
        ("Authorization", f"Custom {SECRET}"),
        ("Authorization", f'Digest username="ada", response="{SECRET}"'),
        ("Authorization", f"AWS4-HMAC-SHA256 SignedHeaders=host, Signature={SECRET}"),
    ],
)
def test_a_secret_anywhere_in_a_header_is_taken_out(name, value):
    redact = Redactor(McpServerConfig("s", url="https://x.org", headers={name: value}), {})
    assert SECRET in redact.secrets
    assert SECRET not in redact(value)
    assert redact("Bearer and Digest") == "Bearer and Digest"


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("Cookie", f"sid={SECRET}; theme=standard; consent=accepted", (SECRET,)),
        (
            "Authorization",
            f"AWS4-HMAC-SHA256 SignedHeaders=host;range, Signature={SECRET}",
            (SECRET,),
        ),
        ("Authorization", f"Negotiate {SECRET}", (SECRET,)),
        ("Authorization", f"GoogleLogin auth={SECRET}", (SECRET,)),
        ("Authorization", f"Federated {SECRET}", (SECRET,)),
        ("Authorization", "Basic YWRhOnNlc2FtZQ==", ("YWRhOnNlc2FtZQ==",)),
        ("Authorization", "Bearer correct-horse", ("correct-horse",)),
        ("X-Auth-Scopes", "default, analysis, customers", ()),
        ("X-Auth-Scopes", "customers", ()),
        ("X-Auth", "kerberos", ()),
    ],
)
def test_ordinary_words_of_a_header_are_no_secrets(name, value, secrets):
    redact = Redactor(McpServerConfig("s", url="https://x.org", headers={name: value}), {})
    assert redact.secrets == secrets


@pytest.mark.parametrize("value", ["ab%2Fcd%2Bef12345", "ab+cd+ef12345"])
def test_a_secret_in_an_address_is_taken_out_as_it_is_written_and_as_it_is_meant(value):
    redact = Redactor(McpServerConfig("s", url=f"https://x.org/mcp?token={value}&mode=x"), {})
    for text in (value, unquote_plus(value), unquote(value)):
        assert redact(f"for {text}") == "for [redacted]"


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "srv", "env_vars": ("API_TOKEN",)},
        {"url": "http://localhost", "bearer_token_env_var": "API_TOKEN"},
        {"url": "http://localhost", "oauth_client_secret_env_var": "API_TOKEN"},
    ],
    ids=["program", "token", "login"],
)
def test_a_secret_that_is_set_later_is_taken_out_too(fields):
    environment = {}
    redact = Redactor(McpServerConfig("s", **fields), environment)
    environment["API_TOKEN"] = SECRET
    redact.learn(environment)
    environment["API_TOKEN"] = KEY
    redact.learn(environment)
    assert redact(f"{SECRET} {KEY}") == "[redacted] [redacted]"


def test_a_server_is_given_no_secret_that_is_not_known():
    environment = {}
    code = "import os, sys; sys.exit('it is ' + os.environ.get('API_TOKEN', 'not set'))"
    given = McpServerConfig(
        *("late", sys.executable, ("-S", "-c", code)),
        env_vars=("API_TOKEN",),
        startup_timeout_sec=LIMIT,
    )
    with McpWorld(given, environment=environment) as world:
        assert "it is not set" in world.until_status(McpStatus.FAILED).message
        environment["API_TOKEN"] = SECRET
        world.run(world.manager.server("late").restart())
        told = world.until_status(McpStatus.FAILED).message
        assert "it is [redacted]" in told
        assert world.manager.secrets() == (SECRET,)


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
