"""The calls under way on one connection, and whom of them a server speaks to.

Servers of before 2026 do not say to which call a question or a log message of theirs belongs. It
goes to the one call under way; of several, to the one that began last.
"""

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp import InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl, ValidationError

from agent_magics.backends.mcp.logs import LogRing
from agent_magics.backends.mcp.results import result_of, text_of_sampling
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Json
from agent_magics.protocol.mcp import (
    Elicitation,
    ElicitationAnswer,
    McpDesk,
    McpResult,
    McpServerConfig,
    Sampling,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.client.client import Client

_MOST_NEWS = 200  # of one call, that are passed on as they come
_NEWS_GAP = 0.05  # seconds between those after
_LONGEST_LOG = 4_000  # characters of a log message

_Answer = TypeVar("_Answer")
_current: "ContextVar[_Call | None]" = ContextVar("mcp call", default=None)


class _Call:
    """One call under way."""

    def __init__(self, desk: McpDesk, limit: float) -> None:
        self.desk = desk
        self.clock = asyncio.timeout(limit)
        self.open = True
        self.questions: set[asyncio.Task[Any]] = set()
        self._news = 0
        self._last = 0.0
        self._pauses = 0
        self._left = limit

    async def take_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Pass news of the call on."""
        if self.wants_news():
            self.desk.progress(done, total, message or "")

    def wants_news(self) -> bool:
        """Whether the desk is told one more thing; a flood is told in part."""
        self._news += 1
        now = time.monotonic()
        if not self.open or (self._news > _MOST_NEWS and now - self._last < _NEWS_GAP):
            return False
        self._last = now
        return True

    def end(self) -> None:
        """It is over: what was asked for it is asked no more."""
        self.open = False
        for question in self.questions:
            question.cancel()

    async def ask(self, asking: Coroutine[Any, Any, _Answer]) -> _Answer | None:
        """Wait for a person, in which no time passes for the call; None where it ends before."""
        question = asyncio.ensure_future(asking)
        self.questions.add(question)
        try:
            with self._stopped_clock():
                await asyncio.wait({question})
            return None if question.cancelled() else question.result()
        finally:
            self.questions.discard(question)
            question.cancel()  # where the server wants no answer any more

    @contextmanager
    def _stopped_clock(self) -> "Iterator[None]":
        loop = asyncio.get_running_loop()
        self._pauses += 1
        if self._pauses == 1 and (when := self.clock.when()) is not None:
            self._left = when - loop.time()
            self.clock.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self.open:
                with suppress(RuntimeError):  # the call has just been given up
                    self.clock.reschedule(loop.time() + self._left)


class Calls:
    """Makes calls, and answers what the server asks meanwhile."""

    def __init__(self, config: McpServerConfig, roots: Sequence[Path], log: LogRing) -> None:
        self._config = config
        self._roots = roots
        self._log = log
        self._client: Client | None = None
        self._open: list[_Call] = []

    def begin(self, client: "Client") -> None:
        """Take the client to make calls with."""
        self._client = client

    async def call(self, tool: str, arguments: Mapping[str, Json], desk: McpDesk) -> McpResult:
        """Call a tool.

        Raises:
            RespondToModel: it cannot be sent, it took too long, or the answer is none.
            MCPError: the server refused it, or the connection ended.
        """
        _check(tool, arguments)
        limit = self._config.tool_timeout_sec
        call = _Call(desk, limit)
        self._open.append(call)
        token = _current.set(call)
        try:
            async with call.clock:
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
                raise RespondToModel(await self._visit(error, desk)) from None
            raise
        except (ValidationError, InputRequiredRoundsExceededError, ExceptionGroup) as error:
            raise RespondToModel(
                f"The MCP server {self._config.name!r} answered the call of {tool!r} with what is "
                f"no result: {_first_line(error)}. Whether it did its work is unknown."
            ) from None
        finally:
            call.end()
            _current.reset(token)
            self._open.remove(call)
        return result_of(answer)

    # -- what the server asks ------------------------------------------------------------------

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        """Answer which folders it may work in."""
        roots = [types.Root(uri=FileUrl(each.as_uri()), name=each.name) for each in self._roots]
        return types.ListRootsResult(roots=roots)

    async def take_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Keep a log message, and pass it on to the call under way."""
        data = params.data
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        if params.logger:
            text = f"{params.logger}: {text}"
        text = text[:_LONGEST_LOG]
        self._log.note(f"log, {params.level}: {text}")
        call = self._call()
        if call is not None and call.wants_news():
            call.desk.log(params.level, self._log.redact(text))

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        """Put a question to the desk of the call under way; without one, decline."""
        call = self._call()
        if call is None:
            self._log.note(f"a question was declined, as no call is under way: {params.message}")
            return types.ElicitResult(action="decline")
        answer = await call.ask(self._ask(call.desk, params)) or ElicitationAnswer("cancel")
        is_form = not isinstance(params, types.ElicitRequestURLParams)
        content = dict(answer.content) if answer.action == "accept" and is_form else None
        return types.ElicitResult(action=answer.action, content=content)

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Have the desk answer with the model's words; without one, refuse."""
        call = self._call()
        text = None
        if call is not None:
            messages = tuple(text_of_sampling(each) for each in params.messages)
            request = Sampling(
                self._config.name, messages, params.system_prompt or "", params.max_tokens
            )
            text = await call.ask(call.desk.sample(request))
        if text is None:
            # -1 is what the specification's example of a refused request says.
            return types.ErrorData(code=-1, message="The request was refused.")
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="agent-magics")

    def _call(self) -> _Call | None:
        call = _current.get()
        if call is not None and call in self._open:
            return call
        return self._open[-1] if self._open else None

    async def _ask(self, desk: McpDesk, params: Any) -> ElicitationAnswer:
        if isinstance(params, types.ElicitRequestURLParams):
            return await desk.elicit(Elicitation(self._config.name, params.message, url=params.url))
        schema = params.requested_schema
        if not isinstance(schema, Mapping):
            schema = schema.model_dump(by_alias=True, mode="json", exclude_none=True)
        return await desk.elicit(Elicitation(self._config.name, params.message, schema))

    async def _visit(self, error: MCPError, desk: McpDesk) -> str:
        """The server wants the person to open addresses before it takes the call."""
        data = error.error.data if isinstance(error.error.data, Mapping) else {}
        answers = []
        for each in data.get("elicitations", ())[:5]:
            params = types.ElicitRequestURLParams.model_validate(each)
            answers.append((await self._ask(desk, params)).action)
        if answers and all(answer == "accept" for answer in answers):
            return (
                "The person has opened the address that the server asked for; call the tool again."
            )
        return "The server wants the person to open an address first; the person did not."


def _check(tool: str, arguments: Mapping[str, Json]) -> None:
    """See that arguments can be sent: what fails on the way would take the connection with it."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RespondToModel(f"The arguments for {tool!r} are not valid JSON: {error}.") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
