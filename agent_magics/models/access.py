"""Finds the address of a server and the key for it, and keeps the key out of errors."""

import asyncio
from base64 import b64encode
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from agent_magics.models.error_redaction import keys_in_address, without_keys
from agent_magics.models.providers import credentials
from agent_magics.models.providers.endpoints import endpoint_of, server_address
from agent_magics.models.providers.keys import (
    given_keys,
    is_local,
    key_of,
    shared_key_of,
    way_to_mend,
    ways_to_give,
)
from agent_magics.protocol.errors import FatalError

UNSENDABLE = "has a line break or a letter beyond ASCII within it, as no key has"
PLACEHOLDER_KEY = "local-server-needs-no-key"

FaultT = TypeVar("FaultT", bound=FatalError)


class ServerAccess:
    """The address of a server and the key for it.

    Args:
        api_key: the key; None takes the key that the environment, a login or the keyring has for
            the server's host, at the time of the request.
        base_url: the address up to ``/v1``; None takes OPENAI_BASE_URL, else OpenAI's own.
    """

    def __init__(self, api_key: str | None, base_url: str | None) -> None:
        self._api_key = (api_key or "").strip()
        if self._api_key:
            given_keys.add(self._api_key)
        self._base_url = base_url

    @property
    def address(self) -> str:
        """The server's complete address, with its query."""
        return server_address(self._base_url)

    async def key(self) -> str:
        """Return the key for the server; a stored key is read in a thread, since the keyring may
        wait.

        Raises:
            FatalError: there is none, it cannot be read, or no header can hold it.
        """
        key, address = await self._found_key(), self.address
        if not (key.isascii() and key.isprintable()):
            fault = f"The API key for {address} {UNSENDABLE}: {way_to_mend(address)}."
            raise self.without_key(FatalError(fault))
        return key

    async def _found_key(self) -> str:
        address = self.address
        key = self._api_key or key_of(address)
        if key:
            return key
        if credentials.knows_about(address):
            found = credentials.stored_key(address)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(None, credentials.stored_key, address)
        if found is not None:
            return found.value
        if key := shared_key_of(address):
            return key
        if is_local(address) or login_within(address):
            return PLACEHOLDER_KEY
        credentials.forget_key(address)
        missing = f"No API key for {address}: {ways_to_give(address)}."
        raise FatalError(without_keys(missing, keys_in_address(address)))

    def key_headers(self, key: str) -> dict[str, str]:
        """Return the headers that carry `key`, or the login that stands within the address."""
        login = login_within(self.address)
        headers = {"Authorization": f"Basic {login}" if login else f"Bearer {key}"}
        if header := endpoint_of(self.address).key_header:
            headers[header] = key
        return headers

    def secrets(self) -> tuple[str, ...]:
        """Return the keys in use, which must not be written anywhere."""
        address = self.address
        key = self._api_key or key_of(address) or shared_key_of(address)
        return tuple(filter(None, (key, *credentials.held_keys(), *keys_in_address(address))))

    def without_key(self, fault: FaultT) -> FaultT:
        """Remove keys from an error's message; providers quote a wrong one."""
        secrets = self.secrets()
        fault.args = tuple(
            without_keys(part, secrets) if isinstance(part, str) else part for part in fault.args
        )
        return fault


def login_within(address: str) -> str:
    """Return the name and password that stand in an address, as a header holds them, or ""."""
    parts = urlsplit(address)
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "" if login == ":" else b64encode(login.encode()).decode()
