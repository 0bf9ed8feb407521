"""The arguments of `Agent` about what commands may touch: what is refused, and how it is said."""

import pytest

from agent_magics import Agent
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.settings import PathJudge, check_roots


def test_network_is_a_setting():
    with Agent(network=True) as agent:
        assert agent.config.network is True
        assert agent.setup(network=False).config.network is False
    with pytest.raises(FatalError, match="network='yes' must be True or False"):
        Agent(network="yes")


@pytest.mark.parametrize("root", ["/", "/usr", "/home", "/etc"])
def test_the_whole_machine_is_no_workspace(root, tmp_path):
    with pytest.raises(FatalError, match="cannot be written as a whole"):
        Agent(cwd=root)
    with pytest.raises(FatalError, match="cannot be written as a whole"):
        Agent(cwd=tmp_path, writable_roots=[root])
    for sandbox in ("read-only", "danger-full-access"):
        with Agent(cwd=root, sandbox=sandbox) as agent:
            assert agent.config.sandbox is SandboxPolicy(sandbox)


def test_it_stays_refused_for_one_run():
    with Agent(cwd="/", sandbox="read-only") as agent:
        with pytest.raises(FatalError, match="cannot be written as a whole"):
            agent.setup(sandbox="workspace-write")
        check_roots(agent.setup().config)


def test_a_home_may_be_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Agent(cwd=tmp_path) as agent:
        judge = PathJudge(agent.config)
        judge("analysis.py", "write")
        judge(".gitignore", "write")
        for name in (".bashrc", ".ipython/profile_default/startup/x.py", ".local/lib/x.pth"):
            with pytest.raises(Exception, match="a program's start files"):
                judge(name, "write")


def test_writable_roots_must_exist(tmp_path):
    with pytest.raises(FatalError, match=r"writable_roots=.*is not a folder"):
        Agent(writable_roots=[tmp_path / "none"])
