"""Measures one prompt over many rows: rows a second and CPU a row, a server 200 ms away.

    python benchmarks/measures/mapping.py SUBJECT ROWS
    python benchmarks/measures/mapping.py SUBJECT,SUBJECT ROWS ROUNDS

The growth is only measured with 3,000 ROWS or more. The second form measures the subjects in turn,
and prints medians and their ratios to the first.

The server is a process of its own. SUBJECT is ``aiohttp`` (posts bytes and parses the answers, and
nothing else), ``openai`` (AsyncOpenAI as its documentation shows it, with a typed answer),
``client`` (our HTTP client alone), ``ours`` (`agent.map`, checked and durable), ``parts`` (the
same, written to Parquet files as it goes), ``pydantic-ai`` or ``chatlas`` (each a typed answer for
each row, in the environment that `benchmarks/peers/run.py --install` made), or one of
mapping_peers.py. CPU is that of all processes of a subject.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import pydantic
from mapping_peers import Column, subjects

HERE = Path(__file__).resolve().parent.parent
PEERS = HERE.parent / "build" / "peers"
IN_FLIGHT = 500
WARM = 1000
PROMPT = (
    "Which complaint is this? Name its topic in a word, tell whether the customer is angry, and "
    "give the reason in a sentence. Answer with one JSON object.\n\n"
)


class Complaint(pydantic.BaseModel):
    """What a customer complains about."""

    topic: str
    angry: bool
    reason: str


def text(number: int) -> str:
    """Return the text of a row, of some 400 characters."""
    return f"Order {number}: " + "the parcel came late and the box was open. " * 9


def request(number: int) -> dict:
    """Return the body of a request of some 900 bytes."""
    schema = {**Complaint.model_json_schema(), "additionalProperties": False}
    shape = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    return {
        "model": "gpt-4o-mini",
        "store": False,
        "text": {"format": shape},
        "input": [{"role": "user", "content": PROMPT + text(number)}],
    }


async def side_by_side(ask: Callable, numbers: range) -> None:
    """Call ``ask`` for each number, `IN_FLIGHT` at a time."""
    todo = iter(numbers)

    async def work() -> None:
        for number in todo:
            await ask(number)

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


def run_aiohttp(address: str) -> Callable[[range], None]:
    import aiohttp  # noqa: PLC0415 - only this subject's

    head, tail = json.dumps(request(0)).split(json.dumps(PROMPT + text(0)))
    loop = asyncio.new_event_loop()

    headers = {"content-type": "application/json", "authorization": "Bearer x"}

    async def run(numbers: range) -> None:
        async def ask(number: int) -> None:
            data = (head + json.dumps(PROMPT + text(number)) + tail).encode()
            async with session.post(f"{address}/responses", data=data, headers=headers) as reply:
                json.loads(await reply.read())

        # Connects anew each time, as a map does.
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            await side_by_side(ask, numbers)

    return lambda numbers: loop.run_until_complete(run(numbers))


def run_openai(address: str) -> Callable[[range], None]:
    import openai  # noqa: PLC0415 - only this subject's

    loop = asyncio.new_event_loop()
    limits = openai.DefaultAsyncHttpxClient(limits=_limits(IN_FLIGHT))
    client = openai.AsyncOpenAI(base_url=address, api_key="x", http_client=limits)

    async def ask(number: int) -> None:
        reply = await client.responses.parse(
            model="gpt-4o-mini", input=PROMPT + text(number), text_format=Complaint, store=False
        )
        assert reply.output_parsed.topic == "delivery"

    return lambda numbers: loop.run_until_complete(side_by_side(ask, numbers))


def run_pydantic_ai(address: str) -> Callable[[range], None]:
    import openai  # noqa: PLC0415 - only this subject's
    from pydantic_ai import Agent, NativeOutput  # noqa: PLC0415 - only this subject's
    from pydantic_ai.models.openai import OpenAIResponsesModel  # noqa: PLC0415 - only this subject's
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415 - only this subject's

    loop = asyncio.new_event_loop()
    limits = openai.DefaultAsyncHttpxClient(limits=_limits(IN_FLIGHT))
    client = openai.AsyncOpenAI(base_url=address, api_key="x", http_client=limits)
    model = OpenAIResponsesModel("gpt-4o-mini", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, output_type=NativeOutput(Complaint))

    async def ask(number: int) -> None:
        done = await agent.run(PROMPT + text(number))
        assert done.output.topic == "delivery"

    return lambda numbers: loop.run_until_complete(side_by_side(ask, numbers))


def run_chatlas(address: str) -> Callable[[range], None]:
    from chatlas import ChatOpenAI, parallel_chat_structured  # noqa: PLC0415 - only this subject's

    chat = ChatOpenAI(base_url=address, api_key="x", model="gpt-4o-mini")
    loop = asyncio.new_event_loop()

    async def run(numbers: range) -> None:
        prompts = [PROMPT + text(number) for number in numbers]
        done = await parallel_chat_structured(
            chat, prompts, Complaint, max_active=IN_FLIGHT, rpm=1_000_000
        )
        assert all(each.data.topic == "delivery" for each in done)

    return lambda numbers: loop.run_until_complete(run(numbers))


def _limits(count: int) -> object:
    import httpx2  # noqa: PLC0415 - only this subject's

    return httpx2.Limits(max_connections=count, max_keepalive_connections=count)


def run_client(address: str) -> Callable[[range], None]:
    from agent_magics.protocol.items import UserMessage  # noqa: PLC0415 - only this subject's
    from agent_magics.rows.asking import RowQuestion, Terms  # noqa: PLC0415 - only this subject's
    from agent_magics.rows.remote.client import RowClient  # noqa: PLC0415 - only this subject's

    client = RowClient(base_url=address, api_key="x", concurrency=IN_FLIGHT)
    terms = Terms("gpt-4o-mini", "", request(0)["text"]["format"]["schema"])
    loop = asyncio.new_event_loop()

    async def ask(number: int) -> None:
        question = RowQuestion(str(number), (UserMessage(PROMPT + text(number)),), terms)
        answer = await client.ask(question)
        assert answer.error is None, answer.error

    return lambda numbers: loop.run_until_complete(side_by_side(ask, numbers))


def run_ours(address: str, **options: object) -> Callable[[range], None]:
    from agent_magics import Agent  # noqa: PLC0415 - only this subject's

    agent = Agent(base_url=address, api_key="x", model="gpt-4o-mini")

    def run(numbers: range) -> None:
        rows = ({"text": text(number)} for number in numbers)
        done = agent.map_sync(
            PROMPT + "{{text}}",
            rows if options else list(rows),
            output=Complaint,
            concurrency=IN_FLIGHT,
            ask_above=None,
            **options,
        )
        assert not done.progress.failed, done.report()  # `done.failed` would make the whole table

    return run


def run_parts(address: str) -> Callable[[range], None]:
    folder = Path(tempfile.mkdtemp(dir=os.environ["HOME"]))
    counter = iter(range(1_000_000))
    return lambda numbers: run_ours(address, into=str(folder / str(next(counter))))(numbers)


def cpu_seconds(server: int) -> float:
    """Return the CPU seconds of this process and all that it started, but for the server's."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            used[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in ours} - ours - {server}:
        ours |= more
    return sum(used[one] for one in ours) / os.sysconf("SC_CLK_TCK")


SUBJECTS = {
    "aiohttp": run_aiohttp,
    "openai": run_openai,
    "client": run_client,
    "ours": run_ours,
    "parts": run_parts,
    "pydantic-ai": run_pydantic_ai,
    "chatlas": run_chatlas,
    **subjects(Column(PROMPT, text, Complaint, IN_FLIGHT)),
}


def far_server() -> Iterator[tuple[str, int]]:
    """Run the server; yield its address and the number of its process."""
    command = [sys.executable, str(HERE / "row_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", process.pid
        process.kill()


def memory() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(subject: str, count: int) -> None:
    """Run the subject once with few rows and once with all; print its figures."""
    server = far_server()
    address, process = next(server)
    run = SUBJECTS[subject](address)
    run(range(-min(WARM, count // 3), 0))
    before, cpu, began = memory(), cpu_seconds(process), time.perf_counter()
    run(range(count))
    wall, cpu = time.perf_counter() - began, cpu_seconds(process) - cpu
    with urllib.request.urlopen(address.replace("/v1", "/times")) as reply:
        came = json.load(reply)[1:]
    again = time.perf_counter()
    if subject in ("ours", "parts"):
        run(range(count))
    again = time.perf_counter() - again
    next(server, None)
    figures = {
        "rows_s": count / wall,
        "steady_s": count / wall,
        "cpu_ms": cpu / count * 1e3,
        "memory_mb": memory() - before,
        # The same rows once more: all have answers.
        "again_s": again,
    }
    if len(came) > 2:
        part = max(1, len(came) // 10)
        # Without the first thousand, in which the number in flight still grows.
        figures["steady_s"] = (len(came) - 2) * 1000 / (came[-1] - came[1])
        figures["growth"] = (came[-1] - came[-1 - part]) / (came[1 + part] - came[1])
    print(json.dumps(figures), flush=True)
    os._exit(0)  # connections that are open would only be complained of


def compare(subjects: list[str], count: int, rounds: int) -> None:
    """Measure the subjects in turn, each time in a process of its own; print the medians."""
    taken: dict[str, list[dict]] = {subject: [] for subject in subjects}
    for _ in range(rounds):
        for subject in subjects:
            python = PEERS / subject / "bin" / "python"
            command = [str(python) if python.exists() else sys.executable]
            command += [__file__, subject, str(count)]
            output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            taken[subject].append(json.loads(output.splitlines()[-1]))  # some libraries print
            print(subject, output.decode().strip(), file=sys.stderr, flush=True)
    print("| | rows/s | steady | CPU a row | rows/s over", subjects[0], "|\n|---|---|---|---|---|")
    for subject, figures in taken.items():
        rate, steady, cpu = (
            [each[name] for each in figures] for name in ("rows_s", "steady_s", "cpu_ms")
        )
        ratios = [
            one["rows_s"] / first["rows_s"]
            for one, first in zip(figures, taken[subjects[0]], strict=True)
        ]
        print(
            f"| {subject} | {median(rate):,.0f} | {median(steady):,.0f} | {median(cpu):.2f} ms | "
            f"{median(ratios):.2f} |"
        )


if __name__ == "__main__":
    named, number, *rounds = sys.argv[1:]
    if rounds:
        compare(named.split(","), int(number), int(rounds[0]))
    else:
        measure(named, int(number))
