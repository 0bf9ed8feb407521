"""Sends the tokens of a login with requests and renews them; begins no login."""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, cast

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from agent_magics.config_files.places import state_folder
from agent_magics.files.locks import LONGEST_WAIT, hold, release
from agent_magics.files.plain_files import open_plain

_UNAUTHORIZED, _FORBIDDEN = 401, 403
_TIMEOUT = httpx2.Timeout(30.0)  # of a renewal, during which other kernels wait
_BETWEEN_TRIES = 0.02  # seconds
# Words of a scope: RFC 6749, section 3.3; a longer text is no list that a person could grant.
_SCOPE = re.compile(r"(?=.{1,1000}\Z)[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")


class SharedTokens(Protocol):
    """Stored tokens that other kernels may renew, too."""

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Read them anew, and keep other kernels from renewing them meanwhile."""


class RenewingAuth(OAuthClientProvider):
    """Sends the stored tokens, and renews them when they are over, or refused.

    They are read anew first, since another kernel may have renewed them: some servers take a second
    use of a refresh token for theft (OAuth 2.1, section 4.3.1). An answer of 401 or 403 is the
    caller's: only the person can log in.
    """

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests to send for `request`, which is one of them; see `httpx2.Auth`."""
        shared, refused = cast("SharedTokens", self.context.storage), ""
        self.context.protocol_version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
        if request.method == "DELETE":  # it ends a session, for which none is renewed
            self._add_auth_header(request)
            yield request
            return
        for _ in range(2):
            async with self.context.lock:
                if not self._initialized:
                    await self._initialize()
                if self._must_renew(refused):
                    async with shared.alone():
                        await self._initialize()
                        if self._must_renew(refused):
                            renewal = await self._refresh_token()
                            renewal.extensions["timeout"] = _TIMEOUT.as_dict()
                            await self._handle_refresh_response((yield renewal))
            self._add_auth_header(request)
            refused = self._token
            response = yield request  # again also where the renewal failed: the last one counts
            if response.status_code != _UNAUTHORIZED or not self.context.can_refresh_token():
                return

    @property
    def _token(self) -> str:
        tokens = self.context.current_tokens
        return "" if tokens is None else tokens.access_token

    def _must_renew(self, refused: str) -> bool:
        """Tell whether the token is over, or is the refused one, and can be renewed."""
        is_fit = self.context.is_token_valid() and self._token != refused
        return not is_fit and self.context.can_refresh_token()


@asynccontextmanager
async def alone_with(name: str) -> AsyncIterator[None]:
    """Keep other kernels of the person out of what they do alone with `name`, too.

    Waits without blocking the loop, `LONGEST_WAIT` at most: then the other one hangs. Where there
    can be no lock, as on a full disk, it goes on without.
    """
    descriptor = _opened(name)
    try:
        deadline = time.monotonic() + LONGEST_WAIT
        while descriptor is not None and not hold(descriptor, 0):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_BETWEEN_TRIES)
        yield
    finally:
        if descriptor is not None:
            release(descriptor)


def _opened(name: str) -> int | None:
    """Open the file that is locked for `name`; None where there can be none."""
    digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    file = state_folder() / "logins" / f"{digest}.lock"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open_plain(file, os.O_RDWR | os.O_CREAT, mode=0o600)
    except OSError:
        return None


def lacking_scope(response: httpx2.Response) -> str:
    """Return the scope that a refused request lacked, as the server names it; "" where none.

    Source: RFC 6750, section 3.1.
    """
    if response.status_code != _FORBIDDEN:
        return ""
    if extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return ""
    scope = extract_scope_from_www_auth(response) or ""
    return scope if _SCOPE.fullmatch(scope) else ""
