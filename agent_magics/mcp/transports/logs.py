"""Removes keys from what the HTTP clients of MCP servers log."""

import logging
import os
import re

from agent_magics.models.error_redaction import NO_KEY, keys_in_address, without_keys
from agent_magics.models.providers.credentials import held_keys
from agent_magics.models.providers.keys import environment_keys, given_keys
from agent_magics.text.secrets import KEY_SHAPES

# Those that write addresses of requests.
_LOGGERS = ("httpx2", "mcp.client.sse")
_ADDRESS = re.compile(r"(?<!\w)\w++://\S+")
_KEY = re.compile(KEY_SHAPES)


def keep_keys_out() -> None:
    """Filter the logs of these clients by `hide_keys`; a second time changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(hide_keys)


def hide_keys(record: logging.LogRecord) -> bool:
    """Remove keys from a log record, whatever its arguments are (a filter): those in addresses, and
    those that a server repeats in its headers.
    """
    try:
        known = (*given_keys, *environment_keys(os.environ), *held_keys())
        text = _KEY.sub(NO_KEY, without_keys(record.getMessage(), known))
        record.msg = _ADDRESS.sub(_without_keys, text)
    except Exception:  # logging would print the arguments
        record.msg = "A log record could not be formatted."
    record.args = ()
    return True


def _without_keys(address: re.Match[str]) -> str:
    try:
        return without_keys(address[0], keys_in_address(address[0]))
    except ValueError:  # no address, but perhaps with a key
        return "[address]"
