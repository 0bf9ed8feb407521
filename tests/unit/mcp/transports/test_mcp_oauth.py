"""Logging in to a server: the whole way with a real authorization server, but for the browser."""

import asyncio
import base64
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from agent_magics.models.providers.credentials import drop_key, keep_key, kept_secret
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.mcp import McpServerConfig, McpStatus
from tests.support.mcp.http_server import Guard, HttpServer
from tests.support.mcp.links import LIMIT, Callbacks, McpWorld, words_of
from tests.support.ports import free_port


class Browser:
    """Opens an address as a person would, in a thread; follows redirects."""

    def __init__(self):
        self.addresses = []
        self.pages = []
        self._threads = []

    def __call__(self, address):
        self.addresses.append(address)
        self._threads.append(threading.Thread(target=self._open, args=(address,)))
        self._threads[-1].start()

    def _open(self, address):
        with urllib.request.urlopen(address, timeout=LIMIT) as answer:
            self.pages.append(answer.read().decode())

    def join(self):
        for thread in self._threads:
            thread.join()


@pytest.fixture
def guarded():
    with HttpServer() as server:
        yield server, Guard(server)
    drop_key(name_of(server))  # another server may get its port


def config(server):
    return McpServerConfig(
        "small",
        url=server.address,
        transport="http",
        startup_timeout_sec=LIMIT,
        tool_timeout_sec=LIMIT,
    )


def name_of(server):
    return f"mcp:small:{server.address}"


def kept_by(server):
    """Return the kept text of a server's tokens."""
    kept = kept_secret(name_of(server))
    assert kept is not None
    return kept


def expire(server, at):
    keep_key(name_of(server), json.dumps({**json.loads(kept_by(server)), "expires_at": at}))


def settled(state):
    """Tell whether a server is started, or will not be."""
    return state.status in (McpStatus.READY, McpStatus.NEEDS_LOGIN, McpStatus.FAILED)


def log_in(world, browser):
    world.run(world.manager.server("small").login(browser, LIMIT))
    browser.join()


def test_without_a_login_it_is_said_and_nobody_is_asked(guarded):
    server, _ = guarded
    with McpWorld(config(server)) as world:
        state = world.until_status(McpStatus.NEEDS_LOGIN)
        assert state.message == (
            "The MCP server 'small' wants a login: the person has to run %agent mcp login small."
        )
        with pytest.raises(RespondToModel, match="wants a login"):
            world.call("add", a=1, b=2)
    assert not any("/auth/" in path for _, path, _, _ in server.seen)


def mounted_elsewhere(server, guard):
    """Redirect an address of the server to the guarded one."""
    guard.resource = server.base + "/mounted"
    there = (307, {"location": server.address}, "")
    server.gate = lambda request: there if request[1] == "/mounted" else guard(request)
    return guard.resource


@pytest.mark.parametrize(
    "address_of",
    [
        mounted_elsewhere,
        lambda server, guard: server.address.replace("http://", "HTTP://"),
        lambda server, guard: server.base + "/x/../mcp",
        lambda server, guard: server.address + "?a=b c",
    ],
    ids=["redirected", "capitals", "dots", "space"],
)
def test_the_need_for_a_login_is_seen_however_the_address_is_written(guarded, address_of):
    server, guard = guarded
    given = replace(config(server), url=address_of(server, guard))
    with McpWorld(given) as world:
        assert world.until(settled).status is McpStatus.NEEDS_LOGIN
        log_in(world, Browser())
        assert words_of(world.call("add", a=1, b=2)) == "3"
        guard.valid.clear()
        guard.renewals.clear()
        with pytest.raises(RespondToModel, match="wants a login"):
            world.call("add", a=1, b=2)
    drop_key(f"mcp:small:{given.url}")


@pytest.mark.soak
def test_a_login_and_its_tokens(guarded):
    server, guard = guarded
    browser = Browser()
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, browser)
        assert words_of(world.call("add", a=1, b=2)) == "3"
        (token,) = guard.valid
        assert token in world.manager.secrets()
        assert token not in world.manager.server("small").log.text() + repr(world.history)
    assert len(browser.addresses) == 1
    assert browser.addresses[0].startswith(f"{server.base}/auth/authorize?")
    assert "You are logged in" in browser.pages[0]
    assert json.loads(kept_by(server))["tokens"]["access_token"] == token
    # Another kernel finds them.
    with McpWorld(config(server)) as world:
        assert words_of(world.call("add", a=2, b=2)) == "4"
    assert len(browser.addresses) == 1


@pytest.mark.soak
@pytest.mark.parametrize("expires_at", [1.0, time.time() + 365 * 86400], ids=["old", "ahead"])
def test_an_old_token_is_renewed_where_it_came_from(guarded, expires_at):
    """A year ahead: a clock that was wrong has noted it."""
    server, guard = guarded
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, Browser())
        world.ready()
    expire(server, expires_at)
    guard.valid.clear()
    with McpWorld(config(server)) as world:
        assert words_of(world.call("add", a=1, b=2)) == "3"
    assert guard.refreshed == 1
    assert json.loads(kept_by(server))["tokens"]["access_token"] in guard.valid


def test_a_token_that_nobody_renews_needs_a_login(guarded):
    server, guard = guarded
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, Browser())
        world.ready()
        guard.valid.clear()
        guard.renewals.clear()
        with pytest.raises(RespondToModel):
            world.call("add", a=1, b=2)
        world.until_status(McpStatus.NEEDS_LOGIN)


class RotatingGuard(Guard):
    """Takes the second use of a refresh token for theft: OAuth 2.1, section 4.3.1."""

    def __init__(self, server, **options):
        super().__init__(server, **options)
        self.used = set()
        self.renewing = []  # the fields of each renewal

    def _token(self, fields, body):
        if fields["grant_type"] != "refresh_token":
            return super()._token(fields, body)
        self.renewing.append(fields)
        given = fields["refresh_token"]
        if given in self.used:
            self.valid.clear()
            self.renewals.clear()
        self.used.add(given)
        answer = super()._token(fields, body)
        self.renewals.discard(given)
        return answer


class Forgetful(set):
    """Tokens of which none is valid."""

    def add(self, token):
        """Take none."""


def test_two_kernels_renew_rotating_tokens_one_after_the_other(guarded):
    server, _ = guarded
    guard = RotatingGuard(server)
    with McpWorld(config(server)) as one:
        assert one.until(settled).status is McpStatus.NEEDS_LOGIN
        log_in(one, Browser())
        one.ready()
        with McpWorld(config(server)) as two:
            two.ready()
            for first, second in ((one, two), (two, one)):
                guard.valid.clear()
                assert words_of(first.call("add", a=1, b=2)) == "3"
                assert words_of(second.call("add", a=1, b=2)) == "3"
            # Both at the same moment.
            guard.valid.clear()
            calls = [
                world.manager.server("small").call_tool("add", {"a": 1, "b": 2}, Callbacks())
                for world in (one, two, one, two)
            ]

            async def together():
                return await asyncio.gather(*calls)

            assert [words_of(each) for each in one.run(together())] == ["3"] * 4
    assert len(guard.renewing) == 3


@pytest.mark.parametrize("lifetime", [3600, None], ids=["sooner than it said", "without a time"])
def test_a_token_that_is_refused_is_renewed_once(guarded, lifetime):
    server, _ = guarded
    guard = RotatingGuard(server, lifetime=lifetime)
    with McpWorld(config(server)) as world:
        assert world.until(settled).status is McpStatus.NEEDS_LOGIN
        log_in(world, Browser())
        assert words_of(world.call("add", a=1, b=2)) == "3"
        guard.valid.clear()
        assert words_of(world.call("add", a=1, b=2)) == "3"
        assert len(guard.renewing) == 1
        guard.valid = Forgetful()
        with pytest.raises(RespondToModel, match="wants a login"):
            world.call("add", a=1, b=2)
        world.until_status(McpStatus.NEEDS_LOGIN)
    assert len(guard.renewing) == 2


def test_a_renewal_names_the_server_in_every_kernel(guarded):
    """MCP, "Authorization": clients MUST send RFC 8707's `resource` in token requests."""
    server, _ = guarded
    guard = RotatingGuard(server)
    with McpWorld(config(server)) as world:
        assert world.until(settled).status is McpStatus.NEEDS_LOGIN
        log_in(world, Browser())
        world.ready()
    expire(server, 1.0)
    with McpWorld(config(server)) as world:
        world.ready()
    assert [fields.get("resource") for fields in guard.renewing] == [server.address]


class ScopeGuard(Guard):
    """Wants the scope ``read`` of all, and ``write`` too of requests while `wants_more`."""

    wants_more = False
    challenge = 'error="insufficient_scope", scope="write"'

    def __init__(self, server):
        super().__init__(server)
        self.registered = self.asked = ""
        self.wide = set()

    def __call__(self, request):
        answer = super().__call__(request)
        token = request[2].get("authorization", "").removeprefix("Bearer ")
        if answer is None and self.wants_more and token not in self.wide:
            return 403, {"www-authenticate": f"Bearer {self.challenge}"}, ""
        if answer and "www-authenticate" in answer[1]:
            answer[1]["www-authenticate"] += ', scope="read"'
        return answer

    def _register(self, fields, body):
        self.registered = json.loads(body).get("scope", "")
        return super()._register(fields, body)

    def _authorize(self, fields, body):
        self.asked = fields.get("scope", "")
        return super()._authorize(fields, body)

    def _token(self, fields, body):
        before = set(self.valid)
        answer = super()._token(fields, body)
        if "write" in self.asked:
            self.wide |= self.valid - before
        return answer


def test_a_call_that_wants_more_scope_fails_alone_and_a_login_mends_it(guarded):
    server, _ = guarded
    guard = ScopeGuard(server)
    with McpWorld(config(server)) as world:
        assert world.until(settled).status is McpStatus.NEEDS_LOGIN
        log_in(world, Browser())
        assert words_of(world.call("add", a=1, b=2)) == "3"
        before = len(world.history)
        guard.wants_more = True
        with pytest.raises(RespondToModel) as caught:
            world.call("add", a=1, b=2)
        assert str(caught.value) == (
            "The MCP server 'small' refused the tool 'add': HTTP status 403: it needs the scope "
            "'write'; the person can give it by %agent mcp login small."
        )
        guard.wants_more = False
        assert words_of(world.call("add", a=1, b=2)) == "3"
        assert len(world.history) == before, "the connection stayed open"
        log_in(world, Browser())
        assert guard.asked == guard.registered == "read write"
        guard.wants_more = True
        assert words_of(world.call("add", a=1, b=2)) == "3"
        # A later login asks for it, too.
        log_in(world, Browser())
        assert guard.asked == "read write"


@pytest.mark.parametrize("scope", ['"\x80"', '"' + "x" * 2_000 + '"', "", '" "'])
def test_a_scope_that_cannot_be_asked_for_is_not_kept(guarded, scope):
    server, _ = guarded
    guard = ScopeGuard(server)
    guard.challenge = f'error="insufficient_scope", scope={scope}'
    with McpWorld(config(server)) as world:
        assert world.until(settled).status is McpStatus.NEEDS_LOGIN
        log_in(world, Browser())
        world.ready()
        guard.wants_more = True
        with pytest.raises(RespondToModel, match=r"refused the tool 'add': HTTP status 403\.$"):
            world.call("add", a=1, b=2)
    assert "scope" not in json.loads(kept_by(server))


def test_a_server_may_want_more_scope_within_a_login(guarded):
    server, _ = guarded
    guard, browser = ScopeGuard(server), Browser()

    def want_more_after_the_handshake(request):
        answer = guard(request)
        guard.wants_more = guard.wants_more or (answer is None and request[1] == "/mcp")
        return answer

    server.gate = want_more_after_the_handshake
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, browser)
        assert len(browser.addresses) == 2
        assert words_of(world.call("add", a=1, b=2)) == "3"


def test_a_login_stays_where_another_kernel_renews_the_old_tokens_meanwhile(guarded):
    server, guard = guarded
    old = {"tokens": {"access_token": "old", "token_type": "Bearer"}}

    def renew_elsewhere(request):
        answer = guard(request)
        if answer is None and request[1] == "/mcp":  # the new token is kept, and used
            keep_key(name_of(server), json.dumps(old))
        return answer

    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        server.gate = renew_elsewhere
        tokens = world.run(world.manager.server("small")._tokens())
        browser = Browser()
        world.run(tokens.log_in(browser, LIMIT))
        browser.join()
        assert json.loads(kept_by(server))["tokens"]["access_token"] in guard.valid


@pytest.mark.parametrize(
    ("place", "answer", "told"),
    [
        ("challenge", (200, {"content-type": "application/json"}, "[" * 500_010), "parts"),
        ("token", None, "too large"),
    ],
    ids=["limit", "lifetime"],
)
def test_a_login_server_that_answers_oddly_is_told_in_one_sentence(guarded, place, answer, told):
    server, guard = guarded
    guard.lifetime = 10**400
    guard.redirects = {place: answer} if answer else {}
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        with pytest.raises(FatalError, match=f"login to 'small' failed: .*{told}"):
            log_in(world, Browser())


def test_a_login_without_the_sdk_says_what_to_install(monkeypatch):
    given = McpServerConfig("small", url="http://localhost/mcp", transport="http", enabled=False)
    with McpWorld(given) as world:
        monkeypatch.setitem(sys.modules, "agent_magics.mcp.transports.oauth", None)
        monkeypatch.delattr("agent_magics.mcp.transports.oauth")
        with pytest.raises(FatalError, match=r"pip install .agent-magics\[mcp\]"):
            world.run(world.manager.server("small").login(print))


def test_logging_out_forgets(guarded):
    server, _ = guarded
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, Browser())
        world.ready()
        world.run(world.manager.server("small").logout())
        world.until_status(McpStatus.NEEDS_LOGIN)
    assert kept_secret(name_of(server)) is None


@pytest.mark.soak
@pytest.mark.parametrize("methods", [None, ["client_secret_basic", "none"], ["client_secret_post"]])
def test_a_client_that_a_person_registered_is_used(guarded, methods):
    server, guard = guarded
    guard.client, guard.methods = ("ours", "sesame-123"), methods
    given = replace(
        config(server),
        oauth_client_id="ours",
        oauth_client_secret_env_var="SECRET_OF_OURS",
        oauth_callback_port=free_port(),
    )
    environment = {**os.environ, "SECRET_OF_OURS": "sesame-123"}
    browser = Browser()
    with McpWorld(given, environment=environment) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, browser)
        assert words_of(world.call("add", a=1, b=2)) == "3"
        assert "sesame-123" in world.manager.secrets()
    asked = parse_qs(urlsplit(browser.addresses[0]).query)
    assert asked["client_id"] == ["ours"]
    assert asked["redirect_uri"] == [f"http://127.0.0.1:{given.oauth_callback_port}/callback"]
    assert "sesame-123" not in kept_by(server)
    expire(server, 1.0)
    guard.valid.clear()
    with McpWorld(given, environment=environment) as world:
        assert words_of(world.call("add", a=1, b=2)) == "3"
    assert guard.refreshed == 1
    assert not any("/auth/register" in path for _, path, _, _ in server.seen)


@pytest.fixture
def elsewhere():
    """A server at another address, which nobody configured; tells what it was asked."""
    with HttpServer() as other:
        other.gate = lambda request: (404, {}, "")
        yield other


@pytest.mark.parametrize("origin", ["http://127.0.0.2", "https://localhost"])
@pytest.mark.parametrize("place", ["challenge", "issuer", "authorize", "token", "register"])
def test_a_login_leads_into_no_network_that_is_closed_to_the_server(
    guarded, elsewhere, place, origin
):
    server, guard = guarded
    guard.named[place] = f"{origin}:{elsewhere.port}/x"
    browser = Browser()
    with McpWorld(config(server)) as world:
        world.until(lambda state: state.status in (McpStatus.NEEDS_LOGIN, McpStatus.FAILED))
        with pytest.raises(FatalError, match=r"The login to 'small' failed"):
            world.run(world.manager.server("small").login(browser, LIMIT))
        browser.join()
    assert not elsewhere.seen
    assert not any(address.startswith(origin) for address in browser.addresses)


@pytest.mark.parametrize("place", ["challenge", "token", "register"])
def test_a_login_follows_no_redirect_to_another_origin(guarded, elsewhere, place):
    server, guard = guarded
    guard.redirects[place] = (307, {"location": elsewhere.base}, "")
    with McpWorld(config(server)) as world:
        world.until(lambda state: state.status in (McpStatus.NEEDS_LOGIN, McpStatus.FAILED))
        browser = Browser()
        with pytest.raises(FatalError):
            world.run(world.manager.server("small").login(browser, LIMIT))
        browser.join()
    assert not elsewhere.seen


@pytest.mark.parametrize("named", [None, "other"])
def test_a_secret_goes_only_to_the_issuer_that_the_person_configured(guarded, named):
    """The hostile server names an issuer at another port, which then asks for the secret."""
    server, _ = guarded
    with HttpServer() as hostile:
        thief = Guard(hostile)
        thief.client, thief.methods = ("ours", "sesame-123"), ["client_secret_post"]
        thief.resource = server.address
        Guard(server).named["challenge"] = (
            f"{hostile.base}/.well-known/oauth-protected-resource/mcp"
        )
        given = replace(
            config(server),
            oauth_client_id="ours",
            oauth_client_secret_env_var="SECRET_OF_OURS",
            oauth_issuer=named and f"{server.base}/auth",
        )
        environment = {**os.environ, "SECRET_OF_OURS": "sesame-123"}
        with McpWorld(given, environment=environment) as world:
            world.until(lambda state: state.status in (McpStatus.NEEDS_LOGIN, McpStatus.FAILED))
            with pytest.raises(FatalError, match="secret is not for"):
                world.run(world.manager.server("small").login(Browser(), LIMIT))
        sent = repr(hostile.seen)
        assert "sesame" not in sent
        assert base64.b64encode(b"ours:sesame-123").decode() not in sent


def test_a_secret_goes_to_a_configured_issuer_elsewhere(guarded):
    server, _ = guarded
    with HttpServer() as home:
        right = Guard(home)
        right.client, right.methods = ("ours", "sesame-123"), ["client_secret_post"]
        right.resource = server.address
        gate = Guard(server)
        gate.named["challenge"] = f"{home.base}/.well-known/oauth-protected-resource/mcp"
        gate.valid = right.valid
        given = replace(
            config(server),
            oauth_client_id="ours",
            oauth_client_secret_env_var="SECRET_OF_OURS",
            oauth_issuer=f"{home.base}/auth",
        )
        environment = {**os.environ, "SECRET_OF_OURS": "sesame-123"}
        with McpWorld(given, environment=environment) as world:
            world.until_status(McpStatus.NEEDS_LOGIN)
            log_in(world, Browser())
            assert words_of(world.call("add", a=1, b=2)) == "3"


def test_a_server_that_changes_its_issuer_gets_neither_tokens_nor_secret(guarded):
    """A server that was honest at the login names another issuer when its token is renewed."""
    server, guard = guarded
    guard.client, guard.methods = ("ours", "sesame-123"), ["client_secret_post"]
    given = replace(
        config(server), oauth_client_id="ours", oauth_client_secret_env_var="SECRET_OF_OURS"
    )
    environment = {**os.environ, "SECRET_OF_OURS": "sesame-123"}
    with HttpServer() as hostile, McpWorld(given, environment=environment) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, Browser())
        world.ready()
        thief = Guard(hostile)
        thief.client, thief.resource = guard.client, server.address
        guard.named["challenge"] = f"{hostile.base}/.well-known/oauth-protected-resource/mcp"
        guard.valid.clear()
        for _ in range(3):
            with suppress(RespondToModel, FatalError):
                world.call("add", a=1, b=2)
        assert not hostile.seen, "only a login asks where the login is"
        with pytest.raises(FatalError, match="secret is not for"):
            world.run(world.manager.server("small").login(Browser(), LIMIT))
        assert hostile.seen
        assert "sesame" not in repr(hostile.seen)
        assert not any(renewal in repr(hostile.seen) for renewal in guard.renewals)


def test_what_a_login_of_a_registered_client_lacks_is_one_sentence(guarded):
    server, _ = guarded
    secret = replace(
        config(server), oauth_client_id="ours", oauth_client_secret_env_var="NOT_THERE"
    )
    taken = urlsplit(server.address).port
    port = replace(config(server), oauth_client_id="ours", oauth_callback_port=taken)
    for given, words in ((secret, "needs the variable NOT_THERE"), (port, f"to port {taken} of")):
        with McpWorld(given) as world:
            world.until_status(McpStatus.NEEDS_LOGIN)
            with pytest.raises(FatalError, match=words):
                world.run(world.manager.server("small").login(print))


def test_a_refused_login_is_told(guarded):
    server, guard = guarded
    guard.refuse = True
    browser = Browser()
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        with pytest.raises(FatalError, match="refused: The person said no"):
            log_in(world, browser)
        browser.join()
    assert "The login was refused" in browser.pages[0]


def test_a_login_that_nobody_makes_is_given_up(guarded):
    server, _ = guarded
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        with pytest.raises(FatalError, match="Nobody logged in"):
            world.run(world.manager.server("small").login(lambda address: None, 0.5))


class CrossedBrowser(Browser):
    """Somebody else on the machine is at the receiver first."""

    def __init__(self):
        super().__init__()
        self.refused = []

    def _open(self, address):
        back = parse_qs(urlsplit(address).query)["redirect_uri"][0]
        for place in (f"{back}?code=x&state=wrong", back.replace("callback", "favicon.ico")):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(place, timeout=LIMIT)
            self.refused.append(refused.value.code)
            refused.value.close()
        super()._open(address)


def test_an_answer_of_a_stranger_is_not_taken(guarded):
    server, _ = guarded
    browser = CrossedBrowser()
    with McpWorld(config(server)) as world:
        world.until_status(McpStatus.NEEDS_LOGIN)
        log_in(world, browser)
        world.ready()
    assert browser.refused == [400, 404]


def test_a_program_has_no_login(tmp_path):
    given = McpServerConfig("program", "true", enabled=False)
    with McpWorld(given) as world, pytest.raises(FatalError, match="a program"):
        world.run(world.manager.server("program").login(print))


def test_a_server_that_wants_none_says_so():
    with HttpServer() as server, McpWorld(config(server)) as world:
        world.ready()
        with pytest.raises(FatalError, match="did not ask for a login"):
            world.run(world.manager.server("small").login(print))
