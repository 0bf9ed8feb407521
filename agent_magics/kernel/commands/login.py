"""``%agent login`` and ``logout``: stores and removes keys, typed where input is not recorded."""

import getpass
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.ways import stdin_allowed
from agent_magics.models.access import login_within
from agent_magics.models.providers.credentials import drop_key, keep_key, kept_places, stored_key
from agent_magics.models.providers.endpoints import LOOPBACK, PROVIDERS, server_address
from agent_magics.models.providers.keys import (
    is_local,
    key_name_in_use,
    key_names_of,
    place_of,
    shared_key_of,
)
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.render.markdown import code_span
from agent_magics.text.brief import meant
from agent_magics.text.secrets import KEY_LIKE

_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{,61}[a-z0-9_])?\.)+[a-z0-9-]{,63}", re.IGNORECASE)
# What keys look like, too: one long word in which no part is a host's name.
_LONG_WORD = re.compile(r"[A-Za-z0-9_\-+/=]{24,}")
_NOT_HERE = (
    "Nobody can type a key here, since this front end takes no input: run %agent login in a "
    "notebook or a console, or set {variable} before the kernel starts."
)


def _log_in(notebook: NotebookAgents, *host: str) -> str:
    """Store a key for a provider or host (else the agent's own); what you type is hidden.

    Raises:
        FatalError: no such host, no input possible, nothing usable typed, or the key cannot be
            stored.
    """
    address = _address(notebook.settings_now(), host)
    place = place_of(address)
    if not stdin_allowed(notebook.shell):
        names = key_names_of(address) or ("OPENAI_API_KEY and OPENAI_BASE_URL",)
        raise FatalError(_NOT_HERE.format(variable=names[0]))
    key = _typed(place)
    where = keep_key(place, key)
    sentence = f"The key for {code_span(place)} is kept in {where}, and is only sent to that host."
    name = key_name_in_use(address)
    if name:
        sentence += f" As long as the variable {name} is set, its key is used instead."
    return sentence


def _log_out(notebook: NotebookAgents, *host: str) -> str:
    """Delete the stored key of a provider or host.

    Raises:
        FatalError: there is none, or it cannot be removed.
    """
    address = _address(notebook.settings_now(), host)
    place = place_of(address)
    if not drop_key(place):
        kept = ", ".join(kept_places()) or "nobody"
        raise FatalError(f"No key for {place} is kept; logged in to: {kept}.")
    sentence = f"The key for {code_span(place)} is forgotten."
    name = key_name_in_use(address)
    return sentence + (f" The variable {name} still holds one." if name else "")


def describe_key(settings: Settings) -> str:
    """Describe the source of the key for the agent's server, without the key itself."""
    address = server_address(settings.base_url)
    name, place = key_name_in_use(address), place_of(address)
    if login_within(address):
        return f"for {place}: the login within its address"
    if name:
        return f"for {place}: the variable {name} is set"
    try:
        found = stored_key(address)
    except FatalError as error:
        return short_message(error)
    if found is not None:
        return f"for {place}: {found.where}"
    if shared_key_of(address):
        return f"for {place}: the variable OPENAI_API_KEY is set"
    if is_local(address):
        return f"for {place}: none; a server on this machine mostly needs none"
    ways = [f"set {name}" for name in key_names_of(address)]
    ways += [
        f"run %agent login {place}",
        "set OPENAI_BASE_URL, or play a recording (--replay FILE)",
    ]
    return f"for {place}: none; {', '.join(ways)}"


def _address(settings: Settings, arguments: Sequence[str]) -> str:
    """Return the address that the arguments name; refuse, unrepeated, what looks like a key.

    Raises:
        FatalError: they name none.
    """
    if not arguments:
        return server_address(settings.base_url)
    word = arguments[0].strip("\"'")
    if word.lower() in PROVIDERS and len(arguments) == 1:
        return f"https://{PROVIDERS[word.lower()]}"
    address = word if "://" in word else f"https://{word}"
    if len(arguments) > 1 or KEY_LIKE.fullmatch(word) or _LONG_WORD.fullmatch(word) or "@" in word:
        raise FatalError(
            "%agent login takes one host or provider, and the key is typed at the prompt that "
            "follows. If a key stands on this line, it is in the notebook and in its history now: "
            "take it out, and get a new one."
        )
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    named = host in LOOPBACK or port is not None or _HOST.fullmatch(host)
    if not (host and named and parts.scheme in ("http", "https")):
        raise FatalError(
            f"That is no provider that %agent login knows; {meant(word, PROVIDERS)} It also takes "
            "a host (example.org, localhost:4000) or an address."
        )
    return address


def _typed(place: str) -> str:
    """Read a key at a prompt that does not show it.

    Raises:
        FatalError: nothing was typed, or nothing that can be a key.
    """
    # A kernel puts its own in the place of getpass's; that one asks the front end.
    key = getpass.getpass(f"API key for {place} (not shown, not kept in the notebook): ").strip()
    if not key:
        raise FatalError(f"Nothing was typed; the key for {place} is as it was.")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise FatalError(
            f"What was typed is no key (it holds spaces or other letters than keys have); the key "
            f"for {place} is as it was."
        )
    return key


LOGIN = Command("login", {"": _log_in, "HOST ...": _log_in}, is_verbatim=True)
LOGOUT = Command("logout", {"": _log_out, "HOST ...": _log_out}, is_verbatim=True)
