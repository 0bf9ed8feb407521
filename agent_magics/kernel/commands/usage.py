"""``%agent usage``: shows the tokens and the cost of this kernel's conversations."""

from agent_magics.app import Agent
from agent_magics.engine.context.usage import limit_of
from agent_magics.engine.cost import Spending, tool_shares
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.models.providers.catalog import DATE, dollars
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.text.brief import number_of

HEAD = ("Agent", "Model", "Requests", "Input", "Cached", "Output", "Reasoning", "Cost", "Context")
_METER = 10


def show_usage(notebook: NotebookAgents) -> str:
    """Show requests, tokens and cost of each conversation, its context, and its tools' shares."""
    agents = notebook.agents
    if not agents:
        return "No agent has run yet."
    parts = [table(HEAD, [_row(agent) for agent in agents.values()])]
    for agent in agents.values():
        shares = tool_shares(tuple(agent.session.conversation.history.items))
        if shares:
            rows = [(code_span(name), f"{share:.0%}") for name, share in shares.items()]
            title = f"Tools of agent {code_span(agent.name)}"
            parts.append(table((title, "Share of the conversation"), rows))
    parts.append(
        f"Costs are what the server reports, else by the list prices of {DATE}. A tool's share is "
        "an estimate: four bytes of its calls and outputs are a token."
    )
    return "\n\n".join(parts)


def _row(agent: Agent) -> tuple[str, ...]:
    spending = agent.session.conversation.spending
    usage = spending.usage
    counts = (
        spending.requests,
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    )
    model = spending.last_model or agent.config.model
    return (
        code_span(agent.name),
        code_span(model),
        *(f"{count:,}" for count in counts),
        _cost(spending),
        _context(spending, agent.config.context_window),
    )


def _cost(spending: Spending) -> str:
    """Describe the known cost, and the requests whose cost is unknown, which never count as 0."""
    if not spending.requests:
        return "nothing yet"
    known = [dollars(spending.known_cost)] if spending.known_cost else []
    unknown = [f"price of {code_span(name)} not known" for name in spending.unpriced]
    if spending.uncounted:
        requests = number_of(spending.uncounted, "request")
        unknown.append(f"tokens of {requests} not counted by the server")
    return " + ".join([*known, *unknown]) or dollars(0)


def _context(spending: Spending, set_window: int | None) -> str:
    """Return the share of the context window that the last request took, as bar and number."""
    tokens, model = spending.last_input, spending.last_model
    if not tokens:
        return "not known"
    limit = limit_of(model, set_window)
    if not limit.known:
        return f"{tokens:,} tokens; window of {code_span(model)} not known"
    share = tokens / limit.window
    full = min(_METER, round(share * _METER))
    return f"{'█' * full}{'░' * (_METER - full)} {share:.1%} of {limit.window:,}"
