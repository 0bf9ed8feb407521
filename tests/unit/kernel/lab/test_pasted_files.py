"""Pasted files are saved under plain names in their folder, and never over another file."""

import base64
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.kernel.lab.pasted_files import MOST_BYTES, PastedFiles, plain_name
from agent_magics.protocol.errors import FatalError
from tests.support.descriptors import none_left


def part(
    data: bytes, name: str = "a.png", *, key: str = "k", start: int = 0, last: bool = True
) -> dict[str, object]:
    encoded = base64.b64encode(data).decode()
    return {"key": key, "name": name, "start": start, "data": encoded, "last": last}


def test_a_file_comes_in_parts_and_is_never_written_over_another(tmp_path: Path) -> None:
    files = PastedFiles()
    assert files.receive(part(b"one ", last=False), tmp_path) == {}
    assert files.receive(part(b"two", start=4), tmp_path) == {"path": "pasted/a.png"}
    assert files.receive(part(b"three"), tmp_path) == {"path": "pasted/a-2.png"}
    assert (tmp_path / "pasted/a.png").read_bytes() == b"one two"
    assert (tmp_path / "pasted/a-2.png").read_bytes() == b"three"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "pasted").symlink_to(outside)
    with pytest.raises(FatalError, match="cannot be saved in"):
        PastedFiles().receive(part(b"x"), workspace)
    assert list(outside.iterdir()) == []
    (workspace / "pasted").unlink()
    (workspace / "pasted").mkdir()
    (workspace / "pasted/a.png").symlink_to(outside / "made")
    assert PastedFiles().receive(part(b"x"), workspace) == {"path": "pasted/a-2.png"}
    assert list(outside.iterdir()) == []


def test_a_large_file_is_refused_and_forgotten(tmp_path: Path) -> None:
    files = PastedFiles()
    half = bytes(MOST_BYTES // 2 + 1)
    files.receive(part(half, "film.mov", last=False), tmp_path)
    with pytest.raises(FatalError, match=r"film.mov is larger than 20 MiB, so it was not saved"):
        files.receive(part(half, "film.mov", start=len(half), last=False), tmp_path)
    assert files.receive(part(b"x"), tmp_path) == {"path": "pasted/a.png"}
    assert [file.name for file in tmp_path.rglob("*.*")] == ["a.png"]


@given(st.permutations([*range(6)] * 3))
def test_a_file_is_saved_whole_or_not_at_all(order: list[int]) -> None:
    """However many pages send files at the same time, each a part after the other."""
    files, sent, saved = PastedFiles(), dict.fromkeys(order, 0), list[str]()
    with TemporaryDirectory() as folder:
        for which in order:
            sent[which] += 1
            piece = part(b"x", key=str(which), start=sent[which] - 1, last=sent[which] == 3)
            with suppress(FatalError):
                saved += filter(None, [files.receive(piece, Path(folder)).get("path")])
        assert {(Path(folder) / path).read_bytes() for path in saved} <= {b"xxx"}


@contextmanager
def refusing_after(size: int) -> Iterator[None]:
    """Let no file become larger than `size` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_stays_of_a_file_that_the_disk_refuses(tmp_path: Path) -> None:
    with none_left(), refusing_after(100_000), pytest.raises(FatalError, match="cannot be saved"):
        PastedFiles().receive(part(bytes(1_000_000)), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert PastedFiles().receive(part(b"mine"), tmp_path) == {"path": "pasted/a.png"}
    with refusing_after(100_000), pytest.raises(FatalError, match="cannot be saved"):
        PastedFiles().receive(part(bytes(1_000_000)), tmp_path)
    assert [file.read_bytes() for file in (tmp_path / "pasted").iterdir()] == [b"mine"]


@pytest.mark.parametrize("call", ["mkdir", "fdopen"])
def test_nothing_stays_where_it_is_interrupted(tmp_path: Path, call: str) -> None:
    real = getattr(os, call)
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*args: object, **kwargs: object) -> None:
            if (made := real(*args, **kwargs)) is not None:
                made.close()
            raise KeyboardInterrupt

        patched.setattr(os, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            PastedFiles().receive(part(b"x"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_takes_the_name_meanwhile_stays(tmp_path: Path) -> None:
    other = tmp_path / "pasted/a.png"
    with pytest.MonkeyPatch.context() as patched:

        def made_meanwhile(name: str, folder: int) -> bool:
            other.write_bytes(b"mine")
            return False

        patched.setattr("agent_magics.kernel.lab.pasted_files.exists_at", made_meanwhile)
        with pytest.raises(FatalError, match="cannot be saved"):
            PastedFiles().receive(part(b"x"), tmp_path)
    assert other.read_bytes() == b"mine"


def test_names_stay_readable() -> None:
    assert plain_name("Größe der Äpfel.PNG") == "Größe-der-Äpfel.PNG"
    assert plain_name("../../etc/passwd") == "passwd"
    assert plain_name("C:\\a\\b {{x}}.csv") == "b-x-.csv"
    assert plain_name(".envrc") == "envrc"
    assert plain_name("???") == "file"


@given(st.text())
def test_every_name_becomes_a_plain_one(name: str) -> None:
    plain = plain_name(name)
    assert re.fullmatch(r"[\w-][\w.-]*", plain) and len(plain.encode()) <= 120
