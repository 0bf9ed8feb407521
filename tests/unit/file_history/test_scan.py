"""Which files of a workspace are watched for changes."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent_magics.file_history.workspace import WorkspaceMemory


@pytest.mark.parametrize(
    ("name", "is_watched"),
    [
        ("a.txt", True),
        ("d/.env", True),
        ("d/node_modules/a.js", False),
        ("__pycache__/a.pyc", False),
        (".jupyter_ystore.db", False),
        (".jupyter_ystore.db-journal", False),
        ("day.agent.jsonl", False),
        (".agent-undo-0f.tmp", False),
        ("environment/lib/a.py", False),
    ],
)
def test_what_tools_and_servers_write_by_themselves_is_no_change(
    tmp_path: Path, name: str, is_watched: bool
) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/pyvenv.cfg").touch()
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    memory = WorkspaceMemory(str(tmp_path))
    memory.begin()
    file.write_text("new")
    assert [each.path for each in memory.end().changes] == [str(file)] * is_watched


@pytest.mark.soak
def test_commands_go_on_beside_a_folder_that_is_nested_without_end(tmp_path: Path) -> None:
    nest = "import os\nfor _ in range(1_500): os.mkdir('d'); os.chdir('d')"
    memory = WorkspaceMemory(str(tmp_path))
    memory.begin()
    try:
        subprocess.run([sys.executable, "-c", nest], cwd=tmp_path, check=True)
        assert all(each.after.kind == "folder" for each in memory.end().changes)
        [left_out] = memory.left_out
        assert set(left_out) == {"d", "/"}
        memory.begin()
        (tmp_path / "new").touch()
        assert [each.path for each in memory.end().changes] == [f"{tmp_path}/new"]
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # pytest cannot go so deep
