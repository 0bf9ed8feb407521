"""Renames random symbols of real packages, one at a time, and runs the packages' own tests.

    PYTHONPATH=benchmarks python benchmarks/measures/renaming.py [NUMBER]

The packages are those of the environment that bring their tests along; each is copied. A name that
is used as text at run time (`getattr`, a registry by name) or of an unknown type cannot be renamed
by any tool, so what fails is printed with the last line of the tests. "red and told" counts those
of which the answer of the rename names the places.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measures.agreeing import KINDS, names_of

from agent_magics import Agent, ScriptedModel
from agent_magics.symbols.parsing import parse_symbols

PACKAGES = ("traitlets", "websocket")


def fails(root: Path, package: str) -> str:
    """Run the tests of a package; return their last line where they fail, else ""."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header"]
    plain = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [*command, "-p", "no:randomly", "-c", os.devnull, str(root / package / "tests")],
        cwd=root,
        env={**plain, "HOME": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout.strip().split("\n")[-1] or "failed") if done.returncode else ""


def symbols_of(root: Path, package: str) -> list[tuple[Path, str]]:
    """Return (file, name path) of the symbols, without those of the tests and special names."""
    found = []
    for path in sorted((root / package).rglob("*.py")):
        if "tests" not in path.parts:
            tree = parse_symbols(path, path.read_text("utf-8"), path.name)
            names = ((name, each) for name, each in names_of(tree) if each.kind in KINDS)
            found += [(path, name) for name, each in names if not each.name.startswith("__")]
    return found


def measure_one(package: str, count: int, seed: int) -> dict[str, Any]:
    """Rename symbols of one package, each in the package as it was."""
    counts = dict.fromkeys(("renamed", "refused", "tests green", "red and told", "files"), 0)
    with tempfile.TemporaryDirectory() as folder:
        root, kept = Path(folder).resolve() / "work", Path(folder) / "kept"
        root.mkdir()
        source = Path(find_spec(package).origin).parent
        for place in (root / package, kept):
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
        if why := fails(root, package):
            raise SystemExit(f"the tests of {package} fail as they are: {why}")
        drawn = random.Random(seed).sample(symbols_of(root, package), count)
        options = {"tools": ["edit_symbol"], "cwd": root, "approval": "never"}
        with Agent(ScriptedModel([]), sandbox="danger-full-access", **options) as agent:
            for number, (path, name) in enumerate(drawn):
                arguments = {"name_path": name, "path": str(path), "action": "rename"}
                output = agent.call_sync("edit_symbol", {**arguments, "text": f"named_{number}"})
                why = fails(root, package) if output.success else output.text
                counts["renamed" if output.success else "refused"] += 1
                counts["tests green"] += not why
                is_told = "does not know what" in output.text or "Other definitions" in output.text
                counts["red and told"] += bool(why) and is_told
                if why:
                    print(package, path.name, name, why[:200], file=sys.stderr)
                for file in kept.rglob("*.py"):
                    target = root / package / file.relative_to(kept)
                    if target.read_bytes() != file.read_bytes():
                        counts["files"] += 1
                        target.write_bytes(file.read_bytes())
    return {package: counts}


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    found: dict[str, Any] = {}
    for each in PACKAGES:
        found |= measure_one(each, number // len(PACKAGES), 18)
    print(json.dumps(found, indent=1))
