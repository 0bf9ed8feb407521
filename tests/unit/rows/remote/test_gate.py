"""When requests are sent: laws of rates and pauses, on a loop whose time jumps."""

import asyncio

import pytest
from aiohttp import web

from agent_magics.models.transport import Reply
from agent_magics.rows.remote import gate as gates
from agent_magics.rows.remote.client import OpenServer
from agent_magics.rows.remote.gate import Gate
from agent_magics.rows.remote.limits import Knowledge
from tests.support.models import row_server
from tests.support.models.row_server import Program, Settings
from tests.support.rows.virtual_loop import Clock, run_at_once

LATENCY = 0.2
A_SECOND = 500 / 60


@pytest.fixture(autouse=True)
def _jumping_time(monkeypatch):
    monkeypatch.setattr(gates, "time", Clock)
    monkeypatch.setattr(row_server, "time", Clock)


class InMemory:
    """What kernels share of a server's limits, without a file."""

    minute = 60.0

    def __init__(self):
        self.known = Knowledge()

    async def share(self, report):
        return self.known.update(report, asyncio.get_running_loop().time(), self.minute)


class Play:
    """Kernels that send requests to one server; all times are of the loop.

    Attributes:
        sent: when each request was sent.
        answered: by kernel, when each was answered.
        refused: from when to when each refusal forbade requests.
    """

    def __init__(self, *, kernels=1, most=500, **settings):
        self.settings, self.kernels, self.most = settings, kernels, most
        self.sent, self.answered, self.refused = [], [[] for _ in range(kernels)], []

    def run(self, count):
        run_at_once(self._run(count))
        return self

    async def _run(self, count):
        self.program = Program(Settings(**self.settings))
        limits = InMemory()
        gates_of = [Gate(self.most, limits) for _ in range(self.kernels)]
        for number, gate in enumerate(gates_of):
            await self._ask(OpenServer(None, gate, None, None), number)
        await asyncio.gather(
            *(
                self._ask(OpenServer(None, gate, None, None), number)
                for number, gate in enumerate(gates_of)
                for _ in range(count)
            )
        )
        for gate in gates_of:
            await gate.close()

    async def _ask(self, server, number):
        again = False
        while True:
            await server.gate.enter(again=again)
            self.sent.append(Clock.monotonic())
            await asyncio.sleep(LATENCY / 2)
            program = self.program
            program.retry_after = wait = program.bucket.wait()
            answer = program.refusal(429) if wait else web.Response(headers=program.headers())
            await asyncio.sleep(LATENCY / 2)
            server.report(Reply(answer.status, answer.headers, b""))
            if not wait:
                self.answered[number].append(Clock.monotonic())
                return
            pause = int(answer.headers["retry-after-ms"]) / 1000
            self.refused.append((Clock.monotonic(), Clock.monotonic() + pause))
            again = True


def goodput(times):
    """Return the answers a second after the first minute."""
    late = [at for at in sorted(times) if at > min(times) + 60]
    return (len(late) - 1) / (late[-1] - late[0])


@pytest.mark.soak
@pytest.mark.parametrize("states", [True, False], ids=["stated", "measured"])
def test_the_rate_of_a_server_is_used_up_and_kept(states):
    play = Play(rate=500, burst=50, states=states).run(4000)
    assert goodput(play.answered[0]) == pytest.approx(A_SECOND, rel=0.05)
    # The headers do not state the burst: what is saved up until the first report may exceed it.
    assert len(play.refused) <= (1 if states else 200)


def test_nothing_is_sent_while_a_server_refuses():
    # A refusal that forbids two seconds, in which many reports ask for more.
    play = Play(rate=30, burst=20).run(60)
    assert max(end - begin for begin, end in play.refused) > 1
    for begin, end in play.refused:
        assert not [at for at in play.sent if begin < at < end - 0.001]


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({}, 1e9),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "99999h"}, None),
    ],
)
def test_a_server_that_refuses_for_years_is_asked_again_within_minutes(headers, asked):
    async def wait() -> float:
        gate = Gate(1, InMemory())
        await gate.enter()
        gate.refuse(headers, asked)
        began = Clock.monotonic()
        await gate.enter(again=True)
        await gate.close()
        return Clock.monotonic() - began

    assert 60 < run_at_once(wait()) <= 121


@pytest.mark.soak
def test_kernels_share_a_rate():
    play = Play(rate=500, burst=50, states=True, kernels=2).run(2000)
    both = [at for times in play.answered for at in times]
    assert goodput(both) == pytest.approx(A_SECOND, rel=0.05)
    assert len(both) == 4002 and not play.refused


@pytest.mark.soak
@pytest.mark.parametrize("states", [True, False], ids=["stated", "measured"])
def test_each_kernel_gets_its_share_of_a_rate(states):
    """Also the one whose reports come just after those of another."""
    play = Play(rate=500, burst=1, states=states, kernels=3).run(600)
    all_done = min(max(times) for times in play.answered)  # until then all of them wanted more
    shares = [sum(at <= all_done for at in times) for times in play.answered]
    assert min(shares) >= 0.7 * max(shares)


class Broken:
    """Limits that cannot be shared."""

    minute = 60.0

    async def share(self, report):
        raise ValueError


@pytest.mark.parametrize("steps", range(5))
def test_a_request_that_is_cancelled_as_the_gate_breaks_was_not_let_through(steps):
    async def run():
        gate = Gate(1, Broken())
        entering = asyncio.create_task(gate.enter())
        for _ in range(steps):
            await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait({entering})
        return gate.in_flight

    assert asyncio.run(run()) == 0
