"""Measures searching and reading files: against a bare `rg`, and at the end of a long file."""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

GIGABYTE = 1_000_000_000
SOURCES = 1_000  # files of a project, about 13 kB each; the rest of the gigabyte is data
SMALL = 20_000  # files of the other tree, about 50 kB each
PAIRS = 7  # searches, each with a bare rg beside it
READS = 30
NEEDLE = r"needle_\w+ = \d"
WORDS = [f"{word}{end}" for word in ("value", "frame", "import", "row") for end in ("", "s", "_x")]


def text_of(lines: int) -> bytes:
    """Return lines of words, the same in each run."""
    some = random.Random(7)
    rows = (" ".join(some.choices(WORDS, k=some.randint(3, 14))) for _ in range(lines))
    return ("\n".join(rows) + "\n").encode()


def make_project(root: Path) -> None:
    """Make a gigabyte like a data project: sources, and data files of 1-40 MB."""
    some, text, total = random.Random(7), text_of(60_000), 0
    for number in range(SOURCES):
        path = root / f"src/p{number // 200}/m{number // 20 % 10}/f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = min(int(some.lognormvariate(9, 1)), 200_000)
        start = some.randrange(len(text) - size)
        found = b"\nneedle_here = 1\n" if number % 97 == 0 else b"\n"
        path.write_bytes(text[start : start + size] + found)
        total += size
    (root / "data").mkdir()
    number = 0
    while total < GIGABYTE:
        size = some.choice([1, 2, 5, 10, 20, 40]) * 1_000_000
        with (root / f"data/part-{number}.csv").open("wb") as file:
            for _ in range(-(-size // len(text))):
                file.write(text)
        total += size
        number += 1


def make_small(root: Path) -> None:
    """Make a gigabyte of many small files."""
    some, text = random.Random(7), text_of(60_000)
    size = GIGABYTE // SMALL
    for number in range(SMALL):
        path = root / f"p{number // 1_000}/m{number // 50 % 20}/f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        start = some.randrange(len(text) - size)
        found = b"\nneedle_here = 1\n" if number % 97 == 0 else b"\n"
        path.write_bytes(text[start : start + size] + found)


@contextmanager
def tree_of(make, ripgrep: str):
    """Make a tree in a folder of its own, and read it once, so that the disk is not measured."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        make(Path(folder))
        subprocess.run([ripgrep, "-c", "nothing_is_called_this", folder], check=False)
        yield folder


def call_in(folder: str):
    """Return the context of a model's call, by which each file is judged."""
    from agent_magics.dispatch.context import ToolContext, TurnContext  # noqa: PLC0415 - only here
    from agent_magics.protocol.config import RunConfig  # noqa: PLC0415 - only here
    from agent_magics.tools.files.path_judge import PathJudge  # noqa: PLC0415 - only here

    def none(*_, **__):
        raise AssertionError

    config = RunConfig(cwd=Path(folder).resolve())
    judge = PathJudge(config)
    turn = TurnContext("s", "t", "a", config, {}, none, none, none, judge, tuple, None)
    return ToolContext(turn, "c", "a tool")


def time_search(make, with_ripgrep: bool) -> dict[str, float]:
    """Measure how much longer `grep_files` takes than a bare rg, in adjacent pairs."""
    from agent_magics.tools import grep_files  # noqa: PLC0415 - no part of what reading costs

    ripgrep = shutil.which("rg")
    assert ripgrep is not None, "this needs ripgrep (rg)"
    if not with_ripgrep:
        os.environ["PATH"] = "/nonexistent"
    ours, bare = [], []
    with tree_of(make, ripgrep) as root:
        ctx = call_in(root)
        for _ in range(PAIRS):
            began = time.perf_counter()
            done = subprocess.run([ripgrep, NEEDLE, root], capture_output=True, check=True)
            between = time.perf_counter()
            found = grep_files(NEEDLE, root, ctx=ctx)
            ours.append(time.perf_counter() - between)
            bare.append(between - began)
            assert found.found.total == done.stdout.count(b"\n")
    return {
        "of_rg": median(mine / theirs for mine, theirs in zip(ours, bare, strict=True)),
        "ms": median(ours) * 1e3,
        "rg_ms": median(bare) * 1e3,
    }


def time_read() -> dict[str, float]:
    """Measure reading 100 lines at the end of a file of a gigabyte, as a model does."""
    from agent_magics.tools import read_file  # noqa: PLC0415 - only here

    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        path, text = Path(folder) / "long.log", text_of(60_000)
        with path.open("wb") as file:
            while file.tell() < GIGABYTE:
                file.write(text)
        end = path.stat().st_size
        offset = end - len(b"".join(text.splitlines(keepends=True)[-100:]))
        ctx = call_in(folder)

        def read(**window):
            page = read_file("long.log", **window, ctx=ctx)
            return page.to_output(10_000).text

        assert read(offset_bytes=offset).count("| ") >= 100
        before, took = memory_mb(), []
        for _ in range(READS):
            began = time.perf_counter()
            read(offset_bytes=offset)
            took.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        last = read(start_line=text.count(b"\n") * (end // len(text)) - 99)
        by_line = (time.perf_counter() - began) * 1e3
        assert "| " in last
        return {"ms": median(took), "by_line_ms": by_line, "grown_mb": memory_mb() - before}


def memory_mb() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


MEASURES = {
    "project": lambda: time_search(make_project, with_ripgrep=True),
    "small": lambda: time_search(make_small, with_ripgrep=True),
    "fallback": lambda: time_search(make_project, with_ripgrep=False),
    "window": time_read,
}

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]]()))
