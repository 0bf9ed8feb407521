"""How full a context is: the provider's count, a guess of the rest, and tiktoken where it is."""

import hashlib
import sys
import types

import pytest

from agent_magics.engine.context import tokens
from agent_magics.engine.context.history import History
from agent_magics.engine.context.tokens import IMAGE_TOKENS, count_item, exact_counter, guess_text
from agent_magics.engine.context.usage import DEFAULT_WINDOW, ContextMeter, limit_of
from agent_magics.engine.instructions import compose_instructions
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    InputImage,
    InputText,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
)
from agent_magics.protocol.records import ContextCounted

SMALL = RunConfig(model="nobodys", context_window=10_000)


def test_four_bytes_are_a_token():
    assert guess_text("") == 0
    assert guess_text("abcde") == 2
    assert guess_text("日本語") == 3  # nine bytes
    assert guess_text("\udcff") == 1  # half a character is survived


ITEMS = {
    UserMessage("x" * 400): 100,
    AssistantMessage("x" * 400): 100,
    Reasoning(("x" * 40,), "y" * 400): 110,
    FunctionCall("c", "look", "x" * 400): 101,
    CustomToolCall("c", "look", "x" * 400): 101,
    LocalShellCall("c", ("x" * 40, "y" * 40)): 20,
    ToolCallOutput("c", (InputText("x" * 400), InputImage("data:", "low"))): 100 + 85,
    UserMessage((InputImage("data:" + "x" * 100_000),)): IMAGE_TOKENS["auto"],
}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_items_are_their_texts_and_images(item):
    assert count_item(item) == tokens.ITEM_TOKENS + ITEMS[item]


def test_the_limit_leaves_room_for_the_answer():
    card = find_model("gpt-5.5")
    limit = limit_of("gpt-5.5")
    assert limit.known and limit.window == card.context_window
    assert limit.tokens < limit.window - min(card.max_output, limit.window // 3)
    assert limit_of("gpt-5.5", 50_000).window == 50_000
    unknown = limit_of("nobodys")
    assert (unknown.window, unknown.known) == (DEFAULT_WINDOW, False)
    assert 0 < limit_of("nobodys", 4_096).tokens < 4_096 * 2 / 3


def told(config):
    """Return the guessed tokens of the instructions."""
    return tokens.guess_text(compose_instructions(config))


def test_the_providers_count_holds_and_only_what_came_since_is_guessed():
    history = History([UserMessage("x" * 4_000)])
    meter = ContextMeter(history)
    assert meter.tokens(SMALL) == told(SMALL) + 1_000 + tokens.ITEM_TOKENS
    history.append(AssistantMessage("Well."))
    meter.measure(Usage(input_tokens=7_000, output_tokens=3))
    assert meter.tokens(SMALL) == 7_003
    history.append(UserMessage("x" * 400))
    assert meter.tokens(SMALL) == 7_003 + 100 + tokens.ITEM_TOKENS
    meter.measure(Usage())  # a server that does not count
    assert meter.tokens(SMALL) == 7_003 + 100 + tokens.ITEM_TOKENS
    meter.reset()
    assert meter.tokens(SMALL) == told(SMALL) + 1_101 + 1 + 3 * tokens.ITEM_TOKENS


def test_full_is_what_reaches_the_limit_and_after_an_attempt_a_good_deal_more():
    history = History()
    meter = ContextMeter(history)
    limit = meter.limit(SMALL).tokens
    history.append(UserMessage("x" * 4 * (limit - told(SMALL) - 6)))
    assert not meter.is_full(SMALL)
    history.append(UserMessage("x"))
    assert meter.is_full(SMALL)
    meter.set(limit + 100, SMALL)  # nothing could be left out
    assert not meter.is_full(SMALL)
    history.append(UserMessage("x" * 4 * (limit // 10 + 1)))
    assert meter.is_full(SMALL)


def test_what_was_left_out_is_not_counted_when_a_turn_is_taken_back():
    """Else the next request would pay for a summary that nobody needs."""
    history = History([UserMessage("x" * 40_000)])
    meter = ContextMeter(history)
    history.shorten([UserMessage("What was said.")], 1)
    meter.set(500, SMALL)
    history.begin_turn("later")
    history.append(UserMessage("x" * 400))
    history.take_back("later")
    meter.reset()
    sent = count_item(history.sent[0])
    assert meter.tokens(SMALL) == told(SMALL) + sent
    meter.count_exactly("nobodys")
    history.append(UserMessage("x" * 400))
    assert meter.tokens(SMALL) == told(SMALL) + sent + 100 + tokens.ITEM_TOKENS


def test_what_was_tried_with_one_model_holds_nothing_off_with_another():
    history = History([UserMessage("x")])
    meter = ContextMeter(history)
    meter.set(20_000, RunConfig(model="gpt-5.5"))
    history.append(UserMessage("x" * 4 * meter.limit(SMALL).tokens))
    assert meter.is_full(SMALL)


def test_beyond_the_window_it_is_full_whatever_was_tried():
    history = History([UserMessage("x")])
    meter = ContextMeter(history)
    meter.set(9_990, SMALL)
    assert not meter.is_full(SMALL)
    history.append(UserMessage("x" * 40))
    assert meter.is_full(SMALL)
    meter.count(ContextCounted(tokens=9_000, hold=1_000_000))  # of a record
    history.append(UserMessage("x" * 4_000))
    assert meter.is_full(SMALL)


def test_the_instructions_are_counted_where_the_provider_does_not():
    meter = ContextMeter(History([UserMessage("")]))
    config = RunConfig(model="nobodys", instructions="x" * 400)
    assert told(config) >= 100
    assert meter.tokens(config) == told(config) + tokens.ITEM_TOKENS


# -- tiktoken ------------------------------------------------------------------------------------


@pytest.fixture
def fresh():
    exact_counter.cache_clear()
    yield
    exact_counter.cache_clear()


@pytest.fixture
def library(monkeypatch, fresh):
    """A stand-in for the library, which this environment may not have; it counts words."""
    fake = types.ModuleType("tiktoken")
    fake.loaded = []

    def name_of(model):
        return {"gpt-4o": "o200k_base", "gpt-oss": "o200k_harmony"}[model]

    def load(name):
        fake.loaded.append(name)
        encode = lambda text, disallowed_special: text.split()  # noqa: E731
        return types.SimpleNamespace(encode=encode)

    fake.encoding_name_for_model, fake.get_encoding = name_of, load
    monkeypatch.setitem(sys.modules, "tiktoken", fake)
    return fake


def put_file(folder, monkeypatch, data=b"ranks"):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    address = tokens._FILES["o200k_base"][0]
    digest = hashlib.sha256(b"ranks").hexdigest()
    monkeypatch.setitem(tokens._FILES, "o200k_base", (address, digest))
    (folder / hashlib.sha1(address.encode()).hexdigest()).write_bytes(data)


def test_without_the_library_it_is_a_guess(monkeypatch, fresh):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert exact_counter("gpt-4o") is None


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-oss"])
def test_with_its_file_at_hand_the_library_counts(library, tmp_path, monkeypatch, model):
    put_file(tmp_path, monkeypatch)
    assert exact_counter(model)("one two three") == 3


def test_it_is_not_asked_for_what_it_would_fetch(library, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert exact_counter("gpt-4o") is None
    exact_counter.cache_clear()
    put_file(tmp_path, monkeypatch, b"damaged")  # it would fetch this one anew
    assert exact_counter("gpt-4o") is None
    exact_counter.cache_clear()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # it would keep nothing
    assert exact_counter("gpt-4o") is None
    assert exact_counter("nobodys") is None
    assert library.loaded == []


def test_near_the_limit_it_is_counted_exactly_and_what_comes_then_too(
    library, tmp_path, monkeypatch
):
    put_file(tmp_path, monkeypatch)
    config = RunConfig(model="gpt-4o", context_window=10_000)
    history = History([UserMessage("one two " * 100)])
    meter = ContextMeter(history)
    assert not meter.wants_count(config)
    history.append(UserMessage("word " * 4_500))
    assert meter.wants_count(config)
    meter.count_exactly("gpt-4o")
    assert meter.tokens(config) == told(config) + 200 + 4_500 + 2 * tokens.ITEM_TOKENS
    assert not meter.wants_count(config)
    history.append(UserMessage("a b c"))
    assert meter.tokens(config) == told(config) + 200 + 4_503 + 3 * tokens.ITEM_TOKENS
