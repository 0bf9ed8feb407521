"""The magics themselves: loading, options, words, completion, and what they say when misused."""

import json
import keyword
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_magics.protocol.config import DEFAULT_MODEL
from tests.support.kernels.cells import AGENTS, TOOLS, outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome

DONE = repr("Done.")
AGENT = "%%agent\nGo.\n"
MAGICS = "get_ipython().magics_manager.registry['AgentMagics']"
HISTORY = f"{AGENTS}['default'].session.conversation.history"
PROMPTS = f"[i.content for i in {HISTORY}.items if hasattr(i, 'content')]"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("magics"))) as kernel:
        yield kernel


def _prepare(kernel: Kernel, *turns: str) -> None:
    outcome = kernel.run("%reload_ext agent_magics\n" + scripted(*(turns or (DONE,))))
    assert outcome.status == "ok", outcome.text.strip().splitlines()[-1]


def _says_why(outcome: Outcome, *words: str) -> None:
    """The cell failed with one clear sentence, not with a wall of traceback; it is sent as an
    error, which nbval looks for.
    """
    assert outcome.status == "error"
    assert outcome.error == "UsageError", outcome.error
    (said,) = (each["text"] for each in outcome.outputs if each.get("name") == "error")
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) <= 3, said
    for word in words:
        assert word in said, said


# -- loading -------------------------------------------------------------------------------------


def test_loading_is_silent_and_repeatable(kernel: Kernel) -> None:
    transformers = "len(get_ipython().input_transformers_post)"
    kernel.run("%reload_ext agent_magics")
    before = kernel.value(transformers)
    for line in ("%load_ext agent_magics", "%reload_ext agent_magics", "import agent_magics"):
        outcome = kernel.run(line)
        assert outcome.status == "ok"
        # IPython itself says this much about an extension that is loaded twice, and no more.
        assert "already loaded" in outcome.text if "%load" in line else outcome.outputs == []
    twice = "import agent_magics\nagent_magics.load_ipython_extension(get_ipython())"
    assert kernel.run(twice).outputs == []
    assert kernel.value(transformers) == before


def test_unloading_takes_everything_away(kernel: Kernel) -> None:
    kernel.run("%reload_ext agent_magics")
    before = int(kernel.value("len(get_ipython().input_transformers_post)"))
    assert kernel.run("%unload_ext agent_magics").outputs == []
    assert kernel.run(AGENT).status == "error"
    assert kernel.value("'AgentMagics' in get_ipython().magics_manager.registry") == "False"
    assert int(kernel.value("len(get_ipython().input_transformers_post)")) == before - 1
    assert not [name for name in kernel.complete("%%agent --app") if "--approval" in name]
    _prepare(kernel)
    assert kernel.run(AGENT).status == "ok"


PROBE = """
import json, sys, threading
started = []
threading.Thread.start = lambda thread: started.append(thread.name)
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "agent_magics")
import agent_magics, agent_magics.tools
print(json.dumps([sorted(set(sys.modules) - before), started]))
"""


def _printed(program: str, profile: Path) -> Any:
    """Run a program that uses IPython by itself; return the JSON of its last line."""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "IPYTHONDIR": str(profile)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(ended.stdout.splitlines()[-1])


def test_loading_imports_nothing_heavy(tmp_path: Path) -> None:
    """What is warmed up comes on a thread, which this probe never lets start."""
    loaded, started = _printed(PROBE, tmp_path)
    heavy = {"aiohttp", "pydantic", "mcp", "ipywidgets", "anywidget", "numpy", "pandas", "httpx"}
    assert not heavy & {name.partition(".")[0] for name in loaded}
    # What runs a conversation, and the types of what happens in one: 100 classes, which take long.
    later = ("approval", "composition", "dispatch.context", "dispatch.tool", "engine.session")
    types = (f"protocol.{name}" for name in ("events", "mcp", "ops", "records", "tools"))
    names = {name.removeprefix("agent_magics.") for name in loaded}
    assert not names & {*later, *types, "kernel.cells", "models.base", "render.view"}
    assert "agent-warm-up" in started


FIRST = """
import gc, json, sys, threading
many = [float(number) for number in range({many})]
callers = []
def note(phase, info):
    if info["generation"] == 2:  # the others come at any moment
        callers.append(sys._getframe(1).f_code.co_name)
gc.callbacks.append(note)
from IPython.core.interactiveshell import InteractiveShell
for how in ("load_ext", "reload_ext"):
    InteractiveShell.instance().run_line_magic(how, "agent_magics")
    for thread in threading.enumerate():
        if thread.name == "agent-warm-up":
            thread.join()
warm, collections = {{*sys.modules}}, callers.count("_warm_up") / 2
from agent_magics import Agent
from agent_magics.tools.catalog.discovery import installed_tools
known = installed_tools.cache_info().currsize
Agent(api_key="x").turn_config()
from agent_magics.tools import shell
shell.spec.parameters
print(json.dumps([sorted(warm), sorted({{*sys.modules}} - warm), collections, known]))
"""


@pytest.mark.parametrize("many", [0, 2_500_000])
def test_the_first_cell_waits_for_nothing_of_before(tmp_path: Path, many: int) -> None:
    warm, loaded, collections, known = _printed(FIRST.format(many=many), tmp_path)
    # The HTTP client, tools of installed packages, one garbage collection where it is short.
    assert ("aiohttp" in warm, known, collections) == (True, 1, not many)
    ours = ("agent_magics.tools", "agent_magics.patch", "agent_magics.symbols")
    below = (*ours, "aiohttp", "pydantic")
    assert not [name for name in loaded if name.startswith(below)]
    seldom = ("agent_magics.rows", "agent_magics.elsewhere", "agent_magics.serve")
    assert not [name for name in (*warm, *loaded) if name.startswith(seldom)]


# -- settings ------------------------------------------------------------------------------------


def test_settings_are_traits(kernel: Kernel) -> None:
    _prepare(kernel, "lambda request: request.model")
    assert kernel.run("%config AgentMagics.model = 'other-model'").status == "ok"
    assert kernel.run(AGENT).status == "ok"
    assert kernel.value("_agent.text") == "other-model"
    try:
        assert "untrusted" in kernel.run("%config AgentMagics.approval = 'perhaps'").text
    finally:
        kernel.run("%config AgentMagics.approval = 'on-request'")
        kernel.run(f"%config AgentMagics.model = {DEFAULT_MODEL!r}")


def test_an_option_holds_for_its_cell_alone(kernel: Kernel) -> None:
    model = "lambda request: request.model"
    _prepare(kernel, model, model)
    kernel.run("%%agent --model this-one\nGo.\n")
    assert kernel.value("_agent.text") == "this-one"
    kernel.run(AGENT)
    assert kernel.value("_agent.text") != "this-one"


def test_config_shows_no_key(kernel: Kernel) -> None:
    key = "sk-test-0123456789abcdef"
    kernel.run(f"import os\nos.environ['OPENAI_API_KEY'] = {key!r}")
    try:
        _prepare(kernel)
        shown = [kernel.run(line).text for line in ("%config AgentMagics", "%agent doctor")]
    finally:
        kernel.run("del os.environ['OPENAI_API_KEY']")
    assert "AgentMagics.approval=" in shown[0]
    assert "OPENAI_API_KEY is set" in shown[1]
    assert key not in "".join(shown)


def test_help(kernel: Kernel) -> None:
    outcome = kernel.run("%%agent?")
    reply = kernel.client.execute("%%agent?")
    shown = kernel.client.get_shell_msg(timeout=10)
    while shown["parent_header"].get("msg_id") != reply:
        shown = kernel.client.get_shell_msg(timeout=10)
    text = str(shown["content"]["payload"])
    assert outcome.status == "ok"
    assert "--approval" in text
    assert "--background" in text
    assert "--into" in text


# -- misuse --------------------------------------------------------------------------------------


SHADOWING = """
from agent_magics.kernel.cell.request.options import parse_options
from agent_magics.protocol.errors import FatalError


def is_bound(name):
    try:
        return parse_options(MAGICS.agent.parser, f"--into {name}").into == name
    except FatalError:
        return False
"""


def test_no_answer_takes_the_place_of_what_the_shell_has_bound(kernel: Kernel) -> None:
    _prepare(kernel)
    assert kernel.run("1 + 1\n!true\nMAGICS = " + MAGICS + SHADOWING).status == "ok"
    names = "{*get_ipython().user_ns_hidden, *vars(__import__('builtins'))}"
    assert kernel.value(f"[name for name in {names} if is_bound(name)]") == "[]"
    assert kernel.value("is_bound('df')") == "True"


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%agent --aproval never\nGo.\n", ("--aproval", "did you mean --approval?")),
        ("%%agent --max 3\nGo.\n", ("--max", "--max-turns, --max-tokens, --max-cost.")),
        ("%%agent --xyz=1\nGo.\n", ("--xyz", "--approval", "%%agent? explains")),
        ("%%agent --help\nGo.\n", ("--help", "%%agent? explains")),
        ("%%agent --batch\nGo.\n", ("--batch needs --map",)),
        ("%%agent --ask-above 2\nGo.\n", ("--ask-above needs --map",)),
        ("%%agent --parts out\nGo.\n", ("--parts needs --map",)),
        ("%%agent --engine client\nGo.\n", ("--engine needs --map",)),
        ("%%agent --map [1] --plan\n{{text}}\n", ("--plan does not go with --map",)),
        ("%%agent --map [1] --new\n{{text}}\n", ("--new does not go with --map",)),
        ("%%agent --map [1] --tools coding\n{{text}}\n", ("--tools does not go with --map",)),
        ("%%agent --replay ~no-such-user/x.agent.jsonl\nGo.\n", ("no recording ~no-such-user",)),
        (f"%%agent --replay {'x' * 300}\nGo.\n", ("no recording xxx",)),
        ("%agent map --cache ~no-such-user/x", ("no file ~no-such-user/x",)),
        ("%agent project activate ~no-such-user", ("~no-such-user is no folder",)),
        (f"%agent project activate {'x' * 300}", ("is no folder",)),
        ("%%agent --model ''\nGo.\n", ("--model is empty",)),
        ("%%agent What is 6 * 7?\n", ("below %%agent", "What is 6 * 7?")),
        ("%%agent --approval maybe\nGo.\n", ("maybe", "on-request")),
        ("%%agent --model\nGo.\n", ("--model needs a value; %%agent? explains it.",)),
        ("%%agent --tools reed_file\nGo.\n", ("did you mean read_file?",)),
        ("%%agent --tools 'glob, reed_file'\nGo.\n", ("named 'reed_file'", "mean read_file?")),
        ("%%agent --max-turns many\nGo.\n", ("many",)),
        ("%%agent --max-turns 0\nGo.\n", ("max_turns", "at least 1")),
        ("%%agent --into 1x\nGo.\n", ("1x", "not a variable's name")),
        ("%%agent --into class\nGo.\n", ("class", "not a variable's name")),
        ("%%agent --into print\nGo.\n", ("--into print: Python or IPython uses this name",)),
        ("%%agent --model a --plan --model=b\nGo.\n", ("--model is given twice; give it once.",)),
        ("%%agent\n", ("empty",)),
        ("%%agent\n   \n", ("empty",)),
        ("%%agent --replay missing.agent.jsonl\nGo.\n", ("no recording", "missing.agent.jsonl")),
        ("%%agent\nLook at {{no_such_name}}.\n", ("no_such_name", "NameError")),
        ("%%agent\nLook at {{1 +}}.\n", ("1 +", "SyntaxError")),
        ("%%agent\nLook at {{ {1: {2: 3}} }}.\n", ("{1: {2: 3}}", "} } for two inside")),
        ("%agent nonsense", ("nonsense", "%agent help lists the words")),
        ("%agent statsu", ("statsu", "did you mean status?")),
        ("%agent Plot the sales", ("Plot", "A prompt stands below %%agent")),
        ("%agent doctor now", ("%agent doctor takes: nothing",)),
        ("%agent usage default", ("%agent usage takes: nothing",)),
        ("%agent reset default other", ("reset takes: nothing", "default")),
        ("%agent show nobody", ("show takes: nothing", "default")),
        ("%agent export 'my file.txt'", ("No code has run",)),
        ("%agent export 'my file.ipynb", ("quotation mark",)),
        ("%agent stop --al", ("--al", "default")),
        ("%agent tools hide reed_file", ("did you mean read_file?",)),
        ("%agent answer", ("approve", "deny")),
        ("%agent answer perhaps", ("answer takes", "approve")),
        ("%agent stop", ("background", "stops a cell that runs")),
        ("%agent approvals revoke 7", ("approvals",)),
        ("%agent history nobody", ("history takes: nothing, --code", "default")),
    ],
)
def test_misuse_is_told_in_one_sentence(kernel: Kernel, cell: str, words: tuple[str, ...]) -> None:
    _prepare(kernel)
    _says_why(kernel.run(cell), *words)
    assert kernel.run(AGENT).status == "ok", "the agent is as it was"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_no_key_and_no_recording_names_three_ways_out(kernel: Kernel, wrapper: str) -> None:
    kernel.run("%reload_ext agent_magics")
    outcome = kernel.run(wrapper + AGENT)
    _says_why(outcome, "OPENAI_API_KEY", "OPENAI_BASE_URL", "replay")
    assert kernel.value("_agent.status") == "failed"


def test_a_failed_turn_fails_the_cell(kernel: Kernel) -> None:
    _prepare(kernel, "Call('list_dir', {'path': '.'})")
    _says_why(kernel.run("%%agent --approval never\nGo.\n"), "script")
    assert kernel.value("_agent.status") == "failed"


# -- prompts -------------------------------------------------------------------------------------


def test_interpolation(kernel: Kernel) -> None:
    _prepare(kernel)
    kernel.run("data = {'a': [1, 2]}; word = 'seven'")
    text = r"Take {{word}} and {{data['a'][1]}}, $word, {word}, %s, 100 %, \{{word}}, } { $ %."
    assert kernel.run(f"%%agent\n{text}\n").status == "ok"
    sent = r"Take seven and 2, $word, {word}, %s, 100 %, {{word}}, } { $ %."
    assert kernel.value(f"{PROMPTS}[0]") == sent


def test_a_prompt_may_hold_anything(kernel: Kernel) -> None:
    _prepare(kernel)
    text = (
        "First 'line' \"quoted\" \\n\n\n%time is no magic\n!ls\n  indented ? ???\n"
        "# 日本 \N{SNOWMAN}"
    )
    assert kernel.run(f"%%agent\n{text}\n").status == "ok"
    assert kernel.value(f"{PROMPTS}[0] == {text!r}") == "True"


# -- options -------------------------------------------------------------------------------------


def test_into_names_a_variable_as_python_does(kernel: Kernel) -> None:
    """Python reads the micro sign as the Greek letter."""
    kernel.run(scripted("'Hello.'"))
    assert kernel.run("%%agent --into \u00b5\nHi.\n").status == "ok"
    assert kernel.value("\u00b5") == "Hello."


def test_into_binds_the_answer(kernel: Kernel) -> None:
    _prepare(kernel)
    assert kernel.run("%%agent --into answer\nGo.\n").status == "ok"
    assert kernel.value("answer, _agent.text") == "Done. Done."


def test_the_conversation_goes_on_until_new(kernel: Kernel) -> None:
    _prepare(kernel, DONE, DONE, DONE)
    kernel.run("%%agent\nOne.\n")
    kernel.run("%%agent\nTwo.\n")
    assert kernel.value(PROMPTS) == "['One.', 'Two.']"
    kernel.run("%%agent --new\nThree.\n")
    assert kernel.value(PROMPTS) == "['Three.']"


def test_named_agents_have_conversations_of_their_own(kernel: Kernel) -> None:
    _prepare(kernel)
    kernel.run(scripted(repr("I am the other."), name="other"))
    kernel.run("%%agent --name other\nWho?\n")
    assert kernel.value("_agent.text") == "I am the other."
    assert kernel.value(PROMPTS) == "[]"


OFFERED = "lambda request: ' '.join(sorted(s.spec.name for s in request.tools))"


def test_own_tools_are_offered_and_may_be_named(kernel: Kernel) -> None:
    _prepare(kernel, OFFERED, OFFERED)
    kernel.run(TOOLS)
    kernel.run(AGENT)
    assert {"plain", "awaited", "python", "read_file"} <= set(kernel.value("_agent.text").split())
    kernel.run("%%agent --tools plain read_file\nGo.\n")
    assert kernel.value("_agent.text") == "plain read_file"
    kernel.run("del plain, awaited, waits")


def test_a_tool_defined_again_replaces_the_old(kernel: Kernel) -> None:
    _prepare(kernel, "Call('version')", DONE, "Call('version')", DONE)
    for number in (1, 2):
        kernel.run(f"@tool\ndef version() -> int:\n    '''Tell.'''\n    return {number}\n")
        assert kernel.run(AGENT).status == "ok"
    assert kernel.value(outputs()) == "['1', '2']"
    kernel.run("del version")


# -- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%agent", ("default", "History", "on-request")),
        ("%agent status", ("default", "History", "on-request")),
        ("%agent tools", ("python(", "read_file(", "shell(")),
        ("%agent history", ("**You:** Go.", "list_dir", "**Agent:** Done.")),
        ("%agent approvals", ("Nothing is allowed",)),
        ("%agent answer approve", ("approve",)),
        ("%agent show", ("Done.",)),
        ("%agent doctor", ("ipykernel", "policy answers", "rg")),
        ("%agent help", ("%agent status", "%agent doctor", "%agent help WORD", "%%agent?")),
        ("%agent help tools", ("%agent tools hide NAME", "%agent tools trust")),
        ("%agent reset", ("new conversation",)),
    ],
)
def test_words(kernel: Kernel, line: str, words: tuple[str, ...]) -> None:
    _prepare(kernel, "Call('list_dir', {'path': '.'})", DONE)
    assert kernel.run("%%agent --approval never\nGo.\n").status == "ok"
    outcome = kernel.run(line)
    assert outcome.status == "ok", outcome.text
    shown = "".join(str(item) for item in outcome.items)
    for word in words:
        assert word in shown
    assert "text/markdown" in outcome.outputs[0]["data"], "it reads without the extension too"


def test_before_the_first_answer_agent_alone_says_how_to_begin(kernel: Kernel) -> None:
    kernel.run(scripted())
    kernel.run("%%agent\nThe model fails.\n")
    welcome = str(kernel.run("%agent").items)
    assert "Begin a cell with" in welcome and "%agent login" in welcome and "History" not in welcome
    kernel.run(scripted(DONE))
    kernel.run("%%agent --approval never\nGo.\n")
    assert "History" in str(kernel.run("%agent").items)
    assert "Begin a cell with" in str(kernel.run("%agent welcome").items)


def test_an_approval_can_be_taken_back(kernel: Kernel) -> None:
    code = "Call('python', {'code': '1'})"
    _prepare(kernel, code, DONE, code, DONE)
    kernel.run("%agent answer approve_for_session")
    kernel.run(AGENT)
    assert "1" in str(kernel.run("%agent approvals").items)
    assert kernel.run("%agent approvals revoke 1").status == "ok"
    assert kernel.run(AGENT).tool("python")["status"] == "denied"


def test_answers_that_wait_for_questions_are_listed_and_taken_back(kernel: Kernel) -> None:
    _prepare(kernel, "Call('python', {'code': '1'})", DONE)
    nothing = kernel.run("%agent approvals").text
    kernel.run("%agent answer approve approve")
    assert "approve, approve" in kernel.run("%agent approvals").text
    assert kernel.run("%agent approvals revoke all").text == nothing
    assert kernel.run(AGENT).tool("python")["status"] == "denied"


def test_an_approval_of_another_agent_is_listed_and_taken_back(kernel: Kernel) -> None:
    code = "Call('python', {'code': '1'})"
    _prepare(kernel)
    kernel.run(scripted(code, DONE, code, DONE, name="other"))
    kernel.run("%agent answer approve_for_session")
    kernel.run("%%agent --name other\nGo.\n")
    assert "in this session, agent `other`" in kernel.run("%agent approvals").markdown
    assert "other" not in kernel.run("%agent approvals revoke all").markdown
    assert kernel.run("%%agent --name other\nGo.\n").tool("python")["status"] == "denied"


def _write_rules(kernel: Kernel, text: str) -> None:
    kernel.run(
        "from pathlib import Path\nfolder = Path('.agent_magics'); folder.mkdir(exist_ok=True)\n"
        f"_ = (folder / 'rules.toml').write_text({text!r}, encoding='utf-8')"
    )


RULE = '[[rule]]\npermission = "command"\npattern = ["{}"]\ndecision = "{}"\n'


def test_rules_of_a_project_are_listed_trusted_and_taken_back(kernel: Kernel) -> None:
    touch = "Call('shell', {'command': ['touch', 'made']})"
    asking = "%%agent --approval untrusted\nGo.\n"
    _prepare(kernel, touch, DONE, touch, DONE, touch, DONE)
    _write_rules(kernel, RULE.format("touch", "allow") + RULE.format("mkdir", "forbid"))
    try:
        assert kernel.run(asking).tool("shell")["status"] == "denied"
        listed = kernel.run("%agent approvals").text
        assert "not trusted" in listed
        assert "1 of the project's rules do not hold" in listed
        trusted = kernel.run("%agent approvals trust").text
        assert "touch" in trusted and "mkdir" not in trusted
        assert "hold already" in kernel.run("%agent approvals trust").text
        assert kernel.run(asking).tool("shell")["status"] == "completed"
        assert "touch" not in kernel.run("%agent approvals revoke 1").text
        assert kernel.run(asking).tool("shell")["status"] == "denied"
    finally:
        kernel.run("import shutil; shutil.rmtree('.agent_magics')")


def test_answers_for_the_project_are_listed_and_all_taken_back(kernel: Kernel) -> None:
    calls = [f"Call('shell', {{'command': ['{word}', 'x1']}})" for word in ("mkdir", "touch")]
    _prepare(kernel, f"[{', '.join(calls)}]", DONE)
    _write_rules(kernel, RULE.format("cp", "forbid"))
    try:
        kernel.run("%agent answer approve_for_project approve_for_session")
        kernel.run("%%agent --approval untrusted\nGo.\n")
        listed = kernel.run("%agent approvals").markdown
        assert (
            "in this session" in listed
            and "`command: mkdir …`" in listed
            and "rules.toml" in listed
        )
        left = kernel.run("%agent approvals revoke all").markdown
        assert "mkdir" not in left and "session" not in left
        assert "cp" in left, "what a person wrote by hand is taken back by its number only"
    finally:
        kernel.run("import shutil; shutil.rmtree('.agent_magics')")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%agent approvals trust", ("no rules to trust",)),
        ("%agent approvals revoke", ("revoke N", "revoke all")),
        ("%agent approvals revoke x", ("N is a number",)),
        ("%agent approvals forget", ("revoke N",)),
    ],
)
def test_misuse_of_approvals_is_told(kernel: Kernel, cell: str, words: tuple[str, ...]) -> None:
    _prepare(kernel)
    _says_why(kernel.run(cell), *words)


def test_a_broken_file_of_rules_fails_the_cell_in_one_sentence(kernel: Kernel) -> None:
    _prepare(kernel, DONE)
    _write_rules(kernel, "nonsense\n")
    try:
        _says_why(kernel.run("%%agent\nGo.\n"), "rules.toml, line 1", "TOML")
        _says_why(kernel.run("%agent approvals"), "rules.toml, line 1")
    finally:
        kernel.run("import shutil; shutil.rmtree('.agent_magics')")


# -- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "offered"),
    [
        ("%%agent --app", "--approval"),
        ("%%agent --approval ", "on-request"),
        ("%%agent --approval nev", "never"),
        ("%%agent --model x --sand", "--sandbox"),
        ("%%agent --tools rea", "read_file"),
        ("%%agent --tools read_file py", "python"),
        ("%%agent --tools pla", "plain"),
        ("%%agent --approval=nev", "never"),
        ("%%agent --tools read_file,py", "python"),
        ("%agent st", "status"),
        ("%agent answer app", "approve"),
        ("x = 1\nnames = %agent to", "tools"),
        ("%%agent --model gpt-5.1-c", "gpt-5.1-codex"),
        ("%%agent\nUse @wor", "{{words_of_mine}}"),
    ],
)
def test_completion(kernel: Kernel, code: str, offered: str) -> None:
    _prepare(kernel)
    kernel.run(TOOLS)
    kernel.run("words_of_mine = ['a']")
    assert offered in kernel.complete(code)


@pytest.mark.parametrize(
    "code",
    [
        "%%agent --approval never --too",
        "%agent st",
        "%%agent ",
        "%agent ",
        "%agent s",
        "%agent mcp a",
    ],
)
def test_completion_offers_no_python(kernel: Kernel, code: str) -> None:
    _prepare(kernel)
    start = code.split(" ")[-1]
    offered = kernel.complete(code)
    assert offered
    assert [name for name in offered if not name.startswith(start) or name in keyword.kwlist] == []


def test_completion_of_python_is_left_alone(kernel: Kernel) -> None:
    assert "import" in kernel.complete("imp")


# -- settings ------------------------------------------------------------------------------------

HOOK = """
class Guard:
    seen = 0

    def on_event(self, event):
        Guard.seen += 1
"""


def test_what_is_set_after_the_first_cell_holds_from_the_next(kernel: Kernel) -> None:
    _prepare(kernel, DONE, DONE)
    assert kernel.run(AGENT).status == "ok"
    kernel.run(HOOK)
    kernel.run(f"{MAGICS}.hooks = [Guard()]")
    kernel.run("%config AgentMagics.instructions = 'Speak French.'")
    kernel.run("%config AgentMagics.base_url = 'http://127.0.0.1:9/v1'")
    try:
        assert kernel.run(AGENT).status == "ok"
        assert int(kernel.value("Guard.seen")) > 0
        model = f"{AGENTS}['default']._models.given"
        assert "Speak French." in kernel.value(f"{model}.requests[-1].instructions")
        shown = kernel.run("%agent settings").markdown
        assert "| `instructions` | `Speak French.` | %config |" in shown
        assert "| `base_url` | `http://127.0.0.1:9/v1` | %config |" in shown
        assert re.search(r"\| `cwd` \| `/[^|]+ \| conversation \|", shown)  # nobody has set it
    finally:
        kernel.run(f"{MAGICS}.hooks = []")
        kernel.run("%config AgentMagics.instructions = ''")
        kernel.run("%config AgentMagics.base_url = ''")


def test_settings_among_which_cells_choose_are_listed_with_value_and_source(kernel: Kernel) -> None:
    _prepare(kernel, DONE)
    chosen = {"name": "other", "tools": ["read-only"], "replay": "a.jsonl", "record": "b.jsonl"}
    rows = kernel.run("%agent settings").markdown
    for name, value in {"name": "default", "tools": ["data"], "replay": "auto"}.items():
        assert f"| `{name}` | `{value}` | default |" in rows
    assert "| `record` | - | default |" in rows
    try:
        for name, value in chosen.items():
            kernel.run(f"{MAGICS}.{name} = {value!r}")
        rows = kernel.run("%agent settings").markdown
        for name, value in chosen.items():
            assert f"| `{name}` | `{value}` | %config |" in rows
    finally:
        for name in chosen:
            kernel.run(f"{MAGICS}.{name} = {MAGICS}.traits()[{name!r}].default()")


def test_a_picture_that_is_not_there_is_told(kernel: Kernel) -> None:
    _prepare(kernel, DONE)
    outcome = kernel.run("%%agent\nLook at ![it](gone.png), not ![](https://example.org/a.png).\n")
    assert "no such picture: gone.png." in outcome.text


def test_another_workspace_begins_another_conversation(kernel: Kernel, tmp_path) -> None:
    _prepare(kernel)
    assert kernel.run(AGENT).status == "ok"
    try:
        kernel.run(f"%config AgentMagics.cwd = {str(tmp_path)!r}")
        _says_why(kernel.run(AGENT), "its conversation stays there", "--new")
    finally:
        kernel.run("%config AgentMagics.cwd = '.'")


@pytest.mark.parametrize("cwd", ["~/deeper", "~nobody-here"])
def test_the_workspace_is_read_as_a_typed_path(kernel: Kernel, cwd: str) -> None:
    _prepare(kernel)
    kernel.run(f"{AGENTS}.pop('default')\nimport os.path")
    try:
        kernel.run(f"%config AgentMagics.cwd = {cwd!r}")
        wanted = f"os.path.realpath(os.path.expanduser({cwd!r}))"
        assert kernel.value(f"str({MAGICS}._workspace()) == {wanted}") == "True"
        _says_why(kernel.run(AGENT), "cwd", cwd)
    finally:
        kernel.run("%config AgentMagics.cwd = '.'")


def test_a_deleted_working_folder_is_told_in_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with Kernel(cwd=str(gone)) as kernel:
        kernel.run("import os; os.rmdir(os.getcwd())\n%load_ext agent_magics")
        for cell in ("%agent doctor", "%agent status", "%%agent\nHello.\n"):
            outcome = kernel.run(cell)
            assert outcome.error == "UsageError", cell
            assert "was deleted. Change to one that exists (os.chdir)" in outcome.text
            assert "Traceback" not in outcome.text
