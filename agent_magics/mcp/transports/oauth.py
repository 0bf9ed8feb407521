"""Logs in to servers over HTTP: the SDK's OAuth client with our store of tokens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.utils import extract_scope_from_www_auth, issuers_match, union_scopes
from mcp.shared._httpx_utils import stream_within_origin
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import AnyUrl, ValidationError

from agent_magics.mcp.server_secrets import Redactor
from agent_magics.mcp.transports.addresses import LoginAddresses
from agent_magics.mcp.transports.bodies import PLAIN, limit_body
from agent_magics.mcp.transports.logs import keep_keys_out
from agent_magics.mcp.transports.receiver import RedirectReceiver
from agent_magics.mcp.transports.renewal import RenewingAuth, alone_with
from agent_magics.models.providers.credentials import drop_key, keep_key, kept_secret
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.text.brief import brief_line

_SILENT_REDIRECT = "http://127.0.0.1/callback"  # never used, since there is no interaction
_UNAUTHORIZED = 401
_TIMEOUT = 30.0  # seconds for one request


class Tokens:
    """The stored tokens of one server, by its name and its address, kept where keys are.

    A server whose address was changed in the configuration does not get the tokens of the old
    address.
    """

    def __init__(
        self, config: McpServerConfig, environment: Mapping[str, str], redact: Redactor
    ) -> None:
        self._config = config
        self._client_secret = environment.get(config.oauth_client_secret_env_var or "")
        self._redact = redact
        self._name = f"mcp:{config.name}:{config.url}"
        self._kept: dict[str, Any] = {}
        self._context: Any = None

    async def load(self) -> bool:
        """Read the stored data; return whether there are tokens."""
        text = await asyncio.to_thread(kept_secret, self._name)
        try:
            kept = json.loads(text) if text else {}
        except ValueError:
            kept = {}
        self._kept = kept if isinstance(kept, dict) else {}
        self._hide()
        return "tokens" in self._kept

    async def forget(self) -> None:
        """Delete the stored data; a renewal that is under way in any kernel does not undo it."""
        async with self.alone():
            self._kept = {}
            await asyncio.to_thread(drop_key, self._name)

    def silent_auth(self) -> httpx2.Auth:
        """Return an HTTP authentication that sends and renews tokens without interaction."""
        return self._provider(RenewingAuth, _SILENT_REDIRECT)

    async def want(self, scope: str) -> None:
        """Note a scope that a request lacked; the next login asks for it, too.

        Where the stored data cannot be changed it is not noted: the call's error names it anyway.
        """
        with suppress(FatalError):
            async with self.alone():
                granted = self._kept.get("tokens", {}).get("scope")
                wanted = union_scopes(granted, union_scopes(self._kept.get("scope"), scope))
                if self._kept and wanted != self._kept.get("scope"):
                    self._kept["scope"] = wanted
                    await self._keep()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Read the stored data anew, and keep other kernels from renewing the tokens meanwhile."""
        async with alone_with(self._name):
            await self.load()
            yield

    async def log_in(self, show: Callable[[str], None], limit: float) -> None:
        """Get tokens by having the person open an address.

        Args:
            show: called with the address.
            limit: seconds to wait for the person.

        Raises:
            FatalError: the login failed.
        """
        config = self._config
        await self.load()
        self._kept = {"scope": self._kept["scope"]} if "scope" in self._kept else {}
        if (variable := config.oauth_client_secret_env_var) and not self._client_secret:
            raise FatalError(
                f"The login to {config.name!r} needs the variable {variable} "
                "(oauth_client_secret_env_var), which is not set in the kernel."
            )
        async with RedirectReceiver(config.oauth_callback_port or 0) as receiver:

            async def hand_out(address: str) -> None:
                await LoginAddresses(config).check(httpx2.URL(address))
                self._add_secret()
                receiver.expect(_state_of(address))
                show(address)

            async def wait() -> AuthorizationCodeResult:
                code, state, issuer = await receiver.wait()
                return AuthorizationCodeResult(code=code, state=state, iss=issuer)

            auth = self._provider(OAuthClientProvider, receiver.address, hand_out, wait)
            try:
                async with asyncio.timeout(limit):
                    await _request_login(config, auth, self._kept.get("scope"))
            except TimeoutError:
                raise FatalError(
                    f"Nobody logged in to {config.name!r} within {limit:g} s: run %agent mcp "
                    f"login {config.name} again."
                ) from None
            except (
                OAuthFlowError,
                OAuthRegistrationError,
                OAuthTokenError,
                ValidationError,
                httpx2.HTTPError,
                httpx2.InvalidURL,
                httpx2.StreamError,
                OSError,
                OverflowError,  # a lifetime that is no time
            ) as error:
                message = brief_line(self._redact(clause(error)), 300)
                raise FatalError(f"The login to {config.name!r} failed: {message}.") from None
        if "tokens" not in self._kept:
            raise FatalError(f"The MCP server {config.name!r} did not ask for a login.")
        async with alone_with(self._name):  # another kernel may have renewed the old ones meanwhile
            await self._keep()

    # -- the SDK's interface of a token store --------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, and set their expiry and metadata, which the SDK does not store, in
        its context.
        """
        kept = self._kept
        if "tokens" not in kept:
            return None
        tokens = OAuthToken.model_validate(kept["tokens"])
        self._context.token_expiry_time = _expiry_of(tokens, kept.get("expires_at"))
        if "metadata" in kept:  # otherwise it would guess the address for renewal
            self._context.oauth_metadata = OAuthMetadata.model_validate(kept["metadata"])
        if "resource" in kept:  # named in renewals: RFC 8707, section 2.2
            resource = ProtectedResourceMetadata.model_validate(kept["resource"])
            self._context.protected_resource_metadata = resource
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens, with their expiry and the address for renewal."""
        self._kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self._kept.pop("expires_at", None)
        if tokens.expires_in:
            self._kept["expires_at"] = time.time() + tokens.expires_in
        found = {
            "metadata": self._context.oauth_metadata,
            "resource": self._context.protected_resource_metadata,
        }
        for key, metadata in found.items():
            if metadata is not None:
                self._kept[key] = metadata.model_dump(mode="json", exclude_none=True)
        await self._keep()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return our registration at the authorization server: the person's, or one of our own."""
        if self._config.oauth_client_id:
            ours = OAuthClientInformationFull(
                client_id=self._config.oauth_client_id,
                redirect_uris=self._context.client_metadata.redirect_uris,
                token_endpoint_auth_method=self._kept.get("method", "none"),
            )
            issuer = self._kept.get("metadata", {}).get("issuer", self._origin)
            if "method" in self._kept and self._is_configured(issuer):
                ours.client_secret, ours.issuer = self._client_secret, issuer
            return ours
        client = self._kept.get("client")
        return None if client is None else OAuthClientInformationFull.model_validate(client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep our registration; it is written with the tokens."""
        self._kept["client"] = client_info.model_dump(mode="json", exclude_none=True)
        self._hide()

    def _add_secret(self) -> None:
        """Send the secret of a person's registration, in the way that the login server wants.

        Source: RFC 8414, section 2: what names no methods takes ``client_secret_basic``.

        Raises:
            OAuthFlowError: the person did not configure this login server for it.
        """
        if not self._client_secret:
            return
        metadata, client = self._context.oauth_metadata, self._context.client_info
        issuer = str(metadata.issuer) if metadata else self._origin
        if not self._is_configured(issuer):
            raise OAuthFlowError(
                f"its login is at {issuer}, which the client's secret is not for; if it is right, "
                "set oauth_issuer to it"
            )
        offered = metadata and metadata.token_endpoint_auth_methods_supported
        basic = "client_secret_basic" in (offered or ["client_secret_basic"])
        self._kept["method"] = "client_secret_basic" if basic else "client_secret_post"
        client.token_endpoint_auth_method = self._kept["method"]
        # With its issuer the SDK sends it to no other one, whatever the server says later.
        client.client_secret, client.issuer = self._client_secret, issuer

    def _is_configured(self, issuer: str) -> bool:
        """Tell whether an issuer is the person's, or without one at the server's address."""
        if self._config.oauth_issuer:
            return issuers_match(issuer, self._config.oauth_issuer)
        return str(httpx2.URL(issuer).join("/")) == self._origin

    @property
    def _origin(self) -> str:
        return str(httpx2.URL(self._config.url or "").join("/"))

    async def _keep(self) -> None:
        self._hide()
        await asyncio.to_thread(keep_key, self._name, json.dumps(self._kept))

    def _hide(self) -> None:
        secrets = (
            *(self._kept.get("tokens", {}).get(key) for key in ("access_token", "refresh_token")),
            self._kept.get("client", {}).get("client_secret"),
        )
        for secret in filter(None, secrets):
            self._redact.add(secret)

    def _provider(
        self, kind: type[OAuthClientProvider], redirect: str, *ways: Any
    ) -> OAuthClientProvider:
        metadata = OAuthClientMetadata(
            client_name="agent-magics",
            redirect_uris=[AnyUrl(redirect)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        )
        address = str(httpx2.URL(self._config.url or ""))  # as it is requested, without ".."
        provider = kind(address, metadata, self, *ways)
        self._context = provider.context
        return provider


def _adding_scope(scope: str | None) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a hook that makes the SDK ask for a scope, beside the one that the server names."""

    async def add(response: httpx2.Response) -> None:
        if scope and response.status_code == _UNAUTHORIZED:
            given = response.headers.get("www-authenticate", "")
            asked = union_scopes(extract_scope_from_www_auth(response), scope)
            response.headers["www-authenticate"] = f'Bearer scope="{asked}", {given}'

    return add


async def _request_login(config: McpServerConfig, auth: httpx2.Auth, scope: str | None) -> None:
    """Send requests that make the server require a login; some require it only after initialize."""
    keep_keys_out()
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "agent-magics", "version": "0"},
        },
    }
    timeout = httpx2.Timeout(_TIMEOUT)
    headers = {**PLAIN, **config.headers, "Accept": "application/json, text/event-stream"}
    hooks: dict[str, list[Callable[..., Any]]] = {
        "request": [LoginAddresses(config).check_request],
        "response": [limit_body, _adding_scope(scope)],
    }
    async with httpx2.AsyncClient(
        auth=auth, headers=headers, timeout=timeout, event_hooks=hooks
    ) as client:
        method = "GET" if config.transport == "sse" else "POST"
        address = config.url or ""
        body = None if method == "GET" else hello
        # Redirects are followed as the transport follows them: within the origin.
        async with stream_within_origin(client, method, address, json=body) as answer:
            session = answer.headers.get("mcp-session-id")  # the session is discarded
        if method == "POST" and answer.is_success:
            about = {"mcp-session-id": session} if session else {}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            async with stream_within_origin(client, "POST", address, json=listing, headers=about):
                pass


def _expiry_of(tokens: OAuthToken, expires_at: float | None) -> float | None:
    """Return when tokens expire: as noted, or long ago where a clock that was ahead has noted it.

    Tokens that expire are renewed; with such a time they would be sent until a new login.
    """
    if not expires_at or not tokens.expires_in or not tokens.refresh_token:
        return expires_at
    is_possible = expires_at - time.time() <= tokens.expires_in
    return expires_at if is_possible else 1.0


def _state_of(address: str) -> str:
    return parse_qs(urlsplit(address).query).get("state", [""])[0]
