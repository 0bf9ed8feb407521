"""Keys that a login keeps: where they stand, who may read them, and to whom each is sent."""

import asyncio
import importlib
import json
import os
import stat
import sys

import pytest
from keyrings.alt import file as plain

from agent_magics.files.locks import is_held
from agent_magics.models.access import PLACEHOLDER_KEY
from agent_magics.models.base import ModelRequest, TextChunk
from agent_magics.models.provider import open_model
from agent_magics.models.providers import credentials
from agent_magics.models.providers.credentials import (
    drop_key,
    held_keys,
    keep_key,
    kept_places,
    knows_about,
    stored_key,
)
from agent_magics.models.providers.endpoints import HOSTS, forget_wires
from agent_magics.models.providers.keys import key_of, place_of, shared_key_of
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import UserMessage
from tests.support.models.responses_server import Reply
from tests.support.models.server import ModelServer

KEY = "sk-canary-0123456789abcdef"
HOST = "models.example.org"
ADDRESS = f"https://{HOST}/v1"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A person's folder without any key, in an environment without any."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keys = {name for _, endpoint in HOSTS for name in endpoint.key_names}
    for name in (*keys, "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    credentials._cache.clear()
    forget_wires()
    yield tmp_path
    credentials._cache.clear()


@pytest.fixture
def no_keyring(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.fixture
def file(home):
    return home / "config" / "agent-magics" / "credentials.json"


@pytest.fixture
def keyring(monkeypatch, home):
    """The real package, with its own back end that keeps passwords in a plain file."""
    keyring = importlib.import_module("keyring")
    backend = plain.PlaintextKeyring()
    monkeypatch.setattr(plain.PlaintextKeyring, "file_path", str(home / "keyring.cfg"))
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    yield keyring
    keyring.set_keyring(before)


def ask(**options):
    async def run():
        client = open_model("chat", retries=RetryPolicy(tries=1), **options)
        history = SeenHistory((UserMessage("hi"),))
        request = ModelRequest("m", "", history, (), "hi", 1)
        try:
            return [event async for event in client.stream(request)]
        finally:
            await client.close()

    return asyncio.run(run())


def keys_sent(server):
    return [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]


# -- in the file ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_keyring")
def test_without_a_keyring_it_stands_in_a_file_of_ones_own(file):
    said = keep_key(HOST, KEY)
    assert str(file) in said and "not installed" in said and KEY not in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = stored_key(ADDRESS)
    assert (found.value, found.where) == (KEY, f"the file {file}")
    assert KEY not in repr(found)
    assert held_keys() == (KEY,) and kept_places() == (HOST,)
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.usefixtures("no_keyring")
def test_others_stay_when_one_comes_or_goes():
    keep_key(HOST, KEY)
    keep_key("localhost:4000", "other")
    keep_key(HOST, "newer")
    assert stored_key(ADDRESS).value == "newer"
    assert drop_key(HOST) and not drop_key(HOST)
    assert stored_key(ADDRESS) is None
    assert stored_key("http://localhost:4000/v1").value == "other"


@pytest.mark.usefixtures("no_keyring")
def test_what_a_killed_kernel_was_writing_is_removed_with_the_next_change(file):
    keep_key("one.example", "sk-1")
    left = file.with_name(f".{file.name}-a1b2c3d4")
    left.write_text("sk-1", encoding="utf-8")
    keep_key("two.example", "sk-2")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.usefixtures("no_keyring")
def test_what_another_process_has_changed_is_seen(file):
    assert stored_key(ADDRESS) is None and knows_about(ADDRESS)
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_text(json.dumps({"version": 1, "hosts": {HOST: {"key": KEY}}}))
    assert not knows_about(ADDRESS)
    assert stored_key(ADDRESS).value == KEY


@pytest.mark.usefixtures("no_keyring")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(file, mode):
    keep_key(HOST, KEY)
    file.chmod(mode)
    for act in (lambda: stored_key(ADDRESS), lambda: keep_key(HOST, "x"), lambda: drop_key(HOST)):
        credentials._cache.clear()
        with pytest.raises(FatalError, match="chmod 600"):
            act()


@pytest.mark.usefixtures("no_keyring")
def test_a_link_is_neither_read_nor_written_through(file, home):
    keep_key(HOST, KEY)
    elsewhere = home / "elsewhere.json"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    for act in (lambda: stored_key(ADDRESS), lambda: keep_key(HOST, "x")):
        with pytest.raises(FatalError, match="link"):
            act()
    assert elsewhere.read_bytes() == before


@pytest.mark.usefixtures("no_keyring")
def test_a_pipe_or_a_folder_in_its_place_is_told_and_not_waited_for(file):
    file.parent.mkdir(parents=True)
    os.mkfifo(file, 0o600)
    with pytest.raises(FatalError, match="no regular file"):
        stored_key(ADDRESS)
    file.unlink()
    file.mkdir(0o700)
    with pytest.raises(FatalError, match=r"credentials\.json"):
        stored_key(ADDRESS)


@pytest.mark.usefixtures("no_keyring")
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"hosts": []}', '{"hosts": {"a": "b"}}'])
def test_a_file_that_is_broken_is_told_and_kept(file, text):
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_text(text)
    for act in (lambda: stored_key(ADDRESS), lambda: keep_key(HOST, KEY)):
        with pytest.raises(FatalError, match="mend or remove"):
            act()
    assert file.read_text() == text


@pytest.mark.usefixtures("no_keyring")
def test_a_folder_that_cannot_be_made_is_told(file):
    file.parent.parent.write_text("in the way")
    with pytest.raises(FatalError, match=r"credentials\.json"):
        keep_key(HOST, KEY)


# -- in the keyring ------------------------------------------------------------------------------


def test_with_a_keyring_it_stands_there_and_not_in_the_file(keyring, file):
    said = keep_key(HOST, KEY)
    assert said.startswith("the keyring (") and str(file) not in said
    assert keyring.get_password("agent-magics", HOST) == KEY
    assert KEY not in file.read_text()
    assert stored_key(ADDRESS).value == KEY
    assert "keyring" in stored_key(ADDRESS).where
    assert drop_key(HOST)
    assert keyring.get_password("agent-magics", HOST) is None
    assert stored_key(ADDRESS) is None


def test_one_kernel_at_a_time_changes_the_keyring(keyring, file):
    held = []

    class Watched(plain.PlaintextKeyring):
        def set_password(self, *names):
            held.append(is_held(file.parent))
            super().set_password(*names)

        def delete_password(self, *names):
            held.append(is_held(file.parent))
            super().delete_password(*names)

    keyring.set_keyring(Watched())
    keep_key(HOST, KEY)
    assert drop_key(HOST) and not drop_key(HOST)
    assert held == [True, True]


def test_a_key_that_was_put_into_the_keyring_by_hand_is_found(keyring):
    keyring.set_password("agent-magics", HOST, KEY)
    assert stored_key(ADDRESS).value == KEY
    assert drop_key(HOST)


def test_a_login_without_a_keyring_is_found_with_one(keyring, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "keyring", None)
        keep_key(HOST, KEY)
    assert stored_key(ADDRESS).where.startswith("the file")


def test_a_keyring_that_has_lost_the_key_is_told(keyring):
    keep_key(HOST, KEY)
    keyring.delete_password("agent-magics", HOST)
    with pytest.raises(FatalError, match=f"%agent login {HOST}"):
        stored_key(ADDRESS)


@pytest.mark.parametrize("kind", ["fail", "null"])
def test_back_ends_that_keep_nothing_leave_it_to_the_file(keyring, file, kind):
    backend = importlib.import_module(f"keyring.backends.{kind}").Keyring()
    keyring.set_keyring(backend)
    assert str(file) in keep_key(HOST, KEY)
    assert stored_key(ADDRESS).value == KEY


def test_a_back_end_that_breaks_leaves_it_to_the_file(keyring, file, home):
    (home / "keyring.cfg").mkdir()  # where its own file would stand
    said = keep_key(HOST, KEY)
    assert str(file) in said and KEY not in said
    assert stored_key(ADDRESS).value == KEY


# -- to whom it is sent --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("https://API.OpenAI.com/v1", "api.openai.com"),
        ("https://api.openai.com:443/v1", "api.openai.com"),
        ("api.openai.com", "api.openai.com"),
        ("http://api.openai.com/v1", "api.openai.com:80"),
        ("http://localhost:4000", "localhost:4000"),
        ("localhost:4000", "localhost:4000"),
        ("https://x.openai.azure.com/openai/v1?api-version=preview", "x.openai.azure.com"),
    ],
)
def test_for_whom_a_key_is(address, place):
    assert place_of(address) == place


@pytest.mark.parametrize(
    ("base_url", "address", "sent"),
    [
        ("", "https://api.openai.com/v1", True),
        ("", "http://api.openai.com/v1", False),
        ("", "https://openrouter.ai/api/v1", False),
        ("", "https://x.openai.azure.com/openai/v1", False),
        ("", "http://localhost:4000/v1", False),
        ("", "https://api.openai.com.example.org/v1", False),
        ("http://localhost:4000/v1", "http://localhost:4000/v1", True),
        ("http://localhost:4000/v1", "http://localhost:4001/v1", False),
        ("http://localhost:4000/v1", "https://api.openai.com/v1", False),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1", True),
    ],
)
def test_the_general_key_goes_to_openai_or_to_the_server_that_is_named(
    monkeypatch, base_url, address, sent
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    if base_url:
        monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    assert key_of(address) == (KEY if sent else "")


@pytest.mark.parametrize(
    ("base_url", "address", "sent"),
    [
        ("", "http://localhost:4000/v1", True),
        ("", "https://proxy.example.org/v1", True),
        ("", "http://api.openai.com/v1", False),  # not in plain words
        ("", "https://openrouter.ai/api/v1", False),
        ("", "https://x.openai.azure.com/openai/v1", False),
        ("http://localhost:4000/v1", "http://localhost:4001/v1", False),
    ],
)
def test_servers_that_nobody_knows_share_the_general_key(monkeypatch, base_url, address, sent):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    assert shared_key_of(address) == (KEY if sent else "")


def test_a_providers_own_key_goes_to_no_address_that_only_looks_like_it(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    assert key_of("https://x.openai.azure.com/openai/deployments/d") == KEY
    assert key_of("https://example.org/openai/deployments/d") == ""
    assert key_of("https://evilopenai.azure.com.example.org/openai/v1") == ""


@pytest.mark.usefixtures("no_keyring")
def test_a_kept_key_is_sent_to_its_host_alone(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    with ModelServer(chat=["one"]) as mine, ModelServer(chat=["two"]) as other:
        keep_key(place_of(mine.base_url), KEY)
        ask(base_url=mine.base_url)
        ask(base_url=other.base_url)
        ask(base_url=other.base_url, api_key="given")
        assert keys_sent(mine) == [KEY]
        assert keys_sent(other) == ["sk-of-openai", "given"]
        monkeypatch.delenv("OPENAI_API_KEY")
        ask(base_url=other.base_url)
        assert keys_sent(other)[-1] == PLACEHOLDER_KEY


@pytest.mark.usefixtures("no_keyring")
def test_the_environment_goes_first_and_the_argument_before_it(monkeypatch):
    with ModelServer(chat=["one"]) as server:
        keep_key(place_of(server.base_url), KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
        ask()
        ask(api_key="given")
        monkeypatch.delenv("OPENAI_API_KEY")
        ask()
        assert keys_sent(server) == ["of-the-environment", "given", KEY]


@pytest.mark.usefixtures("no_keyring")
@pytest.mark.parametrize("path", ["", "/openai/deployments/d"])
def test_a_redirect_to_another_host_is_told_and_not_followed(path):
    with ModelServer(chat=["stolen"]) as other:
        leave = Reply(status=307, document=b"", headers=[("Location", other.base_url)])
        with ModelServer(chat=[leave]) as server:
            keep_key(place_of(server.base_url), KEY)
            with pytest.raises(FatalError, match=f"to {other.base_url}"):
                ask(base_url=server.base_url + path)
        assert not other.requests


@pytest.mark.usefixtures("no_keyring")
def test_a_key_that_was_refused_is_looked_up_anew():
    refused = Reply(status=401, error=f"Incorrect API key provided: {KEY}")
    with ModelServer(chat=[refused, "At last."]) as server:
        place = place_of(server.base_url)
        keep_key(place, KEY)
        with pytest.raises(FatalError, match=f"%agent login {place}") as caught:
            ask(base_url=server.base_url)
        assert KEY not in str(caught.value)
        keep_key(place, "sk-valid")
        events = ask(base_url=server.base_url)
        assert keys_sent(server) == [KEY, "sk-valid"]
    assert "".join(event.text for event in events if isinstance(event, TextChunk)) == "At last."


@pytest.mark.usefixtures("no_keyring")
def test_no_key_names_the_ways_for_that_host():
    for address, words in {
        ADDRESS: (f"%agent login {HOST}", "OPENAI_BASE_URL"),
        "https://openrouter.ai/api/v1": ("OPENROUTER_API_KEY", "%agent login openrouter.ai"),
        "https://api.openai.com/v1": ("OPENAI_API_KEY", "%agent login", "replay"),
    }.items():
        with pytest.raises(FatalError) as caught:
            ask(base_url=address)
        assert all(word in str(caught.value) for word in words)
