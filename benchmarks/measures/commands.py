"""Measures commands: a sandboxed `true`, 100 MB of output, an interrupt, thousands in a row."""

import asyncio
import json
import os
import resource
import select
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

PAIRS = 60  # calls, each with a bare spawn beside it
SIZE = 100_000_000  # bytes of output
SOAK = 10_000  # commands
LONG = 300_000  # milliseconds
WRITE = (
    "import os\nblock = b'x' * 99 + b'\\n'\nblock *= 5_000\n"
    f"for _ in range({SIZE} // len(block)): os.write(1, block)\n"
)


def agent_at(tier: str):
    """Return an agent whose commands run at `tier`."""
    os.environ["AGENT_MAGICS_TIER"] = tier
    from agent_magics import Agent  # noqa: PLC0415 - the tier is read when the launcher starts

    folder = tempfile.mkdtemp(dir=".")
    policy = "danger-full-access" if tier == "0" else "workspace-write"
    agent = Agent(tools=["exec_command"], cwd=folder, approval="never", sandbox=policy)
    done = agent.call_sync("exec_command", {"cmd": "true"})
    assert done.success, done.text
    return agent


def bare_spawn() -> float:
    """Measure the milliseconds to start /bin/true and wait for it."""
    began = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    return (time.perf_counter() - began) * 1e3


def time_commands(tier: str) -> dict[str, float]:
    """Measure how much longer `exec_command` takes than a bare spawn, in adjacent pairs."""
    agent = agent_at(tier)
    over, bare = [], []

    async def take() -> None:
        for _ in range(PAIRS):
            bare.append(bare_spawn())
            began = time.perf_counter()
            done = await agent.call("exec_command", {"cmd": "true"})
            over.append((time.perf_counter() - began) * 1e3 - bare[-1])
            assert done.success, done.text

    asyncio.run(take())
    agent.close()
    return {"over_ms": median(over), "bare_ms": median(bare)}


def read_bare() -> float:
    """Measure the seconds in which a bare `os.read` loop reads the same output."""
    reader, writer = os.pipe()
    began = time.perf_counter()
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", WRITE], {}, file_actions=actions)
    os.close(writer)
    total = 0
    while data := os.read(reader, 65536):
        total += len(data)
    os.waitpid(pid, 0)
    assert total == SIZE
    os.close(reader)
    return time.perf_counter() - began


def flood() -> dict[str, float]:
    """Measure 100 MB through a command against the bare loop, with memory and messages."""
    agent = agent_at("1")
    script = Path(agent.config.cwd) / "write.py"
    script.write_text(WRITE, encoding="utf-8")
    times: list[float] = []
    emit = agent.session.outbox.emit

    def count(turn_id, kind, **fields) -> None:
        if kind.__name__ == "ExecCommandOutputDelta":
            times.append(time.monotonic())
        emit(turn_id, kind, **fields)

    agent.session.outbox.emit = count
    bare, ours = [], []
    command = {"cmd": f"{sys.executable} write.py", "yield_time_ms": LONG}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        bare.append(read_bare())
        began = time.perf_counter()
        done = agent.call_sync("exec_command", command)
        ours.append(time.perf_counter() - began)
        assert done.success, done.text[:300]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    agent.close()
    seconds = sum(ours)
    return {
        "of_bare": median(bare) / median(ours),
        "grown_mb": grown / 1024,
        "per_second": len(times) / seconds,
    }


def interrupt() -> dict[str, float]:
    """Measure the milliseconds from an interrupt to the death of a command that prints."""
    agent = agent_at("1")
    taken = []
    for _ in range(5):
        mark = Path(agent.config.cwd) / "pid"
        os.mkfifo(mark)

        async def run(mark: Path = mark) -> float:
            script = f"echo $$ > {mark}; exec yes"
            work = asyncio.create_task(agent.call("exec_command", {"cmd": script}))
            pid = int(await asyncio.to_thread(mark.read_text, "utf-8"))
            handle = os.pidfd_open(pid)
            await asyncio.sleep(0.5)  # it has been printing for a while
            began = time.perf_counter()
            work.cancel()
            await asyncio.to_thread(select.select, [handle], [], [], 10)
            ended = time.perf_counter()
            os.close(handle)
            await asyncio.gather(work, return_exceptions=True)
            return (ended - began) * 1e3

        taken.append(asyncio.run(run()))
        mark.unlink()
    agent.close()
    return {"dead_ms": median(taken), "worst_ms": max(taken)}


def soak() -> dict[str, float]:
    """Measure what thousands of commands leave behind: descriptors, processes, threads, memory."""
    agent = agent_at("1")

    async def run(count: int) -> None:
        for _ in range(count):
            done = await agent.call("exec_command", {"cmd": "true"})
            assert done.success, done.text

    asyncio.run(run(300))
    before = holdings()
    began = time.perf_counter()
    asyncio.run(run(SOAK))
    seconds = time.perf_counter() - began
    after = holdings()
    agent.close()
    grown = {name: after[name] - before[name] for name in before}
    return {**grown, "each_ms": seconds / SOAK * 1e3}


def holdings() -> dict[str, float]:
    """Return the descriptors, processes, threads and memory of this process and its launcher."""
    children = _children(os.getpid())
    memory = [_resident(pid) for pid in (os.getpid(), *children)]
    held = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (os.getpid(), *children)]
    return {
        "fds": sum(held),
        "processes": len(children) + sum(len(_children(pid)) for pid in children),
        "threads": threading.active_count(),
        "memory_mb": sum(memory) / 1e6,
    }


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    lists = [(task / "children").read_text(encoding="ascii") for task in tasks.iterdir()]
    return [int(word) for words in lists for word in words.split()]


def _resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


SUBJECTS = {"flood": flood, "interrupt": interrupt, "soak": soak}


def main() -> None:
    """Print one subject's figures."""
    subject = sys.argv[1]
    if subject.startswith("tier"):
        figures = time_commands(subject.removeprefix("tier"))
    else:
        figures = SUBJECTS[subject]()
    print(json.dumps(figures))


main()
