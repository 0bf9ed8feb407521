"""``read_skill``: reads the instructions of a skill, or finds the skills that fit a task."""

from pathlib import Path

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.dispatch.catalog.ranking import Ranking, words_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.files.paths import printable
from agent_magics.project.digests import usable
from agent_magics.project.skills import Skill, find_skills
from agent_magics.protocol.errors import RespondToModel

_MOST_FOUND = 8
_NAME_WEIGHT = 3  # of a word in a skill's name, against one in its description


@tool(mutating=False, parallel=True)
def read_skill(name: str, *, ctx: ToolContext | None = None) -> str:
    """Read a skill: instructions for one kind of task, with the files that belong to it.

    Args:
        name: the skill's name; or words of the task, to find the skills that fit.
    """
    require(str, name=name)
    skills = usable(find_skills(Path.cwd() if ctx is None else ctx.cwd))
    found = next((skill for skill in skills if skill.name == name.strip()), None)
    return _render(found) if found is not None else _search(skills, name)


def _render(skill: Skill) -> str:
    """Return a skill's text; the digest lets a recording tell that the skill has changed."""
    head = f"Skill {skill.name} ({skill.digest[:SHOWN_DIGEST]}), in {printable(str(skill.place))}"
    files = f"\nIts other files: {', '.join(skill.files)}" if skill.files else ""
    return f"{head}{files}\n\n{skill.text}"


def _search(skills: list[Skill], query: str) -> str:
    texts = {
        each.name: [*words_of(each.name) * _NAME_WEIGHT, *words_of(each.description)]
        for each in skills
    }
    best = Ranking(texts).best(query, _MOST_FOUND)
    if not best:
        raise RespondToModel(f"No skill fits {query!r}. There are: {', '.join(texts) or 'none'}.")
    lines = {each.name: each.line for each in skills}
    return "\n".join(["No skill has this name; these fit:", *(lines[name] for name in best)])
