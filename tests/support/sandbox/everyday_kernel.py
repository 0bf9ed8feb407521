"""Plays a notebook kernel that runs everyday commands in its sandbox and reports the outcomes.

`python -m tests.support.sandbox.everyday_kernel '{"root": …, "tier": …, "cases": […]}'` prints one
JSON object.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_magics.exec.environment import command_environment
from agent_magics.exec.launcher_client import Launcher
from agent_magics.exec.sandbox.plan import build_confinement
from tests.support.sandbox.container import deny_namespaces
from tests.support.sandbox.everyday_cases import CASES, Case

_PATIENCE = 30.0  # seconds for one command
_MOST_LOOKED_AT = 2000  # characters of a file
_GITCONFIG = "[user]\n\tname = A Person\n\temail = person@example.org\n"


class Kernel:
    """Runs cases, each in a folder of its own."""

    def __init__(self, root: Path, tier: int) -> None:
        self.root, self.tier = root, tier
        self.launcher = Launcher()
        home = root / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(_GITCONFIG, encoding="utf-8")
        environment = os.environ | {"HOME": str(home)}
        self._environment = command_environment(environment) | {"PY": sys.executable}

    def run(self, case: Case) -> dict[str, Any]:
        """Run one case and return its exit code, its output, and the files it left."""
        workspace, temporary = self.root / case.name, self.root / f"{case.name}-tmp"
        workspace.mkdir()
        temporary.mkdir()
        outcome: dict[str, Any] = {}
        for script, tier in ((case.before, 0), (case.script, self.tier)):
            if script:
                outcome = self._run_script(script, tier, workspace, temporary, case.tty)
        outcome["leaves"] = {name: _look_at(workspace / name) for name in case.leaves}
        return outcome

    def _run_script(
        self, script: str, tier: int, workspace: Path, temporary: Path, tty: bool
    ) -> dict[str, Any]:
        confinement = None
        if tier:
            confinement = build_confinement(
                tier=tier,
                policy="workspace-write",
                roots=[workspace],
                cwd=workspace,
                tmp=temporary,
            )
        process = self.launcher.spawn(
            ["bash", "-euc", script],
            cwd=workspace,
            env=self._environment | {"TMPDIR": str(temporary)},
            tty=tty,
            confinement=confinement,
        )
        in_time = process.wait(_PATIENCE)
        if not in_time:
            process.kill("time")
            process.wait(_PATIENCE)
        return {
            "exit": process.exit_code,
            "output": process.output.text(),
            "refused": list(process.refused),
            "in time": in_time,
            "seconds": round(process.duration, 2),
        }


def _look_at(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_LOOKED_AT)


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Run the cases that `task` names; see `Kernel.run` for the report on each."""
    if task["container"]:
        deny_namespaces()
    kernel = Kernel(Path(task["root"]), task["tier"])
    able = kernel.launcher.capabilities()
    if able.tier < task["tier"]:
        return {"untested": able.reason}
    names: Iterable[str] = task["cases"]
    outcomes = {case.name: kernel.run(case) for case in CASES if case.name in names}
    kernel.launcher.close()
    return {"outcomes": outcomes}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
