"""``%agent usage``: what the conversations of this kernel took, and what it cost."""

from collections.abc import Mapping

from agent_magics.app import Agent
from agent_magics.engine.bill import Bill, context_share, tool_shares
from agent_magics.kernel.table import table
from agent_magics.models.catalog import DATE, dollars, find_model
from agent_magics.render.markdown import code_span

HEAD = ("Agent", "Model", "Requests", "Input", "Cached", "Output", "Reasoning", "Cost", "Context")
_METER = 10


def describe_usage(agents: Mapping[str, Agent]) -> str:
    """Return the table of `agents`, and the shares of their tools, as Markdown.

    Args:
        agents: by name.
    """
    if not agents:
        return "No agent has run yet."
    parts = [table(HEAD, [_row(agent) for agent in agents.values()])]
    for agent in agents.values():
        shares = tool_shares(tuple(agent.session.history.items))
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
    bill = agent.session.bill
    usage = bill.usage
    counts = (
        bill.requests,
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    )
    model = bill.last_model or agent.config.model
    return (
        code_span(agent.name),
        code_span(model),
        *(f"{count:,}" for count in counts),
        _cost(bill),
        _context(bill),
    )


def _cost(bill: Bill) -> str:
    """Say what is known of the cost, and of what it is not known: never 0 for that."""
    if not bill.requests:
        return "nothing yet"
    known = [dollars(bill.known_cost)] if bill.known_cost else []
    unknown = [f"price of {code_span(name)} not known" for name in bill.unpriced]
    if bill.uncounted:
        unknown.append(f"{bill.uncounted} requests of which the server counted no tokens")
    return " + ".join([*known, *unknown]) or dollars(0)


def _context(bill: Bill) -> str:
    """The share of the context window that the last request took, as a meter and in words."""
    share = context_share(bill)
    if share is None:
        if not bill.last_input:
            return "not known"
        return f"{bill.last_input:,} tokens; window of {code_span(bill.last_model)} not known"
    card = find_model(bill.last_model)
    window = card.context_window if card is not None else None
    full = min(_METER, round(share * _METER))
    return f"{'█' * full}{'░' * (_METER - full)} {share:.1%} of {window:,}"
