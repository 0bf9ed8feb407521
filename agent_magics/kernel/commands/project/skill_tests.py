"""``%agent skills test``: runs the notebook that is a skill's test, against its saved outputs.

It runs with nbval in a kernel of its own, as the person's own program and not in the sandbox: so
only notebooks that the person owns or has trusted, byte for byte, are run.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_magics.app import Agent
from agent_magics.exec.environment import command_environment
from agent_magics.exec.output import clean_output
from agent_magics.project.skills import Skill, find_skills
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.visible import show_invisible

TEST = "test.ipynb"
_SANITIZE = "sanitize.cfg"  # what nbval takes out of the outputs before it compares them
_CELL_SECONDS = 120
_MOST_SHOWN = 8_000  # characters of what pytest printed: its end
# Where the person's settings, trust and kernels are.
_FOLDERS = ("XDG_", "JUPYTER_", "IPYTHONDIR")


def run_skill_test(agent: Agent, name: str) -> tuple[bool, str]:
    """Run the test of a skill, and wait for its end.

    Args:
        agent: the agent whose skills count.
        name: the skill.

    Returns:
        Whether it passed, and the text to show.

    Raises:
        FatalError: there is no such test, it is not trusted, or nbval is not installed.
    """
    skill = _testable(find_skills(agent.config.cwd), name)
    if importlib.util.find_spec("nbval") is None:
        raise FatalError("Tests of skills need the package nbval: pip install nbval.")
    process = agent.session.conversation.processes.start(
        _command(skill), cwd=skill.place, env=_environment(skill.place / TEST)
    )
    try:
        process.wait(None)
    finally:
        process.end("cancel")  # where an interrupt came
    how = "passed" if process.exit_code == 0 else "failed"
    said = f"The test of {code_span(name)} {how} ({process.duration:.0f} s)."
    if how == "passed":
        return True, said
    return (
        False,
        f"{said}\n\n{fenced(show_invisible(clean_output(process.output.text())[-_MOST_SHOWN:]))}",
    )


def _testable(skills: Sequence[Skill], name: str) -> Skill:
    named = [each for each in skills if each.name == name]
    skill = next((each for each in named if each.is_usable), next(iter(named), None))
    if skill is None or TEST not in skill.files:
        having = ", ".join(each.name for each in skills if TEST in each.files) or "none"
        raise FatalError(f"There is no test of a skill {name!r}; skills with one: {having}.")
    if not skill.is_usable:
        raise FatalError(
            f"The skill {name} is not trusted, and its test runs code with your rights: read it, "
            "then see %agent skills trust."
        )
    return skill


def _command(skill: Skill) -> list[str]:
    """Return the program; nothing but the notebook is read of the folder and those above it."""
    sanitize = [f"--nbval-sanitize-with={_SANITIZE}"] if _SANITIZE in skill.files else []
    plugins = ["-p", "nbval.plugin", "-p", "no:cacheprovider"]
    pytest = [sys.executable, "-P", "-m", "pytest", "-q", *plugins]
    limits = ["--noconftest", "-c", os.devnull, f"--rootdir={skill.place}"]
    nbval = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={_CELL_SECONDS}"]
    return [*pytest, *limits, *nbval, *sanitize, TEST]


def _environment(notebook: Path) -> dict[str, str]:
    """Return the environment: without keys, and with the notebook, so that its recording plays."""
    folders = {name: os.environ[name] for name in os.environ if name.startswith(_FOLDERS)}
    return {
        **command_environment(os.environ),
        **folders,
        "JPY_SESSION_NAME": str(notebook),
        "PYTHONDONTWRITEBYTECODE": "1",  # else its own run would change the skill
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
