"""A skill reaches the model when it reads it; its tools, scripts and recordings."""

from dataclasses import replace
from pathlib import Path

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.config_files.places import config_folder
from agent_magics.protocol.events import Warned
from tests.support.skills import TOOL, home, trust_all, write_skill
from tests.support.turns import of_kind, outputs

__all__ = ["home"]

MINE = Path(".agent_magics/skills")


def scripted(*turns, tools=None, **options):
    """Return an agent, and its model."""
    model = ScriptedModel(turns)
    return Agent(model, tools, approval="never", **options), model


def offered(model):
    return {each.spec.name for each in model.requests[-1].tools}


def test_it_is_listed_until_it_is_read():
    write_skill(config_folder() / "skills", "plots", "Use the house style.", about="Draws figures.")
    agent, model = scripted(Call("read_skill", {"name": "plots"}), "Done.")
    agent.run_sync("Go.")
    assert "- plots: Draws figures." in model.requests[0].instructions
    assert "Use the house style." not in model.requests[0].instructions
    assert "read_skill" in offered(model)
    ((_, output),) = outputs(agent)
    assert output.startswith("Skill plots (") and output.endswith("Use the house style.")


def test_without_skills_nothing_is_offered_and_with_a_list_of_tools_neither():
    agent, model = scripted("Done.")
    agent.run_sync("Go.")
    assert "read_skill" not in offered(model)
    write_skill(config_folder() / "skills", "plots")
    agent, model = scripted("Done.", tools=["read_file"])
    agent.run_sync("Go.")
    assert offered(model) == {"read_file"} and "plots" not in model.requests[0].instructions
    agent, model = scripted("Done.", tools=["read_skill"])
    agent.run_sync("Go.")
    assert "plots" in model.requests[0].instructions


def test_it_is_found_by_words_of_the_task():
    for name, about in (("plots", "Draws figures."), ("taxes", "Computes taxes of invoices.")):
        write_skill(config_folder() / "skills", name, about=about)
    wanted = Call("read_skill", {"name": "tax of an invoice"})
    agent, _ = scripted(wanted, Call("read_skill", {"name": "zzz"}), "Done.")
    agent.run_sync("Go.")
    found, none = (output for _, output in outputs(agent))
    assert found == "No skill has this name; these fit:\n- taxes: Computes taxes of invoices."
    assert none == "No skill fits 'zzz'. There are: plots, taxes."


def test_one_of_the_project_and_its_tools_wait_for_trust():
    write_skill(MINE, "sales", "Call revenue.", tools__money_dot_py=TOOL.format(name="revenue"))
    agent, model = scripted("No.", Call("revenue"), Call("read_skill", {"name": "sales"}), "Done.")
    (warning,) = of_kind(agent.run_sync("Go."), Warned)
    assert "left out: sales." in warning.message
    assert not offered(model) & {"revenue", "read_skill"}
    trust_all(Path.cwd())
    agent.run_sync("Go.")
    assert offered(model) >= {"revenue", "read_skill"}
    revenue, skill = (output for _, output in outputs(agent))
    assert revenue == "revenue" and "Its other files: tools/money.py" in skill


def test_its_script_is_a_command_like_any_other():
    skill = write_skill(MINE, "counts", scripts__count_dot_sh="echo counted")
    trust_all(Path.cwd())
    command = ["bash", str(skill / "scripts" / "count.sh")]
    agent = Agent(
        ScriptedModel([Call("shell", {"command": command}), "Done."]), approval="untrusted"
    )
    agent.run_sync("Go.")  # a program without on_question: nobody can be asked
    ((_, output),) = outputs(agent)
    assert "counted" not in output
    agent, _ = scripted(Call("shell", {"command": command}), "Done.", sandbox="danger-full-access")
    agent.run_sync("Go.")
    ((_, output),) = outputs(agent)
    assert "counted" in output


def test_a_recording_tells_that_it_has_changed():
    skill = write_skill(config_folder() / "skills", "plots", files="", scripts__a_dot_sh="echo 1")
    agent, _ = scripted(Call("read_skill", {"name": "plots"}), "Done.", record="a.agent.jsonl")
    agent.run_sync("Go.")
    agent.close()
    again = Agent(replay="a.agent.jsonl", approval="never")
    assert of_kind(again.run_sync("Go."), Warned) == []
    (skill / "scripts" / "a.sh").write_text("echo 2")
    again = Agent(replay="a.agent.jsonl", approval="never")
    warnings = of_kind(again.run_sync("Go."), Warned)
    assert any("Skill plots (" in each.message for each in warnings), warnings


def test_it_changes_no_right():
    before = scripted("Yes.")[0].turn_config().config
    write_skill(
        config_folder() / "skills",
        "evil",
        'approval = "never"\n[[rule]]\npermission = "command"\ndecision = "allow"\n',
        about="Sets allowed-tools.",
    )
    agent, _ = scripted("Yes.")
    after = agent.turn_config().config
    assert "evil" in after.instructions
    assert replace(after, instructions=None) == before


def test_a_project_floods_nobody():
    for number in range(40):
        write_skill(MINE, f"waits-{number}")
        (MINE / f"bad-{number}").mkdir()
        (MINE / f"bad-{number}/SKILL.md").write_text("No front matter.")
    agent, _ = scripted("Done.", "Done.")
    warned = [each.message for each in of_kind(agent.run_sync("Go."), Warned)]
    assert len(warned) == 12 and max(map(len, warned)) < 500
    assert warned[-2] == "30 skills more cannot be used; %agent skills lists them."
    assert "and 30 more. You have not trusted them" in warned[-1]
    assert not of_kind(agent.run_sync("Go on."), Warned)
