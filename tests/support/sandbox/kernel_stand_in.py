"""Plays a notebook kernel that will be killed: it has a launcher and many commands.

Run as a program: `python kernel_stand_in.py [fork] [tier1 | tier2]`, with the marker of its
processes as a line on its standard input. It writes one line of JSON, then a line for every short
command that it goes on starting. With `fork` it leaves a forked copy of itself behind, which holds
all its sockets, as multiprocessing does. With a tier its commands are confined.
"""

import json
import signal
import sys

from agent_magics.exec.launcher.wire import Confinement
from tests.support import forks
from tests.support.sandbox.launcher_client import ENVIRONMENT, Command, LauncherClient

# Each says "ready" when it is up, and ends by itself where a test has failed to end it. {marker} is
# a fraction of a second: it marks a process that has given up its environment.
DAEMON = "trap : TERM HUP INT; echo ready; while ((SECONDS < 300)); do sleep 300.{marker}; done"
TREES = (
    "sleep 300.{marker} & sleep 300.{marker} & echo ready; wait",
    f"(setsid bash -c '{DAEMON}' &); exec sleep 300",
    "(env -i setsid -f sleep 300.{marker} </dev/null >/dev/null 2>&1); echo ready; sleep 300",
    "sleep 300.{marker} & echo ready; kill -STOP $! $$; wait",
    "echo ready; while ((SECONDS < 300)); do /bin/true; done",
)
TIERS = {"tier1": 1, "tier2": 2}


def start_trees(launcher: LauncherClient, marker: str, tier: int = 0) -> list[Command]:
    """Start one command for each of TREES, and one on a terminal."""
    commands = []
    for number, script in enumerate((*TREES, TREES[0])):
        own = f"{marker}{number}"
        commands.append(
            launcher.spawn(
                ["bash", "-c", script.format(marker=own)],
                env=ENVIRONMENT | {"MARK": own},
                tty=number == len(TREES),
                confinement=Confinement(tier) if tier else None,
            )
        )
    for command in commands:
        command.read_until(b"ready")
    return commands


def run(marker: str, *, fork: bool, tier: int) -> None:
    """Start a launcher and its commands, print their process ids, and go on until killed."""
    launcher = LauncherClient(env={"MARK": marker})
    commands = start_trees(launcher, marker, tier)
    copy = forks.start(signal.pause) if fork else None
    people = {
        "guardian": launcher.guardian,
        "launcher": launcher.pid,
        "commands": [command.pid for command in commands],
        "copy": copy,
    }
    say(json.dumps(people))
    try:
        while True:
            launcher.run(["true"])
            say(".")
    except OSError:  # the launcher is gone, the kernel lives on
        signal.pause()


def say(line: str) -> None:
    """Write one line to standard output and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(sys.stdin.readline().strip(), fork="fork" in sys.argv, tier=TIERS.get(sys.argv[-1], 0))
