"""Selects the environment variables of a command started for the model.

The kernel's environment is full of keys (of model providers, clouds, JupyterHub). A list of blocked
names would miss some secret; a list of allowed names, used here, only misses some convenience.
"""

from collections.abc import Mapping
from functools import lru_cache

from agent_magics.text.secrets import SECRET_NAME

# Deliberately left out: PYTHONPATH and LD_LIBRARY_PATH (made for the kernel's own interpreter; they
# load code into every program), *_PROXY (addresses there often contain a password), BASH_ENV,
# GIT_*, SSH_* and XDG_RUNTIME_DIR (code to run, or sockets of agents that hold keys).
_ALLOWED = frozenset(
    {
        # Who and where the person is, language and time.
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        # Which Python environment is active; conda finds itself and its packages by these.
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_PYTHON_EXE"),
        *("CONDA_SHLVL", "MAMBA_EXE", "MAMBA_ROOT_PREFIX"),
        # Folders of version managers and compilers; without them their programs on PATH report "not
        # installed".
        *("PYENV_ROOT", "PYENV_VERSION", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "ASDF_DIR"),
        *("ASDF_DATA_DIR", "RBENV_ROOT", "GEM_HOME", "GEM_PATH", "GOPATH", "GOROOT", "GOFLAGS"),
        *("CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME", "R_HOME", "R_LIBS_USER", "JULIA_DEPOT_PATH"),
        # Folders of data, fonts and models, read by libraries that the person's code uses.
        *("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "NLTK_DATA"),
        *("FONTCONFIG_FILE", "FONTCONFIG_PATH"),
        # Whose certificates are trusted: where a company looks into TLS, no download works without.
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
        *("NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE"),
        # How many processors to use, which in a container is less than there are.
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_LIMIT", "MEM_LIMIT"),
        "CUDA_VISIBLE_DEVICES",
    }
)
# No colours, no pager that waits for a key, and unbuffered output: what a killed Python program has
# printed is kept.
_FORCED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYTHONUNBUFFERED": "1",
    "GIT_TERMINAL_PROMPT": "0",  # else it would wait for a password that nobody can type
}
# Caches without which these programs refuse to start, if their own folder is read-only. Others
# (pip, matplotlib) work without, and can still read the person's caches.
_PRIVATE_CACHES = {"GOCACHE": "go-build", "UV_CACHE_DIR": "uv", "npm_config_cache": "npm"}
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_DEFAULT_LANG = "C.UTF-8"  # output is read as UTF-8, so a command should write it


def command_environment(source: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command, made from the kernel's.

    Args:
        source: the environment to take from, usually `os.environ`; it is not changed.

    Returns:
        The allowed variables, with colours and pagers turned off.
    """
    passed = {name: source[name] for name in source if _may_pass(name)}
    passed.setdefault("PATH", _DEFAULT_PATH)
    if not {"LANG", "LC_ALL", "LC_CTYPE"} & passed.keys():
        passed["LANG"] = _DEFAULT_LANG
    return passed | _FORCED


def confined_environment(environment: Mapping[str, str], tmp: str) -> dict[str, str]:
    """Return `environment` for a command that may write temporary files only below `tmp`."""
    caches = {name: f"{tmp}/.cache/{folder}" for name, folder in _PRIVATE_CACHES.items()}
    return {**environment, "TMPDIR": tmp, "TMP": tmp, "TEMP": tmp, **caches}


@lru_cache(maxsize=1024)  # called for every variable at the start of every run
def _may_pass(name: str) -> bool:
    return name in _ALLOWED or (name.startswith("LC_") and not SECRET_NAME.search(name))
