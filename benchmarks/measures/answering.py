"""Compares the symbol tools with a language server that is asked directly, on 100,000 lines.

The code is made here: 500 modules of 200 lines, of which 250 use one function 1,000 times in all.
Two servers run, ours in the sandbox and one that is asked in the protocol's bare messages; both get
each question twice, one after the other, and the second time counts: so the times can be compared
under any load. "our CPU ms" is what this process spends on a question, all threads together. A
tool that does nothing is asked beside them: what any call costs.

    PYTHONPATH=benchmarks python benchmarks/measures/answering.py [ROUNDS]
"""

import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measures.agreeing import Server

from agent_magics import Agent, ScriptedModel, tool

MODULES, FUNCTIONS = 500, 33  # six lines each
TOOLS = ["symbols", "references", "definition", "diagnostics", "call_graph"]


def write_project(root: Path) -> int:
    """Write the modules; return how many lines they have."""
    lines = 0
    for number in range(MODULES):
        other = (number * 7 + 1) % MODULES
        parts = [f"from package.m{other} import work_0 as other\nfrom package.hub import hub\n"]
        for each in range(FUNCTIONS):
            call = f"hub({each})" if number % 2 and each < 4 else f"other({each})"
            parts.append(
                f"def work_{each}(value: int, more: str = 'x') -> int:\n"
                f'    """Work {each} of module {number}."""\n'
                f"    found = [value, len(more), {each}]\n"
                f"    return sum(found) + {call}\n\n"
            )
        path = root / "package" / f"m{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(parts))
        lines += path.read_text().count("\n")
    (root / "package" / "hub.py").write_text("def hub(value: int) -> int:\n    return value\n")
    return lines


def resident() -> float:
    """Return the memory of this process in MB."""
    gc.collect()
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * 4096 / 1e6


@tool(parallel=True, mutating=False)
async def nothing(path: str) -> str:
    """Do nothing."""
    return path


class Questions:
    """The same questions to the tools and to a server."""

    def __init__(self, agent: Agent, server: Server | None, root: Path) -> None:
        self._agent, self._server, self._root = agent, server, root

    def tool(self, name: str, /, **arguments: Any) -> None:
        output = self._agent.call_sync(name, arguments)
        assert output.success, output.text

    def ask(self, method: str, path: str, line: int, character: int, **more: Any) -> Any:
        place = {"line": line, "character": character}
        document = {"uri": (self._root / path).as_uri()}
        return self._server.ask(method, {"textDocument": document, "position": place, **more})

    def pairs(self, number: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
        """Return for each kind of question (by the tools, directly), about one module."""
        path = f"package/m{number}.py"
        lines = (self._root / path).read_text().split("\n")
        at = next(i for i, line in enumerate(lines) if "other(9)" in line)
        column = lines[at].index("other(9)")
        start = next(i for i, line in enumerate(lines) if "def work_9(" in line)
        context = {"context": {"includeDeclaration": False}}
        hub = "package/hub.py"

        def calls() -> None:
            prepare = "textDocument/prepareCallHierarchy"
            for item in self.ask(prepare, path, start, 4):
                self._server.ask("callHierarchy/outgoingCalls", {"item": item})

        def define() -> None:
            self.ask("textDocument/definition", path, at, column)
            self.ask("textDocument/hover", path, at, column)

        def check() -> None:
            document = {"uri": (self._root / path).as_uri()}
            self._server.ask("textDocument/diagnostic", {"textDocument": document})

        def listed() -> None:
            document = {"uri": (self._root / path).as_uri()}
            self._server.ask("textDocument/documentSymbol", {"textDocument": document})

        return {
            "nothing": (lambda: self.tool("nothing", path=path), lambda: None),
            "symbols": (lambda: self.tool("symbols", path=path), listed),
            "definition": (
                lambda: self.tool("definition", name="other", path=path, line=at + 1),
                define,
            ),
            "references of a local name": (
                lambda: self.tool("references", name_path="work_9", path=path),
                lambda: self.ask("textDocument/references", path, start, 4, **context),
            ),
            "call_graph": (
                lambda: self.tool("call_graph", name_path="work_9", path=path, direction="callees"),
                calls,
            ),
            "diagnostics": (lambda: self.tool("diagnostics", paths=[path]), check),
            "references of 1,000 uses": (
                lambda: self.tool("references", name_path="hub", path=hub),
                lambda: self.ask("textDocument/references", hub, 0, 4, **context),
            ),
        }


def milliseconds(
    question: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> float:
    start = clock()
    question()
    return (clock() - start) * 1000


def measure(rounds: int) -> dict[str, Any]:
    """Ask all questions, each about one module a round."""
    found: dict[str, Any] = {}
    times: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        found["lines"] = write_project(root)
        options = {"tools": [*TOOLS, nothing], "cwd": root, "approval": "never"}
        with Agent(ScriptedModel([]), **options) as agent:
            agent.call_sync("symbols", {"path": "package/hub.py"})
            before = resident()
            ours = Questions(agent, None, root).pairs(0)
            first = milliseconds(ours["definition"][0])
            for ask, _ in ours.values():
                ask()
            found["our memory MB"] = round(resident() - before, 1)
            server, start = Server(root), time.perf_counter()
            for number in range(rounds):
                server.open(root / "package" / f"m{number * 2}.py")
            server.open(root / "package" / "hub.py")
            asking = Questions(agent, server, root)
            asking.pairs(0)["definition"][1]()
            found["first answer"] = {
                "ours ms": round(first),
                "server ms": round((time.perf_counter() - start) * 1000),
            }
            for number in range(rounds):
                for name, (ask, direct) in asking.pairs(number * 2).items():
                    for each in (ask, direct):  # not counted: it reads what it has not yet read
                        each()
                    spent = milliseconds(ask, time.process_time)
                    row = (milliseconds(ask), milliseconds(direct), spent)
                    times.setdefault(name, []).append(row)
            server.close()
    for name, pairs in times.items():
        ours, theirs, spent = (statistics.median(each) for each in zip(*pairs, strict=True))
        found[name] = {
            "ours ms": round(ours, 1),
            "server ms": round(theirs, 1),
            "our CPU ms": round(spent, 1),
            "over it ms": round(statistics.median(a - b for a, b, _ in pairs), 1),
            "times": round(ours / theirs, 2),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10), indent=1))
