"""Every fault over real HTTP, on both wires: what is tried again, and what the person reads."""

import asyncio
import json
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from urllib.parse import unquote

import pytest

from agent_magics.models.base import (
    ContextOverflow,
    ItemDone,
    ModelRequest,
    Notice,
    ResponseDone,
    RetryWait,
    TextChunk,
)
from agent_magics.models.faults import Fault, UnsupportedWire, brief, retry_after, stated_fault
from agent_magics.models.provider import open_model
from agent_magics.models.providers.endpoints import forget_wires
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import CAME_OUT_DIFFERENTLY, RetryPolicy, Shown
from agent_magics.models.wires.sse import encode_event
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import AssistantMessage, FunctionCall, UserMessage
from tests.support.models import server as model_server
from tests.support.models.responses_server import Reply, ResponsesServer, function_call, message
from tests.support.models.server import DONE, ModelServer, chunk, tool_call

KEY = "sk-test-0123456789abcdef"
WIRES = ("responses", "chat")
CERTIFICATE = Path(model_server.__file__).with_name("self_signed.pem")


@pytest.fixture(autouse=True)
def _no_provider_settings(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    forget_wires()


@pytest.fixture(params=WIRES)
def wire(request):
    return request.param


def serve(wire, replies, **options):
    return ModelServer(**{wire: replies}, **options)


def ask(wire, server, *, model="m", tries=6, on_event=lambda event: None, **options):
    """Make one request; return its events and the waits, which nobody sits through."""
    events, waits = [], []

    async def wait(seconds):
        waits.append(seconds)

    async def run():
        policy = RetryPolicy(tries=tries, wait=wait, chance=lambda: 0.0)
        address = options.pop("base_url", None) or server.base_url
        client = open_model(wire, base_url=address, retries=policy, **options)
        history = SeenHistory((UserMessage("hi"),))
        request = ModelRequest(model, "Be brief.", history, (), "hi", 1)
        try:
            async for event in client.stream(request):
                on_event(event)
                events.append(event)
        finally:
            await client.close()

    asyncio.run(run())
    return events, waits


def failure(wire, server, **options):
    with pytest.raises(FatalError) as caught:
        ask(wire, server, **options)
    return caught.value


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def items_of(events):
    return [event.item for event in events if isinstance(event, ItemDone)]


# -- faults that pass ----------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["hunt3r", "hunter2hunter2", "p%40ss%2Fword1"])
def test_what_is_said_of_a_wait_has_neither_a_key_nor_a_login(wire, secret):
    said = {"message": f"busy with {KEY} of {secret}", "code": "server_error"}
    broken = Reply(events=[b"data: " + json.dumps({"error": said}).encode() + b"\n\n"])
    with serve(wire, [Reply(status=503, error="busy"), broken, "At last."]) as server:
        address = server.base_url.replace("//", f"//me:{secret}@") + f"?api-key={secret}"
        events, _ = ask(wire, server, base_url=address, api_key=KEY)
    reasons = [event.reason for event in events if isinstance(event, RetryWait)]
    assert len(reasons) == 2 and server.base_url.rpartition("/")[0].partition("//")[2] in reasons[0]
    assert not [key for key in (KEY, secret, unquote(secret)) if key in " ".join(reasons)]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_statuses_that_pass_are_tried_again(wire, status):
    busy = Reply(status=status, error="busy")
    with serve(wire, [busy, busy, "At last."]) as server:
        events, waits = ask(wire, server)
    assert text_of(events) == "At last."
    retries = [event for event in events if isinstance(event, RetryWait)]
    assert [(retry.attempt, retry.delay) for retry in retries] == [(1, 0.5), (2, 1.0)]
    assert str(status) in retries[0].reason
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([("retry-after", "7")], 7.0),
        ([("retry-after-ms", "1500"), ("retry-after", "9")], 1.5),
        ([("Retry-After", "in 40 seconds, as a date")], pytest.approx(25.0, abs=15.0)),
    ],
)
def test_the_wait_is_the_one_the_server_asks_for(wire, headers, seconds):
    if headers[0][1].endswith("date"):
        headers = [("Retry-After", formatdate(time.time() + 40, usegmt=True))]
    busy = Reply(status=429, error="busy", headers=headers)
    with serve(wire, [busy, "At last."]) as server:
        events, (waited,) = ask(wire, server)
    assert text_of(events) == "At last."
    assert waited == seconds


def test_a_wait_of_an_hour_is_told_instead(wire):
    busy = Reply(status=429, error="Spent for now.", headers=[("retry-after", "3600")])
    with serve(wire, [busy]) as server:
        said = str(failure(wire, server))
        assert len(server.requests) == 1
    assert "Spent for now." in said and "about 60 minutes" in said


def test_a_servers_words_do_nothing_in_a_terminal():
    words = "no\x1b]8;;http://x\x07 click\x1b]8;;\x07 \u202egnp\n\x9b2J"
    assert brief(words) == "no ]8;;http://x click ]8;; gnp 2J"


@pytest.mark.parametrize("words", ["busy", "busy."])
def test_tries_end(wire, words):
    with serve(wire, [Reply(status=503, error=words)]) as server:
        said = str(failure(wire, server, tries=4))
        assert len(server.requests) == 4
    assert "503" in said and said.endswith(": busy. It was asked 4 times.")


def test_an_empty_account_is_not_waited_for(wire):
    error = {"message": "You exceeded your quota.", "code": "insufficient_quota"}
    reply = Reply(status=429, document=json.dumps({"error": error}).encode())
    with serve(wire, [reply]) as server:
        said = str(failure(wire, server))
        assert len(server.requests) == 1
    assert "quota" in said and "tries" not in said and "times" not in said


def test_a_server_that_knows_better_is_believed(wire):
    never = Reply(status=500, error="broken", headers=[("x-should-retry", "false")])
    with serve(wire, [never]) as server:
        failure(wire, server)
        assert len(server.requests) == 1


def test_a_connection_dropped_before_the_answer(wire):
    with serve(wire, [Reply(drop=True), "At last."]) as server:
        events, waits = ask(wire, server)
    assert text_of(events) == "At last." and waits == [0.5]


def test_nobody_listens(wire):
    with serve(wire, []) as server:
        address = server.base_url
    said = str(failure(wire, None, base_url=address))
    assert f"Cannot connect to {address}" in said
    assert f"{address}: no server listens there; start it, or change base_url" in said


@pytest.mark.parametrize(
    "answer",
    [
        *(b"no HTTP", b"HTTP/1.1 abc OK", b"HTTP/1.1 200 OK\r\nContent-Length: -5"),
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000,
    ],
)
def test_what_is_no_http_is_told_in_a_sentence(answer):
    async def run():
        async def serve_once(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer + b"\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve_once, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = f"http://127.0.0.1:{port}/v1?key={KEY}"
        model = open_model("chat", base_url=address, api_key=KEY, retries=RetryPolicy(tries=1))
        request = ModelRequest("m", "", SeenHistory((UserMessage("hi"),)), (), "hi", 1)
        try:
            return [event async for event in model.stream(request)]
        finally:
            await model.close()
            server.close()

    said = r"What http://127\.0\.0\.1:.+ answers cannot be read as HTTP"
    with pytest.raises(Fault, match=said) as caught:
        asyncio.run(run())
    assert KEY not in str(caught.value) and len(str(caught.value)) < 1000


QUIET = """
import asyncio, gc, sys
from agent_magics.engine.thread import shared_engine
from agent_magics.models.base import ModelRequest
from agent_magics.models.provider import open_model
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.protocol.items import UserMessage

async def ask(model):
    request = ModelRequest("m", "", SeenHistory((UserMessage("hi"),)), (), "hi", 1)
    return [event async for event in model.stream(request)]

models = [open_model("chat", base_url=sys.argv[1], api_key="k") for _ in range(2)]
for model in models:
    shared_engine().spawn(ask(model)).result()
del model, models[0]
gc.collect()
"""


@pytest.mark.soak
def test_connections_that_nobody_closes_end_in_silence():
    with ModelServer(chat=["One.", "Two."]) as server:
        command = [sys.executable, "-c", QUIET, server.base_url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# -- answers that are cut off --------------------------------------------------------------------


def test_an_answer_cut_in_the_middle_is_asked_for_again_and_shown_once(wire):
    text = "One two three four five."
    with serve(wire, [Reply(text, cut_after=6), text]) as server:
        events, waits = ask(wire, server)
    assert text_of(events) == text
    assert items_of(events)[0].text == text and len(items_of(events)) == 1
    assert len(waits) == 1
    assert not [event for event in events if isinstance(event, Notice)]


def test_an_answer_that_comes_out_differently_is_told(wire):
    with serve(wire, [Reply("One two three.", cut_after=4), "One or two."]) as server:
        events, _ = ask(wire, server)
    first, second = items_of(events)
    assert "One two three.".startswith(first.text) and second.text == "One or two."
    assert Notice(CAME_OUT_DIFFERENTLY) in events
    assert text_of(events) == first.text + second.text


def test_a_call_of_a_cut_answer_is_not_given_on(wire):
    calls = {
        "responses": [function_call("f", {"n": 1}, "a"), function_call("f", {"n": 2}, "b")],
        "chat": [tool_call("f", {"n": 1}, "a"), tool_call("f", {"n": 2}, "b", 1)],
    }[wire]
    with serve(wire, [Reply(calls, cut_after=5), Reply(calls[1:])]) as server:
        events, waits = ask(wire, server)
    (call,) = items_of(events)
    assert isinstance(call, FunctionCall) and call.call_id == "b"
    assert len(waits) == 1


def test_an_answer_that_is_always_cut_off_says_so(wire):
    with serve(wire, [Reply("One two three four.", cut_after=5)]) as server:
        said = str(failure(wire, server, tries=3))
        assert len(server.requests) == 3
    assert "cut off in the middle" in said and server.base_url in said


def test_a_stream_that_ends_without_its_end_is_cut_off(wire):
    begun = {"responses": [encode_event("response.created", {})], "chat": [chunk({"content": "a"})]}
    with serve(wire, [Reply(events=begun[wire]), "a whole one"]) as server:
        events, waits = ask(wire, server)
    assert text_of(events) == "a whole one" and len(waits) == 1


def test_a_stream_that_falls_silent_is_given_up(wire):
    reply = Reply("One two three.", pause_after=3)
    with serve(wire, [reply, "One two three."]) as server:
        events, waits = ask(wire, server, timeout=1.5)
    assert text_of(events) == "One two three."
    assert [event.reason for event in events if isinstance(event, RetryWait)] == [
        "Nothing came for 1.5 seconds"
    ]
    assert len(waits) == 1


def test_a_server_that_never_begins_is_given_up(wire):
    with serve(wire, [Reply("late", pause_after=0)]) as server:
        said = str(failure(wire, server, timeout=1.0, tries=1))
    assert "No answer" in said and server.base_url in said


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        ("responses", [encode_event("error", {"error": {"code": "server_error"}})]),
        (
            "responses",
            [encode_event("response.failed", {"response": {"error": {"code": "server_error"}}})],
        ),
        ("chat", [b'data: {"error":{"message":"upstream","code":502}}\n\n']),
        ("chat", [b'data: {"object":"error","message":"x","code":503}\n\n', DONE]),
        ("chat", [chunk({}, "error", error={"code": 502, "message": "x"})]),
        ("chat", [chunk({"content": ""}, "insufficient_system_resource")]),
        ("chat", [b'error: {"code":500,"message":"x","type":"server_error"}\n\n']),
    ],
)
def test_an_error_inside_the_stream_that_passes(wire, events):
    with serve(wire, [Reply(events=events), "At last."]) as server:
        got, waits = ask(wire, server)
    assert text_of(got) == "At last." and len(waits) == 1


def test_an_error_inside_the_stream_that_does_not_pass(wire):
    error = {"error": {"message": "Your key sk-test-0123456789abcdef is bad.", "code": "x"}}
    data = b"data: " + json.dumps({"type": "error", **error}).encode() + b"\n\n"
    with serve(wire, [Reply(events=[data])]) as server:
        said = str(failure(wire, server, api_key=KEY))
        assert len(server.requests) == 1
    assert "Your key [API key] is bad." in said


# -- faults for the person -----------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_one_sentence_without_the_key(wire, status):
    reply = Reply(status=status, error=f"Incorrect API key provided: {KEY}.")
    with serve(wire, [reply]) as server:
        said = str(failure(wire, server, api_key=KEY))
        assert server.paths == [server.paths[0]]
    assert str(status) in said and KEY not in said and "\n" not in said


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, {"message": "The model `gpt-9` does not exist", "code": "model_not_found"}),
        (404, {"message": 'model "gpt-9" not found, try pulling it first'}),
        (400, {"message": "gpt-9 is not a valid model ID", "code": 400}),
        (404, {"message": "model: gpt-9", "type": "not_found_error"}),
    ],
)
def test_an_unknown_model_is_told_with_names_like_it(wire, status, error):
    models = [Reply(document=b'{"data":[{"id":"gpt-8"},{"id":"gpt-9-mini"},{"id":"whisper"},{}]}')]
    reply = Reply(status=status, document=json.dumps({"error": error}).encode())
    with serve(wire, [reply], models=models) as server:
        said = str(failure(wire, server, model="gpt-9"))
    assert "does not know the model 'gpt-9'" in said
    assert "It has: " in said and "gpt-9-mini" in said and "gpt-8" in said
    assert "whisper" not in said


def test_an_address_that_has_no_such_api_is_told_how_most_end(wire):
    with serve(wire, [Reply(status=404, document=b'{"detail": "Not Found"}')]) as server:
        said = str(failure(wire, server))
    assert "most addresses end in /v1" in said and said.endswith("(404): Not Found")


@pytest.mark.parametrize(
    "models", [None, [Reply(document=b"<html>")], [Reply(document=b'{"data":3}')]]
)
def test_an_unknown_model_where_the_server_does_not_list_its_own(wire, models):
    error = json.dumps({"error": {"message": "x", "code": "model_not_found"}}).encode()
    with serve(wire, [Reply(status=404, document=error)], models=models) as server:
        said = str(failure(wire, server, model="gpt-9"))
    assert "does not know the model 'gpt-9'" in said and "It has" not in said


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "x", "code": "context_length_exceeded"}),
        (400, {"message": "This model's maximum context length is 8192 tokens. However, ..."}),
        (400, {"message": "the request exceeds the available context size", "code": 400}),
        (400, {"message": "x", "type": "exceed_context_size_error", "code": 400}),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}),
        (
            400,
            {"message": "The input token count (9) exceeds the maximum number of tokens allowed"},
        ),
        (400, {"message": "This model's maximum prompt length is 131072 but ..."}),
        (400, {"message": "Your request exceeded model token limit: 8192"}),
        (413, {"message": "Please reduce the length of the messages or completion."}),
        (400, {"message": "Your input exceeds the context window of this model."}),
    ],
)
def test_a_conversation_that_is_too_long_is_its_own_error(wire, status, error):
    reply = Reply(status=status, document=json.dumps({"error": error}).encode())
    with serve(wire, [reply]) as server:
        said = failure(wire, server)
        assert len(server.requests) == 1
    assert isinstance(said, ContextOverflow)


def test_a_conversation_that_is_too_long_told_inside_the_stream(wire):
    error = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    data = b"data: " + json.dumps({"type": "error", **error}).encode() + b"\n\n"
    with serve(wire, [Reply(events=[data])]) as server:
        assert isinstance(failure(wire, server), ContextOverflow)


def test_what_else_a_server_refuses_is_no_overflow(wire):
    with serve(wire, [Reply(status=400, error="temperature: too hot")]) as server:
        said = failure(wire, server)
    assert not isinstance(said, ContextOverflow) and "too hot" in str(said)


@pytest.mark.parametrize(
    "document",
    [
        *(b'{"detail":"No such thing"}', b'{"error":"No such thing"}', b"No such thing"),
        b'[{"error":{"code":418,"message":"No such thing"}}]',  # Gemini's
        *(b"[]No such thing", b'["No such thing"]'),
    ],
)
def test_errors_in_other_forms(wire, document):
    with serve(wire, [Reply(status=418, document=document)]) as server:
        said = str(failure(wire, server))
    assert "No such thing" in said and "code" not in said


@pytest.mark.parametrize("document", [b"[]", b"{}", b"[null]", b"null", b"[[]]"])
def test_an_error_without_words(wire, document):
    with serve(wire, [Reply(status=418, document=document)]) as server:
        assert "418" in str(failure(wire, server))


def test_a_certificate_that_nobody_signed(wire, monkeypatch):
    monkeypatch.delenv("SSL_CERT_DIR")  # the system's authorities are asked
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with serve(wire, ["never"], tls=context) as server:
        said = str(failure(wire, server, api_key=KEY))
        assert server.requests == []
    assert "certificate" in said and "SSL_CERT_FILE" in said and server.base_url in said


@pytest.mark.parametrize("holds", [None, b"", b"no certificate"], ids=["missing", "empty", "other"])
def test_a_certificate_in_a_wrong_file(holds, tmp_path, monkeypatch):
    file = tmp_path / "authority.pem"
    if holds is not None:
        file.write_bytes(holds)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with serve("chat", ["never"], tls=context) as server:
        assert f"(now it is {file})" in str(failure("chat", server, api_key=KEY))


def test_a_certificate_that_is_trusted(wire, monkeypatch):
    """The positive control: the same server, its certificate among those of authorities."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with serve(wire, ["Safe."], tls=context) as server:
        assert text_of(ask(wire, server, api_key=KEY)[0]) == "Safe."
        address = server.base_url.replace("https:", "HTTPS:")
        assert text_of(ask(wire, server, base_url=address, api_key=KEY)[0]) == "Safe."


def test_tls_with_a_server_that_has_none(wire):
    with serve(wire, ["never"]) as server:
        address = server.base_url.replace("http:", "https:")
        said = str(failure(wire, server, base_url=address, api_key=KEY))
    assert "http://" in said and "TLS" in said


# -- answers that are no stream ------------------------------------------------------------------


def test_a_server_that_does_not_stream(wire):
    documents = {
        "responses": {
            "object": "response",
            "status": "completed",
            "output": [message("Hello."), function_call("f", {"a": 1})],
            "usage": {"input_tokens": 7, "output_tokens": 5},
        },
        "chat": {
            "choices": [
                {
                    "message": {
                        "content": "Hello.",
                        "tool_calls": [tool_call("f", {"a": 1})],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 5},
        },
    }
    with serve(wire, [Reply(document=json.dumps(documents[wire], indent=1).encode())]) as server:
        events, _ = ask(wire, server)
    said, call = items_of(events)
    assert text_of(events) == said.text == "Hello."
    assert (call.name, json.loads(call.arguments)) == ("f", {"a": 1})
    assert isinstance(events[-1], ResponseDone) and events[-1].usage.input_tokens == 7


def test_an_answer_that_has_begun_is_not_begun_anew_on_the_other_wire():
    failed = {"response": {"status": "failed", "error": {"message": "invalid URL 'htp://x'"}}}
    begun = [
        encode_event("response.output_text.delta", {"delta": "The page says "}),
        encode_event("response.failed", failed),
    ]
    reply = Reply(events=begun, pause_after=1)
    with ModelServer(responses=[reply], chat=["A wholly different answer."]) as server:
        said = str(failure("auto", server, tries=1, on_event=lambda event: reply.release.set()))
        assert [path.rpartition("/")[2] for path in server.paths] == ["responses"]
    assert "invalid URL" in said


def test_what_is_no_answer_at_all(wire):
    for document in (b"<html>Welcome</html>", b"{}", b""):
        with serve(wire, [Reply(document=document)]) as server:
            assert "not with a stream" in str(failure(wire, server))


def test_a_connection_that_stays_open_after_the_end_does_not_hold_the_answer_up():
    """No usage, no [DONE], and the server does not hang up either."""
    events = [chunk({"content": "Hi."}), chunk({}, "stop"), b": waiting\n\n", DONE]
    reply = Reply(events=events, pause_after=2)
    with ModelServer(chat=[reply]) as server:
        got, _ = ask("chat", server, timeout=0.3)
    assert items_of(got) == [AssistantMessage("Hi.")]


def test_what_comes_after_the_end_of_an_answer_is_waited_for_once(monkeypatch):
    monkeypatch.setattr("agent_magics.models.wires.answer.AFTER_THE_FINISH", 0.3)
    ended = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(chunk({"content": "Hi."}) + chunk({}, "stop"))
        with suppress(ConnectionError):
            while not writer.is_closing():  # no usage, no [DONE], and pings for ever
                writer.write(b": ping\n\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        ended.set()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = open_model("chat", base_url=f"http://127.0.0.1:{port}/v1")
        request = ModelRequest("m", "", SeenHistory((UserMessage("hi"),)), (), "hi", 1)
        try:
            return [event async for event in client.stream(request)]
        finally:
            await client.close()
            server.close()
            await ended.wait()

    assert items_of(asyncio.run(asyncio.wait_for(run(), 60))) == [AssistantMessage("Hi.")]


def test_a_notice_is_told_once_however_often_a_request_is_made():
    shown = Shown()
    assert shown.receive(Notice("No search.")) == [Notice("No search.")]
    shown.begin()
    assert shown.receive(Notice("No search.")) == []


# -- without a server ----------------------------------------------------------------------------


def test_retry_after_in_every_form():
    date = {"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}
    assert retry_after(date, now=784111777.0 - 30) == 30.0
    assert retry_after(date, now=784111777.0 + 30) == 0.0
    # The server's own clock counts, where it states the time.
    stated = {**date, "date": "Sun, 06 Nov 1994 08:49:07 GMT"}
    assert retry_after(stated, now=0.0) == retry_after(stated, now=4e9) == 30.0
    assert retry_after({**date, "date": "never"}, now=784111777.0 - 30) == 30.0
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after": "-3"}) == 0.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after-ms": "x", "retry-after": "2"}) == 2.0
    assert retry_after({}) is None


def test_errors_in_a_stream_in_any_form():
    for error in ("text", {}, {"message": {"message": "deep"}}, {"code": None}, [1], 7):
        assert isinstance(stated_fault(error), Fault)
    assert isinstance(stated_fault("Unexpected endpoint or method. (POST /x)"), UnsupportedWire)


def test_the_old_server_still_serves():
    with ResponsesServer(["x"]) as server:
        assert text_of(ask("responses", server)[0]) == "x"
