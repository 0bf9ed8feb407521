"""Implements the MCP server: lists tools, takes calls, notifies of changed lists."""

import asyncio
import secrets
from collections import Counter, deque
from contextlib import suppress
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ElicitRequest,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    TextContent,
)

from agent_magics._version import __version__
from agent_magics.dispatch.results.cutting import encodable, encodable_json
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import ContentPart, InputText, json_or
from agent_magics.protocol.tools import ToolOutput
from agent_magics.render.visible import show_shortened
from agent_magics.serve.asking import form_of
from agent_magics.serve.calls import OpenQuestion, OutsideCall
from agent_magics.serve.listing import ToolListing, list_tools
from agent_magics.serve.place import CallPlace

MOST_CLIENTS = 100
# Calls that wait, between two requests, for a client's person; and seconds until one is given up.
MOST_PARKED, PATIENCE = 32, 600.0
# Calls under way at once: of one client, by the name that it gives, and of all.
MOST_CALLS_OF_ONE, MOST_CALLS = 16, 64
_LONGEST_NAME = 60
_DEEPEST = 200  # levels of data; a message of the SDK has 255 at most
_INSTRUCTIONS = (
    "Tools of a person's Python session. Some calls wait for that person's approval; a denial is "
    "told with its reason."
)
_QUESTION = "approve"

Context = ServerRequestContext[Any, Any]


class _NotifyingServer(Server[Any]):
    """Declares the capability ``tools.listChanged`` to clients of protocol version 2025, too."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **named: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *more, **named)


class ToolServer:
    """An MCP server of an agent's tools, for any number of clients at once.

    Everything but `refresh` runs on the engine's loop.

    Args:
        place: the loop and thread on which calls run.
        wanted: names of the tools; None means all.
        ask_client: whether approval questions go to the client that calls.

    Raises:
        FatalError: a wanted tool is missing.
    """

    def __init__(
        self, place: CallPlace, wanted: tuple[str, ...] | None = None, *, ask_client: bool = False
    ) -> None:
        self._place = place
        self._wanted = wanted
        self._ask_client = ask_client
        self._engine = place.agent.session.engine
        self._bus = InMemorySubscriptionBus()
        self._sessions: deque[ServerSession] = deque(maxlen=MOST_CLIENTS)
        self._under_way: Counter[str] = Counter()  # calls by client
        self._parked: dict[str, tuple[OutsideCall, OpenQuestion, asyncio.TimerHandle]] = {}
        self.listen = ListenHandler(self._bus, max_subscriptions=MOST_CLIENTS)
        self.listing: ToolListing = list_tools(
            place.serve_host.turn_config(), wanted, complete=True
        )
        self.server = _NotifyingServer(
            "agent-magics",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=self.listen,
        )
        self.server.add_notification_handler(
            "notifications/initialized", NotificationParams, self._greet
        )

    # -- the list ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """List the tools again and notify the clients of changes; called on the place's loop.

        A wanted tool that is missing is no error here: it is left out until it is back.
        """
        try:
            fresh = list_tools(self._place.serve_host.turn_config(), self._wanted, complete=False)
        except FatalError:  # such as two tools of one name: each call reports it
            return
        changed, self.listing = fresh.digest != self.listing.digest, fresh
        if changed:
            self._engine.spawn(self._notify_of_change())

    async def _notify_of_change(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in tuple(self._sessions):
            try:
                await session.send_tool_list_changed()
            except Exception:  # transports raise various errors when their client has disconnected
                with suppress(ValueError):
                    self._sessions.remove(session)

    async def _greet(self, ctx: Context, _: NotificationParams) -> None:
        """Remember a 2025 client's session for notifications; clients of 2026 subscribe."""
        self._sessions.append(ctx.session)

    async def _list_tools(self, ctx: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list(self.listing.tools))

    # -- calls -------------------------------------------------------------------------------------

    async def _call_tool(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        client = client_name(ctx.session)
        calls = self._under_way
        if calls[client] >= MOST_CALLS_OF_ONE or calls.total() >= MOST_CALLS:
            return failure(
                f"{params.name} was not called: {calls[client]} calls of yours and "
                f"{calls.total()} in all are under way, and no more than {MOST_CALLS_OF_ONE} and "
                f"{MOST_CALLS} may be. Wait until one has ended."
            )
        calls[client] += 1
        try:
            return await self._answer_call(ctx, client, params)
        finally:
            calls[client] -= 1
            calls += Counter()  # leaves out the clients that have none

    async def _answer_call(
        self, ctx: Context, client: str, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.request_state is not None:
            call = self._resume(params)
        elif params.name in self.listing.names:
            try:
                call = self._begin(client, params)
            except RuntimeError:
                return failure("The program behind this server has ended.")
        else:
            names = ", ".join(self.listing.names)
            message = f"Unknown tool: {params.name}; there are: {names}"
            raise MCPError(INVALID_PARAMS, show_shortened(message, 2_000))
        parked = False
        try:
            question = await self._go_on(ctx, call)
            if question is not None:
                parked = True
                return self._park(call, question)
        finally:
            if not parked:
                call.cancel()  # does nothing where it has ended
        return result_of(call.output(), data=call.name in self.listing.data)

    def _begin(self, client: str, params: CallToolRequestParams) -> OutsideCall:
        arguments = params.arguments or {}
        return OutsideCall(self._place, client, params.name, arguments, ask_client=self._ask_client)

    async def _go_on(self, ctx: Context, call: OutsideCall) -> OpenQuestion | None:
        """Follow a call to its end, or to a question that needs another request of the client."""

        async def progress(share: float, title: str | None) -> None:
            await ctx.session.report_progress(share, 1.0, title)

        while (open_question := await call.next_question(progress)) is not None:
            if not _can_elicit(ctx.session):
                open_question.answer(None)
            elif not ctx.session.can_send_request:
                return open_question
            else:
                open_question.answer(await _elicit(ctx, open_question))
        return None

    # -- calls that wait between two requests ------------------------------------------------------

    def _park(self, call: OutsideCall, question: OpenQuestion) -> InputRequiredResult:
        while len(self._parked) >= MOST_PARKED:
            self._give_up(next(iter(self._parked)))
        state = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(PATIENCE, self._give_up, state)
        self._parked[state] = call, question, timer
        request = ElicitRequest(params=form_of(question.question))
        return InputRequiredResult(input_requests={_QUESTION: request}, request_state=state)

    def _give_up(self, state: str) -> None:
        call, _, timer = self._parked.pop(state)
        timer.cancel()
        call.cancel()

    def _resume(self, params: CallToolRequestParams) -> OutsideCall:
        """Pass the client's answer to the call that waits for it.

        Raises:
            MCPError: no call waits under this state, or another call does.
        """
        state = params.request_state or ""
        waiting = self._parked.get(state)
        if waiting is None:
            raise MCPError(INVALID_PARAMS, "Nothing waits under this requestState any more.")
        call, question, timer = waiting
        if (call.name, call.arguments) != (params.name, params.arguments or {}):
            raise MCPError(INVALID_PARAMS, "This requestState belongs to another call.")
        del self._parked[state]
        timer.cancel()
        answer = (params.input_responses or {}).get(_QUESTION)
        question.answer(
            answer if isinstance(answer, ElicitResult) else ElicitResult(action="cancel")
        )
        return call

    def close(self) -> None:
        """Cancel the calls that wait for clients and end the clients' streams."""
        for state in tuple(self._parked):
            self._give_up(state)
        self.listen.close()


def client_name(session: ServerSession) -> str:
    """Return the client's name and version as it reports them, short and with all signs visible."""
    params = session.client_params
    if params is None:
        return "one that does not say its name"
    name = f"{params.client_info.name} {params.client_info.version}".strip()
    return " ".join(show_shortened(name, _LONGEST_NAME).split())


def _can_elicit(session: ServerSession) -> bool:
    """Return whether a client can show forms; naming no mode means that it can (MCP 2025-06-18)."""
    capabilities = session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def _elicit(ctx: Context, question: OpenQuestion) -> ElicitResult:
    form = form_of(question.question)
    with suppress(MCPError, ValueError):  # it cannot show forms after all, or its answer is invalid
        return await ctx.session.elicit_form(
            form.message, form.requested_schema, related_request_id=ctx.request_id
        )
    return ElicitResult(action="cancel")


def result_of(output: ToolOutput, *, data: bool) -> CallToolResult:
    """Convert a tool's output to an MCP result; a failure sets ``isError`` and is never raised.

    Args:
        output: the tool's output.
        data: whether the tool returns values, not text: JSON text is then also given as structured
            content.
    """
    parts = output.content
    if isinstance(parts, str):
        parts = (InputText(parts),)
    return CallToolResult(
        content=[_block_of(part) for part in parts],
        structured_content=_data_of(output) if data and output.success else None,
        is_error=not output.success,
    )


def failure(reason: str) -> CallToolResult:
    """Return an MCP error result for a call that could not be made."""
    return CallToolResult(content=[TextContent(text=encodable(reason))], is_error=True)


def _block_of(part: ContentPart) -> ContentBlock:
    if isinstance(part, InputText):
        return TextContent(text=encodable(part.text))
    head, comma, data = part.image_url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImageContent(data=data, mime_type=head[len("data:") : -len(";base64")])
    return TextContent(text=f"Image: {part.image_url}")


def _data_of(output: ToolOutput) -> dict[str, Any] | None:
    """Parse an output's whole text as a JSON object or list; None where it is neither, or too deep.

    The text is parsed rather than the value used: secrets have been redacted in the text alone.
    Clients of 2025 accept only objects, so a list is put into one, as the SDK's own servers do.
    """
    if not isinstance(output.content, str) or output.content[:1] not in ("{", "["):
        return None
    # It may only begin like JSON, or be JSON that was cut to fit.
    value = json_or(output.content, None)
    if _is_deeper(value, _DEEPEST):
        return None
    value = encodable_json(value)
    return {"result": value} if isinstance(value, list) else value


def _is_deeper(value: Any, most: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not most or any(_is_deeper(each, most - 1) for each in inner)
