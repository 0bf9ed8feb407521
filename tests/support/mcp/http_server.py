"""Runs an MCP server over HTTP for tests, with a small authorization server on demand."""

import base64
import hashlib
import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self
from urllib.parse import parse_qs, urlencode

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

Request = tuple[str, str, dict[str, str], bytes]  # method, path with query, headers, body
HANG_UP = object()  # a gate's response: none, and the connection is closed


def small_server() -> MCPServer:
    """Return a server with a few tools."""
    server = MCPServer("small", version="1")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(lambda: "new", name="grown", description="New.")
        await ctx.session.send_tool_list_changed()
        return "grown"

    @server.tool()
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please sign.", "https://example.org/sign", "e1")
        return answer.action

    return server


class HttpServer:
    """Serves an application on a free port of the loopback interface, on a thread.

    Attributes:
        address: of the MCP endpoint.
        seen: the received requests.
        gate: called first with each request; may return the response, (status, headers, body),
            or `HANG_UP`.
    """

    def __init__(self, transport: str = "http", port: int = 0) -> None:
        self.transport = transport
        self.seen: list[Request] = []
        self.gate: Callable[[Request], Any] = lambda request: None
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen()
        self.port = self._socket.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self.address = self.base + ("/sse" if transport == "sse" else "/mcp")

    def __enter__(self) -> Self:
        """Start the server."""
        server = small_server()
        self._app = server.sse_app() if self.transport == "sse" else server.streamable_http_app()
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            log_level="critical",
            ws="none",
            timeout_graceful_shutdown=0,
        )
        self._uvicorn = uvicorn.Server(config)
        run = lambda: self._uvicorn.run(sockets=[self._socket])  # noqa: E731 - a thread's target
        self._thread = threading.Thread(target=run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server and close its connections."""
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        self._thread.join()
        self._socket.close()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["path"]
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode()
        if path.startswith(("/mcp", "/sse", "/messages")):
            request = (scope["method"], path, headers, b"")
        else:
            body = b""
            more = True
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
            request = (scope["method"], path, headers, body)
        self.seen.append(request)
        reply = self.gate(request)
        if reply is None:
            await self._app(scope, receive, send)
            return
        if reply is HANG_UP:
            open_ones = self._uvicorn.server_state.connections
            next(each for each in open_ones if each.client == scope["client"]).transport.abort()
            return
        status, more_headers, text = reply
        encoded = [(name.encode(), value.encode()) for name, value in more_headers.items()]
        body = text if isinstance(text, bytes) else text.encode()
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})


class Guard:
    """A gate that admits logged-in clients: an authorization server beside the MCP server.

    Attributes:
        lifetime: the announced lifetime of a token in seconds.
        valid: the valid tokens.
        refreshed: the number of refreshed tokens.
        refuse: whether the person refuses the login.
        client: the only client, as (id, secret); None lets clients register.
        methods: how a client may send its secret.
        named: the addresses that it names instead of its own: "challenge", "issuer", "authorize",
            "token", "register".
        redirects: responses given in place of these steps.
        resource: the MCP server that it guards.
    """

    def __init__(self, server: HttpServer, lifetime: int = 3600) -> None:
        self.base = server.base
        self.lifetime = lifetime
        self.valid: set[str] = set()
        self.renewals: set[str] = set()
        self.refreshed = 0
        self.refuse = False
        self.client: tuple[str, str] | None = None
        self.methods: list[str] | None = ["none"]
        self.named: dict[str, str] = {}
        self.redirects: dict[str, Any] = {}
        self.resource = f"{self.base}/mcp"
        self._codes: dict[str, str] = {}
        server.gate = self

    def __call__(self, request: Request) -> Any:
        """Answer requests that are not for the MCP server."""
        _, path, headers, body = request
        place, _, query = path.partition("?")
        fields = {k: v[0] for k, v in parse_qs(query or body.decode("latin-1")).items()}
        if place.startswith("/mcp"):
            token = headers.get("authorization", "").removeprefix("Bearer ")
            if token in self.valid:
                return None
            where = f"{self.base}/.well-known/oauth-protected-resource/mcp"
            where = self.named.get("challenge", where)
            return 401, {"www-authenticate": f'Bearer resource_metadata="{where}"'}, ""
        if place.startswith("/.well-known/oauth-protected-resource"):
            if "challenge" in self.redirects:
                return self.redirects["challenge"]
            issuer = self.named.get("issuer", f"{self.base}/auth")
            resource = {"resource": self.resource, "authorization_servers": [issuer]}
            return _json(resource)
        if place.startswith("/.well-known/oauth-authorization-server"):
            return _json(self._metadata())
        answers = {
            "/auth/register": self._register,
            "/auth/authorize": self._authorize,
            "/auth/token": self._token,
        }
        if place == "/auth/token" and not self._knows(headers, fields):
            return _json({"error": "invalid_client"}, 401)
        if place.removeprefix("/auth/") in self.redirects:
            return self.redirects[place.removeprefix("/auth/")]
        found = answers.get(place)
        return (404, {}, "") if found is None else found(fields, body)

    def _metadata(self) -> dict[str, Any]:
        auth = f"{self.base}/auth"
        metadata: dict[str, Any] = {
            "issuer": auth,
            "authorization_endpoint": f"{auth}/authorize",
            "token_endpoint": f"{auth}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        if self.client is None:
            metadata["registration_endpoint"] = f"{auth}/register"
        if self.methods is not None:
            metadata["token_endpoint_auth_methods_supported"] = self.methods
        steps = {"authorize": "authorization", "token": "token", "register": "registration"}
        for step in steps.keys() & self.named.keys():
            metadata[f"{steps[step]}_endpoint"] = self.named[step]
        return metadata

    def _knows(self, headers: Mapping[str, str], fields: dict[str, str]) -> bool:
        """Tell whether a request has the secret of the client, in the way that it is to be sent."""
        if self.client is None:
            return True
        name, secret = self.client
        if "client_secret_basic" in (self.methods or ["client_secret_basic"]):
            basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
            return headers.get("authorization") == f"Basic {basic}"
        return (fields.get("client_id"), fields.get("client_secret")) == self.client

    def _register(self, fields: dict[str, str], body: bytes) -> Any:
        client = json.loads(body)
        return _json({**client, "client_id": "client-1"}, 201)

    def _authorize(self, fields: dict[str, str], body: bytes) -> Any:
        back = {"state": fields["state"]}
        if self.refuse:
            back |= {"error": "access_denied", "error_description": "The person said no"}
        else:
            code = secrets.token_hex(8)
            self._codes[code] = fields["code_challenge"]
            back |= {"code": code}
        return 302, {"location": f"{fields['redirect_uri']}?{urlencode(back)}"}, ""

    def _token(self, fields: dict[str, str], body: bytes) -> Any:
        if fields["grant_type"] == "refresh_token":
            if fields["refresh_token"] not in self.renewals:
                return _json({"error": "invalid_grant"}, 400)
            self.refreshed += 1
        else:
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if self._codes.pop(fields["code"], None) != challenge:
                return _json({"error": "invalid_grant"}, 400)
        access, renewal = f"access-{secrets.token_hex(8)}", f"renew-{secrets.token_hex(8)}"
        self.valid.add(access)
        self.renewals.add(renewal)
        granted = {"access_token": access, "refresh_token": renewal, "token_type": "Bearer"}
        return _json({**granted, "expires_in": self.lifetime})


def _json(value: Any, status: int = 200) -> Any:
    return status, {"content-type": "application/json"}, json.dumps(value)
