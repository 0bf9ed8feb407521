"""No module of the working folder runs because this package, or what it uses, imports that name.

The names are found, not listed: all that the package's source imports, and all that anything looked
for while a clean kernel did the same work.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from PIL import Image

import agent_magics
from tests.support.kernels.cells import AGENTS, outputs, scripted
from tests.support.kernels.driver import Kernel
from tests.support.mcp.world import things
from tests.support.models.server import ModelServer

pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pandas = pytest.importorskip("pandas", reason="pandas is not installed")

pytestmark = pytest.mark.timeout(300)
PACKAGE = Path(agent_magics.__file__).parent
LIMIT = 120.0
NEVER = ("agent_magics", "mymodule", "hostile_plugin")

# Notes every name that anything looks for.
LISTENER = """
import sys

class Listener:
    names = set()

    def find_spec(self, name, path=None, target=None):
        self.names.add(name.partition(".")[0])

sys.meta_path.insert(0, Listener())
"""
# What the guard did is undone: what the attacks do then shows that they can succeed.
UNGUARDED = "sys.meta_path[:] = [getattr(each, '_finder', each) for each in sys.meta_path]"
HOSTILE = """
import pathlib, traceback
pathlib.Path({mark!r}).write_text("".join(traceback.format_stack()))
"""
# Plugins of ours and of what we use; each names a module of the working folder.
PLUGINS = "\n".join(
    f"[{group}]\nhostile = hostile_plugin"
    for group in ("agent_magics.tools", "pydantic", "keyring.backends", "matplotlib.backend")
)
CALLS = (
    "Call('view_image', {'path': 'picture.png'})",
    "Call('read_file', {'path': 'table.parquet'})",
    "Call('read_file', {'path': 'table.csv'})",
    "Call('read_file', {'path': 'other.ipynb'})",
    "Call('grep_files', {'pattern': 'x'})",
    "Call('inspect_variables', {'pattern': 'frame'})",
    "Call('shell_command', {'command': 'echo out; touch made'})",
    "Call('python', {'code': 'import mymodule; print(mymodule.VALUE, len(frame))'})",
    "Call('python', {'code': 'import mymodule; mymodule.VALUE', 'where': 'scratch'})",
    "Call('python', {'code': 'held', 'where': 'scratch', 'values': ['held']})",
    "Call('write_file', {'path': 'new.py', 'content': 'x = 1'})",
    "Call('lends', {})",
)
PLAIN = "frame = [1, 2]"
TABLE = "import pandas\nframe = pandas.DataFrame({'n': [1]})"
TOOLS = """

@tool
def lends() -> str:
    "Import what is installed, and what is the person's own."
    import jsonschema, mymodule
    return jsonschema.__file__ + str(mymodule.VALUE)
"""
# What the work says when it was really done.
EXPECTED = (
    "42 ",
    "held by mymodule",
    "table.parquet: 2 rows",
    "Hello.",
    "site-packages/jsonschema",
    "exact_counter('gpt-4o')\nok ",
)
WORDS = ("status", "doctor", "tools", "usage", "history", "diff", "undo", "redo", "mcp", "compact")


def _imported_by_the_source() -> set[str]:
    names = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def _fill(folder: Path) -> None:
    """Put there what the calls look at."""
    folder.mkdir()
    Image.new("RGB", (3000, 20), "red").save(folder / "picture.png")
    pandas.DataFrame({"n": [1, 2]}).to_parquet(folder / "table.parquet")
    (folder / "table.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    nbformat.write(nbformat.v4.new_notebook(), folder / "other.ipynb")
    (folder / "mymodule.py").write_text(
        "VALUE = 42\nclass Held:\n    def __repr__(self):\n        return 'held by mymodule'\n",
        encoding="utf-8",
    )


def _plant(folder: Path, names: set[str]) -> Path:
    """Put a hostile module of each name into the folder; return where they leave their marks."""
    marks = folder.with_name(f"{folder.name}-marks")
    marks.mkdir()
    for name in (*names, "hostile_plugin"):
        code = HOSTILE.format(mark=str(marks / name))
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    info = folder / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: hostile\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(PLUGINS, encoding="utf-8")
    return marks


def _exercise(kernel: Kernel, server: ModelServer) -> str:
    """Use what imports late: tools, questions, servers, words of `%agent`; return what was said."""
    said = []
    for cell in (
        "%load_ext agent_magics",
        f"%config AgentMagics.mcp_servers = {{'things': {things()!r}}}",
        scripted(*CALLS, repr("Done.")),
        TOOLS,
        "import mymodule\nheld = mymodule.Held()",
        "mcp.things.search('red', limit=1)",
        "%%agent --tools data coding lends inspect_variables view_image\nGo.\n",
        f"await Agent('m', base_url={server.base_url!r}, api_key='k', wire_api='chat').run('Hi')",
        "from agent_magics.engine.context.tokens import exact_counter\nexact_counter('gpt-4o')",
        "%agent logout 127.0.0.1:9",
        "1 / 0",
        f"serving = {AGENTS}['default'].serve()\nserving.stop()",
        *(f"%agent {word}" for word in WORDS),
    ):
        outcome = kernel.run(cell, allow_stdin=True, answers=["y"] * 40, notebook=True, limit=LIMIT)
        said.append(f"--- {cell}\n{outcome.status} {outcome.error} {outcome.text}")
    said.append(kernel.value(outputs()))
    return "\n".join(map(str, said))


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(chat=["Hello."] * 9, api_key="k") as server:
        yield server


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, server: ModelServer) -> set[str]:
    folder = tmp_path_factory.mktemp("clean") / "work"
    _fill(folder)
    with Kernel(cwd=str(folder), anew=True) as kernel:
        kernel.run(PLAIN)
        kernel.run(LISTENER)
        said = _exercise(kernel, server)
        for what in EXPECTED:
            assert what in said, f"{what!r} was not seen in\n{said}"
        looked_for = eval(kernel.value("Listener.names"))
    found = (_imported_by_the_source() | looked_for) - sys.stdlib_module_names - {*NEVER}
    assert {"PIL", "anywidget", "aiohttp", "mcp", "pandas", "pyarrow"} <= found, "nothing was tried"
    return {name for name in found if name.isidentifier()}


def _attacked(
    folder: Path, names: set[str], server: ModelServer, own: str, *, guarded: bool
) -> dict[str, str]:
    """Return which hostile modules ran, and what was on the stack then.

    `own` is the person's first cell, which is run before anything hostile is there.
    """
    _fill(folder)
    with Kernel(cwd=str(folder), anew=True) as kernel:
        assert kernel.run(own).status == "ok"
        marks = _plant(folder, names)
        kernel.run("import sys, agent_magics")
        if not guarded:
            kernel.run(UNGUARDED)
        with suppress(*([] if guarded else [AssertionError])):
            said = _exercise(kernel, server)
    if guarded:
        for what in EXPECTED:
            assert what in said, f"{what!r} was not seen in\n{said}"
    return {mark.name: mark.read_text(encoding="utf-8") for mark in marks.iterdir()}


@pytest.mark.parametrize("own", [PLAIN, pytest.param(TABLE, marks=pytest.mark.long)])
def test_no_module_of_the_working_folder_is_imported(
    own: str, names: set[str], server: ModelServer, tmp_path: Path
) -> None:
    ran = _attacked(tmp_path / "work", names, server, own, guarded=True)
    assert not ran, f"{sorted(ran)} of {len(names)} ran; the first from\n{next(iter(ran.values()))}"


def test_without_the_guard_they_would_run(
    names: set[str], server: ModelServer, tmp_path: Path
) -> None:
    ran = _attacked(tmp_path / "work", names, server, PLAIN, guarded=False)
    assert ran, "the guard is not what stops them"
