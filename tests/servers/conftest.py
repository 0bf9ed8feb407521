import pytest

from agent_magics.models.providers.endpoints import forget_wires


@pytest.fixture(params=["responses", "chat"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each of the two APIs."""
    return request.param


@pytest.fixture(autouse=True)
def _nothing_found_out() -> None:
    forget_wires()
