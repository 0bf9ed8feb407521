"""The configuration of a run is made once, and anew whenever one of its parts has changed."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from agent_magics import Agent, tool
from agent_magics.config_files.places import user_config_file
from agent_magics.engine.front_end import FRONT_ENDS, FrontEnd
from agent_magics.files import plain_files
from agent_magics.models.providers.credentials import keep_key, stored_key
from agent_magics.models.recordings.scripted import Call, ScriptedModel
from agent_magics.protocol.errors import FatalError
from tests.support.turns import outputs, scripted


class Kernel:
    """A live kernel, of which nothing is asked here."""

    namespace: Mapping[str, object] = MappingProxyType({})


def registered(text: str) -> str:
    """Return the text."""
    return text


def log_in() -> None:
    keep_key("api.openai.com", "sk-kept-in-a-file-0123456789")
    stored_key("https://api.openai.com/v1")


def write_settings(text: str) -> None:
    user_config_file().parent.mkdir(parents=True, exist_ok=True)
    user_config_file().write_text(text)


CHANGES: dict[str, Callable[[Agent], object]] = {
    "a variable": lambda agent: os.environ.update(LC_ALL="C"),
    "a variable that goes": lambda agent: os.environ.pop("LC_ALL"),
    "a key": lambda agent: os.environ.update(OPENROUTER_API_KEY="sk-or-0123456789"),
    "a key that is stored": lambda agent: log_in(),
    "a setting": lambda agent: agent.configure(approval="never"),
    "the person's settings": lambda agent: write_settings("max_turns = 7"),
    "other settings of theirs": lambda agent: write_settings("max_turns = 8"),
    "a model of another family": lambda agent: agent.configure(model="gpt-4o"),
    "instructions": lambda agent: Path("AGENTS.md").write_text("Be brief."),
    "other instructions": lambda agent: Path("AGENTS.md").write_text("Be long."),
    "a tool": lambda agent: agent.register(registered),
    "a tool that is hidden": lambda agent: agent.unregister("registered"),
    "the front end": lambda agent: FRONT_ENDS.register(lambda: FrontEnd(live_kernel=Kernel())),
}


def test_what_changes_a_run_makes_its_configuration_anew(monkeypatch):
    monkeypatch.setattr(plain_files, "_TICK", 0)  # as if each change were long ago
    for name in ("LC_ALL", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, "")  # and as it was, afterwards
    with Agent(ScriptedModel([])) as agent:
        try:
            for name, change in CHANGES.items():
                before = agent.turn_config()
                assert agent.turn_config() is before, name
                change(agent)
                assert agent.turn_config() is not before, name
        finally:
            FRONT_ENDS.register(None)


@pytest.mark.parametrize("runs", [0, 1, 2], ids="{} runs before".format)
def test_a_folder_that_goes_is_missed_from_the_next_run_on(tmp_path, runs):
    root = tmp_path / "more"
    root.mkdir()
    with Agent(ScriptedModel([]), writable_roots=[root]) as agent:
        for _ in range(runs):
            agent.turn_config()
        root.rmdir()
        with pytest.raises(FatalError, match="is not a folder"):
            agent.turn_config()
        root.mkdir()
        assert agent.turn_config().config.roots[1] == root


def test_folders_stay_those_that_were_named_wherever_the_process_goes(tmp_path, monkeypatch):
    for folder in ("work", "more", "there/more"):
        (tmp_path / folder).mkdir(parents=True)
    with Agent(ScriptedModel([]), cwd="work", writable_roots=["more"]) as agent:
        roots = agent.turn_config().config.roots
        monkeypatch.chdir("there")
        for value in "12":  # which has settings read anew
            monkeypatch.setenv("NEW", value)
            assert agent.turn_config().config.roots == roots
            agent.model = f"other {value}"
    assert roots == (tmp_path / "work", tmp_path / "more")


def test_what_holds_for_one_run_alone_does_not_stay():
    with Agent(ScriptedModel([])) as agent:
        before = agent.turn_config()
        assert agent.turn_config(output=int).output is not None
        assert agent.turn_config(approval="never").config.approval == "never"
        assert agent.turn_config(tools=[registered]).specs != before.specs
        after = agent.turn_config()
        assert (after.output, after.config, after.specs) == (None, before.config, before.specs)


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "on a thread"])
def test_a_policy_that_changes_holds_for_tools_that_were_allowed_before(inline):
    asked = []

    @tool(inline=inline, mutating=True)
    def change() -> str:
        """Change something."""
        return "changed"

    def answer(event):
        asked.append(event)
        return "approve"

    calls = [Call("change", {}), "Done.", Call("change", {}), "Done."]
    agent = scripted(*calls, tools=[change], approval="never", on_question=answer)
    agent.run_sync("Go.")
    agent.configure(approval="untrusted")
    agent.run_sync("Go.")
    assert (len(outputs(agent)), len(asked)) == (2, 1)


def test_a_stricter_copy_takes_over_no_decision():
    with scripted() as agent:
        turn_config = agent.turn_config()
        turn_config.settled["a tool"] = "runs unasked"
        stricter = replace(turn_config, config=replace(turn_config.config, approval="untrusted"))
        assert not stricter.settled
