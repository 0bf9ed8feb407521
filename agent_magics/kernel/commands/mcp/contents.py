"""``%agent mcp read`` and ``prompt``: returns servers' resources and prompts as Python values."""

import base64
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_magics.kernel.commands.mcp.waiting import ask
from agent_magics.kernel.commands.words import Returned
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import Content, text_of
from agent_magics.protocol.mcp import McpContents, McpPrompt, McpResource, McpServerState
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.tables import table
from agent_magics.render.visible import show_hidden, show_shortened

_MOST_LISTED = 200
_LONGEST = 300
# Image types without scripts; an SVG is returned as text.
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}


# -- resources -------------------------------------------------------------------------------------


def list_resources(notebook: NotebookAgents) -> str:
    """Lists the resources of all servers."""
    return str(ask(notebook, _list_resources))


def read_resource(notebook: NotebookAgents, *place: str) -> Returned:
    """Returns a resource as a Python value.

    Args:
        notebook: the agents.
        place: a URI, or a server and a URI.

    Raises:
        FatalError: it cannot be read, or several servers may have it.
    """
    contents = ask(notebook, lambda manager: _read(manager, "".join(place[:-1]), place[-1]))
    values = [value_of(each) for each in contents]
    return Returned(values[0] if len(values) == 1 else values)


def value_of(contents: McpContents) -> Any:
    """Convert a part of a resource to a Python value.

    JSON becomes an object, CSV a pandas DataFrame where pandas is installed, an image an
    `IPython.display.Image`, other bytes `bytes`; everything else, and malformed data, is text.
    """
    kind = contents.mime_type.partition(";")[0].strip().lower()
    if contents.blob is not None:
        return _bytes_value(contents.blob, kind, contents.uri)
    text = contents.text or ""
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if kind == "text/csv" and importlib.util.find_spec("pandas"):
        import pandas  # noqa: PLC0415 - heavy, and only wanted for tables

        try:
            return pandas.read_csv(io.StringIO(text))
        except ValueError:  # parsing errors are ValueErrors
            return text
    return text


def _bytes_value(blob: str, kind: str, uri: str) -> Any:
    try:
        data = base64.b64decode(blob, validate=True)
    except ValueError:
        raise FatalError(f"The server sent {uri} in a form that is no base64.") from None
    if kind in _IMAGES:
        from IPython.display import Image  # noqa: PLC0415 - only for pictures

        return Image(data=data, format=_IMAGES[kind])
    return data


async def _read(manager: McpConnectionManager, server: str, uri: str) -> tuple[McpContents, ...]:
    found = server or await _server_of(manager, uri)
    return await manager.server(found).read_resource(uri)


async def _server_of(manager: McpConnectionManager, uri: str) -> str:
    """Return the only server that may have a resource: the only one with any, or that lists it."""
    having = [state.config.name for state in await _ready(manager) if state.has_resources]
    if len(having) == 1:
        return having[0]
    listing = [
        name
        for name in having
        if any(one.uri == uri for one in (await manager.server(name).list_resources()).items)
    ]
    if len(listing) != 1:
        raise RespondToModel(
            f"Which server has {uri}? Say %agent mcp read SERVER URI; with resources there are: "
            f"{', '.join(having) or 'none'}."
        )
    return listing[0]


async def _ready(manager: McpConnectionManager) -> list[McpServerState]:
    """Return the connected servers, after waiting for those that are starting."""
    found = []
    for state in manager.states():
        try:
            found.append(await manager.server(state.config.name).standing.ready())
        except RespondToModel:
            continue  # %agent mcp status says why
    return found


async def _list_resources(manager: McpConnectionManager) -> str:
    rows: list[tuple[str, ...]] = []
    for state in await _ready(manager):
        if not state.has_resources:
            continue
        name = state.config.name
        server = manager.server(name)
        pages = await server.list_resources(), await server.list_resource_templates()
        rows += [_resource_row(one) for page in pages for one in page.items]
        if pages[0].next_cursor or pages[1].next_cursor:
            rows.append((code_span(name), "…", "", "there are more"))
    return _listed(("Server", "URI", "Kind", "What it is"), rows, "resources")


def _resource_row(one: McpResource) -> tuple[str, ...]:
    description = one.description or one.title or one.name
    return code_span(one.server), _shown(one.uri), _shown(one.mime_type), _shown(description)


def _listed(head: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> str:
    if not rows:
        return f"No MCP server that is ready has {what}."
    listed = table(head, rows[:_MOST_LISTED])
    left = len(rows) - _MOST_LISTED
    return listed if left <= 0 else f"{listed}\n\n{left} more are not shown."


def _shown(text: str) -> str:
    return code_span(show_shortened(" ".join(text.split()), _LONGEST)) if text.strip() else ""


# -- prompts ---------------------------------------------------------------------------------------


class PromptText(str):
    """The text of a server's prompt, displayed as it is where a cell ends with it."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return fenced(show_hidden(str(self)))


def list_prompts(notebook: NotebookAgents) -> str:
    """Lists the prompts of all servers."""
    return str(ask(notebook, _list_prompts))


def get_prompt(notebook: NotebookAgents, name: str, *words: str) -> Returned:
    """Returns a server's prompt as text, for {{...}}.

    Args:
        notebook: the agents.
        name: of the prompt, or SERVER/NAME.
        words: its arguments as key=value.

    Raises:
        FatalError: there is no such prompt, or its arguments do not fit.
    """
    arguments = dict(map(_argument, words))
    messages = ask(notebook, lambda manager: _get_prompt(manager, name, arguments))
    return Returned(PromptText(prompt_text(messages)))


def prompt_text(messages: Sequence[tuple[str, Content]]) -> str:
    """Join a prompt's messages into one text; several are each marked with their role."""
    texts = [(role, text_of(content)) for role, content in messages]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in texts)


def _argument(word: str) -> tuple[str, str]:
    key, sign, value = word.partition("=")
    if not (key and sign):
        raise FatalError("%agent mcp prompt takes: NAME key=value ...; quote values with spaces.")
    return key, value


async def _get_prompt(
    manager: McpConnectionManager, name: str, arguments: Mapping[str, str]
) -> tuple[tuple[str, Content], ...]:
    prompts = await _prompts(manager)
    found = [one for one in prompts if name in (one.name, f"{one.server}/{one.name}")]
    if len(found) != 1:
        names = [f"{one.server}/{one.name}" for one in (found or prompts)]
        which = f"Which prompt {name!r}? There" if found else f"There is no prompt {name!r}; there"
        raise RespondToModel(f"{which} are: {', '.join(names[:_MOST_LISTED]) or 'none'}.")
    _check_arguments(found[0], arguments)
    return await manager.server(found[0].server).get_prompt(found[0].name, arguments)


def _check_arguments(prompt: McpPrompt, arguments: Mapping[str, str]) -> None:
    known = {name for name, _, _ in prompt.arguments}
    missing = [name for name, _, required in prompt.arguments if required and name not in arguments]
    unknown = [name for name in arguments if name not in known]
    if missing or unknown:
        wrong = f"needs {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
        raise RespondToModel(
            f"The prompt {prompt.name!r} {wrong}; its arguments are: {_arguments_of(prompt)}."
        )


def _arguments_of(prompt: McpPrompt) -> str:
    named = (
        f"{name}=" + ("" if required else " (optional)") for name, _, required in prompt.arguments
    )
    return ", ".join(named) or "none"


async def _prompts(manager: McpConnectionManager) -> list[McpPrompt]:
    states = [state for state in await _ready(manager) if state.has_prompts]
    servers = [manager.server(state.config.name) for state in states]
    return [one for server in servers for one in await server.list_prompts()]


async def _list_prompts(manager: McpConnectionManager) -> str:
    rows = [
        (
            code_span(one.server),
            _shown(one.name),
            _shown(_arguments_of(one)),
            _shown(one.description),
        )
        for one in await _prompts(manager)
    ]
    return _listed(("Server", "Prompt", "Arguments", "What it is"), rows, "prompts")
