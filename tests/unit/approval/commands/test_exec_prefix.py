"""Which prefix may be offered for good: useful ones, and none that allows anything at all."""

import os
import shlex
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.approval.commands.prefixes import (
    _KNOWN,
    covers_rest,
    may_be_offered,
    propose_prefix,
)
from agent_magics.approval.commands.running import runs_another


def offered(line, wanted=""):
    return " ".join(propose_prefix(shlex.split(line), shlex.split(wanted)))


@pytest.mark.parametrize("command", [words[1] for words in _KNOWN if words[0] == "git"])
def test_git_and_the_list_agree_which_word_is_a_value(command, tmp_path, monkeypatch):
    """Else a word that is covered as a value is an option that writes a file or runs a program."""
    monkeypatch.chdir(tmp_path)
    setup = "git init -q; echo a > a; git add a; git commit -qm x; echo b > a"
    who = {"EMAIL": "a@b", "GIT_AUTHOR_NAME": "a", "GIT_COMMITTER_NAME": "a"}
    subprocess.run(setup, shell=True, check=True, env={**os.environ, **who})
    known, ran = _KNOWN["git", command], 0
    for option in sorted(known.options | known.valued):
        line = ["git", command, option, "--output=evil"]
        if covers_rest(line, 2):
            subprocess.run(line, capture_output=True, check=False)
            assert not os.path.exists("evil"), line
            ran += 1
    assert ran == len(known.valued - known.options)


@pytest.mark.parametrize(
    ("line", "prefix"),
    [
        ("git log --pretty --stat", "git log"),
        ("git status --short", "git status"),
        ("git log -p --since=yesterday -n 3 -5 HEAD~2..main", "git log"),
        ("git log --format=%h src/a.py", "git log"),
        ("git diff -U3 --cached", "git diff"),
        ("git add -A src", "git add"),
        ("mkdir -p d1", "mkdir"),
        ("touch made", "touch"),
        ("ruff check --fix .", "ruff check"),
        ("pip list --outdated", "pip list"),
        ("pip show -f numpy", "pip show"),
    ],
)
def test_a_prefix_is_offered_of_what_is_known_whole(line, prefix):
    assert offered(line) == prefix
    assert may_be_offered(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        *("npm test", "npm run test -- --watch", "cargo build", "go test ./...", "pytest -x tests"),
        *(
            "make test",
            "make -C sub test",
            "pip install numpy",
            "uv sync",
            "frobnicate --all now",
            "make",
            "cp a b",
        ),
        *(
            "git push origin main",
            "git fetch",
            "git commit -m x",
            "coverage run x.py",
            "cmake -E x",
        ),
        *("git status --unknown", "git diff --no-index a b", "mkdir ../x", "touch /etc/x"),
        *(
            "ruff check --config x",
            "cmake -E x",
            "pylint --errors-only x",
            "jupyter nbconvert --execute x",
        ),
    ],
)
def test_of_all_others_the_very_command_is_offered(line):
    assert offered(line) == ""
    assert may_be_offered(shlex.split(line))


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
        *("git -c core.pager=x status", "git --exec-path=x log", "git fetch --upload-pack=x"),
        *("./run", "bin/x y", "/usr/bin/git status", "../x", "A=b ls", "make -C ../x"),
        *("one two three four five six seven eight nine", f"frobnicate {'a' * 101}"),
        *("tar --to-command=x xf a", "pip install --python x y", ""),
    ],
)
def test_nothing_is_offered_for_what_runs_anything(line):
    assert offered(line) == ""
    assert not may_be_offered(shlex.split(line))


@pytest.mark.parametrize(
    ("line", "wanted", "prefix"),
    [
        ("mkdir -p d1", "mkdir -p", "mkdir -p"),
        ("mkdir -p d1", "mkdir", "mkdir"),
        ("git log -p src", "git log -p", "git log -p"),
        ("git log -p src", "git", "git log"),
        ("git log -p src", "git add", "git log"),
        ("touch made", "touch made more", "touch"),
        ("git push origin main", "git push origin", ""),
        ("pytest tests/unit", "pytest", ""),
        ("python x.py", "python x.py", ""),
        ("rm -rf build", "rm -rf build", ""),
    ],
)
def test_the_model_s_wish_may_only_make_it_narrower(line, wanted, prefix):
    assert offered(line, wanted) == prefix


# What may follow each prefix that is offered, and what makes of it another command.
FOLLOWING = {
    "git status": ("-s", "--porcelain=v2", "src -b"),
    "git log": ("-p", "-n 3", "--since=yesterday HEAD~2", "-5 --format=%h"),
    "git show": ("HEAD", "--stat HEAD^"),
    "git diff": ("", "-U5", "--cached src", "HEAD -- src"),
    "git add": (".", "-A", "-fv src", "-- src"),
    "mkdir": ("-p a/b", "-m 700 x", "-pv a b"),
    "touch": ("a b",),
    "ruff check": (".", "--fix src", "--select=E"),
    "ruff format": ("--check",),
    "pip list": ("--format=json",),
    "pip show": ("numpy pandas",),
}
HOSTILE = (
    *("--no-index /etc/shadow /dev/null", "/etc/shadow /dev/null", "-- ../../x /dev/null"),
    *(
        "--output=x",
        "-O",
        "--ext-diff",
        "--textconv",
        "--format=%G?",
        "--pretty %GK",
        "--format=%-GS",
    ),
    *("--config x", "--config=x", "--rcfile=x", "--init-hook=x", "-c x", "--cache-dir /x"),
    *("--pathspec-from-file=x", "../x", "a/../../x", "/x", "~/x", "-X", "--unknown", "-S key x y"),
    *("--output-file x", "--show-signature", "--python x", "--log x", "-r /etc/passwd"),
)


@pytest.mark.parametrize("prefix", FOLLOWING)
def test_a_prefix_covers_what_is_known_and_nothing_else(prefix):
    words = prefix.split()
    for rest in FOLLOWING[prefix]:
        assert covers_rest([*words, *rest.split()], len(words)), rest
    allowed = [rest for rest in HOSTILE if covers_rest([*words, *rest.split()], len(words))]
    assert set(allowed) <= {"-S key x y", "-c x"}  # a search for a text; touch -c


@given(st.sampled_from(list(FOLLOWING)), st.lists(st.text(max_size=12), max_size=5))
def test_no_word_that_is_covered_leads_out(prefix, rest):
    argv = [*prefix.split(), *rest]
    if covers_rest(argv, 1):
        operands = [word for word in rest if not word.startswith("-")]
        assert not any(word.startswith(("/", "~")) or ".." in word.split("/") for word in operands)


@pytest.mark.parametrize(
    "line",
    [
        *("git fetch --upload-pack=x", "git fetch --upload-p x", "git push --receive-pack x"),
        *("git log --ext-diff", "git grep -O x", "git grep -nO x", "git log --output=x"),
        *("tar xf a --to-command=x", "tar xf a -I x", "tar cf a --checkpoint-action=exec=x"),
        *("rg --pre x y", "rg -nz x", "sort -o x", "sort --compress-prog x", "make -f x"),
        *("pytest -p x", "go test -exec x", "pandoc --filter x", "npm --script-shell=x test"),
        *("tar cIf ./x o.tar a", "tar cfI o.tar ./x a", "tar xTf list a", "tar -T list -cf o.tar"),
        *("tar xFf x a", "tar --use-compress=x -xf a", "bsdtar cf a --use-compress-program x"),
        *("find . -exec sh -c x ;", "find . -execdir x +", "find . -ok x ;", "find . -okdir x ;"),
        *("find . -fprintf a %p", "find . -fls a", "fd -x sh", "fd -HX sh", "fdfind . --exec=sh"),
        *("fd --exec-batch sh", "rsync -e ./x a h:b", "rsync -ae ./x a h:b", "rsync --rsh=x a h:b"),
        *("rsync --rsync-path=x a h:b", "rsync -M--rsync-path=x a h:b", "go vet --vettool ./x"),
        *("go build -toolexec=./x", "go build --toolexec=./x", "go build --toolexec ./x"),
        *("go test --exec x", "go build -ldflags=-extld=./x", "go build -ldflags '-s -extld ./x'"),
        *("sed '1e ./x' f", "sed -n '1e ./x' f", "sed e f", "sed 's/a/b/e' f", "sed s/a/b/ge f"),
        *(
            "sed '1w x' f",
            "sed 's/a/b/w x' f",
            "sed -e p -e '1e x' f",
            "sed --expr=1ex f",
            "sed W f",
        ),
        *("sed -ne 1ex f", "sed 's|a|b|;1e x' f", "sed -e '/a/{e x' -e '}' f", "sed -f x f"),
        *(
            "sed --file=x f",
            "sed -i.bak '1!e x' f",
            "sed '/[/]/p;/e;/p' f",
            "sed 's,[,]A,p,e;,p' f",
        ),
        *("sed ':a e x' f", "sed 't a w x' f", "sed 'T;:a\te x' f", "sed ': a w x' f"),
        *("sed 'y/e/w/;e' f", "sed 'a b\ne x' f", "sed -i '' '1w x' f", "sed -s -E '0~3e x' f"),
        *(
            "awk 'BEGIN{system(\"x\")}' f",
            "awk '{print|\"sh\"}'",
            "awk -- '-v+system(\"id\")' f",
            "awk -F, -- '-F+system(\"id\")' f",
            "awk '\"x\" | getline'",
            "awk -f x f",
        ),
        *("gawk '@load \"x\"' f", "gawk -i x 1 f", "mawk '{print | cmd}' f", "awk --file x f"),
        *("env ./x", "env -i A=b x", "env -S x", "env -Sx", "xargs x", "xargs -n 1 x", "xargs {}"),
        *("parallel x", "watch -n 2 x", "time x", "nice -n 5 x", "nice -5 x", "timeout 5 x"),
        *("timeout -k 1s 2.5m x", "nohup x", "stdbuf -o0 x", "command x", "exec x", "eval x"),
        *("make SHELL=./x", "make SHELL:=x all", "make MAKEFLAGS=x", "make --eval=x", "make -fx"),
        *("ssh -o ProxyCommand=x h", "ssh -oproxycommand=x h", "ssh -F x h", "scp -S x a h:b"),
        *("ssh -o 'LocalCommand x' h", "scp -o PKCS11Provider=x a h:b", "sftp -D x", "ssh -I x h"),
        *("curl -K x", "curl --config x", "curl -sK x u", "curl --engine x u", "wget -e a=b u"),
        *("wget --use-askpass=x u", "wget --execute a u", "man -P x y", "man --pager=x y"),
        *("man -Hx y", "less +!x f", "less '+|$x' f", "more +x f", "less -k x f", "vim -c x f"),
        *("vim +x f", "vim --cmd x f", "vim -S x", "vi -es f", "vim -u x f", "split --filter=x f"),
        *("pdflatex -shell-escape x", "pdflatex --shell-escape x", "bat --pager x f"),
        *(
            "fzf --preview x",
            "git submodule foreach x",
            "git bisect run x",
            "git send-email --to-cmd=x",
            "git filter-branch --tree-filter x",
            "git filter-branch --setup x --prune-empty",
            "git svn fetch --authors-prog=x",
            "git merge-index x -a",
        ),
    ],
)
def test_options_that_run_something_else_are_known(line):
    assert runs_another(shlex.split(line), 1)


@pytest.mark.parametrize(
    "line",
    [
        *("git push -u origin main", "git log -p", "git commit -am x", "git add -u"),
        *("git diff -U3", "tar xzf a", "rg -n x", "make test", "pytest -xvs"),
        *("frobnicate --pre x", "git switch -c a", "tar czf o.tar a", "tar tf a", "tar -xf a -C b"),
        *("find . -name '*.py' -type f", "find . -newer x -print0", "fd -e py -H", "fd -t f x"),
        *(
            "rsync -avz --delete a h:b",
            "rsync --exclude=x a b",
            "go build -v ./...",
            "go test -run x",
        ),
        *(
            "go build -ldflags '-s -w' -o b",
            "sed s/a/b/ f",
            "sed -i 's/a/b/g;s/c/d/' f",
            "sed -n 1,5p f",
        ),
        *(
            "sed -n '/a/,/b/p' f",
            "sed '$d' f e w",
            "sed -E 's|(a)[^/]b|\\1/e|2' f",
            "sed -e 1d -e 2d f",
        ),
        *(
            "sed '1i e x' f",
            "sed ':a;N;$!ba;s/\\n/ /g' f",
            "sed 'y/abc/ewW/' f",
            "sed '/^#/!{s/a/w/;p}' f",
        ),
        *(
            "sed -i.bak -n '/[0-9]e/p' w",
            "sed -i '' 's/[[:space:]]*$//' f",
            "sed 5q e",
            "sed -ne 2p f",
        ),
        *(
            "awk '{print $1}' f",
            "awk -F'|' '$3 > 5 || $2' f",
            "awk -F '|' '{s+=$1} END{print s}' f",
        ),
        *(
            "env",
            "env A=b",
            "xargs",
            "xargs -0",
            "time",
            "make PREFIX=/x CFLAGS=-O2",
            "make -j4 all",
        ),
        *("ssh h ls", "ssh -p 22 -i k h", "scp -r a h:b", "ssh -o StrictHostKeyChecking=no h"),
        *("curl -sSL u -o x", "wget -qO- u", "man 3 x", "less -R f", "vim f", "split -l 5 f"),
        *("pip install -r x", "npm ci", "docker ps", "pdflatex x", "git log --diff-filter=A"),
    ],
)
def test_ordinary_options_are_no_such(line):
    assert not runs_another(shlex.split(line), 1)


# A day of a person who works with data.
ORDINARY = r"""
awk '/foo|bar/ {print $1}' x
awk '{print}' system.log
awk '{print $1 "|" $2}' x
awk '/@/ {n++} END {print n}' mails.txt
awk '/ada@example/ || /a|b/' x
awk -F'[|,]' '{print $2}' x
awk -F '|' -v OFS='|' '{print $1, $3 / 2 "|"}' x
awk -vlimit=3 -F, 'NR > 1 && $3 ~ /^(a|b)$/ {s += $3} END {print s / NR}' 'a|b.csv'
awk 'NR==1 || /x|y/{c[$1]++} END{for (k in c) print k "|" c[k]}' x
awk '{print ($1 + $2) / 2 "|"}' x
awk '$2 !~ /[[:space:]|]/ # a | b' x
awk '{split($0, a, /[,|]/); gsub(/"/, "\\|"); print a[1] / a[2], system}' x
awk 'BEGIN{FS="|"} $3=="a|b" {print}' data@2024.csv
sed 's/[^/]*$//' x
sed -E 's/.*[/]//' x
sed 's|[^|]*$||;s/a/b/' x
sed -n '10,20p' x
sed -i 's/foo/bar/g' notes.md
git add run
git checkout run
git switch run
git diff run
git commit -m run
git log --oneline -n 5 -- run
git checkout -b foreach
git branch -d run
git merge --no-ff run
git push origin run
git stash pop
git tag -a v1 -m run
git restore run
git worktree add run
git branch -u origin/main
vim +10 f
vim + f
vim '+$' f
less +G f
less +F log
less +100 f
less +/error log
more +20 f
grep -rn 'a|b' src
head -n 5 data.csv
tail -f run.log
cut -d'|' -f1,3 x
sort -t'|' -k2,2n x
sort -u x
uniq -c
wc -l data.csv
tr -s '|' ','
paste -d'|' a b
join -t'|' a b
jq '.a | .b' x.json
find . -name 'run*' -size +1M
tar czf run.tar.gz run
du -sh run
diff -u a b
python run.py
pytest -k 'run or foreach'
make -C sub test
make -Csub/deeper
make --directory=sub -j4
make --directory sub..x all
ninja -C build
ssh host make -C /x
git -C sub log
git --no-pager -C sub/deeper diff
git -C sub push -u origin main
git config user.name x
git config --global user.email a@b
git config --get core.pager
git config --list
git branch -C a b
git commit -C HEAD
git clone --bare h
sqlite3 ./data.db 'select 1'
sqlite3 db .quit
sed 's~a~b~' f
git commit -m"Fix bug"
git commit -am"fix it"
git restore -S f
git grep -c x
git show --cc
git ls-files -u
git push origin HEAD:a
git remote add origin https://h/x.git
psql -c '\conninfo'
ssh h command -v git
npm run build
hg pull
gcc -O2 -Wall -DBUILD -o a a.c -lm
gh pr list
hg log -p
mypy --strict a
nc -z h 80
sqlite3 db .tables
sqlite3 db 'select a.b from a where c = 1.5'
psql -c '\dt' db
psql -c 'select 1' db
mysql -e 'select 1' db
"""


@pytest.mark.parametrize("line", ORDINARY.strip().split("\n"))
def test_what_a_person_does_in_a_day_runs_nothing_else(line):
    assert not runs_another(shlex.split(line), 1)


DANGEROUS = r"""
awk '/a|b/{system("x")}' f
awk '{print "a" | "sh"}' f
awk '"date" |& getline' f
awk '{ "x" | getline d }' f
awk 'BEGIN { system ("x") }' f
awk '"|" {print | cmd}' f
awk -F'|' '{print |"sh"}' f
awk -v x=1 '{print|x}' f
awk -F '|' -- '{print|x}' f
awk -e '{print|"sh"}' f
awk '-e{print|"sh"}' f
awk '--source=/"/ {print|"sh"} /"/' f
awk -e 1 -e '{print|"sh"}' f
awk '/"/ {print | "sh"} /"/' f
awk '{x = 1 / 2; print | "sh"; y = 3 / 4}' f
awk '{x = (1) / 2; print | "sh"; y = 3 / 4}' f
awk '{x = a[1] / 2; print | "sh"; y = 3 / 4}' f
awk '{x++ / 2; print | "sh"; y = 3 / 4}' f
awk '{x = "1" / 2; print | "sh"; y = 3 / 4}' f
awk '{if (x) /"/; print | "sh"; /"/}' f
awk '{print /"/; print | "sh"; /"/}' f
awk '{print $/"/; print | "sh"; /"/}' f
awk '/[/]"/ {print | "sh"} /"/' f
awk '/[[:alpha:]/]"/ {print | "sh"} /"/' f
awk '/[\]/]"/ {print | "sh"} /"/' f
awk '{print "\"" | "sh"}' f
awk '@load "x"' f
gawk '@include "x"; /a|b/' f
gawk '{f = "system"; @f("x")}' f
gawk '{@ f("x")}' f
gawk -lx 1 f
mawk -W exec x
awk '# "\n{print | "sh"} # "' f
make -C ../x
make -C /x
make -C sub/../../x
make -C..
make --directory=/x
make -C sub -f x
make -f x -C sub
make -C sub -C ..
make -C -f x
git -C .. status
git -C /x log
git --no-pager -C sub/../.. diff
git --bare status
git -C log log -x
git config core.fsmonitor x
git config --global alias.a !x
git config --file x user.name y
git config user.name x --file y
git config set core.pager x
git -C sub config core.pager x
git remote-ext a x
git checkout-index --prefix=/x
git apply --unsafe-paths x
tar xPf a
tar xf a --absolute
gcc -wrapper x a.c
gcc -fplugin=x a.c
gcc @x
g++ -B. a.c
clang -Xclang -load a.c
gh alias set a !x
gh extension exec x
hg --config a.b=x log
nc -e x h 1
nc -lc x
pylint --init-hook=x a.py
sqlite3 db '.shell x'
sqlite3 -cmd '.shell x' db
duckdb db " .sh x"
sqlite3 db "select load_extension('x')"
psql -c '\! x'
psql -c '\lo_export 1 x'
psql -c "copy a to program 'x'"
psql -f x
psql -c '\d `x`'
ssh -voproxycommand=x h
scp -qoProxyCommand=x a h:b
ssh -o '"ProxyCommand" x' h
ssh -o smartcarddevice=x h
sed -e p -be '1e x' f
less '-N+!x' f
less '--prompt=a$+!x' f
less '+/h$+!x' f
man -r '$+!x$' ls
zip -T '-TTx;' a.zip f
zip -qTT x -T a.zip f
sqlite3 e.db -Ax
cpio -id
gcc -Wl,-plugin,./e.so x.c
gcc-12 -Xlinker -plugin x.c
git push /x HEAD:a
git push ../x
git push --repo=/x
git remote add a /x
git difftool -y -t x HEAD
make 'X:=$(shell x)' -n
make 'X!=x'
npm -script-shell=x run y
npm exec -c x
npm config set script-shell=x
pip config edit --editor x
cargo rustc -- -Clinker=x
hg pull -e x ssh://h/y
strace '-o|x' -p 1
tar -cM -f v.tar a
tar cf '-oproxycommand=x:y' .
vimdiff +!x a b
nvim -l x
go env -w CC=x
pytest @x
pandoc -t x.lua a
tree -R -H . -L 1
mysql -e '\! x'
mariadb -e 'system x'
ninja -C ..
ninja -C build -f x
git bisect run x
git -C a bisect run x
git submodule foreach x
git submodule --recursive foreach x
git hook run pre-commit
git clone ext::x
vim '+!x' f
vim +10!x f
vim '+/a/!sh' f
vim '+$!x' f
less '+!x' f
less '+G!x' f
less '+/a\n!x' f
more '+!x' f
sed 's/[^/]*/e' f
sed 's/[/]*/e/' f
sed 's/[/]a/w x/' f
sed 's/[/]a/ge;/' f
sed 's/[/]a/g;e;/' f
sed 's/[^]/]e/x/e' f
sed 's/[[/]]/x/e' f
sed '1e x;s/[^/]*$//' f
sed 's/[^/]*$//;e' f
sed 's/[^/]*$//e' f
"""


@pytest.mark.parametrize("line", DANGEROUS.strip().split("\n"))
def test_what_is_like_it_and_runs_something_is_known(line):
    assert runs_another([word.replace(r"\n", "\n") for word in shlex.split(line)], 1)


@pytest.mark.parametrize("folder", ["add", "branch", "commit", "log", "push", "status", "switch"])
@pytest.mark.parametrize("below", ["clone -u x h", "clone -c a.b=x h", "fetch -u x"])
def test_a_folder_named_like_a_subcommand_of_git_is_none(folder, below):
    assert runs_another(f"git -C {folder} {below}".split(), 1)


@pytest.mark.parametrize("value", ["add", "log", "switch"])
def test_options_before_the_subcommand_of_git_are_never_those_behind_it(value):
    assert runs_another(f"git -c {value}.a=x {value}".split(), 1)


@pytest.mark.parametrize(
    ("line", "start", "runs"),
    [
        ("git -C /x status", 3, False),
        *(("timeout -s KILL 5 git -c a.b=x y", 5, True), ("env -u FOO git -c a.b=x y", 4, True)),
        *(("watch ls ;x", 2, True), ("watch ls -l", 2, False), ("xargs git log", 2, True)),
        ("git config core.pager x", 2, False),
        *(
            ("timeout 5 make all", 3, False),
            ("timeout 5 make -f x", 3, True),
            ("nice make", 1, True),
        ),
        *(
            ("timeout 5 make", 2, True),
            ("env -i A=b make all", 4, False),
            ("xargs -0 ls -l", 3, False),
        ),
        *(("nice bash x", 2, False), ("nice bash -c x", 2, True), ("env sh -x x", 2, True)),
        *(("env sed 1p f", 2, False), ("env sed 1ex f", 2, True), ("time nice make", 2, True)),
        *(
            ("time nice make all", 3, False),
            ("sed 1ex f", 2, False),
            ("find . -exec sh {}", 3, False),
        ),
    ],
)
def test_what_a_rule_names_itself_is_covered(line, start, runs):
    assert runs_another(shlex.split(line), start) is runs


@pytest.mark.soak
@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from("sy/|ewpda;{}[]^\\!,$1gx\n:btTicqlI~+# "), min_size=1))
def test_no_script_of_sed_that_is_covered_starts_or_writes_anything(pieces):
    script = "".join(pieces)
    if not runs_another(["sed", script, "f"], 1):
        done = subprocess.run(
            ["sed", "--sandbox", script],
            stdin=subprocess.DEVNULL,  # it is read, and may be an endless loop
            capture_output=True,
            timeout=20,
        )
        assert b"disabled in sandbox mode" not in done.stderr


AWK = ["/", '"', '|"touch evil"', " ", "\n", "#", "[", "]", "\\", "print ", "x", *"1;()=~,$"]


@pytest.mark.soak
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.sampled_from(AWK), min_size=3))
def test_no_script_of_awk_that_is_covered_starts_anything(tmp_path, pieces):
    script = f"{{{''.join(pieces)}}}"
    if not runs_another(["awk", script], 1):
        subprocess.run(["awk", script], input=b"1\n", capture_output=True, timeout=20, cwd=tmp_path)
        assert not (tmp_path / "evil").exists()


@given(st.lists(st.text(max_size=20), max_size=10), st.lists(st.text(max_size=20), max_size=4))
def test_what_is_offered_is_a_prefix_of_the_command(argv, wanted):
    prefix = propose_prefix(argv, wanted)
    assert list(prefix) == argv[: len(prefix)]
