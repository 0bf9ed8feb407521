"""Settings of git as our reader finds them: what git itself lists."""

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.files.git.settings import settings_in

TEXTS = {
    "plain": "[core]\n\thooksPath = a b\n",
    "on the line of the head": "[Core] HooksPath=a",
    "of a section within one": '[includeIf "gitdir:/A \\"b\\"/"]\npath = x\n[A.B]\nc=d\n',
    "without a value": "[a]\nb\n c\n",
    "quoted in part": '[a]\nb = x"  y "z" ; "# no\n',
    "escaped": '[a]\nb = "a\\tb\\n\\\\\\"" c\\b\n',
    "over lines": "[a]\nb = c \\\n  d \\\n\ne = f\n",
    "over lines of a comment": '[a]\nb = "a \\\n path = "\\\n # \\\n[core] hooksPath = c\n',
    "of Windows": "\ufeff[a]\r\nb = c\\\r\nd\r\n",
    "with white space around": "[a] \t\n \tb\t = \t c \t \n",
    "an empty value": '[a]\nb =\nc = ""\nd = "" e\n',
}
LINES = st.sampled_from(
    [
        "[a]",
        '[b "C d"]',
        "[e.F]",
        "x",
        "y",
        "=",
        " ",
        '"',
        "\\",
        "\\\n",
        "\n",
        "#",
        ";",
        "\\t",
        "\r",
    ]
)


def listed(text, folder):
    """Return what git lists, or None where it refuses the file."""
    (folder / "settings").write_bytes(text.encode())
    command = ["git", "config", "-f", folder / "settings", "--no-includes", "--list", "-z"]
    run = subprocess.run(command, capture_output=True, check=False, cwd=folder)
    if run.returncode:
        return None
    parts = (each.partition("\n") for each in run.stdout.decode().split("\0")[:-1])
    return [(name, value) for name, _, value in parts]


def read(text):
    # Git before 2.45 reads white space within a value as spaces.
    return [(name, re.sub(r"[\t\r]", " ", value)) for name, value in settings_in(text)]


def alike(text, folder):
    found = listed(text, folder)
    return found is None or read(text) == [(name, re.sub(r"[\t\r]", " ", v)) for name, v in found]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_settings_are_those_that_git_lists(text, tmp_path):
    assert listed(text, tmp_path) and alike(text, tmp_path)


@pytest.mark.parametrize("examples", [40, pytest.param(3000, marks=pytest.mark.long)])
def test_any_settings_are_those_that_git_lists(examples, tmp_path):
    @given(st.lists(LINES, max_size=30))
    @settings(max_examples=examples, deadline=None)
    def check(lines):
        assert alike("[a]\nx=" + "".join(lines), tmp_path)

    check()
