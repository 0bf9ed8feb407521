"""What a command is confined to, worked out from the settings and from what is there."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_places import git_parts
from agent_magics.exec.sandbox.plan import build_confinement
from agent_magics.files import survey as surveying
from agent_magics.files.beneath import closing_descriptor
from agent_magics.files.paths import read_judge
from agent_magics.files.survey import survey

GIT = ("config", "config.worktree", "hooks", "info", "modules")


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path, monkeypatch):
    """A home that these tests may fill, and no variable that names another place."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def confine(workspace: Path, **options) -> Confinement:
    settings = {"tier": 1, "policy": "workspace-write", "roots": [workspace], "cwd": workspace}
    return build_confinement(**{**settings, "tmp": workspace.parent / "tmp", **options})


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def git(folder: Path, *words: str) -> None:
    quiet = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(folder), *words]
    subprocess.run(quiet, check=True, capture_output=True)


# -- writable --------------------------------------------------------------------------------------


def test_writable_are_the_roots_and_the_private_folder(workspace, tmp_path):
    more = tmp_path / "more"
    more.mkdir()
    found = confine(workspace, roots=[workspace, more, workspace])
    assert found.writable == (str(workspace), str(more), str(tmp_path / "tmp"))
    assert found.tier == 1 and found.network is False


def test_read_only_leaves_the_private_folder(workspace, tmp_path):
    found = confine(workspace, policy="read-only")
    assert found.writable == (str(tmp_path / "tmp"),)
    assert found.protected == ()


def test_what_was_approved_is_added_under_either_policy(workspace, tmp_path):
    for policy in ("read-only", "workspace-write"):
        found = confine(workspace, policy=policy, extra_writable=[tmp_path / "out.txt"])
        assert str(tmp_path / "out.txt") in found.writable


def test_paths_are_without_links(workspace, tmp_path):
    (tmp_path / "link").symlink_to(workspace)
    found = confine(tmp_path / "link")
    assert found.writable[0] == str(workspace)


# -- protected -------------------------------------------------------------------------------------


# However a tree looks: a folder that holds a repository and a secret, and what stands in the way.
DEEP = "/".join(f"l{number}" for number in range(60))
PLACES = {
    "at the top": ".",
    "on the fifth level": "1/2/3/4",
    "on the sixtieth level": DEEP,
    "among what tools make": "node_modules/x/site-packages/__pycache__/.tox",
    "inside a repository's own folder": ".git/x",
    "behind three hundred others": "zz",
    "in a folder of six thousand files": "files",
}


@pytest.mark.soak
@pytest.mark.parametrize("where", PLACES)
def test_repositories_and_secrets_are_found_wherever_they_are(workspace, where):
    if "hundred" in where:
        for number in range(300):
            (workspace / f"a{number}").mkdir()
    folder = workspace / PLACES[where]
    folder.mkdir(parents=True, exist_ok=True)
    if "thousand" in where:
        for number in range(6000):
            (folder / f"{number}").touch()
    confine(workspace)  # so that all of this is known when they come
    git(folder, "init", "-q")
    put(folder / ".env", "A=1")
    found = confine(workspace)
    assert {os.path.normpath(f"{folder}/.git/{part}") for part in GIT} <= set(found.protected)
    assert str(folder / ".env") in found.hidden


def test_a_folder_whose_time_was_set_back_is_looked_into_again(workspace):
    folder = workspace / "sub"
    folder.mkdir()
    time.sleep(0.1)  # the clock of the file system has moved on: what is found now is kept
    confine(workspace)
    then = folder.stat()
    git(folder, "init", "-q")
    os.utime(folder, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert f"{folder}/.git/hooks" in confine(workspace).protected


def test_what_is_not_looked_through_is_named(workspace, monkeypatch):
    monkeypatch.setattr(surveying, "_LONGEST", 0.0)
    assert (
        "too large to be looked through"
        in survey((str(workspace),), read_judge()).missed[str(workspace)]
    )


def test_a_path_that_is_too_long_is_named(workspace):
    with ExitStack() as opened:
        folder = opened.enter_context(closing_descriptor(os.open(workspace, os.O_RDONLY)))
        for _ in range(30):
            os.mkdir("x" * 200, dir_fd=folder)
            deeper = os.open("x" * 200, os.O_RDONLY, dir_fd=folder)
            folder = opened.enter_context(closing_descriptor(deeper))
    (why,) = survey((str(workspace),), read_judge()).missed.values()
    assert why == "file name too long"


def test_what_a_commit_writes_is_not_protected(workspace):
    git(workspace, "init", "-q")
    put(workspace / "a")
    git(workspace, "add", "a")
    before = confine(workspace).protected
    git(workspace, "commit", "-qm", "x")
    written = (".git/HEAD", ".git/index", ".git/refs", ".git/objects", ".git/logs")
    assert not any(
        f"{workspace}/{name}".startswith(path) or path.startswith(f"{workspace}/{name}")
        for name in written
        for path in before
    )


def test_a_worktree_protects_the_folder_it_points_to(workspace):
    main = workspace / "main"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", "../tree")
    protected = confine(workspace).protected
    assert f"{workspace}/tree/.git" in protected  # else it could point to other hooks
    assert f"{main}/.git/worktrees/tree/commondir" in protected
    assert f"{main}/.git/worktrees/tree/hooks" in protected


def test_a_git_folder_behind_a_link_is_protected_where_it_is(workspace):
    real = workspace / "elsewhere"
    git(workspace, "init", "-q", "--separate-git-dir", str(real))
    (workspace / ".git").unlink()
    (workspace / ".git").symlink_to("elsewhere")
    assert f"{real}/hooks" in confine(workspace).protected


def test_a_bare_repository_inside_the_workspace(workspace):
    git(workspace, "init", "-q", "--bare", "store.git")
    assert f"{workspace}/store.git/hooks" in confine(workspace).protected


def test_a_dot_git_that_points_nowhere_is_itself_protected(workspace):
    put(workspace / ".git", "gitdir: \0nonsense")
    assert git_parts(str(workspace / ".git"))[0] == str(workspace / ".git")
    os.mkfifo(workspace / "fifo")
    assert git_parts(str(workspace / "fifo")) == [str(workspace / "fifo")]


def test_a_name_that_is_git_without_case(workspace):
    (workspace / ".GIT").mkdir()
    assert f"{workspace}/.GIT/hooks" in confine(workspace).protected


def test_settings_of_the_project_are_protected_also_before_they_exist(workspace):
    assert f"{workspace}/.agent_magics" in confine(workspace).protected


def test_the_open_notebook_and_its_recording(workspace):
    found = confine(workspace, notebook=workspace / "x.ipynb").protected
    assert {f"{workspace}/x.ipynb", f"{workspace}/x.agent.jsonl"} <= set(found)
    outside = confine(workspace, notebook=workspace.parent / "x.ipynb").protected
    assert not any(path.endswith(".ipynb") for path in outside)


def test_the_kernels_own_environment_inside_the_workspace(workspace, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(workspace / ".venv"))
    assert f"{workspace}/.venv" in confine(workspace).protected
    # Opened as the workspace itself, it stays one; what the kernel imports is still protected.
    itself = confine(workspace / ".venv").protected
    assert f"{workspace}/.venv" not in itself and f"{workspace}/.venv/lib" in itself


@pytest.mark.soak
def test_the_package_itself_where_the_workspace_holds_it(workspace):
    package = Path(build_confinement.__code__.co_filename).parents[2]
    assert str(package) in confine(workspace, roots=[package.parent]).protected


@pytest.mark.soak
def test_a_home_as_the_workspace_keeps_its_start_files(a_home_of_its_own, workspace):
    found = confine(a_home_of_its_own)
    home = str(a_home_of_its_own)
    for part in (".bashrc", ".ipython/profile_default/startup", ".local/lib", ".config/autostart"):
        assert f"{home}/{part}" in found.protected
    for part in (".config/agent-magics", ".local/state/agent-magics/trusted-mcp"):
        assert f"{home}/{part}" in found.protected, "what is written there starts programs"
    assert f"{home}/.gitignore" not in found.protected
    assert not any(path.startswith(f"{home}/") for path in confine(workspace).protected)


# What runs with the next shell, editor, debugger, kernel or mail, in the words of those programs.
RUN_LATER = [
    *(".bash_completion", ".local/share/bash-completion/completions/git", ".zlogout"),
    *(".oh-my-zsh/custom/x.zsh", ".cargo/env", ".nvm/nvm.sh", ".pyenv/shims/python"),
    ".rvm/scripts/x",
    *(".asdf/asdf.sh", ".rbenv/shims/ruby", ".sdkman/bin/sdkman-init.sh", ".poetry/env"),
    *(".config/fish/conf.d/x.fish", ".config/nushell/config.nu", ".config/powershell/profile.ps1"),
    *(".config/direnv/direnvrc", ".config/jupyter/jupyter_config.py", ".config/nvim/init.lua"),
    *(".config/git/hooks/x", ".gitconfig", ".Renviron", ".Rprofile", ".julia/config/startup.jl"),
    *(".gdbinit", ".lldbinit", ".psqlrc", ".screenrc", ".config/plasma-workspace/env/x.sh"),
    *(".aws/config", ".kube/config", ".docker/config.json", ".npmrc", ".config/uv/uv.toml"),
    *(".sqliterc", ".duckdbrc", ".emacs.d/init.el", ".config/emacs/init.el", ".pylintrc"),
    *(".ipython/profile_default/ipython_config.json", ".jupyter/jupyter_nbconvert_config.py"),
    *(".forward", ".procmailrc", ".rhosts", ".ssh/rc", ".local/lib/python3/usercustomize.py"),
]  # fmt: skip


@pytest.mark.parametrize("place", RUN_LATER)
def test_a_home_as_the_workspace_keeps_what_its_start_files_load(a_home_of_its_own, place):
    path = a_home_of_its_own / place
    assert any(path.is_relative_to(kept) for kept in confine(a_home_of_its_own).protected)


def test_a_home_as_the_workspace_keeps_the_folders_of_its_programs(a_home_of_its_own, monkeypatch):
    programs = a_home_of_its_own / "tools/bin"
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{programs}:tools:{a_home_of_its_own}")
    kept = confine(a_home_of_its_own).protected
    assert str(programs) in kept and str(a_home_of_its_own) not in kept
    workspace = a_home_of_its_own / "tools"
    workspace.mkdir()
    assert str(programs) not in confine(workspace).protected, "a project may put its own there"


def test_a_protected_path_is_writable_once_it_was_approved_by_name(workspace):
    git(workspace, "init", "-q")
    config, hooks = f"{workspace}/.git/config", f"{workspace}/.git/hooks"
    by_name = confine(workspace, extra_writable=[config]).protected
    assert config not in by_name and hooks in by_name
    as_a_whole = confine(workspace, extra_writable=[workspace / ".git"]).protected
    assert not {config, hooks} & set(as_a_whole)
    # A folder around it is no such name.
    assert hooks in confine(workspace, extra_writable=[workspace.parent]).protected


def test_to_approve_one_file_of_a_protected_folder_does_not_open_the_folder(workspace):
    git(workspace, "init", "-q")
    hooks = f"{workspace}/.git/hooks"
    assert hooks in confine(workspace, extra_writable=[f"{hooks}/README"]).protected


def test_an_approved_path_is_not_resolved_again(workspace, tmp_path):
    (workspace / "data").symlink_to(tmp_path)
    assert f"{workspace}/data" in confine(workspace, extra_writable=[workspace / "data"]).writable


# -- hidden ----------------------------------------------------------------------------------------


def test_a_folder_that_is_moved_between_two_looks_is_found_again(workspace):
    put(workspace / "sub/.env")
    survey((str(workspace),), read_judge())  # else the first one looks twice
    put(workspace / ".env")

    def judge(path):
        if os.path.exists(workspace / "sub"):
            (workspace / "sub").rename(workspace / "moved")  # after the workspace was listed
        return "a secret"

    found = survey((str(workspace),), judge).secrets
    assert sorted(found) == [f"{workspace}/.env", f"{workspace}/moved/.env"]


def test_to_approve_one_file_of_a_hidden_folder_shows_nothing_beside_it(
    workspace, a_home_of_its_own, tmp_path
):
    ssh = a_home_of_its_own / ".ssh"
    known, key, deeper = put(ssh / "known_hosts"), put(ssh / "id_rsa"), put(ssh / "agent/mine")
    other = put(ssh / "agent/other")
    (ssh / "link").symlink_to(tmp_path)

    def hidden(*approved):
        found = confine(workspace, extra_writable=approved).hidden
        return {path for path in found if path.startswith(str(ssh))}

    assert hidden() == hidden(workspace) == {str(ssh)}
    assert hidden(known) == {str(key), str(ssh / "agent")}
    assert hidden(known, deeper) == {str(key), str(other)}
    assert hidden(ssh) == hidden(ssh, known) == {str(key)}, "what is a key by its name stays so"


def test_an_approved_file_of_a_hidden_folder_that_cannot_be_listed_stays_hidden(
    workspace, a_home_of_its_own
):
    known = a_home_of_its_own / ".ssh/known_hosts"
    known.parent.write_text("no folder", encoding="utf-8")
    assert str(known.parent) in confine(workspace, extra_writable=[known]).hidden


def test_hidden_is_what_there_is_of_the_deny_list(workspace, a_home_of_its_own):
    home = a_home_of_its_own
    assert not any(path.startswith(str(home)) for path in confine(workspace).hidden)
    put(home / ".ssh/id_rsa")
    put(home / ".netrc")
    put(home / ".local/share/jupyter/runtime/kernel-1.json")
    put(home / ".local/state/agent-magics/sessions/x.jsonl")
    put(home / ".config/harmless/x")
    hidden = {path for path in confine(workspace).hidden if path.startswith(f"{home}/")}
    assert hidden == {
        *(f"{home}/.ssh", f"{home}/.netrc", f"{home}/.local/share/jupyter/runtime"),
        f"{home}/.local/state/agent-magics",
    }


# As the programs that keep them write their names.
KEPT_SECRETS = [
    *(".aws/credentials", ".azure/token", ".config/gcloud/x", ".kube/config", ".oci/config"),
    *(".config/rclone/rclone.conf", ".terraform.d/credentials.tfrc.json", ".vault-token"),
    *(".docker/config.json", ".config/containers/auth.json", ".netrc", ".pypirc", ".npmrc"),
    *(".git-credentials", ".config/gh/hosts.yml", ".cargo/credentials.toml", ".pgpass"),
    *(".m2/settings.xml", ".gradle/gradle.properties", ".cache/huggingface/token"),
    *(".codex/auth.json", ".claude/.credentials.json", ".claude.json", ".gemini/oauth_creds.json"),
    *(".config/github-copilot/apps.json", ".local/share/opencode/auth.json"),
    *(".gnupg/secring.gpg", ".password-store/x.gpg", ".local/share/keyrings/login.keyring"),
    *(".mozilla/firefox/p/logins.json", ".librewolf/p/logins.json", ".thunderbird/p/logins.json"),
    *(".config/google-chrome/Default/Cookies", ".config/chromium/Default/Cookies"),
    *(".config/BraveSoftware/Brave-Browser/Default/Cookies", ".config/vivaldi/Default/Cookies"),
    *(".config/microsoft-edge/Default/Cookies", ".config/opera/Cookies", "snap/firefox/x"),
    *(".var/app/com.brave.Browser/x", ".var/app/com.google.Chrome/x", "snap/chromium/x"),
    *(".config/Signal/config.json", ".local/share/TelegramDesktop/tdata/key_datas"),
    *(".jupyter/jupyter_server_config.json", ".config/agent-magics/config.toml"),
    *(".streamlit/secrets.toml", ".dbt/profiles.yml", ".modal.toml", ".cdsapirc"),
    *(".cache/huggingface/stored_tokens", ".bash_history", ".local/share/fish/fish_history"),
]


@pytest.mark.parametrize("place", KEPT_SECRETS)
def test_kept_secrets_are_hidden_and_asked_about(workspace, a_home_of_its_own, place):
    path = put(a_home_of_its_own / place)
    assert any(path.is_relative_to(hidden) for hidden in confine(workspace).hidden)
    assert read_judge()(str(path))


def test_the_systems_passwords_are_hidden(workspace):
    assert "/etc/shadow" in confine(workspace).hidden


def test_what_variables_name_is_hidden(workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(put(tmp_path / "keys/aws")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "moved"))
    put(tmp_path / "moved/gcloud/x")
    hidden = confine(workspace).hidden
    assert {f"{tmp_path}/keys/aws", f"{tmp_path}/moved/gcloud"} <= set(hidden)


@pytest.mark.parametrize("place", ["/dev/null", "/dev", "/bin", "/usr/bin", "/", "~", "/root/.."])
def test_what_all_programs_need_is_never_hidden(workspace, a_home_of_its_own, place, monkeypatch):
    place = str(a_home_of_its_own) if place == "~" else place
    for variable in ("PIP_CONFIG_FILE", "KUBECONFIG", "GNUPGHOME", "HISTFILE"):
        monkeypatch.setenv(variable, place)
    (a_home_of_its_own / ".netrc").symlink_to(place)
    assert os.path.realpath(place) not in confine(workspace).hidden
    assert not read_judge()(os.path.realpath(place))


def test_this_kernels_connection_file_is_hidden(workspace, tmp_path, monkeypatch):
    file = put(tmp_path / "elsewhere/connection.json")
    runtime = put(tmp_path / "runtime/kernel-2.json").parent
    for words in (["-f", str(file)], [f"--f={file}"]):
        monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ipykernel_launcher", *words])
        assert str(file) in confine(workspace, cwd=words[0] and workspace).hidden
        monkeypatch.setenv("DOCKER_CONFIG", words[0])  # something changed: it is looked up anew
    monkeypatch.setattr(sys, "orig_argv", ["python", "-f", f"{runtime}/kernel-2.json"])
    monkeypatch.setenv("DOCKER_CONFIG", "")
    assert str(runtime) in confine(workspace).hidden


def test_secrets_in_the_first_levels_of_the_workspace(workspace):
    put(workspace / ".env", "A=1")
    put(workspace / "app/config/.env.local", "A=1")
    put(workspace / "app/.env.example", "A=")
    put(workspace / "app/.env/pyvenv.cfg")  # a virtual environment of that name
    hidden = [path for path in confine(workspace).hidden if path.startswith(str(workspace))]
    assert hidden == [f"{workspace}/.env", f"{workspace}/app/config/.env.local"]
    assert confine(workspace, policy="read-only").hidden == confine(workspace).hidden


@pytest.mark.parametrize("place", [place for place in KEPT_SECRETS if place.startswith(".")])
def test_what_is_asked_about_in_the_workspace_is_hidden_there(workspace, place):
    path = put(workspace / "app" / place)
    assert read_judge()(str(path))
    assert any(path.is_relative_to(hidden) for hidden in confine(workspace).hidden)


def test_nothing_is_hidden_that_holds_what_the_command_needs(workspace, monkeypatch):
    inside = workspace / ".aws/project"
    inside.mkdir(parents=True)
    assert str(workspace / ".aws") in confine(workspace).hidden
    assert str(workspace / ".aws") not in confine(workspace, cwd=inside).hidden
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(workspace))
    assert str(workspace) not in confine(workspace).hidden


# -- what changes, and what it costs ---------------------------------------------------------------


def test_what_is_made_later_is_found(workspace, a_home_of_its_own):
    confine(workspace)
    put(a_home_of_its_own / ".aws/credentials")
    put(workspace / "sub/.env")
    git(workspace, "init", "-q")
    found = confine(workspace)
    assert str(a_home_of_its_own / ".aws") in found.hidden
    assert str(workspace / "sub/.env") in found.hidden
    assert str(workspace / ".git/hooks") in found.protected
    (workspace / "sub/.env").unlink()
    assert str(workspace / "sub/.env") not in confine(workspace).hidden


def test_the_same_place_gives_an_equal_confinement(workspace):
    assert confine(workspace) == confine(workspace)


@pytest.mark.soak
def test_a_workspace_with_very_many_folders_is_not_walked_whole(workspace):
    for number in range(600):
        (workspace / f"d{number:03}/e/f").mkdir(parents=True)
    put(workspace / "zz/.env")
    confine(workspace)
    began = time.process_time()
    for _ in range(10):
        confine(workspace)
    assert (time.process_time() - began) / 10 < 0.05  # 0.9 ms on a machine at rest


def test_folders_that_cannot_be_looked_into_do_no_harm(workspace):
    put(workspace / "file")
    (workspace / "link").symlink_to("/")
    (workspace / "loop").symlink_to("loop")
    assert confine(workspace).writable[0] == str(workspace)
    assert confine(workspace / "gone").writable[0] == str(workspace / "gone")


def test_a_second_name_of_what_is_hidden_is_hidden(workspace, a_home_of_its_own):
    """Hard links in the workspace, whenever they came, of its own secrets and of the home's."""
    env = put(workspace / "deep/er/.env")
    key = put(a_home_of_its_own / ".ssh/id_x")
    put(workspace / "a/plain")
    os.link(workspace / "a/plain", workspace / "a/plain too")
    os.link(key, workspace / "a/key")
    assert str(workspace / "a/key") in confine(workspace).hidden
    for folder in ("a", "b/c/d"):
        link = workspace / folder / "innocent"
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(env, link)
        assert {str(link), str(env)} <= set(confine(workspace).hidden)
        link.unlink()
        assert str(link) not in confine(workspace).hidden
    assert not any("plain" in path for path in confine(workspace).hidden)
