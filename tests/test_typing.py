"""What a type checker sees of the installed package: the wheel in an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ROOT / "tests/support/typing"

pytestmark = pytest.mark.timeout(300)


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "AGENT_MAGICS_LABEXTENSION": "skip"}
    argv = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typing")
    built = run("hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    env = folder / "env"
    venv.create(env)
    packages = sysconfig.get_path("purelib", vars={"base": str(env), "platbase": str(env)})
    [wheel] = folder.glob("*.whl")
    offline = ("--no-deps", "--no-index", "--no-compile", "--quiet")
    put = run("pip", "install", *offline, "--target", packages, wheel, cwd=folder)
    assert put.returncode == 0, put.stderr
    return folder


def check(installed: Path, name: str) -> subprocess.CompletedProcess[str]:
    # Away from the source, which would stand in the place of the wheel.
    file = shutil.copy(FILES / name, installed)
    scripts = Path(sysconfig.get_path("scripts", vars={"base": str(installed / "env")}))
    executable = scripts / Path(sys.executable).name
    options = ("--strict", "--config-file=", "--cache-dir", installed / "cache")
    return run(*("mypy", *options, "--python-executable", executable, file), cwd=installed)


def test_typical_uses_have_types(installed):
    found = check(installed, "uses.py")
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_mistake_is_found_and_nothing_else(installed):
    lines = (FILES / "misuses.py").read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
    told = check(installed, "misuses.py").stdout
    assert {int(number) for number in re.findall(r"misuses\.py:(\d+): error", told)} == marked, told
