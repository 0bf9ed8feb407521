"""The threads that tools run on: enough of them, used again, waited for by nobody."""

import gc
import json
import sys
import threading
import weakref
from concurrent.futures import Future

import pytest

from agent_magics.dispatch.pool import POOL, ThreadPool, _run
from tests.support.turns import PATIENCE, run_script


class Boom(BaseException):
    """Not an `Exception`, as a test library's own are."""


def boom():
    raise Boom("own")


def test_a_job_brings_its_value():
    assert ThreadPool("t").submit(divmod, 7, 2).result(PATIENCE) == (3, 1)


def test_a_job_brings_what_it_raises_of_every_kind():
    with pytest.raises(Boom, match="own"):
        ThreadPool("t").submit(boom).result(PATIENCE)


def test_every_job_runs_at_once_however_many_there_are():
    barrier, pool = threading.Barrier(100), ThreadPool("t")
    jobs = [pool.submit(barrier.wait, PATIENCE) for _ in range(100)]
    assert sorted(job.result(PATIENCE) for job in jobs) == list(range(100))


def test_a_thread_is_used_again_and_ends_when_there_is_no_work():
    pool = ThreadPool("again")

    def wait_no_longer():
        pool._idle_limit = 0.0
        return threading.current_thread()

    pool.submit(int).result(PATIENCE)
    [thread] = [each for each in threading.enumerate() if each.name == "again"]
    assert thread.daemon
    while pool._free == 0:  # it has told the value and comes back for more
        thread.join(0.001)
    assert pool.submit(wait_no_longer).result(PATIENCE) is thread
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert pool.submit(threading.current_thread).result(PATIENCE) is not thread


@pytest.mark.soak
def test_jobs_that_come_while_threads_end_are_all_run():
    pool = ThreadPool("ending", idle_limit=0.0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads meet at more places, and none waits 5 ms to go on
    try:
        for number in range(500):
            assert pool.submit(abs, -number).result(PATIENCE) == number
    finally:
        sys.setswitchinterval(before)


def test_a_job_that_was_cancelled_is_not_run():
    cancelled, ran = Future(), []
    cancelled.cancel()
    _run(cancelled, ran.append, (1,))
    assert ran == []


def test_a_thread_that_waits_holds_nothing_of_its_last_job():
    class Big:
        pass

    pool, big = ThreadPool("t"), Big()
    gone = weakref.ref(big)
    pool.submit(id, big).result(PATIENCE)
    del big
    while pool._free == 0:
        threading.Event().wait(0.001)
    gc.collect()
    assert gone() is None


def test_a_program_ends_although_a_job_hangs():
    run_script(
        "import threading\n"
        "from agent_magics.dispatch.pool import POOL\n"
        "begun = threading.Event()\n"
        "POOL.submit(lambda: (begun.set(), threading.Event().wait()))\n"
        "assert begun.wait(20)\n"
    )


def test_a_forked_child_has_a_pool_that_works():
    told = run_script(
        "import json, os\n"
        "from agent_magics.dispatch.pool import POOL\n"
        "POOL.submit(int).result(20)\n"
        "reading, writing = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.write(writing, json.dumps(POOL.submit(abs, -3).result(20)).encode())\n"
        "    os._exit(0)\n"
        "os.close(writing)\n"
        "print(os.fdopen(reading).read())\n",
        "-W",
        "ignore::DeprecationWarning",
    )
    assert json.loads(told) == 3


def test_tools_share_one_pool():
    name = POOL.submit(threading.current_thread).result(PATIENCE).name
    assert name == "agent-tool"
