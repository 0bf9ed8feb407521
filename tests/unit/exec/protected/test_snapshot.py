"""A snapshot is bounded, and takes time in proportion to what it contains."""

import os
import stat
import time

from agent_magics.exec.protected.place import after
from agent_magics.exec.protected.put_back import Quarantine, put_back
from agent_magics.exec.protected.snapshot import SnapshotEntry, take, up_to_a_common_end


def test_of_a_large_folder_only_a_part_is_read(tmp_path):
    """A virtual environment in the workspace is protected, and has many thousand files."""
    for number in range(1_500):
        (tmp_path / f"m{number:05}").write_text("x", encoding="utf-8")
    found = take(str(tmp_path), {})
    assert list(found) == sorted(found)
    assert len(found) == 1_000


def test_the_outer_levels_come_first_however_large_an_inner_one_is(tmp_path):
    (tmp_path / "a/b/c/d/e/f").mkdir(parents=True)
    for number in range(1_500):
        (tmp_path / f"a/b/{number:05}").touch()
    (tmp_path / "z").touch()
    found = take(str(tmp_path), {})
    assert [os.path.basename(path) for path in found][1:4] == ["a", "z", "b"]
    assert len(found) == 1_000
    cut = take(str(tmp_path), {}, 500)
    assert up_to_a_common_end(found, cut, 500) == (cut, cut)


def test_what_is_not_compared_is_a_file(tmp_path):
    for name in ("lock.lock/in", "link.sample/in", "mine/in"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file.lock").touch()
    (tmp_path / "evil.lock").symlink_to("mine")
    found = {os.path.relpath(path, tmp_path) for path in take(str(tmp_path), {})}
    folders = {"lock.lock", "lock.lock/in", "link.sample", "link.sample/in", "mine", "mine/in"}
    assert found == {".", "evil.lock", *folders}


def test_the_kept_content_of_all_files_together_is_bounded(tmp_path):
    for number in range(300):
        (tmp_path / f"h{number:03}").touch()
        os.truncate(tmp_path / f"h{number:03}", 1 << 18)
    before = take(str(tmp_path), {})
    assert len(before) == 301
    assert sum(len(entry.content or b"") for entry in before.values()) == 32 << 20
    os.truncate(tmp_path / "h299", 1)
    now = take(str(tmp_path), before)
    assert [path for path in now if not now[path].is_like(before[path])] == [f"{tmp_path}/h299"]


def test_many_differences_take_time_in_proportion(tmp_path):
    place = str(tmp_path / "place")
    now = {f"{place}/{n:05}": SnapshotEntry(stat.S_IFREG, (n,), b"") for n in range(20_000)}
    began = time.process_time()
    quarantine = Quarantine(str(tmp_path / "q"))
    found = put_back(place, place, {}, now, quarantine, only_told=lambda *_: "told")
    assert len(found) == len(after({}, now, found)) == 20_000
    assert time.process_time() - began < 5  # 0.3 s; the square of their number took a minute
