"""Tracks the running calls of one connection, and routes server requests and messages to them.

Servers of protocol versions before 2026 do not say to which call a question or a log message
belongs. It is routed to the running call; of several, to the one started last.
"""

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl, ValidationError

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client.faults import NO_RESULT
from agent_magics.mcp.client.results import result_of, text_of_sampling
from agent_magics.mcp.client.schemas import is_within
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.protocol.items import Json
from agent_magics.protocol.mcp import (
    Elicitation,
    ElicitationAnswer,
    McpCallbacks,
    McpResult,
    McpServerConfig,
    Sampling,
)
from agent_magics.text.brief import brief_line
from agent_magics.time_limit import CancellingLimit, TimeLimit

if TYPE_CHECKING:
    from mcp.client.client import Client

_MOST_MESSAGES = 200  # messages of one call that are forwarded without delay
_MESSAGE_GAP = 0.05  # minimal seconds between further ones
_LONGEST_LOG = 4_000  # characters of a log message
_LONGEST_FORM = 128 * 1024  # characters of a question; also of its record
_LONGEST_PROMPT = 1024 * 1024  # characters of a request to our model

_Answer = TypeVar("_Answer")
_current: "ContextVar[_RunningCall | None]" = ContextVar("mcp call", default=None)


class _RunningCall:
    """One running call."""

    clock: TimeLimit

    def __init__(self, callbacks: McpCallbacks) -> None:
        self.callbacks = callbacks
        self.open = True
        self.questions: set[asyncio.Task[Any]] = set()
        self._messages = 0
        self._last = 0.0

    async def take_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Forward progress of the call to its callbacks."""
        if self.accepts_message():
            self.callbacks.progress(progress, total, message or "")

    def accepts_message(self) -> bool:
        """Count a message and tell whether to forward it; of a flood only some are."""
        self._messages += 1
        now = time.monotonic()
        if not self.open or (self._messages > _MOST_MESSAGES and now - self._last < _MESSAGE_GAP):
            return False
        self._last = now
        return True

    def end(self) -> None:
        """Mark the call as ended, and cancel its questions."""
        self.open = False
        for question in self.questions:
            question.cancel()

    async def ask(self, asking: Coroutine[Any, Any, _Answer]) -> _Answer | None:
        """Await an answer of the person, with the call's time limit paused; None if the call
        ends first.
        """
        question = asyncio.ensure_future(asking)
        self.questions.add(question)
        try:
            with self.clock.stopped():
                await asyncio.wait({question})
            return None if question.cancelled() else question.result()
        finally:
            self.questions.discard(question)
            question.cancel()  # in case the server cancelled its request


class Calls:
    """Calls tools, and answers the server's requests meanwhile."""

    def __init__(self, config: McpServerConfig, roots: Sequence[Path], log: LogRing) -> None:
        self._config = config
        self._roots = roots
        self._log = log
        self._open: list[_RunningCall] = []

    def begin(self, client: "Client") -> None:
        """Set the client to use."""
        self._client = client

    async def call(
        self, tool: str, arguments: Mapping[str, Json], callbacks: McpCallbacks
    ) -> McpResult:
        """Call a tool.

        Args:
            tool: its name at the server.
            arguments: a JSON object.
            callbacks: receive progress, log messages and questions.

        Raises:
            RespondToModel: it cannot be sent, it timed out, or the result is malformed.
            MCPError: the server refused it, or the connection ended.
        """
        check_sent(repr(tool), arguments)
        limit = self._config.tool_timeout_sec
        call = _RunningCall(callbacks)
        self._open.append(call)
        token = _current.set(call)
        try:
            async with CancellingLimit(limit) as call.clock:
                answer = await self._client.call_tool(
                    tool, dict(arguments), progress_callback=call.take_progress
                )
        except TimeoutError:
            raise RespondToModel(
                f"The tool {tool!r} of the MCP server {self._config.name!r} did not answer within "
                f"{limit:g} s (tool_timeout_sec). The server was told to stop; whether it did its "
                "work is unknown."
            ) from None
        except MCPError as error:
            if error.error.code == types.URL_ELICITATION_REQUIRED:
                raise RespondToModel(await self._visit(error, callbacks)) from None
            raise
        except NO_RESULT as error:
            raise RespondToModel(
                f"The MCP server {self._config.name!r} answered the call of {tool!r} with what is "
                f"no result: {brief_line(clause(error), 300)}. Whether it did its work is unknown."
            ) from None
        finally:
            call.end()
            _current.reset(token)
            self._open.remove(call)
        return result_of(answer)

    # -- requests of the server ----------------------------------------------------------------

    async def list_roots(self, context: object) -> types.ListRootsResult:
        """Answer the server's request for the workspace folders."""
        roots = [types.Root(uri=FileUrl(each.as_uri()), name=each.name) for each in self._roots]
        return types.ListRootsResult(roots=roots)

    async def take_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Store a log message, and forward it to the running call."""
        data = params.data
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        if params.logger:
            text = f"{params.logger}: {text}"
        text = text[:_LONGEST_LOG]
        self._log.note(f"log, {params.level}: {text}")
        call = self._call()
        if call is not None and call.accepts_message():
            call.callbacks.log(params.level, self._log.redact(text))

    async def elicit(
        self, context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """Ask the callbacks of the running call; without one, decline."""
        call = self._call()
        if call is None:
            self._log.note(f"a question was declined, as no call is under way: {params.message}")
            return types.ElicitResult(action="decline")
        answer = await call.ask(self._ask(call.callbacks, params)) or ElicitationAnswer("cancel")
        is_form = not isinstance(params, types.ElicitRequestURLParams)
        content: Any = dict(answer.content) if answer.action == "accept" and is_form else None
        return types.ElicitResult(action=answer.action, content=content)

    async def sample(
        self, context: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Let the callbacks of the running call sample our model; without one, refuse."""
        call = self._call()
        text = None
        messages = tuple(text_of_sampling(each) for each in params.messages)
        if not is_within((messages, params.system_prompt), _LONGEST_PROMPT):
            self._log.note("a request to the model was refused: it is too long")
        elif call is not None:
            request = Sampling(
                self._config.name, messages, params.system_prompt or "", params.max_tokens
            )
            text = await call.ask(call.callbacks.sample(request))
        if text is None:
            # -1 as in the specification's example of a rejected request.
            return types.ErrorData(code=-1, message="The request was refused.")
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="agent-magics")

    def _call(self) -> _RunningCall | None:
        call = _current.get()
        if call is not None and call in self._open:
            return call
        return self._open[-1] if self._open else None

    async def _ask(
        self, callbacks: McpCallbacks, params: types.ElicitRequestParams
    ) -> ElicitationAnswer:
        if not is_within(params.model_dump(), _LONGEST_FORM):
            self._log.note(f"a question was declined, too long or too deep: {params.message}")
            return ElicitationAnswer("decline")
        if isinstance(params, types.ElicitRequestURLParams):
            return await callbacks.elicit(
                Elicitation(self._config.name, params.message, url=params.url)
            )
        schema = params.requested_schema
        if not isinstance(schema, Mapping):
            schema = schema.model_dump(by_alias=True, mode="json", exclude_none=True)
        return await callbacks.elicit(Elicitation(self._config.name, params.message, schema))

    async def _visit(self, error: MCPError, callbacks: McpCallbacks) -> str:
        """Ask the person to open the addresses that the server requires before the call."""
        data = error.error.data if isinstance(error.error.data, Mapping) else {}
        answers = []
        listed = data.get("elicitations")
        for each in listed[:5] if isinstance(listed, list) else ():
            try:
                params = types.ElicitRequestURLParams.model_validate(each)
            except ValidationError:
                continue
            answers.append((await self._ask(callbacks, params)).action)
        if answers and all(answer == "accept" for answer in answers):
            return (
                "The person has opened the address that the server asked for; call the tool again."
            )
        return "The server wants the person to open an address first; the person did not."


def check_sent(what: str, arguments: object) -> None:
    """Check that arguments are valid JSON; otherwise the SDK would close the connection."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        told = f"The arguments for {what} are not valid JSON: {clause(error)}."
        raise RespondToModel(told.encode("utf-8", "replace").decode()) from None
