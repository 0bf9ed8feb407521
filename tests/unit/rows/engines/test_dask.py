"""A map on a Dask cluster of two processes."""

import asyncio
import os
import pickle
import signal
import threading
from dataclasses import dataclass

import distributed
import pandas as pd
import pytest
from distributed.security import Security

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.engines.dask import DaskEngine
from agent_magics.rows.engines.link import Link
from agent_magics.rows.engines.worker import Invitation
from agent_magics.rows.remote.limits import read_knowledge
from tests.support.models.responses_server import Reply, ResponsesServer, function_call
from tests.support.models.row_server import RowServer
from tests.support.rows.clusters import cluster, mortal_workers
from tests.support.rows.watchers import When, wait_until
from tests.support.turns import PATIENCE

KEY = "sk-canary-4711-never-shown"
MODEL = "gpt-4o-mini"
pytestmark = pytest.mark.soak


@dataclass
class Said:
    text: str
    long: bool


def agent_for(server, **given):
    return Agent(base_url=server.base_url, api_key=KEY, model=MODEL, **given)


def run(agent, given, engine, watcher, **options):
    """Run a map that `watcher` sees."""
    options = {"engine": engine, "ask_above": None, **options}
    return agent.mapping("{{text}}", given, output=None, options=options).wait_sync(watcher)


def rows(number):
    return [f"row {n}" for n in range(number)]


def test_the_answers_are_those_of_one_process(client):
    given = pd.DataFrame({"text": [*rows(400), None, *rows(99)]}, index=range(7, 507))
    frames = []
    for engine in (None, client):
        with RowServer() as server, agent_for(server) as agent:
            done = agent.map_sync(
                "Say {{text}}", given, output=Said, engine=engine, cache=False, ask_above=None
            )
            asked = server.prompts()
        frames.append(done.frame)
        assert set(asked.values()) == {1} and len(asked) == 400
        assert done.progress.cost == pytest.approx(400 * done.frame["cost"].max())
    pd.testing.assert_frame_equal(*frames)


def test_both_workers_ask(client):
    workers, states = [], []

    def wait(job):
        wait_until(lambda: len(asking(job)) == 2)
        workers.extend(asking(job))
        states.append(job.state())
        server.answer_more()

    with RowServer(holds=1) as server, agent_for(server) as agent:
        run(agent, rows(100), client, When([1], wait), concurrency=20)
    assert "requests at once by 2 workers" in states[0]
    # Each was given half of what is asked at once before the other could take it.
    assert [worker.answered >= 10 for worker in workers] == [True, True]


def test_no_row_is_lost_with_its_worker():
    check_kills(kills=2, number=500)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_row_is_lost_with_thirty_workers():
    check_kills(kills=30, number=3000)


def check_kills(kills, number):
    """Kill workers while they ask; each row has its answer, and few were asked twice."""
    at_once, killed = 16, []
    part = number // (2 * kills)

    def kill(job):
        """Kill a worker that asks; the server answers nothing more until it is gone."""
        wait_until(lambda: asking(job))
        before = list(job.asker._workers)
        kill_worker()
        wait_until(lambda: job.asker._workers != before)
        killed.append(1)
        # The killed one's requests take some of these with them.
        server.answer_more(part + at_once if len(killed) < kills else 2 * number)

    with (
        cluster(0) as client,
        mortal_workers(client) as kill_worker,
        RowServer(holds=part) as server,
        agent_for(server) as agent,
    ):
        when = When([part * n for n in range(1, kills + 1)], kill)
        done = run(agent, rows(number), client, when, concurrency=at_once)
        asked = server.prompts()
    assert list(done.frame["answer"]) == rows(number)
    assert len(killed) == kills
    # Each of the two has half of the requests, and one that is alone for a while all.
    assert sum(times - 1 for times in asked.values()) <= kills * at_once


def test_a_worker_whose_connection_breaks_gets_another_seat(client):
    def cut(job):
        wait_until(lambda: len(asking(job)) == 2)
        seats = {worker.seat for worker in asking(job)}
        agent.session.engine.post(asking(job)[0].link.close)
        wait_until(lambda: {worker.seat for worker in list(job.asker._workers)} - seats)
        server.answer_more()

    with RowServer(holds=1) as server, agent_for(server) as agent:
        done = run(agent, rows(100), client, When([1], cut), concurrency=20)
    assert list(done.frame["answer"]) == rows(100)


def asking(job):
    """Return the workers that have questions."""
    return [worker for worker in job.asker._workers if worker.held]


def of_scheduler(dask_scheduler):
    """Return the names of all tasks, and what the scheduler would show or keep."""
    tasks = dask_scheduler.tasks.values()
    specs = [pickle.dumps(task.run_spec) for task in tasks]
    kept = [dask_scheduler.get_logs(), dask_scheduler.transition_log, dask_scheduler.get_events()]
    return [str(task.key) for task in tasks], str([*kept, specs])


def of_worker(dask_worker):
    """Return the names of all tasks, and what a worker would show or keep."""
    tasks = dask_worker.state.tasks
    specs = [pickle.dumps(task.run_spec) for task in tasks.values()]
    story = dask_worker.state.story(*tasks)
    return [str(key) for key in tasks], str([*dask_worker.get_logs(), *specs, *story])


def test_the_key_is_in_no_task_and_no_log(client):
    found = []

    def look(_=None):
        found.append([client.run_on_scheduler(of_scheduler), *client.run(of_worker).values()])

    def look_and_go_on(_):
        look()
        server.answer_more()

    with RowServer(holds=50, key=KEY) as server, agent_for(server) as agent:
        run(agent, rows(300), client, When([50], look_and_go_on), concurrency=20)
    look()
    assert sum("agent.map gpt-4o-mini" in name for name in found[0][0][0]) == 2
    shown = [text for place in found for _, text in place]
    assert len(shown) == 6 and all("canary" not in text for text in shown)
    # What is looked at does hold the tasks.
    assert "Invitation" in shown[0] and "Invitation" in shown[1]


def test_a_sub_agent_works_in_a_worker_that_has_the_key_in_memory_only(client):
    found, asked = [], []

    def where() -> int:
        """Tell which process this is."""
        return os.getpid()

    def look(question):
        asked.append(question)
        found.append([client.run_on_scheduler(of_scheduler), *client.run(of_worker).values()])
        return "approve"

    calls = Reply([function_call("where", {})])
    given = {"approval": "untrusted", "on_question": look, "wire_api": "responses"}
    with (
        ResponsesServer([calls, "Done."], api_key=KEY) as server,
        agent_for(server, tools=[where], **given) as agent,
    ):
        result = agent.spawn("Work.", "worker", engine=client).result(PATIENCE)
        spent = agent.session.conversation.spending
    assert result.text == "Done.", result.error
    assert int(result.calls[0].output) in client.run(os.getpid).values()
    assert asked[0].reason.startswith("default/worker-1 asks: ")
    assert (spent.requests, spent.cost) == (2, pytest.approx(result.cost))
    assert any("agent.spawn default/worker-1" in name for name in found[0][0][0])
    shown = [text for _, text in found[0]]
    assert len(shown) == 3 and all("canary" not in text for text in shown)
    wait_until(lambda: not sub_agents(client))


def test_a_sub_agent_whose_worker_is_killed_has_failed_and_begins_nowhere_again(client):
    held = Reply("Late.", pause_after=1)
    with (
        ResponsesServer([held]) as server,
        agent_for(server, wire_api="responses") as agent,
    ):
        child = agent.spawn("Work.", engine=client)
        wait_until(lambda: server.requests)
        worker = next(address for address, keys in client.processing().items() if keys)
        os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
        result = child.result(PATIENCE)
        assert (result.status, child.status) == ("failed", "failed")
        assert "The worker it was in has ended" in result.error
        assert agent.sub_agents._places._value == 4
        wait_until(lambda: not sub_agents(client))
        assert len(server.requests) == 1
    client.wait_for_workers(2)


def sub_agents(client):
    """Return the names of the tasks of sub-agents that the cluster has."""
    return [name for name in client.run_on_scheduler(of_scheduler)[0] if "agent.spawn" in name]


def test_a_budget_is_one_for_all_workers(client):
    with RowServer() as server, agent_for(server) as agent:
        done = agent.map_sync("{{text}}", rows(2000), engine=client, max_tokens=3000)
        assert sum(server.prompts().values()) <= 100
    assert "max_tokens=3000 is reached" in done.stopped
    assert done.frame["answer"].notna().sum() == done.progress.answered > 50


def test_a_rate_is_one_for_all_workers(client, tmp_path):
    with RowServer(rate=60_000, states=True) as server, agent_for(server) as agent:
        done = agent.map_sync("{{text}}", rows(300), engine=client, ask_above=None)
    assert not len(done.failed)
    # Workers have other files of limits, and the kernel asked nothing: they reported to it.
    (file,) = tmp_path.rglob("limits/*.json")
    assert read_knowledge(file.read_bytes()).request_limit == 60_000


def test_what_was_answered_is_not_asked_again(client):
    with RowServer() as server, agent_for(server) as agent:
        agent.map_sync("{{text}}", rows(100), ask_above=None)
        again = agent.map_sync("{{text}}", rows(150), engine=client, ask_above=None)
        assert set(server.prompts().values()) == {1}
    assert again.progress.kept == 100 and not len(again.failed)


def test_a_wrong_key_ends_it_in_one_sentence(client):
    with RowServer(key="another") as server, agent_for(server) as agent:
        with pytest.raises(FatalError, match="401") as raised:
            agent.map_sync("{{text}}", rows(100), engine=client)
        assert len(server.log()) <= 4
    assert KEY not in str(raised.value)


def test_stop_keeps_what_there_is(client):
    def stop(job):
        agent.session.engine.post(job.stop)
        server.answer_more()

    with RowServer(holds=100) as server, agent_for(server) as agent:
        done = run(agent, rows(3000), client, When([100], stop), concurrency=20)
    assert done.stopped == "you stopped it"
    # In flight, and ahead of that.
    assert 100 <= done.frame["answer"].notna().sum() <= 100 + 2 * 20
    assert not any(client.processing().values())


def test_a_look_that_the_end_of_its_map_overtakes_starts_nothing(client):
    engine, looks, is_over = DaskEngine(client, "a late look"), threading.Event(), threading.Event()

    def invite():
        looks.set()
        assert is_over.wait(PATIENCE)
        return Invitation("tcp://127.0.0.1:9", 1, "token")

    async def end_meanwhile():
        seating = asyncio.create_task(engine.seat(invite, None))
        assert await asyncio.to_thread(looks.wait, PATIENCE)
        seating.cancel()
        await engine.close()
        is_over.set()

    asyncio.run(end_meanwhile())  # ends when the look has
    assert not [key for key in client.futures if "a late look" in str(key)]


def test_a_client_that_is_closed_is_one_sentence(client):
    own = distributed.Client(client.scheduler.address)
    engine = DaskEngine(own, "a closed client")
    own.close()
    with pytest.raises(FatalError, match="closed, or has lost its scheduler"):
        asyncio.run(engine.seat(None, None))
    with pytest.raises(FatalError, match="closed, or has lost its scheduler"):
        engine.workers()


def test_an_asynchronous_client_is_an_engine_too(client):
    async def run(server):
        async with distributed.Client(client.scheduler.address, asynchronous=True) as own:
            with agent_for(server) as agent:
                return await agent.map("{{text}}", rows(20), engine=own)

    with RowServer() as server:
        done = asyncio.run(run(server))
    assert list(done.frame["answer"]) == rows(20)


def test_its_executor_stands_for_the_client(client):
    with RowServer() as server, agent_for(server) as agent:
        done = agent.map_sync("{{text}}", rows(20), engine=client.get_executor())
    assert list(done.frame["answer"]) == rows(20)


def test_encrypted_clusters_are_spoken_with_encrypted():
    places = []
    secure = cluster(1, security=Security.temporary())
    with secure as client, RowServer() as server, agent_for(server) as agent:
        done = run(agent, rows(20), client, When([0], lambda job: places.append(place(job))))
    assert list(done.frame["answer"]) == rows(20)
    assert places[0].startswith("tls://")


def test_workers_are_told_apart_from_strangers(client):
    """A connection without the token gets nothing, and holds nothing up."""
    heard = []

    async def knock(place):
        host, _, port = place.removeprefix("tcp://").rpartition(":")
        link = Link(*await asyncio.open_connection(host, int(port)))
        link.send("hello", "guessed", 1, "0.1.0")
        try:
            heard.append(await link.read())
        except EOFError:
            heard.append("nothing")
        await link.end()

    def knock_and_go_on(job):
        asyncio.run(knock(place(job)))
        server.answer_more()

    with RowServer(holds=20) as server, agent_for(server) as agent:
        done = run(agent, rows(100), client, When([20], knock_and_go_on), concurrency=10)
    assert heard == ["nothing"] and not len(done.failed)


def place(job):
    """Return where the workers of a map connect."""
    return job.asker.place


def test_a_worker_that_does_not_answer_holds_up_no_look(client):
    """Its seat has ended, and what the seat said cannot be had: as from one that has just died."""
    address, pid = next(iter(client.run(os.getpid).items()))
    engine = DaskEngine(client, "a look")
    seat = client.submit(str, workers=[address], pure=False)
    distributed.wait(seat)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert not engine._has_ended(seat)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: engine._has_ended(seat))
