"""The server that clients see: lists tools, takes calls, says when the list has changed."""

import asyncio
import secrets
from collections import deque
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
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
)

from agent_magics._version import __version__
from agent_magics.protocol.errors import FatalError
from agent_magics.render.visible import show_shortened
from agent_magics.serve.asking import form_of
from agent_magics.serve.calls import OpenQuestion, OutsideCall
from agent_magics.serve.listing import Listing, list_tools
from agent_magics.serve.place import Place
from agent_magics.serve.results import failure, result_of

MOST_CLIENTS = 100
# Calls that wait, between two requests, for a client's person; and seconds until one is given up.
MOST_PARKED, PATIENCE = 32, 600.0
_LONGEST_NAME = 60
_INSTRUCTIONS = (
    "Tools of a person's Python session. Some calls wait for that person's approval; a denial is "
    "told with its reason."
)
_QUESTION = "approve"

Context = ServerRequestContext[Any, Any]


class _Server(Server[Any]):
    """Says to clients of 2025, too, that the list of tools may change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **named: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *more, **named)


class ToolServer:
    """An agent's tools as a server of the protocol, for any number of clients at once.

    Everything but `refresh` runs on the engine's loop.

    Args:
        place: where calls are made.
        wanted: names of the tools; None is all.
        ask_client: questions go to the client that calls.

    Raises:
        FatalError: a wanted tool is not there.
    """

    def __init__(
        self, place: Place, wanted: tuple[str, ...] | None = None, *, ask_client: bool = False
    ) -> None:
        self._place = place
        self._wanted = wanted
        self._ask_client = ask_client
        self._engine = place.agent.session.engine
        self._bus = InMemorySubscriptionBus()
        self._sessions: deque[ServerSession] = deque(maxlen=MOST_CLIENTS)
        self._parked: dict[str, tuple[OutsideCall, OpenQuestion, asyncio.TimerHandle]] = {}
        self.listen = ListenHandler(self._bus, max_subscriptions=MOST_CLIENTS)
        self.listing: Listing = list_tools(place.desk.setup(), wanted, complete=True)
        self.server = _Server(
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
        """Look at the tools again and tell the clients where they differ; at the place.

        A wanted tool that has gone is no error here: it is missing from the list until it is back.
        """
        try:
            fresh = list_tools(self._place.desk.setup(), self._wanted, complete=False)
        except FatalError:  # two of one name, say: each call is told of it
            return
        changed, self.listing = fresh.digest != self.listing.digest, fresh
        if changed:
            self._engine.spawn(self._tell_change())

    async def _tell_change(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in tuple(self._sessions):
            try:
                await session.send_tool_list_changed()
            except Exception:  # whatever a transport raises when its client has gone
                with suppress(ValueError):
                    self._sessions.remove(session)

    async def _greet(self, ctx: Context, _: NotificationParams) -> None:
        """Keep a client of 2025 in mind; those of 2026 subscribe."""
        self._sessions.append(ctx.session)

    async def _list_tools(self, ctx: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list(self.listing.tools))

    # -- calls -------------------------------------------------------------------------------------

    async def _call_tool(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.request_state is not None:
            call = self._resume(params)
        elif params.name in self.listing.names:
            try:
                call = self._begin(ctx, params)
            except RuntimeError:
                return failure("The program behind this server has ended.")
        else:
            names = ", ".join(self.listing.names)
            told = f"Unknown tool: {params.name}; there are: {names}"
            raise MCPError(INVALID_PARAMS, show_shortened(told, 2_000))
        parked = False
        try:
            question = await self._go_on(ctx, call)
            if question is not None:
                parked = True
                return self._park(call, question)
        finally:
            if not parked:
                call.cancel()  # nothing where it has ended
        return result_of(call.output(), data=call.name in self.listing.data)

    def _begin(self, ctx: Context, params: CallToolRequestParams) -> OutsideCall:
        client = client_name(ctx.session)
        arguments = params.arguments or {}
        return OutsideCall(self._place, client, params.name, arguments, ask_client=self._ask_client)

    async def _go_on(self, ctx: Context, call: OutsideCall) -> OpenQuestion | None:
        """Follow a call to its end, or to a question that needs another request."""

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
        """Bring the client's answer to the call that waits for it.

        Raises:
            MCPError: no such call waits, or another one than this.
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
        """Stop what waits for clients and end their streams."""
        for state in tuple(self._parked):
            self._give_up(state)
        self.listen.close()


def client_name(session: ServerSession) -> str:
    """Return who a client says that it is, short and with nothing hidden in it."""
    params = session.client_params
    if params is None:
        return "one that does not say its name"
    name = f"{params.client_info.name} {params.client_info.version}".strip()
    return " ".join(show_shortened(name, _LONGEST_NAME).split())


def _can_elicit(session: ServerSession) -> bool:
    """Tell whether a client draws forms; one that names no mode draws these (2025-06-18)."""
    capabilities = session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def _elicit(ctx: Context, question: OpenQuestion) -> ElicitResult:
    form = form_of(question.question)
    with suppress(MCPError, ValueError):  # it cannot, after all; or answers nonsense
        return await ctx.session.elicit_form(
            form.message, form.requested_schema, related_request_id=ctx.request_id
        )
    return ElicitResult(action="cancel")
