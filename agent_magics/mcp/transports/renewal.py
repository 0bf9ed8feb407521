"""Sends the tokens of a login with requests and renews them; begins no login."""

import re
from collections.abc import AsyncGenerator

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

_FORBIDDEN = 403
# Words of a scope: RFC 6749, section 3.3; a longer text is no list that a person could grant.
_SCOPE = re.compile(r"(?=.{1,1000}\Z)[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")


class RenewingAuth(OAuthClientProvider):
    """Sends the stored tokens, and renews them when they are over.

    An answer of 401 or 403 is the caller's: only the person can log in.
    """

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests to send for `request`, which is one of them; see `httpx2.Auth`."""
        async with self.context.lock:
            if not self._initialized:
                await self._initialize()
            self.context.protocol_version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
            if not self.context.is_token_valid() and self.context.can_refresh_token():
                await self._handle_refresh_response((yield await self._refresh_token()))
        self._add_auth_header(request)
        yield request


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
