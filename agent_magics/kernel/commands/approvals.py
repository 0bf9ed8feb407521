"""``%agent approvals``: lists grants and rules, takes them back, trusts the project's rules."""

from agent_magics.approval.grants import ApprovalStore, Grant
from agent_magics.approval.rules import RuleBook
from agent_magics.approval.rules_file import Rule
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table


def _approvals_of(notebook: NotebookAgents, book: RuleBook) -> list[tuple[Grant | Rule, str]]:
    """Return all grants, with whose they are, and rules that %agent approvals lists, in order."""
    grants = [(one, name) for name, store in _stores(notebook).items() for one in store.of_all]
    return [*grants, *((rule, "") for rule in (*book.project.rules, *book.user.rules))]


def _stores(notebook: NotebookAgents) -> dict[str, ApprovalStore]:
    """Return the grants of the notebook's agents by their names, and of sub-agents by path."""
    sessions = [agent.session for agent in notebook.agents.values()]
    for agent in notebook.agents.values():
        sub_agents = tuple(agent.sub_agents.agents.values())
        sessions += [each.session for each in sub_agents if not each.is_over]
    return {session.agent: session.conversation.store for session in sessions}


def _listing(notebook: NotebookAgents) -> str:
    """List what is allowed: answers of this session, and rules."""
    agent = notebook.agent_named()
    book = RuleBook(agent.config.cwd, agent.config.writable_roots)
    listed = _approvals_of(notebook, book)
    queued = _queued_text(notebook)
    if not listed:
        return queued or "Nothing is allowed beyond the policy, and there are no rules."
    rows = [
        (str(n), *_approval_row(one, book, "" if name == agent.name else name))
        for n, (one, name) in enumerate(listed, 1)
    ]
    text = table(("", "What", "Decision", "Holds", "Where it stands"), rows)
    if book.withheld:
        text += (
            f"\n\n{len(book.withheld)} of the project's rules do not hold: its file is not (or no "
            "longer) the one that you trusted. `%agent approvals trust` shows them and trusts it."
        )
    text += "\n\n`%agent approvals revoke N` takes one back."
    return "\n\n".join(filter(None, (text, queued)))


def _queued_text(notebook: NotebookAgents) -> str:
    queued = ", ".join(notebook.host.queued)
    return queued and f"The next questions get these answers, until `revoke all`: {queued}."


def _approval_row(one: Grant | Rule, book: RuleBook, agent: str = "") -> tuple[str, str, str, str]:
    if isinstance(one, Grant):
        holds = f"in this {one.scope}" + (f", agent {code_span(agent)}" if agent else "")
        holds += f", for {code_span(one.asker)}" if one.asker else ""
        return code_span(one.target), "allow", holds, "memory"
    decision = f"{one.decision}, outside the sandbox" if one.sandbox == "bypass" else one.decision
    holds = "not trusted" if one in book.withheld else "always"
    holds = holds if one.agent == "*" else f"{holds}, agent {one.agent}"
    if target := book.unfollowed(one):
        holds += f", not behind its link: that needs a rule for {code_span(target)} too"
    return code_span(f"{one.permission}: {one.text}"), decision, holds, code_span(one.place)


def _revoke(notebook: NotebookAgents, number: int = 0) -> str:
    """Revoke one listed grant or rule, or every lasting answer and those that are queued.

    Raises:
        FatalError: there is no such number, or a file cannot be written.
    """
    agent = notebook.agent_named()
    book = RuleBook(agent.config.cwd)
    listed = _approvals_of(notebook, book)
    if not number:
        notebook.host.queued.clear()
        # From the last to the first, so that the numbers of rules in a file stay right.
        chosen = [
            each for each in reversed(listed) if isinstance(each[0], Grant) or each[0].by_answer
        ]
    elif number <= len(listed):
        chosen = [listed[number - 1]]
    else:
        raise FatalError("%agent approvals revoke N: N is a number from %agent approvals, or all.")
    for one, name in chosen:
        if isinstance(one, Grant):
            _stores(notebook)[name].of(one.asker).revoke(one.fingerprint)
            continue
        try:
            book.remove(one)
        except OSError as error:
            raise FatalError(
                f"The rule {one.text} could not be taken out: {short_message(error)}."
            ) from None
    return _listing(notebook)


def _trust(notebook: NotebookAgents) -> str:
    """Trust the project's rules as they are now, and list those that are thereby in force.

    Raises:
        FatalError: there are none, or the trust cannot be stored.
    """
    book = RuleBook(notebook.workspace)
    if not book.project.rules:
        raise FatalError(f"There are no rules to trust: {book.project_file} has none.")
    new = book.withheld
    book.trust()
    if not new:
        return f"All rules of {code_span(str(book.project_file))} hold already."
    rows = [_approval_row(rule, book) for rule in new]
    return (
        f"These rules of {code_span(str(book.project_file))} hold from now on, as long as the file "
        "stays as it is:\n\n" + table(("What", "Decision", "Holds", "Where it stands"), rows)
    )


APPROVALS = Command(
    "approvals",
    {"": _listing, "revoke N": _revoke, "revoke all": _revoke, "trust": _trust},
    note="; N is a number from %agent approvals",
    text="List approvals; ``revoke N|all`` removes some, ``trust`` accepts the project's rules.",
)
