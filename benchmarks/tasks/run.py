"""Counts what each client sends to a model for 30 fixed tasks, and what a prompt cache cannot hold.

    PYTHONPATH=benchmarks:. unshare -rn .venv/bin/python benchmarks/tasks/run.py [FOLDER]

FOLDER is where npm has installed the peers; without it only agent-magics is run. `unshare -rn`
leaves no network but loopback.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from given import TASKS, Task
from recorder import Recorder, shared, what_is_read
from repository import state_of, write_repository
from subjects import SUBJECTS
from wires import Content

BYTES_A_TOKEN = 4
ANSWER = "Done. I have looked at what you named, and say here in two sentences what I have found. "


@dataclass
class Sent:
    """What one client has sent for one task, in bytes.

    Attributes:
        first: the first request.
        whole: all requests.
        fresh: of them what does not begin as the request before.
        requests: how many in all, with those that are none of the conversation (for a title).
        left: the state of the repository at the end.
        unlike: (request, bytes of the one before) where a request does not begin with all of it.
    """

    first: int
    whole: int
    fresh: int
    requests: int
    left: str
    unlike: list[tuple[int, int]]


def answers_of(task: Task, dialect: object) -> Iterable[Content]:
    """Yield the model's answers in the words of one client."""
    number = 0
    for prompt in task.prompts:
        for answer in prompt.answers:
            steps = answer if isinstance(answer, list) else [answer]
            calls = tuple(getattr(dialect, step.kind)(*step.given) for step in steps)
            yield Content(number, calls)
            number += 1
        yield Content(number, pieces=(ANSWER,))
        number += 1


def run(task: Task, name: str, peers: Path, kept: Path | None) -> Sent:
    """Let one client do a task in a new copy of the repository; return what it has sent."""
    dialect, client, _ = SUBJECTS[name]
    with tempfile.TemporaryDirectory() as top:
        folder, home = Path(top, "shop"), Path(top, "home")
        folder.mkdir()
        home.mkdir()
        write_repository(folder)
        with Recorder(list(answers_of(task, dialect(folder)))) as model:
            os.environ["HOME"] = str(home)
            with client(peers, folder, home, model.base_url) as running:
                for number, prompt in enumerate(task.prompts):
                    running.prompt(prompt.text, is_first=number == 0)
            assert not model.answers, f"{name} has not asked for all answers"
        left = state_of(folder)
    if kept:
        place = kept / f"{name}.{task.name}.json"
        place.write_text(json.dumps(model.requests, indent=1), encoding="utf-8")
    return count(model.requests, model.others, left)


def count(requests: list[dict], others: list[dict], left: str) -> Sent:
    """Count the bytes of the requests of one task."""
    texts = [what_is_read(request) for request in requests]
    whole = sum(map(len, texts)) + sum(len(what_is_read(request)) for request in others)
    same = [shared(before, after) for before, after in pairwise(texts)]
    # The end of the JSON list, at least, is followed by more.
    unlike = [
        (number, len(before) - here)
        for number, (before, here) in enumerate(zip(texts, same, strict=False), 1)
        if len(before) - here > len("]")
    ]
    number = len(requests) + len(others)
    return Sent(len(texts[0]), whole, whole - sum(same), number, left, unlike)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("peers", nargs="?", type=Path, default=Path("/nowhere"))
    reader.add_argument("--tasks", default="", help="only those whose name holds this")
    reader.add_argument("--subjects", default="", help="names, separated by ';'")
    reader.add_argument("--keep", type=Path, help="a folder for the requests")
    given = reader.parse_args()
    peers = given.peers.resolve()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, capture_output=True)
    packages = {name: package for name, (*_, package) in SUBJECTS.items()}
    versions = {name: version(peers, package) for name, package in packages.items()}
    names = [name for name in SUBJECTS if versions[name] or not packages[name]]
    names = given.subjects.split(";") if given.subjects else names
    tasks = [task for task in TASKS if given.tasks in task.name]
    sent: dict[str, list[Sent]] = {name: [] for name in names}
    for task in tasks:
        for name in names:
            print(task.name, name, file=sys.stderr)
            done = run(task, name, peers, given.keep)
            sent[name].append(done)
            if done.unlike:
                print("  unlike the request before:", done.unlike, file=sys.stderr)
            assert done.left == sent[names[0]][-1].left, "other files than with the first client"
    print_tables(tasks, sent, versions)


def version(peers: Path, package: str) -> str:
    """Return the version of an installed npm package; "" where it is not there."""
    place = peers / "node_modules" / package / "package.json"
    return json.loads(place.read_text("utf-8"))["version"] if package and place.exists() else ""


def tokens(size: float) -> str:
    return f"{size / BYTES_A_TOKEN:,.0f}"


def print_tables(tasks: list[Task], sent: dict[str, list[Sent]], versions: dict[str, str]) -> None:
    """Print the sums of all tasks, and a row for each."""
    print("| client | first request | requests | sent | not in a cache | can be cached | breaks |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, each in sent.items():
        whole, fresh = sum(s.whole for s in each), sum(s.fresh for s in each)
        print(
            f"| {name} {versions[name]} | {tokens(sum(s.first for s in each) / len(each))} "
            f"| {sum(s.requests for s in each)} | {tokens(whole)} | {tokens(fresh)} "
            f"| {1 - fresh / whole:.1%} | {sum(len(s.unlike) for s in each)} |"
        )
    print("\n| task: sent (not in a cache) |", " | ".join(sent), "|")
    print("| --- |", " | ".join("---:" for _ in sent), "|")
    for number, task in enumerate(tasks):
        cells = (f"{tokens(s[number].whole)} ({tokens(s[number].fresh)})" for s in sent.values())
        print(f"| {task.name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
