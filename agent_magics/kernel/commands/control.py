"""``%agent WORD``: shows and controls the agents of this kernel, one function a word."""

from itertools import chain
from typing import Any

from agent_magics.app import Agent
from agent_magics.engine.channels.redaction import redact_shortened
from agent_magics.exec.launcher_client import current_tier
from agent_magics.kernel.cell.outputs import redraw
from agent_magics.kernel.commands.approvals import APPROVALS
from agent_magics.kernel.commands.changes.diff import DIFF
from agent_magics.kernel.commands.changes.review import REVIEW
from agent_magics.kernel.commands.changes.undo import REDO, UNDO
from agent_magics.kernel.commands.conversations.compact import compact_history
from agent_magics.kernel.commands.conversations.forks import FORK
from agent_magics.kernel.commands.conversations.rewinding import REWIND
from agent_magics.kernel.commands.conversations.sessions import RESUME, SESSIONS
from agent_magics.kernel.commands.conversations.sub_agents import SUB_AGENTS
from agent_magics.kernel.commands.doctor import examine
from agent_magics.kernel.commands.live_code import EXPORT, show_code
from agent_magics.kernel.commands.login import LOGIN, LOGOUT, describe_key
from agent_magics.kernel.commands.maps import MAPS
from agent_magics.kernel.commands.mcp.control import SERVERS
from agent_magics.kernel.commands.project.language_servers import LANGUAGE_SERVERS
from agent_magics.kernel.commands.project.memory import MEMORY
from agent_magics.kernel.commands.project.overview import PROJECT
from agent_magics.kernel.commands.project.prompts import PROMPTS
from agent_magics.kernel.commands.project.skills import SKILLS
from agent_magics.kernel.commands.recordings.report import RECORDINGS
from agent_magics.kernel.commands.serving import SERVE
from agent_magics.kernel.commands.settings import SHOWN_SETTINGS, settings_table
from agent_magics.kernel.commands.tool_list import TOOLS
from agent_magics.kernel.commands.usage import show_usage
from agent_magics.kernel.commands.welcome import show_welcome
from agent_magics.kernel.commands.words import Command, Returned, help_table
from agent_magics.kernel.live.capture import is_of_person
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.ways import stdin_allowed
from agent_magics.kernel.typed_words import split_words, unquoted
from agent_magics.project.instructions import (
    describe_instructions,
    describe_problems,
    read_instructions,
)
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
from agent_magics.render.tables import table
from agent_magics.text.brief import brief_line, nearest, number_of
from agent_magics.text.typed import as_typed

_HISTORY_WIDTH = 200


def perform(notebook: NotebookAgents, line: str) -> Any:
    """Run a ``%agent`` line, and return the value that it asks for, if any.

    Raises:
        FatalError: the word is not known, its arguments do not fit, or it failed.
    """
    word, *arguments = line.split() or [_word_alone(notebook)]
    command = _command(word)
    if not command.is_verbatim:
        arguments = split_words(line)[1:]
    gives_rights = word == "answer" or arguments[:1] == ["trust"]
    if gives_rights and notebook.live_kernel.running and not is_of_person():
        given = " ".join([word, *arguments[:1]])
        raise FatalError(f"%agent {given} gives rights: it is for the person, in a cell of theirs.")
    try:
        found = command.act(notebook, arguments)
    except FatalError as error:  # which may quote a file; its `str` hides only what looks like keys
        raise FatalError(redact_shortened(notebook.secrets, Exception.__str__(error))) from error
    if isinstance(found, Returned):
        return found.value
    if found:
        notebook.publish_text(found)
    return None


def _command(word: str) -> Command:
    command = WORDS.get(word)
    if command is None:
        near = nearest(word, WORDS)
        hint = f"did you mean {near}?" if near else "%agent help lists the words."
        raise FatalError(
            f"%agent {word} is not known; {hint} A prompt stands below %%agent, in its own cell."
        )
    return command


def _word_alone(notebook: NotebookAgents) -> str:
    """Return the word that ``%agent`` alone stands for: until a model has answered how to begin."""
    items = chain(*(each.session.conversation.history.items for each in notebook.agents.values()))
    return "welcome" if all(isinstance(item, UserMessage) for item in items) else "status"


def _show_status(notebook: NotebookAgents, agent: Agent) -> str:
    """Show each agent's settings and what it is doing."""
    resolved = notebook.settings_of(agent)
    rows = [
        ("Agent", agent.name),
        ("At work", notebook.doing(agent) or ("yes" if agent.session.busy else "no")),
        ("Key", describe_key(resolved.settings)),
        ("Sandbox", _sandbox_text(agent)),
        ("History", number_of(len(agent.session.conversation.history.items), "item")),
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


def _show_history(_notebook: NotebookAgents, agent: Agent) -> str:
    """Show the conversation, an item a line; ``--code`` shows the code that the model ran."""
    lines = [_history_line(item) for item in agent.session.conversation.history.items]
    found = "\n".join(f"{n}. {line}" for n, line in enumerate(filter(None, lines), 1))
    return found or "This conversation is empty."


def _history_line(item: Any) -> str:
    match item:
        case UserMessage(content=content, role=role):
            who = "You" if role == "user" else "Told"
            return f"**{who}:** {brief_line(text_of(content), _HISTORY_WIDTH)}"
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


def _reset(notebook: NotebookAgents, agent: Agent) -> str:
    """Begin a new conversation; approvals for the session end."""
    if agent.session.busy:
        raise FatalError(
            f"Agent {agent.name!r} is at work; stop it first: %agent stop {as_typed(agent.name)}."
        )
    notebook.agent_named(agent.name, new=True)
    return f"Agent {code_span(agent.name)} begins a new conversation."


def _stop(notebook: NotebookAgents, agent: Agent, **options: bool) -> None:
    """Stop the run in the background; ``--all`` also stops the cells queued behind it."""
    begun = notebook.background.get(agent.name, ())
    tasks = [task for task in begun if not task.cancelling()]
    if not tasks:
        raise FatalError(
            f"No run of agent {agent.name!r} goes on in the background; the notebook's "
            "own button stops a cell that runs."
        )
    # The last first: else each would begin for a moment.
    for task in reversed(tasks if "all" in options else tasks[:1]):
        task.cancel()


def _steer(_notebook: NotebookAgents, agent: Agent, *words: str) -> str:
    """Send a message to a running agent: ``steer [--name NAME] TEXT``; "in quotes" before a ?."""
    agent.steer(unquoted(words))
    return f"Agent {code_span(agent.name)} hears it as soon as its running calls end."


def _drop(notebook: NotebookAgents, agent: Agent, number: int) -> str:
    """Remove a queued prompt."""
    if number > len(agent.queued):
        raise FatalError("%agent queue --drop N: N is a number from %agent queue.")
    agent.unqueue(agent.queued[number - 1].id)
    return _queue(notebook, agent)


def _queue(_notebook: NotebookAgents, agent: Agent, *words: str) -> str:
    """Queue a prompt behind the running one, and list the queued ones."""
    if words:
        agent.queue(unquoted(words))
    lines = [
        f"{n}. {code_span(brief_line(each.text, _HISTORY_WIDTH))}"
        for n, each in enumerate(agent.queued, 1)
    ]
    return "\n".join(lines) or "No prompt is queued."


def _answer(notebook: NotebookAgents, *answers: str, unattended: bool = False) -> str:
    """Queue answers to the next questions; ``--unattended``: only where nobody can answer."""
    if unattended and stdin_allowed(notebook.shell):
        return "You are here to answer: the next questions are put to you."
    notebook.host.queued.extend(answers)
    return f"Answers for the next questions: {', '.join(notebook.host.queued)}."


def _show(notebook: NotebookAgents, agent: Agent) -> None:
    """Show the agent's last turn again."""
    view = notebook.views.get(agent.name)
    if view is None:
        raise FatalError("There is no turn to show yet.")
    redraw(notebook.shell, view)


def _show_doctor(notebook: NotebookAgents) -> str:
    """Report which features work in this kernel, and why others do not."""
    rows = examine(notebook.shell, notebook.host, notebook.settings_now())
    return table(("", ""), rows)


def _show_help(_notebook: NotebookAgents) -> str:
    """List the %agent commands."""
    words = help_table((word, command.help) for word, command in WORDS.items())
    return (
        f"{words}\n\n`%agent help WORD` lists what may follow it, `%%agent?` the options of a cell."
    )


def _show_help_of(_notebook: NotebookAgents, word: str) -> str:
    """List what may follow a word."""
    return _command(word).details


WORDS = {
    command.word: command
    for command in (
        Command("welcome", {"": show_welcome}),
        Command("status", {"": _show_status}, of_agent=True),
        SHOWN_SETTINGS,
        LOGIN,
        LOGOUT,
        TOOLS,
        PROJECT,
        SKILLS,
        SUB_AGENTS,
        MEMORY,
        PROMPTS,
        Command("history", {"": _show_history, "--code": show_code}, of_agent=True),
        EXPORT,
        DIFF,
        REVIEW,
        UNDO,
        REDO,
        Command("usage", {"": show_usage}),
        MAPS,
        Command("compact", {"": compact_history}, of_agent=True),
        Command("reset", {"": _reset}, of_agent=True),
        SESSIONS,
        RESUME,
        FORK,
        REWIND,
        Command("stop", {"[--all]": _stop}, of_agent=True),
        Command("steer", {"TEXT ...": _steer}, of_agent=True, is_verbatim=True),
        Command(
            "queue",
            {"": _queue, "--drop N": _drop, "TEXT ...": _queue},
            text="Queue a prompt behind the running one (``queue TEXT``), list them, ``--drop N``.",
            of_agent=True,
            is_verbatim=True,
        ),
        APPROVALS,
        Command("answer", {f"{'|'.join(DECISIONS)} ... [--unattended]": _answer}),
        Command("show", {"": _show}, of_agent=True),
        RECORDINGS,
        SERVERS,
        LANGUAGE_SERVERS,
        SERVE,
        Command("doctor", {"": _show_doctor}),
        Command("help", {"": _show_help, "WORD": _show_help_of}),
    )
}
