"""What a power loss leaves of a conversation: only what was forced to the disk (fsync) until then.

The real `fsync` is called, and beside it is kept what it guarantees: the bytes of a file, and the
names in a folder. From that alone the folder of records is made as it may be after a power loss.
"""

import os
import stat
import threading
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.protocol.items import UserMessage, text_of
from tests.support.turns import scripted

LIMIT = 120.0


class Disk:
    """Keeps what is certain to be on the disk.

    Attributes:
        changed: notified after each `fsync`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fsync = os.fsync
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        self._kinds: dict[int, int] = {}
        self.changed = threading.Condition()
        monkeypatch.setattr(os, "fsync", self._record)

    def _record(self, fd: int) -> None:
        self._fsync(fd)
        found = os.fstat(fd)
        with self.changed:
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(fd) as entries:
                    names = {each.name: each.inode() for each in entries}
                self._folders[found.st_ino] = names
            else:
                self._files[found.st_ino] = os.pread(fd, found.st_size, 0)
            self.changed.notify_all()

    def left(self, folder: Path, made: Path) -> Path:
        """Make a folder again as a power loss may leave it; the folder itself was there before."""
        self._make(os.stat(folder).st_ino, made)
        return made

    def _make(self, inode: int, made: Path) -> None:
        if inode in self._folders:
            made.mkdir(mode=0o700)
            for name, each in self._folders[inode].items():
                self._make(each, made / name)
        else:
            made.write_bytes(self._files.get(inode, b""))
            made.chmod(0o600)


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def disk(monkeypatch) -> Disk:
    return Disk(monkeypatch)


def resumed(conversation: str, state: Path, monkeypatch) -> list:
    """Return the items of a conversation as they are after the power loss."""
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        with Agent.resume(conversation, ScriptedModel([])) as agent:
            return list(agent.session.conversation.history.items)


def test_a_turn_that_is_reported_as_completed_is_on_the_disk(state, disk, tmp_path, monkeypatch):
    script = [each for n in "123" for each in (Call("list_dir", {"path": "."}), f"Said {n}.")]
    with scripted(*script, "Forked.", tools=["list_dir"], cwd=tmp_path) as agent:
        for number in "123":
            assert agent.run_sync(number).status == "completed"
            after = disk.left(state, tmp_path / number)
            items = list(agent.session.conversation.history.items)
            assert resumed(agent.conversation_id, after, monkeypatch) == items
        fork = agent.fork(2, name="other")
        with fork:
            after = disk.left(state, tmp_path / "forked")
            items = list(fork.session.conversation.history.items)
            assert [text_of(i.content) for i in items if isinstance(i, UserMessage)] == ["1", "2"]
            assert resumed(fork.conversation_id, after, monkeypatch) == items


def test_a_turn_that_failed_is_on_the_disk_within_moments(state, disk, tmp_path, monkeypatch):
    with scripted(Call("list_dir", {"path": "."}), tools=["list_dir"], cwd=tmp_path) as agent:
        assert agent.run_sync("Go.").status == "failed"  # the script has ended
        items = list(agent.session.conversation.history.items)
        (record,) = state.rglob("*.jsonl")
        written = record.read_bytes()
        with disk.changed:
            assert disk.changed.wait_for(lambda: written in disk._files.values(), LIMIT)
            inode = record.parents[5].stat().st_ino
            assert disk.changed.wait_for(lambda: inode in disk._folders, LIMIT)
        after = disk.left(state, tmp_path / "after")
        assert resumed(agent.conversation_id, after, monkeypatch) == items
