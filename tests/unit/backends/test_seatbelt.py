"""The arguments for macOS as text; nothing here has been run on macOS."""

import re

from agent_magics.backends.exec.seatbelt import seatbelt_arguments
from agent_magics.backends.launcher.wire import Confinement

CONFINEMENT = Confinement(
    tier=1,
    writable=("/Users/ada/project", "/private/tmp/x"),
    protected=("/Users/ada/project/.git/hooks", '/Users/ada/project/a") (allow default'),
    hidden=("/Users/ada/.ssh",),
)


def parts(confinement, *command):
    program, flag, profile, *rest = seatbelt_arguments(confinement, command or ("true",))
    end = rest.index("--")
    return program, flag, profile, rest[:end], rest[end + 1 :]


def test_the_form_of_the_command_line():
    program, flag, _, parameters, command = parts(CONFINEMENT, "sh", "-c", "x", "--", "y")
    assert (program, flag) == ("/usr/bin/sandbox-exec", "-p")  # never from PATH
    assert all(parameter.startswith("-D") for parameter in parameters)
    assert command == ["sh", "-c", "x", "--", "y"]


def test_everything_is_refused_that_is_not_granted():
    profile = parts(CONFINEMENT)[2]
    assert profile.startswith("(version 1)\n(deny default)\n")
    assert "network" not in profile


def test_no_path_stands_in_the_profile():
    """A name with a bracket in it could else end a rule and begin another."""
    _, _, profile, parameters, _ = parts(CONFINEMENT)
    assert "/Users" not in profile and "allow default" not in profile
    values = dict(parameter.removeprefix("-D").split("=", 1) for parameter in parameters)
    assert set(values.values()) == {
        *CONFINEMENT.writable,
        *CONFINEMENT.protected,
        *CONFINEMENT.hidden,
    }
    assert set(re.findall(r'\(param "(\w+)"\)', profile)) == set(values)


def test_refusals_stand_behind_what_they_take_from():
    """The last rule that fits wins."""
    profile = parts(CONFINEMENT)[2]
    places = [profile.index(f'"{name}"') for name in ("WRITABLE_1", "PROTECTED_0", "HIDDEN_0")]
    assert places == sorted(places)
    assert '(deny file-write* (subpath (param "PROTECTED_0")))' in profile
    assert '(deny file-read* file-write* (subpath (param "HIDDEN_0")))' in profile


def test_brackets_are_balanced():
    for network in (False, True):
        profile = parts(Confinement(1, ("/w",), ("/w/p",), ("/h",), network))[2]
        assert profile.count("(") == profile.count(")")


def test_network_is_two_ports_and_never_this_machine():
    profile = parts(Confinement(1, network=True))[2]
    assert re.findall(r'remote tcp "([^"]+)"', profile) == ["*:80", "*:443"]
    assert profile.index("deny network-outbound") > profile.index("allow network-outbound")
