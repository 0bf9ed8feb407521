"""``%agent WORD``: looking at and steering the agents of this kernel, one function a word."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.app import Agent
from agent_magics.dispatch.grants import Grant
from agent_magics.dispatch.rules import RuleBook
from agent_magics.dispatch.rules_file import Rule
from agent_magics.kernel.answers import stdin_allowed
from agent_magics.kernel.compact import compact_history
from agent_magics.kernel.diff import show_diff
from agent_magics.kernel.doctor import examine
from agent_magics.kernel.live_code import export, show_code
from agent_magics.kernel.login import describe_key, log_in, log_out
from agent_magics.kernel.mcp_words import manage_servers
from agent_magics.kernel.publishing import publish_item, redraw
from agent_magics.kernel.recordings import manage_recordings
from agent_magics.kernel.serving import serve
from agent_magics.kernel.table import table
from agent_magics.kernel.tool_list import tools_text
from agent_magics.kernel.undo import redo, undo
from agent_magics.kernel.usage import describe_usage
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    ToolCallOutput,
    UserMessage,
    WebSearchCall,
    text_of,
)
from agent_magics.protocol.ops import DECISIONS
from agent_magics.render.describe import command_line, describe_call
from agent_magics.render.markdown import code_span
from agent_magics.render.sources import describe_search
from agent_magics.render.view import VERSION
from agent_magics.tools.confined import current_tier

_HISTORY_WIDTH = 200


# What stands in `notebook.NotebookAgents`, which imports this module.
Notebook = Any


def perform(notebook: Notebook, line: str) -> Any:
    """Do what `line` says, and return the value that it asks for, if any.

    Raises:
        FatalError: the word is not known, or what follows it does not fit.
    """
    word, *arguments = line.split() or ["status"]
    action = WORDS.get(word)
    if action is None:
        raise FatalError(f"%agent {word} is not known; there are: {', '.join(WORDS)}.")
    if word == "mcp":
        arguments = _quoted_words(line)[1:]
    return action(notebook, arguments)


def _quoted_words(line: str) -> list[str]:
    """Split as a shell does: command lines and values of arguments may hold spaces."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise FatalError(f"The quotes in this line do not fit: {error}.") from None


def _say(notebook: Notebook, text: str) -> None:
    publish_item(notebook.shell, {"version": VERSION, "kind": "text", "text": text})


def _chosen(notebook: Notebook, arguments: Sequence[str]) -> Agent:
    name = arguments[0] if arguments else notebook.settings.name
    if name != notebook.settings.name and name not in notebook.agents:
        known = ", ".join(dict.fromkeys([notebook.settings.name, *notebook.agents]))
        raise FatalError(f"There is no agent {name!r}; there are: {known}.")
    return notebook.agent_named(name)


def show_status(notebook: Notebook, arguments: Sequence[str]) -> None:
    """How the agents are set, and what they are doing."""
    agent = _chosen(notebook, arguments)
    rows = [
        ("Agent", agent.name),
        ("At work", "yes" if agent.session.busy else "no"),
        ("Model", notebook.settings.model),
        ("Key", describe_key(notebook.settings)),
        ("Approval", notebook.settings.approval),
        ("Sandbox", _sandbox_text(agent)),
        ("Workspace", code_span(str(agent.config.cwd))),
        ("History", f"{len(agent.session.history.items)} items"),
        ("Allowed for this session", str(len(agent.session.store.session_grants))),
        ("Queued answers", ", ".join(notebook.host.queued) or "none"),
        ("Agents", ", ".join(notebook.agents)),
    ]
    _say(notebook, table(("", ""), rows))


def _sandbox_text(agent: Agent) -> str:
    tier = current_tier()
    return f"{agent.config.sandbox} (tier {tier})" if tier else "none on this machine (tier 0)"


def login(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Keep a key for a provider or host (else the agent's own); you type it, unseen."""
    _say(notebook, log_in(notebook.settings, notebook.shell, arguments))


def logout(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Forget the key that was kept for a provider or host."""
    _say(notebook, log_out(notebook.settings, arguments))


def show_tools(notebook: Notebook, arguments: Sequence[str]) -> None:
    """The tools of the next cell, and what they cost; ``hide NAME``, ``show NAME``, ``trust``."""
    agent = notebook.agent_named(notebook.settings.name)
    _say(notebook, tools_text(notebook, agent, arguments))


def show_history(notebook: Notebook, arguments: Sequence[str]) -> None:
    """The conversation so far, an item a line; ``--code``: the code that the model ran."""
    if arguments and arguments[0] == "--code":
        show_code(notebook, arguments[1:])
        return
    lines = [_history_line(item) for item in _chosen(notebook, arguments).session.history.items]
    _say(
        notebook,
        "\n".join(f"{n}. {line}" for n, line in enumerate(filter(None, lines), 1)) or "Empty.",
    )


def _history_line(item: Any) -> str:
    match item:
        case UserMessage(content=content):
            return f"**You:** {_shortened(text_of(content))}"
        case AssistantMessage(text=text):
            return f"**Agent:** {_shortened(text)}"
        case FunctionCall(name=name, arguments=arguments):
            return f"**{name}** {code_span(describe_call(arguments))}"
        case CustomToolCall(name=name, input=text):
            return f"**{name}** {code_span(describe_call(text))}"
        case LocalShellCall(command=command):
            return f"**local_shell** {code_span(command_line(command))}"
        case WebSearchCall(action=action):
            return f"**web_search** {code_span(describe_search(action, done=True))}"
        case ToolCallOutput(output=output):
            return f"→ {code_span(_shortened(text_of(output)) or '(nothing)')}"
    return ""


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _HISTORY_WIDTH else flat[: _HISTORY_WIDTH - 1] + "…"


def compact(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Replace the conversation so far by a summary of it; what you said stays."""
    _say(notebook, compact_history(notebook, _chosen(notebook, arguments)))


def reset(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Begin a new conversation; what was allowed for the session is asked again."""
    agent = _chosen(notebook, arguments)
    if agent.session.busy:
        raise FatalError(
            f"Agent {agent.name!r} is at work; stop it first: %agent stop {agent.name}."
        )
    agent.reset()
    _say(notebook, f"Agent {code_span(agent.name)} begins a new conversation.")


def stop(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Stop a run that goes on in the background."""
    name = arguments[0] if arguments else notebook.settings.name
    task = notebook.background.pop(name, None)
    if task is None or task.done():
        raise FatalError(f"No run of agent {name!r} goes on in the background.")
    task.cancel()


def answer(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Queue answers for the next questions; with ``--unattended`` only where nobody can answer."""
    unattended = "--unattended" in arguments
    answers = [word for word in arguments if word != "--unattended"]
    if not answers:
        raise FatalError(f"%agent answer takes answers: {', '.join(DECISIONS)}.")
    if unattended and stdin_allowed(notebook.shell):
        _say(notebook, "You are here to answer: the next questions are put to you.")
        return
    notebook.host.queue(answers)
    _say(notebook, f"Answers for the next questions: {', '.join(notebook.host.queued)}.")


def show_approvals(notebook: Notebook, arguments: Sequence[str]) -> None:
    """What is allowed; ``revoke N|all`` takes it back, ``trust`` lets the project's rules hold."""
    agent = notebook.agent_named(notebook.settings.name)
    book = RuleBook(agent.config.cwd)
    match list(arguments):
        case []:
            _say(notebook, _approvals_text(agent, book))
        case ["revoke", which]:
            _revoke(agent, book, which)
            _say(notebook, _approvals_text(agent, book))
        case ["trust"]:
            _say(notebook, _trust(book))
        case _:
            raise FatalError(
                "%agent approvals takes: nothing, revoke N, revoke all, trust; "
                "N is a number from %agent approvals."
            )


def _approvals_of(agent: Agent, book: RuleBook) -> list[Grant | Rule]:
    """Return all that %agent approvals lists, in its order."""
    return [*agent.session.store.grants, *book.project_rules, *book.user_rules]


def _approvals_text(agent: Agent, book: RuleBook) -> str:
    listed = _approvals_of(agent, book)
    if not listed:
        return "Nothing is allowed beyond the policy, and there are no rules."
    rows = [(str(n), *_approval_row(one, book)) for n, one in enumerate(listed, 1)]
    text = table(("", "What", "Decision", "Holds", "Where it stands"), rows)
    if book.withheld:
        text += (
            f"\n\n{len(book.withheld)} of the project's rules do not hold: its file is not (or no "
            "longer) the one that you trusted. `%agent approvals trust` shows them and trusts it."
        )
    return text + "\n\n`%agent approvals revoke N` takes one back."


def _approval_row(one: Grant | Rule, book: RuleBook) -> tuple[str, str, str, str]:
    if isinstance(one, Grant):
        return code_span(one.target), "allow", f"in this {one.scope}", "memory"
    decision = f"{one.decision}, outside the sandbox" if one.sandbox == "bypass" else one.decision
    holds = "not trusted" if one in book.withheld else "always"
    holds = holds if one.agent == "*" else f"{holds}, agent {one.agent}"
    return code_span(f"{one.permission}: {one.text}"), decision, holds, code_span(one.place)


def _revoke(agent: Agent, book: RuleBook, which: str) -> None:
    """Take one listed thing back, or with "all" every answer that was ever given for longer.

    Raises:
        FatalError: there is no such number, or a file cannot be written.
    """
    listed = _approvals_of(agent, book)
    if which == "all":
        # From the last to the first, so that the numbers of rules in a file stay right.
        chosen = [one for one in reversed(listed) if isinstance(one, Grant) or one.by_answer]
    elif which.isdecimal() and 1 <= int(which) <= len(listed):
        chosen = [listed[int(which) - 1]]
    else:
        raise FatalError("%agent approvals revoke N: N is a number from %agent approvals, or all.")
    for one in chosen:
        if isinstance(one, Grant):
            agent.session.store.revoke(one.fingerprint)
            continue
        try:
            book.remove(one)
        except OSError as error:
            raise FatalError(f"The rule {one.text} could not be taken out: {error}.") from None


def _trust(book: RuleBook) -> str:
    """Trust the project's rules as they are now, and say which hold by that.

    Raises:
        FatalError: there are none, or it cannot be kept.
    """
    if not book.project_rules:
        raise FatalError(f"There are no rules to trust: {book.project_file} has none.")
    new = book.withheld
    try:
        book.trust()
    except OSError as error:
        raise FatalError(f"That the rules are trusted could not be kept: {error}.") from None
    if not new:
        return f"All rules of {code_span(str(book.project_file))} hold already."
    rows = [_approval_row(rule, book) for rule in new]
    return (
        f"These rules of {code_span(str(book.project_file))} hold from now on, as long as the file "
        "stays as it is:\n\n" + table(("What", "Decision", "Holds", "Where it stands"), rows)
    )


def show(notebook: Notebook, arguments: Sequence[str]) -> None:
    """The agent's last turn once more."""
    view = notebook.views.get(arguments[0] if arguments else notebook.settings.name)
    if view is None:
        raise FatalError("There is no turn to show yet.")
    redraw(notebook.shell, view)


def recording(notebook: Notebook, arguments: Sequence[str]) -> None:
    """What a recording holds (``show``), ``diff A B``, ``trim``, ``rerecord next|all|off``."""
    _say(notebook, manage_recordings(notebook, arguments))


def mcp(notebook: Notebook, arguments: Sequence[str]) -> Any:
    """MCP servers: ``list``, ``add``, ``status``, ``read URI`` and more; see ``mcp help``."""
    return manage_servers(notebook, arguments)


def show_usage(notebook: Notebook, arguments: Sequence[str]) -> None:
    """Requests, tokens and cost of each conversation, its context, and its tools' shares."""
    _say(notebook, describe_usage(notebook.agents))


def show_doctor(notebook: Notebook, arguments: Sequence[str]) -> None:
    """What this kernel can do, and why not."""
    rows = [
        (what, finding)
        for what, finding in examine(notebook.shell, notebook.host, notebook.settings)
    ]
    _say(notebook, table(("", ""), rows))


def show_help(notebook: Notebook, arguments: Sequence[str]) -> None:
    """The words of %agent."""
    rows = [(f"`%agent {word}`", (action.__doc__ or "").strip()) for word, action in WORDS.items()]
    _say(notebook, table(("", ""), rows) + "\n\n`%%agent?` lists the options of a cell.")


WORDS: dict[str, Callable[[Notebook, Sequence[str]], Any]] = {
    "status": show_status,
    "login": login,
    "logout": logout,
    "tools": show_tools,
    "history": show_history,
    "export": export,
    "diff": show_diff,
    "undo": undo,
    "redo": redo,
    "usage": show_usage,
    "compact": compact,
    "reset": reset,
    "stop": stop,
    "approvals": show_approvals,
    "answer": answer,
    "show": show,
    "recording": recording,
    "mcp": mcp,
    "serve": serve,
    "doctor": show_doctor,
    "help": show_help,
}
