from collections.abc import Iterator

import pytest

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
def place(uid: int) -> Iterator[str]:
    """A folder of theirs, with a project and secrets in it."""
    with ground(uid) as folder:
        yield folder
