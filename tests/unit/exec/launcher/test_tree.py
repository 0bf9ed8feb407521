"""Whoever descends from a process is found and ended, whatever it did to get away."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PREAMBLE = f"""
import ctypes, json, os, signal, subprocess, sys
sys.path.append({str(ROOT)!r})
from agent_magics.exec.launcher import linux, tree
linux.become_subreaper()

def start(script, lines=1):
    process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE)
    said = [process.stdout.readline().decode().strip() for _ in range(lines)]
    return process.pid, said

def state(pid):
    with open(f"/proc/{{pid}}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
"""
DAEMON = "(setsid bash -c 'echo $$; exec sleep 1000' &)"


def run(script: str) -> list:
    """Run `script` in a process of its own, a subreaper; return the JSON it prints."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PREAMBLE + script],
        stdout=subprocess.PIPE,
        timeout=40,
        check=True,
    )
    return json.loads(done.stdout)


def test_reaping_tells_who_ended_and_whether_anybody_is_left():
    seen = run("""
ended = {}
pid = os.posix_spawn("/bin/bash", ["bash", "-c", "exit 3"], {})
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
other, _ = start("echo; exec sleep 1000")
left = tree.reap(ended)
os.kill(other, 9)
os.waitid(os.P_PID, other, os.WEXITED | os.WNOWAIT)
print(json.dumps([ended[pid] >> 8, left, tree.reap(ended), ended[other]]))
""")
    assert seen == [3, True, False, 9]


def test_both_ways_to_look_find_the_same():
    seen = run(f"""
if not tree._has_children_files():
    raise SystemExit("this kernel has no /proc/PID/task/TID/children: half of this cannot be seen")
_, said = start("{DAEMON}; sleep 1000 & echo up; wait", lines=2)
(daemon,) = set(said) - {{"up"}}
by_files = tree.descendants(os.getpid())
table = tree.ProcessTable()
by_scan = tree._walk(os.getpid(), (), table.children_of)
late, _ = start("echo; exec sleep 1000")
table.refresh()
late_found = late in tree._walk(os.getpid(), (), table.children_of)
tree.kill_tree({{}})
table.refresh()
print(json.dumps([sorted(by_files), sorted(by_scan), int(daemon), late_found,
                  tree._walk(os.getpid(), (), table.children_of)]))
""")
    by_files, by_scan, daemon, late_found, afterwards = seen
    assert by_files == by_scan
    assert len(by_files) == 3 and daemon in by_files
    assert late_found
    assert afterwards == []


@pytest.mark.parametrize("without_files", [False, True])
def test_daemons_and_stopped_ones_die(without_files):
    seen = run(f"""
if {without_files}:
    tree._has_children_files = lambda: False
shell, said = start("{DAEMON}; sleep 1000 & echo up; wait", lines=2)
[daemon] = [each for each in said if each != "up"]
os.kill(int(daemon), signal.SIGSTOP)
ended = {{}}
killed = tree.kill_tree(ended)
print(json.dumps([len(killed), shell in killed, int(daemon) in killed, ended[shell],
                  tree.reap(ended)]))
""")
    assert seen == [3, True, True, 9, False]


def test_what_had_ended_already_is_not_counted_as_killed():
    seen = run("""
pid = os.posix_spawn("/bin/true", ["true"], {})
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(json.dumps([tree.descendants(os.getpid()) == [pid], len(tree.kill_tree({}))]))
""")
    assert seen == [True, 0]


def test_children_to_keep_live_on_with_theirs():
    seen = run(f"""
kept, (grandchild,) = start("bash -c 'echo $$; exec sleep 1000' & wait")
_, (daemon,) = start("{DAEMON}; wait")
killed = tree.kill_tree({{}}, keep={{kept}})
alive = tree.descendants(os.getpid())
go_on = [state(each) in "RSD" for each in (kept, int(grandchild))]
tree.kill_tree({{}})
print(json.dumps([int(daemon) in killed, sorted(alive) == sorted([kept, int(grandchild)]), go_on]))
""")
    assert seen == [True, True, [True, True]]


def test_stopped_processes_cannot_fork():
    seen = run("""
import time
start("echo; while :; do /bin/true; done")
forked = set()
while len(forked) < 20:
    forked.update(tree.descendants(os.getpid()))
stopped = tree.stop_tree()
afterwards = []
for _ in range(20):
    time.sleep(0.005)
    afterwards.append(tree.descendants(os.getpid()))
tree.kill_tree({})
print(json.dumps([stopped, afterwards]))
""")
    stopped, afterwards = seen
    # Those found first may have ended before they were stopped; nobody comes.
    assert all(set(found) <= set(stopped) for found in afterwards)


@pytest.mark.parametrize("without_files", [False, True])
def test_a_fork_that_ends_between_two_looks_has_its_child_found(without_files):
    """As where SIGSTOP comes in the middle of a fork: it stops when its child is there."""
    seen = run(f"""
if {without_files}:
    tree._has_children_files = lambda: False
script = "trap 'sleep 1000 & echo $!' USR1; echo; while :; do sleep 1000 & wait $!; done"
process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE)
process.stdout.readline()
children = []

def may_fork(pid, *given, real=tree._may_fork):
    if pid == process.pid and not children:
        os.kill(pid, signal.SIGUSR1)
        os.kill(pid, signal.SIGCONT)
        children.append(int(process.stdout.readline()))
        os.kill(pid, signal.SIGSTOP)
        while state(pid) != "T":
            pass
    return real(pid, *given)

tree._may_fork = may_fork
stopped = tree.stop_tree()
states = [state(pid) for pid in children]
tree.kill_tree({{}})
print(json.dumps([children, stopped, states]))
""")
    (child,), stopped, states = seen
    assert child in stopped and states == ["T"]


def test_a_thread_that_runs_on_may_fork_although_its_leader_has_ended():
    seen = run("""
code = "\\n".join([
    "import ctypes, threading",
    "threading.Thread(target=lambda: (print(flush=True), threading.Event().wait())).start()",
    "ctypes.CDLL(None).pthread_exit(None)",
])
process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE)
process.stdout.readline()
while state(process.pid) != "Z":
    pass
before = tree._may_fork(process.pid, tree._children_of)
stopped = tree.stop_tree()
after = tree._may_fork(process.pid, tree._children_of)
tree.kill_tree({})
print(json.dumps([before, process.pid in stopped, after]))
""")
    assert seen == [True, True, False]


@pytest.mark.needs("root")  # RLIMIT_NPROC counts all processes of a user
@pytest.mark.parametrize("without_files", [False, True])
def test_a_fork_bomb_leaves_nobody(without_files):
    seen = run(f"""
import resource, time
if {without_files}:
    tree._has_children_files = lambda: False
os.setuid(4242)  # the limit does not hold root
resource.setrlimit(resource.RLIMIT_NPROC, (150, 150))
if os.fork() == 0:
    end = time.monotonic() + 50  # should this test fail
    while time.monotonic() < end:
        try:
            os.fork()
        except OSError:
            pass
    os._exit(0)
deadline = time.monotonic() + 20
while len(tree.descendants(os.getpid())) < 100 and time.monotonic() < deadline:
    os.sched_yield()
size = len(tree.descendants(os.getpid()))
killed = tree.kill_tree({{}})
print(json.dumps([size, len(killed), tree.descendants(os.getpid())]))
""")
    size, killed, left = seen
    assert size >= 100 and killed >= 100
    assert left == []


def test_the_foreground_group_is_the_terminals_or_the_leaders_own():
    seen = run("""
import pty
pid, master = pty.fork()
if pid == 0:
    # Job control puts the foreground job into a group of its own.
    os.execvp("bash", ["bash", "-c", "set -m; bash -c 'echo $$; read line'; :"])
with open(master, closefd=False) as terminal:
    job = int(terminal.readline())
on_terminal = tree.foreground_group(pid)
without, _ = start("echo; exec sleep 1000")
seen = [on_terminal == job, on_terminal != pid, tree.foreground_group(without) == without]
tree.kill_tree({})
print(json.dumps(seen))
""")
    assert seen == [True, True, True]
