"""Which places only the person may read, and where on this machine they stand.

The judge of paths (`paths.py`) takes one path and the names below; the sandbox needs the list of
what there is, before any path is named.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from agent_magics.backends.beneath import real_path
from agent_magics.backends.own_places import folder_stamp, homes

# A path is protected when one of these runs of parts stands anywhere in it, so that every home is
# covered, whoever's it is and however it is mounted. Compared without case.
_PROTECTED_PLACES = {
    "SSH keys": (".ssh", "etc/ssh"),
    "cloud credentials": (
        *(".aws", ".azure", ".config/gcloud", ".kube", ".oci", ".boto", ".s3cfg", ".fly"),
        *(".config/doctl", ".config/rclone", ".terraformrc", ".terraform.d", ".vault-token"),
        *(".databrickscfg", ".snowflake", ".snowsql", ".kaggle", ".config/kaggle"),
    ),
    "package and service credentials": (
        *(".docker/config.json", ".netrc", "_netrc", ".pypirc", ".npmrc", ".yarnrc.yml"),
        *(".git-credentials", ".config/git/credentials", ".config/gh", ".config/glab-cli"),
        *(".config/hub", ".config/pip", ".pip", ".config/pypoetry", ".cargo/credentials"),
        *(".cargo/credentials.toml", ".gem/credentials", ".composer/auth.json", ".pgpass"),
        *(".my.cnf", ".m2/settings.xml", ".gradle/gradle.properties", ".codex/auth.json"),
        *(".cache/huggingface/token", ".huggingface", ".config/openai", ".config/op"),
    ),
    "encryption keys and stored passwords": (
        *(".gnupg", ".password-store", ".local/share/keyrings", "library/keychains"),
        *("etc/shadow", "etc/gshadow", "run/secrets"),
    ),
    "Jupyter's keys and settings": ("jupyter/runtime", ".jupyter", "etc/jupyter"),
    "a browser profile": (
        *(".mozilla", ".config/google-chrome", ".config/chromium", ".config/microsoft-edge"),
        *(".config/bravesoftware", ".config/vivaldi", ".config/opera", "snap/firefox"),
        *("snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.chrome"),
        *("application support/google/chrome", "application support/firefox"),
        *("application support/bravesoftware", "library/safari", "library/cookies"),
    ),
    "agent-magics' own settings and records": (
        *(".config/agent-magics", ".local/state/agent-magics"),
        "application support/agent-magics",
    ),
}
REASON_OF = {place: why for why, places in _PROTECTED_PLACES.items() for place in places}

# Variables that name such a place elsewhere; some hold several, as PATH does.
_PROTECTED_BY_VARIABLE = {
    "JUPYTER_RUNTIME_DIR": "Jupyter's keys and settings",
    "JUPYTER_CONFIG_DIR": "Jupyter's keys and settings",
    "AWS_SHARED_CREDENTIALS_FILE": "cloud credentials",
    "AWS_CONFIG_FILE": "cloud credentials",
    "AZURE_CONFIG_DIR": "cloud credentials",
    "CLOUDSDK_CONFIG": "cloud credentials",
    "GOOGLE_APPLICATION_CREDENTIALS": "cloud credentials",
    "KUBECONFIG": "cloud credentials",
    "DOCKER_CONFIG": "package and service credentials",
    "NETRC": "package and service credentials",
    "NPM_CONFIG_USERCONFIG": "package and service credentials",
    "PGPASSFILE": "package and service credentials",
    "PIP_CONFIG_FILE": "package and service credentials",
    "GNUPGHOME": "encryption keys and stored passwords",
}
# Variables that move a whole family of places, and the name that family has in the table above.
_MOVED_FAMILIES = {
    "XDG_CONFIG_HOME": "/.config/",
    "XDG_DATA_HOME": "/.local/share/",
    "XDG_STATE_HOME": "/.local/state/",
}

_MOVING_VARIABLES = (*_PROTECTED_BY_VARIABLE, *_MOVED_FAMILIES, "HOME")

_MOST_FILES = 300  # of one protected folder, known by their inode
# What a variable may name by mistake.
_NEVER_HIDDEN = frozenset(
    {"/", "/bin", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/tmp", "/usr", "/var"}
)


def secret_places() -> tuple[str, ...]:
    """Return every protected file or folder that exists here, as symlink-free absolute paths.

    What the workspace holds (``.env`` files and the like) is not among them. The answer is kept
    until a folder in which one of them stands, or could stand, changes.
    """
    bases, variables = homes(), tuple(map(os.environ.get, _MOVING_VARIABLES))
    return _existing(bases, variables, tuple(map(folder_stamp, _parents(bases, variables))))


@lru_cache(maxsize=8)
def _parents(bases: tuple[str, ...], variables: tuple[str | None, ...]) -> tuple[str, ...]:
    """Return the folders in which a protected place would stand; `variables` only tell of change.

    A folder that is not there yet counts: it may be made.
    """
    return tuple(dict.fromkeys(os.path.dirname(place) for place in _candidates(bases)))


@lru_cache(maxsize=8)
def _existing(
    bases: tuple[str, ...], variables: tuple[str | None, ...], stamps: tuple[int, ...]
) -> tuple[str, ...]:
    """Look the places up; an equal `variables` and `stamps` say that none has come or gone."""
    found = {real_path(place) for place in _candidates(bases) if os.path.lexists(place)}
    return tuple(sorted(place for place in found - _NEVER_HIDDEN if os.path.lexists(place)))


def _candidates(bases: tuple[str, ...]) -> Iterator[str]:
    """Yield where each protected place would stand."""
    for place in REASON_OF:
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
        for name in REASON_OF:
            if name.startswith(family):
                yield f"{place}/{name.removeprefix(family)}"
            elif name == "jupyter/runtime" and family == ".local/share/":
                yield f"{place}/{name}"


def _connection_files() -> Iterator[str]:
    """Yield the file with this kernel's ports and key, as the kernel was told of it."""
    for word in sys.orig_argv:
        path = word.partition("=")[2] if word.startswith("-") else word
        if os.path.isabs(path) and path.endswith(".json"):
            folder = os.path.dirname(path)
            # A folder of that name holds those of all kernels, and the server's own keys.
            yield folder if os.path.basename(folder) == "runtime" else path


def is_second_name(status: os.stat_result) -> bool:
    """Tell whether a file is also a protected one, under another name (a hard link)."""
    if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):
        return False
    return (status.st_dev, status.st_ino) in secret_inodes()


def secret_inodes() -> frozenset[tuple[int, int]]:
    """Return the identities of the protected files: the places, and what is in their folders."""
    return frozenset(_identities(secret_places()))


def _identities(places: Iterable[str]) -> Iterator[tuple[int, int]]:
    for place in places:
        # A browser's profile holds thousands; the keys of the others are among their first.
        for path in (place, *islice(_files_in(place), _MOST_FILES)):
            try:
                status = os.lstat(path)
            except OSError:
                continue
            yield status.st_dev, status.st_ino


def _files_in(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (f"{parent}/{name}" for name in names)


def moved_places() -> list[tuple[str, str]]:
    """Return (file or folder, reason or family) for what stands elsewhere on this machine.

    A family, such as "/.config/", means that the folder stands for that one: what is protected
    there is protected here.
    """
    named = [
        (place, meaning)
        for variable, meaning in (_PROTECTED_BY_VARIABLE | _MOVED_FAMILIES).items()
        for place in os.environ.get(variable, "").split(os.pathsep)
        if place
    ]
    home = os.path.expanduser("~")
    linked = [(f"{home}/{place}", why) for place, why in REASON_OF.items()]
    moved = named + [(place, why) for place, why in linked if os.path.islink(place)]
    return [
        (text.rstrip("/"), meaning)
        for place, meaning in moved
        for text in sorted({os.path.abspath(place), real_path(place)})
    ]
