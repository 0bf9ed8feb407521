"""Runs the attacks on the sandbox in each configuration."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import agent_magics
from tests.support.attacks import runner  # noqa: F401  (fills the table)
from tests.support.attacks.table import LIFETIME, ROWS, Row
from tests.support.attacks.world import make_file_of_root, make_setuid_cat, remove_shared

_USER = 1001
_PATIENCE = 200.0  # seconds for a whole configuration on a busy machine
_SUPPORT = Path(__file__).parents[1]
_NATIVE = 99  # the machine's own Landlock version


@dataclass(frozen=True)
class Configuration:
    """One configuration of the sandbox under attack.

    Attributes:
        tier: 0 is the control, without any confinement.
        who: "root" or "user".
        abi: the newest Landlock version that is used.
        container: whether a container's filter forbids user namespaces.
    """

    tier: int
    who: str
    abi: int = _NATIVE
    container: bool = False

    def __str__(self) -> str:
        parts = [f"tier{self.tier}" if self.tier else "control"]
        parts += [f"abi{self.abi}"] if self.abi != _NATIVE else []
        parts += ["container"] if self.container else []
        return "-".join([*parts, self.who])

    @property
    def rows(self) -> list[Row]:
        """The rows to try; attacks on lifetimes do not depend on Landlock's version."""
        return [
            row
            for row in ROWS.values()
            if row.who in (None, self.who) and (row.group != LIFETIME or self.abi == _NATIVE)
        ]


CONTROLS = [Configuration(0, who) for who in ("root", "user")]
MAIN = [Configuration(tier, who) for tier in (1, 2) for who in ("root", "user")]
# The matrix of what a machine can lack, which is long to go through.
OTHERS = [
    *(Configuration(1, who, abi) for abi in (1, 2, 4, 6, 7) for who in ("root", "user")),
    *(Configuration(1, who, container=True) for who in ("root", "user")),
    *(Configuration(2, who, 1) for who in ("root", "user")),
]


def cannot_try(configuration: Configuration) -> str:
    """Return why this user cannot try `configuration`, or ""."""
    if configuration.who == "root" and os.geteuid() != 0:
        return "the tests do not run as root"
    if configuration.who == "user" and not interpreter_of_user():
        return f"uid {_USER} may run no Python >= 3.11 of this machine"
    return ""


@cache
def interpreter_of_user() -> str:
    """Return a Python that an unprivileged user can run (root's may be in root's home), or ""."""
    code = "import sys; assert sys.version_info >= (3, 11); import ctypes"
    for program in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [program, "-c", code], check=True, capture_output=True, cwd="/", **as_user()
            )
            return program
    return ""


def as_user() -> dict[str, Any]:
    """Return the arguments that make `subprocess` run a program as an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    return {"user": _USER, "group": _USER, "extra_groups": []}


def interpreter_of(who: str) -> str:
    """Return the Python that runs a kernel of "root" or "user"."""
    return interpreter_of_user() if who == "user" else sys.executable


def run(configuration: Configuration) -> dict[str, Any]:
    """Attack a new kernel with the configuration's rows.

    Returns:
        The result of `attacks.kernel.main`.
    """
    rows = [row.number for row in configuration.rows]
    return run_kernel(configuration, "attacks.kernel", {"rows": rows})


def run_kernel(configuration: Configuration, module: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run a stand-in kernel in a configuration, in a scratch folder.

    Args:
        configuration: the user and the limits of the machine.
        module: of `tests.support`, attacks.kernel or sandbox.everyday_kernel.
        task: its further arguments.

    Returns:
        The result of the module's `main`.
    """
    root = Path(tempfile.mkdtemp(prefix="agent-magics-attacks-", dir="/tmp"))
    try:
        root.chmod(0o755)
        return _run_in(root, configuration, module, task)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        remove_shared(root.name)  # which a kernel leaves that was killed, by the time limit say


def _run_in(
    root: Path, configuration: Configuration, module: str, task: dict[str, Any]
) -> dict[str, Any]:
    canary = f"canary-{secrets.token_hex(16)}"
    scene, code = root / "world", root / "code"
    scene.mkdir()
    _copy_code(code)
    if os.geteuid() == 0:
        make_setuid_cat(scene)
        make_file_of_root(scene, canary)
        if configuration.who == "user":
            os.chown(scene, _USER, _USER)
    task = {
        "root": str(scene),
        "tier": configuration.tier,
        "container": configuration.container,
        **task,
    }
    done = subprocess.run(
        [interpreter_of(configuration.who), "-m", f"tests.support.{module}", json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        cwd=scene,
        env=_environment(scene, canary, code, configuration.abi),
        check=False,
        **(as_user() if configuration.who == "user" else {}),
    )
    if done.returncode:
        raise RuntimeError(f"the kernel of {configuration} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _copy_code(code: Path) -> None:
    """Copy the package and the attacks to where every user can read them."""
    unneeded = shutil.ignore_patterns("__pycache__", "labextension", "static")
    package = Path(agent_magics.__file__).parent
    shutil.copytree(package, code / package.name, ignore=unneeded)
    shutil.copytree(_SUPPORT, code / "tests/support", ignore=unneeded)
    (code / "tests/__init__.py").touch()


def _environment(scene: Path, canary: str, code: Path, abi: int) -> dict[str, str]:
    return {
        "HOME": str(scene / "home"),
        "PATH": f"{os.environ.get('PATH', os.defpath)}:{scene / 'outside/bin'}",
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": canary,
        "PYTHONPATH": str(code),
        "PYTHONDONTWRITEBYTECODE": "1",
        **({} if abi == _NATIVE else {"AGENT_MAGICS_TEST_ABI": str(abi)}),
    }
