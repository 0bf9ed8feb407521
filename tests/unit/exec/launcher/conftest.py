from collections.abc import Iterator

import pytest
from confined_run import USER, ground


@pytest.fixture(params=[0, USER])
def uid(request: pytest.FixtureRequest) -> int:
    """Who runs what is confined: root, then an unprivileged user."""
    return request.param


@pytest.fixture
def place(uid: int) -> Iterator[str]:
    """A folder of theirs, with a project and secrets in it."""
    with ground(uid) as folder:
        yield folder
