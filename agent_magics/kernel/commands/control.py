"""``%agent WORD``: shows and controls the agents of this kernel, one function a word."""

import shlex
from collections.abc import Sequence
from itertools import chain
from typing import Any

from agent_magics.app import Agent
from agent_magics.exec.launcher_client import current_tier
from agent_magics.kernel.cell.outputs import redraw
from agent_magics.kernel.cell.publishing import publish_text
from agent_magics.kernel.commands.approvals import APPROVALS
from agent_magics.kernel.commands.changes.diff import show_diff
from agent_magics.kernel.commands.changes.review import review
from agent_magics.kernel.commands.changes.undo import redo, undo
from agent_magics.kernel.commands.conversations.compact import compact_history
from agent_magics.kernel.commands.conversations.forks import fork
from agent_magics.kernel.commands.conversations.rewinding import rewind
from agent_magics.kernel.commands.conversations.sessions import list_sessions, resume
from agent_magics.kernel.commands.conversations.sub_agents import SUB_AGENTS
from agent_magics.kernel.commands.doctor import examine
from agent_magics.kernel.commands.live_code import export, show_code
from agent_magics.kernel.commands.login import describe_key, log_in, log_out
from agent_magics.kernel.commands.maps import MAPS, maps_text
from agent_magics.kernel.commands.mcp.control import SERVERS
from agent_magics.kernel.commands.project.language_servers import LANGUAGE_SERVERS
from agent_magics.kernel.commands.project.memory import MEMORY
from agent_magics.kernel.commands.project.overview import PROJECT
from agent_magics.kernel.commands.project.prompts import PROMPTS
from agent_magics.kernel.commands.project.skills import SKILLS
from agent_magics.kernel.commands.recordings.report import RECORDINGS
from agent_magics.kernel.commands.serving import SERVE_WORDS, serve
from agent_magics.kernel.commands.settings import SHOWN_SETTINGS, settings_table
from agent_magics.kernel.commands.tool_list import TOOLS
from agent_magics.kernel.commands.usage import show_usage
from agent_magics.kernel.commands.welcome import show_welcome
from agent_magics.kernel.commands.words import Command, Returned, help_table, table
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.ladder import stdin_allowed
from agent_magics.project.instructions import (
    describe_instructions,
    describe_problems,
    read_instructions,
)
from agent_magics.protocol.brief import brief_line, meant
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

_HISTORY_WIDTH = 200


def perform(notebook: NotebookAgents, line: str) -> Any:
    """Run a ``%agent`` line, and return the value that it asks for, if any.

    Raises:
        FatalError: the word is not known, its arguments do not fit, or it failed.
    """
    word, *arguments = line.split() or [_word_alone(notebook)]
    command = WORDS.get(word)
    if command is None:
        raise FatalError(
            f"%agent {word} is not known; {meant(word, WORDS)} A prompt stands below %%agent."
        )
    if not command.is_verbatim:
        arguments = _quoted_words(line)[1:]
    if command.is_alone and arguments:
        raise FatalError(f"{arguments[0]!r} is too much: this word stands alone.")
    found = command.act(notebook, arguments)
    if isinstance(found, Returned):
        return found.value
    if found:
        publish_text(notebook.shell, found)
    return None


def _word_alone(notebook: NotebookAgents) -> str:
    """Return the word that ``%agent`` alone stands for: until a model has answered how to begin."""
    items = chain(*(each.session.conversation.history.items for each in notebook.agents.values()))
    return "welcome" if all(isinstance(item, UserMessage) for item in items) else "status"


def _quoted_words(line: str) -> list[str]:
    """Split a line as a shell does, so that arguments may contain spaces."""
    try:
        return shlex.split(line)
    except ValueError:
        raise FatalError("A quotation mark is missing in this line.") from None


def _chosen(notebook: NotebookAgents, arguments: Sequence[str]) -> Agent:
    name = arguments[0] if arguments else notebook.settings.name
    if name != notebook.settings.name and name not in notebook.agents:
        known = dict.fromkeys([notebook.settings.name, *notebook.agents])
        raise FatalError(f"There is no agent {name!r}; {meant(name, known)}")
    if len(arguments) > 1:
        raise FatalError(f"{arguments[1]!r} is too much: only an agent's name may stand here.")
    return notebook.agent_named(name)


def show_status(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Show each agent's settings and what it is doing."""
    agent = _chosen(notebook, arguments)
    resolved = agent.settings_now()
    rows = [
        ("Agent", agent.name),
        ("At work", notebook.doing(agent) or ("yes" if agent.session.busy else "no")),
        ("Key", describe_key(resolved.settings)),
        ("Sandbox", _sandbox_text(agent)),
        ("History", f"{len(agent.session.conversation.history.items)} items"),
        ("Allowed for this session", str(len(agent.session.conversation.store.session_grants))),
        ("Instructions of the project", _project_text(agent)),
        ("Queued answers", ", ".join(notebook.host.queued) or "none"),
        ("Agents", ", ".join(notebook.agents)),
    ]
    return f"{table(('', ''), rows)}\n\n{settings_table(resolved)}"


def _project_text(agent: Agent) -> str:
    files = read_instructions(agent.config.cwd)
    notes = [describe_instructions(files), *describe_problems(files)]
    return " ".join(filter(None, notes)) or "none"


def _sandbox_text(agent: Agent) -> str:
    tier = current_tier()
    return f"{agent.config.sandbox} (tier {tier})" if tier else "none on this machine (tier 0)"


def show_history(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Show the conversation, an item a line; ``--code`` shows the code that the model ran."""
    if arguments and arguments[0] == "--code":
        return show_code(notebook, arguments[1:])
    lines = [
        _history_line(item)
        for item in _chosen(notebook, arguments).session.conversation.history.items
    ]
    return "\n".join(f"{n}. {line}" for n, line in enumerate(filter(None, lines), 1)) or "Empty."


def _history_line(item: Any) -> str:
    match item:
        case UserMessage(content=content):
            return f"**You:** {brief_line(text_of(content), _HISTORY_WIDTH)}"
        case AssistantMessage(text=text):
            return f"**Agent:** {brief_line(text, _HISTORY_WIDTH)}"
        case FunctionCall(name=name, arguments=arguments):
            return f"**{name}** {code_span(describe_call(arguments))}"
        case CustomToolCall(name=name, input=text):
            return f"**{name}** {code_span(describe_call(text))}"
        case LocalShellCall(command=command):
            return f"**local_shell** {code_span(command_line(command))}"
        case WebSearchCall(action=action):
            return f"**web_search** {code_span(describe_search(action, done=True))}"
        case ToolCallOutput(output=output):
            return f"→ {code_span(brief_line(text_of(output), _HISTORY_WIDTH) or '(nothing)')}"
    return ""


def compact(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Replace the conversation by a summary of it; your prompts stay."""
    return compact_history(notebook, _chosen(notebook, arguments))


def reset(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Begin a new conversation; approvals for the session end."""
    agent = _chosen(notebook, arguments)
    if agent.session.busy:
        raise FatalError(
            f"Agent {agent.name!r} is at work; stop it first: %agent stop {agent.name}."
        )
    agent.reset()
    return f"Agent {code_span(agent.name)} begins a new conversation."


def stop(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Stop the run in the background; ``--all`` also stops the cells queued behind it."""
    names = [word for word in arguments if word != "--all"]
    name = _chosen(notebook, names).name
    tasks = [task for task in notebook.background.get(name, ()) if not task.cancelling()]
    if not tasks:
        raise FatalError(f"No run of agent {name!r} goes on in the background.")
    # The last first: else each would begin for a moment.
    for task in reversed(tasks if "--all" in arguments else tasks[:1]):
        task.cancel()
    return ""


def steer(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Send a message to a running agent: ``steer [--name NAME] TEXT``; "in quotes" before a ?."""
    agent, words = _addressed(notebook, arguments)
    if not words:
        raise FatalError("%agent steer takes the words that the model is to hear.")
    agent.steer(words)
    return f"Agent {code_span(agent.name)} hears it as soon as its running calls end."


def queue(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Queue a prompt behind the running one (``queue TEXT``), list them, ``queue --drop N``."""
    agent, words = _addressed(notebook, arguments)
    match words.split():
        case ["--drop", number] if number.isdecimal() and 1 <= int(number) <= len(agent.queued):
            agent.unqueue(agent.queued[int(number) - 1].id)
        case ["--drop", *_]:
            raise FatalError("%agent queue --drop N: N is a number from %agent queue.")
        case [_, *_]:
            agent.queue(words)
    lines = [
        f"{n}. {code_span(brief_line(each.text, _HISTORY_WIDTH))}"
        for n, each in enumerate(agent.queued, 1)
    ]
    return "\n".join(lines) or "No prompt is queued."


def _addressed(notebook: NotebookAgents, arguments: Sequence[str]) -> tuple[Agent, str]:
    """Return the agent that a line names, and the other words."""
    if arguments and arguments[0] == "--name":
        agent, words = _chosen(notebook, arguments[1:2]), " ".join(arguments[2:])
    else:
        agent, words = _chosen(notebook, ()), " ".join(arguments)
    # IPython takes a line that ends in "?" for a question of its own, unless that is in quotes.
    return agent, words[1:-1] if len(words) > 1 and words[0] == words[-1] in "'\"" else words


def answer(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Queue answers to the next questions; ``--unattended``: only where nobody can answer."""
    unattended = "--unattended" in arguments
    answers = [word for word in arguments if word != "--unattended"]
    if not answers:
        raise FatalError(f"%agent answer takes answers: {', '.join(DECISIONS)}.")
    if unattended and stdin_allowed(notebook.shell):
        return "You are here to answer: the next questions are put to you."
    notebook.host.queue(answers)
    return f"Answers for the next questions: {', '.join(notebook.host.queued)}."


def show(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Show the agent's last turn again."""
    view = notebook.views.get(_chosen(notebook, arguments).name)
    if view is None:
        raise FatalError("There is no turn to show yet.")
    redraw(notebook.shell, view)
    return ""


def manage_maps(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """List open named maps and batches; ``resume``, ``cancel BATCH``, ``forget NAME``."""
    return maps_text(notebook.agent_named(), arguments)


def show_doctor(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Report which features work in this kernel, and why others do not."""
    rows = examine(notebook.shell, notebook.host, notebook.settings_now())
    return table(("", ""), rows)


def show_help(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """List the %agent commands."""
    words = help_table("%agent", ((word, command.help) for word, command in WORDS.items()))
    return f"{words}\n\n`%%agent?` lists the options of a cell."


WORDS: dict[str, Command] = {
    "welcome": Command(show_welcome, is_alone=True),
    "status": Command(show_status),
    "settings": SHOWN_SETTINGS,
    "login": Command(log_in, is_verbatim=True),
    "logout": Command(log_out, is_verbatim=True),
    "tools": TOOLS,
    "project": PROJECT,
    "skills": SKILLS,
    "agents": SUB_AGENTS,
    "memory": MEMORY,
    "prompts": PROMPTS,
    "history": Command(show_history),
    "export": Command(export),
    "diff": Command(show_diff),
    "review": Command(review),
    "undo": Command(undo),
    "redo": Command(redo),
    "usage": Command(show_usage, is_alone=True),
    "map": Command(manage_maps, MAPS.words),
    "compact": Command(compact),
    "reset": Command(reset),
    "sessions": Command(list_sessions, is_verbatim=True),
    "resume": Command(resume),
    "fork": Command(fork),
    "rewind": Command(rewind),
    "stop": Command(stop),
    "steer": Command(steer, is_verbatim=True),
    "queue": Command(queue, is_verbatim=True),
    "approvals": APPROVALS,
    "answer": Command(answer, (*DECISIONS, "--unattended")),
    "show": Command(show),
    "recording": RECORDINGS,
    "mcp": SERVERS,
    "lsp": LANGUAGE_SERVERS,
    "serve": Command(serve, SERVE_WORDS),
    "doctor": Command(show_doctor, is_alone=True),
    "help": Command(show_help, is_alone=True),
}
