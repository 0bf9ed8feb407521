"""A cluster for each file, and a store of answers for each test."""

import pytest

from tests.support.rows.clusters import cluster


@pytest.fixture(scope="module")
def client():
    with cluster() as client:
        yield client


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """Each test has its own store of answers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
