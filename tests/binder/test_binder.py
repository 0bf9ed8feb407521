"""Binder's files alone make an environment in which the notebooks run.

What repo2docker does with them is done here: a fresh environment, the requirements installed from
the root of a checkout on a machine without Node, then postBuild; and after it the notebooks as a
visitor would run them.
"""

import os
import shutil
import subprocess
import venv
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = shutil.ignore_patterns(
    *(".git", ".venv", "build", "dist", "__pycache__", ".*_cache", "node_modules", "lib"),
)
EXTENSION = "share/jupyter/labextensions/agent-magics/package.json"
NODE = {"corepack", "node", "nodejs", "npm", "npx"}


def not_in_a_checkout(folder: str, names: list[str]) -> Iterable[str]:
    built = {"labextension"} if Path(folder).name == "agent_magics" else set()
    return MADE(folder, names) | built


def link_programs(folder: Path) -> None:
    """Fill a folder with the system's programs but Node's."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            if program.name not in NODE and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)


def run(checkout: Path, *command: str | Path) -> None:
    """Run a command in the checkout with the environment's programs first; show it if it fails."""
    home = checkout.parent
    environment = {
        **os.environ,
        "PATH": f"{home / 'env/bin'}{os.pathsep}{home / 'programs'}",
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    others = ("VIRTUAL_ENV", "PYTHONPATH", "JUPYTER_PATH", "AGENT_MAGICS_LABEXTENSION")
    for name in (*others, "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        environment.pop(name, None)
    done = subprocess.run(
        command,
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}"


def test_runtime_names_a_python_that_the_package_supports() -> None:
    name, _, version = (ROOT / "binder/runtime.txt").read_text(encoding="utf-8").partition("-")
    assert name == "python"
    assert tuple(map(int, version.split("."))) >= (3, 11)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_notebooks_run_in_the_environment_that_binder_makes(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=not_in_a_checkout)
    link_programs(tmp_path / "programs")
    venv.create(tmp_path / "env", with_pip=True, upgrade_deps=True)

    run(checkout, "python", "-m", "pip", "install", "-r", "binder/requirements.txt")
    run(checkout, checkout / "binder/postBuild")
    assert (tmp_path / "env" / EXTENSION).is_file()

    notebooks = sorted((checkout / "notebooks").glob("*.ipynb"))
    assert notebooks, "no notebooks to run"
    for notebook in notebooks:
        run(checkout, "jupyter", "execute", "--timeout=120", notebook)
