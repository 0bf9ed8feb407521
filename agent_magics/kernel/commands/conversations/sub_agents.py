"""``%agent agents``: lists an agent's sub-agents and their types, stops one, trusts files."""

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.delegation.files import ProjectAgents, find_types
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import SubAgentChanged
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span, fenced, harmless_prose
from agent_magics.render.tables import table
from agent_magics.render.visible import show_invisible

HEAD = ("Sub-agent", "Task", "State", "Requests", "Tokens", "Cost", "Seconds", "Conversation")


def _listing(notebook: NotebookAgents) -> str:
    """List the sub-agents, what they do and cost, and their types."""
    own = notebook.agent_named()
    found = find_types(own.config.cwd)
    rows, limits = list[tuple[str, ...]](), [own.sub_agents.limits]
    for agent in notebook.agents.values():
        states = agent.sub_agents.states
        prefix = "" if agent is own else f"{agent.name}/"
        rows += [_row(each, prefix) for each in states]
        if states and agent is not own:
            limits.append(f"Of {code_span(agent.name)}: {agent.sub_agents.limits}")
    types = [
        (code_span(each.name), harmless_prose(each.description)) for each in found.types.values()
    ]
    parts = [table(HEAD, rows) if rows else "No sub-agent has been started."]
    parts += [*limits, table(("Type", "What it is for"), types), *map(code_span, found.problems)]
    return "\n\n".join(parts)


def _row(each: SubAgentChanged, prefix: str) -> tuple[str, ...]:
    doing = f": {each.doing}" if each.doing else f" ({each.problem})" if each.problem else ""
    return (
        code_span(prefix + each.sub_agent),
        code_span(one_line(each.task)),
        code_span(f"{each.status}{doing}"),
        str(each.requests),
        f"{each.tokens:,}",
        "not known" if each.cost is None else dollars(each.cost),
        f"{each.seconds:.0f}",
        code_span(each.conversation[:8]),
    )


def _stop(notebook: NotebookAgents, name: str) -> str:
    """Stop a sub-agent that is at work."""
    found = [
        (agent, each)
        for agent in notebook.agents.values()
        for each in tuple(agent.sub_agents.agents.values())
        if name in (each.name, each.path) and not each.is_over
    ]
    if not found:
        raise FatalError(f"No sub-agent {name!r} is at work; %agent agents lists them.")
    if len(found) > 1:
        paths = " or ".join(each.path for _, each in found)
        raise FatalError(f"Several sub-agents {name!r} are at work; stop one by its path: {paths}.")
    [(agent, chosen)] = found
    agent.session.engine.post(agent.sub_agents.stop_by_person, chosen.id)
    return f"{code_span(name)} is stopped."


def _untrusted_text(notebook: NotebookAgents) -> str:
    """Show the project's files with types of agents, and their digest."""
    project = ProjectAgents(notebook.agent_named().config.cwd)
    files = project.read()
    if not files:
        return f"There are no agent files in {code_span(str(project.folder))}."
    if project.is_trusted(files):
        return "You have trusted these agent files."
    shown = [
        f"{code_span(name)}\n\n{fenced(show_invisible(data.decode('utf-8', 'backslashreplace')))}"
        for name, data in files
    ]
    line = f"%agent agents trust {project.digest(files)[:SHOWN_DIGEST]}"
    return "\n\n".join([*shown, f"To trust them as they stand here: `{line}`"])


def _trust(notebook: NotebookAgents, digest: str) -> str:
    """Trust the files that have this digest, as they are now."""
    ProjectAgents(notebook.agent_named().config.cwd).trust(digest)
    return "The agent files of this project are used from the next sub-agent on."


SUB_AGENTS = Command(
    "agents",
    {"": _listing, "stop NAME": _stop, "trust": _untrusted_text, "trust DIGEST": _trust},
    text="List the agents that work for this one, and their types; ``stop NAME``, ``trust``.",
)
