"""A language server for Python over stdio, which misbehaves in the way its first argument names.

It reads each file once and again only when it is told of a change, as real servers do; so a client
that misses a change gets an old answer. Positions count UTF-16 units. Started as
`python program.py MODE [FOLDER]`; in the folder it notes its process ids.
"""

import ast
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MODE = sys.argv[1]
NOTES = Path(sys.argv[2]) if sys.argv[2:] and sys.argv[2] else None

root = Path()
opened: dict[Path, str] = {}
cached: dict[Path, str] = {}
asked: dict[str, int] = {}


def write(body: bytes) -> None:
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


def send(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode())


def read() -> dict[str, Any]:
    length = 0
    while line := sys.stdin.buffer.readline():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        elif not line.strip():
            return json.loads(sys.stdin.buffer.read(length))
    sys.exit()


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def text_of(path: Path) -> str:
    if path not in opened and path not in cached:
        cached[path] = path.read_text("utf-8")
    return opened[path] if path in opened else cached[path]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def place(text: str, line: int, column: int) -> dict[str, int]:
    """Return the position of a line and a byte column."""
    head = text.split("\n")[line].encode()[:column].decode()
    return {"line": line, "character": units(head)}


def range_of(text: str, node: Any) -> dict[str, Any]:
    return {
        "start": place(text, node.lineno - 1, node.col_offset),
        "end": place(text, node.end_lineno - 1, node.end_col_offset),
    }


def symbols(text: str, body: list[Any]) -> list[dict[str, Any]]:
    kinds = {ast.ClassDef: 5, ast.FunctionDef: 12}
    return [
        {
            "name": node.name,
            "kind": kinds[type(node)],
            "range": range_of(text, node),
            "selectionRange": range_of(text, node),
            "children": symbols(text, node.body),
        }
        for node in body
        if type(node) in kinds
    ]


def parsed(text: str) -> list[dict[str, Any]]:
    try:
        return symbols(text, ast.parse(text).body)
    except SyntaxError:
        return []


def files() -> list[Path]:
    """The project's files: as first read, and as told of since."""
    if not asked.get("listed"):
        asked["listed"] = 1
        for path in root.rglob("*.py"):
            text_of(path)
    return sorted({*cached, *opened})


def information(path: Path) -> list[dict[str, Any]]:
    return [
        {
            "name": each["name"],
            "kind": 12,
            "location": {"uri": path.as_uri(), "range": each["range"]},
        }
        for each in parsed(text_of(path))
    ]


def word_at(text: str, position: dict[str, int]) -> str:
    line = text.split("\n")[position["line"]]
    for found in re.finditer(r"\w+", line):
        if units(line[: found.start()]) <= position["character"] <= units(line[: found.end()]):
            return found[0]
    return ""


def uses(word: str) -> list[dict[str, Any]]:
    return [
        {
            "uri": path.as_uri(),
            "range": {
                "start": {"line": number, "character": units(line[: found.start()])},
                "end": {"line": number, "character": units(line[: found.end()])},
            },
        }
        for path in files()
        for number, line in enumerate(text_of(path).split("\n"))
        for found in re.finditer(rf"\b{word}\b", line)
        if word
    ]


def problems(path: Path) -> list[dict[str, Any]]:
    """Report each line with the word `wrong` as an error, and syntax errors."""
    found = [
        (number, "this is wrong", 1)
        for number, line in enumerate(text_of(path).split("\n"))
        if "wrong" in line
    ]
    return [
        {
            "range": {
                "start": {"line": number, "character": 0},
                "end": {"line": number, "character": 1},
            },
            "message": message,
            "severity": severity,
            "code": "wrongness",
            "source": "fake",
        }
        for number, message, severity in found
    ]


def answer(method: str, params: dict[str, Any]) -> Any:
    global root
    document = params.get("textDocument", {})
    path = path_of(document["uri"]) if document else Path()
    match method:
        case "initialize":
            root = path_of(params["rootUri"])
            return {"capabilities": CAPABILITIES}
        case "textDocument/documentSymbol":
            return parsed(text_of(path))
        case "workspace/symbol":
            query = params["query"]
            found = [each for path in files() for each in information(path)]
            return [each for each in found if query in each["name"]]
        case "textDocument/references":
            return uses(word_at(text_of(path), params["position"]))
        case "textDocument/rename":
            changes: dict[str, list[Any]] = {}
            for use in uses(word_at(text_of(path), params["position"])):
                edit = {"range": use["range"], "newText": params["newName"]}
                changes.setdefault(use["uri"], []).append(edit)
            if MODE == "moves":
                kind = {"kind": "create", "uri": "file:///etc/made"}
                return {"documentChanges": [kind]}
            return {"changes": changes}
        case "textDocument/hover":
            return {
                "contents": {
                    "kind": "plaintext",
                    "value": word_at(text_of(path), params["position"]),
                }
            }
        case "textDocument/diagnostic":
            return {"kind": "full", "items": problems(path)}
    return None


CAPABILITIES = {
    "textDocumentSync": 1,
    **dict.fromkeys(
        (
            *("documentSymbolProvider", "workspaceSymbolProvider", "referencesProvider"),
            *("definitionProvider", "renameProvider", "hoverProvider"),
        ),
        True,
    ),
    "diagnosticProvider": {"interFileDependencies": False, "workspaceDiagnostics": False},
    # What cattrs 26 cannot read with lsprotocol 2025.
    "notebookDocumentSync": {"notebookSelector": [{"cells": [{"language": "python"}]}]},
}


if MODE == "pushes":
    del CAPABILITIES["diagnosticProvider"]


def push(document: dict[str, Any]) -> None:
    """Report the problems of a file without being asked; its address is written as gopls does."""
    if MODE == "pushes":
        path = path_of(document["uri"])
        found = {"version": document["version"], "diagnostics": problems(path)}
        uri = "file://" + quote(str(path), safe="/$&+,:;=@")
        send(method="textDocument/publishDiagnostics", params={"uri": uri, **found})


def take(method: str, params: dict[str, Any]) -> None:
    """Handle a notification."""
    document = params.get("textDocument", {})
    match method:
        case "initialized" if MODE == "searches":
            send(
                method="window/logMessage",
                params={"type": 3, "message": "Searching for source files"},
            )
        case "textDocument/didOpen":
            opened[path_of(document["uri"])] = document["text"]
            push(document)
        case "textDocument/didChange":
            opened[path_of(document["uri"])] = params["contentChanges"][-1]["text"]
            push(document)
        case "textDocument/didClose":
            opened.pop(path_of(document["uri"]), None)
            cached.pop(path_of(document["uri"]), None)
        case "workspace/didChangeWatchedFiles":
            for change in params["changes"]:
                path = path_of(change["uri"])
                cached.pop(path, None)
                if change["type"] != 3 and path.suffix == ".py" and path.exists():
                    text_of(path)


def misbehave(number: Any, method: str) -> bool:
    """Do what the mode says instead of an answer; return whether there is none."""
    count = asked[method] = asked.get(method, 0) + 1
    if method == "textDocument/references" and MODE in ("hangs", "dies", "late"):
        if MODE == "dies":
            os._exit(3)
        return MODE == "hangs" or count == 1
    if method == "textDocument/diagnostic" and MODE == "dies_checking":
        os._exit(3)
    if method == "textDocument/hover":
        return _odd_answer(number, count)
    return False


def _odd_answer(number: Any, count: int) -> bool:
    match MODE:
        case "busy" if count < 3:
            code = -32801 if count == 1 else -32800
            send(id=number, error={"code": code, "message": "modified"})
        case "wrong_ids":
            send(id="ask-999", result={"contents": "no"})
            send(id=7, result=None)
            return False
        case "malformed":
            send(id=number, result=[{"range": 7}])
        case "deep":
            write(b'{"jsonrpc": "2.0", "id": "%s", "result": ' % number.encode() + b"[" * 9_000)
        case "caches":
            kept = Path(os.environ["XDG_CACHE_HOME"], "kept")
            kept.write_text(kept.name)
            send(id=number, result={"contents": kept.read_text()})
        case "refuses":
            send(id=number, error={"code": -32603, "message": "a\nb" + "c" * 999})
        case "huge":
            head = b'{"jsonrpc": "2.0", "id": "%s", "result": "' % number.encode()
            size = (64 << 20) + 1
            sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % size + head)
            sys.stdout.buffer.write(b"x" * (size - len(head)))
            sys.stdout.buffer.flush()
        case "asks":
            send(id=1, method="workspace/applyEdit", params={"edit": {}})
            send(id=number, method="workspace/configuration", params={"items": []})
            items = {"items": [{"section": "a.b"}]}
            send(id=2, method="workspace/configuration", params=items)
            send(id=3, method="window/showMessageRequest", params={"type": 1, "message": "Sure?"})
            replies = [read(), read(), read()]
            send(id=number, result={"contents": json.dumps(replies)})
        case _:
            return False
    return True


def garbage() -> None:
    sys.stdout.buffer.write(b"hello\nContent-Length: x\n\n\xff\xfe" + b"y" * 100_000 + b"\n")
    write(b"no json")
    write(b'{"jsonrpc": "1.0"}')
    write(b"[" * 10_000)
    send(method="nobody/knows", params={"type_name": "1 2"})
    send(method="textDocument/publishDiagnostics", params=3)
    sys.stderr.write("key\n" * 1000)
    sys.stderr.flush()


if NOTES is not None:
    with (NOTES / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
if MODE == "never_starts":
    time.sleep(1000)
if MODE == "ends_at_once":
    sys.stderr.write("no licence\n")
    sys.exit(4)
if MODE == "large":
    ballast = b"x" * (200 << 20)
while True:
    message = read()
    method = message.get("method", "")
    if MODE == "garbage":
        garbage()
    if MODE == "deaf" and method == "textDocument/didOpen":
        time.sleep(1000)
    if "id" not in message:
        take(method, message.get("params") or {})
    elif method and not misbehave(message["id"], method):
        send(id=message["id"], result=answer(method, message.get("params") or {}))
