"""``%agent tools``: lists the tools with their costs in tokens, and which of them are offered."""

from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.app import Agent
from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.dispatch.handlers.registrations import source_of
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import FunctionToolSpec, ToolSpec
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.text.brief import meant


def _hide(notebook: NotebookAgents, *names: str) -> str:
    """Take tools away from the agent."""
    return _change(notebook, names, notebook.agent_named().session.registrations.hide)


def _show(notebook: NotebookAgents, *names: str) -> str:
    """Offer tools always, also hidden ones."""
    return _change(notebook, names, notebook.agent_named().session.registrations.show)


def _change(notebook: NotebookAgents, names: Sequence[str], change: Callable[[str], None]) -> str:
    agent = notebook.agent_named()
    offered = (each.spec.name for each in notebook.turn_config_of(agent).offer.now().all)
    known = {*offered, *agent.session.registrations.hidden}
    for name in names:
        if name not in known:
            raise FatalError(f"There is no tool {name!r}; {meant(name, sorted(known))}")
        change(name)
    return _listing(notebook)


def _listing(notebook: NotebookAgents) -> str:
    """List the tools of the next cell, what they cost, and what is hidden."""
    agent = notebook.agent_named()
    turn_config = notebook.turn_config_of(agent)
    offer = turn_config.offer.now()
    rows = []
    for each in offer.all:
        name = each.spec.name
        handler = turn_config.registry.handler(name)
        mutating = handler is not None and handler.options.mutating
        deferred = name in offer.deferred and name not in agent.session.conversation.found
        rows.append(
            (
                _call_form(each.spec),
                getattr(each.spec, "description", "").partition("\n")[0],
                "yes" if mutating else "no",
                str(offer.costs[name]),
                str(agent.session.conversation.uses[name]),
                "when found" if deferred else "yes",
            )
        )
    head = ("Tool", "What it does", "May change something", "Tokens", "Used", "Offered")
    return "\n\n".join(
        [
            table(head, rows),
            _sums(offer.costs, len(offer.deferred), agent.catalog.budget),
            *_hidden_words(agent),
            *agent.catalog.discovery.find().warnings,
        ]
    )


def _call_form(spec: ToolSpec) -> str:
    if not isinstance(spec, FunctionToolSpec):
        return code_span(spec.name)
    properties: Any = spec.parameters.get("properties", {})  # an object, as JSON
    return code_span(f"{spec.name}({', '.join(properties)})")


def _sums(costs: Any, deferred: int, budget: int) -> str:
    words = (
        f"All of them cost about {sum(costs.values())} tokens in each request (estimated: the JSON "
        "of a specification, four characters a token)."
    )
    if deferred:
        words += (
            f" That is more than {budget}, so {deferred} are offered only once `tool_search` has "
            "found them; `%agent tools show NAME` offers one always."
        )
    return words


def _hidden_words(agent: Agent) -> list[str]:
    hidden = sorted(agent.session.registrations.hidden)
    return [f"Hidden: {', '.join(map(code_span, hidden))}."] if hidden else []


# -- trust -----------------------------------------------------------------------------------------


def _untrusted_text(notebook: NotebookAgents) -> str:
    """Show the project's files with tools, and their digest."""
    project = notebook.agent_named().catalog.discovery.project
    files = project.read()
    if not files:
        raise FatalError(f"There are no tools to trust: {project.folder} holds no *.py file.")
    digest = project.digest(files)
    rows = [
        (
            code_span(str(file.path)),
            str(file.content.count(b"\n")),
            project.digest([file])[:SHOWN_DIGEST],
        )
        for file in files
    ]
    listed = table(("File", "Lines", "Content"), rows)
    if project.is_trusted(files):
        return f"{listed}\n\nYou have trusted these files as they are now."
    return (
        f"{listed}\n\nWhat stands in these files runs in your kernel with your rights. Read them; "
        f"`%agent tools trust {digest[:SHOWN_DIGEST]}` trusts them as they are now. When one of "
        "them changes, you are asked again."
    )


def _trust(notebook: NotebookAgents, given: str) -> str:
    """Trust the files that have this digest, as they are now."""
    discovery = notebook.agent_named().catalog.discovery
    discovery.project.trust(given)
    discovery.forget()
    found = discovery.find()
    names = [f"{code_span(t.tool_options.name)} ({source_of(t)})" for t in found.tools]
    return "\n\n".join([f"Offered from the next cell on: {', '.join(names)}.", *found.warnings])


TOOLS = Command(
    "tools",
    {
        "": _listing,
        "hide NAME ...": _hide,
        "show NAME ...": _show,
        "trust": _untrusted_text,
        "trust DIGEST": _trust,
    },
    text="List the next cell's tools and their cost; ``hide NAME``, ``show NAME``, ``trust``.",
)
