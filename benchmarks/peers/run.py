"""The comparison with other agent libraries: `python benchmarks/peers/run.py [--install]`.

Every measurement is a fresh process of the subject's own environment. In each round every subject
of a measurement is taken once, in a new order, and ratios are taken within a round. The results go
to build/peers/results.json and, as tables, to benchmarks/results/peers.md.
"""

import argparse
import json
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import report  # noqa: E402 - benchmarks/ is not a package
from rows import NOT_STREAMING, PEERS, ROWS, SUBJECTS, TITLES, Row  # noqa: E402
from stage import environment, load_average, machine, scripted_server, speed  # noqa: E402
from venvs import BUILD, PINNED, install, python_of, versions  # noqa: E402

PAGE = HERE.parent / "results" / "peers.md"
TIMEOUT = 600  # seconds for one measurement, also on a machine that others use
LOCAL = ("openai", "httpx2", "pydantic", "ipykernel")
FIVE = '''def five_{number}(
    path: str, start: int, ratio: float, flags: list[str], mode: Literal["read", "write"]
) -> dict:
    """Return the five fields.

    Args:
        path: a path.
        start: first line.
        ratio: a share.
        flags: some flags.
        mode: what for.
    """
    return {{"path": path, "start": start, "ratio": ratio, "flags": flags, "mode": mode}}
'''


def reason_against(row: Row, subject: str) -> str:
    """Return why `subject` is not measured in `row`, or ""."""
    if reason := dict(row.without).get(subject):
        return reason
    adapter = _adapter(subject)
    if row.wire and row.wire not in adapter["WIRES"]:
        return f"speaks only {' and '.join(adapter['WIRES'])}"
    if subject in PEERS and not python_of(subject.replace("_", "-")).exists():
        return "is not installed (--install)"
    return adapter["CANNOT"].get(row.name, "")


def _adapter(subject: str, read: dict[str, dict] = {}) -> dict:  # noqa: B006 - a cache
    """Return an adapter's constants without importing it, since it needs another environment."""
    if subject not in read:
        code = (HERE / "adapters" / f"{subject}.py").read_text("utf-8")
        read[subject] = report.constants(code)
    return read[subject]


def measure(row: Row, subject: str, server: str, home: str) -> dict:
    """Take one measurement in a fresh process."""
    local = subject not in PEERS
    python = sys.executable if local else str(python_of(subject.replace("_", "-")))
    if row.measure == "remembering":
        program = HERE.parent / "measures" / "remembering.py"
        command = [python, str(program), "floor" if subject.startswith("floor") else "ours", server]
    else:
        wire = row.wire or _adapter(subject)["WIRES"][0]
        command = [python, str(HERE / "worker.py"), subject, row.measure, wire, server]
    path = (HERE.parent, HERE.parent.parent) if local else ()
    try:
        done = subprocess.run(
            command,
            env={**environment(home, *path), "BENCH_TOOLS": f"{home}/hundred_tools.py"},
            cwd=home,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return {"error": f"not done after {late.timeout:g} s"}
    if done.returncode:
        return {"error": (done.stderr.strip() or "no message").splitlines()[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1].removeprefix("FIGURES "))


def take_rounds(rows: list[Row], subjects: list[str], rounds: int) -> dict:
    """Measure; return each figure with its round, and the machine's speed.

    An interrupt, also that of ``timeout``, ends it early with the figures so far.
    """
    takes = {row.take: row for row in rows}
    jobs = {
        name: [subject for subject in subjects if not reason_against(row, subject)]
        for name, row in takes.items()
    }
    total, began = rounds * sum(map(len, jobs.values())), time.monotonic()
    taken, speeds = [], []
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell may have set the first to be ignored
        signal.signal(ending, signal.default_int_handler)
    with scripted_server() as server, tempfile.TemporaryDirectory() as home:
        write_tools(Path(home, "hundred_tools.py"))
        with suppress(KeyboardInterrupt):
            for number, name in shuffled(rounds, jobs):
                before = speed()
                for subject in random.sample(jobs[name], len(jobs[name])):
                    gone = time.monotonic() - began
                    where = f"[{len(taken) + 1}/{total}, {gone:.0f} s] round {number}, {name}"
                    figures = measure(takes[name], subject, server, home)
                    print(f"{where}, {subject}: {figures}", file=sys.stderr, flush=True)
                    taken.append({"round": number, "take": name, "subject": subject, **figures})
                speeds.append({"round": number, "take": name, "before": before, "after": speed()})
    return {"taken": taken, "speeds": speeds, "seconds": time.monotonic() - began}


def shuffled(rounds: int, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield each round with its measurements, in random order."""
    for number in range(1, rounds + 1):
        for name in random.sample(sorted(names), len(names)):
            yield number, name


def write_tools(path: Path) -> None:
    """Write 100 functions; a peer reads their source, so they need a file."""
    functions = "\n\n".join(FIVE.format(number=number) for number in range(100))
    path.write_text(f"from typing import Literal\n\n\n{functions}", encoding="utf-8")


def main() -> None:
    """Parse, install or measure, write."""
    known = list(dict.fromkeys(row.name for row in ROWS))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="make the peers' environments")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", metavar="A,B", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--subjects", metavar="A,B", help=f"of {', '.join(SUBJECTS)}; default all")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the tables go")
    options = parser.parse_args()
    if options.install:
        install(list(PINNED))
        return
    chosen = _chosen(parser, options.rows, known)
    subjects = _chosen(parser, options.subjects, list(SUBJECTS))
    rows = [row for row in ROWS if row.name in chosen]
    load, fast = load_average(), speed()
    found = take_rounds(rows, subjects, options.rounds)
    found |= {
        "command": f"python {shlex.join(sys.argv)}",
        "machine": machine(LOCAL),
        "versions": {peer: versions(peer) for peer in PINNED if python_of(peer).exists()},
        "load": [load, load_average()],
        "speed": [fast, speed()],
        "rounds": options.rounds,
        "without": {
            row.name: {s: why for s in subjects if (why := reason_against(row, s))} for row in rows
        },
    }
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    text = report.page(found, rows, subjects, TITLES, NOT_STREAMING)
    options.page.parent.mkdir(exist_ok=True)
    options.page.write_text(text, encoding="utf-8")
    print(text)


def _chosen(parser: argparse.ArgumentParser, option: str | None, known: list[str]) -> list[str]:
    if option is None:
        return known
    names = option.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
