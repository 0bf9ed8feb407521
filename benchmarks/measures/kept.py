"""Measures rows that all have answers from an earlier call: microseconds a row, wall and CPU.

    python benchmarks/measures/kept.py ROWS        # a list of rows
    python benchmarks/measures/kept.py ROWS into   # a generator, written to Parquet files

The file of answers is filled beforehand, so no server is asked.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from mapping import PROMPT, Complaint, text

ANSWER = json.dumps({"topic": "delivery", "angry": True, "reason": "The parcel came late. " * 3})
GROUP = 64


def fill(cache: Path, mapping: object, rows: list[dict[str, str]]) -> None:
    """Write an answer for each row, as a map does."""
    from agent_magics.rows.prompts import asked_row, digest_of  # noqa: PLC0415 - after the home is set
    from agent_magics.rows.store import AnswerFile, Stored  # noqa: PLC0415 - the same

    plan, file = mapping.plan, AnswerFile(cache)
    digest, stored = digest_of(plan.digest), Stored(ANSWER.encode(), 120, 0.0001)
    for start in range(0, len(rows), GROUP):
        part = [(row["text"],) for row in rows[start : start + GROUP]]
        keys = [asked_row(0, row, plan.prompt, digest, 1 << 20)[1] for row in part]
        file.write([(key, stored) for key in keys])
    file.close()


def main(count: int, *, into: bool, home: str) -> None:
    """Fill a file of answers, and map its rows; print the figures."""
    from agent_magics import Agent  # noqa: PLC0415 - after the home is set

    rows = [{"text": text(number)} for number in range(count)]
    prompt, cache = PROMPT + "{{text}}", Path(home, "answers.sqlite")
    options = {"ask_above": None, "cache": str(cache)}
    with Agent(base_url="http://127.0.0.1:9/v1", api_key="x", model="gpt-4o-mini") as agent:
        fill(cache, agent.mapping(prompt, rows[:1], output=Complaint, options=options), rows)
        wall, cpu = time.perf_counter(), time.process_time()
        if into:
            done = agent.map_sync(
                prompt, iter(rows), output=Complaint, into=f"{home}/out", **options
            )
        else:
            done = agent.map_sync(prompt, rows, output=Complaint, **options)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert done.progress.kept == count, done.report()
    print(json.dumps({"wall_us": wall / count * 1e6, "cpu_us": cpu / count * 1e6}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=os.environ["HOME"]) as home:
        os.environ["XDG_STATE_HOME"] = home
        main(int(sys.argv[1]), into=sys.argv[2:] == ["into"], home=home)
