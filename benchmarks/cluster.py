"""Measures `agent.map(engine=...)` against one process, and what its coordinator costs.

    python benchmarks/cluster.py frames    # 20,000 rows: the same table as from one process
    python benchmarks/cluster.py overhead  # CPU a row, all processes, against one process, and
                                           # against two processes that know nothing of each other
    python benchmarks/cluster.py speed     # answers after 1 s, 64 requests at once for each process
    python benchmarks/cluster.py leases    # grants, messages, questions a second of the coordinator

Two processes of a Dask cluster on this machine ask a server of another process. Figures are of one
run each, so compare them within a run only.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROWS = 20_000
# For `speed`: so few that the server is the limit, also on a busy machine.
FEW_ROWS, AT_ONCE, SLOW = 4000, 64, 1.0
PROMPT = "Which complaint is this? Answer with one JSON object.\n\n{{text}}"


@contextmanager
def two_workers() -> Iterator[object]:
    """Run a cluster of two processes; yield its client."""
    import distributed  # noqa: PLC0415 - heavy

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def far_server(delay: float) -> Iterator[str]:
    """Run the server that answers after `delay` seconds; yield its address."""
    command = [sys.executable, str(HERE / "row_server.py"), str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


def texts(count: int, begin: str = "") -> list[str]:
    """Return rows of some 400 characters."""
    long = "the parcel came late and the box was open. " * 9
    return [f"{begin}Order {number}: {long}" for number in range(count)]


def run(agent: object, rows: list[str], client: object, at_once: int) -> tuple[float, ...]:
    """Map rows; return rows a second and milliseconds of CPU a row, of all and of this process."""
    own, cpu, began = time.process_time(), used(client), time.perf_counter()
    done = agent.map_sync(PROMPT, rows, engine=client, concurrency=at_once, ask_above=None)
    wall, cpu = time.perf_counter() - began, used(client) - cpu
    own = time.process_time() - own
    assert not len(done.failed), done.report()
    return len(rows) / wall, cpu / len(rows) * 1e3, own / len(rows) * 1e3


def used(client: object) -> float:
    """Return the seconds of CPU of this process and of the workers."""
    of_workers = client.run(time.process_time).values() if client is not None else ()
    return time.process_time() + sum(of_workers)


def idle(client: object, seconds: float = 5.0) -> float:
    """Return the share of a processor that the workers take while they have nothing to do."""
    before = used(client)
    time.sleep(seconds)
    return (used(client) - before) / seconds


def compare(at_once: tuple[int, int], rows: int, delay: float = 0.2) -> dict[str, float]:
    """Run the rows in one process and on two workers, with so many requests at once."""
    figures = {}
    with two_workers() as client, far_server(delay) as address:
        for name, engine, most in (("one", None, at_once[0]), ("two", client, at_once[1])):
            rate, cpu, own = run_warm(address, name, rows, most, engine)
            figures |= {f"{name}_rows_s": rate, f"{name}_cpu_ms": cpu, f"{name}_kernel_ms": own}
        figures["idle_share"] = idle(client)
    return figures


def run_warm(
    address: str, name: str, rows: int, at_once: int, client: object = None
) -> tuple[float, ...]:
    """Map rows after a tenth as many others; see `run`."""
    from agent_magics import Agent  # noqa: PLC0415 - after the home is set

    with Agent(base_url=address, api_key="x", model="gpt-4o-mini") as agent:
        run(agent, texts(rows // 10, f"{name} warm "), client, at_once)
        return run(agent, texts(rows, name), client, at_once)


def apart(rows: int, at_once: int, count: int = 2) -> float:
    """Return milliseconds of CPU a row of processes that run a part of the rows each, at once."""
    with far_server(0.2) as address, ProcessPoolExecutor(count, get_context("spawn")) as pool:
        given = [(address, f"part {n}", rows // count, at_once // count) for n in range(count)]
        return sum(cpu for _, cpu, _ in pool.map(run_warm, *zip(*given, strict=True))) / count


def overhead(rows: int = ROWS) -> dict[str, float]:
    """Compare the CPU a row.

    ``net_ratio`` is without what an idle cluster takes as well. ``apart_ratio`` is that of two
    processes without a cluster: what two busy processes cost the machine, whoever runs them.
    """
    figures = compare((500, 500), rows)
    net = figures["two_cpu_ms"] - figures["idle_share"] / figures["two_rows_s"] * 1e3
    ratios = {"cpu_ratio": figures["two_cpu_ms"], "net_ratio": net, "apart_ratio": apart(rows, 500)}
    return {**figures, **{name: ms / figures["one_cpu_ms"] for name, ms in ratios.items()}}


def speed() -> dict[str, float]:
    figures = compare((AT_ONCE, 2 * AT_ONCE), FEW_ROWS, SLOW)
    return {**figures, "speed_ratio": figures["two_rows_s"] / figures["one_rows_s"]}


def frames() -> dict[str, object]:
    sys.path.insert(0, str(HERE.parent))
    from agent_magics import Agent  # noqa: PLC0415 - after the home is set
    from tests.support.models.row_server import RowServer  # noqa: PLC0415 - this subject's

    both = []
    with two_workers() as client:
        for engine in (None, client):
            with RowServer() as server:
                agent = Agent(base_url=server.base_url, api_key="x", model="gpt-4o-mini")
                rows = [f"row {number % (ROWS - 500)}" for number in range(ROWS)]
                done = agent.map_sync("{{text}}", rows, engine=engine, ask_above=None)
                both.append((done.frame, done.cost, len(server.log())))
                agent.close()
    (one, cost, asked), (two, cost_of_two, asked_by_two) = both
    return {
        "rows": len(one),
        "equal": bool(one.equals(two)),
        "costs": [cost, cost_of_two],
        "asked": [asked, asked_by_two],
    }


def leases() -> dict[str, float]:
    return asyncio.run(_leases())


async def _leases(workers: int = 50, seconds: float = 5.0) -> dict[str, float]:
    """Let connections ask for grants, and then answer questions, as fast as they can."""
    from agent_magics._version import __version__  # noqa: PLC0415 - after the home is set
    from agent_magics.protocol.items import UserMessage  # noqa: PLC0415
    from agent_magics.rows.asking import RowQuestion, Terms  # noqa: PLC0415
    from agent_magics.rows.engines.coordinator import Coordinator  # noqa: PLC0415
    from agent_magics.rows.engines.worker import Assignment  # noqa: PLC0415
    from agent_magics.rows.remote.limits import limits_of  # noqa: PLC0415

    class Local:
        async def listen(self, serve: object) -> tuple[asyncio.Server, str]:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            return server, ""

        async def seat(self, invite: object, joined: object) -> None:
            self.invitation = invite()
            await asyncio.Event().wait()

        async def close(self) -> None:
            pass

    engine, terms = Local(), Terms("gpt-4o-mini")
    coordinator = Coordinator(engine, Assignment(terms), limits_of("x", "y", "z"), None)
    await coordinator.open()
    await asyncio.sleep(0)
    command = [sys.executable, __file__, "workers", str(engine.port), engine.invitation.token]
    figures = {}
    for what in ("limits", "messages", "answers"):
        process = await asyncio.create_subprocess_exec(
            *command, __version__, what, str(workers), str(seconds), stdout=subprocess.PIPE
        )
        asking = []
        if what == "answers":
            text = texts(1)[0]

            async def ask(text: str = text) -> None:
                while True:
                    await coordinator.ask(RowQuestion("", (UserMessage(text),), terms))

            asking = [asyncio.create_task(ask()) for _ in range(10_000)]
        cpu = time.process_time()
        output = await process.stdout.read()
        await process.wait()
        cpu = time.process_time() - cpu
        for task in asking:
            task.cancel()
        await asyncio.sleep(0)
        count = json.loads(output)["count"]
        figures |= {f"{what}_s": count / seconds, f"{what}_cpu_ms": cpu / count * 1e3}
    await coordinator.close()
    return figures


async def act_as_workers(
    port: int, token: str, version: str, what: str, workers: int, seconds: float
) -> None:
    """Be many workers that ask for grants, say no more than that they live, or answer at once.

    Prints how many.
    """
    from agent_magics.rows.engines.link import Link  # noqa: PLC0415 - this subject's

    count, until, each = 0, time.monotonic() + seconds, 100 if what == "messages" else 1
    usage = (20, 10, 0, 0, None)

    async def work() -> None:
        nonlocal count
        link = Link(*await asyncio.open_connection("127.0.0.1", port))
        link.send("hello", token, 1, version)
        await link.read()
        link.send("answers", [], (0, 100, ""))
        while time.monotonic() < until:
            if what != "answers":
                for _ in range(each - 1):
                    link.send("answers", [], (0, 100, ""))
                link.send("limits", {"want": 10, "tokens_each": 30.0, "taken": 10})
                while (await link.read())[0] != "grant":
                    pass
                count += each
            else:
                word, questions = await link.read()
                if word != "ask":
                    continue
                answers = [(n, '{"topic": "x"}' * 10, usage, 0.1, None, "") for n, _ in questions]
                link.send("answers", answers, (len(answers), 100, ""))
                count += len(answers)
        await link.end()

    await asyncio.gather(*(work() for _ in range(workers)))
    print(json.dumps({"count": count}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "workers":
        port, token, version, what, workers, seconds = sys.argv[2:]
        asyncio.run(act_as_workers(int(port), token, version, what, int(workers), float(seconds)))
    else:
        with tempfile.TemporaryDirectory() as home:
            os.environ["XDG_STATE_HOME"] = home
            print(json.dumps(globals()[sys.argv[1]](), indent=1), flush=True)
