"""Both engines find the same lines; neither can hang, leak or run off."""

import errno
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from math import inf
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_magics.files.folders import ALL_RIGHTS, WalkRights
from agent_magics.files.paths import read_judge
from agent_magics.files.search import candidates as search_files
from agent_magics.files.search import pygrep
from agent_magics.files.search.engines import find_ripgrep
from agent_magics.files.search.matches import search
from agent_magics.files.search.patterns import is_plain
from agent_magics.protocol.errors import RespondToModel
from tests.support.descriptors import none_left
from tests.support.needs import require

pytestmark = pytest.mark.soak

NO_RIPGREP = "/nonexistent"


@pytest.fixture(params=["ripgrep", "python"])
def engine(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setenv("PATH", NO_RIPGREP)
        assert find_ripgrep(()) is None
    else:
        require("program rg")
    return request.param


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))


def make_tree(root):
    write(root / "b.py", "import os\nfoo = 1\n# Foo\n")
    write(root / "a" / "one.txt", "foo\r\nbar\nfoobar\n")
    write(root / "a" / "long.txt", "x" * 900 + "foo" + "y" * 900 + "\n")
    write(root / ".hidden", "foo\n")
    write(root / ".git" / "config", "foo\n")
    write(root / ".gitignore", "ignored.log\n")
    write(root / "ignored.log", "foo\n")
    write(root / "binary.bin", b"foo\nfoo\n" + b"x" * 70_000 + b"\0\nfoo\n")
    write(root / "marked.txt", b"\xef\xbb\xbffoo\n")
    write(root / "wide.txt", "foo ünï\n".encode("utf-16"))
    write(root / "broken.txt", b"caf\xe9 foo\n")
    write(root / "no_end.txt", "\n\nfoo")
    (root / "link.txt").symlink_to("b.py")
    os.mkfifo(root / "pipe")


def lines(found):
    return [f"{m.path}:{m.line}" for m in found.matches]


def test_which_lines_are_found(engine, tmp_path):
    make_tree(tmp_path)
    found = search(tmp_path, "^foo|foo$", cwd=tmp_path)
    assert lines(found) == [
        *("a/one.txt:1", "a/one.txt:3", "b.py:2", "broken.txt:1", "marked.txt:1"),
        *("no_end.txt:3", "wide.txt:1"),
    ]
    assert (found.ignored, found.ignored_names) == (1, ("ignored.log",))
    assert [file.path for file in found.counts] == [
        *("a/one.txt", "b.py", "broken.txt", "marked.txt", "no_end.txt", "wide.txt"),
    ]
    assert found.counts[0].count == 2
    assert found.total == len(found.matches)
    assert found.complete
    texts = {m.path: m.text for m in found.matches}
    assert texts["broken.txt"] == "caf\ufffd foo"
    assert texts["wide.txt"] == "foo ünï"
    assert texts["marked.txt"] == "foo"


@pytest.mark.needs("program rg")
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("foo", {}),
        ("FOO", {"case_sensitive": False}),
        ("^foo$", {}),
        (r"\bfoo\b", {"context": 1}),
        ("o", {"context": 2, "max_results": 2}),
        ("f?o+", {"file_pattern": "*.txt"}),
        (".", {"file_pattern": "*.txt", "max_results": 3}),
        ("é|ü", {}),
        ("x", {"file_pattern": "a/**"}),
        (r"\s$", {}),
        ("(?i)FOO", {}),
        ("(?<=foo)bar", {}),
        ("nowhere", {}),
    ],
)
def test_both_engines_find_the_same(pattern, options, tmp_path, monkeypatch):
    make_tree(tmp_path)
    with_ripgrep = search(tmp_path, pattern, cwd=tmp_path, **options)
    monkeypatch.setenv("PATH", NO_RIPGREP)
    assert search(tmp_path, pattern, cwd=tmp_path, **options) == with_ripgrep


@pytest.mark.needs("program rg")
@settings(max_examples=12, deadline=None)
@given(
    content=st.tuples(
        st.sampled_from(["\n", "\r\n"]), st.lists(st.text("ab \té😀", max_size=6), max_size=12)
    ).map(lambda parts: parts[0].join(parts[1])),
    pattern=st.sampled_from(["a", "^a", "b$", "a.b", r"\w\W", "é", "[^a]b", "a*$", r"\s$"]),
    context=st.integers(0, 2),
    limit=st.integers(1, 4),
)
@example(content="a\n\r", pattern="a*$", context=0, limit=4)
@example(content="a\r\r\nb", pattern="$", context=0, limit=4)
@example(content="a\rb\r", pattern=r"(b|)\s*$", context=0, limit=4)
def test_both_engines_find_the_same_in_any_text(content, pattern, context, limit, tmp_path_factory):
    root = tmp_path_factory.mktemp("s")
    write(root / "a.txt", content)
    options = {"cwd": root, "context": context, "max_results": limit}
    results = [search(root, pattern, **options)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", NO_RIPGREP)
        results.append(search(root, pattern, **options))
    assert results[0] == results[1]


@settings(max_examples=8, deadline=None)
@given(
    lines_there=st.lists(st.text("ab1 \té😀", max_size=5), max_size=9),
    pattern=st.sampled_from(["b$", "^$", r"\s$", "[^0-9]$", ".$", "^.{3}$", r"\W", r"a\s*$", "$"]),
    context=st.integers(0, 2),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
)
@example(lines_there=["id,total", "1,10", "x ", ""], pattern="[^0-9]$", context=1, encoding="utf-8")
def test_the_break_of_a_line_is_no_part_of_it(
    lines_there, pattern, context, encoding, tmp_path_factory
):
    root = tmp_path_factory.mktemp("ends")
    for folder, end in (("lf", "\n"), ("crlf", "\r\n")):
        content = "".join(line + end for line in lines_there)
        write(root / folder / "a.txt", content.encode(encoding))
    for path in (os.environ["PATH"], NO_RIPGREP):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", path)
            lf, crlf = (
                search(root / name, pattern, cwd=root / name, context=context)
                for name in ("lf", "crlf")
            )
        assert crlf == lf


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"total$", [1]),
        (r"a[^x]b|a.b|a\sb", []),
        (r"b", [3, 4]),
        (r"\r$", [1, 2, 5]),
        (r"0\r?$", [2]),
        (r"a\rb", [3]),
        (r"\\results$", [5]),
    ],
)
def test_carriage_returns_are_found_by_their_name_alone(pattern, found, engine, tmp_path):
    write(tmp_path / "a.txt", "id,total\r\n1,10\r\na\rb\nb\nC:\\results\r\n")
    assert [match.line for match in search(tmp_path, pattern, cwd=tmp_path).matches] == found


def test_context_belongs_to_its_match(engine, tmp_path):
    write(tmp_path / "a.txt", "1\n2 x\n3\n4\n5 x\n6 x\n7\n")
    first, second, third = search(tmp_path, "x", cwd=tmp_path, context=1).matches
    assert (first.before, first.after) == (((1, "1"),), ((3, "3"),))
    assert (second.before, second.after) == (((4, "4"),), ((6, "6 x"),))
    assert (third.before, third.after) == (((5, "5 x"),), ((7, "7"),))


def test_all_are_counted_and_the_first_kept(engine, tmp_path):
    for name in "abc":
        write(tmp_path / name, "hit\n" * 100)
    found = search(tmp_path, "hit", cwd=tmp_path, max_results=150)
    assert (len(found.matches), found.total, found.files) == (150, 300, 3)
    assert lines(found)[-1] == "b:50"


def test_long_lines_are_cut_around_the_hit(engine, tmp_path):
    make_tree(tmp_path)
    (match,) = search(tmp_path / "a" / "long.txt", "foo", cwd=tmp_path).matches
    assert "xfooy" in match.text
    assert match.text.endswith("[500 of 1,803 characters]")
    assert len(match.text) < 550


def test_more_files_than_one_command_line_takes(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(search_files, "_BATCH_FILES", 3)
    for n in range(10):
        write(tmp_path / f"f{n}", "hit\n")
    found = search(tmp_path, "hit", cwd=tmp_path)
    assert lines(found) == [f"f{n}:1" for n in range(10)]
    assert found.searched == 10


def test_the_numbers_that_select_needs_are_left_to_the_person(tmp_path):
    write(tmp_path / "a", "hit\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = search_files.SearchedFiles(tmp_path, lambda _: True, ALL_RIGHTS, deadline=inf)
    for most, is_above in ((search_files._FIRST_NUMBER + 100, True), (500, False)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        try:
            with files.opened([(str(tmp_path), "a")]) as opened:
                assert list(opened.values()) == [f"{tmp_path}/a"]
                assert (min(opened) >= search_files._FIRST_NUMBER) is is_above
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_strange_names(engine, tmp_path):
    for name in (b"-e", b"a b", b"new\nline", b"\xff\xfe", b"--pre=x"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(b"hit\n")
    found = search(tmp_path, "hit", cwd=tmp_path)
    assert [m.path for m in found.matches] == [
        *("--pre=x", "-e", "a b", "new\\nline", "\\udcff\\udcfe"),
    ]


def test_a_pattern_is_never_an_option(engine, tmp_path):
    write(tmp_path / "a", "--files\n-x\n")
    assert search(tmp_path, "--files", cwd=tmp_path).total == 1
    assert search(tmp_path, "-x", cwd=tmp_path).total == 1


def test_a_bad_pattern_says_where(engine, tmp_path):
    with pytest.raises(RespondToModel, match=r"'a\(b' is not a regular expression.*position 1"):
        search(tmp_path, "a(b", cwd=tmp_path)


@pytest.mark.parametrize("pattern", ["", "a\nb", r"a\nb", "a\0", "\ud800", "x" * 60_000])
def test_patterns_that_cannot_be_searched(pattern, tmp_path):
    with pytest.raises(RespondToModel):
        search(tmp_path, pattern, cwd=tmp_path)


def test_an_escaped_backslash_before_n_is_no_line_break(engine, tmp_path):
    write(tmp_path / "a", "say \\n\nab\n")
    assert search(tmp_path, r"\\n", cwd=tmp_path).total == 1
    assert search(tmp_path, r"a[^\n]", cwd=tmp_path).total == 2


def test_protected_files_are_left_out_whether_they_match_or_not(engine, tmp_path):
    write(tmp_path / "id_rsa", "secret\n")
    write(tmp_path / "kernel-1.json", "nothing\n")
    write(tmp_path / "a.txt", "secret\n")
    found = search(tmp_path, "secret", cwd=tmp_path, rights=WalkRights(read_judge()))
    assert (lines(found), found.protected, found.searched) == (["a.txt:1"], 2, 1)
    assert search(tmp_path, "secret", cwd=tmp_path).total == 2


def test_big_binary_files_are_not_read(engine, tmp_path):
    with (tmp_path / "big").open("wb") as file:
        file.write(b"hit\n\0")
        file.truncate(20 * 1024**3)
    write(tmp_path / "a", "hit\n")
    found = search(tmp_path, "hit", cwd=tmp_path, seconds=100)
    assert lines(found) == ["a:1"]
    assert found.complete


def test_a_regex_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", NO_RIPGREP)
    write(tmp_path / "a", "hit\n")
    write(tmp_path / "b", "a" * 60 + "!\n")
    found = search(tmp_path, "(a+)+$|hit", cwd=tmp_path, seconds=1)
    assert (found.complete, found.unseen) == (False, ("a", "b"))
    assert not children_running_pygrep()


def test_a_search_is_stopped_when_cancelled(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", NO_RIPGREP)
    write(tmp_path / "b", "a" * 60 + "!\n")
    cancelled = threading.Event()
    timer = threading.Timer(0.3, cancelled.set)
    timer.start()
    with pytest.raises(RespondToModel, match="Interrupted"):
        search(tmp_path, "(a+)+$", cwd=tmp_path, rights=WalkRights(is_cancelled=cancelled.is_set))
    timer.join()
    assert not children_running_pygrep()


def test_a_search_whose_caller_was_killed_ends_by_itself(tmp_path, monkeypatch):
    """Once it works, it has a limit of its own."""
    monkeypatch.setenv("PATH", NO_RIPGREP)
    write(tmp_path / "b", "a" * 60 + "!\n")

    def is_limited():
        pids = children_running_pygrep()
        limits = [resource.prlimit(pid, resource.RLIMIT_CPU)[0] for pid in pids]
        return limits == [pygrep._MOST_SECONDS]

    with pytest.raises(RespondToModel, match="Interrupted"):
        search(tmp_path, "(a+)+$", cwd=tmp_path, rights=WalkRights(is_cancelled=is_limited))


def children_running_pygrep():
    """The ids of processes that the main thread has started for a search."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return [int(pid) for pid in children if b"pygrep" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_no_keys_and_no_settings_reach_the_engines(tmp_path, monkeypatch):
    fake = tmp_path / "bin" / "rg"
    note = str(tmp_path / "env")
    script = f"import os\nwith open({note!r}, 'w') as f: f.write(repr(dict(os.environ)))\n"
    write(fake, f"#!{sys.executable} -I\n{script}")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    search(tmp_path, "x", cwd=tmp_path)
    seen = (tmp_path / "env").read_text(encoding="utf-8")
    assert "PATH" in seen
    assert "canary" not in seen


def test_a_program_in_the_workspace_is_not_taken_for_ripgrep(tmp_path, monkeypatch):
    fake = tmp_path / "work" / "bin" / "rg"
    write(fake, "#!/bin/sh\n")
    fake.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rg").symlink_to(fake)
    monkeypatch.setenv("PATH", f"{fake.parent}:{tmp_path / 'bin'}:bin:.")
    monkeypatch.chdir(tmp_path / "work")
    assert find_ripgrep(()) == str(fake)
    assert find_ripgrep([tmp_path / "work"]) is None


def test_a_ripgrep_that_fails_is_not_used(tmp_path, monkeypatch):
    write(tmp_path / "bin" / "rg", "#!/bin/sh\nexit 126\n")
    (tmp_path / "bin" / "rg").chmod(0o755)
    write(tmp_path / "w" / "a", "hit\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    assert search(tmp_path / "w", "hit", cwd=tmp_path).total == 1


@pytest.mark.needs("program rg")
def test_a_ripgrep_that_is_exchanged_is_tried_again(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "rg"
    program.parent.mkdir()
    program.symlink_to(shutil.which("rg"))
    write(tmp_path / "w" / "a", "hit\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    assert search(tmp_path / "w", "hit", cwd=tmp_path).total == 1
    program.unlink()
    write(program, "#!/bin/sh\nexit 126\n")
    program.chmod(0o755)
    assert search(tmp_path / "w", "hit", cwd=tmp_path).total == 1


SIGNS = [*map(chr, range(32, 127)), "é", "\u0301", "\u20ac"]
PARTS = st.sampled_from([*SIGNS, *(f"\\{sign}" for sign in SIGNS), *"**++??||^$" * 5])


@pytest.mark.needs("program rg")
@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(PARTS, max_size=5).map("".join), min_size=20))
@example([r"\W*" * 33, r"\w+" * 33])
def test_ripgrep_accepts_what_is_taken_for_plain(patterns):
    options = [word for pattern in filter(is_plain, patterns) for word in ("-e", pattern)]
    done = subprocess.run(["rg", "-i", *options, "-e", "a", "-"], input=b"", capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        *(
            ("def _look", True),
            (r"^import\s+\w+$", True),
            (r"a|b\.c|\bd.*e?", True),
            ("x" * 101, False),
        ),
        *(
            ("", False),
            ("a||b", False),
            ("|a", False),
            ("a**", False),
            ("*a", False),
            ("^*", False),
            (r"\s*$", False),
            ("$", False),
        ),
        *(("(a)", False), ("[a]", False), ("a{2}", False), (r"\<a", False), (r"\x61", False)),
        *(("a\n", False), (r"a\n", False), (r"\/", False), ("a\\", False)),
    ],
)
def test_which_patterns_are_plain(pattern, plain):
    assert is_plain(pattern) is plain


@pytest.mark.needs("program rg")
def test_a_config_file_of_ripgrep_changes_nothing(tmp_path, monkeypatch):
    write(tmp_path / "rc", "--invert-match\n")
    write(tmp_path / "w" / "a", "hit\nmiss\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    plain = subprocess.run(["rg", "hit", tmp_path / "w"], capture_output=True, text=True)
    assert "miss" in plain.stdout
    assert lines(search(tmp_path / "w", "hit", cwd=tmp_path)) == ["w/a:1"]


# -- the same results with either engine -----------------------------------------------------------

PATTERNS = [
    *("a", "^a", "b$", "a.b", r"\w\W", "é", "[^a]b", "a*$", "(a|b)+", r"\bab\b", r"a\s", "ab?"),
    *("a{2}", "(?i)AB", "(?i:A)b", "x|aab", "[ab]+é", "foo.*bar", r"\d+", "a..b", r"\.", "k", "s"),
    *("(?:ab)+a", "a+?b", ".", "^$", "^.{3}$", "(?s)a.", r"[\w.]b", "[]a]b", "[a-]", r"\x61b"),
    *(r"\s$", "[^0-9]$", r"\r", r"b\r?$", r"foo\s*", r"b[^1]*a", r"a\W+|b", r"[^b]+\b", r"\Ba"),
]
PIECES = st.sampled_from(
    [
        *(b"a", b"b", b"ab", b" ", b"\t", b"\n", b"\n", b"\r\n", b"\xc3\xa9", b"\xe9", b"\xff"),
        *(b"foo", b"bar", b".", b"A", b"B", b"1", b"K", b"]", b"-", b"\xf0\x9f\x98\x80", b"\xc3"),
    ]
)
CONTENTS = st.one_of(
    *[st.lists(PIECES, max_size=14).map(b"".join)] * 4,
    st.lists(PIECES, max_size=8).map(lambda parts: b"\xef\xbb\xbf" + b"".join(parts)),
    st.lists(PIECES, max_size=8).map(lambda parts: b"".join(parts) + b"\0"),
    st.text("ab é\n", max_size=9).map(lambda text: text.encode("utf-16")),
)


@pytest.mark.needs("program rg")
@settings(max_examples=25, deadline=None)
@given(
    contents=st.lists(CONTENTS, min_size=1, max_size=8),
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2, unique=True),
    context=st.integers(0, 2),
    limit=st.integers(0, 6) | st.none(),
    case=st.booleans(),
)
def test_any_tree_gives_the_same(contents, patterns, context, limit, case, tmp_path_factory):
    root = tmp_path_factory.mktemp("t")
    for number, content in enumerate(contents):
        write(root / f"{'abc'[number % 3]}" / f"{number}.txt", content)
    options = {"cwd": root, "context": context, "max_results": limit, "case_sensitive": case}
    for pattern in patterns:
        with_ripgrep = search(root, pattern, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", NO_RIPGREP)
            assert search(root, pattern, **options) == with_ripgrep


@pytest.mark.needs("program rg")
@settings(max_examples=10, deadline=None)
@given(
    pieces=st.lists(st.one_of(PIECES, st.sampled_from([b"\0", b"\0\n", b"\r"])), max_size=14),
    pattern=st.sampled_from(PATTERNS),
    context=st.integers(0, 2),
    filler=st.just(0),
)
@example(pieces=[b"foo\n", b"\0", b"\nfoo", b"bar"], pattern="foo", context=1, filler=0)
@example(pieces=[b"foo"], pattern="foo", context=0, filler=400_000)
def test_a_file_that_is_given_is_searched_with_nul_bytes_too(
    pieces, pattern, context, filler, tmp_path_factory
):
    root, content = tmp_path_factory.mktemp("n"), b"a\0b\n" * filler + b"".join(pieces)
    write(root / "a", content)
    write(root / "b", content.replace(b"\0", b"\1"))
    for path in (os.environ["PATH"], NO_RIPGREP):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", path)
            with_nul, without = (
                search(root / name, pattern, cwd=root, context=context) for name in "ab"
            )
        found_in = [[match.line for match in each.matches] for each in (with_nul, without)]
        assert with_nul.searched == 1 and found_in[0] == found_in[1]


@pytest.mark.needs("program rg")
@pytest.mark.parametrize("context", [0, 2])
def test_long_files_give_the_same(context, tmp_path, monkeypatch):
    """Longer than a block, with lines that are, and hits on both sides of a block's end."""
    block = 256 * 1024
    body = b"line\n" * (block // 5) + b"needle 1\n" + b"x" * (2 * block) + b" needle 2\nneedle 3\n"
    write(tmp_path / "a.txt", body + b"line\n" * (block // 5 - 1) + b"lineneedle 4\nend needle 5")
    write(tmp_path / "late.bin", b"needle\n" * 10 + b"line\n" * block + b"\0")
    options = {"cwd": tmp_path, "context": context, "max_results": 4}
    with_ripgrep = search(tmp_path, "needle", **options)
    assert (with_ripgrep.total, len(with_ripgrep.matches)) == (5, 4)
    monkeypatch.setenv("PATH", NO_RIPGREP)
    assert search(tmp_path, "needle", **options) == with_ripgrep
    assert search(tmp_path, "NEEDLE", case_sensitive=False, **options) == with_ripgrep


@pytest.mark.parametrize(
    "pattern",
    [
        *("[[:alpha:]]", "a[[:^digit:]b]", "[a[bc]]", "[a&&b]", "[a-z--b]", "[a~~b]", "a++b"),
        *("a*+", "(ab)?+", "a{2}+", r"\<a", r"a\>"),
    ],
)
def test_what_python_would_read_otherwise_is_refused(pattern, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", NO_RIPGREP)
    with pytest.raises(RespondToModel, match="means other things to ripgrep and to Python"):
        search(tmp_path, pattern, cwd=tmp_path)


@pytest.mark.parametrize(
    "pattern", [r"\[\[:a", r"\\<", r"[\[]", r"a\++", r"[+*]+", "[--a]", "a--b"]
)
def test_what_both_read_alike_is_not(pattern, engine, tmp_path):
    assert search(tmp_path, pattern, cwd=tmp_path).total == 0


@pytest.mark.parametrize(
    ("pattern", "case", "text"),
    [
        *(("foo_bar", "s", b"foo_bar"), ("a(foo|x)needle+", "s", b"needl"), ("a?b*", "s", b"")),
        *(("(?i)Total", "s", b"total"), ("Lines", "i", b"ne"), (r"^\s*def \w+_x", "s", b"def ")),
        *(("(?:abc){2}", "s", b"abc"), ("(?:abc)*", "s", b""), ("é€", "s", "é€".encode())),
        *(("(?<=foo)b", "s", b"b"), ("(?i:foo)bar", "s", b"bar"), ("a|b", "s", b"")),
    ],
)
def test_the_text_that_each_match_holds(pattern, case, text):
    regex = re.compile(pattern, re.IGNORECASE if case == "i" else 0)
    assert pygrep.required_text(regex) == text


def test_files_are_in_order_whichever_is_ready_first(engine, tmp_path):
    names = [f"{n:03}.txt" for n in range(120)]
    for number, name in enumerate(names):
        write(tmp_path / name, "hit\n" + "line\n" * (20_000 if number % 7 == 0 else 1) + "hit\n")
    found = search(tmp_path, "hit", cwd=tmp_path, max_results=60, max_files=50)
    assert [match.path for match in found.matches] == [name for name in names[:30] for _ in "12"]
    assert [file.path for file in found.counts] == names[:50]
    assert (found.total, found.files) == (240, 120)


@pytest.mark.parametrize("engine", ["rg", "python"])
def test_a_line_too_long_to_hold_is_not_searched_and_named(tmp_path, monkeypatch, engine):
    if engine == "python":
        monkeypatch.setenv("PATH", NO_RIPGREP)
    (tmp_path / "one_line.json").write_bytes(b"x" * (9 << 20) + b" needle")
    (tmp_path / "lines.txt").write_bytes((b"x" * (1 << 20) + b"\n") * 9 + b"needle\n")
    found = search(tmp_path, "needle", cwd=tmp_path)
    assert [match.path for match in found.matches] == ["lines.txt"]
    assert found.too_long == ("one_line.json",)
    assert found.searched == 1


@given(
    st.lists(st.sampled_from((0, 1, 9, 20, 21, 40)), max_size=8), st.booleans(), st.integers(1, 9)
)
def test_a_long_line_is_found_wherever_it_is(lengths, ends, block):
    content = b"\n".join(b"x" * length for length in lengths) + b"\n" * ends
    with tempfile.TemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_files, "LONGEST_LINE", 20)
        patch.setattr(search_files, "_READ_BACK", block)
        file.write(content)
        file.flush()
        found = search_files._has_long_line(file.fileno(), len(content))
    assert found == any(length > 20 for length in lengths)


def test_a_file_of_which_a_block_cannot_be_read_is_counted_and_not_kept_open(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", NO_RIPGREP)
    monkeypatch.setattr(search_files, "LONGEST_LINE", 10)
    write(tmp_path / "large", "foo\n" * 5)
    write(tmp_path / "small", "foo\n")

    def refuse(*args):
        raise OSError(errno.EIO, "Input/output error")

    with none_left(), monkeypatch.context() as patched:
        patched.setattr(os, "pread", refuse)
        found = search(tmp_path, "foo", cwd=tmp_path)
    assert (lines(found), found.unreadable) == (["small:1"], 1)
