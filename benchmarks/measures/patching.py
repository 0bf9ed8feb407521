"""Measures 1,000 hunks in a file of 100,000 lines, against `git apply`; and a one-line patch call.

``floor`` is `git apply` of the unified diff, in a process of its own. ``own`` is our format and
``unified`` the same diff as git's, through the engine of `apply_patch`: read, matched and written.
``call`` is `await agent.call("apply_patch", ...)` of one line in a small file, and ``bare`` what of
it the disk takes: the same files made, named and removed, the same bytes written, nothing else. The
figure is the best of a few, wall ms; of these two the median of a hundred, and the CPU of the best.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clients import KEY

LINES, HUNKS, AROUND = 100_000, 1000, 3
TIMES = 5
OLD = [f"line {number} of the file, {number * 7919 % 1000}" for number in range(LINES)]
PLACES = [number * LINES // HUNKS + 37 for number in range(HUNKS)]


def own_patch() -> str:
    """Return the patch in our format."""
    lines = ["*** Begin Patch", "*** Update File: a.txt"]
    for place in PLACES:
        lines += ["@@", *(f" {line}" for line in OLD[place - AROUND : place])]
        lines += [f"-{OLD[place]}", f"+changed {place}"]
        lines += [f" {line}" for line in OLD[place + 1 : place + 1 + AROUND]]
    return "\n".join([*lines, "*** End Patch"]) + "\n"


def git_patch() -> str:
    """Return the patch as git writes it."""
    lines = ["diff --git a/a.txt b/a.txt", "--- a/a.txt", "+++ b/a.txt"]
    size = 2 * AROUND + 1
    for place in PLACES:
        start = place - AROUND + 1
        lines += [f"@@ -{start},{size} +{start},{size} @@"]
        lines += [f" {line}" for line in OLD[place - AROUND : place]]
        lines += [f"-{OLD[place]}", f"+changed {place}"]
        lines += [f" {line}" for line in OLD[place + 1 : place + 1 + AROUND]]
    return "\n".join(lines) + "\n"


def best_of(folder: Path, once: Callable[[], object]) -> float:
    """Return the least wall ms of `once`; the file is created again before each."""
    wanted = list(OLD)
    for place in PLACES:
        wanted[place] = f"changed {place}"
    spans = []
    for _ in range(TIMES):
        (folder / "a.txt").write_text("\n".join(OLD) + "\n", encoding="utf-8")
        began = time.perf_counter()
        once()
        spans.append(time.perf_counter() - began)
        assert (folder / "a.txt").read_text(encoding="utf-8").splitlines() == wanted
    return min(spans) * 1e3


def large(subject: str, folder: Path) -> float:
    """Measure 1,000 hunks."""
    if subject == "floor":
        (folder / "a.diff").write_text(git_patch(), encoding="utf-8")
        command = ["git", "apply", "a.diff"]
        return best_of(folder, lambda: subprocess.run(command, cwd=folder, check=True))
    from agent_magics.patch.plan import plan_patch, read_patch  # noqa: PLC0415

    text = own_patch() if subject == "own" else git_patch()
    return best_of(folder, lambda: plan_patch(read_patch(text), folder.joinpath).apply())


async def small(subject: str, folder: Path) -> dict[str, float]:
    """Measure a patch of one line."""
    if subject == "bare":
        folder.joinpath("contents").mkdir()
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    else:
        from agent_magics import Agent  # noqa: PLC0415

        agent = Agent("gpt-4o", tools=["apply_patch"], cwd=folder, approval="never", api_key=KEY)
    spans, cpu = [], []
    for number in range(100):
        old = f"one\n{number}\nthree\n"
        (folder / "b.txt").write_text(old, encoding="utf-8")
        patch = f"*** Begin Patch\n*** Update File: b.txt\n@@\n-{number}\n+new\n*** End Patch\n"
        began, used = time.perf_counter(), time.process_time()
        if subject == "bare":
            replace_bare(folder, old.encode(), f"one\nnew{number}\nthree\n".encode(), log)
        else:
            output = await agent.call("apply_patch", {"patch": patch})
        spans.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
        assert subject == "bare" or output.success, output.text
    return {"wall_ms": sorted(spans)[len(spans) // 2] * 1e3, "cpu_ms": min(cpu) * 1e3}


def replace_bare(folder: Path, old: bytes, new: bytes, log: int) -> None:
    """Replace a file as a patch does, with a copy of its old content and six lines of records."""
    write_new(folder / "staged", new)
    os.link(folder / "b.txt", folder / "backup")
    (folder / "staged").replace(folder / "b.txt")
    (folder / "backup").unlink()
    write_new(folder / "contents/staged", old)
    (folder / "contents/staged").replace(folder / f"contents/{old.hex()}")
    for _ in range(6):
        os.write(log, b"x" * 400)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(file, content)
    os.close(file)


def main() -> None:
    """Measure one way; print milliseconds."""
    subject = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if subject in ("bare", "call"):
            found = asyncio.run(small(subject, place))
        else:
            found = {"wall_ms": large(subject, place)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
