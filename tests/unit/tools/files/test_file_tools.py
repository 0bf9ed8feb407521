"""`read_file`, `list_dir` and `grep_files`, as a person and as a model call them."""

import gzip
import os
import re
from functools import partial
from pathlib import Path

import pytest

from agent_magics.approval.actions import ActionKind
from agent_magics.dispatch.context import ToolContext, TurnContext, status_of
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.files.listing import glob, list_dir
from agent_magics.tools.files.path_judge import PathJudge
from agent_magics.tools.files.reading import read_file
from agent_magics.tools.files.searching import grep_files
from agent_magics.tools.files.viewing import view_image
from tests.support.users import call_as_user

BUDGET = 10_000


def unused(*args, **kwargs):
    raise AssertionError("a file tool has no need of this")


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    """What the engine hands a call whose workspace is `tmp_path`/work."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    config = RunConfig(cwd=work)
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="default",
        config=config,
        env={},
        emit=unused,
        ask=unused,
        call=unused,
        validate_path=PathJudge(config),
        messages=lambda: (),
        main_thread=unused,
    )
    return ToolContext(turn, "call-1", "read_file")


@pytest.fixture
def work(ctx, monkeypatch):
    monkeypatch.chdir(ctx.cwd)
    return ctx.cwd


def model_reads(function, ctx, budget=BUDGET, **arguments):
    """Go the way of a call that was approved, and return what the model reads."""
    status_of(ctx).judged = False
    function.tool_options.assess(arguments, ctx)
    return as_judged(function, ctx, **arguments).to_output(budget).text


def as_judged(function, ctx, **arguments):
    """Call as the machinery does once `assess` had its say."""
    status_of(ctx).judged = True
    return function(**arguments, ctx=ctx)


def action_of(function, ctx, **arguments):
    (action,) = function.tool_options.assess(arguments, ctx)
    return action


def put_secret(tmp_path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_x").write_text("secret\n", encoding="utf-8")


# -- what a call would do ------------------------------------------------------------------------


@pytest.mark.parametrize("function", [read_file, list_dir, grep_files])
def test_a_plain_path_is_a_read(function, ctx):
    action = action_of(function, ctx, path="a/../b.txt")
    assert (action.kind, action.target, action.reason) == (ActionKind.READ, "b.txt", "")
    assert action_of(function, ctx, path="/etc/hosts").target == "/etc/hosts"


@pytest.mark.parametrize("function", [list_dir, grep_files])
def test_the_workspace_is_the_default(function, ctx):
    assert action_of(function, ctx).target == "."


def test_always_is_bound_to_the_tool_its_arguments_and_where_the_path_leads(ctx, tmp_path):
    put_secret(tmp_path)
    (ctx.cwd / "link").symlink_to(tmp_path / ".ssh")

    def fingerprint(function, **arguments):
        named = ToolContext(ctx.turn, ctx.call_id, function.tool_options.name)
        return action_of(function, named, **arguments).fingerprint

    listed = fingerprint(list_dir, path="link")
    assert listed == fingerprint(list_dir, path="link")
    others = [
        fingerprint(read_file, path="link"),
        fingerprint(list_dir, path="link", recursive=True),
        fingerprint(grep_files, path="link", pattern="."),
        fingerprint(grep_files, path="link", pattern="x"),
    ]
    (ctx.cwd / "link").unlink()
    (ctx.cwd / "link").symlink_to(tmp_path / ".aws")
    others.append(fingerprint(list_dir, path="link"))
    assert len({listed, *others}) == 6


def test_a_tool_of_the_person_s_is_refused_a_link_with_a_protected_name(ctx, tmp_path):
    (ctx.cwd / "git").mkdir()
    (ctx.cwd / ".git").symlink_to("git")
    (ctx.cwd / "plain").touch()
    (ctx.cwd / ".env").symlink_to("plain")
    for path, mode in ((".git/config", "write"), ("git/config", "write"), (".env", "read")):
        with pytest.raises(RespondToModel, match="may not be touched"):
            ctx.validate_path(path, mode)


@pytest.mark.parametrize("function", [read_file, list_dir, grep_files])
@pytest.mark.parametrize("path", ["~/.ssh/id_x", "link", ".env", "../.ssh"])
def test_protected_paths_are_judged_by_their_target(function, path, ctx, tmp_path):
    put_secret(tmp_path)
    (ctx.cwd / "link").symlink_to(tmp_path / ".ssh" / "id_x")
    action = action_of(function, ctx, path=path)
    assert action.kind is ActionKind.READ_DENIED
    assert action.reason


def test_tools_read_only_and_side_by_side():
    for function in (read_file, list_dir, grep_files):
        assert function.tool_options.parallel
        assert not function.tool_options.mutating
        assert "ctx" not in function.spec.parameters["properties"]


# -- protected files -----------------------------------------------------------------------------


def test_an_approved_read_is_done(ctx, tmp_path):
    put_secret(tmp_path)
    assert "secret" in model_reads(read_file, ctx, path="~/.ssh/id_x")
    assert "id_x" in model_reads(list_dir, ctx, path="~/.ssh")
    assert "secret" in model_reads(grep_files, ctx, pattern="sec", path="~/.ssh/id_x")
    assert "secret" in model_reads(grep_files, ctx, pattern="sec", path="~/.ssh")


@pytest.mark.parametrize("function", [read_file, list_dir, grep_files])
def test_a_link_made_after_the_check_leads_nowhere(function, ctx, tmp_path):
    put_secret(tmp_path)
    arguments = {"path": "x"} | ({"pattern": "sec"} if function is grep_files else {})
    function.tool_options.assess(arguments, ctx)
    (ctx.cwd / "x").symlink_to(tmp_path / ".ssh" / ("" if function is list_dir else "id_x"))
    with pytest.raises(RespondToModel, match="protected now"):
        as_judged(function, ctx, **arguments)


def test_an_approval_is_for_one_file_and_one_call(ctx, tmp_path):
    put_secret(tmp_path)
    (tmp_path / ".ssh" / "other").touch()
    read_file.tool_options.assess({"path": "~/.ssh/id_x"}, ctx)
    with pytest.raises(RespondToModel, match="protected now"):
        as_judged(read_file, ctx, path="~/.ssh/other")
    with pytest.raises(RespondToModel, match="protected now"):
        as_judged(read_file, ToolContext(ctx.turn, "call-2", "read_file"), path="~/.ssh/id_x")


def test_walks_leave_protected_places_out(ctx):
    (ctx.cwd / "id_rsa").write_text("word\n", encoding="utf-8")
    (ctx.cwd / "a.txt").write_text("word\n", encoding="utf-8")
    (ctx.cwd / ".aws").mkdir()
    (ctx.cwd / ".aws" / "credentials").touch()
    text = model_reads(grep_files, ctx, pattern="word")
    assert "a.txt:1: word" in text
    assert "id_rsa" not in text
    assert "1 protected place left out" in text
    listed = model_reads(list_dir, ctx, recursive=True, include_hidden=True)
    assert "credentials" not in listed
    assert "1 protected folder not entered" in listed


def test_the_person_reads_what_is_theirs(work, tmp_path):
    put_secret(tmp_path)
    assert read_file("~/.ssh/id_x") == "secret\n"
    assert [entry.path for entry in list_dir("~/.ssh")] == ["id_x"]
    assert len(grep_files("secret", "~/.ssh")) == 1


# -- read_file -----------------------------------------------------------------------------------


def write_lines(work, count, name="a.txt"):
    text = "".join(f"line {n}\n" for n in range(1, count + 1))
    (work / name).write_text(text, encoding="utf-8")
    return text


def test_by_hand_read_file_returns_the_text(work):
    text = write_lines(work, 600)
    assert read_file("a.txt") == text
    assert read_file("a.txt", 2, 3) == "line 2\nline 3\n"
    assert read_file("a.txt", 599) == "line 599\nline 600\n"
    assert read_file("a.txt", offset_bytes=7, max_lines=1) == "line 2\n"


def test_by_hand_lost_bytes_are_warned_about(work):
    (work / "a.txt").write_bytes("é".encode() + b" and caf\xe9 and other words")
    with pytest.warns(UnicodeWarning, match=r"1 byte of a\.txt"):
        assert read_file("a.txt").startswith("é and caf\ufffd")
    (work / "b.txt").write_bytes("café and other words".encode("latin-1"))
    with pytest.warns(UnicodeWarning, match="cp1252, which is a guess"):
        assert read_file("b.txt") == "café and other words"


def test_the_model_reads_numbered_lines_and_how_to_go_on(ctx):
    write_lines(ctx.cwd, 600)
    text = model_reads(read_file, ctx, path="a.txt")
    assert text.startswith("   1| line 1\n   2| line 2\n")
    assert text.endswith(" 250| line 250\nlines 1-250 of 600; go on with start_line=251.")
    assert model_reads(read_file, ctx, path="a.txt", start_line=599).endswith(
        "lines 599-600 of 600."
    )
    many = model_reads(read_file, ctx, path="a.txt", max_lines=5_000)
    assert "lines 1-250 of 600" in many


def test_a_small_budget_ends_the_page_at_a_line(ctx):
    write_lines(ctx.cwd, 600)
    text = model_reads(read_file, ctx, 1_000, path="a.txt")
    *lines, footer = text.split("\n")
    assert len(text) <= 1_000
    assert footer == f"lines 1-{len(lines)} of 600; go on with start_line={len(lines) + 1}."


def test_pages_by_the_footers_own_words_give_the_whole_file(ctx):
    write_lines(ctx.cwd, 600)
    numbers, start = [], 1
    while start is not None:
        *lines, footer = model_reads(read_file, ctx, 2_000, path="a.txt", start_line=start).split(
            "\n"
        )
        numbers += [int(line.split("|")[0]) for line in lines]
        start = int(footer.split("start_line=")[1].rstrip(".")) if "start_line" in footer else None
    assert numbers == list(range(1, 601))


def test_what_is_unusual_about_a_file_is_told(ctx):
    (ctx.cwd / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntw\xff with more text\r\n" + b"x" * 3_000)
    text = model_reads(read_file, ctx, path="a.txt")
    assert "   1| one\n" in text
    assert "[cut: 2,000 of 3,000 characters; offset_bytes=2028 reads on]" in text
    assert "1 byte of a.txt could not be decoded" in text
    assert "byte order mark" in text
    assert "CRLF" in text
    (ctx.cwd / "b.txt").write_bytes("ä\n".encode("utf-16"))
    assert "UTF-16" in model_reads(read_file, ctx, path="b.txt")
    (ctx.cwd / "empty").touch()
    assert model_reads(read_file, ctx, path="empty") == "empty is empty (0 bytes)."


@pytest.mark.parametrize(
    "content",
    [
        b"x" * 1_999 + "é𝄞".encode() * 2_000,
        b"\xef\xbb\xbf" + "ä".encode() * 2_001 + b"\r",
        b"good \xc3\xa9\xc3\xa9 " + (b"b\xff\xc3\xa9" * 999) + b"end",
        ("a" + "é" * 4_000).encode("utf-16"),
        ("éabc" * 1_001).encode("cp1252"),
    ],
    ids=["utf-8", "marked", "damaged", "utf-16", "cp1252"],
)
def test_a_line_that_is_cut_is_read_on_by_its_own_words(ctx, content):
    (ctx.cwd / "a.txt").write_bytes(content)
    window, parts = {}, []
    while window is not None:
        text = model_reads(read_file, ctx, path="a.txt", **window)
        first = text.removeprefix("   1| ").split("\n")[0]
        part, _, mark = first.partition("… [cut: 2,000 of ")
        parts.append(part)
        on = re.search(r"; offset_bytes=(\d+) reads on\]$", mark)
        assert bool(on) == bool(mark)
        window = {"offset_bytes": int(on[1])} if on else None
    codec = "utf-16" if content.startswith(b"\xff\xfe") else "utf-8-sig"
    codec = "cp1252" if content.startswith(b"\xe9") else codec
    assert "".join(parts) == content.decode(codec, "backslashreplace")
    assert len(parts) > 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a\nb\n", ""),
        ("a\r\nb\r\n", "Its lines end with CRLF."),
        ("a\r\nb\nc\r\n", "2 of these 3 lines end with CRLF."),
        ("a\r\nb", "1 of these 2 lines ends with CRLF."),
    ],
)
def test_line_ends_that_are_mixed_are_told_as_such(ctx, content, told):
    (ctx.cwd / "a.txt").write_bytes(content.encode())
    text = model_reads(read_file, ctx, path="a.txt")
    assert ("CRLF" in text) == bool(told) and text.endswith(told)


def test_a_huge_file_is_read_on_by_byte(ctx):
    with (ctx.cwd / "huge").open("wb") as file:
        file.write(b"text\n" * 20_000)
        file.truncate(10 * 1024**3)
    text = model_reads(read_file, ctx, path="huge", max_lines=2)
    assert "lines 1-2 of at least 3, in a file of 10,737,418,240 bytes" in text
    assert text.endswith("go on with start_line=3 or, quicker, offset_bytes=10.")
    text = model_reads(read_file, ctx, path="huge", max_lines=2, offset_bytes=10)
    assert "lines 1-2 counted from byte 10" in text
    assert text.endswith("go on with offset_bytes=20.")


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"start_line": 0}, "start_line is 0, but has to be at least 1"),
        ({"end_line": -1}, "end_line is -1"),
        ({"start_line": 5, "end_line": 4}, "end_line=4 is before start_line=5"),
        ({"max_lines": 0}, "max_lines is 0"),
        ({"offset_bytes": -1}, "offset_bytes is -1"),
        ({"offset_bytes": 1, "start_line": 1}, "either offset_bytes or"),
        ({"start_line": 11}, "10 lines, so there is no line 11"),
        ({"offset_bytes": 10_000}, "only 71 bytes"),
    ],
)
def test_a_window_that_makes_no_sense_is_explained(window, words, ctx):
    write_lines(ctx.cwd, 10)
    with pytest.raises(RespondToModel, match=words):
        read_file("a.txt", **window, ctx=ctx)


def test_what_cannot_be_read_is_explained(ctx):
    write_lines(ctx.cwd, 1, "notes.txt")
    os.mkfifo(ctx.cwd / "pipe")
    for path, words in (
        ("note.txt", r"There is no note\.txt\. Did you mean, in the same folder: notes\.txt"),
        (".", "use list_dir"),
        ("pipe", "FIFO"),
        ("/dev/zero", "device"),
        ("", "empty"),
    ):
        with pytest.raises(RespondToModel, match=words):
            read_file(path, ctx=ctx)


# -- list_dir ------------------------------------------------------------------------------------


def test_list_dir_for_people_and_models(work, ctx):
    (work / "src").mkdir()
    write_lines(work, 1, "b.txt")
    write_lines(work, 1, ".hidden")
    entries = list_dir()
    assert [(entry.path, entry.kind, entry.size) for entry in entries] == [
        ("src", "folder", None),
        ("b.txt", "file", 7),
    ]
    text = 'src/\nb.txt  7 bytes\n1-2 of 2 entries in ".".\n1 hidden entry left out.'
    assert repr(entries) == text
    assert model_reads(list_dir, ctx) == repr(entries)


def test_list_dir_pages_by_its_own_words(ctx):
    for n in range(30):
        (ctx.cwd / f"file-{n:02}").touch()
    text = model_reads(list_dir, ctx, limit=10)
    assert '1-10 of 30 entries in "."; go on with offset=10.' in text
    text = model_reads(list_dir, ctx, offset=25)
    assert text.startswith("file-25")
    assert "26-30 of 30" in text
    small = model_reads(list_dir, ctx, 600)
    shown = small.count("file-")
    assert shown < 30
    assert f"go on with offset={shown}." in small
    assert "behind the last" in model_reads(list_dir, ctx, offset=99)
    text = model_reads(list_dir, ctx, pattern="*.nothing")
    assert text == 'No entries in "." with names like *.nothing.'
    text = model_reads(list_dir, ctx, pattern="*9")
    assert text.endswith('1-3 of 3 entries in "." with names like *9.')


def test_a_pattern_for_paths_goes_down_by_itself(work):
    for name in ("src/a.py", "src/deep/b.py", "c.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    assert [entry.path for entry in list_dir(pattern="src/**/*.py")] == [
        "src/deep/b.py",
        "src/a.py",
    ]
    assert [entry.path for entry in list_dir(pattern="src/**/*.py", max_depth=2)] == ["src/a.py"]
    assert [entry.path for entry in list_dir(pattern="*.py")] == ["c.py"]


@pytest.mark.parametrize(
    "pattern", ["", "/", "/abs/*.py", "~/x/*", "../*", "src/../*.py", "./..", "!*.py", "{a,../b}"]
)
@pytest.mark.parametrize("function", [glob, list_dir, grep_files])
def test_a_glob_that_fits_no_path_is_refused(work, function, pattern):
    (work / "a.py").write_text("x", encoding="utf-8")
    given = {"pattern": pattern} if function is not grep_files else {"file_pattern": pattern}
    with pytest.raises(RespondToModel, match=r"below `?path|such as \*\.py"):
        function(**({"pattern": "x"} | given))


@pytest.mark.parametrize("name", ["~a", "a~/b", "..a", "a..", "a/..b", "a!", "...", "a/!b"])
def test_what_a_name_may_hold_a_glob_may_hold(work, name):
    (work / name).parent.mkdir(parents=True, exist_ok=True)
    (work / name).touch()
    found = list_dir(pattern=name, include_hidden=True)
    assert [entry.path for entry in found] == [name]


def test_glob_finds_files_at_any_depth_and_no_folders(ctx, work):
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", ".hidden/e.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    (work / "folder.py").mkdir()
    assert [entry.path for entry in glob("*.py")] == ["src/deep/c.py", "src/b.py", "a.py"]
    assert [entry.path for entry in glob("src/**/*.{py,txt}")] == [
        *("src/deep/c.py", "src/deep/d.txt", "src/b.py"),
    ]
    assert [entry.path for entry in glob("*.py", "src/deep")] == ["c.py"]
    text = model_reads(glob, ctx, pattern="*.py")
    assert text == repr(glob("*.py"))
    assert '3 files below "." with names like *.py.\n1 hidden entry left out.' in text


def test_glob_counts_all_and_shows_the_first(ctx):
    for n in range(30):
        (ctx.cwd / f"file-{n:02}").touch()
    text = model_reads(glob, ctx, pattern="file-*", limit=2)
    assert text.startswith("file-00  0 bytes\nfile-01  0 bytes\nThe first 2 of 30 files below")
    assert model_reads(glob, ctx, pattern="*.nothing").startswith("No files below")
    with pytest.raises(RespondToModel, match="pattern is empty"):
        as_judged(glob, ctx, pattern="")
    with pytest.raises(RespondToModel, match="limit is 0"):
        as_judged(glob, ctx, pattern="*", limit=0)


def test_glob_does_not_enter_protected_folders(ctx, tmp_path):
    put_secret(tmp_path)
    assert action_of(glob, ctx, pattern="*", path="~/.ssh").kind is ActionKind.READ_DENIED
    (ctx.cwd / "link").symlink_to(tmp_path / ".ssh")
    assert "id_x" not in model_reads(glob, ctx, pattern="*")


def test_list_dir_max_depth_means_recursive(ctx):
    (ctx.cwd / "a" / "b").mkdir(parents=True)
    (ctx.cwd / "a" / "b" / "c").touch()
    assert "a/b/c" not in model_reads(list_dir, ctx, max_depth=2)
    assert "a/b/" in model_reads(list_dir, ctx, max_depth=2)
    assert "a/b/c" in model_reads(list_dir, ctx, recursive=True)


# -- grep_files ----------------------------------------------------------------------------------


def test_grep_files_for_people_and_models(work, ctx):
    write_lines(work, 3)
    matches = grep_files("line [12]")
    assert [(match.path, match.line, match.text) for match in matches] == [
        ("a.txt", 1, "line 1"),
        ("a.txt", 2, "line 2"),
    ]
    text = "2 matching lines in 1 file (1 file searched).\na.txt:1: line 1\na.txt:2: line 2"
    assert repr(matches) == text
    assert model_reads(grep_files, ctx, pattern="line [12]") == text


def test_grep_files_shows_context_once(ctx):
    write_lines(ctx.cwd, 9)
    text = model_reads(grep_files, ctx, pattern="[237]", context=1)
    assert text.split("\n")[1:] == [
        "a.txt-1- line 1",
        "a.txt:2: line 2",
        "a.txt:3: line 3",
        "a.txt-4- line 4",
        "--",
        "a.txt-6- line 6",
        "a.txt:7: line 7",
        "a.txt-8- line 8",
    ]


def test_nothing_found_is_an_answer(ctx):
    write_lines(ctx.cwd, 3)
    output = grep_files("nowhere", ctx=ctx).to_output(BUDGET)
    assert output.success
    assert output.text.startswith("No line matches 'nowhere' in . (1 file searched)")


@pytest.mark.parametrize(
    "look", [partial(list_dir, recursive=True), partial(glob, "*"), partial(grep_files, "x")]
)
def test_a_folder_that_may_not_be_looked_into_is_counted(look):
    def look_there(top: str) -> str:
        Path(top, "closed").mkdir(mode=0o311)
        return repr(look(path=top))

    assert "1 folder could not be read." in call_as_user(look_there)


def test_the_first_matches_and_the_true_count(ctx):
    write_lines(ctx.cwd, 5_000)
    text = model_reads(grep_files, ctx, pattern="line", max_results=100)
    assert text.startswith("5,000 matching lines in 1 file (1 file searched); the first 100 follow")
    text = model_reads(grep_files, ctx, 1_000, pattern="line", max_results=100)
    assert len(text) <= 1_000
    assert f"the first {text.count('a.txt:')} follow" in text


def test_what_cannot_be_searched_is_explained(ctx):
    os.mkfifo(ctx.cwd / "pipe")
    for arguments, words in (
        ({"pattern": "x", "path": "none"}, "There is no none"),
        ({"pattern": "x", "path": "pipe"}, "FIFO"),
        ({"pattern": "(", "path": "."}, "position 0"),
        ({"pattern": "x", "max_results": 0}, "max_results is 0"),
        ({"pattern": "x", "context": -1}, "context is -1"),
    ):
        with pytest.raises(RespondToModel, match=words):
            grep_files(**arguments, ctx=ctx)


@pytest.mark.parametrize("function", [list_dir, grep_files])
def test_an_interrupt_ends_the_walk(function, ctx):
    (ctx.cwd / "a").mkdir()
    (ctx.cwd / "a" / "b").touch()
    ctx.cancelled.set()
    arguments = {"pattern": "x"} if function is grep_files else {"recursive": True}
    with pytest.raises(RespondToModel, match="Interrupted"):
        function(**arguments, ctx=ctx)


# -- what is left out, and how it is asked for -----------------------------------------------------


@pytest.fixture
def repository(ctx):
    (ctx.cwd / ".git").mkdir()
    for name, size in (("src/a.py", 30), ("src/b.log", 20), ("big.py", 900), ("build/c.py", 10)):
        (ctx.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (ctx.cwd / name).write_text("word " * (size // 5), encoding="utf-8")
    (ctx.cwd / ".gitignore").write_text("build/\n*.log\n", encoding="utf-8")
    return ctx.cwd


def test_what_is_ignored_is_named_and_found_by_its_name(repository, ctx):
    note = "2 entries left out by .gitignore: build/, src/b.log."
    listed = model_reads(list_dir, ctx, recursive=True)
    assert listed.startswith('src/\nsrc/a.py  30 bytes\nbig.py  900 bytes\n1-3 of 3 entries in "."')
    assert note in listed
    assert note in model_reads(glob, ctx, pattern="*.py")
    found = model_reads(grep_files, ctx, pattern="word")
    assert note in found
    assert "build" not in found.replace(note, "")
    assert "c.py" in model_reads(list_dir, ctx, path="build")
    assert "c.py" in model_reads(glob, ctx, pattern="*.py", path="build")
    assert "build/c.py:1: word" in model_reads(grep_files, ctx, pattern="word", path="build")
    assert "src/b.log:1: word" in model_reads(grep_files, ctx, pattern="word", path="src/b.log")


def test_other_orders_and_times(repository, ctx):
    os.utime(repository / "src" / "a.py", (0, 4_000_000_000))
    os.utime(repository / "big.py", (0, 1_000_000_000))
    by_size = model_reads(list_dir, ctx, recursive=True, sort="size", limit=2)
    assert by_size.startswith("big.py  900 bytes\nsrc/a.py  30 bytes\n1-2 of 3 entries")
    by_time = model_reads(list_dir, ctx, recursive=True, sort="mtime")
    assert by_time.startswith("src/a.py  30 bytes  2096-")
    assert "big.py  900 bytes  2001-" in by_time.split("\n")[2]
    pages = [
        model_reads(list_dir, ctx, recursive=True, sort="size", offset=n, limit=1).split("\n")[0]
        for n in range(3)
    ]
    assert [page.split(" ")[0] for page in pages] == ["big.py", "src/a.py", "src/"]


def test_the_full_view_goes_page_by_page_with_times(ctx):
    for n in range(60):
        (ctx.cwd / f"file-{n:02}").touch()
    first = model_reads(list_dir, ctx, detail_level="full")
    assert '1-50 of 60 entries in "."; go on with offset=50.' in first
    assert first.startswith("file-00  0 bytes  20")
    assert "51-60 of 60" in model_reads(list_dir, ctx, detail_level="full", offset=50)
    with pytest.raises(RespondToModel, match="offset is -1"):
        model_reads(list_dir, ctx, offset=-1)


@pytest.mark.parametrize(
    ("mode", "lines"),
    [
        ("files_with_matches", ["a.txt", "b.txt"]),
        ("count", ["a.txt: 600", "b.txt: 1"]),
    ],
)
def test_grep_can_name_the_files_alone(mode, lines, ctx):
    write_lines(ctx.cwd, 600)
    write_lines(ctx.cwd, 1, "b.txt")
    text = model_reads(grep_files, ctx, pattern="line", output_mode=mode)
    assert text.split("\n") == ["601 matching lines in 2 files (2 files searched).", *lines]
    short = model_reads(grep_files, ctx, pattern="line", output_mode=mode, max_results=1)
    assert "; the first 1 follow, narrow the search for others." in short
    assert "b.txt" not in short


def test_a_person_may_ask_for_more_lines_than_a_model_is_shown(work):
    write_lines(work, 600)
    assert len(grep_files("line")) == 200
    assert len(grep_files("line", max_results=500)) == 500
    assert [file.count for file in grep_files("line", output_mode="count")] == [600]


# -- attacks that read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/environ", "/dev/sda", "/sys/power"]
)
def test_the_inside_of_the_system_is_asked_about_and_never_just_read(path, ctx):
    for function in (read_file, list_dir, grep_files, glob, view_image):
        arguments = {"path": path}
        if function in (grep_files, glob):
            arguments["pattern"] = "x"
        assert action_of(function, ctx, **arguments).kind is ActionKind.READ_DENIED
        with pytest.raises(RespondToModel):
            as_judged(function, ToolContext(ctx.turn, "unasked", "read_file"), **arguments)


def test_a_second_name_of_a_secret_is_none(ctx, tmp_path):
    put_secret(tmp_path)
    os.link(tmp_path / ".ssh" / "id_x", ctx.cwd / "notes.csv")
    os.link(tmp_path / ".ssh" / "id_x", ctx.cwd / "notes.ipynb")
    for name in ("notes.csv", "notes.ipynb"):
        with pytest.raises(RespondToModel, match="second name of a protected file"):
            as_judged(read_file, ctx, path=name)
    assert "secret" not in model_reads(grep_files, ctx, pattern="secret").partition("\n")[2]


@pytest.mark.soak
def test_compressed_data_is_named_and_not_unpacked(ctx):
    (ctx.cwd / "a.csv.gz").write_bytes(gzip.compress(b"0" * 50_000_000))
    with pytest.raises(RespondToModel, match="gzip data; decompress it first"):
        as_judged(read_file, ctx, path="a.csv.gz")
