"""The quote before a map, and its budgets."""

import asyncio
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_magics import Agent
from agent_magics.engine.thread import shared_engine
from agent_magics.models.base import ResponseDone
from agent_magics.models.faults import Fault
from agent_magics.protocol.items import Usage
from agent_magics.rows.budgets import HOPELESS, Budgets
from agent_magics.rows.job import SAMPLE, Job
from agent_magics.rows.planning import Watcher
from agent_magics.rows.progress import BAD_ROW, Progress
from tests.support.rows.echo import INPUT, OUTPUT, Echo
from tests.support.rows.keeping import map_keeping
from tests.support.turns import PATIENCE

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


@dataclass
class Complaint:
    kind: Literal["billing", "delivery", "quality", "other"]
    urgent: bool


def mapped(rows, **options):
    """Map as the notebook does; return the result and what was quoted in USD."""
    asked = []

    def decide(question):
        asked.append(question.target)
        return "deny"

    with Agent(replay=NOTEBOOKS / "50_a_column.agent.jsonl", on_question=decide) as agent:
        prompt = "Which complaint is this? {{text}}"
        done = agent.map_sync(prompt, rows, output=Complaint, **options)
    quoted = [float(re.search(r"about ([\d.]+) USD", each)[1]) for each in asked]
    return done, quoted


@pytest.mark.soak
def test_the_quote_for_the_shipped_rows_is_what_they_cost():
    rows = pd.read_csv(NOTEBOOKS / "complaints.csv", index_col="id")
    cost = mapped(rows, ask_above=None)[0].cost
    for seed in range(8):
        _, (quoted,) = mapped(rows.sample(frac=1, random_state=seed), ask_above=1e-9)
        assert quoted == pytest.approx(cost, rel=0.05)


class Decides(Watcher):
    """Presses a button of the map's card while the question of its cost is open."""

    def begin(self, job):
        self.job = job


@pytest.mark.parametrize("concurrency", [1, None])
@pytest.mark.parametrize(("pressed", "answered"), [("go_on", 120), ("stop", 50)])
def test_the_cards_buttons_answer_the_question_of_the_cost(pressed, answered, concurrency):
    card = Decides()

    async def decide(question):
        agent.session.engine.post(getattr(card.job, pressed))
        await asyncio.Event().wait()

    rows = pd.read_csv(NOTEBOOKS / "complaints.csv", index_col="id").dropna()[:120]
    with Agent(replay=NOTEBOOKS / "50_a_column.agent.jsonl", on_question=decide) as agent:
        mapping = agent.mapping(
            "Which complaint is this? {{text}}",
            rows,
            output=Complaint,
            options={"ask_above": 1e-9, "concurrency": concurrency},
        )
        done = asyncio.run(mapping.wait(card))
    assert done.frame["kind"].notna().sum() == answered
    assert bool(done.stopped) == (pressed == "stop")


@pytest.mark.parametrize("waits", ["blocks", "awaits"])
@pytest.mark.parametrize("answers", ["on its thread", "on a loop"])
@pytest.mark.parametrize(
    ("ends", "answered"), [("go_on", 150), ("stop", SAMPLE), ("deadline", SAMPLE)]
)
def test_what_decides_without_the_person_ends_the_question(ends, answered, answers, waits):
    """The person is asked for nothing any more, and who waits for an answer waits no longer."""
    card, asked, left = Decides(), [], threading.Event()

    def press(question):
        asked.append(question.target)
        if ends != "deadline":
            agent.session.engine.post(getattr(card.job, ends))

    def decide(question):
        try:
            press(question)
            threading.Event().wait(PATIENCE)
            asked.append("nothing has ended it")
        finally:
            left.set()

    async def decide_on_loop(question):
        try:
            press(question)
            await asyncio.sleep(PATIENCE)
            asked.append("nothing has ended it")
        finally:
            left.set()

    on_question = decide if answers == "on its thread" else decide_on_loop
    options = {"ask_above": 1e-9, "deadline": 4.0 if ends == "deadline" else PATIENCE}
    with Agent(Echo(name="gpt-5.5"), on_question=on_question) as agent:
        mapping = agent.mapping("{{text}}", ROWS, output=None, options=options)
        done = mapping.wait_sync(card) if waits == "blocks" else asyncio.run(mapping.wait(card))
        assert left.wait(PATIENCE) and len(asked) == 1, asked
    assert done.frame["answer"].notna().sum() == answered
    assert ("deadline" in done.stopped) == (ends == "deadline")


@pytest.mark.parametrize("max_errors", [None, 1], ids=["whole", "stopped"])
def test_a_map_that_has_ended_does_not_wait_for_its_deadline(max_errors):
    def fail(prompt):
        raise ValueError(prompt)

    with Agent(Echo(fail) if max_errors else Echo()) as agent:
        agent.map_sync("{{text}}", ["a", "b"], deadline=3600, max_errors=max_errors)
    waiting = [
        timer._callback
        for timer in shared_engine().loop._scheduled
        if not timer.cancelled() and timer.when() > shared_engine().loop.time() + 60
    ]
    assert not [each for each in waiting if isinstance(getattr(each, "__self__", None), Job)]


ROWS = [f"row {number}" for number in range(150)]
ROW, TOKENS = 0.0011, INPUT + OUTPUT  # USD and tokens of one


@settings(max_examples=25)
@given(st.data())
def test_whatever_is_kept_no_more_than_the_limit_is_spent_before_somebody_is_asked(data):
    """But for the sample, which alone tells what all will cost, and the last question."""
    kept = data.draw(st.sets(st.sampled_from(ROWS)) | st.sampled_from([set(), set(ROWS)]))
    fail = data.draw(st.sets(st.sampled_from(ROWS)))
    limit = ROW * data.draw(st.integers(0, 160)) + ROW / 2
    unasked = [row for row in ROWS if row not in kept]

    def say(prompt):
        if prompt in fail and is_moody:
            raise Fault("No.", reason="no")
        return prompt

    with TemporaryDirectory() as folder:
        cache = Path(folder, "a")
        is_moody = False
        with Agent(Echo(say, "gpt-5.5")) as agent:
            map_keeping(agent, "{{text}}", sorted(kept), cache, ask_above=None)
        is_moody = True
        for _ in range(2):  # the second time the sample is kept, but for what has failed
            asked = []
            with Agent(
                Echo(say, "gpt-5.5"),
                on_question=lambda question, asked=asked: asked.append(question) or "deny",
            ) as agent:
                options = {"ask_above": limit, "concurrency": 1}
                done = map_keeping(agent, "{{text}}", ROWS, cache, **options)
            assert len(asked) <= 1
            assert done.cost <= max(limit, ROW * SAMPLE) + ROW
            if asked:
                assert ROW * len(unasked) > limit
            elif "failed" not in done.stopped:
                assert done.progress.rows == done.progress.done


@given(st.integers(1, 300), st.integers(1, 300), st.integers(-2, 2), st.floats(1e-6, 10))
def test_a_map_with_nothing_in_flight_asks_or_ends(asked, tokens, beside, cost):
    """It would wait for ever: also where one more question just fits into the budget."""
    counts = dict.fromkeys(("asked", "answered", "paid"), asked)
    progress = Progress(**counts, usage=Usage(tokens * asked), cost=cost * asked)
    fits = tokens * (asked + 1)
    budgets = (
        Budgets(max_tokens=fits),
        Budgets(max_tokens=max(fits + beside, 1)),
        Budgets(max_cost=cost * (asked + 1)),
        Budgets(max_cost=0.1, max_tokens=fits),
    )
    assert not budgets[0].reached(progress)
    for each in budgets:
        assert bool(each.reached(progress)) == each.must_wait(progress)


class Late(Echo):
    """Answers after all that fail, which do so at once."""

    async def stream(self, request):
        events = [event async for event in super().stream(request)]
        for _ in range(10):
            await asyncio.sleep(0)
        for event in events:
            yield event


@settings(max_examples=12)
@given(
    st.sets(st.sampled_from(ROWS)) | st.integers(0, 149).map(lambda count: set(ROWS[:count])),
    st.integers(0, 160).map(lambda count: count + 0.5),
    st.sampled_from([1, 20, None]),
)
@example(set(ROWS[:1]), 5.5, None)
@example(set(ROWS[1::2]), 5.5, None)
def test_a_budget_is_kept_whatever_fails_and_when(fails, limit, concurrency):
    """But for one question, which alone tells what one takes; `limit` counts questions."""

    def say(prompt):
        if prompt in fails:
            raise Fault("No.", reason="no")
        return prompt

    def spend(name, **budget):
        options = {"ask_above": None, "concurrency": concurrency, **budget}
        with Agent(Late(say, name)) as agent:
            return agent.map_sync("{{text}}", ROWS, **options)

    priced = spend("gpt-5.5", max_cost=ROW * limit)
    counted = spend("a", max_tokens=round(TOKENS * limit))
    for done, asked in ((priced, priced.cost / ROW), (counted, counted.progress.tokens / TOKENS)):
        assert asked <= max(limit, 1) + 1e-6
        assert done.stopped or round(asked) == len(ROWS) - len(fails)
    assert spend("a", max_cost=limit).progress.answered <= 1


class Uncounted(Echo):
    """A server that reports no tokens."""

    async def stream(self, request):
        async for event in super().stream(request):
            yield ResponseDone() if isinstance(event, ResponseDone) else event


@pytest.mark.parametrize("fails", [0, 3])
@pytest.mark.parametrize("concurrency", [1, None])
@pytest.mark.parametrize(
    ("server", "name", "budget", "why"),
    [
        (Echo, "a", "max_cost", "the price of this model is not known"),
        (Uncounted, "gpt-5.5", "max_cost", "the price of this model is not known"),
        (Uncounted, "gpt-5.5", "max_tokens", "the server reports no tokens"),
    ],
)
def test_a_budget_that_cannot_be_kept_ends_the_map_after_one_answer(
    server, name, budget, why, concurrency, fails
):
    failing = iter(range(fails))

    def say(prompt):
        if next(failing, None) is not None:
            raise Fault("No.", reason="no")
        return prompt

    options = {"ask_above": None, "concurrency": concurrency, budget: 1000}
    with Agent(server(say, name)) as agent:
        done = agent.map_sync("{{text}}", ROWS, **options)
    assert done.progress.asked == fails + 1 and done.progress.answered == 1
    assert done.stopped == f"{budget} cannot be kept: {why}"


def test_what_ends_a_hopeless_map_is_an_error_of_its_questions():
    progress = Progress(asked=HOPELESS)
    for kind, error in [(BAD_ROW, "text is missing"), (BAD_ROW, "text is missing"), ("x", "down")]:
        progress.fail(kind, error)
    assert Budgets().reached(progress) == f"the first {HOPELESS} questions all failed (down)"
