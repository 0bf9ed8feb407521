"""``%agent skills``: lists the skills, shows one, and trusts those that wait for it."""

from collections.abc import Sequence

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.kernel.commands.project.skill_tests import TEST, run_skill_test
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.project.digests import describe_problem, digest_of_all, trust, untrusted, usable
from agent_magics.project.skills import Skill, find_skills
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.tables import table
from agent_magics.render.visible import show_invisible
from agent_magics.text.brief import meant


def _listing(notebook: NotebookAgents) -> str:
    """List the skills, and which of them are used."""
    skills = find_skills(notebook.workspace)
    if not skills:
        return (
            "There are no skills: a skill is a folder with a SKILL.md, in .agent_magics/skills of "
            "the project, or in agent-magics/skills of your configuration folder."
        )
    used = usable(skills)
    rows = [
        (
            code_span(each.name),
            code_span(each.description),
            _state(each, used),
            code_span(str(each.place)),
        )
        for each in skills
        if not each.problem
    ]
    tests = [each for each in skills if TEST in each.files]
    return "\n\n".join(
        [
            table(("Skill", "What it is for", "Used", "Where"), rows),
            *(f"`%agent skills test {each.name}` runs its test." for each in tests),
            *(describe_problem(each) for each in skills if each.problem),
            *(["`%agent skills trust` shows what waits for your trust."] * bool(untrusted(skills))),
        ]
    )


def _state(skill: Skill, used: Sequence[Skill]) -> str:
    if skill not in used:
        return "not trusted" if not skill.is_usable else "no, another one has its name"
    return "yes, its tools are not trusted" if skill.tools and not skill.is_trusted else "yes"


def _shown(notebook: NotebookAgents, name: str) -> str:
    """Show the skills of a name as the model reads them, the first that counts first."""
    skills = find_skills(notebook.workspace)
    named = [_as_read(each) for each in skills if each.name == name]
    if not named:
        raise FatalError(f"There is no skill {name!r}; {meant(name, (s.name for s in skills))}")
    return "\n\n".join(named)


def _as_read(skill: Skill) -> str:
    if skill.problem:
        return describe_problem(skill)
    files = ", ".join(map(code_span, skill.files)) or "none"
    place, content = code_span(str(skill.place)), code_span(skill.digest[:SHOWN_DIGEST])
    # As it is written: what a model reads must not be drawn as something else.
    text = fenced(show_invisible(skill.text))
    return f"{place}, content {content}; other files: {files}.\n\n{text}"


def _test(notebook: NotebookAgents, name: str) -> str:
    """Run a skill's test notebook."""
    passed, text = run_skill_test(notebook.agent_named(), name)
    if passed:
        return text
    notebook.publish_text(text)
    raise FatalError(f"The test of the skill {name} failed.")


def _trust(notebook: NotebookAgents, digest: str) -> str:
    """Trust the skills that have this digest, all or one."""
    trusted = trust("skills", find_skills(notebook.workspace), digest)
    return f"Used from the next cell on: {', '.join(code_span(each.name) for each in trusted)}."


def _waiting_text(notebook: NotebookAgents) -> str:
    """Show the skills that wait for your trust, with a digest each."""
    waiting = untrusted(find_skills(notebook.workspace))
    if not waiting:
        return "No skill waits for your trust."
    rows = [
        (
            code_span(each.name),
            code_span(str(each.place)),
            str(len(each.files) + 1),
            ", ".join(code_span(path) for path, _ in each.tools) or "none",
            code_span(each.digest[:SHOWN_DIGEST]),
        )
        for each in waiting
    ]
    listed = table(("Skill", "Where", "Files", "Tools", "Content"), rows)
    return (
        f"{listed}\n\nA model does what a skill says within its rights, and a skill's tools run in "
        "your kernel with yours. Read them (`%agent skills show NAME`); `%agent skills trust "
        f"{digest_of_all(waiting)[:SHOWN_DIGEST]}` trusts all of them as they are now, the digest "
        "of one trusts that one. When a file changes, you are asked again."
    )


SKILLS = Command(
    "skills",
    {
        "": _listing,
        "show NAME": _shown,
        "test NAME": _test,
        "trust": _waiting_text,
        "trust DIGEST": _trust,
    },
    text="List the skills and which of them are used; ``show NAME``, ``test NAME``, ``trust``.",
)
