"""Lists the files and folders on this machine that hold the person's secrets.

`paths.py` judges single paths by the tables below; the sandbox needs the list of existing ones,
before any path is named.
"""

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice

from agent_magics.files.beneath import real_path
from agent_magics.files.own_places import folder_stamp, homes

Inodes = frozenset[tuple[int, int]]  # device, number

# A path is protected when it contains one of these sequences of components anywhere, so that every
# user's home is covered, wherever it is mounted. Compared without case, but spelt as they exist.
_PROTECTED_PLACES = {
    "SSH keys": (".ssh", "etc/ssh"),
    "cloud credentials": (
        *(".aws", ".azure", ".config/gcloud", ".kube", ".oci", ".boto", ".s3cfg", ".fly"),
        *(".config/doctl", ".config/rclone", ".terraformrc", ".terraform.d", ".vault-token"),
        *(".databrickscfg", ".snowflake", ".snowsql", ".kaggle", ".config/kaggle"),
        *(".modal.toml", ".ngc", ".lightning/credentials.json", ".pulumi/credentials.json"),
        *(".config/earthengine", ".cdsapirc", ".ecmwfapirc"),
    ),
    "package and service credentials": (
        *(".docker/config.json", ".netrc", "_netrc", ".pypirc", ".npmrc", ".yarnrc.yml"),
        *(".git-credentials", ".config/git/credentials", ".config/gh", ".config/glab-cli"),
        *(".config/hub", ".config/pip", ".pip", ".config/pypoetry", ".cargo/credentials"),
        *(".cargo/credentials.toml", ".gem/credentials", ".composer/auth.json", ".pgpass"),
        *(".my.cnf", ".m2/settings.xml", ".gradle/gradle.properties", ".codex/auth.json"),
        *(".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface"),
        *(".streamlit/secrets.toml", ".dbt/profiles.yml", ".mlflow/credentials", ".comet.config"),
        *(".prefect/profiles.toml", ".sentryclirc", ".subversion/auth", ".config/stripe"),
        *(".config/openai", ".config/op", ".config/sops", ".local/share/python_keyring"),
        *(".claude/.credentials.json", ".claude.json", ".gemini/oauth_creds.json"),
        *(".config/github-copilot", ".local/share/opencode/auth.json", ".config/containers"),
        *(".config/Signal", ".local/share/TelegramDesktop", ".thunderbird"),
    ),
    "encryption keys and stored passwords": (
        *(".gnupg", ".password-store", ".local/share/keyrings", "Library/Keychains"),
        *("etc/shadow", "etc/gshadow", "run/secrets"),
    ),
    "what was typed before": (
        *(".bash_history", ".zsh_history", ".histfile", ".local/share/fish/fish_history"),
        *(".python_history", ".node_repl_history", ".psql_history", ".mysql_history"),
        *(".sqlite_history", ".duckdb_history", ".rediscli_history"),
    ),
    "Jupyter's keys and settings": ("jupyter/runtime", ".jupyter", "etc/jupyter"),
    "a browser profile": (
        *(".mozilla", ".config/google-chrome", ".config/chromium", ".config/microsoft-edge"),
        *(".config/BraveSoftware", ".config/vivaldi", ".config/opera", "snap/firefox"),
        *("snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome"),
        *("snap/brave", ".var/app/com.brave.Browser", ".var/app/org.chromium.Chromium"),
        *("Application Support/Google/Chrome", "Application Support/Firefox", ".librewolf"),
        *("Application Support/BraveSoftware", "Library/Safari", "Library/Cookies"),
    ),
    "agent-magics' own settings and records": (
        *(".config/agent-magics", ".local/state/agent-magics"),
        "Application Support/agent-magics",
    ),
}
_PLACES = tuple(place for places in _PROTECTED_PLACES.values() for place in places)
REASON_OF = {place.lower(): why for why, places in _PROTECTED_PLACES.items() for place in places}

# Variables that name such a place elsewhere; some hold a list, as PATH does.
_PROTECTED_BY_VARIABLE = {
    "JUPYTER_RUNTIME_DIR": "Jupyter's keys and settings",
    "JUPYTER_CONFIG_DIR": "Jupyter's keys and settings",
    "AWS_SHARED_CREDENTIALS_FILE": "cloud credentials",
    "AWS_CONFIG_FILE": "cloud credentials",
    "AZURE_CONFIG_DIR": "cloud credentials",
    "BOTO_CONFIG": "cloud credentials",
    "CLOUDSDK_CONFIG": "cloud credentials",
    "DATABRICKS_CONFIG_FILE": "cloud credentials",
    "GOOGLE_APPLICATION_CREDENTIALS": "cloud credentials",
    "KAGGLE_CONFIG_DIR": "cloud credentials",
    "KUBECONFIG": "cloud credentials",
    "SNOWFLAKE_HOME": "cloud credentials",
    "DBT_PROFILES_DIR": "package and service credentials",
    "DOCKER_CONFIG": "package and service credentials",
    "HF_TOKEN_PATH": "package and service credentials",
    "NETRC": "package and service credentials",
    "NPM_CONFIG_USERCONFIG": "package and service credentials",
    "PGPASSFILE": "package and service credentials",
    "PIP_CONFIG_FILE": "package and service credentials",
    "GNUPGHOME": "encryption keys and stored passwords",
    "HISTFILE": "what was typed before",
}
# Variables that move a whole folder of places, and that folder's name in the table above.
_MOVED_FAMILIES = {
    "XDG_CONFIG_HOME": "/.config/",
    "XDG_DATA_HOME": "/.local/share/",
    "XDG_STATE_HOME": "/.local/state/",
}

_MOVING_VARIABLES = (*_PROTECTED_BY_VARIABLE, *_MOVED_FAMILIES, "HOME")

_MOST_FILES = 300  # of one protected folder, identified by inode
_LATELY = 10.0  # seconds for which the list of those with several names is kept
# Folders that a variable may name by mistake, and all programs need.
_NEVER_HIDDEN = frozenset(
    {
        *("/", "/bin", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/tmp"),
        *("/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/local/lib"),
        *("/usr/sbin", "/usr/share", "/var"),
    }
)


def secret_places() -> tuple[str, ...]:
    """Return every protected file or folder that exists here, as symlink-free absolute paths.

    Files in the workspace (``.env`` files and the like) are not among them. The result is cached
    until a folder changes in which one of them is, or could be created.
    """
    bases, variables = homes(), tuple(map(os.environ.get, _MOVING_VARIABLES))
    return _existing(bases, variables, tuple(map(folder_stamp, _parents(bases, variables))))


@lru_cache(maxsize=8)
def _parents(bases: tuple[str, ...], variables: tuple[str | None, ...]) -> tuple[str, ...]:
    """Return the parent folders of all possible protected places; `variables` only invalidates the
    cache.

    Missing folders are included, because they may be created.
    """
    return tuple(dict.fromkeys(os.path.dirname(place) for place in _candidates(bases)))


@lru_cache(maxsize=8)
def _existing(
    bases: tuple[str, ...], variables: tuple[str | None, ...], stamps: tuple[int, ...]
) -> tuple[str, ...]:
    """Return the places that exist; `variables` and `stamps` only invalidate the cache."""
    found = {real_path(place) for place in _candidates(bases) if os.path.lexists(place)}
    return tuple(sorted(filter(_may_hold_secrets, filter(os.path.lexists, found))))


def _may_hold_secrets(place: str) -> bool:
    """Tell whether a place that a variable or a link leads to may be one of secrets.

    `PIP_CONFIG_FILE=/dev/null` says that there is none, and a home holds all else, too.

    Args:
        place: without symlinks.
    """
    if place in _NEVER_HIDDEN or place in homes():
        return False
    try:
        mode = os.lstat(place).st_mode
    except OSError:
        return True
    return not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode))


def _candidates(bases: tuple[str, ...]) -> Iterator[str]:
    """Yield every path at which a protected place may exist."""
    for place in _PLACES:
        first = place.partition("/")[0]
        if first in ("etc", "run"):
            yield f"/{place}"
            yield f"/usr/local/{place}"
            yield f"{sys.prefix}/{place}"
        elif first == "jupyter":
            yield from (f"{home}/.local/share/{place}" for home in bases)
            yield from (f"{home}/Library/Jupyter/runtime" for home in bases)
        else:
            yield from (f"{home}/{place}" for home in bases)
    yield from _named_by_variables()
    yield from _connection_files()


def _named_by_variables() -> Iterator[str]:
    for place, meaning in moved_places():
        if not meaning.startswith("/"):
            yield place
            continue
        family = meaning.removeprefix("/")
        for name in _PLACES:
            if name.startswith(family):
                yield f"{place}/{name.removeprefix(family)}"
            elif name == "jupyter/runtime" and family == ".local/share/":
                yield f"{place}/{name}"


def _connection_files() -> Iterator[str]:
    """Yield this kernel's connection file (ports and key), as given on its command line."""
    for argument in sys.orig_argv:
        path = argument.partition("=")[2] if argument.startswith("-") else argument
        if os.path.isabs(path) and path.endswith(".json"):
            folder = os.path.dirname(path)
            # A folder of that name holds the files of all kernels, and the server's own keys.
            yield folder if os.path.basename(folder) == "runtime" else path


def inodes_of(places: Iterable[str], *, linked: bool = False) -> Inodes:
    """Return the identities (device, inode) of files, and of those in folders.

    Args:
        places: the files and folders.
        linked: only of files that have more than one name.
    """
    return frozenset(
        (status.st_dev, status.st_ino)
        for status in _statuses(places)
        if not linked or (status.st_nlink > 1 and stat.S_ISREG(status.st_mode))
    )


def secret_inodes() -> Inodes:
    """Return the identities of the protected files outside the workspace, of the last second."""
    return _secret_inodes(secret_places(), int(time.monotonic()))


@lru_cache(maxsize=1)
def _secret_inodes(places: tuple[str, ...], second: int) -> Inodes:
    return inodes_of(places)


def linked_secrets() -> Inodes:
    """Return the identities of the protected files that have several names, of the last seconds."""
    return _linked_secrets(os.environ.get("HOME"), int(time.monotonic() / _LATELY))


@lru_cache(maxsize=1)
def _linked_secrets(home: str | None, moment: int) -> Inodes:
    return inodes_of(secret_places(), linked=True)


def _statuses(places: Iterable[str]) -> Iterator[os.stat_result]:
    for place in places:
        # A browser profile holds thousands of files; elsewhere the keys are among the first.
        for path in (place, *islice(_files_in(place), _MOST_FILES)):
            with suppress(OSError):
                yield os.lstat(path)


def _files_in(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (f"{parent}/{name}" for name in names)


def moved_places() -> list[tuple[str, str]]:
    """Return (path, meaning) of protected places that variables or links move elsewhere on this
    machine.

    The meaning is a reason, or a folder such as "/.config/": then the path stands in for that
    folder, and protects the same names below it. The environment is read each time, links in the
    home once a second: a command asks several times, and to look at them all takes a third of a
    millisecond.
    """
    variables = tuple(map(os.environ.get, _MOVING_VARIABLES))
    return _moved_places(variables, int(time.monotonic()))


@lru_cache(maxsize=8)
def _moved_places(variables: tuple[str | None, ...], second: int) -> list[tuple[str, str]]:
    named = [
        (place, meaning)
        for variable, meaning in (_PROTECTED_BY_VARIABLE | _MOVED_FAMILIES).items()
        for place in os.environ.get(variable, "").split(os.pathsep)
        if place and (meaning.startswith("/") or _may_hold_secrets(real_path(place)))
    ]
    home = os.path.expanduser("~")
    linked = [(f"{home}/{place}", why) for place, why in REASON_OF.items()]
    links = [(place, why) for place, why in linked if os.path.islink(place)]
    moved = named + [(place, why) for place, why in links if _may_hold_secrets(real_path(place))]
    return [
        (text.rstrip("/"), meaning)
        for place, meaning in moved
        for text in sorted({os.path.abspath(place), real_path(place)})
    ]
