import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_garbage_in_the_depth() -> Iterator[None]:
    """Collect garbage before a test and not within it: where nesting is too deep for Python, there
    is no room for the finalizers of what earlier tests have left either.
    """
    gc.collect()
    gc.disable()
    yield
    gc.enable()
