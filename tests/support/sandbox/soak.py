"""Runs many sandboxed commands one after the other and reports the resources that stay in use.

`python soak.py COUNT [TIER]` prints one JSON object: figures after a tenth of the commands, and
after all of them.
"""

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from agent_magics.exec.environment import command_environment
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.launcher_client import Launcher

# What ends by itself, fails, has a terminal, asks the supervisor, leaves a process behind, writes.
_COMMANDS = (
    (["true"], False),
    (["false"], False),
    (["sh", "-c", "echo hello; echo there >&2"], False),
    (["sh", "-c", "test -t 1 && echo terminal"], True),
    (["sh", "-c", "touch f; chmod 700 f; rm f"], False),
    (["sh", "-c", "sleep 100 & echo left"], False),
    (["sh", "-c", "chmod 700 ."], False),
    (["head", "-c", "200000", "/dev/zero"], False),
)
_PATIENCE = 30.0  # seconds for one of them


def main(count: int, tier: int) -> dict[str, object]:
    """Run `count` commands.

    Returns:
        "early" and "late" figures, and "wrong": how many did not end as they should.
    """
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher()
        confinement = Confinement(tier, (os.path.realpath(folder),)) if tier else None
        report: dict[str, object] = {"wrong": 0}
        for number in range(count):
            argv, tty = _COMMANDS[number % len(_COMMANDS)]
            process = launcher.spawn(
                argv,
                cwd=folder,
                env=command_environment(os.environ),
                tty=tty,
                confinement=confinement,
            )
            report["wrong"] += not process.wait(_PATIENCE)
            if number == count // 10:
                report["early"] = figures(launcher.pid)
        report["late"] = figures(launcher.pid)
        launcher.close()
    return report


def figures(launcher: int) -> dict[str, int]:
    """Return descriptors, threads, children and memory (KiB) of this process and the launcher.

    The launcher lets nobody but root look at its descriptors.
    """
    found = {}
    for who, pid in (("kernel", os.getpid()), ("launcher", launcher)):
        place = Path(f"/proc/{pid}")
        with suppress(PermissionError):
            found[f"{who} descriptors"] = len(list((place / "fd").iterdir()))
        found[f"{who} threads"] = len(list((place / "task").iterdir()))
        children = (place / f"task/{pid}/children").read_text(encoding="ascii").split()
        found[f"{who} children"] = len(children)
        status = (place / "status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        found[f"{who} memory"] = int(line.split()[1])
    return found


if __name__ == "__main__":
    count, tier = (*map(int, sys.argv[1:]), 1)[:2]
    sys.stdout.write(json.dumps(main(count, tier)))
