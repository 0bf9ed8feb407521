"""Whatever a batch API answers is read as its type, or refused in one sentence."""

import asyncio
import json
from contextlib import suppress

import pytest
from yarl import URL

from agent_magics.models.access import ServerAccess
from agent_magics.models.provider import MODEL_CLASSES
from agent_magics.models.transport import Reply
from agent_magics.protocol.codec import is_typed
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.asking import Terms
from agent_magics.rows.batches.api import TOKEN, BatchApi, hours_left
from agent_magics.rows.batches.results import _result

HOSTILE = (None, True, -1, 1e400, 10**30, "", "../y", "\ud800", "x" * 3_000, [], [1], {}, {"a": 1})
BATCH = {
    "id": "b1",
    "status": "completed",
    "request_counts": {"total": 1, "completed": 1, "failed": 0},
    "errors": {"data": [{"code": "c", "message": "m"}]},
    "output_file_id": "f",
    "error_file_id": "g",
    "expires_at": 5,
    "metadata": {TOKEN: "t"},
}
CHAT = {
    "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}
PARTS = [{"type": "output_text", "text": "hi"}]
RESPONSE = {
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": PARTS}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def changed(document):
    """Yield copies of a JSON value with each part, at any depth, as something else."""
    yield from HOSTILE
    if isinstance(document, dict):
        for name, part in document.items():
            yield {key: value for key, value in document.items() if key != name}
            for other in changed(part):
                yield {**document, name: other}
    if isinstance(document, list):
        for at, part in enumerate(document):
            for other in changed(part):
                yield [*document[:at], other, *document[at + 1 :]]


class Answering:
    """A transport that gives one answer to all that is asked."""

    address = "https://example.org"

    def __init__(self, document):
        self.reply = Reply(200, {}, json.dumps(document).encode())

    def url(self, path):
        return URL(self.address + path)

    async def get(self, url, to=None):
        assert url.host == "example.org" and ".." not in str(url)
        return self.reply

    async def post(self, url, body):
        return self.reply


async def use(document):
    """Ask everything of an API that answers with a document."""
    wire = MODEL_CLASSES["auto"].WIRES[0]()
    api = BatchApi(ServerAccess("sk-test-key", Answering.address), Answering(document), wire)
    for ask in (api.check, lambda: api.seen("b1", ""), lambda: api.find("t")):
        with suppress(FatalError):
            batch = await ask()
            if batch is not None:
                assert is_typed(batch)
                assert hours_left(batch)
                assert (batch.id + batch.state + batch.problem).isprintable()
                with suppress(FatalError):
                    await api.cancel(batch.id)


@pytest.mark.parametrize("document", [BATCH, {"data": [BATCH], "has_more": False}])
def test_what_the_api_says_is_of_its_type_or_refused(document):
    async def use_all():
        for each in changed(document):
            await use(each)

    asyncio.run(use_all())


@pytest.mark.parametrize(("name", "body"), [("chat", CHAT), ("responses", RESPONSE)])
@pytest.mark.parametrize("status", [200, 429])
def test_a_line_of_results_is_an_answer_an_error_or_left_out(name, body, status):
    wire = {each.name: each for each in MODEL_CLASSES["auto"].WIRES}[name]()
    body = body if status == 200 else {"error": {"message": "m", "code": "c"}}
    response = {"status_code": status, "body": body}
    line = {"custom_id": "00" * 16, "response": response, "error": None}
    for each in changed(line):
        result = _result(json.dumps(each).encode(), wire, Terms("m"), "https://example.org")
        if result is not None:
            answer = result.answer
            assert is_typed(answer)
            assert len(answer.error or "") < 1_500 and len(answer.kind) < 600
            f"{answer.text}{answer.error}{answer.kind}".encode()
