"""``%agent WORD``: shows and controls the agents of this kernel, one function a word."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.error import UsageError

from agent_magics.app import Agent
from agent_magics.exec.launcher_client import current_tier
from agent_magics.kernel.cell.publishing import publish_text, redraw
from agent_magics.kernel.commands.approvals import show_approvals
from agent_magics.kernel.commands.changes.diff import show_diff
from agent_magics.kernel.commands.changes.review import review
from agent_magics.kernel.commands.changes.undo import redo, undo
from agent_magics.kernel.commands.compact import compact_history
from agent_magics.kernel.commands.conversations.forks import fork
from agent_magics.kernel.commands.conversations.rewinding import rewind
from agent_magics.kernel.commands.conversations.sessions import list_sessions, resume
from agent_magics.kernel.commands.conversations.sub_agents import sub_agents_text
from agent_magics.kernel.commands.doctor import examine
from agent_magics.kernel.commands.live_code import export, show_code
from agent_magics.kernel.commands.login import describe_key, log_in, log_out
from agent_magics.kernel.commands.maps import maps_text
from agent_magics.kernel.commands.mcp.control import manage_servers
from agent_magics.kernel.commands.project.language_servers import manage_language_servers
from agent_magics.kernel.commands.project.memory import memory_text
from agent_magics.kernel.commands.project.overview import project_text
from agent_magics.kernel.commands.project.prompts import prompts_text
from agent_magics.kernel.commands.project.skill_tests import run_skill_test
from agent_magics.kernel.commands.project.skills import skills_text
from agent_magics.kernel.commands.recordings.report import manage_recordings
from agent_magics.kernel.commands.serving import serve
from agent_magics.kernel.commands.settings import settings_table, settings_text
from agent_magics.kernel.commands.table import table
from agent_magics.kernel.commands.tool_list import tools_text
from agent_magics.kernel.commands.usage import describe_usage
from agent_magics.kernel.commands.welcome import welcome_text
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.ladder import stdin_allowed
from agent_magics.project.instructions import (
    describe_instructions,
    describe_problems,
    read_instructions,
)
from agent_magics.protocol.brief import brief_line
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
        UsageError: the word is not known, its arguments do not fit, or it failed.
    """
    word, *arguments = line.split() or [_word_alone(notebook)]
    action = WORDS.get(word)
    if action is None:
        raise UsageError(f"%agent {word} is not known; there are: {', '.join(WORDS)}.")
    try:
        return action(notebook, _quoted_words(line)[1:] if word == "mcp" else arguments)
    except FatalError as error:
        raise UsageError(str(error)) from None


def _word_alone(notebook: NotebookAgents) -> str:
    """Return the word that ``%agent`` alone stands for: before the first turn how to begin."""
    begun = any(each.session.conversation.history.items for each in notebook.agents.values())
    return "status" if begun else "welcome"


def _quoted_words(line: str) -> list[str]:
    """Split a line as a shell does, so that arguments may contain spaces."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise FatalError(f"The quotes in this line do not fit: {error}.") from None


def show_welcome(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """How to begin: the model, its key, and what to do next; also `%agent` before a turn."""
    publish_text(notebook.shell, welcome_text(notebook.settings_now()))


def _chosen(notebook: NotebookAgents, arguments: Sequence[str]) -> Agent:
    name = arguments[0] if arguments else notebook.settings.name
    if name != notebook.settings.name and name not in notebook.agents:
        known = ", ".join(dict.fromkeys([notebook.settings.name, *notebook.agents]))
        raise FatalError(f"There is no agent {name!r}; there are: {known}.")
    return notebook.agent_named(name)


def show_status(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
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
    publish_text(notebook.shell, f"{table(('', ''), rows)}\n\n{settings_table(resolved)}")


def _project_text(agent: Agent) -> str:
    files = read_instructions(agent.config.cwd)
    notes = [describe_instructions(files), *describe_problems(files)]
    return " ".join(filter(None, notes)) or "none"


def show_settings(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the settings and the source of each value; ``trust`` accepts the project's settings."""
    agent = notebook.agent_named(notebook.settings.name)
    publish_text(notebook.shell, settings_text(agent.settings_now(), arguments))


def _sandbox_text(agent: Agent) -> str:
    tier = current_tier()
    return f"{agent.config.sandbox} (tier {tier})" if tier else "none on this machine (tier 0)"


def login(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Store a key for a provider or host (else the agent's own); what you type is hidden."""
    publish_text(notebook.shell, log_in(notebook.settings_now(), notebook.shell, arguments))


def logout(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Delete the stored key of a provider or host."""
    publish_text(notebook.shell, log_out(notebook.settings_now(), arguments))


def show_tools(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the next cell's tools and their cost; ``hide NAME``, ``show NAME``, ``trust``."""
    agent = notebook.agent_named(notebook.settings.name)
    publish_text(notebook.shell, tools_text(notebook, agent, arguments))


def show_skills(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the skills and which of them are used; ``show NAME``, ``test NAME``, ``trust``."""
    agent = notebook.agent_named(notebook.settings.name)
    match list(arguments):
        case ["test", name]:
            passed, text = run_skill_test(agent, name)
            publish_text(notebook.shell, text)
            if not passed:
                raise FatalError(f"The test of the skill {name} failed.")
        case _:
            publish_text(notebook.shell, skills_text(agent.config.cwd, arguments))


def show_sub_agents(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the agents that work for this one, and their types; ``stop NAME``, ``trust``."""
    agent = notebook.agent_named(notebook.settings.name)
    publish_text(notebook.shell, sub_agents_text(agent, arguments))


def manage_memory(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the notes that agents keep; ``show``, ``edit``, ``delete TOPIC``, ``trust``."""
    agent = notebook.agent_named(notebook.settings.name)
    publish_text(notebook.shell, memory_text(notebook.shell, agent.config.cwd, arguments))


def show_project(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List what the project has for agents; ``trust DIGEST``, ``activate FOLDER``."""
    publish_text(notebook.shell, project_text(notebook, arguments))


def show_prompts(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the prompts for ``%%agent --prompt``; ``show NAME``, ``trust``."""
    agent = notebook.agent_named(notebook.settings.name)
    publish_text(notebook.shell, prompts_text(agent.config.cwd, arguments))


def show_history(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Show the conversation, an item a line; ``--code`` shows the code that the model ran."""
    if arguments and arguments[0] == "--code":
        show_code(notebook, arguments[1:])
        return
    lines = [
        _history_line(item)
        for item in _chosen(notebook, arguments).session.conversation.history.items
    ]
    publish_text(
        notebook.shell,
        "\n".join(f"{n}. {line}" for n, line in enumerate(filter(None, lines), 1)) or "Empty.",
    )


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


def compact(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Replace the conversation by a summary of it; your prompts stay."""
    publish_text(notebook.shell, compact_history(notebook, _chosen(notebook, arguments)))


def reset(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Begin a new conversation; approvals for the session end."""
    agent = _chosen(notebook, arguments)
    if agent.session.busy:
        raise FatalError(
            f"Agent {agent.name!r} is at work; stop it first: %agent stop {agent.name}."
        )
    agent.reset()
    publish_text(notebook.shell, f"Agent {code_span(agent.name)} begins a new conversation.")


def stop(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Stop the run in the background; ``--all`` also stops the cells queued behind it."""
    names = [word for word in arguments if word != "--all"]
    name = names[0] if names else notebook.settings.name
    tasks = [task for task in notebook.background.get(name, ()) if not task.cancelling()]
    if not tasks:
        raise FatalError(f"No run of agent {name!r} goes on in the background.")
    # The last first: else each would begin for a moment.
    for task in reversed(tasks if "--all" in arguments else tasks[:1]):
        task.cancel()


def steer(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Send a message to a running agent: ``steer [--name NAME] TEXT``; "in quotes" before a ?."""
    agent, words = _addressed(notebook, arguments)
    if not words:
        raise FatalError("%agent steer takes the words that the model is to hear.")
    agent.steer(words)
    publish_text(
        notebook.shell, f"Agent {code_span(agent.name)} hears it as soon as its running calls end."
    )


def queue(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
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
    publish_text(notebook.shell, "\n".join(lines) or "No prompt is queued.")


def _addressed(notebook: NotebookAgents, arguments: Sequence[str]) -> tuple[Agent, str]:
    """Return the agent that a line names, and the other words."""
    if arguments and arguments[0] == "--name":
        agent, words = _chosen(notebook, arguments[1:2]), " ".join(arguments[2:])
    else:
        agent, words = _chosen(notebook, ()), " ".join(arguments)
    # IPython takes a line that ends in "?" for a question of its own, unless that is in quotes.
    return agent, words[1:-1] if len(words) > 1 and words[0] == words[-1] in "'\"" else words


def answer(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Queue answers to the next questions; ``--unattended``: only where nobody can answer."""
    unattended = "--unattended" in arguments
    answers = [word for word in arguments if word != "--unattended"]
    if not answers:
        raise FatalError(f"%agent answer takes answers: {', '.join(DECISIONS)}.")
    if unattended and stdin_allowed(notebook.shell):
        publish_text(notebook.shell, "You are here to answer: the next questions are put to you.")
        return
    notebook.host.queue(answers)
    publish_text(
        notebook.shell, f"Answers for the next questions: {', '.join(notebook.host.queued)}."
    )


def show(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Show the agent's last turn again."""
    view = notebook.views.get(arguments[0] if arguments else notebook.settings.name)
    if view is None:
        raise FatalError("There is no turn to show yet.")
    redraw(notebook.shell, view)


def recording(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Show or change a recording: ``show``, ``diff A B``, ``trim``, ``rerecord next|all|off``."""
    publish_text(notebook.shell, manage_recordings(notebook, arguments))


def mcp(notebook: NotebookAgents, arguments: Sequence[str]) -> Any:
    """Manage MCP servers: ``list``, ``add``, ``status``, ``read URI``; see ``mcp help``."""
    return manage_servers(notebook, arguments)


def show_usage(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Show requests, tokens and cost of each conversation, its context, and its tools' shares."""
    publish_text(notebook.shell, describe_usage(notebook.agents))


def manage_maps(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List open named maps and batches; ``resume``, ``cancel BATCH``, ``forget NAME``."""
    agent = notebook.agent_named(notebook.settings.name)
    publish_text(notebook.shell, maps_text(agent, arguments))


def show_doctor(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Report which features work in this kernel, and why others do not."""
    rows = [
        (what, finding)
        for what, finding in examine(notebook.shell, notebook.host, notebook.settings_now())
    ]
    publish_text(notebook.shell, table(("", ""), rows))


def show_help(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """List the %agent commands."""
    rows = [(f"`%agent {word}`", (action.__doc__ or "").strip()) for word, action in WORDS.items()]
    publish_text(
        notebook.shell, table(("", ""), rows) + "\n\n`%%agent?` lists the options of a cell."
    )


WORDS: dict[str, Callable[[NotebookAgents, Sequence[str]], Any]] = {
    "welcome": show_welcome,
    "status": show_status,
    "settings": show_settings,
    "login": login,
    "logout": logout,
    "tools": show_tools,
    "project": show_project,
    "skills": show_skills,
    "agents": show_sub_agents,
    "memory": manage_memory,
    "prompts": show_prompts,
    "history": show_history,
    "export": export,
    "diff": show_diff,
    "review": review,
    "undo": undo,
    "redo": redo,
    "usage": show_usage,
    "map": manage_maps,
    "compact": compact,
    "reset": reset,
    "sessions": list_sessions,
    "resume": resume,
    "fork": fork,
    "rewind": rewind,
    "stop": stop,
    "steer": steer,
    "queue": queue,
    "approvals": show_approvals,
    "answer": answer,
    "show": show,
    "recording": recording,
    "mcp": mcp,
    "lsp": manage_language_servers,
    "serve": serve,
    "doctor": show_doctor,
    "help": show_help,
}
