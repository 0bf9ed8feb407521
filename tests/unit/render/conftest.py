"""The programs that show Markdown, started once."""

from collections.abc import Iterator

import pytest

from tests.support.pages.readers import Readers


@pytest.fixture(scope="session")
def readers() -> Iterator[Readers]:
    """Return all readers of saved Markdown."""
    readers = Readers()
    yield readers
    readers.close()
