"""The model's code runs as a cell would, and leaves no traces but what it defines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.gates import Gate
from tests.support.kernels.cells import outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("live"))) as kernel:
        yield kernel


@dataclass
class Ran:
    """What came of one piece of live code: the cell, and what the model was told.

    Attributes:
        told: the output, without the line about the variables.
        variables: that line.
    """

    outcome: Outcome
    told: str
    variables: str = ""

    @property
    def status(self) -> str:
        return self.outcome.tool("python")["status"]


def _set_up(kernel: Kernel, cell: str) -> None:
    outcome = kernel.run(cell)
    assert outcome.status == "ok", outcome.text


def _run(kernel: Kernel, code: str, *, notebook: bool = False, wrapper: str = "") -> Ran:
    set_up = scripted(f"Call('python', {{'code': {code!r}}})", repr("Done."))
    _set_up(kernel, set_up)
    cell = wrapper + "%%agent --approval never\nGo.\n"
    outcome = kernel.run(cell, notebook=notebook, allow_stdin=notebook)
    assert outcome.status == "ok", outcome.text
    assert not [m for m in outcome.messages if m["msg_type"] in ("error", "execute_result")]
    assert not [m for m in outcome.messages if m["msg_type"] == "stream"], outcome.text
    told, _, variables = kernel.value(f"{outputs()}[0]").partition("\n[Variables: ")
    return Ran(outcome, told, variables.removesuffix(".]"))


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_the_persons_history_is_untouched(kernel: Kernel, wrapper: str) -> None:
    kernel.run("%load_ext agent_magics\n1 / 0")
    kernel.run("'mine'")
    remembered = (
        "import sys\n"
        "def remembered():\n"
        "    last = sys.last_type.__name__, repr(sys.last_value), sys.last_traceback.tb_lineno\n"
        "    return repr(_), repr(__), sorted(Out), last\n"
    )
    kernel.run(remembered)
    kernel.run("'mine'")
    before = kernel.value("remembered()")
    count = int(kernel.value("get_ipython().execution_count"))
    set_up = scripted("Call('python', {'code': '7 * 191\\n'})",
                      "Call('python', {'code': '[][5]'})", repr("Done."))  # fmt: skip
    _set_up(kernel, set_up)
    assert kernel.run("%%agent --approval never\nGo.\n").status == "ok"
    assert kernel.value("remembered()") == before
    assert "1337" in kernel.value(outputs())
    assert "IndexError" in kernel.value(outputs())
    # The set-up, the agent's cell and the three values since: nothing of the model's own counts.
    assert int(kernel.value("get_ipython().execution_count")) == count + 6
    assert "191" not in kernel.value("In[-4:]")
    assert kernel.value("_i").startswith("print(In[-4:])")


def test_the_last_expression_is_shown(kernel: Kernel) -> None:
    ran = _run(kernel, "x = 20\nx + 1")
    assert ran.told == "21"
    assert ran.outcome.tool("python")["output"].strip() == "21"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("10**10_000", "<an int of 33,220 bits>"),
        ("type('Mine', (), {'__repr__': lambda self: 1 / 0})()", "repr raised ZeroDivisionError"),
        ("x = []\nfor _ in range(100_000):\n    x = [x]\nx", "list, 1 element"),
    ],
    ids=["a long number", "a broken repr", "a deep list"],
)
def test_a_last_expression_whose_repr_fails_is_shown_too(
    kernel: Kernel, code: str, told: str
) -> None:
    ran = _run(kernel, code)
    assert told in ran.told and "@r" in ran.told


def test_what_shows_itself_is_shown_once(kernel: Kernel) -> None:
    code = "type('Mine', (), {'_ipython_display_': lambda self: print('shown')})()"
    assert _run(kernel, code).told.startswith("shown\n[@r")


@pytest.mark.parametrize("code", ["20 + 1;", "20 + 1; # quiet", "x = 3"])
def test_a_semicolon_shows_nothing(kernel: Kernel, code: str) -> None:
    assert _run(kernel, code).told == "(no output)"


def test_what_is_defined_stays(kernel: Kernel) -> None:
    _run(kernel, "def twice(n):\n    return 2 * n\nkept = twice(21)")
    assert kernel.value("kept, twice(4)") == "42 8"


def test_top_level_await(kernel: Kernel) -> None:
    code = (
        "import asyncio\nasync def late():\n    await asyncio.sleep(0.001)\n    return 8\n"
        "await late()"
    )
    assert _run(kernel, code).told == "8"


def test_magics_and_commands(kernel: Kernel) -> None:
    assert "loop" in _run(kernel, "%timeit -n1 -r1 1 + 1").told
    assert "from the shell" in _run(kernel, "!echo from the shell").told
    assert "told" in _run(kernel, "%%bash\necho told").told
    assert "no_such_magic" in _run(kernel, "%no_such_magic").told


PLOT = "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('up')"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_figures_belong_to_the_call(kernel: Kernel, wrapper: str) -> None:
    set_up = scripted(f"Call('python', {{'code': {PLOT!r}}})", repr("Done."))
    _set_up(kernel, set_up)
    outcome = kernel.run(wrapper + "%%agent --approval never\nGo.\n")
    kinds = [
        "image" if "image/png" in o["data"] else "item" for o in outcome.outputs if "data" in o
    ]
    assert kinds.count("image") == 1
    assert kinds.index("image") < len(kinds) - 1, "it comes with its call, before the answer"
    assert kernel.value(f"[type(p).__name__ for p in {outputs()}[0]]").count("InputImage") == 1


@pytest.mark.parametrize(
    "code", ["raise SystemExit(3)", "import sys; sys.exit()", "exit()", "quit()"]
)
def test_model_code_cannot_end_the_kernel(kernel: Kernel, code: str) -> None:
    _run(kernel, code)
    assert kernel.alive
    assert kernel.value("1 + 1") == "2"
    assert kernel.value("get_ipython().exit_now") == "False"


RAISES = {
    "plain": "raise {error}",
    "in a function": "def f():\n    raise {error}\nf()",
    "after another": "try:\n    1 / 0\nfinally:\n    raise {error}",
    "in a context": "with open('/dev/null'):\n    raise {error}",
    "of its own class": "class Mine({error}): pass\nraise Mine",
    "in a repr": "class R:\n    def __repr__(self): raise {error}\nR()",
    "in a coroutine": "async def f(): raise {error}\nawait f()",
    "in a task": "import asyncio\nasync def f(): raise {error}\nawait asyncio.create_task(f())",
    "in a gathered task": "import asyncio\nasync def f(): raise {error}\n"
    "await asyncio.gather(f(), f(), return_exceptions=True)",
    "in a group of tasks": "import asyncio\nasync def f(): raise {error}\n"
    "async with asyncio.TaskGroup() as tasks:\n    tasks.create_task(f())",
    "in a task left behind": "import asyncio\nasync def f(): raise {error}\n"
    # Its error is looked at, else another test would be told of it.
    "asyncio.ensure_future(f()).add_done_callback(lambda done: done.exception())",
    "in a callback": "import asyncio\ndef f(): raise {error}\n"
    "asyncio.get_running_loop().call_soon(f)\nawait asyncio.sleep(0)",
    "in a callback left behind": "import asyncio\ndef f(): raise {error}\n"
    "loop = asyncio.get_running_loop()\nloop.call_later(0, loop.call_soon_threadsafe, f)",
    "in a callback of a result": "import asyncio\ndef f(_): raise {error}\n"
    "done = asyncio.get_running_loop().create_future()\n"
    "done.add_done_callback(f)\ndone.set_result(1)",
    "in a reader": "import asyncio, os\nr, w = os.pipe()\n"
    "def f():\n    loop.remove_reader(r); os.close(r); raise {error}\n"
    "loop = asyncio.get_running_loop()\nloop.add_reader(r, f)\nos.close(w)\n"
    "await asyncio.sleep(0)\nawait asyncio.sleep(0)",
    "in a thread": "import threading\ndef f(): raise {error}\n"
    "t = threading.Thread(target=f); t.start(); t.join()",
    "in a generator": "def f():\n    yield 1\n    raise {error}\nlist(f())",
    "in a magic": "%time exec('raise {error}')",
}


@pytest.mark.parametrize("place", RAISES)
@pytest.mark.parametrize(
    ("error", "wrapper"),
    [("KeyboardInterrupt", ""), ("SystemExit", ""), ("KeyboardInterrupt", "%%time\n")],
    ids=["interrupt", "exit", "interrupt of a cell that blocks"],
)
def test_what_model_code_raises_is_neither_an_interrupt_nor_an_end(
    kernel: Kernel, error: str, wrapper: str, place: str
) -> None:
    """The turn goes on, whatever the model's own code raises, and nothing says "interrupted"."""
    code = RAISES[place].format(error=error)
    _set_up(kernel, scripted(f"Call('python', {{'code': {code!r}}})", repr("Done.")))
    outcome = kernel.run(wrapper + "%%agent --approval never\nGo.\n")
    assert outcome.status == "ok", outcome.text
    assert "nterrupted by the person" not in outcome.text
    assert kernel.value("1 + 1") == "2"
    if "task" in place:  # an error that nobody has looked at is told when its task is collected
        kernel.run("import gc; gc.collect()")


def test_code_of_a_cell_that_blocks_does_not_see_the_kernels_task(kernel: Kernel) -> None:
    """A group of tasks, or a time limit, would cancel it: the kernel would answer no more."""
    code = "import asyncio\ntask = asyncio.current_task()"
    _set_up(kernel, scripted(f"Call('python', {{'code': {code!r}}})", repr("Done.")))
    assert kernel.run("%%time\n%%agent --approval never\nGo.\n").status == "ok"
    assert kernel.value("task is None") == "True"
    assert kernel.value("__import__('asyncio').current_task() is None") == "False"


def test_a_syntax_error_is_told(kernel: Kernel) -> None:
    ran = _run(kernel, "for x in\n    pass")
    assert ran.status == "failed"
    assert "SyntaxError" in ran.told
    assert "line 1" in ran.told


def test_a_traceback_is_short_and_no_error_message(kernel: Kernel) -> None:
    ran = _run(
        kernel, "import json\nprint('before')\ndef deep(x):\n    return json.loads(x)\ndeep('{')"
    )
    assert ran.status == "failed"
    assert ran.told.startswith("before\n")
    assert "JSONDecodeError" in ran.told
    assert "line 5 of the code" in ran.told
    assert "line 4 of the code, in deep" in ran.told
    assert "IPython" not in ran.told
    assert "asyncio" not in ran.told
    assert len(ran.told.splitlines()) <= 14


def test_a_handled_error_leaves_the_shell_able_to_show_one(kernel: Kernel) -> None:
    _run(kernel, "1 / 0")
    outcome = kernel.run("1 / 0")
    assert (outcome.status, outcome.error) == ("error", "ZeroDivisionError")
    assert "ZeroDivisionError" in outcome.text


def test_threads_may_print(kernel: Kernel) -> None:
    code = (
        "import threading\n"
        "threads = [threading.Thread(target=print, args=(f'thread {n}',)) for n in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads];"
    )
    told = _run(kernel, code).told
    assert all(f"thread {n}" in told for n in range(8))


def test_a_late_thread_does_not_break_the_next_cell(kernel: Kernel) -> None:
    code = (
        "import sys, threading\ngo = threading.Event()\nkept_stream = sys.stdout\n"
        "late = threading.Thread(target=lambda: (go.wait(10), print('late', file=kept_stream)))\n"
        "late.start()"
    )
    told = _run(kernel, code).told
    following = kernel.run("go.set(); late.join(); print('fine')").text
    assert following.strip().endswith("fine"), told


@pytest.mark.parametrize("notebook", [False, True], ids=["nobody", "notebook"])
def test_huge_output_is_bounded(kernel: Kernel, notebook: bool) -> None:
    ran = _run(kernel, "for n in range(300_000):\n    print('line', n)", notebook=notebook)
    assert len(ran.told) < 12_000
    assert "line 0\n" in ran.told
    size = sum(len(str(message["content"])) for message in ran.outcome.messages)
    assert size < 2_000_000, f"{size} characters of messages"


def test_nothing_is_published_as_html(kernel: Kernel) -> None:
    code = (
        "from IPython.display import HTML, Javascript, Markdown, SVG, display\n"
        "display(HTML('<script>approve()</script>')); display(Javascript('approve()'))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"><script>1</script></svg>'))\n"
        "class Rich:\n"
        "    def _repr_html_(self): return '<b>rich</b>'\n"
        "    def __repr__(self): return 'a rich thing'\n"
        "Rich()"
    )
    ran = _run(kernel, code, notebook=True)
    assert "a rich thing" in ran.told
    mimes = {mime for o in ran.outcome.outputs for mime in o.get("data", {})}
    assert not mimes & {"text/html", "application/javascript", "image/svg+xml"}, mimes


def test_displays_are_kept_in_order(kernel: Kernel) -> None:
    code = "print('one')\ndisplay({'two': 2})\nprint('three')\n'four'"
    assert _run(kernel, code).told.split() == ["one", "{'two':", "2}", "three", "'four'"]


def test_display_tricks_do_no_harm(kernel: Kernel) -> None:
    code = (
        "from IPython.display import clear_output, display, update_display\n"
        "handle = display('first', display_id=True)\nhandle.update('second')\n"
        "update_display('third', display_id=handle.display_id)\n"
        "clear_output(); clear_output(wait=True)\nprint('end')"
    )
    ran = _run(kernel, code)
    assert ran.status == "completed", ran.told
    assert "end" in ran.told


def test_a_cell_inside_model_code(kernel: Kernel) -> None:
    ran = _run(
        kernel, "result = get_ipython().run_cell('print(\"inner\")\\n3 + 4')\nprint(result.success)"
    )
    assert ran.status == "completed", ran.told
    assert ran.told.split() == ["inner", "7", "True"]


def test_a_failing_cell_inside_model_code(kernel: Kernel) -> None:
    ran = _run(kernel, "result = get_ipython().run_cell('1 / 0')\nprint(result.success)")
    assert "False" in ran.told


def test_capture_inside_model_code(kernel: Kernel) -> None:
    assert _run(kernel, "%%capture quiet\nprint('kept')\n5").told == "(no output)"
    assert kernel.value("quiet.stdout.strip()") == "kept"


TWO_AGENTS = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
from agent_magics import Agent, Call, ScriptedModel


def agent(code):
    model = ScriptedModel([Call("python", {"code": code}), "Done."])
    return Agent(model, ["python"], approval="never")


def told(result):
    return result.calls[0].output.partition("\\n")[0]
"""
IN_THREADS = """
begun, end = threading.Event(), threading.Event()
pool = ThreadPoolExecutor(2)
code = "begun.set(); _ = end.wait(60); print('first')"
first = pool.submit(lambda: agent(code).run_sync("Go."))
_ = begun.wait(60)
second = pool.submit(lambda: agent("print('second')").run_sync("Go.")).result()
end.set()
print([told(first.result()), told(second)])
"""
IN_TASKS = """
begun, end = asyncio.Event(), asyncio.Event()
first = asyncio.create_task(agent("begun.set(); await end.wait(); print('first')").run("Go."))
await begun.wait()
second = await agent("print('second')").run("Go.")
end.set()
print([told(await first), told(second)])
"""
NESTED = """
code = "print(told(await agent('print(5)').run('Go.')), told(agent('print(6)').run_sync('Go.')))"
first = await agent(code).run("Go.")
print([told(first), "not run: code of another agent runs"])
"""


@pytest.mark.parametrize(
    ("cell", "first"), [(IN_THREADS, "first"), (IN_TASKS, "first"), (NESTED, "5 6")]
)
def test_of_two_agents_code_one_runs_and_the_kernel_keeps_its_outputs(
    kernel: Kernel, cell: str, first: str
) -> None:
    _set_up(kernel, scripted() + TWO_AGENTS)
    outcome = kernel.run(cell)
    assert f"['{first}', " in outcome.text
    assert "not run: code of another agent runs" in outcome.text
    assert kernel.value("'still ' + 'shown'") == "still shown"
    assert kernel.run("6 * 7").text.strip() == "42"


def test_streams_are_put_back(kernel: Kernel) -> None:
    streams = "[type(s).__module__ for s in (__import__('sys').stdout, __import__('sys').stderr)]"
    before = kernel.value(streams)
    _run(kernel, "import sys\nsys.stdout = None\nraise ValueError('gone')")
    assert kernel.value(streams) == before
    assert kernel.run("import sys\nprint('err', file=sys.stderr)").outputs[0]["name"] == "stderr"
    assert kernel.run("display('shown')\n5").outputs[-1]["data"]["text/plain"] == "5"


def test_logging_set_up_before_goes_on(kernel: Kernel) -> None:
    """A handler that model code installs keeps our stream; its lines are shown where they come."""
    _run(kernel, "import logging\nlogging.basicConfig(force=True)\nlogging.warning('in the call')")
    outcome = kernel.run("logging.warning('after the call')\nprint('fine')")
    assert outcome.status == "ok"
    assert "WARNING:root:after the call" in outcome.text and "fine" in outcome.text
    assert _run(kernel, "logging.warning('in the next')").told == "WARNING:root:in the next"
    kernel.run("logging.basicConfig(force=True)")


HELP = "def double(x):\n    'Twice.'\n    return x * 2\n\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("double?", "Docstring: Twice."),
        ("double??", "return x * 2"),
        ("%pdoc double", "Twice."),
        ("from IPython.core import page; page.page('some\x1b[31m text')", "some text"),
        ("get_ipython().set_next_input('x = 1')", "[Not done: set_next_input; code cannot"),
        ("%recall 1", "[Not done: set_next_input; code cannot"),
        ("get_ipython().set_next_input('x = 1'); 1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_a_pager_would_show_is_read_by_the_model(kernel: Kernel, code: str, told: str) -> None:
    ran = _run(kernel, HELP + code)
    read = (ran.told + ran.variables).replace("Docstring:  ", "Docstring: ")
    assert told in read and "\x1b" not in read
    assert ran.outcome.payload == []


def test_the_person_has_the_pager_and_the_next_cell_again(kernel: Kernel) -> None:
    _run(kernel, "len?\n1 / 0")
    [shown] = kernel.run("len?").payload
    assert shown["source"] == "page" and "Return the number" in str(shown["data"])
    mine = "get_ipython().set_next_input('mine')\n"
    set_up = scripted("Call('python', {'code': 'len?'})", repr("Done."))
    mixed = mine + set_up + "get_ipython().run_cell('%%agent --approval never\\nGo.')"
    [kept] = kernel.run(mixed).payload
    assert kept["text"] == "mine"


def test_input_without_stdin_is_an_error_of_the_call(kernel: Kernel) -> None:
    ran = _run(kernel, "input('name? ')")
    assert ran.status == "failed"
    assert "StdinNotImplementedError" in ran.told


def test_input_with_stdin_is_asked_and_answered(kernel: Kernel) -> None:
    code = "print('hello ' + input('your name? '))"
    _set_up(kernel, scripted(f"Call('python', {{'code': {code!r}}})", repr("Done.")))
    outcome = kernel.run("%%agent --approval never\nGo.\n", allow_stdin=True, answers=["Ann"])
    assert outcome.prompts == ["your name? "]
    assert "hello Ann" in kernel.value(f"{outputs()}[0]")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_is_printed_is_shown_while_the_code_runs(
    kernel: Kernel, tmp_path: Path, stream: str
) -> None:
    """The code goes on only once its first line has been seen in the cell."""
    seen = Gate(tmp_path / "seen")
    code = (
        f"import sys\nprint('fir' + 'st', file=sys.{stream}, flush=True)\n"
        f"open({str(seen.path)!r}).read()\n"
        "print('last')"
    )
    _set_up(kernel, scripted(f"Call('python', {{'code': {code!r}}})", repr("Done.")))

    def look(message: dict[str, Any]) -> None:
        if "first" in str(message["content"]):
            seen.open()

    outcome = kernel.run(
        "%%agent --approval never\nGo.\n", notebook=True, allow_stdin=True, on_message=look
    )
    assert outcome.status == "ok", outcome.text
    assert kernel.value(f"{outputs()}[0]").split()[:2] == ["first", "last"]


AWAITS_A_CANCELLED_TASK = """
import asyncio
task = asyncio.ensure_future(asyncio.sleep(60))
task.cancel()
await task
"""


@pytest.mark.parametrize(
    ("code", "wrapper"),
    [
        (AWAITS_A_CANCELLED_TASK, ""),
        ("import asyncio\nraise asyncio.CancelledError", ""),
        ("import asyncio\nraise asyncio.CancelledError", "%%capture\n"),
    ],
    ids=["awaits a cancelled task", "raises it", "raises it, blocking"],
)
def test_code_that_is_cancelled_by_itself_fails_like_other_code(
    kernel: Kernel, code: str, wrapper: str
) -> None:
    assert "CancelledError" in _run(kernel, code, wrapper=wrapper).told


def test_endless_output_is_bounded_and_can_be_interrupted(kernel: Kernel) -> None:
    code = "while True:\n    print(('ag' + 'ain ') * 100)"
    _set_up(kernel, scripted(f"Call('python', {{'code': {code!r}}})", repr("Done.")))
    size = 0
    pressed = False

    def look(message: dict[str, Any]) -> None:
        nonlocal size, pressed
        size += len(str(message["content"]))
        if not pressed and "again" in str(message["content"]):
            pressed = True
            kernel.interrupt()

    outcome = kernel.run(
        "%%agent --approval never\nGo.\n", notebook=True, allow_stdin=True, on_message=look
    )
    assert (outcome.status, outcome.error) == ("error", "KeyboardInterrupt")
    assert size < 5_000_000
    assert kernel.value("1 + 1") == "2"
