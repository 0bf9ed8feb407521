"""Law: a git command that counts as reading shows contents of the files that it names alone."""

import os
import subprocess
from pathlib import Path

import pytest

from agent_magics.approval.commands.classification import CommandRisk, classify_command
from agent_magics.approval.commands.git import READ_ONLY_ENVIRONMENT

OLD = "the-key-of-last-year"
# Options of git that choose what of a history is shown, or as what.
OPTIONS = """
--follow --full-diff --full-history --dense --sparse --simplify-merges --ancestry-path
--remove-empty --show-pulls --first-parent --merges --no-merges --all --branches --reverse -g
--walk-reflogs --boundary --cherry --pickaxe-all -Skey -Gkey -L1,2:settings.txt
-L:KEY:settings.txt -M -C -C20 -B -D -R -a -m -c --cc --find-renames --find-copies
--find-copies-harder --break-rewrites --irreversible-delete --no-renames --diff-merges=on
--diff-merges=remerge --remerge-diff --dd --raw --stat --patch-with-raw --patch-with-stat
--no-walk --no-walk=unsorted --do-walk --in-commit-order --source --notes --show-notes
--submodule=diff -U3 -U99 -W --function-context --word-diff --word-diff=color --color-words
--color-moved -b -w --text --name-status --name-only --summary --dirstat --compact-summary
--numstat --shortstat -z --check --line-prefix=x --src-prefix=x --no-prefix --relative
--rotate-to=settings.txt --skip-to=settings.txt --ignore-blank-lines --minimal --patience
--histogram --anchored=KEY --indent-heuristic --binary --max-depth=9 --ita-invisible-in-index
--diff-filter=R --diff-filter=A --format=%B --pretty=full --follo --full-d --fo --glob=*
--exclude=x --bisect --not --since=1970 --max-count=9 -n9
"""
FORMS = (
    "log -p {} -- settings.txt", "log {} -p settings.txt", "log -u --stat {} -- settings.txt",
    "show {} HEAD~1 -- settings.txt", "show {} HEAD:settings.txt", "show {} HEAD~1",
    "diff {} HEAD~2 HEAD -- settings.txt", "diff {} HEAD~2", "blame {} settings.txt", "status {}",
    "shortlog {} HEAD", "rev-list {} HEAD", "stash list {}",
)  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A repository whose `settings.txt` was a `.env` before, with another key in it."""
    top = tmp_path_factory.mktemp("repository")

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(("git", *who, *words), cwd=top, check=True, capture_output=True)

    lines = "".join(f"SETTING_{n}=1\n" for n in range(30))
    git("init", "-q")
    (top / ".env").write_text(f"KEY={OLD}\n{lines}", encoding="utf-8")
    git("add", "-f", ".env")
    git("commit", "-qm", "First")
    (top / ".env").write_text(f"KEY=new\n{lines}", encoding="utf-8")
    git("commit", "-qam", "Another key")
    git("mv", ".env", "settings.txt")
    git("commit", "-qm", "Renamed")
    (top / "settings.txt").write_text(f"KEY=newer\n{lines}", encoding="utf-8")
    (top / ".env").write_text(f"KEY={OLD}\n", encoding="utf-8")
    git("add", "-f", ".env")
    git("commit", "-qam", "Both changed")
    git("config", "log.follow", "true")  # as --follow, for each log of one file
    return top


def reads(words: list[str], top: Path) -> bool:
    """Return whether a command runs unasked."""
    verdict = classify_command(
        words, roots=[top], cwd=top, denied=lambda word: ".env" in word, confined=True
    )
    return verdict.risk is CommandRisk.SAFE


def output_of(words: list[str], top: Path) -> str:
    """Run a command as one that only reads, without its sandbox."""
    environment = {**os.environ, **READ_ONLY_ENVIRONMENT}
    return subprocess.run(words, cwd=top, env=environment, capture_output=True, text=True).stdout


@pytest.mark.soak
@pytest.mark.parametrize("form", FORMS)
def test_no_option_shows_what_was_not_named(repository, form):
    shown = []
    for option in ("", *OPTIONS.split()):
        words = ["git", *form.format(option).split()]
        if reads(words, repository):
            assert OLD not in output_of(words, repository), words
            shown.append(words)
    assert shown or form == "show {} HEAD~1"


def test_history_of_a_named_file_is_read_unasked(repository):
    for words in ("log -p -U5 settings.txt", "log --follow --stat settings.txt"):
        assert reads(["git", *words.split()], repository)


@pytest.mark.parametrize("option", ["--follow", "--full-diff"])
def test_what_is_asked_about_would_show_the_key(repository, option):
    words = ["git", "log", "-p", option, "--", "settings.txt"]
    assert not reads(words, repository)
    assert OLD in output_of(words, repository)
