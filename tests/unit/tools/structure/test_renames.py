"""Fifty renames by symbol over several files: every use, nothing else, and all files or none."""

import random
import re
import sys
from pathlib import Path

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.tools import STRUCTURE
from tests.support.language_servers.project import PROGRAM

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

COUNT = 50
NAMES = [f"{stem}_{number}" for number in range(COUNT // 2) for stem in ("value", "größe")]
TABLE = {"python": {"command": sys.executable, "args": [str(PROGRAM), "good"]}}


def _package(folder: Path) -> None:
    """Write a file that defines all names, and files that use them, of different forms."""
    draw = random.Random(18)
    (folder / "deep").mkdir(parents=True)
    defined = "".join(
        f"def {name}(x={n}):\n    return x  # 🐍\n\n\n" for n, name in enumerate(NAMES)
    )
    (folder / "all.py").write_bytes(defined.encode())
    for name, end, head in (
        ("windows.py", "\r\n", b""),
        ("deep/marked.py", "\n", "\ufeff".encode()),
        ("deep/ünï.py", "\n", b""),
    ):
        lines = [f"'🐍é', {each}, {each}(1), x{each}" for each in draw.choices(NAMES, k=80)]
        (folder / name).write_bytes(head + end.join(lines).encode())  # without a last line break


def _bytes(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.py")}


def _renamed(data: bytes, old: str, new: str) -> bytes:
    return re.sub(rf"\b{old}\b", new, data.decode()).encode()


@pytest.mark.parametrize("count", [15, pytest.param(50, marks=pytest.mark.long)])
def test_random_renames(tmp_path, count):
    folder = tmp_path / "work"
    _package(folder)
    options = {"cwd": folder, "approval": "never", "sandbox": "danger-full-access"}
    draw = random.Random(5)
    with Agent(ScriptedModel([]), list(STRUCTURE), language_servers=TABLE, **options) as agent:
        for number, old in enumerate(NAMES[:count]):
            new = f"{'neu' if number % 2 else 'ñ'}_{number}"
            before = _bytes(folder)
            wanted = {path: _renamed(data, old, new) for path, data in before.items()}
            changed = [path for path in wanted if wanted[path] != before[path]]
            arguments = {"name_path": old, "path": "all.py", "action": "rename", "text": new}

            barred = draw.choice(changed)  # which the policy then refuses to write
            barred.chmod(0o444)
            refused = agent.call_sync("edit_symbol", arguments)
            barred.chmod(0o644)
            assert not refused.success and "read-only" in refused.text, old
            assert _bytes(folder) == before, old

            output = agent.call_sync("edit_symbol", arguments)
            assert output.success, output.text
            assert _bytes(folder) == wanted, old
            assert f"of {len(changed)} file" in output.text
