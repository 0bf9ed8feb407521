"""``%agent prompts``: lists the prompts, shows one, and trusts those that wait for it."""

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.project.digests import describe_problem, digest_of_all, trust, untrusted, usable
from agent_magics.project.prompts import PromptFile, find_prompts
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.tables import table
from agent_magics.render.visible import show_invisible
from agent_magics.text.brief import meant


def _listing(notebook: NotebookAgents) -> str:
    """List the prompts with their fields."""
    prompts = find_prompts(notebook.workspace)
    if not prompts:
        return (
            "There are no prompts: a prompt is a Markdown file in .agent_magics/prompts of the "
            "project, or in agent-magics/prompts of your configuration folder."
        )
    used = usable(prompts)
    rows = [
        (
            code_span(" ".join([each.name, *(f"{field}=" for field in each.fields)])),
            code_span(each.description) if each.description else "",
            _state(each, each in used),
            code_span(str(each.place)),
        )
        for each in prompts
        if not each.problem
    ]
    return "\n\n".join(
        [
            table(("--prompt", "What it is for", "Used", "Where"), rows),
            *(describe_problem(each) for each in prompts if each.problem),
            *["`%agent prompts trust` shows what waits for your trust."] * bool(untrusted(prompts)),
        ]
    )


def _state(prompt: PromptFile, is_used: bool) -> str:
    if is_used:
        return "yes"
    return "no, another one has its name" if prompt.is_usable else "not trusted"


def _shown(notebook: NotebookAgents, name: str) -> str:
    """Show the prompts of a name as they are written."""
    prompts = find_prompts(notebook.workspace)
    named = [_as_written(each) for each in prompts if each.name == name]
    if not named:
        raise FatalError(f"There is no prompt {name!r}; {meant(name, (p.name for p in prompts))}")
    return "\n\n".join(named)


def _as_written(prompt: PromptFile) -> str:
    if prompt.problem:
        return describe_problem(prompt)
    return f"{code_span(str(prompt.place))}\n\n{fenced(show_invisible(prompt.text))}"


def _trust(notebook: NotebookAgents, digest: str) -> str:
    """Trust the prompts that have this digest, all or one."""
    trusted = trust("prompts", find_prompts(notebook.workspace), digest)
    return f"You may use: {', '.join(code_span(each.name) for each in trusted)}."


def _waiting_text(notebook: NotebookAgents) -> str:
    """Show the prompts that wait for your trust, with a digest each."""
    waiting = untrusted(find_prompts(notebook.workspace))
    if not waiting:
        return "No prompt waits for your trust."
    texts = [
        f"{_as_written(each)}\n\nContent: {code_span(each.digest[:SHOWN_DIGEST])}"
        for each in waiting
    ]
    return "\n\n".join(
        [
            *texts,
            "A prompt is sent in your name. `%agent prompts trust "
            f"{digest_of_all(waiting)[:SHOWN_DIGEST]}` trusts all of them as they are now, the "
            "digest of one trusts that one. When a file changes, you are asked again.",
        ]
    )


PROMPTS = Command(
    "prompts",
    {"": _listing, "show NAME": _shown, "trust": _waiting_text, "trust DIGEST": _trust},
    text="List the prompts for ``%%agent --prompt``; ``show NAME``, ``trust``.",
)
