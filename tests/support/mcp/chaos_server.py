"""An MCP server over stdio that misbehaves in the way its first argument names.

It writes JSON-RPC by hand, since no library lets one write what is wrong. Started as
`python chaos_server.py MODE [FOLDER]`; the folder is where it leaves its process id and takes
its cues from.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else None
OBJECT = {"type": "object", "properties": {}}


def write(text: str) -> None:
    """Write to stdout, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def send(message: dict[str, Any]) -> None:
    """Send a message, as the mode cuts it."""
    text = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    if MODE != "bytewise":
        write(text)
        return
    for byte in text.encode():
        os.write(1, bytes([byte]))


def tell(name: str, words: str = "now") -> None:
    """Report an event to the test through a named pipe, where it listens."""
    if FOLDER is not None and (FOLDER / name).is_fifo():
        (FOLDER / name).write_text(words)


def answer(number: Any, result: dict[str, Any]) -> None:
    """Answer a request."""
    send({"id": number, "result": result})


def text(words: str) -> dict[str, Any]:
    """Return a tool's result of one text."""
    return {"content": [{"type": "text", "text": words}]}


def tool(name: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a tool as it is listed."""
    return {"name": name, "inputSchema": schema or OBJECT, **more}


def listing(params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of tools/list."""
    good = tool("echo", {"type": "object", "properties": {"words": {"type": "string"}}})
    if MODE == "huge-schema":
        huge = {"type": "object", "properties": {"a": {"description": "x" * 50_000_000}}}
        return {"tools": [tool("huge", huge), good]}
    if MODE == "odd-schemas":
        endless = {**OBJECT, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
        itself = {"type": "object", "properties": {"next": {"$ref": "#"}}}
        deep: dict[str, Any] = {"type": "string"}
        for _ in range(90):
            deep = {"type": "object", "properties": {"a": deep}}
        return {
            "tools": [
                tool("endless", endless),
                tool("recursive", itself),
                tool("deep", deep),
                tool("echo"),
                good,
                tool("two\nlines"),
            ]
        }
    if MODE == "malformed-tools":
        return {
            "tools": [
                {"name": "bare"},
                tool("wrong", {"type": "object", "properties": 7}),
                "no tool at all",
                {"inputSchema": OBJECT},
                tool("described", description=["not", "text"]),
                tool("hinted", annotations={"readOnlyHint": "maybe so"}),
                good,
            ]
        }
    if MODE == "many-tools":
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        return {"tools": [good, *(tool(f"t{n}", schema, description="d") for n in range(50_000))]}
    if MODE == "no-list":
        return {"tools": {"echo": good}}
    if MODE == "endless-pages":
        return {"tools": [good], "nextCursor": "again"}
    if MODE == "many-pages":
        page = int(params.get("cursor") or 0)
        return {"tools": [tool(f"t{page}")], "nextCursor": str(page + 1)}
    if MODE == "changing" and (FOLDER / "changed").exists():
        return {"tools": [good, tool("new")]}
    return {"tools": [good, tool("cue")]}


def start_mode() -> None:
    """Do what a mode does before the first request."""
    if FOLDER is not None:
        (FOLDER / f"{os.getpid()}.pid").touch()
        if MODE.endswith("with-child"):
            child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
            (FOLDER / f"{child.pid}.pid").touch()
        tell("started")
    match MODE:
        case "dies-at-start":
            sys.stderr.write("no module named soup\n")
            sys.exit(7)
        case "dies-when-started-again" if len(list(FOLDER.glob("*.pid"))) > 1:
            sys.exit(8)
        case "hangs" | "hangs-with-child":
            while True:
                time.sleep(3600)
        case "floods-stderr":
            sys.stderr.write("begin\n" + "noise\n" * 3_000_000 + "the end\n")
            sys.stderr.flush()
        case "stubborn" | "stubborn-with-child":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "tells-secret":
            sys.stderr.write(f"the key is {os.environ['SERVICE_KEY']}\n")
            sys.stderr.flush()


# -- calls: what one is answered with, where that is not its own words -------------------------


def die_once(number: Any, params: dict[str, Any]) -> bool:
    """End at the first call."""
    if not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        sys.exit(3)
    return False


def die(number: Any, params: dict[str, Any]) -> bool:
    """End at every call."""
    sys.exit(3)


def kill_itself(number: Any, params: dict[str, Any]) -> bool:
    """End by a signal."""
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def close_stdout(number: Any, params: dict[str, Any]) -> bool:
    """Go on running, with stdout closed."""
    os.close(1)
    time.sleep(3600)
    return True


def answer_strangers(number: Any, params: dict[str, Any]) -> bool:
    """Answer requests that nobody made."""
    answer(987654, text("for nobody"))
    answer("odd", text("for nobody"))
    return False


def answer_twice(number: Any, params: dict[str, Any]) -> bool:
    """Answer two times."""
    answer(number, text("first"))
    answer(number, text("second"))
    return True


def make_noise(number: Any, params: dict[str, Any]) -> bool:
    """Write text that is no message."""
    write("Listening on port 3000...\n{not json}\n[1, 2]\n\x00\xff\n{}\n")
    return False


def answer_at_length(number: Any, params: dict[str, Any]) -> bool:
    """Answer with more than 70 MB."""
    write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": [')
    for _ in range(70):
        write('{"type": "text", "text": "' + "x" * (1 << 20) + '"},')
    write('{"type": "text", "text": "end"}]}}\n')
    return True


def answer_broken(number: Any, params: dict[str, Any]) -> bool:
    """Answer with malformed JSON."""
    write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": [}}}}\n')
    return True


def answer_wrong(number: Any, params: dict[str, Any]) -> bool:
    """Answer with JSON that is no result."""
    answer(number, {"content": "no list"})
    return True


def answer_never(number: Any, params: dict[str, Any]) -> bool:
    """Never answer."""
    tell("called")
    return True


def answer_error(number: Any, params: dict[str, Any]) -> bool:
    """Refuse, with the error code by which the SDK reports a closed connection."""
    words = params["arguments"].get("words", "the disk is full")
    send({"id": number, "error": {"code": -32000, "message": words}})
    return True


def progress_for_ever(number: Any, params: dict[str, Any]) -> bool:
    """Report progress without end."""
    token = params["_meta"]["progressToken"]
    for step in itertools.count():
        progress = {"progressToken": token, "progress": step}
        send({"method": "notifications/progress", "params": progress})
        time.sleep(0.01)
    return True


def progress_beyond_floats(number: Any, params: dict[str, Any]) -> bool:
    """Report progress in numbers that no float holds."""
    for step, total in ((10**400, 1), (1, -(10**400))):
        token = params["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": step, "total": total}
        send({"method": "notifications/progress", "params": progress})
    return False


def flood_stdout(number: Any, params: dict[str, Any]) -> bool:
    """Write 6 MB of text that is no message."""
    for _ in range(10):
        write("noise\n" * 100_000)
    return False


def notify_much(number: Any, params: dict[str, Any]) -> bool:
    """Send 5,000 log messages."""
    for index in range(5_000):
        data = {"level": "info", "data": f"line {index}"}
        send({"method": "notifications/message", "params": data})
    return False


def change_tools(number: Any, params: dict[str, Any]) -> bool:
    """Offer another tool from now on."""
    if params["name"] == "cue":
        (FOLDER / "changed").touch()
        send({"method": "notifications/tools/list_changed"})
    return False


# Each returns whether that was all; else the call is answered with its own words.
CALLS = {
    "dies-in-call": die_once,
    "dies-always": die,
    "killed-in-call": kill_itself,
    "closes-stdout": close_stdout,
    "unknown-id": answer_strangers,
    "two-answers": answer_twice,
    "noise": make_noise,
    "long-message": answer_at_length,
    "broken-answer": answer_broken,
    "wrong-answer": answer_wrong,
    "never-answers": answer_never,
    "own-error": answer_error,
    "progress-for-ever": progress_for_ever,
    "progress-beyond-floats": progress_beyond_floats,
    "floods-stdout": flood_stdout,
    "notifies-much": notify_much,
    "changing": change_tools,
}


# -- the protocol ------------------------------------------------------------------------------


def call_tool(number: Any, params: dict[str, Any]) -> None:
    """Answer a call of a tool."""
    odd = CALLS.get(MODE)
    if odd is None or not odd(number, params):
        arguments = params.get("arguments") or {}
        answer(number, text(str(arguments.get("words", params["name"]))))


def initialize(number: Any, params: dict[str, Any]) -> None:
    """Answer the handshake."""
    if MODE == "refuses-handshake":
        refuse(number)
        return
    capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
    if MODE == "no-tools":
        capabilities = {}
    result = {
        "protocolVersion": "1.0" if MODE == "odd-version" else params["protocolVersion"],
        "capabilities": capabilities,
        "serverInfo": {"name": "chaos", "version": "1"},
    }
    answer(number, result)


def list_tools(number: Any, params: dict[str, Any]) -> None:
    """Answer tools/list."""
    if MODE == "hangs-at-list":
        return
    answer(number, listing(params))
    if MODE == "dies-when-idle" and len(list(FOLDER.glob("*.pid"))) == 1:
        sys.exit(5)


def note_cancellation(number: Any, params: dict[str, Any]) -> None:
    """Report a cancellation to the test."""
    tell("cancelled", json.dumps(params))


def refuse(number: Any) -> None:
    """Answer that a method is not known."""
    if number is not None:
        send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


METHODS = {
    "initialize": initialize,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "notifications/cancelled": note_cancellation,
}


def serve(message: dict[str, Any]) -> None:
    """Answer one message."""
    method = METHODS.get(message.get("method", ""))
    if method is None:
        refuse(message.get("id"))
    else:
        method(message.get("id"), message.get("params") or {})


start_mode()
for line in sys.stdin:
    serve(json.loads(line))
if MODE.startswith("stubborn"):
    while True:
        time.sleep(3600)
