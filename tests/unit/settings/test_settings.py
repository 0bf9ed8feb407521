"""The arguments of `Agent` about what commands may touch: what is refused, and how it is said."""

import re

import numpy as np
import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.config_files.places import user_config_file
from agent_magics.engine.instructions import compose_instructions
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.settings.agent import AgentSettings
from agent_magics.settings.sources import Source
from agent_magics.settings.table import SETTINGS, schema_of
from agent_magics.settings.validation import check_roots, validated
from agent_magics.tools.files.path_judge import PathJudge


def test_network_is_a_setting():
    with Agent(network=True) as agent:
        assert agent.config.network is True
        assert agent.turn_config(network=False).config.network is False
    with pytest.raises(FatalError, match="network='yes' must be True or False"):
        Agent(network="yes")


def test_settings_that_another_thread_replaces_meanwhile_hold_from_the_next_run_on():
    settings = AgentSettings({"model": "first"})
    last = settings.changed({"model": "last"})

    class Replaced(dict):
        """Values in whose place others come while they are read."""

        def items(self):
            settings.given = last
            return super().items()

    settings.given = Source("program", Replaced(settings.given.values))
    assert settings.resolve().settings.model == "first"
    assert settings.resolve().settings.model == "last"


@pytest.mark.parametrize("root", ["/", "/usr", "/home", "/etc"])
def test_the_whole_machine_is_no_workspace(root, tmp_path):
    with pytest.raises(FatalError, match="cannot be written as a whole"):
        Agent(cwd=root)
    with pytest.raises(FatalError, match="cannot be written as a whole"):
        Agent(cwd=tmp_path, writable_roots=[root])
    for sandbox in ("read-only", "danger-full-access"):
        with Agent(cwd=root, sandbox=sandbox) as agent:
            assert agent.config.sandbox is SandboxPolicy(sandbox)


def test_it_stays_refused_for_one_run():
    with Agent(cwd="/", sandbox="read-only") as agent:
        with pytest.raises(FatalError, match="cannot be written as a whole"):
            agent.turn_config(sandbox="workspace-write")
        check_roots(agent.turn_config().config)


def test_a_home_may_be_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Agent(cwd=tmp_path) as agent:
        judge = PathJudge(agent.config)
        judge("analysis.py", "write")
        judge(".gitignore", "write")
        for name in (".bashrc", ".ipython/profile_default/startup/x.py", ".local/lib/x.pth"):
            with pytest.raises(Exception, match="a program's start files"):
                judge(name, "write")


def test_writable_roots_must_exist(tmp_path):
    with pytest.raises(FatalError, match=r"writable_roots=.*is not a folder"):
        Agent(writable_roots=[tmp_path / "none"])


def test_no_root_is_named_through_a_link_that_commands_may_turn(tmp_path):
    work, data, home = (tmp_path / name for name in ("work", "data", "home"))
    for folder in (work, data, home):
        folder.mkdir()
    (home / "data").symlink_to(data)
    (work / "data").symlink_to(home / "data")
    (work / "up").symlink_to(work)
    with Agent(cwd=work, writable_roots=[home / "data"]) as agent:
        assert agent.config.writable_roots == (data,)
    sentence = f"'{data}' is named through a link in '{work}', where a command could turn it"
    for root in (work / "data", work / "up/data"):
        with pytest.raises(FatalError, match=re.escape(sentence)):
            Agent(cwd=work, writable_roots=[root])
        with (
            Agent(cwd=work, writable_roots=[root], sandbox="read-only") as agent,
            pytest.raises(FatalError, match=re.escape(sentence)),
        ):
            agent.turn_config(sandbox="workspace-write")
    user_config_file().parent.mkdir(parents=True, exist_ok=True)
    user_config_file().write_text(f'writable_roots = ["{work}/data"]\n', encoding="utf-8")
    with pytest.raises(FatalError, match=re.escape(sentence)):
        Agent(cwd=work)
    user_config_file().unlink()
    with pytest.raises(FatalError, match="is named through a link"):
        Agent(cwd=work / "up", writable_roots=[work])


def test_a_root_in_the_workspace_that_a_command_replaced_by_a_link_is_refused(tmp_path):
    (tmp_path / "sub").mkdir()
    with Agent(cwd=tmp_path, writable_roots=["sub"]) as agent:
        agent.turn_config()
        (tmp_path / "sub").rename(tmp_path / "old")
        (tmp_path / "sub").symlink_to("/var/tmp")
        with pytest.raises(FatalError, match="is named through a link"):
            agent.turn_config()


# -- features, and what models were made for -------------------------------------------------------


def _offered(agent, **settings):
    specs = agent.turn_config(**settings).specs
    return {tool.spec.name: tool.spec.kind for tool in specs}


@pytest.mark.parametrize(
    ("model", "shell", "patch"),
    [
        ("gpt-5.5", "shell", "freeform"),
        ("gpt-4o", "shell", "function"),
        ("codex-mini-latest", "local_shell", "function"),
        ("claude-sonnet-5", "shell_command", None),
    ],
)
def test_a_set_of_tools_has_the_forms_that_its_model_was_made_for(model, shell, patch):
    shells = {"shell", "shell_command", "local_shell"}
    with Agent(model, "coding") as agent, Agent("gpt-5.5", "coding") as other:
        for offered in (_offered(agent), _offered(other, model=model)):
            assert offered.keys() & shells == {shell}
            assert offered.get("apply_patch") == patch
            assert ({"edit_file", "write_file"} <= offered.keys()) == (patch is None)
            assert "exec_command" in offered


def test_a_tool_that_is_named_is_that_tool_whatever_the_model():
    with Agent("claude-sonnet-5", ["shell", "local_shell"]) as agent:
        assert _offered(agent) == {"shell": "function", "local_shell": "local_shell"}


def test_features_choose_otherwise_for_the_agent_or_for_one_run():
    features = {"shell": "shell_command", "apply_patch": "json", "web_search": True}
    with Agent("gpt-5.5", "coding", features=features) as agent:
        offered = _offered(agent)
        assert (offered["apply_patch"], offered["web_search"]) == ("function", "web_search")
        assert "shell_command" in offered and "shell" not in offered
        offered = _offered(agent, features={})
        assert offered["apply_patch"] == "freeform" and "web_search" not in offered
        with pytest.raises(FatalError, match="features has no 'wings'"):
            agent.turn_config(features={"wings": True})


# -- where the model's code runs -------------------------------------------------------------------


def test_the_instructions_say_where_code_runs(tmp_path):
    live, scratch, off = (
        "runs in the\nperson's own kernel",
        "runs in a\nprocess of its own, not in the person's kernel",
        "The person has\nswitched the python tool off",
    )
    with Agent(cwd=tmp_path, instructions="Speak French.") as agent:
        assert live in compose_instructions(agent.config)
        for place, words in {"live": live, "scratch": scratch, "off": off}.items():
            said = compose_instructions(agent.turn_config(python=place).config)
            assert [each in said for each in (live, scratch, off)].count(True) == 1
            assert words in said
            assert said.endswith("\nSpeak French.\n")
    with Agent(cwd=tmp_path, python="scratch") as agent:
        assert scratch in compose_instructions(agent.config)
        assert live in compose_instructions(agent.turn_config(python="live").config)


def test_a_working_folder_that_was_deleted_is_told_in_one_sentence(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FatalError, match="was deleted"):
        Agent(ScriptedModel([]))


HUGE = ("x" * 100_000, ["x" * 100_000], {"x" * 100_000: 1}, 10**400, -(10**400), "\0", "\ud800")
SECRET = "hunter2hunter2"
SECRETS = [
    ("api_key", [SECRET]),
    ("api_key", {"key": SECRET}),
    ("base_url", f"ftp://user:{SECRET}@host/x"),
    ("base_url", [f"https://user:{SECRET}@host"]),
    ("base_url", f"http://host:99999999/?api_key={SECRET}"),
    ("base_url", f"http://[::1?api_key={SECRET}"),
]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_huge_value_is_refused_in_a_short_sentence(name):
    for value in HUGE:
        said = ""
        try:
            validated({name: value})
        except FatalError as error:
            said = str(error)
        assert len(said) < 2_000


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_key_of_another_type_is_in_no_error(name, value):
    with pytest.raises(FatalError) as error:
        validated({name: value})
    assert SECRET not in str(error.value)


KEY = "sk-proj-Hunter2hunter2Hunter2hunter2"
# A key in the wrong place, by the setting; api_key alone takes it.
MISPLACED = [
    *((name, [KEY]) for name in SETTINGS if name not in ("tools", "hooks", "writable_roots")),
    *((name, KEY) for name in ("approval", "sandbox", "max_turns", "loops", "hooks", "wire_api")),
    ("writable_roots", [KEY]),
    ("base_url", f"ftp://me:{KEY}@host"),
    ("mcp_servers", {KEY: 5}),
    ("mcp_servers", {"x": {"command": "true", "env": KEY}}),
    ("language_servers", {"python": {"command": "true", "args": KEY}}),
]


@pytest.mark.parametrize(("name", "value"), MISPLACED, ids=[each[0] for each in MISPLACED])
def test_no_error_shows_a_key_in_the_wrong_place(name, value):
    with pytest.raises(FatalError) as refused:
        Agent(**{name: value})
    assert "unter2" not in f"{refused.value} {refused.value!r}"


NUMBERS = [name for name in SETTINGS if schema_of(name).get("type") in {"integer", "number"}]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_of_numpy_is_taken_as_pythons(name):
    (value,) = validated({name: np.int64(5)}).values()
    assert value == 5 and type(value) in {int, float}


def test_limits_of_repetition_may_be_of_numpy():
    assert type(validated({"loops": {"identical": np.int64(5)}})["loops"].identical) is int
