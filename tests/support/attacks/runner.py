"""What runs inside the sandbox: the attacks whose numbers it is given, one line of JSON for each.

`python -E -s -S attack_runner.py WORLD.json NUMBER…`, with the modules of the attacks beside it.
"""

import json
import os
import sys

import attack_files  # noqa: F401  (each fills the table)
import attack_lifetime  # noqa: F401
import attack_network  # noqa: F401
import attack_processes  # noqa: F401
import attack_surface  # noqa: F401
from attack_table import ROWS, World, run_one


def main(world_file: str, *numbers: str) -> None:
    """Run the attacks; the marks prove that it began and came to its end."""
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
