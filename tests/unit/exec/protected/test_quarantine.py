"""What is taken out of a workspace is kept, but no more of it than a bound; the oldest goes."""

import os
from pathlib import Path

import pytest

from agent_magics.exec.protected import put_back
from agent_magics.exec.protected.put_back import Quarantine
from tests.support.users import call_as_user


@pytest.mark.parametrize(("most", "folders", "left"), [(80, 1000, 8), (1 << 20, 8, 8)])
def test_the_oldest_goes_where_too_much_is_kept(most, folders, left, tmp_path, monkeypatch):
    monkeypatch.setattr(put_back, "MOST_KEPT", most)
    monkeypatch.setattr(put_back, "MOST_FOLDERS", folders)
    quarantine = Quarantine(str(tmp_path / "q"))
    folder = os.open(tmp_path, os.O_RDONLY)
    kept = []
    for number in range(29):
        (tmp_path / "planted").write_text(f"{number:010}")
        kept.append(quarantine.take("planted", folder, str(tmp_path / "planted")))
        os.utime(os.path.dirname(kept[-1]), ns=(number, number))
    os.close(folder)
    there = [os.path.exists(path) for path in kept]
    assert there[-1]
    assert there == sorted(there), "the oldest went"
    assert left // 2 < sum(there) <= left


def test_what_is_larger_than_all_that_is_kept_stays_where_it_was_under_another_name(tmp_path):
    quarantine = Quarantine(str(tmp_path / "q"))
    folder = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "planted").write_text("small")
    small = quarantine.take("planted", folder, str(tmp_path / "planted"))
    (tmp_path / "planted").touch()
    os.truncate(tmp_path / "planted", put_back.MOST_KEPT + 1)
    large = quarantine.take("planted", folder, str(tmp_path / "planted"))
    os.close(folder)
    assert large.startswith(str(tmp_path / "planted.quarantined-"))
    assert os.path.exists(small), "and nothing else makes room for it"
    assert not os.path.exists(tmp_path / "planted")


def test_a_folder_counts_as_what_it_contains(tmp_path, monkeypatch):
    monkeypatch.setattr(put_back, "MOST_KEPT", 3 << 20)
    quarantine = Quarantine(str(tmp_path / "q"))
    folder = os.open(tmp_path, os.O_RDONLY)
    for size in (*[1 << 20] * 12, 4 << 20):
        (tmp_path / "planted").mkdir()
        (tmp_path / "planted/file").touch()
        os.truncate(tmp_path / "planted/file", size)
        last = quarantine.take("planted", folder, str(tmp_path / "planted"))
        kept = [path.stat().st_size for path in (tmp_path / "q").rglob("*") if path.is_file()]
        assert 0 < sum(kept) <= 3 << 20
    os.close(folder)
    assert last.startswith(str(tmp_path / "planted.quarantined-")), "it is larger than all"


def test_what_is_kept_is_bounded_where_folders_may_not_be_changed():
    def plant(top: str) -> int:
        put_back.MOST_KEPT = 10_000  # in this fork
        quarantine = Quarantine(f"{top}/q")
        for _ in range(12):
            Path(top, "planted/in").mkdir(parents=True)
            Path(top, "planted/in/file").write_bytes(b"x" * 1000)
            Path(top, "planted/in").chmod(0o555)
            assert put_back.move_away(f"{top}/planted", quarantine).kept.startswith(f"{top}/q")
        return sum(path.stat().st_size for path in Path(top, "q").rglob("file"))

    assert 0 < call_as_user(plant) <= 10_000


def test_what_is_nested_too_deeply_to_be_removed_again_is_only_renamed(tmp_path):
    quarantine = Quarantine(str(tmp_path / "q"))
    folder = os.open(tmp_path, os.O_RDONLY)
    os.makedirs(tmp_path / "planted" / "/".join(["d"] * 300))
    kept = quarantine.take("planted", folder, str(tmp_path / "planted"))
    os.close(folder)
    assert kept.startswith(str(tmp_path / "planted.quarantined-"))
