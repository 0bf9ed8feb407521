"""Paths are judged by what they lead to."""

import os
import re
import sys
from pathlib import Path

import pytest

import agent_magics
from agent_magics.files.beneath import is_below
from agent_magics.files.paths import (
    is_denied_read,
    is_file,
    is_folder,
    nearest_names,
    open_notebook,
    read_judge,
    resolve_path,
    shown_path,
    typed_path,
    write_kind,
)
from agent_magics.files.secret_places import REASON_OF
from agent_magics.protocol.errors import RespondToModel


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    for name in (*os.environ,):
        if name.startswith(("JUPYTER_", "XDG_")) or name in ("KUBECONFIG", "NETRC"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


def test_relative_paths_start_at_cwd(tmp_path):
    assert resolve_path("a/../b.txt", tmp_path) == tmp_path / "b.txt"
    assert resolve_path("/etc/../etc/hosts", tmp_path) == Path("/etc/hosts").resolve()


def test_a_name_too_long_for_the_disk_leads_nowhere(tmp_path):
    (tmp_path / "a").touch()
    assert (is_file(tmp_path / "a"), is_folder(tmp_path / "a")) == (True, False)
    assert (is_file(tmp_path), is_folder(tmp_path)) == (False, True)
    assert not is_file(tmp_path / ("a" * 300)) and not is_folder(tmp_path / ("a" * 300))


def test_tilde_is_the_home(tmp_path):
    assert resolve_path("~/x", tmp_path) == tmp_path / "home" / "x"


def test_the_home_of_nobody_is_a_name_like_any_other(tmp_path):
    assert typed_path("~nobody-here/x") == Path("~nobody-here/x")
    assert typed_path("~/x") == tmp_path / "home" / "x"


def test_no_path_is_expanded_where_that_raises():
    package = Path(agent_magics.__file__).parent
    raising = re.compile(r"(?<!os\.path)\.expanduser\(")  # `Path.expanduser`
    assert raising.search("Path('~').expanduser()") and not raising.search(
        "os.path.expanduser('~')"
    )
    found = [p for p in package.rglob("*.py") if raising.search(p.read_text(encoding="utf-8"))]
    assert not found, "typed_path does not raise where there is no such user"


def test_dots_after_a_link_are_those_of_its_target(tmp_path):
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/deep")
    assert resolve_path("link/../x", tmp_path) == tmp_path / "far" / "x"


@pytest.mark.parametrize("path", ["", "a\0b", "a\ud800b"])
def test_a_path_no_file_can_have_is_refused(path, tmp_path):
    with pytest.raises(RespondToModel):
        resolve_path(path, tmp_path)


def test_shown_path_is_relative_inside_and_one_line(tmp_path):
    assert shown_path(tmp_path / "a" / "b", tmp_path) == "a/b"
    assert shown_path(Path("/etc/hosts"), tmp_path) == "/etc/hosts"
    assert shown_path(f"{tmp_path}x", tmp_path) == f"{tmp_path}x"
    assert shown_path(tmp_path, tmp_path) == shown_path("/", Path("/")) == "."
    assert shown_path("/etc//hosts", Path("/")) == "etc/hosts"
    assert shown_path(tmp_path / "a\nb\x1b[1m", tmp_path) == "a\\nb\\x1b[1m"


DENIED = [
    "~/.ssh/id_ed25519",
    "~/.ssh",
    "~/.SSH/config",
    "~/.s\u200csh/config",
    "~/.aws/credentials",
    "~/.config/gcloud/application_default_credentials.json",
    "~/.azure/token",
    "~/.kube/config",
    "~/.docker/config.json",
    "~/.netrc",
    "~/.pypirc",
    "~/.npmrc",
    "~/.git-credentials",
    "~/.gnupg/secring.gpg",
    "~/.jupyter/jupyter_server_config.json",
    "~/.local/share/jupyter/runtime/kernel-1.json",
    "~/Library/Jupyter/runtime/x",
    "~/.mozilla/firefox/p/logins.json",
    "~/.config/chromium/Default/Cookies",
    "~/.config/agent-magics/config.toml",
    "/root/.ssh/id_rsa",
    "/etc/shadow",
    "/proc/self/environ",
    "/proc/1/mem",
    "/proc/1/task/1/environ",
    "/proc/kcore",
    "/tmp/kernel-4d1c.json",
    "/srv/app/.env",
    "/srv/app/.env.local",
    "/srv/app/.ENV",
    "/backup/id_rsa",
]
ALLOWED = [
    "~/notes.txt",
    "~/.bashrc",
    "~/.config/nvim/init.lua",
    "~/.docker/other.json",
    "~/.local/share/jupyter/kernels/python3/kernel.json",
    "/srv/app/.env.example",
    "/srv/app/.env.template",
    "/srv/app/.env.sample",
    "/srv/app/environment.py",
    "/srv/app/id_rsa.pub",
    "/srv/x.ssh/file",
    "/srv/.sshrc",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/etc/hosts",
]


@pytest.mark.parametrize("path", DENIED)
def test_protected(path):
    assert is_denied_read(Path(os.path.expanduser(path)))


@pytest.mark.parametrize("path", ALLOWED)
def test_not_protected(path):
    assert is_denied_read(Path(os.path.expanduser(path))) == ""


def test_each_place_of_the_table_is_protected_with_what_is_below_and_nothing_else():
    judge = read_judge()
    for place, why in REASON_OF.items():
        for path in (f"/srv/{place}", f"/srv/{place}/x.txt", f"/{place.upper()}/x/y"):
            assert judge(path) == why, path
        for path in (f"/srv/x{place}", f"/srv/{place}x/y.txt"):
            assert judge(path) == "", path


def test_a_virtual_environment_named_env_is_not_protected(tmp_path):
    (tmp_path / ".env").mkdir()
    assert is_denied_read(tmp_path / ".env") == ""
    assert is_denied_read(tmp_path / ".env" / "pyvenv.cfg") == ""


@pytest.mark.parametrize("variable", ["JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"])
def test_jupyter_folders_that_were_moved(variable, tmp_path, monkeypatch):
    assert is_denied_read(tmp_path / "moved" / "x") == ""
    monkeypatch.setenv(variable, str(tmp_path / "moved"))
    assert is_denied_read(tmp_path / "moved" / "x")
    assert is_denied_read(tmp_path / "moved")
    assert is_denied_read(tmp_path / "moved2") == ""


def test_config_home_that_was_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "cfg"))
    assert is_denied_read(tmp_path / "cfg" / "gcloud" / "x")
    assert is_denied_read(tmp_path / "cfg" / "agent-magics" / "config.toml")
    assert is_denied_read(tmp_path / "cfg" / "nvim" / "init.lua") == ""


def test_a_link_is_judged_by_its_target(tmp_path):
    secret = tmp_path / "home" / ".aws"
    secret.mkdir()
    (secret / "credentials").write_text("key", encoding="utf-8")
    (tmp_path / "harmless.txt").symlink_to(secret / "credentials")
    (tmp_path / "folder").symlink_to(secret)
    (tmp_path / "chain").symlink_to("folder")
    assert is_denied_read(tmp_path / "harmless.txt") == "cloud credentials"
    assert is_denied_read(tmp_path / "chain" / "credentials") == "cloud credentials"


def test_a_protected_name_that_leads_elsewhere_stays_protected(tmp_path):
    (tmp_path / "plain.txt").write_text("KEY=1", encoding="utf-8")
    (tmp_path / ".env").symlink_to("plain.txt")
    assert is_denied_read(tmp_path / ".env")


def test_keys_that_stand_elsewhere_behind_a_link_in_the_home(tmp_path):
    (tmp_path / "vault").mkdir()
    (tmp_path / "home" / ".ssh").symlink_to(tmp_path / "vault")
    assert is_denied_read(tmp_path / "vault" / "work_key") == "SSH keys"


def test_writing_inside_the_roots(tmp_path):
    (tmp_path / "w").mkdir()
    assert write_kind(tmp_path / "w" / "new" / "a.py", [tmp_path / "w"], False) == (True, "")
    assert not write_kind(tmp_path / "w" / "a.py", [tmp_path / "w"], True)[0]
    assert not write_kind(tmp_path / "w2" / "a.py", [tmp_path / "w"], False)[0]
    assert write_kind(tmp_path / "w2" / "a.py", [tmp_path / "w", tmp_path / "w2"], False)[0]
    assert write_kind(Path("/opt/a.py"), [Path("/")], False) == (False, "outside the workspace")


def test_writing_through_links_is_judged_by_where_it_ends(tmp_path):
    work = tmp_path / "w"
    (work / "real").mkdir(parents=True)
    (work / "out").symlink_to(tmp_path)
    (work / "in").symlink_to("real")
    (work / "dangling").symlink_to(tmp_path / "not-yet")
    assert not write_kind(work / "out" / "new" / "a.py", [work], False)[0]
    assert not write_kind(work / "dangling", [work], False)[0]
    assert not write_kind(work / ".." / "a.py", [work], False)[0]
    assert write_kind(work / "in" / "a.py", [work], False)[0]


def test_a_root_may_be_a_link(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "alias").symlink_to("w")
    assert write_kind(tmp_path / "w" / "a", [tmp_path / "alias"], False)[0]
    assert write_kind(tmp_path / "alias" / "a", [tmp_path / "w"], False)[0]


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "sub/.git/hooks/pre-commit",
        ".git",
        ".GIT/config",
        ".g\u200cit/config",
        ".agent_magics/config.toml",
        ".env",
        ".ssh/authorized_keys",
    ],
)
def test_protected_places_inside_a_root(path, tmp_path):
    allowed, reason = write_kind(tmp_path / path, [tmp_path], False)
    assert not allowed
    assert reason.startswith("protected")


def test_a_link_to_gits_folder_is_protected_too(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "innocent").symlink_to(".git")
    assert not write_kind(tmp_path / "innocent" / "config", [tmp_path], False)[0]
    assert write_kind(tmp_path / ".github" / "x.yml", [tmp_path], False) == (True, "")
    assert write_kind(tmp_path / ".gitignore", [tmp_path], False) == (True, "")


def test_nearest_names(tmp_path):
    for name in ("settings.py", "setup.py", "README.md", "other.bin"):
        (tmp_path / name).touch()
    assert nearest_names(tmp_path / "setings.py")[0] == "settings.py"
    assert nearest_names(tmp_path / "readme.md") == ["README.md"]
    assert nearest_names(tmp_path / "zzzzzz") == []
    assert nearest_names(tmp_path / "no" / "such" / "folder") == []


def test_a_second_name_of_a_protected_file_is_protected(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_x").write_text("key", encoding="utf-8")
    os.link(tmp_path / ".ssh/id_x", tmp_path / "notes.txt")
    (tmp_path / "plain").touch()
    os.link(tmp_path / "plain", tmp_path / "twice")
    assert "second name" in is_denied_read(tmp_path / "notes.txt")
    assert "second name" in write_kind(tmp_path / "notes.txt", [tmp_path], False)[1]
    assert is_denied_read(tmp_path / "twice") == ""


@pytest.mark.parametrize(
    ("path", "protected"),
    [
        ("/proc/self/environ", True),
        ("/proc/1/mem", True),
        ("/proc/kcore", True),
        ("/proc/sysrq-trigger", True),
        ("/proc/cpuinfo", False),
        ("/proc/meminfo", False),
        ("/sys/kernel/security", True),
        ("/sys/fs/cgroup/memory.max", False),
        ("/dev/mem", True),
        ("/dev/shm/x", True),
        ("/device", False),
    ],
)
def test_what_the_system_only_shows_as_files(path, protected):
    assert bool(read_judge()(path)) is protected


def test_this_kernels_own_programs_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    allowed, why = write_kind(tmp_path / ".venv/lib/x.pth", [tmp_path], False)
    assert not allowed and "this kernel's own programs" in why
    assert write_kind(tmp_path / "venv2/lib/x.pth", [tmp_path], False) == (True, "")


def test_the_open_notebook_is_named_by_jupyter_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert open_notebook() is None
    monkeypatch.setenv("JPY_SESSION_NAME", "folder/x.ipynb")
    assert open_notebook() == tmp_path / "x.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", "/elsewhere/x.ipynb")
    assert str(open_notebook()) == "/elsewhere/x.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", "2b5c-console")
    assert open_notebook() is None


@pytest.mark.parametrize(
    ("path", "folders", "expected"),
    [
        ("/a", ("/a",), True),
        ("/a/b", ("/a",), True),
        ("/ab", ("/a",), False),
        ("/a", ("/",), True),
        ("/", ("/",), True),
        ("/a", (), False),
    ],
)
def test_what_is_below_a_folder(path, folders, expected):
    assert is_below(path, folders) is expected
