"""A model server with a batch API, as OpenAI documents it: files, batches, results.

    with BatchServer(ends="expired", share=0.5) as server:
        agent = Agent("gpt-4o-mini", base_url=server.base_url, api_key="sk-…")

A batch goes one state further each time that it is looked at, through validating, in_progress and
finalizing. Its lines are checked as the provider does; see `Program.problems`. Direct requests are
answered too, as by `RowServer`.
"""

import asyncio
import json
import os
import random
import signal
import socket
import threading
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

from aiohttp import web

from tests.support.models.forked import ForkedServer
from tests.support.models.row_server import (
    WIRES,
    Program,
    RowServer,
    Settings,
    answer_of,
    last_message,
    serve,
)

STATES = ("validating", "in_progress", "finalizing")
MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000


@dataclass(frozen=True)
class BatchSettings(Settings):
    """How the server behaves; besides `Settings`:

    Attributes:
        ends: the last state of each batch: "completed", "expired", "cancelled".
        share: the share of a batch's requests that is answered before that.
        row_fault: the status that the others get of a completed batch.
        stays: the state in which batches stay until `BatchServer.release`; "" for none.
        most_running: batches that may run; one more fails with "token_limit_exceeded".
        slips: of calls of the batch API, every how manieth gets a 500; 0 is none.
        lost: whether the answer to the first creation of a batch is lost.
        breaks: "" or a call of the API ("upload", "create", "look", "content"; "follow": a look at
            a batch that has begun) that is answered with `broken` until `BatchServer.release`.
        broken: a status, "garbage", or "half": a half of the answer, and no more.
        forgets: whether batches are not found any more.
        kept: the file of its state, from which a server that was killed goes on; "" for none.
        deaths: how often it ends itself, at one of three calls: before the call's work, after it,
            or in the midst of the answer.
    """

    ends: str = "completed"
    share: float = 1.0
    row_fault: int = 400
    stays: str = ""
    most_running: int = 1000
    slips: int = 0
    lost: bool = False
    breaks: str = ""
    broken: str = "403"
    forgets: bool = False
    kept: str = ""
    deaths: int = 0


class BatchServer(RowServer):
    """The server as tests use it; the arguments are those of `BatchSettings`."""

    def __init__(self, **settings: Any) -> None:
        self._program = partial(BatchProgram, BatchSettings(**settings))

    def batches(self) -> list[dict[str, Any]]:
        """Return all batches as the API shows them, without changing their states."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/batches") as reply:
            return json.load(reply)

    def files(self) -> list[str]:
        """Return the files that were uploaded."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/files") as reply:
            return json.load(reply)

    def halves(self) -> int:
        """Return how many answers were sent by half."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/halves") as reply:
            return json.load(reply)

    def release(self) -> None:
        """Let batches go on that stay in a state."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/release", method="POST")
        urllib.request.urlopen(request).close()


class DyingBatchServer(BatchServer):
    """A server that ends itself at random calls, and is started again where it was.

    Args:
        kept, deaths, settings: see `BatchSettings`.
    """

    def __init__(self, kept: Path, deaths: int, **settings: Any) -> None:
        # Holds the port while no server listens; with `reuse_port` a server can listen on it.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._port.bind(("127.0.0.1", 0))
        port = self._port.getsockname()[1]
        super().__init__(kept=str(kept), deaths=deaths, port=port, **settings)
        self._kept, self._is_over = kept, threading.Event()

    def __enter__(self) -> Self:
        super().__enter__()
        self._reviving = threading.Thread(target=self._revive)
        self._reviving.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._reviving.join()
        super().__exit__(*error)
        self._port.close()

    def _revive(self) -> None:
        while not self._is_over.is_set():
            if self._process.has_ended(0.05):
                self._process.kill()
                self._process = ForkedServer(serve, self._program)

    def deaths(self) -> int:
        """Return how often it has ended."""
        return json.loads(self._kept.read_text())["died"] if self._kept.exists() else 0


# -- the program ------------------------------------------------------------------------------

# What of a program is kept.
KEPT = ("entries", "uploaded", "results", "batches", "died")


class BatchProgram(Program):
    """Answers the requests."""

    def __init__(self, settings: BatchSettings) -> None:
        super().__init__(settings)
        self.settings: BatchSettings = settings
        self.uploaded: dict[str, str] = {}
        self.results: dict[str, str] = {}
        self.batches: list[dict[str, Any]] = []
        self.is_released, self.released = False, asyncio.Event()
        self.calls = 0
        self.is_lost = settings.lost
        self.died, self.halves = 0, 0
        if settings.kept and Path(settings.kept).exists():
            vars(self).update(json.loads(Path(settings.kept).read_text()))
        self.chance = random.Random(settings.seed + self.died)

    def keep(self) -> None:
        """Keep the state; a kill leaves the old one or the new one."""
        if self.settings.kept:
            beside = Path(self.settings.kept + ".part")
            beside.write_text(json.dumps({name: getattr(self, name) for name in KEPT}))
            beside.replace(self.settings.kept)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the batch API, and what tests ask."""
        router.add_get("/batches", lambda _: self.shown(self.batches))
        router.add_get("/files", lambda _: self.shown(list(self.uploaded.values())))
        router.add_get("/halves", lambda _: self.shown(self.halves))
        router.add_post("/release", self.release)
        for method, path, handler in (
            ("POST", "/v1/files", self.upload),
            ("GET", "/v1/files/{id}/content", self.content),
            ("POST", "/v1/batches", self.create),
            ("GET", "/v1/batches", self.listed),
            ("GET", "/v1/batches/{id}", self.look),
            ("POST", "/v1/batches/{id}/cancel", self.cancel),
        ):
            router.add_route(method, path, self.guarded(handler))

    def guarded(self, handler: Any) -> Any:
        """Return a handler that wants the key, and slips as ordered."""

        async def answer(request: web.Request) -> web.StreamResponse:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if self.settings.key and given != self.settings.key:
                return error(401, f"Incorrect API key provided: {given}.")
            self.calls += 1
            if self.settings.slips and self.calls % self.settings.slips == 0:
                return error(500, "The server had an error.")
            if handler.__name__ == self.settings.breaks and not self.is_released:
                return await self.broken(request, handler)
            return await self.survived(request, handler)

        return answer

    async def survived(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Return the answer of a handler, if the server does not end itself at that."""
        dies = self.died < self.settings.deaths and self.chance.random() < 1 / 3
        moment = self.chance.choice(("before", "after", "midst")) if dies else ""
        self.died += dies
        if moment == "before":
            self.die()
        response = await handler(request)
        self.keep()
        if moment == "midst":
            await send_half(request, response)
        if moment:
            self.die()
        return response

    def die(self) -> NoReturn:
        """End this process as a kill does."""
        self.keep()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")

    async def broken(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Return what a call that breaks is answered with."""
        if self.settings.broken == "garbage":
            return web.Response(text="<html>")
        if self.settings.broken == "half":
            response = await send_half(request, await handler(request))
            self.halves += 1
            await self.released.wait()
            return response
        return error(int(self.settings.broken), "No.")

    async def shown(self, value: Any) -> web.Response:
        """Return what a test asks for."""
        return web.json_response(value)

    async def release(self, request: web.Request) -> web.Response:
        """Let batches go on."""
        self.is_released = True
        self.released.set()
        return web.Response()

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Take a file."""
        form = await request.post()
        if form.get("purpose") != "batch" or not isinstance(form.get("file"), web.FileField):
            return error(400, "a file and its purpose are needed")
        content = form["file"].file.read()
        if len(content) > MOST_BYTES:
            return error(400, "the file is too large")
        name = f"file-{len(self.uploaded)}"
        self.uploaded[name] = content.decode()
        return web.json_response({"id": name, "object": "file", "bytes": len(content)})

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Begin a batch."""
        body = await request.json()
        if body.get("input_file_id") not in self.uploaded or body["completion_window"] != "24h":
            return error(400, "no such file, or no such window")
        if body["endpoint"] not in [WIRES[wire] for wire in self.settings.wires]:
            return error(400, f"the endpoint {body['endpoint']} is not supported")
        now = int(time.time())
        batch = {
            "id": f"batch_{len(self.batches)}",
            "object": "batch",
            "status": "validating",
            "endpoint": body["endpoint"],
            "input_file_id": body["input_file_id"],
            "metadata": body.get("metadata"),
            "created_at": now,
            "expires_at": now + 24 * 3600,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
        }
        self.batches.append(batch)
        if self.is_lost:
            self.is_lost = False
            request.transport.close()
        return web.json_response(batch)

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """Return a page of batches, the newest first."""
        newest = [] if self.settings.forgets else self.batches[::-1]
        after = request.query.get("after")
        if after:
            places = [each["id"] for each in newest]
            newest = newest[places.index(after) + 1 :]
        most = int(request.query.get("limit", 20))
        return web.json_response({"data": newest[:most], "has_more": len(newest) > most})

    async def look(self, request: web.Request) -> web.StreamResponse:
        """Return a batch, one state further."""
        batch = self.found(request)
        if batch is None or self.settings.forgets:
            return error(404, "No batch found")
        has_begun = batch["status"] != "validating"
        if self.settings.breaks == "follow" and has_begun and not self.is_released:
            return await self.broken(request, self.look_on)
        return await self.look_on(request)

    async def look_on(self, request: web.Request) -> web.StreamResponse:
        """Return a batch that there is, one state further."""
        batch = self.found(request)
        self.advance(batch)
        return web.json_response(batch)

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """End a batch early: a half of its requests was answered."""
        batch = self.found(request)
        if batch is None or batch["status"] not in STATES:
            return error(400, "it cannot be cancelled")
        batch["status"] = "cancelling"
        return web.json_response(batch)

    async def content(self, request: web.Request) -> web.StreamResponse:
        """Return a file of results; one named "waits" is there after `BatchServer.release`."""
        if request.match_info["id"] == "waits":
            await self.released.wait()
            return web.Response()
        return web.Response(text=self.results[request.match_info["id"]])

    def found(self, request: web.Request) -> dict[str, Any] | None:
        """Return the batch that a request names."""
        named = [each for each in self.batches if each["id"] == request.match_info["id"]]
        return named[0] if named else None

    # -- a batch ------------------------------------------------------------------------------

    def advance(self, batch: dict[str, Any]) -> None:
        """Bring a batch one state further."""
        state = batch["status"]
        if state == "cancelling":
            self.end(batch, "cancelled", 0.5)
        if state not in STATES or (state == self.settings.stays and not self.is_released):
            return
        if state == "validating":
            self.validate(batch)
        elif state == "in_progress":
            batch["status"] = "finalizing"
        else:
            self.end(batch, self.settings.ends, self.settings.share)

    def validate(self, batch: dict[str, Any]) -> None:
        """Check the lines of a batch, and begin it."""
        lines = self.lines(batch)
        problems = self.problems(batch, lines)
        running = sum(each["status"] in ("in_progress", "finalizing") for each in self.batches)
        if running >= self.settings.most_running:
            problems = [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}]
        if problems:
            batch |= {"status": "failed", "errors": {"object": "list", "data": problems}}
            return
        batch["status"] = "in_progress"
        batch["request_counts"]["total"] = len(lines)

    def lines(self, batch: dict[str, Any]) -> list[str]:
        """Return the lines of a batch's file; only a line feed ends one."""
        return self.uploaded[batch["input_file_id"]].removesuffix("\n").split("\n")

    def problems(self, batch: dict[str, Any], lines: list[str]) -> list[dict[str, Any]]:
        """Return what is wrong with the lines."""
        if not 0 < len(lines) <= MOST_REQUESTS:
            return [{"code": "too_many_requests", "message": f"{len(lines)} requests"}]
        requests = [json.loads(line) for line in lines]
        if len({each["custom_id"] for each in requests}) < len(lines):
            return [{"code": "duplicate_custom_id", "message": "a custom_id stands twice"}]
        if {(each["method"], each["url"]) for each in requests} != {("POST", batch["endpoint"])}:
            return [{"code": "mismatched_endpoint", "message": "a line is for another endpoint"}]
        if len({each["body"]["model"] for each in requests}) > 1:
            return [{"code": "mismatched_model", "message": "the lines name several models"}]
        if any(each["body"].get("stream") for each in requests):
            return [{"code": "invalid_request", "message": "a batch cannot stream"}]
        return []

    def end(self, batch: dict[str, Any], state: str, share: float) -> None:
        """Answer a share of the requests, and end the batch; answers are in any order."""
        requests = list(map(json.loads, self.lines(batch)))
        self.chance.shuffle(requests)
        count = round(len(requests) * share)
        answered, others = requests[:count], requests[count:]
        for each in answered:
            body = each["body"]
            entry = {"last": last_message(body), "tokens": 30, "body": body, "outcome": "batch"}
            self.entries.append(entry)
        self.results[f"{batch['id']}-out"] = lines_of(
            [line(each, {"status_code": 200, "body": answer_of(each["body"])}) for each in answered]
        )
        self.results[f"{batch['id']}-errors"] = lines_of(
            [self.failure(each, state) for each in others]
        )
        batch["status"] = state
        batch["request_counts"] |= {"completed": count, "failed": len(others)}
        batch["output_file_id"] = f"{batch['id']}-out" if answered else None
        batch["error_file_id"] = f"{batch['id']}-errors" if others else None

    def failure(self, request: dict[str, Any], state: str) -> dict[str, Any]:
        """Return the line of a request that was not answered."""
        if state == "completed":
            said = {"error": {"message": "no such thing", "code": None}}
            return line(request, {"status_code": self.settings.row_fault, "body": said})
        message = "This request could not be executed before the completion window expired."
        return line(request, None, {"code": f"batch_{state}", "message": message})


def line(request: dict[str, Any], response: Any, said: Any = None) -> dict[str, Any]:
    """Return one line of results."""
    return {"id": "x", "custom_id": request["custom_id"], "response": response, "error": said}


def lines_of(documents: list[dict[str, Any]]) -> str:
    """Return documents as JSONL."""
    return "".join(json.dumps(each) + "\n" for each in documents)


async def send_half(request: web.Request, response: web.Response) -> web.StreamResponse:
    """Send the beginning of an answer, which says that there is more."""
    content = response.body
    half = web.StreamResponse(headers={"Content-Length": str(len(content))})
    await half.prepare(request)
    await half.write(content[: len(content) // 2])
    return half


def error(status: int, message: str) -> web.Response:
    """Return an answer with an error status."""
    return web.json_response({"error": {"message": message}}, status=status)
