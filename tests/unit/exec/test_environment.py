"""What a command may see of the kernel's environment."""

import os
import sys

from hypothesis import given
from hypothesis import strategies as st

from agent_magics.exec.command import run_command
from agent_magics.exec.environment import command_environment, confined_environment
from agent_magics.exec.processes import ProcessManager


def test_keys_and_unknown_names_do_not_pass():
    source = {
        "OPENAI_API_KEY": "sk-1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "JUPYTERHUB_API_TOKEN": "x",
        "PGPASSWORD": "x",
        "GIT_CREDENTIALS": "x",
        "LC_API_KEY": "x",
        "lc_secret": "x",
        "HTTPS_PROXY": "http://me:pass@proxy",
        "LD_PRELOAD": "evil.so",
        "PYTHONPATH": "/kernel",
        "BASH_ENV": "evil.sh",
        "SSH_AUTH_SOCK": "/run/agent",
        "PATH": "/bin",
        "HOME": "/home/ada",
    }
    passed = command_environment(source)
    assert not (source.keys() - {"PATH", "HOME"}) & passed.keys()
    assert passed["PATH"] == "/bin" and passed["HOME"] == "/home/ada"


def test_language_place_and_python_environment_pass():
    source = {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "UTC", "VIRTUAL_ENV": "/v"}
    assert source.items() <= command_environment(source).items()


def test_output_is_made_readable():
    passed = command_environment({"TERM": "xterm-256color", "PAGER": "less", "FORCE_COLOR": "1"})
    assert passed["TERM"] == "dumb" and passed["NO_COLOR"] == "1"
    assert passed["PAGER"] == passed["GIT_PAGER"] == "cat"
    assert "FORCE_COLOR" not in passed


def test_where_version_managers_and_data_are_passes():
    source = {"CONDA_EXE": "/c", "NVM_DIR": "/n", "JAVA_HOME": "/j", "HF_HOME": "/d"}
    assert source.items() <= command_environment(source).items()
    assert not {"HF_TOKEN"} & command_environment({"HF_TOKEN": "x"}).keys()


def test_which_certificates_are_trusted_passes():
    source = {"SSL_CERT_FILE": "/c.pem", "REQUESTS_CA_BUNDLE": "/c.pem", "PIP_CERT": "/c.pem"}
    assert source.items() <= command_environment(source).items()


def test_git_never_waits_for_a_password():
    assert command_environment({})["GIT_TERMINAL_PROMPT"] == "0"


def test_a_confined_command_has_a_place_for_all_it_must_write():
    given = command_environment({"HOME": "/h", "TMPDIR": "/tmp", "GOCACHE": "/h/go"})
    passed = confined_environment(given, "/private")
    assert passed["TMPDIR"] == passed["TMP"] == passed["TEMP"] == "/private"
    assert all(
        passed[name].startswith("/private/")
        for name in ("GOCACHE", "UV_CACHE_DIR", "npm_config_cache")
    )
    assert passed["HOME"] == "/h" and given["TMPDIR"] == "/tmp"


def test_what_every_program_needs_is_there_even_if_the_kernel_lacks_it():
    passed = command_environment({})
    assert "/bin" in passed["PATH"].split(":") and passed["LANG"] == "C.UTF-8"


def test_the_source_is_left_alone():
    source = {"HOME": "/h", "MY_TOKEN": "x"}
    command_environment(source)
    assert source == {"HOME": "/h", "MY_TOKEN": "x"}


@given(st.dictionaries(st.text("ABKEYTOKENLC_SECRPW", max_size=12), st.just("canary")))
def test_no_name_that_speaks_of_a_secret_passes(source):
    for name in command_environment(source):
        assert not any(word in name for word in ("KEY", "SECRET", "TOKEN", "PASSWORD"))


def test_a_real_command_does_not_see_a_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    result = run_command(
        [sys.executable, "-c", "import os; print(dict(os.environ))"],
        cwd=tmp_path,
        env=command_environment(os.environ),
        timeout=20,
        manager=ProcessManager(),
    )
    assert "PATH" in result.stdout and "canary" not in result.output
