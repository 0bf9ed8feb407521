"""`%%agent --map`: a card while it runs, text when it has ended, the table in a variable."""

import json

import pytest

from tests.support.kernels.driver import Kernel

SETUP = """
%load_ext agent_magics
import json
from dataclasses import dataclass

import pandas as pd

from agent_magics import Agent
from tests.support.rows.echo import Echo

@dataclass
class Complaint:
    kind: str

df = pd.DataFrame({"text": [f"row {number}" for number in range(500)] + [None]})
model = Echo(lambda prompt: json.dumps({"kind": prompt}))
agents = get_ipython().magics_manager.registry["AgentMagics"].agents
agents["default"] = Agent(model)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with Kernel(cwd=str(tmp_path_factory.mktemp("map"))) as kernel:
        kernel.run(SETUP)
        yield kernel


def test_the_table_is_bound_and_the_outcome_stays(kernel):
    outcome = kernel.run("%%agent --map df --into scored --output Complaint\nWhich? {{text}}\n")
    (text,) = outcome.items_of("text")
    assert text["text"].startswith("500 of 501 rows have an answer; 1 has an error")
    assert "bad row: `text is missing" in text["text"]
    assert "The answers are in" not in text["text"]
    said = kernel.run("print(json.dumps([scored.kind[7], len(scored), _agent.progress.failed]))")
    assert json.loads(said.text) == ["Which? row 7", 501, 1]


def test_answers_without_a_name_are_said_to_be_in_the_result(kernel):
    (text,) = kernel.run("%%agent --map df[:2]\nWhich? {{text}}\n").items_of("text")
    assert text["text"].endswith(
        "\n\nThe answers are in `_agent.frame`; `--into NAME` gives them a name."
    )
    assert kernel.run("print(len(_agent.frame))").text.strip() == "2"


FAILS = """
import os, signal
from agent_magics.protocol.errors import FatalError

def refuse(prompt):
    raise FatalError("the server refuses")

def press(prompt):
    if prompt.endswith("row 9"):
        os.kill(os.getpid(), signal.SIGINT)
    return json.dumps({"kind": prompt})

answers = agents["default"]
"""


@pytest.mark.parametrize(("say", "error"), [("refuse", ""), ("press", "KeyboardInterrupt")])
def test_a_map_that_binds_no_answers_names_no_place_of_them(kernel, say, error):
    assert kernel.run(f"{FAILS}agents['default'] = Agent(Echo({say}))").status == "ok"
    outcome = kernel.run("%%time\n%%agent --map df\nWhich? {{text}}\n")
    kernel.run("agents['default'] = answers")
    assert outcome.error == error
    (text,) = outcome.items_of("text")
    assert "rows have an answer" in text["text"]
    assert "The answers are in" not in text["text"]


def test_it_runs_inside_another_cell(kernel):
    kernel.run(
        "get_ipython().run_cell_magic('agent', '--map df.head(3) --into few', 'Which? {{text}}')"
    )
    assert kernel.run("print(list(few.columns), len(few))").text.strip().endswith("3")


@pytest.mark.parametrize("call", ["m.map_sync", "await m.map"])
def test_a_deadline_ends_a_question_that_nobody_answers(kernel, call):
    cell = f"done = {call}('{{{{text}}}}', df[:60], ask_above=1e-9, %s)\nprint(done.stopped)"
    kernel.run("m = Agent(Echo(name='gpt-5.5'))")
    late = kernel.run(cell % "deadline=2", allow_stdin=True)
    asked = [each["msg_type"] for each in late.messages].count("input_request")
    assert (asked, late.status) == (1, "ok"), late.text
    assert late.text.endswith("the deadline of 2 seconds has passed\n")
    again = kernel.run(cell % "cache=False", allow_stdin=True, answers=["Go on"])
    assert again.text.endswith("\n\n"), "it was asked, and ended whole"
    assert kernel.run("m.close()").status == "ok"


def test_a_missing_column_is_one_sentence(kernel):
    outcome = kernel.run("%%agent --map df\nWhich? {{nope}}\n")
    assert outcome.error == "UsageError"
    assert "no such column; there are: 'text'" in outcome.text


def test_what_has_no_rows_is_one_sentence(kernel):
    outcome = kernel.run("%%agent --map nothing\nWhich? {{text}}\n")
    assert "--map nothing: NameError" in outcome.text


BLOCKING = """
import threading
from agent_magics.kernel.cell import mapping

mapping.LINES, drawn, told = -1, mapping.MapCell.draw, threading.Semaphore(0)

def draw(self):
    drawn(self)
    if self._told_at:
        told.release()

mapping.MapCell.draw = draw
agent = Agent(Echo(lambda prompt: told.acquire(timeout=20) and prompt))
"""


def test_a_call_that_blocks_tells_how_far_it_is_where_no_page_draws_a_card(kernel):
    assert kernel.run(BLOCKING).status == "ok"
    call = "done = agent.map_sync('{{text}}', df.head(3))"
    outcome = kernel.run(call, notebook=True, allow_stdin=True)
    said = [str(m["content"]) for m in outcome.messages if "display_data" in m["msg_type"]]
    assert "of 3 rows" in said[0] and len(said) > 2
    (text,) = outcome.items_of("text")
    assert text["text"].startswith("3 of 3 rows have an answer")
