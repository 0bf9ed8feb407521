"""`%agent doctor`: what it says of the sandbox."""

import pytest

from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.kernel.commands.doctor import _sandbox
from agent_magics.protocol.config import Settings


def said(tmp_path, **settings):
    return dict(_sandbox(Settings(cwd=tmp_path, **settings)))


def test_the_tier_of_this_machine_and_why(tmp_path):
    able = shared_launcher().capabilities()
    sandbox = said(tmp_path)["Sandbox"]
    assert sandbox.startswith(f"tier {able.tier}: ") and able.reason in sandbox
    assert not able.tier or f"ABI {able.abi}" in sandbox


def test_without_a_sandbox_nothing_is_promised(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    rows = said(tmp_path)
    assert "approval asks for each" in rows["Sandbox"]
    assert rows.keys() == {"Sandbox", "Commands run as"}


@pytest.mark.needs("tier 1")
def test_what_is_writable_protected_and_hidden(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "1")
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    (tmp_path / ".env").touch()
    rows = said(tmp_path)
    assert str(tmp_path) in rows["Writable"]
    assert rows["Network"].startswith("off")
    assert "compared four times a second while commands run, put back" in rows["Protected"]
    assert "inside the workspace .env stays readable" in rows["Hidden"]
    assert "Workspace" not in rows
    assert "80 and 443" in said(tmp_path, network=True)["Network"]
    assert "nothing" in said(tmp_path, sandbox="read-only")["Writable"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "your home" in said(tmp_path)["Workspace"]


def test_full_access_is_called_what_it_is(tmp_path):
    assert "not confined" in said(tmp_path, sandbox="danger-full-access")["Policy"] or (
        shared_launcher().capabilities().tier == 0
    )
