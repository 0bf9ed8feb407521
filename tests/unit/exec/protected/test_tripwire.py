"""Protected files are after a command what they were before; nothing is lost, nothing is silent."""

import fcntl
import json
import os
import queue
import resource
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.config_files.places import make_project_folder
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected import put_back
from agent_magics.exec.protected.tripwire import Tripwire, shared_tripwire
from agent_magics.exec.sandbox.plan import build_confinement
from agent_magics.files import locks
from agent_magics.files import survey as surveying
from agent_magics.files.paths import write_kind
from agent_magics.mcp.config.edit import McpFile
from agent_magics.mcp.config.sources import ProjectServers
from agent_magics.patch.grammar import parse_patch
from agent_magics.patch.plan import plan_patch
from agent_magics.project.memory import note_folders
from tests.support import forks
from tests.support.descriptors import none_left
from tests.support.users import call_as_user


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".git/hooks/pre-push").write_text("#!/bin/sh\necho mine\n", encoding="utf-8")
    (folder / ".git/hooks/pre-push").chmod(0o755)
    return folder


@pytest.fixture
def tripwire(tmp_path):
    return Tripwire(str(tmp_path / "quarantine"), every=None)


def confined(workspace: Path, **options) -> Confinement:
    settings = {"tier": 1, "policy": "workspace-write", "roots": [workspace], "cwd": workspace}
    return build_confinement(**{**settings, "tmp": workspace.parent / "tmp", **options})


def kept_text(finding) -> str:
    return Path(finding.kept).read_text(encoding="utf-8")


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_nothing_is_told_of_a_command_that_keeps_its_hands_off(workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    (workspace / "a").write_text("x", encoding="utf-8")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", workspace]
    subprocess.run([*git, "add", "a"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    subprocess.run([*git, "gc", "-q"], check=True)
    assert watch.finish() == []
    (workspace / ".git/hooks/later").touch()
    assert watch.finish() == []  # it is over


def append(path: Path, text: str = "[core]\n\tfsmonitor = evil\n") -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def replace_by_link(path: Path) -> None:
    (path.parent / "own").write_text("evil", encoding="utf-8")
    path.unlink()
    path.symlink_to("own")


CHANGES = {
    "a changed setting": ("config", append),
    "a removed setting": ("config", Path.unlink),
    "a setting behind a link": ("config", replace_by_link),
    "a setting that became a folder": ("config", lambda path: (path.unlink(), path.mkdir())),
    "a setting with another mode": ("config", lambda path: path.chmod(0o666)),
    "a changed hook": ("hooks/pre-push", append),
    "a hook that may not run any more": ("hooks/pre-push", lambda path: path.chmod(0o644)),
    "a removed hook": ("hooks/pre-push", Path.unlink),
    "hooks that are gone": ("hooks", shutil.rmtree),
    "hooks that became a file": ("hooks", lambda path: (shutil.rmtree(path), path.touch())),
    "hooks with another mode": ("hooks", lambda path: path.chmod(0o777)),
    "a filter": ("info/attributes", lambda path: path.write_text("* filter=x", encoding="utf-8")),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_changed_is_put_back_and_told(case, workspace, tripwire):
    name, change = CHANGES[case]
    samples = {path for path in state_of(workspace / ".git") if path.endswith(".sample")}
    before = {k: v for k, v in state_of(workspace / ".git").items() if k not in samples}
    modes = {path: path.stat().st_mode for path in (workspace / ".git").rglob("*")}
    watch = tripwire.arm(confined(workspace))
    change(workspace / ".git" / name)
    found = watch.finish()
    assert found and all(finding.done for finding in found)
    assert any(f".git/{name}" in str(finding) for finding in found)
    after = state_of(workspace / ".git")
    assert before.items() <= after.items()
    assert set(after) - samples - set(before) <= {"own"}
    for path, mode in modes.items():
        assert not path.exists() or path.stat().st_mode == mode
    assert tripwire.arm(confined(workspace)).finish() == []


@pytest.mark.parametrize("mode", [0o000, 0o311, 0o666, 0o555])
@pytest.mark.parametrize("closed", [".git/hooks", ".git", "."])
def test_what_is_planted_in_a_folder_that_nobody_may_look_into_is_found(closed, mode):
    def attack(top: str) -> list[str]:
        work = Path(top, "work")
        subprocess.run(["git", "init", "-q", work], check=True)
        shutil.rmtree(work / ".git/info")
        folders = (work, work / ".git", work / ".git/hooks")
        modes = [path.stat().st_mode for path in folders]
        tripwire = Tripwire(f"{top}/quarantine", every=None)
        watch = tripwire.arm(confined(work))
        for name in ("hooks/pre-commit", "info/attributes"):
            (work / ".git" / name).parent.mkdir(exist_ok=True)
            (work / ".git" / name).write_text("evil", encoding="utf-8")
        append(work / ".git/config")
        (work / closed).chmod(mode)
        found = watch.finish()
        assert not (work / ".git/hooks/pre-commit").exists()
        assert "evil" not in (work / ".git/config").read_text(encoding="utf-8")
        assert not (work / ".git/info").exists()
        assert [path.stat().st_mode for path in folders] == modes
        assert tripwire.arm(confined(work)).finish() == []
        return sorted(f"{finding.done} {os.path.relpath(finding.path, work)}" for finding in found)

    found = call_as_user(attack)
    planted = ["moved .git/hooks/pre-commit", "moved .git/info"]
    assert found == [*planted, *sorted(["restored .git/config", f"restored {closed}"])]


@pytest.mark.parametrize("begins", ["its call", "a session"])
def test_compiled_modules_are_removed_and_nothing_is_told(begins, workspace, tripwire):
    tools = workspace / ".agent_magics/tools"
    (tools / "__pycache__").mkdir(parents=True)
    (tools / "x.py").touch()
    (tools / "__pycache__/x.cpython-311.pyc").write_bytes(b"mine")
    (tools / "__pycache__/y.cpython-311.pyc").write_bytes(b"mine")
    watch = tripwire.arm(confined(workspace))
    if begins == "a session":
        watch.check()
    (tools / "__pycache__/x.cpython-311.pyc").write_bytes(b"evil")
    (tools / "a/__pycache__").mkdir(parents=True)
    (tools / "__pycache__/new.cpython-311.pyc").touch()
    (workspace / "evil").mkdir()
    (tools / "b").mkdir()
    (tools / "b/__pycache__").symlink_to(workspace / "evil")
    found = {os.path.basename(finding.path) for finding in watch.finish()}
    assert found == {"a", "b"}
    assert os.listdir(tools / "__pycache__") == ["y.cpython-311.pyc"]


@pytest.mark.parametrize(
    "place", [".agent_magics/skills/a/scripts/lib/x/y.py", ".git/hooks/a/b/c/d/e"]
)
def test_what_stands_deep_is_restored(place, workspace, tripwire):
    (workspace / place).parent.mkdir(parents=True)
    (workspace / place).write_text("mine", encoding="utf-8")
    watch = tripwire.arm(confined(workspace))
    (workspace / place).write_text("evil", encoding="utf-8")
    assert [finding.done for finding in watch.finish()] == ["restored"]
    assert (workspace / place).read_text(encoding="utf-8") == "mine"


def test_what_was_changed_is_kept(workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    append(workspace / ".git/config")
    (workspace / ".git/hooks/post-commit").write_text("evil", encoding="utf-8")
    (workspace / ".agent_magics/tools").mkdir(parents=True)
    (workspace / ".agent_magics/tools/x.py").write_text("evil()", encoding="utf-8")
    found = {os.path.basename(finding.path): finding for finding in watch.finish()}
    assert "fsmonitor" in kept_text(found["config"])
    assert kept_text(found["post-commit"]) == "evil"
    assert (Path(found[".agent_magics"].kept) / "tools/x.py").read_text() == "evil()"
    assert not (workspace / ".agent_magics").exists()
    assert not (workspace / ".git/hooks/post-commit").exists()


def test_what_cannot_leave_its_file_system_is_renamed(workspace, tripwire, tmp_path):
    """Not even the quarantine can be made: the hook loses its name where it is."""
    (tmp_path / "quarantine").write_text("a file in the way", encoding="utf-8")
    watch = tripwire.arm(confined(workspace))
    (workspace / ".git/hooks/post-commit").write_text("evil", encoding="utf-8")
    (finding,) = watch.finish()
    assert finding.done == "moved" and ".quarantined-" in finding.kept
    assert kept_text(finding) == "evil"
    assert not (workspace / ".git/hooks/post-commit").exists()
    assert tripwire.arm(confined(workspace)).finish() == []


@pytest.mark.needs("folder /dev/shm")
def test_quarantine_on_another_file_system(workspace, tmp_path):
    folder = f"/dev/shm/agent-magics-test-{os.getpid()}"
    assert os.stat("/dev/shm").st_dev != os.stat(workspace).st_dev
    try:
        watch = Tripwire(folder).arm(confined(workspace))
        (workspace / ".git/hooks/post-commit").write_text("evil", encoding="utf-8")
        (workspace / ".agent_magics").mkdir()
        found = watch.finish()
        hook = next(f for f in found if f.path.endswith("post-commit"))
        assert hook.kept.startswith(folder) and kept_text(hook) == "evil"
        settings = next(f for f in found if f.path.endswith(".agent_magics"))
        assert settings.kept.startswith(f"{workspace}/.agent_magics.quarantined-")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_repository_that_was_swapped_for_another(workspace, tripwire):
    watch = tripwire.arm(confined(workspace, tier=2))
    (workspace / ".git").rename(workspace / ".git2")
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".git/hooks/post-commit").write_text("evil", encoding="utf-8")
    (workspace / ".git/config").write_text("[core]\n\tfsmonitor = evil\n", encoding="utf-8")
    assert watch.finish()
    assert "fsmonitor" not in (workspace / ".git/config").read_text(encoding="utf-8")
    assert [path.name for path in (workspace / ".git/hooks").iterdir()] == ["pre-push"]


def test_a_repository_behind_a_link_of_the_command(workspace, tripwire):
    (workspace / "own/hooks").mkdir(parents=True)
    (workspace / "own/hooks/post-commit").write_text("evil", encoding="utf-8")
    watch = tripwire.arm(confined(workspace))
    (workspace / ".git").rename(workspace / ".git2")
    (workspace / ".git").symlink_to("own")
    found = watch.finish()
    assert any(f.path == f"{workspace}/.git" and f.done == "moved" for f in found)
    assert not (workspace / ".git").is_symlink()
    assert (workspace / "own/hooks/post-commit").exists()  # what is the workspace's own stays


@pytest.mark.parametrize("begins", ["its call", "a session"])
def test_a_repository_behind_a_file_of_the_command(begins, workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    if begins == "a session":
        watch.check()
    (workspace / ".git").rename(workspace / "evil")
    (workspace / "evil/hooks/pre-commit").touch()
    (workspace / ".git").write_text("gitdir: evil\n", encoding="utf-8")
    found = watch.finish()
    assert (found[0].path, found[0].done) == (f"{workspace}/.git", "moved")
    assert not (workspace / ".git").exists()


def test_a_removed_repository_is_told_and_not_half_restored(workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    shutil.rmtree(workspace / ".git")
    found = watch.finish()
    assert found and not any(finding.done for finding in found)
    assert all("its folder is gone" in str(finding) for finding in found)
    assert not (workspace / ".git").exists()


@pytest.mark.parametrize("tier", [1, 2])
@pytest.mark.parametrize("begins", ["its call", "a session"])
def test_a_repository_that_comes_back_keeps_its_hooks(begins, tier, workspace, tripwire):
    before = state_of(workspace / ".git")
    watch = tripwire.arm(confined(workspace, tier=tier))
    if begins == "a session":
        watch.check()
    (workspace / ".git").rename(workspace / ".git_off")
    assert not any(finding.done for finding in (watch.look(), watch.check())[1])
    watch.look()
    (workspace / ".git_off").rename(workspace / ".git")
    assert watch.finish() == []
    assert state_of(workspace / ".git") == before


@pytest.mark.parametrize("while_runs", ["a session", "nothing"])
def test_a_repository_that_the_person_makes_anew_gets_no_old_hooks(while_runs, workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    shutil.rmtree(workspace / ".git")
    watch.check() if while_runs == "a session" else watch.finish()
    subprocess.run(["git", "init", "-q", "--template=", workspace], check=True)
    tripwire.arm(confined(workspace)).finish()
    watch.finish()
    assert not (workspace / ".git/hooks").exists()


@pytest.mark.parametrize("letter", ["a", "\U0001f600"])
def test_a_name_of_any_length_is_moved_away_and_restored(letter, workspace, tripwire):
    longest = letter * (255 // len(letter.encode()))
    mine = workspace / ".git/info" / longest
    mine.write_text("mine", encoding="utf-8")
    watch = tripwire.arm(confined(workspace))
    (workspace / ".git/hooks" / longest).touch()
    append(mine)
    assert sorted(finding.done for finding in watch.finish()) == ["moved", "restored"]
    assert not (workspace / ".git/hooks" / longest).exists()
    assert mine.read_text(encoding="utf-8") == "mine"


def test_what_cannot_be_moved_away_is_not_taken_for_intended():
    def attack(top: str) -> tuple[bool, bool]:
        planted = Path(top, "hooks/evil")
        planted.parent.mkdir()
        planted.touch()
        planted.parent.chmod(0o555)
        quarantine = put_back.Quarantine(f"{top}/quarantine")
        stays = put_back.move_away(str(planted), quarantine)
        planted.parent.chmod(0o755)
        return stays.pending, put_back.move_away(str(planted), quarantine).done == "moved"

    assert call_as_user(attack) == (True, True)


def test_a_workspace_that_turns_into_a_bare_repository(tmp_path, tripwire):
    workspace = tmp_path / "plain"
    workspace.mkdir()
    watch = tripwire.arm(confined(workspace))
    for name in ("objects", "refs"):
        (workspace / name).mkdir()
    (workspace / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (workspace / "config").write_text("[core]\n\tfsmonitor = evil\n", encoding="utf-8")
    (finding,) = watch.finish()
    assert finding.path == f"{workspace}/HEAD" and finding.done == "moved"
    status = subprocess.run(["git", "-C", workspace, "status"], capture_output=True, text=True)
    assert "not a git repository" in status.stderr


def test_a_new_repository_is_told_only_if_git_would_run_something(tmp_path, tripwire):
    for name, extra in (("plain", ""), ("hooked", "hook"), ("set", "config")):
        workspace = tmp_path / name
        workspace.mkdir()
        watch = tripwire.arm(confined(workspace))
        subprocess.run(["git", "init", "-q", workspace], check=True)
        if extra == "hook":
            (workspace / ".git/hooks/pre-commit").touch()
        if extra == "config":
            append(workspace / ".git/config")
        found = watch.finish()
        assert len(found) == bool(extra)
        assert not found or (found[0].done == "" and "look at" in str(found[0]))
        assert (workspace / ".git/config").exists()


def test_the_persons_own_settings_are_not_those_of_a_new_repository(
    workspace, tripwire, monkeypatch, tmp_path_factory
):
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    settings = "[include]\n\tpath = work\n[core]\n\thooksPath = ~/.config/git/hooks\n"
    (home / ".gitconfig").write_text(settings, encoding="utf-8")
    (home / "work").write_text("[alias]\n\tst = status\n", encoding="utf-8")
    hooked(home / ".config/git")
    watch = tripwire.arm(confined(workspace))
    subprocess.run(["git", "init", "-q", workspace / "new"], check=True)
    assert watch.finish() == []


@pytest.mark.parametrize("key", ["hooksPath", "path", "worktree"])
@pytest.mark.parametrize("value", ["a\0b", '"a\0b"', "../" * 3000], ids=["nul", "quoted", "long"])
def test_a_setting_that_is_no_path_stops_no_command(workspace, tripwire, key, value):
    settings = workspace / ".git/config"
    settings.write_text(f"[core]\n\t{key} = {value}\n", encoding="utf-8")
    watch = tripwire.arm(confined(workspace))
    (workspace / "moved").mkdir()
    shutil.copytree(workspace / ".git", workspace / "moved/.git")
    write_kind(workspace / "file", [workspace], False)  # raises nothing
    assert [each.path for each in watch.finish()] == [str(workspace / "moved/.git")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_ends_the_watch_for_one_command_at_most(workspace, tmp_path):
    tripwire = Tripwire(str(tmp_path / "quarantine"), every=0.001)
    watch = tripwire.arm(confined(workspace), lambda found: 1 / 0)
    append(workspace / ".git/config")
    tripwire._thread.join(10)
    watch.finish()
    told = queue.Queue()
    watch = tripwire.arm(confined(workspace), told.put)
    append(workspace / ".git/config")
    assert told.get(timeout=10)
    watch.finish()


def hooked(folder: Path) -> None:
    (folder / "hooks").mkdir(parents=True, exist_ok=True)
    (folder / "hooks/post-commit").touch()


def made_below(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q", workspace / "a/b/c/d/e/f"], check=True)
    hooked(workspace / "a/b/c/d/e/f/.git")
    return workspace / "a/b/c/d/e/f/.git"


def moved_elsewhere(workspace: Path) -> Path:
    (workspace / "old").rename(workspace / "elsewhere")
    hooked(workspace / "elsewhere/.git")
    return workspace / "elsewhere/.git"


def file_that_names_another(workspace: Path) -> Path:
    hooked(workspace / "own")
    (workspace / "sub").mkdir()
    (workspace / "sub/.git").write_text("gitdir: ../own\n", encoding="utf-8")
    return workspace / "sub/.git"


def folder_that_names_another(workspace: Path) -> Path:
    (workspace / "sub/.git").mkdir(parents=True)
    (workspace / "sub/.git/commondir").write_text("../../own\n", encoding="utf-8")
    return workspace / "sub/.git"


def bare_below(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", workspace / "bare"], check=True)
    append(workspace / "bare/config")
    return workspace / "bare"


def new_at(workspace: Path, *settings: str) -> Path:
    subprocess.run(["git", "init", "-q", workspace / "x"], check=True)
    append(workspace / "x/.git/config", "\n".join(settings))
    return workspace / "x/.git"


def with_large_settings(workspace: Path) -> Path:
    return new_at(workspace, "#" * 300_000, "[core]", "fsmonitor = evil")


def with_linked_hooks(workspace: Path) -> Path:
    place = new_at(workspace)
    hooked(workspace / "own")
    (workspace / "own/hooks").rename(workspace / "others")
    shutil.rmtree(place / "hooks")
    (place / "hooks").symlink_to("../../others")
    return place


def that_works_elsewhere(workspace: Path) -> Path:
    return new_at(workspace, "[core]", "worktree = /home")


def divided(workspace: Path, folder: str, common: str, names: str, end: str = "") -> Path:
    """A repository whose parts stand in two folders, of which neither has all."""
    for part in ("objects", "refs"):
        (workspace / common / part).mkdir(parents=True)
    append(workspace / common / "config")
    (workspace / folder).mkdir()
    (workspace / folder / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / folder / "commondir").write_text(f"../{common}{end}")
    if not names:
        return workspace / folder
    (workspace / "sub").mkdir()
    (workspace / "sub/.git").write_text(f"gitdir: ../{folder}{names}")
    return workspace / "sub/.git"


DIVIDED = {
    "without .git": ("a", "b", ""),
    "named by a file": ("a", "b", "\n"),
    "a line end in its name": ("a\nb", "b", "\r\n"),
    "a blank at its end": ("a ", "b", "\n"),
    "a NUL behind it": ("a", "b", "\0more"),
    "a blank at the other's end": ("a", "b ", "\n"),
}


@pytest.mark.parametrize("parts", DIVIDED.values(), ids=DIVIDED)
def test_a_repository_is_found_as_git_finds_it(workspace, tripwire, parts):
    watch = tripwire.arm(confined(workspace))
    place = divided(workspace, *parts)
    ask = ["git", "-C", place if place.is_dir() else place.parent, "config", "core.fsmonitor"]
    assert subprocess.run(ask, capture_output=True, text=True).stdout == "evil\n"
    assert str(place) in {each.path for each in watch.finish() if "makes git run" in each.why}


# Settings of git by which it runs a program, or takes commands for addresses.
PROGRAMS = [
    *("browser.x.path", "difftool.x.path", "mergetool.x.path", "man.x.path", "include.path"),
    *("gpg.ssh.defaultKeyCommand", "instaweb.httpd", "instaweb.modulePath", "remote.x.vcs"),
    *("protocol.allow", "protocol.ext.allow", "core.fsmonitor", "sequence.editor", "gpg.x.program"),
    *("trailer.x.cmd", "annex.web-download-command", "uploadpack.packObjectsHook", "alias.x"),
]


@pytest.mark.parametrize("key", PROGRAMS)
def test_a_setting_by_which_git_runs_a_program_is_told(workspace, tripwire, key):
    watch = tripwire.arm(confined(workspace))
    place = new_at(workspace)
    subprocess.run(["git", "config", "--file", place / "config", key, "x"], check=True)
    (finding,) = watch.finish()
    assert finding.path == str(place) and "makes git run programs" in finding.why


@pytest.mark.parametrize("where", ["of the repository", "of the person"])
@pytest.mark.parametrize("key", ["include.path", "includeIf.gitdir:/.path", "core.hooksPath"])
def test_what_the_settings_have_git_read_elsewhere_is_protected(
    workspace, tripwire, monkeypatch, tmp_path, key, where
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    theirs = ["--file", tmp_path / "home/.gitconfig"] if where == "of the person" else []
    place = workspace / "own"
    command = ["git", "-C", workspace, "config", *theirs, key, place]
    subprocess.run(command, check=True)
    watch = tripwire.arm(confined(workspace))
    if key == "core.hooksPath":
        place.mkdir()
        place /= "post-commit"
    append(place)
    assert not write_kind(place, [workspace], read_only=False)[0]
    assert any(each.done == "moved" for each in watch.finish()) and not place.exists()


@pytest.mark.parametrize("name", [".git", ".git/hooks", ".git/config", "included"])
def test_a_link_of_the_person_s_leads_where_it_led(workspace, tripwire, name):
    (workspace / "included").write_text("[core]\n", encoding="utf-8")
    append(workspace / ".git/config", "[include]\n\tpath = ../included\n")
    (workspace / name).rename(workspace / "own")
    (workspace / name).symlink_to(workspace / "own")
    assert not write_kind(workspace / name, [workspace], read_only=False)[0]
    watch = tripwire.arm(confined(workspace))
    (workspace / name).unlink()
    (workspace / name).symlink_to(workspace / "evil")
    assert [each.done for each in watch.finish()] == ["restored"]
    assert (workspace / name).readlink() == workspace / "own"


def test_a_worktree_is_protected_however_many_there_are(workspace, tripwire):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", workspace]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "--no-verify", "-m", "x"], check=True)
    for number in range(300):
        (workspace / f".git/worktrees/{number}").mkdir(parents=True)
    subprocess.run([*git, "worktree", "add", "-q", workspace.parent / "tree"], check=True)
    assert f"{workspace}/.git/worktrees/tree/commondir" in confined(workspace).protected


def test_a_command_that_a_rebase_is_to_run_is_told(workspace, tripwire):
    todo = workspace / ".git/rebase-merge/git-rebase-todo"
    todo.parent.mkdir()
    todo.write_text("exec make test\npick 1 x\n")
    watch = tripwire.arm(confined(workspace))
    for added, look in (("exec evil", watch.check), (f" x\tworse{'e' * 9999}", watch.finish)):
        append(todo, f"{added}\n")
        (finding,) = look()
        assert " ".join(added.split())[:150] in finding.why and "make test" not in finding.why
        assert len(finding.why) < 300


@pytest.mark.parametrize(
    "plant",
    [
        made_below,
        moved_elsewhere,
        file_that_names_another,
        folder_that_names_another,
        bare_below,
        with_large_settings,
        with_linked_hooks,
        that_works_elsewhere,
    ],
)
def test_a_repository_that_comes_anywhere_is_told_once(workspace, tripwire, plant):
    subprocess.run(["git", "init", "-q", workspace / "old"], check=True)
    watch = tripwire.arm(confined(workspace))
    place = plant(workspace)
    assert str(place) in {finding.path for finding in watch.check() if "look at" in str(finding)}
    assert str(place) not in {finding.path for finding in watch.finish()}


def test_a_worktree_of_a_known_repository_is_no_news(workspace, tripwire):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", workspace]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "--no-verify", "-m", "x"], check=True)
    watch = tripwire.arm(confined(workspace))
    subprocess.run([*git, "worktree", "add", "-q", workspace / "tree"], check=True)
    assert watch.finish() == []


@pytest.mark.parametrize("part", ["commondir", "gitdir", "config.worktree"])
def test_what_a_linked_worktree_reads_is_protected_wherever_it_stands(
    part, workspace, tripwire, tmp_path
):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", workspace]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "--no-verify", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", tmp_path / "elsewhere"], check=True)
    file = workspace / ".git/worktrees/elsewhere" / part
    before = file.read_text(encoding="utf-8") if file.exists() else None
    confinement = confined(workspace)
    assert str(file) in confinement.protected
    watch = tripwire.arm(confinement)
    file.write_text("../../../evil\n", encoding="utf-8")
    found = watch.finish()
    assert any(finding.done and part in str(finding) for finding in found)
    assert (file.read_text(encoding="utf-8") if file.exists() else None) == before


def test_what_may_be_planted_for_git_is_known(workspace, tripwire, monkeypatch):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", workspace]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "--no-verify", "-m", "x"], check=True)
    subprocess.run(["git", "init", "-q", workspace / "old"], check=True)
    hooked(workspace / "old/.git")

    def planted():
        return [finding.path for finding in tripwire.repositories.others_in([str(workspace)])]

    assert planted() == []
    tripwire.arm(confined(workspace)).finish()
    subprocess.run([*git, "worktree", "add", "-q", workspace / "tree"], check=True)
    subprocess.run(["git", "init", "-q", workspace / "plain"], check=True)
    assert planted() == []
    hooked(workspace / "plain/.git")
    assert planted() == [f"{workspace}/plain/.git"]
    shutil.rmtree(workspace / "plain")
    assert planted() == []
    (workspace / "old").rename(workspace / "away")
    tripwire.arm(confined(workspace)).finish()
    (workspace / "away").rename(workspace / "old")
    assert planted() == [f"{workspace}/old/.git"], "one that comes again is another"
    monkeypatch.setattr(surveying, "_LONGEST", 0.0)
    assert planted() == [str(workspace)], "what cannot be looked into is unknown"


def test_what_cannot_be_looked_into_is_told(workspace, tripwire, monkeypatch):
    monkeypatch.setattr(surveying, "_LONGEST", 0.0)
    (finding,) = tripwire.arm(confined(workspace)).finish()
    assert str(finding).startswith(f"{workspace} is not protected: the tree is too large")


@pytest.mark.parametrize("within", ["its call", "a session"])
def test_what_is_planted_while_a_command_runs_is_put_back_without_any_call(
    workspace, tmp_path, within
):
    told = queue.Queue()
    watch = Tripwire(str(tmp_path / "quarantine")).arm(confined(workspace), told.put)
    if within == "a session":
        assert watch.check() == []
    for _ in range(2):
        (workspace / ".git/hooks/evil").touch()
        (finding,) = told.get(timeout=30)
        assert finding.done == "moved"
        assert not (workspace / ".git/hooks/evil").exists()
    assert watch.finish() == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_command_that_begins_when_the_thread_is_about_to_wait_is_compared(
    workspace, tmp_path, moment
):
    class Armed(threading.Event):
        def clear(self) -> None:
            if moment == "before":
                arm_second()
            super().clear()
            if moment == "after":
                arm_second()

    def arm_second() -> None:
        if not tripwire._watches and not watches:
            watches.append(tripwire.arm(confined(workspace), told.put))
            armed.set()

    told, armed, watches = queue.Queue(), threading.Event(), []
    tripwire = Tripwire(str(tmp_path / "quarantine"), every=0.001)
    tripwire._armed = Armed()
    tripwire.arm(confined(workspace)).finish()
    assert armed.wait(30)
    for _ in range(2):
        (workspace / ".git/hooks/evil").touch()
        assert told.get(timeout=30)
    watches[0].finish()


def test_a_command_ends_after_all_that_was_found_while_it_ran_is_told(workspace, tmp_path):
    order, began, goes_on = [], threading.Event(), threading.Event()

    def tell(found):
        began.set()
        goes_on.wait(30)
        order.append("told")

    watch = Tripwire(str(tmp_path / "quarantine"), every=None).arm(confined(workspace), tell)
    (workspace / ".git/hooks/evil").touch()
    looking = threading.Thread(target=watch.look)
    ending = threading.Thread(target=lambda: (watch.finish(), order.append("ended")))
    looking.start()
    assert began.wait(30)
    ending.start()
    ending.join(0.2)  # it would have ended by then if it did not wait
    goes_on.set()
    looking.join(30)
    ending.join(30)
    assert order == ["told", "ended"]


def notebook(*sources: str, output: str = "") -> str:
    cells = [{"cell_type": "code", "source": s, "outputs": [output]} for s in sources]
    return json.dumps({"cells": cells})


def test_the_open_notebook_is_told_and_never_put_back(workspace, tripwire):
    path = workspace / "x.ipynb"
    path.write_text(notebook("1"), encoding="utf-8")
    held = confined(workspace, notebook=path)
    watch = tripwire.arm(held)
    path.write_text(notebook("1", output="saved by JupyterLab"), encoding="utf-8")
    assert watch.check() == []
    changed = notebook("1", "evil()")
    path.write_text(changed, encoding="utf-8")
    (finding,) = watch.finish()
    assert finding.path == str(path) and finding.done == "" and "saved meanwhile" in str(finding)
    assert path.read_text(encoding="utf-8") == changed


def test_a_recording_that_goes_on_is_no_news(workspace, tripwire):
    recording = workspace / "x.agent.jsonl"
    recording.write_text("{}\n", encoding="utf-8")
    watch = tripwire.arm(confined(workspace, notebook=workspace / "x.ipynb"))
    with recording.open("a", encoding="utf-8") as file:
        file.write("{}\n")
    assert watch.check() == []
    recording.write_text("other\n", encoding="utf-8")
    assert [finding.path for finding in watch.finish()] == [str(recording)]
    assert recording.read_text(encoding="utf-8") == "other\n"


def test_large_files_are_told_and_not_restored(workspace, tripwire):
    big = workspace / ".git/hooks/big"
    big.write_bytes(b"x" * 300_000)
    watch = tripwire.arm(confined(workspace))
    big.write_bytes(b"y" * 300_000)
    (finding,) = watch.finish()
    assert finding.done == "" and "too large" in str(finding)
    assert big.read_bytes() == b"y" * 300_000


# -- several at once -------------------------------------------------------------------------------


def test_commands_side_by_side_share_one_memory(workspace, tripwire):
    """The second starts after the first has planted its hook, and must not take it for right."""
    first = tripwire.arm(confined(workspace))
    (workspace / ".git/hooks/evil").touch()
    second = tripwire.arm(confined(workspace))
    assert [finding.path for finding in second.finish()] == [f"{workspace}/.git/hooks/evil"]
    assert first.finish() == []
    assert not (workspace / ".git/hooks/evil").exists()


def test_a_session_is_compared_while_it_runs_and_when_it_ends(workspace, tripwire):
    session = tripwire.arm(confined(workspace))
    for _ in range(2):
        (workspace / ".git/hooks/evil").touch()
        assert len(session.check()) == 1
    (workspace / ".git/hooks/evil").touch()
    assert len(session.finish()) == 1


def test_a_later_call_about_a_session_counts_as_its_first(workspace, tripwire):
    session = tripwire.arm(confined(workspace))
    session.check()
    (workspace / ".agent_magics").mkdir()
    for _ in range(2):
        session.enter_call()
        append(workspace / ".git/config", "# evil\n")
        done = {os.path.basename(finding.path): finding.done for finding in session.check()}
        assert done.pop("config") == "restored"
        assert set(done.values()) <= {""}
    assert (workspace / ".agent_magics").exists()
    append(workspace / ".git/config", "# the person\n")
    assert [finding.done for finding in session.finish()] == [""]
    session.enter_call()  # it is over
    assert not tripwire._calls


def test_what_a_person_changes_while_only_a_session_runs_stays_and_is_told(workspace, tripwire):
    """`git push -u` in a terminal, while a server that the model has started goes on."""
    session = tripwire.arm(confined(workspace))
    assert session.check() == []  # its call is over
    subprocess.run(["git", "-C", workspace, "remote", "add", "o", "x"], check=True)
    (workspace / ".agent_magics").mkdir()
    call = tripwire.arm(confined(workspace))
    found = call.finish()
    assert {os.path.basename(finding.path) for finding in found} == {".agent_magics", "config"}
    assert not any(finding.done for finding in found)
    assert all("or by yourself" in str(finding) for finding in found)
    assert session.finish() == []  # told once
    assert "remote" in (workspace / ".git/config").read_text(encoding="utf-8")
    assert (workspace / ".agent_magics").exists()


@pytest.mark.parametrize("seen_by", ["the next call", "a free command", "its own end"])
def test_what_git_would_run_is_put_back_also_between_calls(seen_by, workspace, tripwire):
    session = tripwire.arm(confined(workspace))
    session.check()
    (workspace / ".git/hooks/post-commit").touch()
    append(workspace / ".git/config")
    if seen_by == "its own end":
        found = session.finish()
    else:
        free = seen_by == "a free command"
        found = tripwire.arm(None if free else confined(workspace)).finish()
    assert {finding.done for finding in found} == {"moved", "restored"}
    assert "fsmonitor" not in (workspace / ".git/config").read_text(encoding="utf-8")
    assert session.finish() == []


@pytest.mark.parametrize("count", [1_500, pytest.param(20_500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("begins", ["its call", "a session"])
def test_a_hook_is_found_among_many_files(begins, count, workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    if begins == "a session":
        watch.check()
    for number in range(count):
        (workspace / f".git/hooks/a{number}").touch()
    (workspace / ".git/hooks/pre-commit").touch()
    assert watch.finish()
    assert os.listdir(workspace / ".git/hooks").count("pre-commit") == 0
    assert (workspace / ".git/hooks/pre-push").read_bytes() == b"#!/bin/sh\necho mine\n"
    assert len(os.listdir(workspace / ".git/hooks")) < 100


def test_the_comparison_is_not_slowed_down_by_what_it_finds(workspace, tmp_path):
    told = queue.Queue()
    watch = Tripwire(str(tmp_path / "quarantine")).arm(confined(workspace), told.put)
    watch.check()
    for number in range(2_000):
        with suppress(FileNotFoundError):  # the folder is being exchanged
            (workspace / f".git/hooks/a{number}").touch()
    assert told.get(timeout=30)
    began = time.monotonic()
    while True:
        with suppress(FileNotFoundError):
            (workspace / ".git/hooks/pre-commit").touch()
            break
    while (workspace / ".git/hooks/pre-commit").exists():
        told.get(timeout=60)
    assert time.monotonic() - began < 10  # before, twenty times what the first had taken
    watch.finish()


@contextmanager
def full_disk():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_cannot_be_written_again_is_at_least_taken_away(workspace, tripwire):
    """A command can fill the disk, then change what git reads."""
    config = workspace / ".git/config"
    before = config.read_bytes()
    watch = tripwire.arm(confined(workspace))
    append(config)
    with full_disk():
        (finding,) = watch.finish()
    assert not config.exists()
    assert finding.done == "moved" and "File too large" in str(finding)
    assert before in Path(finding.kept).read_bytes()


@pytest.mark.parametrize("seen_by", ["its call", "a session", "the next command"])
@pytest.mark.parametrize("name", ["config", "hooks"])
def test_what_could_not_be_written_again_is_written_when_it_can_be(
    name, seen_by, workspace, tripwire
):
    protected = workspace / ".git" / name
    before = state_of(workspace / ".git")
    watch = tripwire.arm(confined(workspace))
    if name == "hooks":
        shutil.rmtree(protected)
    protected.write_text("evil", encoding="utf-8") if name == "hooks" else append(protected)
    with full_disk():
        if seen_by == "a session":
            watch.check()
        else:
            watch.look()
        told = [watch.look() for _ in range(2)]
        assert told == [None, None]
        if seen_by == "the next command":
            watch.finish()
            watch = tripwire.arm(confined(workspace))
    found = watch.finish()
    assert any(f.path.startswith(str(protected)) and f.done == "restored" for f in found)
    after = state_of(workspace / ".git")
    assert {path for path in before if not path.endswith(".sample")} <= after.keys()
    assert after["config"] == before["config"]
    assert tripwire.arm(confined(workspace)).finish() == []


def test_what_cannot_be_written_again_is_told_once(workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    (workspace / ".git/config").unlink()
    with full_disk():
        (finding,) = watch.check()
        assert finding.pending and "could not be restored" in str(finding)
        assert watch.check() == watch.check() == []
    assert [finding.done for finding in watch.finish()] == ["restored"]


def test_what_the_person_has_in_a_folder_stays_there_when_it_is_cleared(workspace, tripwire):
    hooks = workspace / ".git/hooks"
    (hooks / "pre-commit").write_bytes(b"x" * 300_000)
    (hooks / "lib/a/b/c/d/e").mkdir(parents=True)
    (hooks / "lib/a/b/c/d/e/tool.py").write_text("mine", encoding="utf-8")
    (hooks / "own.sample").write_text("mine", encoding="utf-8")
    before = state_of(hooks)
    watch = tripwire.arm(confined(workspace))
    for number in range(150):
        (hooks / f"a{number}").touch()
    append(hooks / "pre-push")
    (hooks / "lib/new").touch()
    found = watch.finish()
    assert [each.path for each in found] == [str(hooks), f"{hooks}/lib/new", f"{hooks}/pre-push"]
    assert state_of(hooks) == before
    assert len(os.listdir(found[0].kept)) == 150
    assert tripwire.arm(confined(workspace)).finish() == []


@pytest.mark.parametrize("begins", ["its call", "a session"])
def test_what_can_only_be_renamed_is_renamed_once(begins, workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    if begins == "a session":
        watch.check()
    (workspace / ".git/hooks/post-commit").touch()
    os.truncate(workspace / ".git/hooks/post-commit", put_back.MOST_KEPT + 1)
    found = [finding for _ in range(11) for finding in watch.check()]
    names = [path.name for path in (workspace / ".git/hooks").iterdir()]
    assert [name.count(".quarantined-") for name in names if "post-commit." in name][-1:] == [1]
    assert "post-commit" not in names
    assert [finding.done for finding in found] == ["moved", ""]
    assert "too large to be kept" in str(found[1])


def crowded_settings(workspace: Path, count: int) -> Path:
    settings = workspace / ".agent_magics"
    settings.mkdir()
    for number in range(count):
        (settings / f"m{number:05}").write_text("mine", encoding="utf-8")
    return settings


def test_a_flood_makes_no_change_the_intended_state(workspace, tripwire):
    settings = crowded_settings(workspace, 3)
    watch = tripwire.arm(confined(workspace))
    append(settings / "m00001")
    for number in range(1_500):
        (settings / f"z{number}").touch()
    watch.look()
    assert any("too many files" in str(finding) for finding in watch.finish())
    assert (settings / "m00001").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("change", ["removed", "new"])
def test_what_a_cut_snapshot_does_not_contain_is_left_alone(change, workspace, tripwire):
    settings = crowded_settings(workspace, 1_100)
    before = state_of(settings)
    watch = tripwire.arm(confined(workspace))
    if change == "removed":
        (settings / "m00001").unlink()
    else:
        (settings / "a").touch()
    (finding,) = watch.finish()
    assert finding.change == change and finding.done
    assert state_of(settings) == before


def _fifo(git: Path) -> None:
    (git / "config").unlink()
    os.mkfifo(git / "config")


BETWEEN_CALLS = {
    "commondir": lambda git: (git / "commondir").write_text("../evil", encoding="utf-8"),
    "config.worktree": lambda git: (git / "config.worktree").symlink_to("/dev/zero"),
    "a fifo": _fifo,
    "a settings file of 3 GB": lambda git: os.truncate(git / "config", 3 << 30),
}


@pytest.mark.parametrize("plant", BETWEEN_CALLS.values(), ids=BETWEEN_CALLS)
def test_what_leads_git_elsewhere_or_holds_it_up_is_put_back_between_calls(
    plant, workspace, tripwire
):
    session = tripwire.arm(confined(workspace))
    session.check()
    before = (workspace / ".git/config").read_bytes()
    plant(workspace / ".git")
    (finding,) = session.finish()
    assert finding.done in ("moved", "restored")
    assert (workspace / ".git/config").read_bytes() == before
    assert not (workspace / ".git/commondir").exists()
    assert not os.path.lexists(workspace / ".git/config.worktree")


def test_between_commands_everything_is_the_persons(workspace, tripwire):
    tripwire.arm(confined(workspace)).finish()
    (workspace / ".git/hooks/mine").touch()
    append(workspace / ".git/config")
    assert tripwire.arm(confined(workspace)).finish() == []
    assert (workspace / ".git/hooks/mine").exists()


def test_what_the_kernel_holds_for_all_that_run_is_the_persons_to_change(workspace, tripwire):
    """In tier 2 what is there is mounted read-only; a change can only come from outside."""
    watch = tripwire.arm(confined(workspace, tier=2))
    append(workspace / ".git/config")  # the person, in a terminal
    (workspace / ".agent_magics").mkdir()  # nothing is mounted over what was not there
    assert [finding.path for finding in watch.finish()] == [f"{workspace}/.agent_magics"]
    assert "fsmonitor" in (workspace / ".git/config").read_text(encoding="utf-8")


def test_what_the_person_replaces_is_held_no_more_and_compared(workspace, tripwire):
    """To replace a file ends the mounts over it; then the command can write it."""
    watch = tripwire.arm(confined(workspace, tier=2))
    config, new = workspace / ".git/config", workspace / "config.new"
    new.write_text(config.read_text(encoding="utf-8") + "[user]\n\tname = p\n", encoding="utf-8")
    new.rename(config)  # as git does, in a terminal
    [told] = watch.check()
    assert told.path == str(config) and not told.done
    append(config)  # the command
    [found] = watch.finish()
    assert found.path == str(config) and found.done
    text = config.read_text(encoding="utf-8")
    assert "name = p" in text and "fsmonitor" not in text


def test_a_file_that_is_replaced_twice_has_another_number(workspace, tripwire):
    """Some file systems give the number of a file that is gone to the next one."""
    watch = tripwire.arm(confined(workspace, tier=2))
    config, new = workspace / ".git/config", workspace / "config.new"
    for name in "ab":
        text = f"{config.read_text(encoding='utf-8')}[user]\n\tname = {name}\n"
        new.write_text(text, encoding="utf-8")
        new.rename(config)
    append(config)  # the command
    [found] = watch.finish()
    assert found.path == str(config) and found.done
    assert "fsmonitor" not in config.read_text(encoding="utf-8")


def test_a_folder_that_the_person_makes_anew_is_held_no_more(workspace, tripwire):
    """Some file systems give it the number of the old one."""
    watch = tripwire.arm(confined(workspace, tier=2))
    hooks = workspace / ".git/hooks"
    shutil.rmtree(hooks)
    hooks.mkdir()
    (hooks / "post-commit").touch()  # the command: the mount ended with the old folder
    assert (f"{hooks}/post-commit", "moved") in {(f.path, f.done) for f in watch.finish()}
    assert os.listdir(hooks) == []


@pytest.mark.parametrize("first", ["has ended", "runs"])
def test_all_above_a_place_counts_that_a_running_command_may_write(first, workspace, tripwire):
    within = tripwire.arm(confined(workspace))
    if first == "has ended":
        within.finish()
    watch = tripwire.arm(confined(workspace.parent))
    workspace.rename(workspace.parent / "evil")
    workspace.symlink_to("evil")
    hooked(workspace / ".git")
    assert (str(workspace), "moved") in {(f.path, f.done) for f in watch.finish()}
    assert not workspace.is_symlink()
    within.finish()


def test_few_files_are_kept_open_and_none_for_longer_than_they_count(
    workspace, tripwire, monkeypatch
):
    monkeypatch.setattr(f"{Tripwire.__module__}._MOST_PINS", 1)
    for name in "abc":
        subprocess.run(["git", "init", "-q", workspace / name], check=True)
    with none_left():
        watch = tripwire.arm(confined(workspace, tier=2))
        assert len(tripwire._pins) == 1
        watch.finish()


def test_a_session_that_clones_is_not_disturbed_by_a_call_beside_it(workspace, tripwire):
    session = tripwire.arm(confined(workspace, tier=2))
    session.check()
    subprocess.run(["git", "init", "-q", workspace / "made"], check=True)
    call = tripwire.arm(confined(workspace, tier=2))
    config = workspace / "made/.git/config"
    append(config, '[branch "main"]\n\tmerge = refs/heads/main\n')
    assert not any(finding.done for finding in call.finish())
    assert "merge" in config.read_text(encoding="utf-8")
    session.finish()


def test_a_workspace_that_is_a_repositorys_own_folder_is_no_approval(workspace, tripwire):
    watch = tripwire.arm(confined(workspace / ".git"))
    (workspace / ".git/hooks/planted").touch()
    assert [finding.done for finding in watch.finish()] == ["moved"]


def test_what_came_after_a_command_began_is_not_held_for_it(workspace, tripwire):
    elsewhere = workspace.parent / "elsewhere"
    tripwire.arm(confined(elsewhere, tier=2))
    earlier = tripwire.arm(confined(workspace, tier=2))
    append(workspace / ".git/config")  # the person; who runs elsewhere cannot
    subprocess.run(["git", "init", "-q", workspace / "later"], check=True)  # the person
    later = tripwire.arm(confined(workspace, tier=2))
    planted = workspace / "later/.git/hooks/post-commit"
    planted.write_text("evil", encoding="utf-8")  # the earlier command
    assert [finding.path for finding in later.finish()] == [str(planted)]
    assert not planted.exists()
    assert earlier.finish() == []


def test_one_command_of_tier_1_among_others_is_enough_to_look(workspace, tripwire):
    watches = [tripwire.arm(confined(workspace, tier=tier)) for tier in (2, 1)]
    append(workspace / ".git/config")
    assert [len(watch.finish()) for watch in watches] == [1, 0]


def test_a_command_that_was_let_out_may_change_them(workspace, tripwire):
    session = tripwire.arm(confined(workspace))
    free = tripwire.arm(None)
    append(workspace / ".git/config")
    assert free.finish() == []
    [told] = session.finish()
    assert told.path == f"{workspace}/.git/config" and not told.done
    assert "fsmonitor" in (workspace / ".git/config").read_text(encoding="utf-8")


@pytest.mark.parametrize("seen_by", ["a look", "its end"])
def test_a_command_that_was_let_out_may_change_them_beside_a_session(seen_by, workspace, tripwire):
    told = []
    session = tripwire.arm(confined(workspace), told.extend)
    session.check()
    free = tripwire.arm(None)
    append(workspace / ".git/config")
    (workspace / ".git/hooks/pre-commit").touch()
    (workspace / ".git/info").rename(workspace / ".git/old")
    found = session.finish() if seen_by == "its end" else (session.look(), told)[1]
    names = {os.path.basename(finding.path) for finding in found}
    assert names == {"config", "pre-commit", "info"}
    assert all(not f.done and "that you let write there" in str(f) for f in found)
    assert free.finish() == session.finish() == []
    assert "fsmonitor" in (workspace / ".git/config").read_text(encoding="utf-8")
    assert (workspace / ".git/hooks/pre-commit").exists()


def test_what_was_let_out_and_goes_on_as_a_session_changes_no_hooks_later(workspace, tripwire):
    session = tripwire.arm(confined(workspace))
    session.check()
    free = tripwire.arm(None)
    (workspace / ".git/hooks/installed").touch()
    free.check()
    assert [finding.done for finding in session.check()] == [""]
    (workspace / ".git/hooks/later").touch()
    assert [finding.done for finding in session.check()] == ["moved"]
    assert (workspace / ".git/hooks/installed").exists()
    assert free.finish() == session.finish() == []


def test_a_command_may_change_what_the_person_let_it_write_beside_a_session(workspace, tripwire):
    session = tripwire.arm(confined(workspace))
    session.check()
    config = workspace / ".git/config"
    call = tripwire.arm(confined(workspace, extra_writable=[config]))
    append(config)
    (workspace / ".git/hooks/evil").touch()
    assert [finding.path for finding in call.finish()] == [f"{workspace}/.git/hooks/evil"]
    append(config, "# another command\n")  # what it wrote is what is restored from now on
    append(workspace / ".git/hooks/pre-push")
    assert {finding.done for finding in session.finish()} == {"", "restored"}
    assert "fsmonitor" in config.read_text(encoding="utf-8")


def write_rule(workspace: Path) -> Path:
    book = RuleBook(workspace)
    book.add(ProposedRule("command", ("make", "test")), "make test")
    return book.project_file


def write_note(workspace: Path) -> Path:
    notes = note_folders(workspace)["project"]
    notes.write("build", "use make -j4")
    return notes.path_of("build")


def write_server(workspace: Path) -> Path:
    servers = ProjectServers(workspace)
    McpFile(servers.toml_file, servers).add("s", {"command": "true"})
    return servers.toml_file


def write_hook(workspace: Path) -> Path:
    text = "*** Begin Patch\n*** Add File: .git/hooks/new\n+x\n*** End Patch\n"
    plan_patch(parse_patch(text), lambda name: workspace / name).apply()
    return workspace / ".git/hooks/new"


@pytest.fixture
def guarding(monkeypatch, tripwire):
    monkeypatch.setattr(locks, "_guard", tripwire.writing)


@pytest.mark.parametrize("tier", [1, 2])
@pytest.mark.parametrize("write", [write_rule, write_note, write_server, write_hook])
def test_what_the_kernel_itself_writes_stays(write, tier, workspace, tripwire, guarding):
    watch = tripwire.arm(confined(workspace, tier=tier))
    written = write(workspace)
    (workspace / ".git/commondir").touch()
    assert [finding.path for finding in watch.finish()] == [f"{workspace}/.git/commondir"]
    assert written.exists()


def test_nothing_is_compared_before_the_kernel_has_written_all(workspace, tripwire, guarding):
    watch = tripwire.arm(confined(workspace))
    looking = threading.Thread(target=watch.look)
    with locks.own_write(workspace / ".git/hooks/one", workspace / ".git/hooks/two"):
        (workspace / ".git/hooks/one").touch()
        looking.start()
        looking.join(0.2)  # it would have ended by then if it did not wait
        with locks.own_write(workspace / ".git/hooks/two"):
            (workspace / ".git/hooks/two").touch()
    looking.join(30)
    assert watch.finish() == []
    assert (workspace / ".git/hooks/one").exists() and (workspace / ".git/hooks/two").exists()


def test_what_the_kernel_writes_makes_nothing_else_intended(workspace, tripwire, guarding):
    watch = tripwire.arm(confined(workspace))
    (workspace / ".git/hooks/evil").touch()
    with locks.own_write(workspace / ".git/hooks/mine"):
        (workspace / ".git/hooks/mine").touch()
    (finding,) = watch.finish()
    assert (finding.path, finding.done) == (f"{workspace}/.git/hooks/evil", "moved")
    assert (workspace / ".git/hooks/mine").exists()


def test_nothing_waits_for_the_kernels_own_writes_that_wait(workspace, tripwire, guarding):
    """A command may hold the lock of the folder that is to be written."""
    rules = RuleBook(workspace)
    make_project_folder(rules.project_file.parent)
    folder = os.open(rules.project_file.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    watch = tripwire.arm(confined(workspace))
    waits, sleep = threading.Event(), locks.time.sleep

    def note(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks.time, "sleep", note)
        writing = threading.Thread(
            target=rules.add, args=(ProposedRule("command", ("make", "test")), "")
        )
        writing.start()
        assert waits.wait(30)
        (workspace / ".git/hooks/evil").touch()
        assert [finding.done for finding in watch.check()] == ["moved"]
        os.close(folder)
        writing.join(30)
    assert watch.finish() == [] and len(RuleBook(workspace).project.rules) == 1


# -- errors and forks ------------------------------------------------------------------------------


def test_a_command_that_could_not_be_armed_leaves_nothing(workspace, tripwire):
    without_folders = Confinement(1, (), protected=(f"{workspace}/.git/config",))
    with pytest.raises(ValueError, match="not enough values"):
        tripwire.arm(without_folders)
    session = tripwire.arm(confined(workspace))
    session.check()
    (workspace / ".agent_magics").mkdir()  # the person, between calls
    with pytest.raises(ValueError, match="not enough values"):
        tripwire.arm(without_folders)
    assert [finding.done for finding in session.finish()] == [""]
    assert not any(place.holders for place in tripwire._places.values())


def test_a_forked_child_has_a_record_of_its_own(workspace):
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with shared_tripwire()._lock, surveying._lock:
            held.set()
            done.wait(60)

    def arm_in_child() -> int:
        watch = shared_tripwire().arm(confined(workspace))
        (workspace / ".git/hooks/evil").touch()
        return len(watch.finish())

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        assert held.wait(30)
        assert forks.call(arm_in_child, limit=30) == 1
    finally:
        done.set()
        holding.join(30)


def test_many_threads_at_once(workspace, tripwire):
    found, errors = [], []

    def run(number: int) -> None:
        try:
            watch = tripwire.arm(confined(workspace))
            (workspace / f".git/hooks/evil{number}").touch()
            found.extend(watch.finish())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len({finding.path for finding in found}) == 16
    assert not list((workspace / ".git/hooks").glob("evil*"))


# -- against a process that still runs -------------------------------------------------------------


def test_restoring_never_writes_through_a_link(workspace, tripwire, tmp_path):
    """The folder is swapped for a link to the outside before the comparison."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "pre-push").write_text("precious", encoding="utf-8")
    watch = tripwire.arm(confined(workspace))
    shutil.rmtree(workspace / ".git/hooks")
    (workspace / ".git/hooks").symlink_to(outside)
    assert watch.finish()
    assert state_of(outside) == {"pre-push": ((outside / "pre-push").stat().st_mode, b"precious")}
    assert not (workspace / ".git/hooks").is_symlink()
    assert (workspace / ".git/hooks/pre-push").read_text(encoding="utf-8").endswith("mine\n")


def test_a_fifo_in_the_way_does_not_block(workspace, tripwire):
    watch = tripwire.arm(confined(workspace))
    (workspace / ".git/config").unlink()
    os.mkfifo(workspace / ".git/config")
    (finding,) = watch.finish()
    assert finding.done == "restored"
    assert (workspace / ".git/config").is_file()
