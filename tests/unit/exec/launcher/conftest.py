import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_magics.exec.launcher.rules import landlock
from tests.support.needs import require
from tests.support.sandbox.confined_run import ground
from tests.support.users import ME, USER


@pytest.fixture(params=["root", "user"])
def uid(request: pytest.FixtureRequest) -> int:
    """Who runs what is confined: root, then an unprivileged user."""
    require("tier 1")
    if request.param == "user":
        return USER
    require("root")
    return ME


@pytest.fixture
def place(uid: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of theirs, with a project and secrets in it."""
    # On the way to it are folders in which others may have left any number of files.
    above = Path(tempfile.gettempdir(), "place").parents
    there = max(len(os.listdir(folder)) for folder in above)
    monkeypatch.setattr(landlock, "_MOST_BESIDE", landlock._MOST_BESIDE + there)
    with ground(uid) as folder:
        yield folder
