"""Questions of the model in a kernel: typed in consoles, clicked in widgets, told where neither."""

import json
from collections.abc import Iterator

import pytest

from tests.support.kernels.cells import outputs, scripted
from tests.support.kernels.driver import Kernel

QUESTIONS = [
    {
        "id": "format",
        "header": "Export",
        "question": "Which \x1bformat?",
        "options": [{"label": "CSV", "description": "small"}, {"label": "Parquet"}],
        "free_text": False,
    },
    {"id": "parts", "question": "Which parts?", "options": [{"label": "a"}], "multi": True},
    {"id": "why", "question": "Why?"},
]
CALL = f"Call('request_user_input', {{'questions': {QUESTIONS!r}}})"
AGENT = "%%agent\nGo.\n"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("questions"))) as kernel:
        yield kernel


def _prepare(kernel: Kernel) -> None:
    assert kernel.run("%reload_ext agent_magics\n" + scripted(CALL, "'Done.'")).status == "ok"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_in_a_console_answers_are_typed(kernel: Kernel, wrapper: str) -> None:
    _prepare(kernel)
    typed = ["JSON", "2", "1, something, else", "", "Because."]
    outcome = kernel.run(wrapper + AGENT, answers=typed, allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    assert len(outcome.prompts) == len(typed), "what does not fit is asked again"
    assert json.loads(kernel.value(f"{outputs()}[0]").strip("'")) == {
        "format": "Parquet",
        "parts": ["a", "something, else"],
        "why": "Because.",
    }
    shown = "".join(o["text"] for o in outcome.outputs if o.get("name") == "stderr")
    assert "The agent asks:" in shown
    assert "1. CSV: small" in shown
    assert "this is not one of the choices" in shown
    assert "\x1b" not in shown + "".join(outcome.prompts)


def test_in_a_console_it_can_be_declined(kernel: Kernel) -> None:
    _prepare(kernel)
    outcome = kernel.run(AGENT, answers=["1", "!"], allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    assert "Not answered: the person declined" in kernel.value(f"{outputs()}[0]")


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_where_no_input_is_allowed_the_model_is_told(kernel: Kernel, wrapper: str) -> None:
    _prepare(kernel)
    outcome = kernel.run(wrapper + AGENT, notebook=True)
    assert outcome.status == "ok", outcome.text
    told = kernel.value(f"{outputs()}[0]")
    assert "Not answered: nobody can be asked in this run (it allows no input)" in told
