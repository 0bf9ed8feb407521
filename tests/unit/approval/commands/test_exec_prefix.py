"""Which prefix may be offered for good: useful ones, and none that allows anything at all."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.exec_prefix import propose_prefix, runs_another


def offered(line, wanted=""):
    return " ".join(propose_prefix(shlex.split(line), shlex.split(wanted)))


@pytest.mark.parametrize(
    ("line", "prefix"),
    [
        ("git status --short", "git status"),
        ("git log -p --since=yesterday", "git log"),
        ("npm run test -- --watch", "npm run test"),
        ("npm test", "npm test"),
        ("yarn run build", "yarn run build"),
        ("cargo build --release", "cargo build"),
        ("go test ./...", "go test"),
        ("pytest", "pytest"),
        ("pytest -x tests", "pytest"),
        ("ruff check .", "ruff"),
        ("make test", "make test"),
        ("pip install numpy", "pip install"),
        ("uv sync", "uv sync"),
        ("touch made", "touch made"),
        ("frobnicate --all now", "frobnicate --all now"),
    ],
)
def test_what_is_offered_says_what_it_is_for(line, prefix):
    assert offered(line) == prefix


@pytest.mark.parametrize(
    "line",
    [
        *("python x.py", "python3.12 -m pytest", "node -e 1", "perl -e 1", "ruby x.rb", "php x"),
        *("ipython x.py", "deno run x", "lua x", "Rscript x.R", "java -jar x.jar", "pypy3 x"),
        *("bash -c ls", "sh x.sh", "zsh -lc ls", "fish -c ls", "bash", "eval ls", "exec ls"),
        *("env ls", "env -i make", "sudo make", "doas make", "nohup make", "timeout 5 make"),
        *("xargs rm", "xargs cat", "parallel make", "watch make", "nice make", "time make"),
        *("ssh host ls", "scp a b:", "rsync a b", "find . -name x", "find . -exec ls ;", "fd x"),
        *("awk 1 x", "sed -i s/a/b/ x", "vim x", "less x", "man ls", "docker run x", "kubectl x"),
        *("npx jest", "uvx ruff", "pipx run x", "tox", "gh pr list", "curl x", "wget x"),
        *("rm -rf build", "rm x", "dd if=a of=b", "chmod +x a", "kill 1", "pkill x", "shutdown"),
        *("git -c core.pager=x status", "git -C sub status", "git --exec-path=x log", "git"),
        *("git rebase -x ls", "git bisect run x", "git config a b", "git submodule foreach ls"),
        *("git filter-branch x", "git difftool", "git x", "npm", "npm exec x", "npm run", "npm x"),
        *("make", "make -C sub test", "make CC=evil", "make -f x test", "cargo", "cargo x"),
        *("./run", "bin/x y", "/usr/bin/git status", "../x", "A=b ls", "uv run x", "poetry run x"),
        *("frobnicate", "one two three four five six seven eight nine", f"frobnicate {'a' * 101}"),
        *("tar --to-command=x xf a", "pip install --python x y", "true", ""),
    ],
)
def test_nothing_is_offered_for_what_runs_anything(line):
    assert offered(line) == ""


@pytest.mark.parametrize(
    ("line", "wanted", "prefix"),
    [
        ("git push origin main", "git push origin", "git push origin"),
        ("git push origin main", "git push", "git push"),
        ("git push origin main", "git", "git push"),
        ("git push origin main", "git fetch", "git push"),
        ("git push origin main", "git push origin main more", "git push"),
        ("git push origin main", "hg", "git push"),
        ("touch made", "touch", "touch made"),
        ("pytest tests/unit", "pytest tests/unit", "pytest tests/unit"),
        ("python x.py", "python x.py", ""),
        ("rm -rf build", "rm -rf build", ""),
        ("git fetch --upload-pack=x", "git fetch --upload-pack=x", ""),
        ("bash -c ls", "bash -c ls", ""),
    ],
)
def test_the_model_s_wish_may_only_make_it_narrower(line, wanted, prefix):
    assert offered(line, wanted) == prefix


@pytest.mark.parametrize(
    "line",
    [
        *("git fetch --upload-pack=x", "git fetch --upload-p x", "git push --receive-pack x"),
        *("git log --ext-diff", "git grep -O x", "git grep -nO x", "git log --output=x"),
        *("tar xf a --to-command=x", "tar xf a -I x", "tar cf a --checkpoint-action=exec=x"),
        *("rg --pre x y", "rg -nz x", "sort -o x", "sort --compress-prog x", "make -f x"),
        *("pytest -p x", "go test -exec x", "pandoc --filter x", "npm --script-shell=x test"),
    ],
)
def test_options_that_run_something_else_are_known(line):
    assert runs_another(shlex.split(line), 1)


@pytest.mark.parametrize(
    "line",
    [
        *("git push -u origin main", "git log -p", "git commit -am x", "git add -u"),
        *("git diff -U3", "tar xzf a", "rg -n x", "make test", "pytest -xvs"),
        *("frobnicate --pre x", "git switch -c a"),
    ],
)
def test_ordinary_options_are_no_such(line):
    assert not runs_another(shlex.split(line), 1)


@given(st.lists(st.text(max_size=20), max_size=10), st.lists(st.text(max_size=20), max_size=4))
def test_what_is_offered_is_a_prefix_of_the_command(argv, wanted):
    prefix = propose_prefix(argv, wanted)
    assert list(prefix) == argv[: len(prefix)]
