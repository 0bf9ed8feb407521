"""What is promised to only read, on a corpus: nothing unsafe may be among it."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.approval.commands.place import CommandPlace, Effort
from agent_magics.approval.commands.safe import only_reads, programs_of
from tests.support.corpora.commands import corpus

ROOT = "/home/ada/project"


def denied(operand: str) -> bool:
    """Stands for the deny list: keys, settings of Jupyter, files of secrets."""
    parts = operand.split("/")
    return ".ssh" in parts or ".aws" in parts or ".jupyter" in parts or parts[-1] == ".env"


def is_safe(argv, root=ROOT, denied=denied, confined=False):
    effort = Effort(100_000)
    place = CommandPlace((str(root),), (str(root),), denied, effort=effort, confined=confined)
    return only_reads(argv, place)


SAFE_LINES = corpus("safe")
CONFINED_LINES = corpus("confined")


# Unsafe to run unasked: it writes, runs a program, reads what is denied, or is not understood.
UNSAFE_TEXT_LINES = corpus("unsafe")

# What no single line of text can say.
UNSAFE_WORDS = [
    [],
    [""],
    ["ls\n"],
    ["cat", "a\0b"],
    ["echo", "\0"],
    ["cat", "\ud800"],
    ["bash", "-c", "ls\nrm x"],
    ["bash", "-c", "ls\rpwd"],
    ["bash", "-c", "ls\0"],
    ["bash", "-c", "ls\u00a0-l"],
    ["bash", "-c", "ls\u2028rm"],
    ["bash", "-c", "ls\vx"],
    ["bash", "-c", "echo 'a\nb'"],
    ["bash", "-c", "echo $'rm'"],
    ["bash", "-c", "ls \\\nx"],
    ["bash", "-c", "ls", "--", "x"],
    ["sed", "-n", "1p\nw out", "a"],
    ["sed", "-n", "1p\n", "a"],
    ["sed", "-n", "\u0661p", "-i"],
    ["find", ".", "-fprint\n", "x", "-delete"],
    ["date", "-u\n", "-s", "x"],
]
UNSAFE_LINES = [*UNSAFE_TEXT_LINES, *UNSAFE_WORDS]


def name_of(argv):
    return shlex.join(argv)[:70] or "nothing"


@pytest.mark.parametrize("argv", SAFE_LINES, ids=name_of)
def test_a_command_that_only_reads_is_safe(argv):
    assert is_safe(argv)


@pytest.mark.parametrize("argv", UNSAFE_LINES, ids=name_of)
def test_what_writes_or_runs_or_reads_secrets_is_not_safe(argv):
    assert not is_safe(argv)


@pytest.mark.parametrize("argv", CONFINED_LINES, ids=name_of)
def test_git_and_rg_are_safe_where_a_sandbox_holds_them_to_reading(argv, tmp_path):
    for folder in ("src", ".git"):
        (tmp_path / folder).mkdir()
    for file in ("src/app.py", "a", "b"):
        (tmp_path / file).touch()
    assert is_safe(argv, tmp_path, confined=True)
    assert not is_safe(argv, tmp_path)


def test_a_login_shell_whose_profile_a_command_may_write_is_not_safe(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert is_safe(["bash", "-c", "ls"], tmp_path, confined=True)
    assert not is_safe(["bash", "-lc", "ls"], tmp_path, confined=True)


def test_what_git_shows_of_a_history_is_of_files_that_are_named(tmp_path):
    """A word that means more to git than a file of that name, or another one, is none."""
    for folder in (".git", "sub"):
        (tmp_path / folder).mkdir()
    for name in ("a", "*", ":a", "HEAD", "sub/b"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("a")
    for name in ("a", "sub/b"):
        assert is_safe(["git", "diff", "--", name], tmp_path, confined=True)
    for name in ("*", ":a", "sub", "link", "gone", "../a", ""):
        assert not is_safe(["git", "diff", "--", name], tmp_path, confined=True), name
    assert not is_safe(["git", "log", "-p", "HEAD"], tmp_path, confined=True)
    assert not is_safe(["git", "diff", "--", "b"], tmp_path / "sub", confined=True)


@pytest.mark.soak
@pytest.mark.parametrize("argv", UNSAFE_LINES, ids=name_of)
def test_a_sandbox_makes_nothing_else_safe(argv):
    assert not is_safe(argv, confined=True)


@pytest.mark.parametrize("argv", SAFE_LINES, ids=name_of)
def test_what_is_safe_anywhere_is_safe_in_a_sandbox(argv):
    assert is_safe(argv, confined=True)


def test_the_corpus_is_large():
    assert len(SAFE_LINES) >= 90 and len(UNSAFE_LINES) >= 300 and len(CONFINED_LINES) >= 40


@pytest.mark.parametrize("argv", [a for a in SAFE_LINES if a[0] not in ("bash", "sh", "zsh")])
def test_a_safe_command_behind_a_wrapper_is_not_safe(argv):
    for wrapper in (["sudo"], ["env"], ["xargs"], ["timeout", "5"], ["find", ".", "-exec"]):
        assert not is_safe([*wrapper, *argv])


@pytest.mark.soak
@pytest.mark.parametrize("argv", UNSAFE_LINES, ids=name_of)
def test_an_unsafe_command_stays_unsafe_beside_safe_ones(argv):
    for script in (
        f"ls && {shlex.join(argv)}",
        f"cat a | {shlex.join(argv)}",
        shlex.join(argv) + "; ls",
    ):
        assert not is_safe(["bash", "-c", script])


def test_diff_of_folders_is_not_safe(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_text("x", encoding="utf-8")
    assert is_safe(["diff", "-u", "b", "b"], tmp_path)
    assert not is_safe(["diff", "-u", "a", "b"], tmp_path)


def test_denied_is_asked_about_the_path_a_word_leads_to(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/y").symlink_to("z")
    seen = []
    script = "cd sub && cat x y"
    assert is_safe(["bash", "-c", script], tmp_path, lambda path: bool(seen.append(path)))
    assert {f"{tmp_path}/{name}" for name in ("sub/x", "x", "sub/y", "sub/z")} <= set(seen)


def test_a_script_may_go_into_real_folders(tmp_path):
    (tmp_path / "src/app").mkdir(parents=True)
    for script in ("cd src && ls", "cd src; cd app && cat a | head -n 3", "cd src/app; cat a/b"):
        assert is_safe(["bash", "-c", script], tmp_path)


def test_a_script_may_not_go_where_a_symlink_leads(tmp_path):
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for target in ("link", "link/deep", f"{tmp_path}/link", "real/../link", "file", "none"):
        assert not is_safe(["bash", "-c", f"cd {target} && ls"], tmp_path)
    assert not is_safe(["bash", "-c", "cd deep && ls"], tmp_path / "link")
    assert is_safe(["bash", "-c", "cd real && ls"], tmp_path)


def test_dots_behind_a_symlink_are_followed_from_where_it_leads(tmp_path):
    (tmp_path / "far/deep").mkdir(parents=True)
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/link").symlink_to(tmp_path / "far/deep")
    (tmp_path / "ws/null").symlink_to("/dev/null")
    (tmp_path / "ws/disk").symlink_to("/dev/sda")
    secret = str(tmp_path / "far/secret")
    assert not is_safe(["cat", "link/../secret"], tmp_path / "ws", lambda path: path == secret)
    assert is_safe(["cat", "link/../other", "null"], tmp_path / "ws")
    assert not is_safe(["cat", "disk"], tmp_path / "ws")


def test_the_programs_of_a_command_are_told():
    assert programs_of(["/bin/ls", "-l"]) == ["/bin/ls"]
    script = "cd src && cat a | 'head' -n 3; /usr/bin/wc"
    assert programs_of(["sh", "-c", script]) == ["sh", "cat", "head", "/usr/bin/wc"]


@given(st.text(alphabet="lsrm -/'\"\\$`(){}<>|&;#\n*~=!ab"))
def test_an_odd_script_is_never_safe(script):
    bare = "".join(script.split("'")[::2])
    if any(character in bare for character in "$`<>\\*~#\n(){}"):
        assert not is_safe(["bash", "-c", script])
