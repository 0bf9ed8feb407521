"""What a file is seen to have changed by, and who keeps what was read by it."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from agent_magics.approval.rules import RuleBook
from agent_magics.config_files.places import config_folder, user_config_file, user_rules_file
from agent_magics.files import plain_files
from agent_magics.files.git.repositories import named_for_git
from agent_magics.files.plain_files import file_stamp, stamp_of
from agent_magics.files.text.windows import open_regular
from agent_magics.models.providers.credentials import stored_key
from agent_magics.project.instructions import read_instructions
from agent_magics.settings.sources import state_of_sources
from agent_magics.tools.mcp.servers import McpServers
from tests.support.descriptors import none_left


def test_a_stamp_equals_another_only_of_a_file_that_has_been_as_it_is_for_a_while(
    tmp_path, monkeypatch
):
    file = tmp_path / "file"
    assert file_stamp(file) == file_stamp(file) == ()
    file.write_text("x")
    assert file_stamp(file) != file_stamp(file)
    monkeypatch.setattr(plain_files, "_TICK", 0)
    assert file_stamp(file) == file_stamp(file) == stamp_of(os.stat(file))


class Instructions:
    file = staticmethod(lambda: Path.cwd() / "AGENTS.md")
    text = "Say {}."

    def read(self):
        return read_instructions(Path.cwd())[0].text


class Rules:
    file = staticmethod(user_rules_file)
    text = '[[rule]]\npermission = "command"\npattern = ["{}"]\ndecision = "forbid"\n'

    def __init__(self):
        self._book = RuleBook(Path.cwd())

    def read(self):
        self._book.refresh()
        return self._book.user.text


class Settings:
    file = staticmethod(user_config_file)
    text = 'model = "{}"\n'

    def __init__(self):
        self._state = state_of_sources([Path.cwd()])
        self._seen = self.file().read_text()

    def read(self):
        if not self._state.holds():
            self.__init__()
        return self._seen


class Servers:
    file = staticmethod(user_config_file)
    text = '[mcp_servers.a]\ncommand = "{}"\n'

    def __init__(self):
        self._servers = McpServers(
            Path.cwd(), None, spawn=None, hidden=frozenset, changed=lambda *_: None
        )

    def read(self):
        (server,) = self._servers._read().servers
        return server.command


class GitHooks:
    file = staticmethod(lambda: Path.cwd() / ".git" / "config")
    text = "[core]\nhooksPath = /{}\n"

    def read(self):
        return " ".join(named_for_git(str(self.file().parent), str(self.file().parent)))


class Keys:
    file = staticmethod(lambda: config_folder() / "credentials.json")
    text = '{{"hosts": {{"models.example": {{"key": "sk-{}"}}}}}}'

    def read(self):
        return stored_key("https://models.example/v1").value


@pytest.mark.parametrize("kept", [Instructions, Rules, Settings, Servers, GitHooks, Keys])
def test_what_was_written_a_moment_ago_is_read_again_though_it_looks_the_same(
    kept, tmp_path, monkeypatch
):
    # As where the file system's clock is coarse; newer kernels have finer ones.
    monkeypatch.setattr(plain_files, "stamp_of", lambda found: (found.st_ino, found.st_size))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    kept.file().parent.mkdir(parents=True, exist_ok=True)
    reader = None
    for word in ("one", "two", "six"):
        kept.file().write_text(kept.text.format(word))
        kept.file().chmod(0o600)
        reader = reader or kept()
        assert word in str(reader.read())


@pytest.mark.parametrize(
    "read", [plain_files.read_plain, partial(open_regular, shown="file")], ids=["plain", "regular"]
)
def test_a_file_that_cannot_be_looked_at_is_not_kept_open(tmp_path, monkeypatch, read):
    file = tmp_path / "file"
    file.write_text("x")

    def refuse(descriptor):
        raise OSError(errno.ESTALE, "Stale file handle")

    with none_left(), monkeypatch.context() as patched:
        patched.setattr(os, "fstat", refuse)
        with pytest.raises(OSError, match="Stale"):
            read(file)


@pytest.mark.parametrize(("step", "left"), [("open", "old"), ("fsync", "old"), ("replace", "new")])
def test_an_interrupt_just_after_a_step_leaves_nothing_beside_a_file(tmp_path, step, left):
    file = tmp_path / "file"
    file.write_text("old")
    real = getattr(os, step)
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*args, **kwargs):
            patched.undo()
            made = real(*args, **kwargs)
            if step == "open":
                os.close(made)
            raise KeyboardInterrupt

        patched.setattr(os, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            plain_files.replace_file(file, b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert file.read_text() == left
