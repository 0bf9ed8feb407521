"""The package from outside: what importing costs, what works without Jupyter, wrong arguments."""

import inspect
import json
import re

import pytest

import agent_magics
from agent_magics import (
    Agent,
    AgentBudget,
    DynamicToolSpec,
    FatalError,
    InputText,
    ScriptedModel,
    tool,
)
from agent_magics.models.base import ItemDone, ResponseDone
from agent_magics.protocol.items import AssistantMessage
from agent_magics.rows.planning import MapOptions
from agent_magics.settings.keywords import AgentKeywords
from agent_magics.tools import list_dir, read_file, shell
from tests.support.turns import run_script

HEAVY = ("pydantic", "pydantic_core", "openai", "mcp", "ipywidgets", "IPython", "asyncio")
JUPYTER = ("IPython", "ipykernel", "ipywidgets", "anywidget", "comm", "traitlets", "jupyter_client")

RUN = """
import json, pathlib, sys
from agent_magics import Agent, Call, ScriptedModel, tool

@tool
def note(text: str) -> str:
    "Say it back."
    return f"noted {text}"

pathlib.Path("a.txt").write_text("words", encoding="utf-8")
calls = [
    Call("note", {"text": "x"}),
    Call("read_file", {"path": "a.txt"}),
    Call("list_dir", {"path": "."}),
    Call("grep_files", {"pattern": "words"}),
    Call("shell", {"command": ["cat", "a.txt"]}),
    Call("update_plan", {"steps": [{"id": "1", "description": "d", "status": "pending"}]}),
    Call("python", {"code": "1"}),
]
with Agent(ScriptedModel([calls, "Done."]), [note, "data"], approval="never") as agent:
    result = agent.run_sync("Go")
print(json.dumps({
    "status": result.status,
    "calls": {call.name: [call.success, call.output] for call in result.calls},
    "modules": sorted(sys.modules),
}))
"""


def test_importing_the_package_imports_nothing_heavy():
    modules = run_script("import sys, agent_magics; print(*sys.modules)", "-W", "error").split()
    assert "agent_magics" in modules
    assert set(HEAVY).isdisjoint(modules)


def test_importing_agent_and_tool_imports_neither_jupyter_nor_pydantic_nor_openai():
    code = "import sys; from agent_magics import Agent, tool, ScriptedModel; print(*sys.modules)"
    modules = run_script(code, "-W", "error").split()
    assert set(JUPYTER).isdisjoint(modules)
    assert {"pydantic", "pydantic_core", "openai", "mcp", "markdown_it"}.isdisjoint(modules)


def test_a_whole_run_works_without_jupyter():
    told = json.loads(run_script(RUN, "-W", "error"))
    assert told["status"] == "completed"
    assert set(JUPYTER).isdisjoint(told["modules"])
    assert {"openai", "mcp"}.isdisjoint(told["modules"])
    python = told["calls"].pop("python")
    assert not python[0]
    assert "outside one" in python[1]
    assert [name for name, (success, _) in told["calls"].items() if not success] == []


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_looked_for_while_agent_is_imported(collects):
    code = (
        "import gc, agent_magics\n"
        f"gc.{'enable' if collects else 'disable'}()\n"
        "looks = []\n"
        "gc.callbacks.append(lambda phase, info: looks.append(phase))\n"
        "agent_magics.Agent\n"
        "print(looks.count('start') < 2, gc.isenabled())\n"  # one is due when it has ended
    )
    assert run_script(code).split() == ["True", str(collects)]


FIRST_TURN = """
import sys
from agent_magics import Agent, Call, ScriptedModel, tool

@tool
def note(text: str) -> str:
    "Say it back."
    return f"noted {text}"

model = ScriptedModel([Call("note", {"text": "x"}), "Done."])
with Agent(model, [note], approval="never") as agent:
    assert agent.run_sync("Go").status == "completed"
print(*sys.modules)
"""


def test_a_first_turn_with_a_plain_tool_imports_none_of_what_takes_long():
    modules = run_script(FIRST_TURN, "-W", "error").split()
    assert {"pydantic", "annotated_types", "importlib.metadata", "zipfile"}.isdisjoint(modules)
    # Commands, servers, forms, plans, undo and resumed conversations: most programs have none.
    seldom = (
        *("approval.commands", "elsewhere", "engine.past.restoring", "exec.launcher"),
        *("exec.process.", "exec.protected.", "exec.spool", "file_history.workspace"),
        *("files.folders", "mcp.client", "mcp.config.parsing", "mcp.elicitation", "protocol.mcp"),
        *("patch", "records.reading", "render"),
        *("rows", "serve", "symbols.tree_sitter", "tools.asking", "tools.commands"),
        *("tools.mcp.joining", "tools.proposal", "tools.skills"),
    )
    own = [name.removeprefix("agent_magics.") + "." for name in modules if "agent_magics." in name]
    assert [name for name in own if name.startswith(seldom)] == []


def test_the_lazy_names_are_there_and_others_are_not():
    for name in agent_magics.__all__:
        assert getattr(agent_magics, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = agent_magics.nonsense


def test_the_docstring_of_a_public_name_tells_each_of_its_parameters():
    names = [getattr(agent_magics, name) for name in agent_magics.__all__]
    classes = [n for n in names if inspect.isclass(n) and not issubclass(n, Exception)]
    methods = [
        getattr(each, name) for each in classes for name in vars(each) if not name.startswith("_")
    ]
    told = 0
    functions = filter(inspect.isfunction, [*names, *methods])
    for each in [*classes, *functions]:
        doc = inspect.getdoc(each) or ""
        assert doc[:1].isupper() or doc.startswith("agent_magics"), each
        for name, parameter in inspect.signature(each).parameters.items():
            if parameter.kind is not parameter.VAR_KEYWORD and name != "self":
                same = re.search(r"Do the same as|; see `|for arguments see", doc)
                assert same or re.search(rf"\b{name}\b", doc.partition("\n")[2]), (each, name)
                told += 1
    assert told > 80
    keywords = {Agent: AgentKeywords, Agent.map: MapOptions}
    for each, names in keywords.items():
        doc = inspect.getdoc(each)
        assert [name for name in names.__annotations__ if not re.search(rf"\b{name}\b", doc)] == []


def test_tools_are_functions_by_hand(tmp_path):
    (tmp_path / "a.txt").write_text("words\n", encoding="utf-8")
    assert "words" in read_file("a.txt")
    assert len(list_dir(".")) == 1
    assert shell(["cat", "a.txt"]).stdout == "words\n"


def test_no_key_no_server_and_no_recording_fails_with_the_three_ways_out():
    result = Agent(tools=[]).run_sync("Go")
    assert result.status == "failed"
    for way in ("OPENAI_API_KEY", "base_url", "replay"):
        assert way in result.error or way.upper() in result.error


WRONG = {
    "model": (42, "model=42"),
    "tools": (["nonsense"], "no tool named 'nonsense'"),
    "cwd": ("/nowhere/at/all", "cwd='/nowhere/at/all'"),
    "instructions": (3, "instructions=3"),
    "approval": ("always", "approval='always'"),
    "sandbox": ("none", "sandbox='none'"),
    "writable_roots": ("a", "writable_roots='a'"),
    "wire_api": ("smoke", "wire_api='smoke'"),
    "mcp_servers": ({"a": {}}, "mcp_servers"),
    "hooks": ([object()], "hooks"),
    "max_cost": (0, "max_cost=0"),
    "network": ("yes", "network='yes' must be True or False"),
    "features": ({"freeform": True}, "features"),
    "on_question": ("approve", "on_question='approve'"),
    "max_turns": (0, "max_turns=0"),
    "max_tokens": (-1, "max_tokens=-1"),
    "python": ("nowhere", "python='nowhere'"),
    "output_budget": ("many", "output_budget='many'"),
}
MORE_WRONG = [
    ("tools", [42], "not 42"),
    ("cwd", 5, "cwd=5"),
    ("writable_roots", ["/nowhere/at/all"], "'/nowhere/at/all'"),
    ("writable_roots", 5, "writable_roots=5"),
    ("max_turns", True, "max_turns=True"),
    ("max_turns", 1.5, "max_turns=1.5"),
    ("max_cost", "1", "max_cost='1'"),
    ("max_cost", True, "max_cost=True"),
    ("max_cost", float("nan"), "max_cost=nan"),
    ("approval", None, "approval=None"),
    ("model", object(), "no stream method"),
    ("model", "", "model='' must not be empty"),
    ("name", "", "name='' must not be empty"),
    ("name", b"x", "name=b'x' must be text"),
    ("base_url", b"x", "base_url=b'x' must be text"),
    ("base_url", "localhost:11434/v1", "is no address of a server, such as http://"),
    ("base_url", "http://", "base_url='http://' is no address"),
    ("base_url", "ftp://localhost/v1", "base_url='ftp://localhost/v1' is no address"),
    ("base_url", "http://localhost:99999/v1", "is no address"),
    ("base_url", "http://local host/v1", "is no address"),
    ("language_servers", 5, "language_servers=5"),
    ("language_servers", {"python": {"command": "pylsp", "args": 5}}, "['args']=5"),
    ("language_servers", {"python": {"command": "pylsp", "env": "x"}}, "['env']='x'"),
]


@pytest.mark.parametrize(
    ("option", "value", "says"), [(option, *rest) for option, rest in WRONG.items()] + MORE_WRONG
)
def test_a_wrong_argument_is_refused_in_one_sentence_that_names_it(option, value, says):
    with pytest.raises(FatalError) as refusal:
        Agent(**{option: value})
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda agent: agent.fork("2"), "turn='2'"),
        (lambda agent: agent.rewind("2"), "turn='2'"),
        (lambda agent: agent.way_back([]), "turn=[]"),
        (lambda agent: agent.undo(None), "turns=None"),
        (lambda agent: agent.diff("1"), "turn='1'"),
        (lambda agent: agent.spawn("Look.", tools="read_file"), "tools='read_file'"),
        (lambda agent: agent.spawn("Look.", share=[5]), "share=[5]"),
        (lambda agent: agent.spawn("Look.", budget=5), "budget=5"),
        (lambda agent: agent.spawn("Look.", budget=AgentBudget(tokens="5")), "tokens='5'"),
        (lambda agent: agent.spawn(None), "task=None"),
        (lambda agent: agent.serve(tools=5), "tools=5"),
        (lambda agent: agent.call_sync(5), "name=5"),
        (lambda agent: agent.call_sync("look", [1]), "arguments=[1]"),
        (lambda agent: agent.unregister(None), "name=None"),
        (lambda agent: agent.steer(5), "prompt=5"),
        (lambda agent: agent.queue(""), "The prompt is empty"),
        (lambda agent: agent.map_sync(5, ["a"]), "prompt=5"),
        (lambda agent: agent.map_sync("{{text}}", ["a"], into=5), "into=5"),
        (lambda agent: agent.map_sync("{{text}}", ["a"], cache=None), "cache=None"),
        (lambda agent: agent.map_sync("{{text}}", ""), "rows=''"),
        (lambda agent: agent.register(DynamicToolSpec("t", "T.", 5)), "input_schema=5"),
        (lambda agent: agent.register(DynamicToolSpec("t", 5, {})), "description=5"),
        (lambda agent: Agent.resume(5), "conversation_id=5"),
        (lambda agent: ScriptedModel("Hello."), "turns='Hello.'"),
        (lambda agent: tool(mutating="no")(list_dir), "mutating='no'"),
    ],
)
def test_a_wrong_argument_of_a_call_is_refused_in_one_sentence_that_names_it(call, says):
    with Agent(ScriptedModel([]), []) as agent, pytest.raises(FatalError) as refusal:
        call(agent)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("prompt", [5, None, b"x", [5], {"a": 5}, "", " \n", [], [InputText(5)]])
def test_a_prompt_that_is_none_fails_and_the_agent_goes_on(prompt):
    with Agent(ScriptedModel(["Hello."]), []) as agent:
        assert "prompt" in agent.run_sync(prompt).error
        assert agent.run_sync([InputText("Hi.")]).text == "Hello."


class PlainModel:
    """A model of the person's own, with nothing but what `Model` asks for."""

    source = "mine"

    async def stream(self, request):
        yield ItemDone(AssistantMessage("Hello."))
        yield ResponseDone()

    async def close(self):
        pass


def test_a_model_of_one_s_own_works_and_can_be_recorded():
    assert Agent(PlainModel(), []).run_sync("Go").text == "Hello."
    assert Agent(PlainModel(), [], record="x.jsonl").run_sync("Go").text == "Hello."
    assert Agent(tools=[], replay="x.jsonl").run_sync("Go").text == "Hello."


def test_replay_and_record_exclude_each_other():
    result = Agent(tools=[], replay="x.jsonl", record="y.jsonl").run_sync("Go")
    assert "leave one of them out" in result.error


def test_replay_auto_is_the_recording_beside_the_notebook(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "some/where/x.ipynb")
    assert "OPENAI_API_KEY" in Agent(tools=[], replay="auto").run_sync("Go").error
    Agent(ScriptedModel(["Hello."]), [], record="x.agent.jsonl").run_sync("Go")
    assert Agent(tools=[], replay="auto").run_sync("Go").text == "Hello."


def test_a_scripted_model_can_be_recorded_and_played_again(tmp_path):
    recorded = Agent(ScriptedModel(["Hello."]), [], record="x.jsonl").run_sync("Go")
    assert recorded.text == "Hello."
    assert Agent(tools=[], replay="x.jsonl").run_sync("Go").text == "Hello."


def test_a_model_used_before_is_recorded_when_a_run_asks_for_it(tmp_path):
    agent = Agent(ScriptedModel(["One.", "Two."]), [])
    agent.run_sync("Go")
    agent.turn_config(record="x.jsonl").open_model()
    model = agent.turn_config(record="x.jsonl").open_model()
    assert "recorded to x.jsonl" in model.source


def test_settings_of_one_run_are_checked_too():
    agent = Agent(ScriptedModel([]), [])
    with pytest.raises(FatalError, match="approval='x'"):
        agent.turn_config(approval="x")
    with pytest.raises(FatalError, match="'nonsense'"):
        agent.turn_config(nonsense=1)
    assert agent.turn_config(approval="never").config.approval == "never"
    assert agent.config.approval == "on-request"


def test_the_repr_says_which_agent():
    assert repr(Agent("gpt-x", [], name="ada")) == (
        "Agent('gpt-x', name='ada', approval='on-request')"
    )
