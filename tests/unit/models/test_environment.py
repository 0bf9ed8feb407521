"""What the environment says of the way to a server."""

import pytest

from agent_magics.models.environment import proxy_to


@pytest.mark.parametrize(
    ("host", "names", "is_used"),
    [
        ("10.1.2.3:8000", "10.0.0.0/8", False),
        ("11.1.2.3:8000", "10.0.0.0/8", True),
        ("[fd00::1]:8000", "localhost, fd00::1", False),
        ("[fd00::1]:8000", "[fd00::1]", False),
        ("[fd00::1]:8000", "fd00::/64", False),
        ("[fd00::2]", "fd00::1", True),
        ("a.models.example", "*.models.example", False),
        ("amodels.example", "*.models.example", True),
        ("a.models.example", ".MODELS.example", False),
        ("models.example:81", "models.example:80", True),
        ("models.example:80", "models.example:80", False),
        ("models.example", " other , models.example ", False),
        ("models.example", "*", False),
        ("models.example", "", True),
        ("127.0.0.1", "", True),
    ],
)
def test_the_servers_of_no_proxy_are_asked_directly(host, names, is_used, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", " HTTP://proxy.example:3128 ")
    monkeypatch.setenv("NO_PROXY", names)
    assert proxy_to(f"http://{host}/v1") == ("HTTP://proxy.example:3128" if is_used else "")
