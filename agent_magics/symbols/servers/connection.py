"""Exchanges messages with one language server over its pipes, by pygls's client.

Messages are typed by lsprotocol. What a server sends is hostile: it is bounded (`framing`), checked
against its type, and only a few kinds of requests of a server are answered.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcMethodNotFound
from pygls.lsp.client import LanguageClient
from pygls.protocol import LanguageServerProtocol, default_converter

from agent_magics._version import __version__
from agent_magics.exec.process import Process
from agent_magics.exec.servers import LogRing, connect_pipes
from agent_magics.files.plain_files import load_json
from agent_magics.protocol.errors import typed_message
from agent_magics.symbols.servers.answers import path_of
from agent_magics.symbols.servers.framing import LONGEST_LINE, MessageTooLarge, id_in, read_messages
from agent_magics.symbols.text import one_line

_MOST_UNREAD = 64 << 20  # bytes that wait for a server to read them
_MOST_ITEMS = 50_000  # of an answer that is a list
_MOST_UNASKED = 1 << 20  # bytes of a message that answers no request of ours
_LARGE = 256 << 10  # bytes of a message from which it is parsed in a thread
_REPEATED = (  # the server asks to ask again: cancelled by it, or the text changed meanwhile
    types.LSPErrorCodes.RequestCancelled,
    types.LSPErrorCodes.ContentModified,
    types.LSPErrorCodes.ServerCancelled,
)
# Logged by Pyright and what derives from it, which say it in no message of the protocol.
_SCANS = re.compile(r"Searching for source files")
_SCANNED = re.compile(r"Found \d+ source files?|No source files found")
_LONGEST_TURN = 0.02  # seconds for messages, after which others have theirs
_FIRST_REST = 0.05  # seconds before a request is repeated; each further time twice as long
_LOG_FLOOD = 1 << 20  # bytes of standard error before reading pauses
_LOG_REST = 0.05  # seconds
_LOG = logging.getLogger("agent_magics")


class ServerLost(Exception):
    """The server has ended, or its pipes are closed; the question was not answered."""


class RequestFailed(Exception):
    """The server answered with an error, or with what is no answer."""


class Connection:
    """The requests to one running server; on the event loop.

    Args:
        settings: its configuration by section, which it asks for.
        log: gets its standard error, its messages, and what is wrong with its output.
        on_end: called once when nothing more comes from it.
    """

    def __init__(
        self, settings: Mapping[str, Any], log: LogRing, on_end: Callable[[], None]
    ) -> None:
        self._log = log
        self._on_end = on_end
        self._settings = settings
        self._last_id = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._input: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        # What was pushed about the files that are open, with the time.
        self.pushed: dict[Path, tuple[float, types.PublishDiagnosticsParams | None]] = {}
        self.pulls = False  # whether the server has said that diagnostics can be asked for
        self.waiting = 0  # requests without an answer
        self.has_scanned = asyncio.Event()  # set when it says that it has found the project's files
        self.scans = False  # whether it has said that it looks for them, and not yet that it has
        client = LanguageClient("agent-magics", __version__, _Protocol, _converter)
        protocol: Any = client.protocol  # a `_Protocol`
        self._protocol = protocol
        protocol.log = log
        self._register(client)

    # -- pipes -----------------------------------------------------------------------------------

    async def open(self, process: Process) -> None:
        """Serve the pipes of a process from now on."""
        readers = [asyncio.StreamReader(LONGEST_LINE) for _ in range(2)]
        self._input, *self._outputs = await connect_pipes(
            process, asyncio.BaseProtocol(), *map(asyncio.StreamReaderProtocol, readers)
        )
        self._protocol.set_writer(self)
        self._tasks = [
            asyncio.create_task(self._read(readers[0])),
            asyncio.create_task(self._read_log(readers[1])),
        ]

    def close(self) -> None:
        """Close the pipes; open requests fail with `ServerLost`."""
        transports, self._input = [self._input, *self._outputs], None
        for transport in transports:
            if transport is not None:
                with suppress(Exception):
                    (getattr(transport, "abort", None) or transport.close)()
        for task in self._tasks:
            task.cancel()
        self._fail_all()

    def write(self, data: bytes) -> None:
        """Send bytes; for pygls. A server that does not read is cut off."""
        if self._input is None or self._input.is_closing():
            return
        self._input.write(data)
        if self._input.get_write_buffer_size() > _MOST_UNREAD:
            self._log.note(f"it has not read {_MOST_UNREAD:,} bytes, and is ended")
            self._end()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        rested = time.monotonic()
        try:
            async for body in read_messages(reader, self._log):
                if time.monotonic() > rested + _LONGEST_TURN:  # a flood is in the buffer already
                    await asyncio.sleep(0)
                    rested = time.monotonic()
                if isinstance(body, MessageTooLarge):
                    self._log.note(str(body))
                    self._protocol.fail(body.request, RequestFailed(str(body)))
                elif len(body) > _LARGE:
                    message = await asyncio.to_thread(self._protocol.parse, body)
                    self._protocol.handle(message)
                else:
                    self._protocol.handle(self._protocol.parse(body))
        except Exception as error:
            _LOG.exception("reading the output of a language server failed")
            self._log.note(f"its output could not be read: {typed_message(error)}")
        finally:
            self._end()

    async def _read_log(self, reader: asyncio.StreamReader) -> None:
        size = 0
        while data := await reader.read(LONGEST_LINE):
            self._log.feed(data)
            size += len(data)
            if size > _LOG_FLOOD:
                size = 0
                await asyncio.sleep(_LOG_REST)

    def _end(self) -> None:
        self._fail_all()
        on_end, self._on_end = self._on_end, _do_nothing
        on_end()

    def _fail_all(self) -> None:
        for number in list(self._protocol.waiting_ids()):
            self._protocol.fail(number, ServerLost())

    # -- requests ----------------------------------------------------------------------------------

    async def request(self, method: str, params: Any, limit: float) -> Any:
        """Return the answer to a request; it is repeated where the server asks for that.

        Args:
            method: of the protocol, such as "textDocument/hover".
            params: its parameters, of lsprotocol.
            limit: seconds for all of it.

        Raises:
            TimeoutError: it was not answered in time; the server was told to stop.
            RequestFailed: it was answered with an error.
            ServerLost: the server has ended.
        """
        rest = _FIRST_REST
        async with asyncio.timeout(limit):
            while True:
                try:
                    return await self._request_once(method, params)
                except JsonRpcException as error:
                    if error.code not in _REPEATED:
                        raise RequestFailed(one_line(str(error.message))) from None
                await asyncio.sleep(rest)
                rest *= 2

    async def _request_once(self, method: str, params: Any) -> Any:
        if self._input is None or self._input.is_closing():
            raise ServerLost
        self._last_id += 1
        # A text, as pygls keeps our requests by id together with those of the server (numbers).
        number = f"ask-{self._last_id}"
        self.waiting += 1
        try:
            return await asyncio.wrap_future(
                self._protocol.send_request(method, params, msg_id=number)
            )
        except asyncio.CancelledError:
            self._protocol.forget(number)
            self.notify(types.CANCEL_REQUEST, types.CancelParams(id=number))
            raise
        finally:
            self.waiting -= 1

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._protocol.notify(method, params)

    # -- what the server asks ----------------------------------------------------------------------

    def _register(self, client: LanguageClient) -> None:
        handlers: dict[str, Callable[[Any], Any]] = {
            types.WORKSPACE_CONFIGURATION: self._configuration,
            types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: self._keep_diagnostics,
            types.WINDOW_LOG_MESSAGE: self._log_message,
            types.WINDOW_SHOW_MESSAGE: self._log_message,
            # Nobody chooses an answer. Refused, it ends basedpyright.
            types.WINDOW_SHOW_MESSAGE_REQUEST: self._log_message,
            types.CLIENT_REGISTER_CAPABILITY: self._note_registration,
            types.CLIENT_UNREGISTER_CAPABILITY: _do_nothing,
            types.WORKSPACE_DIAGNOSTIC_REFRESH: _do_nothing,
            types.WINDOW_WORK_DONE_PROGRESS_CREATE: _do_nothing,
        }
        for method, handler in handlers.items():
            # pygls sets attributes of what it gets, which a method has not.
            client.feature(method)(partial(_call, handler))

    def _configuration(self, params: types.ConfigurationParams) -> list[Any]:
        return [self._section(item.section or "") for item in params.items]

    def _section(self, name: str) -> Any:
        value: Any = self._settings
        for part in filter(None, name.split(".")):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _note_registration(self, params: types.RegistrationParams) -> None:
        registered = {each.method for each in params.registrations}
        self.pulls = self.pulls or types.TEXT_DOCUMENT_DIAGNOSTIC in registered

    def _keep_diagnostics(self, params: types.PublishDiagnosticsParams) -> None:
        path = path_of(params.uri, real=str)  # each server escapes other characters
        if path in self.pushed:
            self.pushed[path] = (time.monotonic(), params)

    def _log_message(
        self,
        params: types.LogMessageParams | types.ShowMessageParams | types.ShowMessageRequestParams,
    ) -> None:
        self._log.note(params.message)
        if _SCANS.match(params.message):
            self.scans = True
        elif _SCANNED.match(params.message):
            self.scans = False
            self.has_scanned.set()


class _Protocol(LanguageServerProtocol):
    """pygls's protocol, which parses what comes from a server without trust, and logs to us."""

    log: LogRing

    def parse(self, body: bytes) -> Any:
        """Return a message of the server, typed; None where it is none for us."""
        try:
            data = load_json(body)
        except (ValueError, RecursionError):
            self.log.note("a message that is not JSON was ignored")
            number = id_in(body)  # whoever waits for it need not wait for the limit
            return _Failure(number) if number in self._request_futures else None
        if not isinstance(data, dict) or data.get("jsonrpc") != self.VERSION:
            self.log.note("a message of another protocol was ignored")
            return None
        if "method" in data:
            if len(body) > _MOST_UNASKED:
                self.log.note(f"a message of {len(body):,} bytes, which nobody asked, was ignored")
                return _Refusal(data["id"], str(data["method"])) if "id" in data else None
            return self._parse_request(data)
        return self._parse_answer(data)

    def _parse_request(self, data: dict[str, Any]) -> Any:
        method = data["method"]
        if data.get("id") in self._request_futures:  # pygls would confuse the two
            self.log.note("a request with the id of one of ours was ignored")
            return None
        if not isinstance(method, str) or method not in self.fm.features:
            return _Refusal(data["id"], str(method)) if "id" in data else None
        try:
            kind: Any = self.get_message_type(method)
            return self._converter.structure(data, kind)
        except Exception:  # cattrs raises many kinds
            self.log.note(f"a malformed {method} was ignored")
            return _Refusal(data["id"], method) if "id" in data else None

    def _parse_answer(self, data: dict[str, Any]) -> Any:
        number = data.get("id")
        if not isinstance(number, str) or number not in self._request_futures:
            self.log.note(f"an answer to {str(number)[:40]!r}, which nobody asked, was ignored")
            return None
        result = data.get("result")
        if isinstance(result, list) and len(result) > _MOST_ITEMS:
            return _Failure(number, f"its answer has {len(result):,} parts; that is too many")
        if data.get("error") is not None:
            kind: Any = types.ResponseErrorMessage
        else:
            kind = self._result_types.get(number)
            # Notebooks are not used, and cattrs 26 cannot read this field's type.
            if kind is types.InitializeResponse and isinstance(result, dict):
                capabilities = result.get("capabilities")
                if isinstance(capabilities, dict):
                    capabilities.pop("notebookDocumentSync", None)
        try:
            return self._converter.structure(data, kind)
        except Exception:
            return _Failure(number)

    def handle(self, message: Any) -> None:
        """Handle what `parse` has returned."""
        if isinstance(message, _Refusal):
            error = JsonRpcMethodNotFound.of(message.method).to_response_error()
            self._send_response(message.number, error=error)
        elif isinstance(message, _Failure):
            self.fail(message.number, RequestFailed(message.why))
        elif message is not None:
            if not hasattr(message, "method"):
                self._result_types.pop(message.id, None)
            self.handle_message(message)

    def waiting_ids(self) -> Sequence[Any]:
        """Return the ids of requests without an answer."""
        return list(self._request_futures)

    def fail(self, number: Any, error: Exception) -> None:
        """Let a request fail that waits for its answer."""
        self._result_types.pop(number, None)
        future = self._request_futures.pop(number, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def forget(self, number: Any) -> None:
        """Forget a request that nobody waits for any more."""
        self._result_types.pop(number, None)
        self._request_futures.pop(number, None)


class _Refusal:
    """A request of the server that is not served."""

    def __init__(self, number: Any, method: str) -> None:
        self.number = number if isinstance(number, int | str) else 0
        self.method = method[:100]


class _Failure:
    """An answer of another form than its request has, or with too many parts."""

    def __init__(self, number: Any, why: str = "its answer is malformed") -> None:
        self.number, self.why = number, why


@cache
def _converter() -> Any:
    """Return the one converter of all connections; it compiles functions for each type."""
    return default_converter()  # type: ignore[no-untyped-call] # pygls leaves out its type


def _call(handler: Callable[[Any], Any], params: Any) -> Any:
    return handler(params)


def _do_nothing(*_: Any) -> None:
    return None
