"""``%agent tools``: which tools there are, what each costs, and which of them are offered."""

from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.app import Agent
from agent_magics.dispatch.shelf import source_of
from agent_magics.engine.setup import RunSetup
from agent_magics.kernel.table import table
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import FunctionToolSpec, ToolSpec
from agent_magics.render.markdown import code_span

TOOL_WORDS = ("hide", "show", "trust")
_SHOWN_DIGEST = 12

# What stands in `notebook.NotebookAgents`, which imports the module that imports this one.
Notebook = Any


def tools_text(notebook: Notebook, agent: Agent, arguments: Sequence[str]) -> str:
    """Do what stands behind ``%agent tools`` and say what holds then.

    Raises:
        FatalError: the words do not fit, or there is no such tool.
    """
    match list(arguments):
        case []:
            pass
        case ["hide", *names] if names:
            _change(notebook, agent, names, agent.session.shelf.hide)
        case ["show", *names] if names:
            _change(notebook, agent, names, agent.session.shelf.show)
        case ["trust"]:
            return _untrusted_text(agent)
        case ["trust", digest]:
            return _trust(agent, digest)
        case _:
            raise FatalError(
                "%agent tools takes: nothing, hide NAME ..., show NAME ..., trust, trust DIGEST."
            )
    return _listing(agent, notebook.setup_of(agent))


def _change(
    notebook: Notebook, agent: Agent, names: Sequence[str], change: Callable[[str], None]
) -> None:
    offered = (each.spec.name for each in notebook.setup_of(agent).offer.all)
    known = {*offered, *agent.session.shelf.hidden}
    for name in names:
        if name not in known:
            raise FatalError(f"There is no tool {name!r}; %agent tools lists those that there are.")
        change(name)


def _listing(agent: Agent, setup: RunSetup) -> str:
    offer = setup.offer
    if offer is None:  # a run always has one; a setup made by hand need not
        return "No tools."
    rows = []
    for each in offer.all:
        name = each.spec.name
        handler = setup.registry.handler(name)
        mutating = handler is not None and handler.options.mutating
        deferred = name in offer.deferred and name not in agent.session.found
        rows.append(
            (
                _call_form(each.spec),
                getattr(each.spec, "description", "").partition("\n")[0],
                "yes" if mutating else "no",
                str(offer.costs[name]),
                str(agent.session.uses[name]),
                "when found" if deferred else "yes",
            )
        )
    head = ("Tool", "What it does", "May change something", "Tokens", "Used", "Offered")
    return "\n\n".join(
        [
            table(head, rows),
            _sums(offer.costs, len(offer.deferred), agent.toolbox.budget),
            *_hidden_words(agent),
            *agent.toolbox.discovery.find().warnings,
        ]
    )


def _call_form(spec: ToolSpec) -> str:
    if not isinstance(spec, FunctionToolSpec):
        return code_span(spec.name)
    return code_span(f"{spec.name}({', '.join(spec.parameters.get('properties', {}))})")


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
    hidden = sorted(agent.session.shelf.hidden)
    return [f"Hidden: {', '.join(map(code_span, hidden))}."] if hidden else []


# -- trust -----------------------------------------------------------------------------------------


def _untrusted_text(agent: Agent) -> str:
    project = agent.toolbox.discovery.project
    files = project.files()
    if not files:
        raise FatalError(f"There are no tools to trust: {project.folder} holds no *.py file.")
    digest = project.digest(files)
    rows = [
        (code_span(str(file.path)), str(file.content.count(b"\n")), project.digest([file])[:12])
        for file in files
    ]
    listed = table(("File", "Lines", "Content"), rows)
    if project.is_trusted(files):
        return f"{listed}\n\nYou have trusted these files as they are now."
    return (
        f"{listed}\n\nWhat stands in these files runs in your kernel with your rights. Read them; "
        f"`%agent tools trust {digest[:_SHOWN_DIGEST]}` trusts them as they are now. When one of "
        "them changes, you are asked again."
    )


def _trust(agent: Agent, given: str) -> str:
    discovery = agent.toolbox.discovery
    project = discovery.project
    digest = project.digest(project.files())
    if len(given) < _SHOWN_DIGEST or not digest.startswith(given):
        raise FatalError(
            f"The files in {project.folder} are not (or no longer) those of {given}; look at them "
            "again: %agent tools trust."
        )
    try:
        project.trust(digest)
    except OSError as error:
        raise FatalError(f"That the tools are trusted could not be kept: {error}.") from None
    discovery.forget()
    found = discovery.find()
    names = [f"{code_span(t.tool_options.name)} ({source_of(t)})" for t in found.tools]
    return "\n\n".join([f"Offered from the next cell on: {', '.join(names)}.", *found.warnings])
