"""``%agent memory`` and ``%agent project``, as far as they need no kernel."""

from types import SimpleNamespace

import pytest

from agent_magics.config_files.trust import Trustable
from agent_magics.kernel.commands.project.memory import MEMORY
from agent_magics.kernel.commands.project.overview import _parts, _Section, _trust
from agent_magics.project.memory import NoteFolder
from agent_magics.protocol.errors import FatalError


def test_a_listing_reads_each_folder_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    notes = tmp_path / ".agent_magics" / "memory"
    notes.mkdir(parents=True)
    for number in range(5):
        (notes / f"topic-{number}.md").write_text(f"# Note {number}\n", encoding="utf-8")
    reads = []

    def reading(self, read=NoteFolder.read):
        reads.append(self.scope)
        return read(self)

    monkeypatch.setattr(NoteFolder, "read", reading)
    notebook = SimpleNamespace(
        shell=SimpleNamespace(user_ns={}),
        workspace=tmp_path,
    )
    listed = MEMORY.act(notebook, [])
    assert listed.count("not trusted") == 5 and "`topic-4`" in listed
    assert sorted(reads) == ["project", "user"]


@pytest.mark.parametrize("name", ["a{1 + 1}", "a$b", 'a"b', "a\\b"])
def test_a_note_below_what_ipython_reads_as_code_is_edited_elsewhere(tmp_path, name):
    folder = tmp_path / name / ".agent_magics" / "memory"
    folder.mkdir(parents=True)
    (folder / "rates.md").write_text("# Rates\n", encoding="utf-8")
    notebook = SimpleNamespace(shell=SimpleNamespace(user_ns={}), workspace=tmp_path / name)
    with pytest.raises(FatalError, match="No cell can write to"):
        MEMORY.act(notebook, ["edit", "rates"])


@pytest.mark.parametrize(
    ("digest", "sentence"),
    [
        ("abc", "'abc' is too short for a digest: give all 12 characters"),
        ("f" * 64, "no part of the project that waits for trust has the digest ffffffffffff"),
    ],
)
def test_a_digest_that_fits_nothing_trusts_nothing(digest, sentence):
    parts = [_Section("Rules", "", "approvals", "abc" + "0" * 61, pytest.fail)]
    with pytest.raises(FatalError) as raised:
        _trust(parts, digest)
    assert sentence in str(raised.value)


def test_all_that_waits_for_trust_is_a_part_of_the_project(tmp_path):
    shown = {f"%agent {part.word}".removesuffix(" trust") for part in _parts(tmp_path)}
    assert {each.command.removesuffix(" trust") for each in Trustable.__subclasses__()} <= shown
