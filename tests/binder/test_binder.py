"""Binder's files alone make an environment in which the notebooks run.

What repo2docker does with them is done here: a fresh environment, the requirements installed from
the root of a checkout, then postBuild; and after it the notebooks as a visitor would run them.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_IN_A_CHECKOUT = shutil.ignore_patterns(
    *(".git", ".venv", "build", "dist", "__pycache__", ".*_cache"),
    *("labextension", "node_modules"),
)


def run(checkout: Path, *command: str | Path) -> None:
    """Run a command in the checkout with the environment's programs first; show it if it fails."""
    programs = checkout.parent / "env" / "bin"
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "AGENT_MAGICS_LABEXTENSION": "skip",  # its build has its own test, and takes a minute
        "IPYTHONDIR": str(checkout.parent / "ipython"),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "JUPYTER_PATH", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
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


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform == "win32", reason="Binder's postBuild is a shell script")
def test_notebooks_run_in_the_environment_that_binder_makes(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=NOT_IN_A_CHECKOUT)
    venv.create(tmp_path / "env", with_pip=True, upgrade_deps=True)

    run(checkout, "python", "-m", "pip", "install", "-r", "binder/requirements.txt")
    run(checkout, checkout / "binder/postBuild")

    notebooks = sorted((checkout / "notebooks").glob("*.ipynb"))
    assert notebooks, "no notebooks to run"
    for notebook in notebooks:
        run(checkout, "jupyter", "execute", "--timeout=120", notebook)
