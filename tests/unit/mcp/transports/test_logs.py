"""No key of a server, of the person or of a provider stands in what HTTP clients log."""

import json
import logging

import httpx2
import pytest

from agent_magics.mcp.transports.logs import keep_keys_out
from agent_magics.models.access import ServerAccess

ADDRESSES = [
    "https://user:{}@host/v1",
    "https://host/v1?api_key={}",
    "https://host/v1?a=1&token={}#x",
]


RECORDS = {
    "one by one": lambda url: ('HTTP Request: %s %s "%d"', "POST", url, 200),
    "by name": lambda url: ("%(method)s %(url)s", {"method": "POST", "url": url}),
    "in a dict": lambda url: ("Options: %s", {"url": str(url)}),
    "in a list": lambda url: ("Options: %s %s", [str(url)], 1),
    "in the text": lambda url: (f"Sent to '{url}'",),
    "as JSON": lambda url: ("%s", json.dumps({"url": str(url), "n": 1}, separators=(",", ":"))),
}


@pytest.mark.parametrize("key", ["hunter2hunter2", "hunter2%2Fhunter2", "hunter2+hunter2"])
@pytest.mark.parametrize("put", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_no_key_of_an_address_is_logged(address, put, key, caplog):
    keep_keys_out()
    url = httpx2.URL(address.format(key))
    for name in ("httpx2", "mcp.client.sse"):
        with caplog.at_level(logging.DEBUG, name):
            logging.getLogger(name).info(*put(url))
    assert "hunter2" not in caplog.text
    assert caplog.text.count("host/v1") + caplog.text.count(":[API key]") >= 2


@pytest.mark.parametrize(
    ("text", "logged"),
    [
        ("%d %s", "A log record could not be formatted."),  # its arguments do not fit
        ("at http://[::1?api_key=%s", "at [address]"),  # no address
    ],
)
def test_a_log_record_that_cannot_be_read_shows_no_key(text, logged, caplog):
    keep_keys_out()
    with caplog.at_level(logging.DEBUG, "httpx2"):
        logging.getLogger("httpx2").info(text, "hunter2hunter2")
    assert caplog.messages == [logged]


@pytest.mark.parametrize("shown", ["{}", "Bearer {}", "{{'x-request-id': '{}'}}"])
def test_no_key_that_a_server_repeats_is_logged(shown, caplog, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "found-hunter2hunter2")
    ServerAccess("given-hunter2hunter2", None)
    keep_keys_out()
    unknown = "sk-proj-hunter2hunter2hunter2"  # such as the beginning of a longer one
    for key in ("found-hunter2hunter2", "given-hunter2hunter2", unknown):
        with caplog.at_level(logging.DEBUG, "mcp.client.sse"):
            logger = logging.getLogger("mcp.client.sse")
            logger.debug("request_id: %s", shown.format(key))
    assert len(caplog.messages) == 3
    assert "hunter2" not in caplog.text
