"""Set-up for all tests: a home of their own for what the package records, and the servers' path."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Tests never write to the home of whoever runs them, and never use their key.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="agent-magics-state-")
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="agent-magics-config-")
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
    os.environ.pop(name, None)

# Shared servers and drivers stand beside the tests, not in a package.
for folder in ("servers", "drivers"):
    sys.path.insert(0, str(HERE / folder))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run browser tests last: Playwright leaves a running loop on the main thread."""
    items.sort(key=lambda item: "browser" in item.path.parts)
