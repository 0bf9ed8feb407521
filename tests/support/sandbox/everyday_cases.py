"""Everyday tasks as bash scripts: each must behave the same in the sandbox."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One task that must work.

    Attributes:
        name: of the test.
        script: for `bash -c` with -eu; `$PY` is a Python.
        says: a regular expression that its whole output matches, without surrounding blanks.
        leaves: file of its folder -> a regular expression for its text, as read from outside.
        before: a script that is run without a sandbox first.
        needs: programs, or `py:MODULE`, without which it is not tested.
        tty: whether it has a terminal.
    """

    name: str
    script: str
    says: str = ""
    leaves: dict[str, str] = field(default_factory=dict)
    before: str = ""
    needs: tuple[str, ...] = ()
    tty: bool = False


def python(code: str) -> str:
    """Return a script that runs `code` from a file, as multiprocessing requires."""
    return f"cat > program.py <<'END'\n{code.strip()}\nEND\n$PY program.py"


_REPOSITORY = """
git init -q -b main .
echo one > a; git add a; git commit -qm one
"""

CASES = [
    # -- git
    Case(
        "git-init",
        "git init -q -b main . && echo one > a && git add a && git commit -qm one"
        " && git log --format=%s",
        "one",
        {".git/HEAD": "ref: refs/heads/main"},
        needs=("git",),
    ),
    Case(
        "git-commit",
        "echo two >> a; git add a; git commit -qm two; git log --format=%s; git status --short",
        "two\none",
        {".git/logs/HEAD": "(?s).*commit: two"},
        before=_REPOSITORY,
        needs=("git",),
    ),
    Case(
        "git-status",
        "echo two >> a; touch b; git status --short",
        r"M a\n\?\? b",
        before=_REPOSITORY,
    ),
    Case(
        "git-diff",
        "echo two >> a; git diff | tail -1; git diff --stat | tail -1 | cut -c2-7",
        r"\+two\n1 file",
        before=_REPOSITORY,
    ),
    Case(
        "git-branches",
        "git checkout -q -b feature; echo two > b; git add b; git commit -qm two;"
        " git checkout -q main; ls; git merge -q feature; ls;"
        " git branch --format='%(refname:short)'",
        "a\na\nb\nfeature\nmain",
        before=_REPOSITORY,
    ),
    Case(
        "git-stash",
        "echo two >> a; git stash -q; cat a; git stash pop -q; cat a",
        "one\none\ntwo",
        {"a": "one\ntwo"},
        before=_REPOSITORY,
    ),
    Case(
        "git-rebase",
        "git checkout -q -b side; echo b > b; git add b; git commit -qm side;"
        " git checkout -q main; echo c > c; git add c; git commit -qm main; git checkout -q side;"
        " git rebase -q main; git log --format=%s",
        "side\nmain\none",
        before=_REPOSITORY,
    ),
    Case(
        "git-tag-show-blame",
        "git tag -a v1 -m first; git describe; git show --stat --format=%s | head -1;"
        " git blame a | wc -l",
        r"v1\none\n1",
        before=_REPOSITORY,
    ),
    Case(
        "git-clone",
        "git clone -q . copy; cat copy/a; cd copy; git log --format=%s",
        "one\none",
        before=_REPOSITORY,
    ),
    Case(
        "git-worktree",
        "git worktree add -q tree; cat tree/a; git worktree remove tree; ls",
        "one\na",
        before=_REPOSITORY,
    ),
    Case(
        "git-gc",
        # It says that .git/info may not be written, where that is protected.
        "git gc -q 2>/dev/null; git fsck 2>&1; git log --format=%s;"
        " ls .git/objects/pack/*.pack | wc -l",
        "one\n1",
        before=_REPOSITORY,
    ),
    Case(
        "git-rm-mv-reset",
        "git mv a b; git status --short; git reset -q --hard; ls; git rm -q a; ls",
        "R  a -> b\na",
        before=_REPOSITORY,
    ),
    # -- archives
    Case(
        "tar",
        "mkdir d; echo x > d/f; chmod 640 d/f; tar czf d.tgz d; rm -r d; tar xzpf d.tgz;"
        " stat -c %a d/f; cat d/f",
        "640\nx",
        {"d/f": "x"},
    ),
    Case(
        "gzip",
        "seq 1000 > n; gzip n; gunzip -c n.gz | tail -1; gzip -d n.gz; wc -l < n",
        "1000\n1000",
    ),
    Case(
        "zip-by-python",
        "echo x > f; $PY -m zipfile -c a.zip f; rm f; $PY -m zipfile -e a.zip .; cat f",
        "x",
    ),
    Case("xz", "seq 9 > n; xz n; xz -dc n.xz | tail -1", "9", needs=("xz",)),
    Case(
        "zip",
        "echo x > f; zip -q a.zip f; rm f; unzip -q a.zip; cat f",
        "x",
        needs=("zip", "unzip"),
    ),
    # -- compilers and builds
    Case(
        "gcc",
        "echo 'int puts(const char*); int main(){puts(\"hello\");return 0;}' > h.c;"
        " gcc h.c -o h; ./h",
        "hello",
        needs=("gcc",),
    ),
    Case(
        "make",
        "printf 'all: out\\nout: in\\n\\tcp in out\\n' > Makefile;"
        " echo x > in; make -s -j2; cat out",
        "x",
        {"out": "x"},
        needs=("make",),
    ),
    Case(
        "node",
        'node -e \'const fs=require("fs"); fs.writeFileSync("f","x");'
        ' const {execSync}=require("child_process"); console.log(execSync("cat f").toString())\'',
        "x",
        {"f": "x"},
        needs=("node",),
    ),
    Case(
        "node-workers",
        'node -e \'const {Worker}=require("worker_threads"); new Worker('
        '"require(\\"worker_threads\\").parentPort.postMessage(41+1)",{eval:true})'
        '.on("message",console.log)\'',
        "42",
        needs=("node",),
    ),
    # -- Python
    Case(
        "venv",
        "$PY -m venv --without-pip v; v/bin/python -c 'import sys; print(sys.prefix)'",
        r".*/v",
    ),
    Case(
        "pip-install-a-local-wheel",
        "$PY -m pip install -q --no-index --disable-pip-version-check --target lib"
        " ./hello-1-py3-none-any.whl; PYTHONPATH=lib $PY -c 'import hello; print(hello.WORD)'",
        "(?s).*hi",
        {"lib/hello.py": "WORD"},
        before="""$PY - <<'END'
import zipfile
with zipfile.ZipFile("hello-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("hello.py", "WORD = 'hi'\\n")
    info = "hello-1.dist-info"
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: hello\\nVersion: 1\\n")
    about = ("Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any", "")
    wheel.writestr(f"{info}/WHEEL", "\\n".join(about))
    names = ("hello.py", *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD")))
    wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\\n" for name in names))
END""",
        needs=("py:pip",),
    ),
    Case("compileall", "echo 'x = 1' > m.py; $PY -m compileall -q .; ls __pycache__ | wc -l", "1"),
    Case(
        "unittest",
        "printf 'import unittest\\nclass T(unittest.TestCase):\\n def test(self): pass'"
        " > test_t.py;"
        " $PY -m unittest -q 2>&1 | tail -1",
        "OK",
    ),
    Case(
        "pytest",
        'echo \'def test_it(tmp_path): (tmp_path / "f").write_text("x")\' > test_x.py;'
        " $PY -m pytest -q test_x.py | tail -1",
        r"1 passed in .*",
        needs=("py:pytest",),
    ),
    Case(
        "sqlite-python",
        python("""
import sqlite3
base = sqlite3.connect("b.db")
base.execute("pragma journal_mode=wal")
with base:
    base.execute("create table t (n)")
    base.executemany("insert into t values (?)", [(n,) for n in range(100)])
print(base.execute("select sum(n) from t").fetchone()[0])
"""),
        "4950",
    ),
    Case(
        "sqlite3",
        "sqlite3 b.db 'create table t(n); insert into t values (7); select n from t'",
        "7",
        needs=("sqlite3",),
    ),
    Case(
        "asyncio-subprocess",
        python("""
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0].decode().strip())
    print(await asyncio.to_thread(lambda: "thread"))
asyncio.run(main())
"""),
        "hi\nthread",
    ),
    Case(
        "asyncio-unix-server",
        python("""
import asyncio
async def serve(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_unix_server(serve, "s.sock")
    reader, writer = await asyncio.open_unix_connection("s.sock")
    writer.write(b"hi\\n")
    print((await reader.readline()).decode().strip())
    server.close()
asyncio.run(main())
"""),
        "HI",
    ),
    Case(
        "multiprocessing-pool",
        python("""
from multiprocessing import Pool
if __name__ == "__main__":
    with Pool(3) as pool:
        print(sum(pool.map(abs, range(-10, 0))))
"""),
        "55",
    ),
    Case(
        "multiprocessing-manager",
        python("""
from multiprocessing import Manager, Process
def add(shared): shared["n"] = 42
if __name__ == "__main__":
    with Manager() as manager:
        shared = manager.dict()
        process = Process(target=add, args=(shared,))
        process.start(); process.join()
        print(shared["n"])
"""),
        "42",
    ),
    Case(
        "multiprocessing-forkserver",
        python("""
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    with context.Pool(2) as pool:
        print(pool.apply(abs, (-7,)))
"""),
        "7",
    ),
    Case(
        "multiprocessing-spawn",
        python("""
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(abs, (-7,)))
"""),
        "7",
    ),
    Case(
        "multiprocessing-lock-queue",
        python("""
from multiprocessing import Lock, Process, Queue
def put(lock, queue):
    with lock: queue.put("hi")
if __name__ == "__main__":
    lock, queue = Lock(), Queue()
    process = Process(target=put, args=(lock, queue)); process.start()
    print(queue.get()); process.join()
"""),
        "hi",
    ),
    Case(
        "shared-memory",
        python("""
from multiprocessing import shared_memory
ours = shared_memory.SharedMemory(create=True, size=10)
ours.buf[:2] = b"hi"
theirs = shared_memory.SharedMemory(name=ours.name)
print(bytes(theirs.buf[:2]).decode())
theirs.close(); ours.close(); ours.unlink()
"""),
        "hi",
    ),
    Case(
        "process-pool-executor",
        python("""
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(sum(pool.map(abs, [-1, -2])))
"""),
        "3",
    ),
    Case(
        "threads",
        python("""
import threading, queue
box = queue.Queue()
threads = [threading.Thread(target=box.put, args=(n,)) for n in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(box.get() for _ in threads))
"""),
        "190",
    ),
    Case(
        "openpty",
        python("""
import os, tty
master, slave = os.openpty()
tty.setraw(slave)
os.write(master, b"hi"); print(os.read(slave, 2).decode(), os.isatty(slave))
"""),
        "hi True",
    ),
    Case(
        "pty-spawn",
        python("""
import os, pty
def read(fd): return os.read(fd, 1000)
print(pty.spawn(["sh", "-c", "test -t 0 && test -t 1 && echo terminal > f"], read))
"""),
        "(?s).*0",
        {"f": "terminal"},
    ),
    Case(
        "tempfile",
        python("""
import os, tempfile
with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir=folder) as file:
    file.write(b"x"); file.flush(); print(os.path.getsize(file.name))
print(tempfile.gettempdir() == os.environ["TMPDIR"])
"""),
        "1\nTrue",
    ),
    Case(
        "shutil",
        python("""
import os, shutil
os.makedirs("a/b"); open("a/b/f", "w").write("x")
os.chmod("a/b/f", 0o640); os.utime("a/b/f", (1, 1))
shutil.copytree("a", "c"); shutil.move("c/b", "d"); shutil.rmtree("a")
print(oct(os.stat("d/f").st_mode & 0o777), int(os.stat("d/f").st_mtime))
"""),
        "0o640 1",
        {"d/f": "x"},
    ),
    Case(
        "mmap-and-signals",
        python("""
import mmap, signal, time
with open("f", "wb+") as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as memory: memory[:2] = b"hi"
fired = []
signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01)
while not fired: time.sleep(0.01)
print(len(fired))
"""),
        "1",
        {"f": "(?s)hi.*"},
    ),
    Case(
        "localhost-is-refused-clearly",
        python("""
import socket
try: socket.create_connection(("127.0.0.1", 80), 5)
except OSError as error: print(type(error).__name__)
"""),
        "PermissionError|ConnectionRefusedError",
    ),
    Case(
        "numpy",
        "$PY -c 'import numpy as n; print(int(n.dot(n.ones((300,300)), n.ones((300,300))).sum()))'",
        "27000000",
        needs=("py:numpy",),
    ),
    Case(
        "matplotlib",
        '$PY -W ignore -c \'import matplotlib; matplotlib.use("Agg");'
        ' import matplotlib.pyplot as p; p.plot([1,2]); p.savefig("f.png")\' 2>/dev/null;'
        " head -c4 f.png | tail -c3",
        "PNG",
        needs=("py:matplotlib",),
    ),
    Case(
        "pandas",
        '$PY -c \'import pandas as p; p.DataFrame({"a":[1,2]}).to_csv("f.csv");'
        ' print(p.read_csv("f.csv").a.sum())\'',
        "3",
        needs=("py:pandas",),
    ),
    Case("ripgrep", "echo needle > a; rg -l needle", "a", needs=("rg",)),
    # -- files
    Case(
        "cp-p",
        "echo x > a; chmod 640 a; touch -d 2001-02-03 a; cp -p a b; stat -c '%a %y' b | cut -c1-14",
        "640 2001-02-03",
    ),
    Case(
        "cp-r",
        "mkdir -p a/b; echo x > a/b/f; ln -s f a/b/l; cp -a a c; readlink c/b/l; cat c/b/f",
        "f\nx",
    ),
    Case(
        "mv-across-folders",
        "mkdir a b; echo x > a/f; mv a/f b/g; cat b/g; ls a | wc -l; mv b a/; cat a/b/g",
        "x\n0\nx",
        {"a/b/g": "x"},
    ),
    Case(
        "ln",
        "echo x > a; ln a b; mkdir d; ln a d/c 2>/dev/null || cp a d/c; ln -s a e; cat b d/c e",
        "x\nx\nx",
    ),
    Case("mkfifo", "mkfifo p; echo x > p & cat p; wait", "x"),
    Case(
        "chmod",
        "touch f; chmod u+x,go-r f; stat -c %a f; mkdir d; chmod -R 700 d; stat -c %a d; umask 077;"
        " touch g; stat -c %a g",
        "700\n700\n600",
    ),
    Case(
        "chown-to-oneself",
        'touch f; chown "$(id -u):$(id -g)" f; stat -c %u f | grep -cx "$(id -u)"',
        "1",
    ),
    Case("install", "echo x > a; install -D -m 755 a b/c; stat -c %a b/c", "755"),
    Case("touch-d", "touch -d '2001-02-03 04:05' f; date -r f +%Y", "2001"),
    Case(
        "find",
        "mkdir -p a/b; touch a/1 a/b/2; find . -type f | sort; find . -name 2 -delete;"
        " find . -name 2 -exec cat {} +",
        "./a/1\n./a/b/2",
    ),
    Case(
        "sort-big",
        "seq 60000 | tac | sort -n -S 100k | tail -1",
        "60000",
    ),
    Case("xargs", "seq 20 | xargs -P4 -n5 echo | wc -l", "4"),
    Case("sed-i", "echo abc > f; sed -i s/b/B/ f", "", {"f": "aBc"}),
    Case(
        "perl-pi",
        "echo abc > f; perl -pi -e s/b/B/ f; perl -e 'print 6*7'",
        "42",
        {"f": "aBc"},
        needs=("perl",),
    ),
    Case("awk", "seq 10 | awk '{s+=$1} END {print s > \"f\"; print s}'", "55", {"f": "55"}),
    Case(
        "diff-patch",
        "echo a > a; echo b > b; diff -u a b > d || true; patch -s a < d; cat a",
        "b",
        needs=("patch",),
    ),
    Case(
        "dd-split-tee",
        "dd if=/dev/zero bs=1k count=9 2>/dev/null | tee f | split -b 1k - part; ls part* | wc -l;"
        " wc -c < f",
        "9\n9216",
    ),
    Case(
        "random-and-hashes",
        "head -c 100000 /dev/urandom | tee f | sha256sum | cut -c1-64 > h;"
        " sha256sum f | cut -c1-64 | cmp - h && echo same",
        "same",
    ),
    Case(
        "sparse-file-and-truncate",
        "truncate -s 1G f; stat -c %s f; truncate -s 0 f; stat -c %s f",
        "1073741824\n0",
    ),
    Case(
        "flock-mktemp",
        'd=$(mktemp -d); flock "$d/l" echo locked; rmdir "$d" 2>/dev/null || rm -r "$d"',
        "locked",
    ),
    # -- the shell
    Case(
        "job-control",
        "set -m; sleep 60 & jobs | cut -d' ' -f1; kill %1; wait %1 || echo $?",
        r"(?s)\[1\]\+.*143.*",
    ),
    Case(
        "background-and-wait",
        "for n in 1 2 3; do (echo $n > $n) & done; wait; cat 1 2 3",
        "1\n2\n3",
    ),
    Case("trap", "trap 'echo bye' EXIT; trap 'echo usr1' USR1; kill -USR1 $$", "usr1\nbye"),
    Case("here-doc", "cat > f <<END\nx\nEND\ncat <<< y", "y", {"f": "x"}),
    Case(
        "process-substitution",
        "diff <(echo a) <(echo a) && echo same; cat /dev/fd/3 3<<< three; echo x > >(cat); wait",
        "same\nthree\nx",
    ),
    Case(
        "devices",
        "echo x > /dev/null; echo out > /dev/stdout; echo err 2>&1 > /dev/stderr | cat;"
        " head -c 2 /dev/zero | wc -c; cat < /dev/stdin",
        "(?s)out\n.*2",
    ),
    Case(
        "timeout-nice-nohup",
        # The tests may be as nice as can be themselves.
        "timeout 0.2 sleep 9 || echo $?; n=$(($(nice) + 5)); "
        "test $(nice -n 5 nice) -eq $((n > 19 ? 19 : n)) && echo nicer; nohup echo hi 2>/dev/null",
        "124\nnicer\nhi",
    ),
    Case("ulimit", "ulimit -n 100; ulimit -n; ulimit -c 0; ulimit -c", "100\n0"),
    Case("pipeline", "yes 2>/dev/null | head -100000 | wc -l", "100000"),
    Case(
        "ps",
        # It is a shell for a moment, until it has become another program.
        "sleep 60 & for i in $(seq 200); do"
        " ps -e -o comm= | grep -q '^sleep$' && echo seen && break; done; kill $!",
        "seen",
        needs=("ps",),
    ),
    Case(
        "df-du",
        "head -c 100000 /dev/urandom > f; du -k f | awk '{print ($1 >= 96)}'; df . | wc -l",
        "1\n2",
    ),
    Case(
        "id-hostname-uname",
        "id -un >/dev/null 2>&1 || true; id -u; uname -s; hostname >/dev/null && echo ok",
        r"\d+\nLinux\nok",
    ),
    Case("locale-date", "locale charmap; TZ=Asia/Tokyo date -d @0 +%H:%M", "UTF-8\n09:00"),
    Case("getent", "getent hosts localhost >/dev/null; getent passwd root | cut -d: -f1", "root"),
    Case(
        "terminal",
        "test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; echo x > /dev/tty",
        "(?s)terminal\r?\n24 80\r?\nx",
        tty=True,
    ),
    Case(
        "terminal-background",
        "set -m; sleep 60 & fg %1 < /dev/null & sleep 0.1; kill %1; echo ok",
        "(?s).*ok",
        tty=True,
    ),
]
