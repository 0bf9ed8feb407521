"""Plays a notebook kernel under attack: makes a scene, runs the attacks, reports their outcomes.

`python -m tests.support.attacks.kernel '{"root": …, "tier": …}'` prints one JSON object. It is a
process of its own, because user id, imitated Landlock version and a container's filter are
properties of a process.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_magics.exec.environment import command_environment
from agent_magics.exec.launcher_client import CONFINED_LIMITS, Launcher
from agent_magics.exec.sandbox.plan import build_confinement
from tests.support import forks
from tests.support.attacks import runner  # noqa: F401  (fills the table)
from tests.support.attacks.table import ROWS, Row
from tests.support.attacks.world import Scene
from tests.support.sandbox.container import deny_namespaces

_ATTACKS = Path(__file__).parent
_RUNNER = (sys.executable, "-E", "-s", "-S", "-m", "tests.support.attacks.runner")
_PATIENCE = 30.0  # seconds for a whole command
_SURVIVAL = 2.0  # seconds until what holds the leash counts as a survivor
_LARGEST_FILE = CONFINED_LIMITS["RLIMIT_FSIZE"]
_MOST_KEPT = 8 << 20  # bytes of an output that may be held in memory
_BARE = frozenset({55, 56, 57, 58, 59, 60, 61, 65})  # what any launcher stops, confined or not


class Kernel:
    """Runs rows of the table in one configuration.

    Attributes:
        outcomes: row number -> its outcome.
    """

    def __init__(self, scene: Scene, tier: int) -> None:
        self.scene, self.tier = scene, tier
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.launcher = Launcher()
        self._facts = scene.save_facts()
        support = scene.workspace / "tests/support"
        shutil.copytree(_ATTACKS, support / "attacks")
        shutil.copy(forks.__file__, support)
        self._temporary = scene.root / "private-tmp"
        self._temporary.mkdir()

    def run(self, rows: Iterable[Row]) -> None:
        """Run the attacks, together where they do not disturb each other."""
        rows = list(rows)
        for manner in ("together", "network", "terminal"):
            together = [row for row in rows if row.run == manner]
            if together:
                self._run_command(together, manner)
        for row in rows:
            if row.run == "alone":
                self._run_alone(row)

    # -- commands -------------------------------------------------------------------------

    def _argv(self, rows: Iterable[Row]) -> list[str]:
        numbers = [str(row.number) for row in rows]
        return [*_RUNNER, self._facts, *numbers]

    def _spawn(self, rows: Iterable[Row], manner: str) -> Any:
        free = not self.tier
        environment = dict(os.environ) if free else command_environment(os.environ)
        return self.launcher.spawn(
            self._argv(rows),
            cwd=str(self.scene.workspace),
            env=environment | {"TMPDIR": str(self._temporary)},
            tty=manner == "terminal",
            confinement=None if free else self._confinement(manner == "network"),
        )

    def _confinement(self, network: bool) -> Any:
        """Return the confinement that the product itself would use in this workspace."""
        workspace, repository = self.scene.workspace, self.scene.repository
        confinement = build_confinement(
            tier=self.tier,
            policy="workspace-write",
            roots=(workspace, repository),
            cwd=workspace,
            tmp=self._temporary,
            network=network,
            notebook=workspace / "nb/open.ipynb",
        )
        second = str(repository / "nb/open.ipynb")  # a kernel has but one; row 94 needs its own
        return replace(confinement, protected=(*confinement.protected, second))

    def _run_command(self, rows: list[Row], manner: str) -> None:
        process = self._spawn(rows, manner)
        process.wait(_PATIENCE)
        text = process.output.text()
        if not process.ended:
            process.kill("time")
            process.wait(_PATIENCE)
        self._note(rows, text, process.refused)
        for row in rows:
            if row.seen_by == "orphaned" and process.lost:  # it ended too, and could not tell
                self.outcomes[row.number] = {"ran": True, "worked": True}

    def _note(self, rows: list[Row], text: str, refused: Iterable[str] = ()) -> None:
        """Parse the runner's output, then check the scene."""
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        whole = any("ended" in record for record in lines) and any("began" in r for r in lines)
        records = {record["row"]: record for record in lines if "row" in record}
        for row in rows:
            outcome = dict(records.get(row.number) or {"broken": f"it did not run: {text[-800:]}"})
            outcome["whole"] = whole
            outcome["launcher"] = list(refused)
            evidence = outcome.get("evidence", "")
            outcome["worked"] = self.scene.worked(row, evidence, patient=not self.tier)
            self.outcomes[row.number] = outcome

    # -- attacks that have a command of their own -------------------------------------------------

    def _run_alone(self, row: Row) -> None:
        if row.seen_by in ("secret", "reached", "orphaned"):
            self._run_bare(row) if self._is_bare(row) else self._run_command([row], "alone")
            return
        leash = os.open(self.scene.facts["leash"], os.O_RDONLY | os.O_NONBLOCK)
        try:
            looks = {"survived": self._survived, "hung": self._hung, "flooded": self._flooded}
            self.outcomes[row.number] = looks[row.seen_by](row, leash)
        finally:
            os.close(leash)

    def _is_bare(self, row: Row) -> bool:
        return not self.tier and row.number in _BARE

    def _start_bare(self, row: Row) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._argv([row]),
            cwd=self.scene.workspace,
            stdout=subprocess.PIPE,
            close_fds=False,
            text=True,
        )

    def _run_bare(self, row: Row) -> None:
        with self._start_bare(row) as process:
            self._note([row], process.communicate(timeout=_PATIENCE)[0])

    def _survived(self, row: Row, leash: int) -> dict[str, Any]:
        """Start a command, kill it as at a time-out, and return whether it left a process."""
        wanted = {55: 2, 56: 2, 61: 64}[row.number]
        process = self._start_bare(row) if self._is_bare(row) else self._spawn([row], "alone")
        holders = _holders(leash, wanted)
        if row.number == 55:  # its main process ends by itself
            process.wait(timeout=_PATIENCE)
        else:
            process.kill() if self._is_bare(row) else process.kill("time")
            process.wait(timeout=_PATIENCE)
        survived = not _let_go(leash, _SURVIVAL)
        self._end_bare(row, process, holders)
        return {"ran": len(holders) >= wanted, "worked": survived, "evidence": str(len(holders))}

    def _hung(self, row: Row, leash: int) -> dict[str, Any]:
        process = self._start_bare(row) if self._is_bare(row) else self._spawn([row], "alone")
        holders = _holders(leash, 2)
        if self._is_bare(row):
            try:
                process.communicate(timeout=1)
                hung = False
            except subprocess.TimeoutExpired:
                hung = True
        else:
            hung = not process.wait(_PATIENCE / 3) or not _let_go(leash, _SURVIVAL)
        self._end_bare(row, process, holders)
        return {"ran": len(holders) >= 2, "worked": hung, "evidence": str(len(holders))}

    def _flooded(self, row: Row, leash: int) -> dict[str, Any]:
        if self._is_bare(row):
            with self._start_bare(row) as process:
                kept = len(process.communicate(timeout=_PATIENCE)[0])
            return {"ran": kept > 60_000_000, "worked": kept > _MOST_KEPT, "evidence": str(kept)}
        before = _resident()
        process = self._spawn([row], "alone")
        process.wait(_PATIENCE)
        grown, total = _resident() - before, process.output.total
        return {"ran": total > 60_000_000, "worked": grown > _MOST_KEPT, "evidence": str(grown)}

    def _end_bare(self, row: Row, process: Any, holders: list[int]) -> None:
        if not self._is_bare(row):
            return
        for pid in holders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _holders(leash: int, wanted: int) -> list[int]:
    """Return the ids of the processes that opened the leash, once `wanted` have."""
    lines, end = b"", time.monotonic() + _PATIENCE
    while lines.count(b"\n") < wanted and time.monotonic() < end:
        data = _read(leash, 1.0)
        lines += data or b""
        if data == b"":
            time.sleep(0.005)  # nobody holds it yet: end of file until the first does
    return [int(pid) for pid in lines.split()]


def _let_go(leash: int, seconds: float) -> bool:
    """Return whether within `seconds` no process holds the leash any more."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if _read(leash, left) == b"":
            return True
    return False


def _read(leash: int, seconds: float) -> bytes | None:
    """Return the bytes from the leash within `seconds`, b"" for its end of file, None for none."""
    if not select.select([leash], [], [], seconds)[0]:
        return None
    with contextlib.suppress(BlockingIOError):  # somebody took it between the two calls
        return os.read(leash, 4096)
    return None


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Run the rows that the task names.

    Args:
        task: `root`, `tier`, `container` (whether a container's filter holds), `rows`.

    Returns:
        "outcomes" by row, or "untested" with why this machine cannot; and "capabilities".
    """
    if task["container"]:
        deny_namespaces()
    scene = Scene(Path(task["root"]), os.environ["OPENAI_API_KEY"], _LARGEST_FILE)
    try:
        kernel = Kernel(scene, task["tier"])
        able = kernel.launcher.capabilities()
        told = {"tier": able.tier, "abi": able.abi, "reason": able.reason}
        if able.tier < task["tier"]:
            return {"untested": able.reason, "capabilities": told}
        kernel.run(ROWS[number] for number in task["rows"])
        kernel.launcher.close()
        return {"outcomes": kernel.outcomes, "capabilities": told}
    finally:
        scene.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
