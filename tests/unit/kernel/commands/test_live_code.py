"""``%agent export``, as far as it needs no kernel."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_magics.kernel.commands.live_code import EXPORT
from agent_magics.kernel.live.namespace import RanCode
from agent_magics.protocol.errors import FatalError
from tests.unit.kernel.lab.test_pasted_files import refusing_after


def export(code: str, path: Path) -> Any:
    """Export this code of an agent."""
    agent = SimpleNamespace(
        name="mine", session=SimpleNamespace(conversation=SimpleNamespace(id="x"))
    )
    ran = SimpleNamespace(ran=[RanCode("x", code)])
    notebook: Any = SimpleNamespace(agents={"mine": agent}, live_kernel=ran, secrets=())
    return EXPORT.run([str(path)], notebook, agent)


def test_nothing_stays_of_a_file_that_the_disk_refuses(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    with refusing_after(8_192), pytest.raises(FatalError, match="cannot be written"):
        export("a = 1\n" * 10_000, path)
    assert not path.exists()
    export("a = 1", path)
    with pytest.raises(FatalError, match="exists and is left as it is"):
        export("a = 2", path)
    assert "a = 1" in path.read_text()


def test_half_a_character_is_written_as_json_has_it(tmp_path: Path) -> None:
    export("'\ud800'", tmp_path / "x.ipynb")
    assert json.loads((tmp_path / "x.ipynb").read_text())["cells"][0]["source"] == ["'\ud800'"]
