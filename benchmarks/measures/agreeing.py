"""Compares the symbol tools with a language server that is asked directly, on random symbols.

Three packages of the environment are copied into a folder each. Of their symbols, as our parser
finds them, a number is drawn. For each: does the server's own list of the file have it at the same
place, and does `references` name the same places as the server does. The server is started by this
program, apart from ours, and asked in the protocol's bare messages.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent_magics import Agent, ScriptedModel
from agent_magics.symbols.parsing import parse_symbols

PACKAGES = ("packaging", "jinja2", "nbformat")
KINDS = ("class", "function", "method", "property")
SERVER = (str(Path(sys.executable).with_name("basedpyright-langserver")), "--stdio")


class Server:
    """A language server over pipes, one request at a time."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._ids = itertools.count(1)
        folder = {"uri": root.as_uri(), "name": root.name}
        start = {"processId": os.getpid(), "rootUri": root.as_uri(), "workspaceFolders": [folder]}
        symbols = {"documentSymbol": {"hierarchicalDocumentSymbolSupport": True}}
        self.ask("initialize", {**start, "capabilities": {"textDocument": symbols}})
        self._send({"method": "initialized", "params": {}})

    def open(self, path: Path) -> None:
        text = path.read_text("utf-8")
        document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                return message.get("result")
            if "id" in message and "method" in message:  # a question to us
                items = (message.get("params") or {}).get("items", [])
                self._send({"id": message["id"], "result": [None] * len(items) or None})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self._process.stdout.read(length))


def flat(symbols: Any) -> Any:
    for each in symbols:
        yield each
        yield from flat(each.children)


def listed(server: Server, path: Path) -> set[tuple[str, int, int]]:
    """Return (name, line, character) of all symbols that the server lists."""
    waiting = server.ask("textDocument/documentSymbol", {"textDocument": {"uri": path.as_uri()}})
    found = set()
    while waiting:
        each = waiting.pop()
        start = each["selectionRange"]["start"]
        found.add((each["name"], start["line"], start["character"]))
        waiting += each.get("children") or []
    return found


def used(server: Server, path: Path, symbol: Any) -> set[tuple[str, int]]:
    """Return (path, line from 1) of each use of a symbol, as the server says."""
    start = symbol.selection.start
    place = {"line": start.line, "character": start.character}
    params = {"textDocument": {"uri": path.as_uri()}, "position": place}
    found = server.ask(
        "textDocument/references", {**params, "context": {"includeDeclaration": False}}
    )
    return {(each["uri"], each["range"]["start"]["line"] + 1) for each in found or []}


def told(agent: Agent, name: str, path: Path, root: Path) -> set[tuple[str, int]]:
    """Return (path, line) of each use, as the tool says."""
    arguments = {"name_path": name, "path": str(path), "detail_level": "full", "limit": 5_000}
    output = agent.call_sync("references", arguments)
    assert output.success, output.text
    lines = output.value if hasattr(output.value, "found") else None
    if lines is not None:
        return {(p.file.path.as_uri(), p.location.range.start.line + 1) for p in lines.found}
    found = set()
    for line in output.text.split("\n")[1:]:
        file, _, rest = line.partition(":")
        if rest.partition(":")[0].isdigit():
            found.add(((root / file).as_uri(), int(rest.partition(":")[0])))
    return found


def names_of(symbols: Any, above: str = "") -> Any:
    """Yield (name path, symbol) of the symbols that no other in their place is called as."""
    for each in symbols:
        if sum(other.name == each.name for other in symbols) == 1:
            name = f"{above}/{each.name}" if above else each.name
            yield name, each
            yield from names_of(each.children, name)


def compare(package: str, count: int, seed: int) -> dict[str, int]:
    """Compare a number of random symbols of one package."""
    counts = {"symbols": 0, "same place": 0, "same uses": 0}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        place = Path(find_spec(package).origin).parent
        shutil.copytree(place, root / package, ignore=shutil.ignore_patterns("__pycache__"))
        every = []
        for path in sorted(root.rglob("*.py")):
            tree = parse_symbols(path, path.read_text("utf-8"), path.name)
            every += [(path, name, each) for name, each in names_of(tree) if each.kind in KINDS]
        drawn = random.Random(seed).sample(every, min(count, len(every)))
        server = Server(root)
        options = {"tools": ["references"], "cwd": root, "approval": "never"}
        with Agent(ScriptedModel([]), output_budget=200_000, **options) as agent:
            for path in sorted({path for path, _, _ in drawn}):
                server.open(path)
            for path, name, symbol in drawn:
                start = symbol.selection.start
                counts["symbols"] += 1
                same = (symbol.name, start.line, start.character) in listed(server, path)
                counts["same place"] += same
                theirs, ours = used(server, path, symbol), told(agent, name, path, root)
                counts["same uses"] += theirs == ours
                if not same or theirs != ours:
                    print(package, path.name, name, same, theirs ^ ours, file=sys.stderr)
        server.close()
    return counts


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    share = -(-number // len(PACKAGES))
    totals: dict[str, int] = {}
    for each in PACKAGES:
        for key, value in compare(each, share, 18).items():
            totals[key] = totals.get(key, 0) + value
    print(json.dumps(totals))
