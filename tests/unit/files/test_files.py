"""Windows of files and lists of folders."""

import os
import socket
import threading
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.dispatch.results.output_guard import OutputGuard
from agent_magics.files import folders
from agent_magics.files.name_globs import name_matcher
from agent_magics.files.paths import read_judge
from agent_magics.files.text import lines as text_lines
from agent_magics.files.text import windows as files
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.listing import Entries


def window_of(path, *args, **kwargs):
    descriptor = files.open_regular(path, path.name)
    try:
        return files.read_window(descriptor, path.name, *args, **kwargs)
    finally:
        os.close(descriptor)


def text_of(path, *args, **kwargs):
    descriptor = files.open_regular(path, path.name)
    try:
        return files.read_text(descriptor, path.name, *args, **kwargs)
    finally:
        os.close(descriptor)


def texts(window):
    return [line.text for line in window.lines]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_a_window_knows_where_it_is(tmp_path):
    path = write(tmp_path / "a", "".join(f"line {n}\n" for n in range(1, 11)))
    window = window_of(path, 3, 2)
    assert texts(window) == ["line 3", "line 4"]
    assert (window.first, window.total, window.more, window.offset) == (3, 10, True, 14)
    assert not window_of(path, 9, 2).more


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\r", ["a", "b\r"]),
        ("a\x0bb\u2028c\n", ["a\x0bb\u2028c"]),
    ],
)
def test_what_a_line_is(content, lines, tmp_path):
    window = window_of(write(tmp_path / "a", content))
    assert texts(window) == lines
    assert window.total == len(lines)


@settings(max_examples=60, deadline=None)
@given(
    content=st.text(alphabet=st.sampled_from("ab\n\ré€😀\ufeff"), max_size=60),
    first=st.integers(1, 8),
    count=st.integers(1, 8),
    chunk=st.integers(1, 7),
    codec=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
)
def test_any_window_in_any_chunks_is_a_slice(content, first, count, chunk, codec, tmp_path_factory):
    content = content.lstrip("\ufeff")
    path = write(tmp_path_factory.mktemp("w") / "a", content.encode(codec))
    lines = content.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    ended = [line.removesuffix("\r") for line in content.split("\n")[:-1]]
    wanted = (ended + lines[len(ended) :])[first - 1 : first - 1 + count]
    usual, text_lines._CHUNK_BYTES = text_lines._CHUNK_BYTES, chunk
    try:
        window = window_of(path, first, count)
    except RespondToModel:
        assert first > 1
        assert not wanted
        return
    finally:
        text_lines._CHUNK_BYTES = usual
    assert texts(window) == wanted
    assert window.total == len(lines)
    following = window.offset + sum(line.size for line in window.lines)
    assert window.more == (following < path.stat().st_size)


@settings(max_examples=60, deadline=None)
@given(
    content=st.binary(max_size=80).filter(lambda b: b"\0" not in b),
    count=st.integers(1, 5),
    chunk=st.integers(1, 9),
)
def test_going_on_by_byte_reads_every_line_once(content, count, chunk, tmp_path_factory):
    path = write(
        tmp_path_factory.mktemp("w") / "a", b"plain ascii text first, enough\n" * 3 + content
    )
    usual, text_lines._CHUNK_BYTES = text_lines._CHUNK_BYTES, chunk
    try:
        whole, step = [], window_of(path, 1, count)
        whole += texts(step)
        while step.more:
            at = step.offset + sum(line.size for line in step.lines)
            step = window_of(path, 1, count, at)
            whole += texts(step)
        assert whole == texts(window_of(path, 1, 1_000))
    finally:
        text_lines._CHUNK_BYTES = usual


def test_long_lines_are_cut_and_measured(tmp_path):
    path = write(tmp_path / "a", "é" * 5_000 + "\r\nshort\n")
    long, short = window_of(path).lines
    assert (long.text, long.length, long.size) == ("é" * 2_000, 5_000, 10_002)
    assert long.ended
    assert long.ends_crlf
    assert (short.text, short.length, short.ends_crlf) == ("short", 5, False)


def test_a_line_of_exactly_the_limit_is_whole(tmp_path):
    line = window_of(write(tmp_path / "a", "x" * 2_000 + "\r\n")).lines[0]
    assert (len(line.text), line.length) == (2_000, 2_000)


def test_a_huge_file_costs_its_window(tmp_path):
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write(b"first\nsecond\n" + b"text\n" * 2_000)
        file.truncate(50 * 1024**3)  # a hole: takes no room on the disk
        file.seek(50 * 1024**3 - 5)
        file.write(b"\nend\n")
    tracemalloc.start()
    window = window_of(path, 1, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts(window) == ["first", "second"]
    assert window.total is None
    assert window.more
    assert peak < 4 * 1024**2
    assert texts(window_of(path, 1, 5, 50 * 1024**3 - 4)) == ["end"]


def test_a_line_without_end_is_given_up_in_time(tmp_path):
    path = write(tmp_path / "endless", b"x" * (20 * 1024**2) + b"\nlast\n")
    window = window_of(path)
    assert len(window.lines) == 1
    assert not window.lines[0].ended
    assert window.more
    assert window.total == 2
    following = window.offset + window.lines[0].size
    assert texts(window_of(path, 2, 1, following)) == ["last"]


def test_lines_behind_the_counting_limit_are_not_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "COUNTED_BYTES", 10)
    path = write(tmp_path / "a", "1\n2\n3\n4\n5\n6\n")
    assert window_of(path, 1, 2).total is None
    assert window_of(path, 1, 6).total == 6


def test_a_start_behind_the_end_says_how_long_the_file_is(tmp_path):
    path = write(tmp_path / "a", "1\n2\n3")
    with pytest.raises(RespondToModel, match="a has 3 lines, so there is no line 4"):
        window_of(path, 4)
    with pytest.raises(RespondToModel, match="only 5 bytes"):
        window_of(path, 1, 1, 5)
    assert texts(window_of(path, 3)) == ["3"]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_byte_order_marks(codec, tmp_path):
    mark = {"utf-16-be": b"\xfe\xff", "utf-32-be": b"\0\0\xfe\xff"}.get(codec, b"")
    path = write(tmp_path / "a", mark + "héllo\nwörld\n".encode(codec))
    window = window_of(path)
    assert texts(window) == ["héllo", "wörld"]
    assert window.encoding.mark
    assert text_of(path).text == "héllo\nwörld\n"
    assert text_of(path, 2).text == "wörld\n"


def test_bytes_that_are_no_text_are_counted(tmp_path):
    path = write(tmp_path / "a", b"caf\xc3\xa9 is whole, na\xefve is not, plenty of ascii around")
    window = window_of(path)
    assert texts(window) == ["café is whole, na\\xefve is not, plenty of ascii around"]
    assert window.lost == 1
    assert text_of(path).text == "café is whole, na\ufffdve is not, plenty of ascii around"
    assert text_of(path).lost == 1


def test_an_offset_in_a_character_moves_to_the_next(tmp_path):
    path = write(tmp_path / "a", "€uro\n")
    for offset in (1, 2, 3):
        window = window_of(path, 1, 1, offset)
        assert (texts(window), window.lost, window.offset) == (["uro"], 0, 3)
    broken = write(tmp_path / "b", b"\xc3a, where a follows half a character, and then more text\n")
    assert window_of(broken, 1, 1, 1).offset == 1


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image; use view_image"),
        (b"\xff\xd8\xff\xe0" * 40, "a JPEG image"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip data; decompress it first"),
        (b"some\0bytes", "binary, or text in neither"),
        ("Привет, мир. ".encode("koi8-r") * 5, "binary, or text in neither"),
    ],
)
def test_binary_is_refused_and_named(content, kind, tmp_path):
    with pytest.raises(RespondToModel, match=kind):
        window_of(write(tmp_path / "a", content))


def test_an_encoding_that_nothing_tells_is_a_guess(tmp_path):
    window = window_of(
        write(tmp_path / "a", "naïve café, plenty of ascii around".encode("latin-1"))
    )
    assert texts(window) == ["naïve café, plenty of ascii around"]
    assert (window.encoding.name, window.encoding.guessed, window.lost) == ("cp1252", True, 0)
    undefined = window_of(write(tmp_path / "b", b"caf\xe9 \x81\n"))
    assert (texts(undefined), undefined.lost) == (["café \\x81"], 1)
    cut = window_of(write(tmp_path / "c", b"x" * 8_191 + "é€".encode() + b"\n"))
    assert not cut.encoding.guessed  # the first look ends within a character


def test_whole_text_is_exact(tmp_path):
    path = write(tmp_path / "a", b"one\r\ntwo\rthree\n\nlast")
    assert text_of(path).text == "one\r\ntwo\rthree\n\nlast"
    assert text_of(path, 1, 1).text == "one\r\n"
    assert text_of(path, 1, None, 5).text == "two\rthree\n\nlast"
    with pytest.raises(RespondToModel, match="4 lines"):
        text_of(path, 9)


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")  # the folder's whole path may be too long for one
        for name, kind in (("fifo", "FIFO"), ("sock", "socket"), (".", "folder")):
            with pytest.raises(RespondToModel, match=kind):
                files.open_regular(tmp_path / name, name)
    with pytest.raises(RespondToModel, match="device"):
        files.open_regular(files.Path("/dev/zero"), "/dev/zero")


def test_a_missing_file_is_answered_with_its_neighbours(tmp_path):
    (tmp_path / "report.csv").touch()
    with pytest.raises(RespondToModel, match=r"Did you mean.*report\.csv"):
        files.open_regular(tmp_path / "reports.csv", "reports.csv")
    with pytest.raises(RespondToModel, match="its folder does not exist"):
        files.open_regular(tmp_path / "no" / "a", "no/a")


def test_reading_stops_when_cancelled(tmp_path):
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(RespondToModel, match="Interrupted"):
        window_of(write(tmp_path / "a", "x\n"), is_cancelled=cancelled.is_set)


# -- folders -------------------------------------------------------------------------------------


def make_tree(root):
    for name in ("src/pkg/deep.py", "src/a.py", "src/b.txt", "z.md", ".hidden/x", ".git/config"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (root / "link").symlink_to("src")
    os.mkfifo(root / "pipe")


def names(listing):
    return [entry.path for entry in listing.entries]


def test_folders_come_first_and_links_are_not_followed(tmp_path):
    make_tree(tmp_path)
    listing = folders.list_folder(tmp_path, ".")
    assert [str(e) for e in listing.entries] == [
        "src/",
        "link -> src",
        "pipe  (no regular file)",
        "z.md  4 bytes",
    ]
    assert (listing.total, listing.hidden) == (4, 2)
    deep = folders.list_folder(tmp_path, ".", depth=None)
    assert names(deep) == [
        *("src", "src/pkg", "src/pkg/deep.py", "src/a.py", "src/b.txt", "link", "pipe", "z.md"),
    ]
    assert "src/pkg/deep.py" not in names(folders.list_folder(tmp_path, ".", depth=2))


def test_pages_are_parts_of_one_order(tmp_path):
    make_tree(tmp_path)
    whole = folders.list_folder(tmp_path, ".", depth=None)
    pages = [folders.list_folder(tmp_path, ".", depth=None, offset=n, limit=3) for n in (0, 3, 6)]
    assert [e for page in pages for e in page.entries] == list(whole.entries)
    assert {page.total for page in pages} == {8}


def test_hidden_names_on_request_but_never_git(tmp_path):
    make_tree(tmp_path)
    listing = folders.list_folder(tmp_path, ".", depth=None, include_hidden=True)
    assert ".hidden/x" in names(listing)
    assert not any(".git" in name for name in names(listing))
    assert listing.hidden == 1


def test_protected_folders_are_named_and_not_entered(tmp_path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_work").touch()
    guarded = folders.list_folder(
        tmp_path, ".", depth=None, include_hidden=True, rights=folders.WalkRights(read_judge())
    )
    assert (names(guarded), guarded.protected) == ([".ssh"], 1)
    by_hand = folders.list_folder(tmp_path, ".", depth=None, include_hidden=True)
    assert names(by_hand) == [".ssh", ".ssh/id_work"]


@pytest.mark.soak
def test_a_very_deep_tree_costs_its_depth_and_not_its_square(tmp_path, monkeypatch):
    """A command makes one in a second; what no path can name is counted as unreadable."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("0")
    for depth in range(1, 3_000):
        os.mkdir(f"{depth}")
        os.rename(f"{depth - 1}", f"{depth}/d")
    try:
        with_file = tmp_path / "2999" / "d" / "d"
        (with_file / "x.py").touch()
        found = folders.list_folder(tmp_path, ".", depth=None)
        assert (found.total, found.unreadable) == (2_048, 1)
        assert names(folders.list_folder(tmp_path, ".", depth=None, pattern="*.py")) == [
            "2999/d/d/x.py"
        ]
    finally:  # by steps, because pytest's own clean-up cannot go so deep
        (with_file / "x.py").unlink()
        for depth in range(2_999, 0, -1):
            os.rename(f"{depth}/d", f"{depth - 1}")
            os.rmdir(f"{depth}")
        os.rmdir("0")


def test_what_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RespondToModel, match="not a folder"):
        folders.list_folder(tmp_path / "file", "file")
    with pytest.raises(RespondToModel, match="There is no"):
        folders.list_folder(tmp_path / "none", "none")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "py"]),
        ("*.{js,ts}", ["a.js", "x/b.ts"], ["a.jsx", "a.{js,ts}"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "y/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "src/a.txt"]),
        ("**/test_*", ["test_a", "x/test_a"], ["x/a_test"]),
        ("./a/b", ["a/b"], ["b"]),
        ("a{b", ["a{b"], ["ab"]),
        ("[ab]?", ["a1", "b2"], ["c1", "a"]),
    ],
)
def test_globs(pattern, fits, does_not):
    matches = name_matcher(pattern)
    assert all(map(matches, fits))
    assert not any(map(matches, does_not))


def test_a_glob_cannot_be_made_to_hang():
    assert not name_matcher("*a" * 60 + "b")("a" * 250)
    assert not name_matcher("**/a/" * 40 + "b")("a/" * 200 + "c")
    with pytest.raises(RespondToModel, match="globs"):
        name_matcher("{a,b}{c,d}" * 10)


def test_a_walk_ends_in_time_and_says_so(tmp_path):
    for name in "abc":
        (tmp_path / name / "deep").mkdir(parents=True)
    listing = folders.list_folder(tmp_path, ".", depth=None, seconds=0.0)
    assert (listing.complete, listing.unseen) == (False, ("a/", "b/", "c/"))
    notes = repr(Entries(listing, ".", OutputGuard(), with_times=False)).split("\n")
    said = "there may be more. Not looked through: a/, b/, c/. Give a smaller folder."
    assert f"Stopped after 30 s: {said}" in notes


@settings(max_examples=30)
@given(st.data())
def test_what_a_walk_has_not_seen_is_what_follows_where_it_ended(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("tree")
    for place in data.draw(st.sets(st.from_regex(r"[ab](/[ab]){0,2}/[cd]", fullmatch=True))):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).touch()
    (root / "z").touch()
    walk = folders.FolderWalk(str(root), None, True, folders.ALL_RIGHTS)
    seen = [path for path, _ in walk.entries()]
    ended = data.draw(st.integers(0, len(seen) - 1))
    begun, *later = walk.unseen_from(seen[ended])
    rest = dict.fromkeys(path.partition("/")[0] for path in seen[ended:])
    assert [begun.partition("/")[0], *(name.strip("/") for name in later)] == [*rest]
    within = f"/ from {seen[ended]} on"
    assert begun.endswith(within if "/" in seen[ended] else ("a/", "b/", "z"))
