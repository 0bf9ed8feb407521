"""Every setting of the table is given in each place that it names, and holds from the next run on.

A setting without a case here fails the first test: write down two values for it.
"""

import json
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from agent_magics import Agent
from agent_magics.config_files.places import user_config_file
from agent_magics.dispatch.hooks import Hooks
from agent_magics.kernel.magics import AgentMagics
from agent_magics.kernel.setting_traits import given_in
from agent_magics.models.providers.keys import key_of
from agent_magics.models.recordings.scripted import ScriptedModel
from agent_magics.protocol.config import Where
from agent_magics.protocol.errors import FatalError
from agent_magics.settings.editor import report
from agent_magics.settings.files import ProjectSettings
from agent_magics.settings.keywords import AgentKeywords
from agent_magics.settings.sources import DEFAULT, PROJECT, USER, Source, resolve
from agent_magics.settings.table import DEFAULTS, SETTINGS, settings_in


class Watching:
    """A hook."""

    def on_event(self, event: object) -> None:
        """See it."""


# Two values of each setting, neither of them the default; the second is stricter where a project
# may set it. "FOLDER" is a folder that exists.
CASES: dict[str, tuple[Any, Any]] = {
    "model": ("gpt-4o", "gpt-4o-mini"),
    "cwd": ("FOLDER", "FOLDER"),
    "instructions": ("Be brief.", "Speak French."),
    "approval": ("on-failure", "untrusted"),
    "sandbox": ("danger-full-access", "read-only"),
    "network": (True, False),
    "writable_roots": (["FOLDER"], ["FOLDER"]),
    "max_turns": (7, 3),
    "max_tokens": (900, 500),
    "max_cost": (0.5, 0.25),
    "python": ("scratch", "off"),
    "output_budget": (5_000, 2_000),
    "context_window": (50_000, 40_000),
    "loops": ({"identical": 5}, {"identical": 7}),
    "allow_dangerous": (True, False),
    "check_edits": (False, False),
    "features": ({"web_search": True}, {"service_tier": "flex"}),
    "name": ("one", "two"),
    "tools": (["read_file"], ["grep_files"]),
    "base_url": ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"),
    "api_key": ("secret-one", "secret-two"),
    "wire_api": ("chat", "responses"),
    "mcp_servers": ({"one": {"url": "http://127.0.0.1:9/"}}, {}),
    "language_servers": ({"python": False}, {"rust": {"command": "rust-analyzer"}}),
    "replay": ("one.jsonl", "two.jsonl"),
    "replay_strict": (True, False),
    "record": ("three.jsonl", "four.jsonl"),
    "on_question": (lambda question: "deny", lambda question: "approve"),
    "hooks": ([Watching()], [Watching(), Watching()]),
    "tool_budget": (500, 400),
    "rollout_days": (30, 7),
}


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of settings of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def case(name: str, number: int, folder: Path) -> Any:
    """Return one of the two values, with folders that exist."""
    more = folder / "more"
    more.mkdir(exist_ok=True)
    value = CASES[name][number]
    if isinstance(value, list):
        return [str(more) if each == "FOLDER" else each for each in value]
    return str(more) if isinstance(value, str) and value == "FOLDER" else value


def plain(value: Any) -> Any:
    """Return a value in a form that compares alike wherever it comes from."""
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, os.PathLike):
        return str(value)
    return dict(value) if isinstance(value, dict) else value


def held(name: str, settings: Any) -> Any:
    """Return the value that holds, as it was written."""
    value = plain(getattr(settings, name))
    return {"identical": value.identical} if name == "loops" else value


def test_each_setting_has_a_case():
    assert list(CASES) == list(SETTINGS)


def test_editors_know_the_keywords():
    typed = typing.get_type_hints(AgentKeywords)
    assert sorted(typed) == sorted(set(SETTINGS) - {"model", "tools"})


@pytest.mark.parametrize("name", SETTINGS)
def test_a_program_gives_it_and_a_change_holds_from_the_next_run(name, tmp_path):
    first, second = (case(name, number, tmp_path) for number in (0, 1))
    given = (
        {name: first} if name in ("model", "tools") else {name: first, "model": ScriptedModel([])}
    )
    with Agent(**given) as agent:
        assert held(name, agent.settings_now().settings) == first
        if name in ("cwd", "name"):
            with pytest.raises(FatalError, match=r"its conversation stays there|keeps its name"):
                agent.configure(**{name: str(tmp_path)})
            return
        agent.configure(**{name: second})
        now = agent.settings_now()
        assert held(name, now.settings) == second
        assert now.origins[name] == "program"
        assert_runs_with(agent, name, second)


def assert_runs_with(agent: Agent, name: str, value: Any) -> None:
    """Look at what the next run is really made of."""
    turn_config = agent.turn_config()
    if hasattr(turn_config.config, name):
        assert held(name, turn_config.config) == value
    elif name == "hooks":
        assert isinstance(turn_config.hooks, Hooks) and len(turn_config.hooks.on_events) == len(
            value
        )
    elif name == "tools":
        assert set(value) <= {each.spec.name for each in turn_config.specs}
    elif name == "tool_budget":
        assert agent.catalog.budget == value
    elif name == "api_key":
        assert value in turn_config.secrets


@pytest.mark.parametrize("name", ["writable_roots", "tools", "hooks"])
def test_an_iterator_gives_what_it_yields_to_all_runs(name, tmp_path):
    values = [case(name, number, tmp_path) for number in (0, 1)]
    with Agent(ScriptedModel([]), **{name: iter(values[0])}) as agent:
        for value in values:
            agent.configure(**{name: iter(value)} if value is values[1] else {})
            for _ in "12":
                assert held(name, agent.settings_now().settings) == value
                assert_runs_with(agent, name, value)


@pytest.mark.parametrize("name", ["base_url", "api_key", "wire_api"])
def test_another_server_is_asked_from_the_next_run(name):
    with Agent("gpt-4o", api_key="a-key-of-mine", base_url="http://127.0.0.1:9/v1") as agent:
        before = agent.turn_config().open_model()
        agent.configure(**{name: CASES[name][0] if name != "base_url" else CASES[name][1]})
        after = agent.turn_config().open_model()
    assert before is not after


def configured(settings: dict[str, Any]) -> AgentMagics:
    """Return the magics after these lines of ``%config``."""
    magics = AgentMagics(shell=None)
    magics.lab.close()
    magics.update_config(Config({"AgentMagics": settings}))
    return magics


@pytest.mark.parametrize("name", settings_in(Where.NOTEBOOK))
def test_a_notebook_gives_it(name, tmp_path):
    value = case(name, 0, tmp_path)
    magics = configured({name: value})
    given = given_in(magics)
    assert list(given) == [name]
    if name == "hooks":  # which the configuration copies
        assert len(given[name]) == len(value)
        return
    assert given == {name: value}
    if name in ("replay", "record", "tools"):
        return  # a cell chooses among these itself
    now = resolve([Source("%config", given)])
    assert held(name, now.settings) == value
    assert now.origins[name] == "%config"


def test_what_nobody_gave_a_notebook_does_not_give():
    assert given_in(configured({})) == {}


def test_a_default_that_is_given_is_given():
    assert given_in(configured({"approval": "on-request"})) == {"approval": "on-request"}


@pytest.mark.parametrize("name", settings_in(Where.CELL))
def test_a_cell_has_an_option_for_it(name):
    value = CASES[name][0]
    words = " ".join(value) if isinstance(value, list) else value
    line = f"--{name.replace('_', '-')} {words}"
    assert getattr(AgentMagics.agent.parser.parse_argstring(line), name) == value


# -- files ---------------------------------------------------------------------------------------


def toml(name: str, value: Any) -> str:
    """Return a key of TOML with a value."""
    if isinstance(value, dict):
        pairs = ", ".join(toml(key, each).strip() for key, each in value.items())
        return f"{name} = {{{pairs}}}\n"
    return f"{name} = {json.dumps(value)}\n"


def write_user_file(text: str) -> Path:
    file = user_config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", SETTINGS)
def test_the_persons_file_gives_what_it_may(name, tmp_path):
    value = "x" if name in ("on_question", "hooks") else case(name, 0, tmp_path)
    file = write_user_file(f"# mine\n{toml(name, value)}")
    if name in settings_in(Where.USER):
        now = resolve([])
        assert held(name, now.settings) == value
        assert now.origins[name] == USER
    elif name == "mcp_servers":
        resolve([])  # a table of its own, which others read
    else:
        with pytest.raises(FatalError, match=rf"{file}, line 2: '{name}' is no setting"):
            resolve([])


def test_a_mistake_in_the_persons_file_is_told_with_its_line():
    file = write_user_file('model = "x"\n\nmax_turns = "many"\n')
    with pytest.raises(FatalError) as refusal:
        resolve([])
    assert str(refusal.value) == (
        f"{file}, line 3: max_turns='many' must be a whole number of at least 1."
    )


def project_file(kind: str, text: str) -> None:
    """Write settings of the project that stands in the working folder."""
    if kind == "pyproject":
        Path("pyproject.toml").write_text(
            f'[project]\nname = "x"\n\n[tool.agent-magics]\n{text}', encoding="utf-8"
        )
        return
    Path(".agent_magics").mkdir(exist_ok=True)
    Path(".agent_magics/config.toml").write_text(text, encoding="utf-8")


def trust() -> None:
    project = ProjectSettings(Path.cwd())
    project.trust(project.digest(project.read()))


@pytest.mark.parametrize("kind", ["pyproject", "config"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_project_only_tightens(name, kind, tmp_path):
    value = CASES[name][1]
    if name in ("on_question", "hooks", "mcp_servers"):
        value = "x"
    elif name in ("cwd", "writable_roots"):
        value = case(name, 1, tmp_path)
    project_file(kind, toml(name, value))
    if kind == "config" and name == "mcp_servers":
        assert ProjectSettings(Path.cwd()).read() == ()
        return
    now = resolve([])
    assert now.origins[name] == DEFAULT
    (warning,) = now.warnings
    assert "you have not trusted them" in warning
    trust()
    now = resolve([])
    if name in settings_in(Where.PROJECT):
        assert now.origins[name] == PROJECT and held(name, now.settings) == value
    else:
        assert now.origins[name] == DEFAULT
        assert held(name, now.settings) == held(name, resolve([]).settings)
        (warning,) = now.warnings
        assert f"a project cannot set '{name}'" in warning


LAXER = {
    "approval": "never",
    "sandbox": "danger-full-access",
    "network": True,
    "max_turns": 101,
    "python": "live",
    "output_budget": 20_000,
    "allow_dangerous": True,
}


@pytest.mark.parametrize("name", settings_in(Where.PROJECT))
def test_a_project_cannot_loosen(name):
    strict = CASES[name][1]
    write_user_file(toml(name, strict))
    laxer = LAXER.get(name, 1_000_000)
    project_file("pyproject", toml(name, laxer))
    trust()
    now = resolve([])
    assert held(name, now.settings) == strict
    assert now.origins[name] == USER
    (warning,) = now.warnings
    assert "a project may only tighten" in warning and "pyproject.toml, line 5" in warning


def test_trust_binds_the_table_and_nothing_else_of_its_file():
    project_file("pyproject", "max_turns = 5\n")
    trust()
    text = Path("pyproject.toml").read_text(encoding="utf-8")
    Path("pyproject.toml").write_text(text.replace('"x"', '"y"'), encoding="utf-8")
    assert resolve([]).settings.max_turns == 5
    Path("pyproject.toml").write_text(text.replace("= 5", "= 6"), encoding="utf-8")
    assert resolve([]).settings.max_turns == 100


def test_a_setting_that_a_project_misspells_is_named_with_the_one_meant():
    project_file("pyproject", "max_turn = 5\n")
    trust()
    (warning,) = resolve([]).warnings
    assert "'max_turn' is not a setting; did you mean max_turns?" in warning


@pytest.mark.parametrize("name", ["max_turns", "max_tokens", "output_budget"])
def test_a_number_of_any_size_is_compared(name):
    project_file("pyproject", toml(name, 10**400))
    trust()
    now = resolve([])
    assert now.origins[name] == (PROJECT if name == "max_tokens" else DEFAULT)
    write_user_file(toml(name, 10**400))
    project_file("pyproject", toml(name, 5))
    trust()
    assert getattr(resolve([]).settings, name) == 5


def test_a_broken_project_keeps_nobody_from_working():
    project_file("pyproject", "max_turns = [\n")
    now = resolve([])
    assert now.settings == resolve([]).settings
    (warning,) = now.warnings
    assert "pyproject.toml" in warning and "left out" in warning


def test_who_wins(monkeypatch):
    write_user_file('max_turns = 90\nmodel = "of-the-file"\nbase_url = "http://127.0.0.1:1/v1"\n')
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")
    project_file("pyproject", "max_turns = 80\n")
    trust()
    now = resolve([])
    assert (now.settings.max_turns, now.origins["max_turns"]) == (80, PROJECT)
    assert now.settings.base_url == "http://127.0.0.1:1/v1"
    given = Source("%config", {"max_turns": 95})
    assert resolve([given]).settings.max_turns == 95
    cell = Source("cell", {"max_turns": 96, "model": "of-the-cell"})
    now = resolve([given, cell])
    assert (now.settings.max_turns, now.origins["max_turns"]) == (96, "cell")
    assert now.origins["model"] == "cell" and now.origins["approval"] == DEFAULT
    write_user_file("")
    assert resolve([]).origins["base_url"] == "environment"


@pytest.mark.parametrize(
    "address",
    ["localhost:11434/v1", "a word", "http://", "http://h:99999/v1", "http://h:x", "http://[::1"],
)
def test_a_variable_that_does_not_fit_is_told_by_its_name_where_it_counts(address, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(FatalError, match=r"^The variable OPENAI_BASE_URL: .* is no address"):
        Agent()
    given = Source("program", {"base_url": "http://127.0.0.1:3/v1"})
    assert resolve([given]).settings.base_url == "http://127.0.0.1:3/v1"
    monkeypatch.setenv("OPENAI_API_KEY", "of-whom-is-unknown")
    assert key_of("http://127.0.0.1:3/v1") == ""
    write_user_file('base_url = "http://127.0.0.1:1/v1"\n')
    assert resolve([]).settings.base_url == "http://127.0.0.1:1/v1"


# What changes one source of an agent's settings while it lives, after which its turns differ.
CHANGES: dict[str, Callable[[Agent], object]] = {
    "environment": lambda agent: os.environ.update(OPENAI_BASE_URL="http://127.0.0.1:2/v1"),
    "the person's file": lambda agent: write_user_file("max_turns = 9\n"),
    "JupyterLab": lambda agent: report({"max_turns": 8}),
    "pyproject.toml": lambda agent: project_file("pyproject", "max_turns = 7\n"),
    "config.toml": lambda agent: project_file("config", "max_turns = 6\n"),
    "trust": lambda agent: trust(),
    "program": lambda agent: agent.configure(max_turns=5),
}


def test_a_source_that_changes_is_read_again(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")  # and as it was, afterwards
    with Agent(ScriptedModel([])) as agent:
        for name, change in CHANGES.items():
            before = said(agent)
            assert said(agent) == before
            change(agent)
            assert said(agent) != before, name
    report({})


def said(agent: Agent) -> tuple[object, ...]:
    """Return the settings of an agent's next run, where they are from, and the warnings."""
    now = agent.settings_now()
    return now.settings, now.origins, now.warnings


def test_a_folder_that_is_gone_is_missed(tmp_path):
    more = tmp_path / "more"
    more.mkdir()
    with Agent(ScriptedModel([]), writable_roots=[more]) as agent:
        assert agent.settings_now() is agent.settings_now()
        more.rmdir()
        with pytest.raises(FatalError, match="is not a folder"):
            agent.turn_config()


def test_no_key_is_shown_in_a_text_of_settings():
    now = resolve([Source("program", {"api_key": "secret-one"})])
    assert "secret-one" not in repr(now.settings)


def test_defaults_fit_their_types():
    ours = {name: getattr(DEFAULTS, name) for name in SETTINGS}
    del ours["cwd"]
    now = resolve([Source("program", ours)])
    assert all(getattr(now.settings, name) == value for name, value in ours.items())
