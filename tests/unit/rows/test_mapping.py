"""One prompt over many rows, from the call to its table."""

import asyncio
import concurrent.futures.thread
import json
import sqlite3
import sys
import threading
import time
from collections import Counter, UserList, deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from pydantic import BaseModel, field_validator

from agent_magics import Agent
from agent_magics.models.faults import Fault
from agent_magics.protocol.errors import FatalError
from agent_magics.rows import outcomes
from agent_magics.rows.askers.models import ModelAsker
from agent_magics.rows.outcomes import PART
from agent_magics.rows.tables.folders import PartFiles
from agent_magics.rows.tables.sources import BATCH
from tests.support.models.row_server import RowServer
from tests.support.rows.echo import INPUT, OUTPUT, Echo
from tests.support.rows.watchers import When, wait_until
from tests.support.turns import PATIENCE

PRICED = "gpt-5.5"


@dataclass
class Complaint:
    kind: str
    urgent: bool


def rows(count):
    return [f"row {number}" for number in range(count)]


def say(prompt):
    return json.dumps({"kind": prompt, "urgent": prompt.endswith("7")})


def test_every_row_gets_its_answer():
    model = Echo(say)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", rows(700), output=Complaint)
    assert list(done.frame.columns) == ["kind", "urgent", "error", "tokens", "cost"]
    assert list(done.frame["kind"]) == rows(700)
    assert done.frame["urgent"].dtype == bool and done.frame["urgent"].sum() == 70
    assert done.frame["error"].isna().all() and not len(done.failed)
    assert not done.frame["error"].str.contains("429", na=False).any()  # text, also of no errors
    assert done.usage.input_tokens == 700 * INPUT
    assert done.frame["tokens"].sum() == 700 * (INPUT + OUTPUT)
    assert sum(model.asked.values()) == 700


def test_a_map_can_be_awaited_beside_others():
    async def run():
        with Agent(Echo()) as agent:
            both = await asyncio.gather(
                agent.map("a{{text}}", ["x", "y"]), agent.map("b{{text}}", ["z"])
            )
        return [list(done.frame["answer"]) for done in both]

    assert asyncio.run(run()) == [["ax", "ay"], ["bz"]]


def test_nothing_of_the_workspace_is_sent(tmp_path):
    model = Echo()
    with Agent(model, cwd=str(tmp_path)) as agent:
        agent.map_sync("{{text}}", ["a"])
    assert model.requests[0].instructions == ""


def test_rows_that_ask_the_same_are_asked_once():
    model = Echo(name=PRICED)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", ["a", "b"] * 900, ask_above=None)
    assert model.asked == {"a": 1, "b": 1}
    assert list(done.frame["answer"]) == ["a", "b"] * 900
    assert done.frame["cost"].sum() == pytest.approx(done.cost)
    assert done.progress.repeated == 1798


def test_equal_rows_without_an_answer_are_none_that_have_one():
    def say(prompt):
        if prompt == "bad":
            raise Fault("No.", reason="no")
        return prompt

    with Agent(Echo(say)) as agent:
        done = agent.map_sync("{{text}}", ["bad", "good"] * 900, ask_above=None)
    said = "900 of 1,800 rows have an answer (899 from equal rows); 900 failed."
    assert done.report().splitlines()[0] == said


def test_bad_rows_are_errors_of_their_own_and_not_asked():
    model = Echo()
    bad = [None, "\ud800", float("nan"), "x" * (5 << 20)]
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", ["good", *bad])
    assert list(model.asked) == ["good"]
    errors = list(done.frame["error"])
    assert pd.isna(errors[0])
    words = ["missing", "surrogate", "missing", "5,242,880 characters"]
    assert all(word in error for word, error in zip(words, errors[1:], strict=True))
    assert len(done.failed) == 4


def test_an_unfit_answer_is_asked_for_once_more():
    def stubborn(prompt):
        return "nonsense" if prompt == "bad" else say(prompt)

    model = Echo(stubborn)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", ["bad", "good"], output=Complaint)
    assert model.asked == {"bad": 2, "good": 1}
    assert "no Complaint, also after it was told why" in done.frame["error"][0]
    assert done.frame["tokens"][0] == 2 * (INPUT + OUTPUT)


def test_an_unfit_answer_is_not_asked_for_again_after_a_stop():
    release = asyncio.Event()

    class Holds(Echo):
        async def stream(self, request):
            async for event in super().stream(request):
                await release.wait()
                yield event

    model = Holds(lambda prompt: "nonsense")
    with Agent(model) as agent:

        def stop(job):
            wait_until(lambda: sum(model.asked.values()) == 4)
            agent.session.engine.post(job.stop)
            agent.session.engine.post(release.set)

        options = {"concurrency": 4}
        mapping = agent.mapping("{{text}}", rows(6), output=Complaint, options=options)
        done = mapping.wait_sync(When([0], stop))
    assert sum(model.asked.values()) == 4
    said = Counter(error.partition(":")[0] for error in done.frame["error"])
    assert said == {"the answer does not fit, and was not asked for again": 4, "not asked": 2}


def test_a_models_error_is_the_rows_and_can_be_tried_again():
    down = True

    def moody(prompt):
        if down and prompt.endswith("3"):
            raise Fault("The server is tired.", passing=True, reason="tired")
        return prompt

    model = Echo(moody)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", rows(30))
        assert list(done.failed.index) == [3, 13, 23]
        assert done.progress.kinds()["tired"].count == 3
        down = False
        done.retry()
    assert list(done.frame["answer"]) == rows(30)
    assert not len(done.failed)
    assert sum(model.asked.values()) == 33


def test_a_row_shows_what_all_its_questions_took():
    fits = False

    def late(prompt):
        if prompt == "down" and not fits:
            raise Fault("The server is tired.", passing=True, reason="tired")
        return say(prompt) if fits or prompt != "bad" else "nonsense"

    with Agent(Echo(late, name=PRICED)) as agent:
        done = agent.map_sync("{{text}}", ["bad", "down", "good"], output=Complaint)
        fits = True
        done.retry()
    assert list(done.frame["tokens"]) == [3 * (INPUT + OUTPUT), *[INPUT + OUTPUT] * 2]
    assert done.frame["tokens"].sum() == done.progress.tokens
    assert done.frame["cost"].sum() == pytest.approx(done.cost)


def test_what_a_row_took_is_kept_where_it_is_tried_again_in_vain():
    down = False

    def moody(prompt):
        if down:
            raise Fault("The server is tired.", passing=True, reason="tired")
        return "nonsense"

    with Agent(Echo(moody, name=PRICED)) as agent:
        done = agent.map_sync("{{text}}", ["a"], output=int)
        down = True
        done.retry()
    assert list(done.frame["cost"]) == pytest.approx([done.cost]) == [pytest.approx(0.0022)]


@pytest.mark.parametrize("kept", [b"", b"{", b"3", b"[1]", b'"text"', "{}", None])
def test_a_kept_answer_that_is_none_is_asked_for_once_more(kept, tmp_path):
    """It is no JSON, or of another type: what is asked anew takes its place."""
    model, cache = Echo(say), tmp_path / "answers.sqlite"

    def ask():
        with Agent(model) as agent:
            mapping = agent.mapping("{{text}}", ["a"], output=Complaint, options={})
            mapping._planned = replace(mapping._planned, cache=cache)
            return mapping.wait_sync()

    ask()
    with closing(sqlite3.connect(cache)) as file, file:
        file.execute("CREATE TABLE other AS SELECT * FROM answers")
        file.execute("DROP TABLE answers")
        file.execute(
            "CREATE TABLE answers (number INTEGER PRIMARY KEY, key UNIQUE, at, model, "
            "answer, tokens, cost)"
        )
        file.execute("INSERT INTO answers SELECT * FROM other")
        file.execute("UPDATE answers SET answer = ?", (kept,))
    assert [list(ask().frame["kind"]) for _ in range(3)] == [["a"]] * 3
    assert model.asked == {"a": 2}


class AnswersOnce(Echo):
    """Answers the first request of each row with what fits no type, and no further one."""

    async def stream(self, request):
        async for event in super().stream(request):
            if request.number > 1:
                await self.fail()
            yield event


@pytest.mark.parametrize("ends", ["refused", "for all", "given up"])
@pytest.mark.parametrize("name", [PRICED, "echo-1"])
def test_what_a_row_took_is_counted_where_its_second_question_fails(monkeypatch, name, ends):
    model = AnswersOnce(lambda prompt: '{"value": 1}' if prompt == "fits" else "", name=name)
    ask = ModelAsker.ask

    async def fail():
        if ends == "given up":
            await asyncio.Event().wait()
        raise Fault("The server is down.", reason="status 500")

    async def ask_or_end(self, question):
        answer = await ask(self, question)
        if ends == "for all" and answer.error:
            raise FatalError("The key is wrong.")
        return answer

    def stop(job):
        if ends == "given up":
            wait_until(lambda: model.asked["row 0"] == 2)
            agent.session.engine.post(job.stop)

    model.fail = fail
    monkeypatch.setattr(ModelAsker, "ask", ask_or_end)
    monkeypatch.setattr("agent_magics.rows.job.GRACE", 0.0)
    with Agent(model) as agent:
        given = ["fits", "row 0"]
        mapping = agent.mapping("{{text}}", given, output=int, options={"concurrency": 1})
        done = mapping.wait_sync(When([0], stop))
    assert list(done.frame["error"].isna()) == [True, False]
    assert list(done.frame["tokens"]) == [INPUT + OUTPUT] * 2
    if name == PRICED:
        assert list(done.frame["cost"]) == pytest.approx([0.0011] * 2)
        assert done.cost == pytest.approx(0.0022)
    else:
        assert done.cost is None and done.frame["cost"].isna().all()
    assert ("and what 1 request under way took, in" in done.report()) == (ends == "given up")


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_ends_no_map_and_asks_nothing_again(monkeypatch, tmp_path, jump):
    clock, moved = time.time, 0.0

    def moving(row):
        nonlocal moved
        moved = jump
        return row

    monkeypatch.setattr(time, "time", lambda: clock() + moved)
    options = {"cache": tmp_path / "a", "name": "jumps", "deadline": 600}
    with (
        RowServer() as server,
        Agent("gpt-4o-mini", base_url=server.base_url, api_key="sk-x") as agent,
    ):
        first = agent.map_sync(moving, rows(100), **options)
        moved = 0.0
        again = agent.map_sync(moving, rows(100), **options)
    assert not (first.stopped or again.stopped or again.progress.asked)
    assert list(first.frame["answer"]) == list(again.frame["answer"]) == rows(100)


def test_it_stops_where_nothing_works():
    def broken(_):
        raise Fault("The key is wrong.")

    model = Echo(broken)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", rows(2000))
    assert sum(model.asked.values()) < 300
    assert "all failed (The key is wrong.)" in done.stopped
    assert done.frame["error"].notna().all()
    assert "not asked" in done.frame["error"].iloc[-1]
    # What was not asked is no error of its row, neither in the counts nor in what is reported.
    progress, asked = done.progress, sum(model.asked.values())
    assert (progress.done, progress.failed) == (asked, asked)
    assert "not asked" not in progress.kinds()
    assert f"0 of 2,000 rows have an answer; {asked} failed, {2000 - asked:,} were not asked." in (
        done.report()
    )
    assert done.retry().progress.rows == 2000


@pytest.mark.parametrize(
    ("budget", "most"),
    [({"max_tokens": 12_000}, 100), ({"max_cost": 0.011}, 10), ({"max_errors": 5}, 70)],
    ids=["tokens", "cost", "errors"],
)
def test_a_budget_ends_it_with_what_there_is(budget, most):
    def moody(prompt):
        if "max_errors" in budget and int(prompt.split()[1]) % 2:
            raise Fault("No.")
        return prompt

    model = Echo(moody, name=PRICED)
    with Agent(model) as agent:
        done = agent.map_sync("{{text}}", rows(600), ask_above=None, **budget)
    assert 0 < sum(model.asked.values()) <= most
    assert next(iter(budget)) in done.stopped
    assert len(done.frame) == 600
    assert done.frame["answer"].notna().sum() == done.progress.answered


def test_a_deadline_ends_it():
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", rows(3000), deadline=1e-6)
    assert "deadline" in done.stopped
    assert len(done.frame) == 3000


def test_the_first_rows_take_time_of_the_deadline_and_nothing_is_asked_after_it():
    opened = []

    def source():
        opened.append(time.monotonic())
        yield from rows(5)

    model = Echo()
    with Agent(model) as agent:
        mapping = agent.mapping("{{text}}", source(), output=None, options={"deadline": 1e-6})
        done = mapping.wait_sync()
    assert mapping._planned.plan.budgets.began <= opened[0]
    assert "deadline" in done.stopped and not model.asked


def test_a_limit_of_requests_is_kept():
    model = Echo()
    with Agent(model) as agent:
        agent.map_sync("{{text}}", rows(100), concurrency=3)
    assert model.most <= 3


def test_the_person_is_asked_above_a_cost():
    asked = []

    def decide(question):
        asked.append(question.target)
        return "approve"

    model = Echo(name=PRICED)
    with Agent(model, on_question=decide) as agent:
        done = agent.map_sync("{{text}}", rows(400), ask_above=0.1)
    (question,) = asked
    assert "400 rows will cost about 0.44 USD" in question
    assert done.cost == pytest.approx(0.44) and not done.stopped


@pytest.mark.parametrize("decision", ["deny", "abort"])
def test_the_sample_alone_is_kept(decision):
    model = Echo(name=PRICED)
    with Agent(model, on_question=lambda question: decision) as agent:
        done = agent.map_sync("{{text}}", rows(400), ask_above=0.1)
    assert sum(model.asked.values()) == 50
    assert done.frame["answer"].notna().sum() == 50


@pytest.mark.parametrize("given", [{}, {"approval": "never"}], ids=["nobody", "never"])
def test_above_it_nobody_is_asked_in_one_sentence(given):
    model = Echo(name=PRICED)
    with Agent(model, **given) as agent:
        done = agent.map_sync("{{text}}", rows(400), ask_above=0.1)
    assert sum(model.asked.values()) == 50
    assert "above the 0.1 USD of ask_above, and " in done.stopped


def test_a_model_of_unknown_price_asks_nothing():
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", rows(400), ask_above=1e-9)
    assert not done.stopped and done.cost is None


@pytest.mark.soak
def test_into_writes_parts(tmp_path):
    model = Echo(say)
    with Agent(model) as agent:
        done = agent.map_sync(
            "{{text}}", (row for row in rows(20_500)), output=Complaint, into=tmp_path / "out"
        )
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert names == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert table.column_names == ["row", "kind", "urgent", "error", "tokens", "cost"]
    assert table["row"].to_pylist() == list(range(20_500))
    assert table["kind"].to_pylist() == rows(20_500)
    assert len(done.frame) == 20_500


@pytest.mark.parametrize("ends", ["stop", "deadline", "disk"])
def test_a_map_that_waits_for_room_can_be_ended(tmp_path, monkeypatch, ends):
    """The rows that are read make no part whole, so that there is never room for more."""
    monkeypatch.setattr(outcomes, "MOST_HELD", 5)

    def end(job):
        if ends == "stop":
            agent.session.engine.post(job.stop)
        elif ends == "disk":
            job._sink._problem = FatalError("The disk is full.")
            agent.session.engine.post(job._sink.freed.set)

    with Agent(Echo()) as agent:
        options = {"into": tmp_path, "deadline": 4 if ends == "deadline" else 600}
        mapping = agent.mapping("{{text}}", iter(rows(5_000)), output=None, options=options)
        ended = asyncio.wait_for(mapping.wait(When([500], end)), PATIENCE)
        if ends == "disk":
            with pytest.raises(FatalError, match="disk is full"):
                asyncio.run(ended)
            return
        done = asyncio.run(ended)
    assert done.stopped and 0 < done.progress.done <= len(done.frame) < 5_000


# Names of folders, and of another one that each names where it is taken for a pattern.
NAMES = {
    **dict.fromkeys(["model=x", "answer=1", "row=a", "year=2024/cost=0", "a b", "ä"], "other"),
    "run[1]": "run1",
    "[!a]/x": "b/x",
    "a*": "ab",
    "a?/b": "ax/b",
    "**/x": "deep/x",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["{folder}/{name}", "memory://{folder}/{name}"])
def test_the_answers_are_the_same_in_a_folder_of_any_name(tmp_path, place, name):
    into, other = (place.format(folder=tmp_path, name=each) for each in (name, NAMES[name]))
    with Agent(Echo()) as agent:
        plain = agent.map_sync("{{text}}", rows(3), into=tmp_path / "out").frame
        agent.map_sync("Other: {{text}}", ["a"], into=other)
        done = agent.map_sync("{{text}}", rows(3), into=into)
        pd.testing.assert_frame_equal(done.frame, plain)
        with pytest.raises(FatalError, match="answers of another map"):
            agent.map_sync("Another: {{text}}", ["z"], into=into)


def test_parts_of_another_map_are_not_written_over(tmp_path):
    with Agent(Echo()) as agent:
        agent.map_sync("{{text}}", ["a"], into=tmp_path)
        agent.map_sync("{{text}}", ["b"], into=tmp_path)
        with pytest.raises(FatalError, match="answers of another map"):
            agent.map_sync("{{text}}", ["a"], output=int, into=tmp_path)
        with pytest.raises(FatalError, match="answers of another map"):
            agent.map_sync("Again: {{text}}", ["a"], into=tmp_path)
        agent.map_sync(lambda row: f"Translate {row}", ["a"], into=tmp_path / "by code")
        with pytest.raises(FatalError, match="answers of another map"):
            agent.map_sync(lambda row: f"Explain {row}", ["a"], into=tmp_path / "by code")


@pytest.mark.soak
def test_a_map_that_ended_early_shows_its_own_parts_alone(tmp_path):
    (tmp_path / "part-00001-of-mine.parquet").write_text("no part")
    with Agent(Echo()) as agent:
        agent.map_sync("{{text}}", rows(PART + 5), into=tmp_path)
        other = [f"other {row}" for row in rows(PART + 5)]
        done = agent.map_sync("{{text}}", other, into=tmp_path, max_tokens=1)
    assert done.stopped and len(done.frame) < PART
    assert done.frame["answer"].dropna().str.startswith("other").all()
    assert len(list(tmp_path.iterdir())) == 3


def test_rows_that_raise_end_it_in_one_sentence(tmp_path):
    def source():
        yield from rows(600)
        raise RuntimeError("the line is down.")

    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", source(), into=tmp_path)
    assert "rows could not be read further: RuntimeError: the line is down" in done.stopped
    assert ".." not in done.report()
    assert list(done.frame["answer"]) == rows(600)


def test_code_of_the_caller_that_exits_is_the_rows_error():
    class Exits(BaseModel):
        kind: str

        @field_validator("kind")
        @classmethod
        def check(cls, kind):
            return kind if kind == "a" else sys.exit(3)

    with Agent(Echo(lambda prompt: json.dumps({"kind": prompt}))) as agent:
        asked = agent.map_sync(lambda row: sys.exit(row), ["a"])
        checked = agent.map_sync("{{text}}", ["a", "b"], output=Exits)
        after = agent.map_sync("{{text}}", ["a"], output=Exits)
    assert "SystemExit: a" in asked.frame["error"][0]
    assert list(checked.frame["kind"].isna()) == [False, True]
    assert "failed itself (SystemExit: 3)" in checked.frame["error"][1]
    assert list(after.frame["kind"]) == ["a"]


def test_a_field_named_as_the_number_of_rows_is_refused(tmp_path):
    @dataclass
    class Seat:
        row: int

    with Agent(Echo()) as agent, pytest.raises(FatalError, match="rename the field"):
        agent.map_sync("{{text}}", ["a"], output=Seat, into=tmp_path / "out")


@pytest.mark.soak
def test_a_part_that_cannot_be_written_is_told_whatever_the_reason(tmp_path, monkeypatch):
    def fails(*_):
        raise pyarrow.ArrowInvalid("it does not fit")

    monkeypatch.setattr(PartFiles, "write", fails)
    with Agent(Echo()) as agent, pytest.raises(FatalError, match=r"cannot be written .*not fit"):
        agent.map_sync("{{text}}", rows(PART + 5), into=tmp_path / "out", cache=False)


@pytest.mark.parametrize("into", [None, "out"])
def test_an_error_that_quotes_half_a_character_spoils_no_table(into):
    def refuse(row):
        raise ValueError(f"{row} is odd")

    with Agent(Echo()) as agent:
        done = agent.map_sync(refuse, ["x\ud800"], into=into)
    assert done.frame["error"][0].endswith("ValueError: x\\ud800 is odd")
    assert done.report().encode()


def test_rows_that_do_not_come_hold_back_no_stop(tmp_path):
    gate, reader = threading.Event(), []

    def source():
        yield from rows(500)
        reader.append(threading.current_thread())
        gate.wait()
        yield "late"

    with Agent(Echo()) as agent:
        mapping = agent.mapping("{{text}}", source(), output=None, options={"into": tmp_path})
        stop = When([500], lambda job: agent.session.engine.post(job.stop))
        try:
            done = asyncio.run(asyncio.wait_for(mapping.wait(stop), PATIENCE))
        finally:
            gate.set()
    assert done.stopped and list(done.frame["answer"]) == rows(500)
    # Python waits for neither when it exits.
    assert reader[0].daemon and reader[0] not in concurrent.futures.thread._threads_queues


@pytest.mark.parametrize("code", ["row", "prompt"])
@pytest.mark.parametrize("at", [0, 50, 1_200], ids=["sample", "quote", "rest"])
def test_code_of_rows_holds_back_no_stop_wherever_it_runs(code, at):
    """It runs 50 times for the sample, for each other row for the quote, and then for all rows."""
    gate, waits, ran = threading.Event(), threading.Event(), Counter()
    readers, given = set(), rows(1_200)

    def run(name):
        if threading.current_thread() is threading.main_thread():  # which reads the columns
            return
        readers.add(threading.current_thread())
        ran[name] += 1
        if name == code and ran[name] > at:
            waits.set()
            gate.wait()

    class Rows(Sequence):
        def __len__(self):
            return 1_200

        def __getitem__(self, place):
            run("row")
            return given[place]

    def prompt(row):
        run("prompt")
        return row if not waits.is_set() else None  # so that the store ends no further batch

    with Agent(Echo(name=PRICED), on_question=lambda question: "approve") as agent:
        mapping = agent.mapping(prompt, Rows(), options={"ask_above": 1e-9})
        stop = When([lambda job: waits.is_set()], lambda job: agent.session.engine.post(job.stop))
        try:
            done = asyncio.run(asyncio.wait_for(mapping.wait(stop), PATIENCE))
        finally:
            gate.set()
    assert done.stopped and done.progress.answered == min(at, 50)
    for reader in readers:
        reader.join()
    assert ran[code] <= at + BATCH
    # Python waits for none of them when it exits, and none is the engine's.
    assert all(each.daemon and each.name == "agent-rows-read" for each in readers)
    assert not readers & set(concurrent.futures.thread._threads_queues)


def test_what_was_sorted_since_is_asked_again_in_its_row():
    given = ["b", "c", "a"]
    frame = pd.DataFrame({"text": given})

    def fails_once(prompt):
        if prompt == "b" and model.asked[prompt] == 1:
            raise Fault("Not now.")
        return prompt

    for table, change in (
        (frame, lambda: frame.insert(0, "first", 1)),
        (frame, lambda: frame.__setitem__("text", sorted(given))),
        (given, given.sort),
        (of_many := deque(given), of_many.rotate),
        (of_text := UserList(given), lambda: of_text.pop(0)),
    ):
        model = Echo(fails_once)
        with Agent(model) as agent:
            order = list(table["text"] if table is frame else table)
            done = agent.map_sync("{{text}}", table)
            assert len(done.failed) == 1
            change()
            assert list(done.retry().frame["answer"]) == order


def test_numbers_that_no_table_holds_are_left_out(tmp_path):
    with Agent(Echo(lambda prompt: f'{{"value": [1, {1 << 70}]}}')) as agent:
        agent.map_sync("{{text}}", ["a"], output=list[int], into=tmp_path / "out")
    assert pyarrow.parquet.read_table(tmp_path / "out")["answer"].to_pylist() == [[1, None]]


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": np.int64(1), "max_tokens": np.int64(10_000)},
        {"max_cost": np.float32(5), "max_errors": np.float32(0.5)},
        {"deadline": np.int64(60), "ask_above": np.int64(5)},
        {"tools": True, "requests": np.int64(4)},
    ],
)
def test_options_may_be_numbers_of_numpy(options):
    with Agent(Echo()) as agent:
        assert len(agent.map_sync("{{text}}", ["a"], **options).failed) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nope": 1}, "no option 'nope'; there are: output"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": 1 << 40}, "from 1 to 10,000"),
        ({"concurrency": True}, "concurrency=True"),
        ({"ask_above": "1"}, "ask_above='1': it takes USD from 0"),
        ({"max_cost": -1}, "max_cost=-1"),
        ({"into": ""}, "into='': it takes a folder or a URL"),
        ({"into": "a\0"}, "cannot be written"),
        ({"into": "nosuch://x"}, r"cannot be written \(ValueError: Protocol not known: nosuch\)"),
        ({"output": 3}, "output=3 is no type"),
    ],
)
def test_bad_options_are_one_sentence(options, words):
    model = Echo()
    with Agent(model) as agent, pytest.raises(FatalError, match=words):
        agent.map_sync("{{text}}", ["a"], **options)
    assert not model.asked
