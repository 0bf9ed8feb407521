"""Runs attacks by number inside the sandbox and prints one line of JSON for each.

`python -E -s -S -m tests.support.attacks.runner WORLD.json NUMBER…` where a copy is.
"""

import json
import os
import sys

from tests.support.attacks import (
    files,  # noqa: F401  (each fills the table)
    lifetime,  # noqa: F401
    network,  # noqa: F401
    processes,  # noqa: F401
    surface,  # noqa: F401
)
from tests.support.attacks.table import ROWS, World, run_one


def main(world_file: str, *numbers: str) -> None:
    """Run the attacks; marks in the output prove that it began and came to its end."""
    with open(world_file, encoding="utf-8") as file:
        world = World(**json.load(file))
    _say({"began": os.getpid()})
    for number in map(int, numbers):
        _say({"row": number, **run_one(ROWS[number], world)})
    _say({"ended": len(numbers)})


def _say(record: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(record)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
