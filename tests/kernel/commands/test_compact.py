"""``%agent compact`` in a real kernel: what it says, what is sent then, and when it cannot."""

from collections.abc import Iterator

import pytest

from tests.support.kernels.cells import AGENTS, SLOW_MODEL, scripted
from tests.support.kernels.driver import Kernel

LONG = "'Here is what I found. ' + 'word ' * 3_000"
SENT = f"[type(i).__name__ for i in {AGENTS}['default']._models.given.requests[-1].history.sent]"
HISTORY = f"{AGENTS}['default'].session.conversation.history"
KEPT = f"[i.content for i in {HISTORY}.sent if hasattr(i, 'content')]"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("compact"))) as kernel:
        yield kernel


def _prepare(kernel: Kernel, *turns: str) -> None:
    assert kernel.run("%reload_ext agent_magics\n" + scripted(*turns)).status == "ok"


def test_the_conversation_is_replaced_by_a_summary(kernel: Kernel) -> None:
    _prepare(kernel, LONG, repr("He looked, and found words."), repr("Fine."))
    assert kernel.run("%%agent\nLook into it.\n").status == "ok"
    outcome = kernel.run("%agent compact")
    assert outcome.status == "ok", outcome.text
    (item,) = outcome.items
    assert item["text"].startswith("A summary stands for the conversation from here on: about ")
    assert "tokens before, about" in item["text"]
    assert kernel.run("%%agent\nAnd now?\n").status == "ok"
    assert kernel.value(SENT) == "['UserMessage', 'UserMessage', 'UserMessage']"
    said = kernel.value(KEPT)
    assert said.startswith("['Look into it.',")
    assert "He looked, and found words." in said and "'And now?'" in said
    # What was said stands in the history all the same.
    assert "Here is what I found." in kernel.run("%agent history").text


def test_where_there_is_nothing_to_replace_it_says_so(kernel: Kernel) -> None:
    _prepare(kernel, repr("Hello."))
    outcome = kernel.run("%agent compact")
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert "nothing old enough to be replaced" in outcome.text


def test_a_summary_that_cannot_be_had_changes_nothing(kernel: Kernel) -> None:
    _prepare(kernel, LONG)  # the script ends here
    kernel.run("%%agent\nLook into it.\n")
    outcome = kernel.run("%agent compact")
    assert (outcome.status, outcome.error) == ("error", "UsageError")
    assert "The script has 1 answer," in outcome.text
    assert kernel.value(KEPT) == "['Look into it.']"


def test_it_can_be_interrupted(kernel: Kernel) -> None:
    _prepare(kernel, LONG)
    kernel.run("%%agent\nLook into it.\n")
    model = f"{AGENTS}['default']._models.given"
    kernel.run(SLOW_MODEL + TELLING + f"{model} = TellingModel()\n" + FORGET_MODELS)

    def stop(message: dict) -> None:
        if message["msg_type"] == "stream" and "asked" in message["content"]["text"]:
            kernel.interrupt()

    outcome = kernel.run("%agent compact", on_message=stop)
    assert outcome.status == "error"
    assert outcome.error in ("KeyboardInterrupt", "UsageError"), model
    assert kernel.value(KEPT) == "['Look into it.']"


# Says that it was asked: from then on the cell waits for it.
TELLING = """
class TellingModel(SlowModel):
    async def stream(self, request):
        print("asked", flush=True)
        async for chunk in super().stream(request):
            yield chunk

"""
# The model that was opened for the script is not used again.
FORGET_MODELS = f"{AGENTS}['default']._models._opened.clear()\n"


def test_an_agent_that_is_not_there_is_named(kernel: Kernel) -> None:
    outcome = kernel.run("%agent compact nobody")
    assert outcome.error == "UsageError"
    assert "takes: nothing; and the name of an agent: default" in outcome.text
