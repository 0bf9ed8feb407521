"""The driver: `python benchmarks/run.py [rows...] [--rounds N] [--json FILE]` prints one table.

Every measurement is a fresh process. Rounds are interleaved: in each round every subject of a row
is measured once, in an order that changes, and a ratio is taken between two figures of the same
round, so a machine that is slow for a minute is slow for both. One round before the first is thrown
away: it compiles.
"""

import argparse
import json
import random
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from stage import environment, machine, scripted_server

HERE = Path(__file__).resolve().parent
VERSIONS = ("aiohttp", "openai", "httpx2", "httpx", "mcp", "pydantic", "ipython", "ipykernel")
TIMEOUT = 900  # seconds for one measurement
ON_REQUEST = {"soak", "lasting"}  # rows that take minutes: only when they are named


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        row: the name that selects it on the command line.
        measure: the file in measures/ that measures it.
        subject: the client, see clients.py.
        figure: the key of the printed figure.
        limit: the upper bound of the figure, or None.
        least: the lower bound of the figure, or None.
        times: the upper bound as a ratio to the floor, or None. Where both are given either one is
            enough: the limit was set on a faster machine, where it is that many floors.
        best: whether to take the best of all rounds rather than the median.
    """

    row: str
    measure: str
    subject: str
    figure: str
    title: str
    limit: float | None = None
    least: float | None = None
    times: float | None = None
    best: bool = False


def lines_of(row: str, program: str, *figures: tuple) -> list[Line]:
    """Return the lines of one row, each given as (subject, figure, title, and named goals)."""
    lines = []
    for subject, figure, title, *goals in figures:
        lines.append(Line(row, program, subject, figure, title, **(goals[0] if goals else {})))
    return lines


BEST = {"best": True}
TURN = {"times": 1.5}
FLAT = {"limit": 1.15, "best": True}
QUICK = {"limit": 6, "best": True}
LINES = [
    *lines_of(
        "import",
        "importing",
        ("package", "wall_ms", "`import agent_magics`, ms", {"limit": 30}),
        ("package", "memory_mb", "the same, memory, MB", {"limit": 3}),
        ("package", "heavy", "the same, heavy modules imported"),
        ("names", "wall_ms", "`from agent_magics import Agent, tool`, ms"),
        ("names", "heavy", "the same, heavy modules imported"),
        ("floor", "wall_ms", "`import openai`, ms"),
    ),
    *lines_of(
        "load_ext",
        "load_ext",
        ("ours", "wall_ms", "`%load_ext agent_magics`, ms", {"limit": 150}),
        ("ours", "own_cpu_ms", "the same, CPU of its thread, ms"),
        ("ours", "heavy", "the same, heavy modules when it returns"),
        ("ours", "all_cpu_ms", "the same, CPU with the warm-up, ms"),
        ("floor", "wall_ms", "`%load_ext autoreload`, ms"),
    ),
    *lines_of(
        "beginning",
        "beginning",
        ("ours", "first_ms", "a first `%%agent` cell after the warm-up, ms", {"limit": 150}),
        ("ours", "second_ms", "the second one, ms"),
    ),
    *lines_of(
        "question",
        "questioning",
        (
            "ours",
            "first_ms",
            "from a request to the widget of a first question, ms",
            {"limit": 300},
        ),
        ("ours", "second_ms", "to that of a second one, ms", {"limit": 100}),
    ),
    *lines_of(
        "turns",
        "turns",
        ("floor", "cpu_ms", "200 turns, floor_content, CPU per turn, ms"),
        ("floor", "growth", "the same, turns 150-200 / 1-50", BEST),
        ("inline", "cpu_ms", "200 turns, inline tool, CPU per turn, ms", TURN),
        ("inline", "growth", "the same, turns 150-200 / 1-50", FLAT),
        ("async", "cpu_ms", "200 turns, async tool, CPU per turn, ms", TURN),
        ("async", "growth", "the same, turns 150-200 / 1-50", FLAT),
        ("main", "cpu_ms", "200 turns, plain tool (waiting thread), CPU per turn, ms", TURN),
        ("main", "growth", "the same, turns 150-200 / 1-50", FLAT),
    ),
    *lines_of(
        "deltas",
        "deltas",
        ("floor", "cpu_s", "20,000 deltas, floor_content, CPU s"),
        ("inline", "cpu_s", "20,000 deltas, CPU s", {"limit": 0.3, "times": 1.25}),
    ),
    *lines_of(
        "naps",
        "naps",
        ("floor", "gap_ms", "16 naps of 50 ms, floor_content, wall ms"),
        ("pool", "gap_ms", "16 naps of 50 ms, sync parallel, wall ms", {"limit": 75}),
    ),
    *lines_of(
        "dispatch",
        "dispatching",
        ("floor", "cpu_us", "five fields, pydantic alone, CPU us", BEST),
        ("inline", "cpu_us", "dispatch, inline tool, CPU us", QUICK),
        ("async", "cpu_us", "dispatch, async tool, CPU us", QUICK),
        ("pool", "cpu_us", "dispatch, sync parallel tool, CPU us", BEST),
        ("pool", "wall_us", "the same, wall us", BEST),
        ("events", "cpu_us", "with events and rollout, CPU us", {"limit": 40, "times": 16, **BEST}),
        ("call", "cpu_us", "`await agent.call(...)`, CPU us", BEST),
    ),
    *lines_of(
        "tokens",
        "tokens",
        ("plain", "tokens", "a first request: files, commands, patches, plan", {"limit": 2500}),
        ("first", "tokens", "with sub-agents, questions, memory, symbols", {"limit": 4000}),
        ("python", "tokens", "with the live kernel's Python"),
        ("values", "tokens", "the longest text of a large value, tokens", {"limit": 400}),
    ),
    *lines_of(
        "hops",
        "hopping",
        ("floor", "wall_us", "a bare way to a thread and back, wall us", BEST),
        ("pool", "wall_us", "dispatch, sync parallel tool, wall us", {"times": 1.5, **BEST}),
        ("nested", "wall_us", "a call made by live code, wall us", {"times": 4, **BEST}),
    ),
    *lines_of(
        "patch",
        "patching",
        ("floor", "wall_ms", "1,000 hunks in 100,000 lines, `git apply`, ms", BEST),
        ("own", "wall_ms", "the same, our format, ms", {"limit": 200, **BEST}),
        ("unified", "wall_ms", "the same, unified diff, ms", {"limit": 200, **BEST}),
        ("call", "wall_ms", "a patch of one line through `agent.call`, ms", {"limit": 3, **BEST}),
        ("call", "cpu_ms", "the same, CPU ms", {"limit": 1.5, **BEST}),
        ("bare", "cpu_ms", "what of it the disk takes: its files by themselves, CPU ms", BEST),
    ),
    *lines_of(
        "watch",
        "watching",
        ("floor", "wall_ms", "`git status` in 10,000 files, ms", BEST),
        ("git", "wall_ms", "a command's changes seen there, both looks, ms", {"limit": 50, **BEST}),
        ("plain", "wall_ms", "the same without a repository, ms", {"limit": 50, **BEST}),
        ("first", "wall_ms", "the first look, in a repository, ms", BEST),
        ("copying", "wall_ms", "the first look without one: all is copied, ms", BEST),
    ),
    *lines_of(
        "mcp",
        "mcp_calling",
        ("floor", "call_ms", "a stdio tool call with the SDK's own client, wall ms", BEST),
        ("call", "call_ms", "the same through `agent.call`, wall ms", {**TURN, **BEST}),
        ("naps", "gap_ms", "16 naps of 50 ms of an MCP server, wall ms", {"limit": 100}),
        (
            "starting",
            "delay_ms",
            "a turn while five servers start, one of which hangs: later by, ms",
            {"limit": 20},
        ),
        ("starting", "first_ms", "the same, the first such turn of a process, ms", {"limit": 20}),
        ("deferred", "tokens", "200 tools of a server: tokens in a request", {"limit": 600}),
    ),
    *lines_of(
        "resume",
        "resuming",
        ("floor", "wall_ms", "the record of 1,000 turns parsed as JSON, ms", BEST),
        ("ours", "wall_ms", "the same resumed, ms", {"limit": 200, **BEST}),
        ("list", "wall_ms", "10,000 conversations listed, ms", {"limit": 100, **BEST}),
        ("list", "of_bare", "the same, x a bare look at these files and the index", {"limit": 2}),
        ("list", "first_ms", "the same without an index, ms", BEST),
    ),
    *lines_of(
        "flush",
        "flushing",
        ("floor", "turn_ms", "a turn with its record, without `fsync`, wall ms"),
        ("ours", "turn_ms", "the same with the `fsync` at its end, wall ms"),
        ("ours", "fsync_ms", "a bare `fsync` of as many bytes, wall ms"),
    ),
    *lines_of(
        "interrupt",
        "interrupting",
        ("ours", "idle_ms", "interrupt to idle kernel, ms", {"limit": 1000}),
        ("ours", "again_ms", "the same, a second time, ms", {"limit": 1000}),
        ("ours", "prompt_ms", "interrupt to the next cell's result, ms"),
        ("ours", "left", "commands left running 1 s later"),
    ),
    *lines_of(
        "commands",
        "commands",
        ("tier0", "over_ms", "`exec_command` of `true`, no sandbox, over a bare spawn, ms"),
        ("tier1", "over_ms", "the same in the sandbox, tier 1, ms", {"limit": 15}),
        ("tier2", "over_ms", "the same, tier 2, ms", {"limit": 25}),
        ("tier1", "bare_ms", "the bare posix_spawn of /bin/true, ms"),
        (
            "flood",
            "of_bare",
            "100 MB of output, speed as a share of a bare `os.read` loop",
            {"least": 0.5},
        ),
        ("flood", "grown_mb", "the same, memory grown, MB", {"limit": 20}),
        ("flood", "per_second", "the same, messages a second", {"limit": 20}),
        ("interrupt", "dead_ms", "interrupt to dead under `yes`, ms", {"limit": 200}),
        ("interrupt", "worst_ms", "the same, the worst of five, ms", {"limit": 200}),
    ),
    *lines_of(
        "soak",
        "commands",
        ("soak", "fds", "10,000 commands: descriptors more than before", {"limit": 0}),
        ("soak", "processes", "the same, processes", {"limit": 0}),
        ("soak", "threads", "the same, threads", {"limit": 0}),
        ("soak", "memory_mb", "the same, memory, MB", {"limit": 5}),
        ("soak", "each_ms", "the same, each, ms"),
    ),
    *lines_of(
        "lasting",
        "lasting",
        ("10001", "first_ms", "10,000 turns, CPU of each of the first 1,000, ms", BEST),
        ("10001", "growth", "the same, the last 1,000 / the first", FLAT),
        ("10001", "a_thousand_mb", "the same, memory of 1,000 more, MB"),
        ("10001", "resume_cpu_s", "the same resumed, CPU s", {"limit": 2, **BEST}),
    ),
    *lines_of(
        "files",
        "files",
        (
            "project",
            "of_rg",
            "`grep_files`, 1 GB of sources and data, x a bare `rg`",
            {"limit": 1.3},
        ),
        ("project", "ms", "the same, ms"),
        ("small", "of_rg", "the same, 1 GB in 20,000 files of 50 kB"),
        ("fallback", "of_rg", "`grep_files` without ripgrep, x a bare `rg`", {"limit": 10}),
        ("window", "ms", "`read_file`, 100 lines at the end of 1 GB by byte, ms", {"limit": 50}),
        ("window", "by_line_ms", "the same by line number, ms"),
        ("window", "grown_mb", "the same, memory grown, MB", {"limit": 20}),
    ),
    *lines_of(
        "display",
        "displaying",
        ("ours", "per_second", "front-end messages a second, live text", {"limit": 20}),
        ("ours", "kb", "the same, all messages, kB"),
    ),
]


def measure(line: Line, server: str, home: str) -> dict:
    """Take one measurement in a fresh process."""
    command = [sys.executable, str(HERE / "measures" / f"{line.measure}.py"), line.subject, server]
    done = subprocess.run(
        command,
        env=environment(home, HERE.parent, HERE),
        cwd=home,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"error": last}
    return json.loads(done.stdout.splitlines()[-1])


def take_rounds(lines: list[Line], rounds: int) -> dict[str, list[dict]]:
    """Measure every subject `rounds` times; return lists by "measure/subject"."""
    takes = {f"{line.measure}/{line.subject}": line for line in lines}
    taken: dict[str, list[dict]] = {name: [] for name in takes}
    with scripted_server() as server, tempfile.TemporaryDirectory() as home:
        for number in range(rounds + 1):
            order = random.sample(sorted(takes), len(takes))
            order.sort(key=lambda name: takes[name].measure)  # a row's subjects side by side
            for name in order:
                figures = measure(takes[name], server, home)
                print(f"round {number} {name}: {figures}", file=sys.stderr, flush=True)
                if number:
                    taken[name].append(figures)
    return taken


def summary(line: Line, taken: dict[str, list[dict]]) -> dict:
    """Return the line's figure, its spread and its ratio to the floor."""
    mine = taken[f"{line.measure}/{line.subject}"]
    broken = next((figures["error"] for figures in mine if "error" in figures), None)
    if broken:
        return {"title": line.title, "error": broken}
    values = [figures[line.figure] for figures in mine]
    if isinstance(values[0], str):
        return {"title": line.title, "value": ", ".join(sorted(set(values)))}
    value = growth(mine) if line.figure == "growth" else (min if line.best else median)(values)
    found = {"title": line.title, "value": value}
    found |= {"low": min(values), "high": max(values)}
    if line.subject != "floor" and line.figure != "growth":
        found["ratio"] = ratio_to_floor(line, taken)
    goals = []
    if line.limit is not None:
        goals.append((f"{line.limit:g}", found["value"] <= line.limit))
    if line.times is not None:
        ratio = found.get("ratio")
        goals.append((f"{line.times:g} x floor", ratio is not None and ratio <= line.times))
    if line.least is not None:
        found["goal"], found["met"] = f">= {line.least:g}", found["value"] >= line.least
    if goals:
        found["goal"] = "<= " + " or ".join(words for words, _ in goals)
        found["met"] = any(met for _, met in goals)
    return found


def growth(mine: list[dict]) -> float:
    """Return the best late turns over the best early ones; the best ratio would only show noise."""
    return min(take["last_ms"] for take in mine) / min(take["first_ms"] for take in mine)


def ratio_to_floor(line: Line, taken: dict[str, list[dict]]) -> float | None:
    """Return the median of the ratios within rounds, or the ratio of the best; None if no floor."""
    mine = taken[f"{line.measure}/{line.subject}"]
    floor = taken.get(f"{line.measure}/floor", [])
    pairs = [
        (figure[line.figure], base[line.figure])
        for figure, base in zip(mine, floor, strict=False)
        if base.get(line.figure)
    ]
    if not pairs:
        return None
    if line.best:
        return min(figure for figure, _ in pairs) / min(base for _, base in pairs)
    return median(figure / base for figure, base in pairs)


def table(summaries: list[dict]) -> str:
    """Return the Markdown table."""
    rows = [
        "| measurement | figure | lowest to highest | x floor | goal | met |",
        "|---|---|---|---|---|---|",
    ]
    for found in summaries:
        if "error" in found:
            cells = [found["title"], "failed: " + found["error"].replace("|", "/"), "", "", "", ""]
        else:
            value = found["value"]
            shown = value if isinstance(value, str) else f"{value:.3g}"
            spread = f"{found['low']:.3g} to {found['high']:.3g}" if "low" in found else ""
            ratio = f"{found['ratio']:.2f}" if found.get("ratio") else ""
            met = {True: "yes", False: "**no**"}.get(found.get("met"), "")
            cells = [found["title"], shown, spread, ratio, found.get("goal", ""), met]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def circumstances(rounds: int) -> str:
    """Return when, where and with what this was measured."""
    return f"{machine(VERSIONS)}; {rounds} rounds; `python {shlex.join(sys.argv)}`"


def main() -> None:
    """Parse, measure, print."""
    rows = list(dict.fromkeys(line.row for line in LINES))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    told = f"of {', '.join(rows)}; default all but {', '.join(sorted(ON_REQUEST))}"
    parser.add_argument("rows", nargs="*", metavar="row", help=told)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(rows):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(rows)}")
    chosen = options.rows or set(rows) - ON_REQUEST
    lines = [line for line in LINES if line.row in chosen]
    taken = take_rounds(lines, options.rounds)
    summaries = [summary(line, taken) for line in lines]
    print(table(summaries))
    print()
    print(circumstances(options.rounds))
    if options.json:
        whole = {
            "circumstances": circumstances(options.rounds),
            "lines": summaries,
            "rounds": taken,
        }
        options.json.write_text(json.dumps(whole, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
