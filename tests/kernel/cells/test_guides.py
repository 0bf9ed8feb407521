"""Each cell of Python on the pages runs as it stands, where there is what the page speaks of."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels.driver import Kernel
from tests.support.models.server import ModelServer

ROOT = Path(__file__).parents[3]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
CELLS = {
    page.stem: re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)
    for page in PAGES
    if page.stem != "events"
}
# What else a cell needs: a cluster, a bucket, and MCP servers that are installed.
ELSEWHERE = re.compile(r"scheduler:8786|s3://|mcp_server_time|mcp\.time|%agent mcp")
# The reader's own: data, functions, and an agent that has changed two files.
OWN = '''
%reload_ext agent_magics
import asyncio
from pathlib import Path

import numpy as np
from agent_magics import Agent, Call, ScriptedModel, tool
from agent_magics.tools import read_file
from PIL import Image

df = [{"text": "It came late.", "path": "a.py", "question": "Why?"}]
for name in ("a.py", "notes.md"):
    Path(name).write_text("a = 1\\n")
Path("src").mkdir(exist_ok=True)
Image.new("RGB", (2, 2)).save("plot.png")
find_orders = lambda customer: []
make_ticket = lambda title: title

@tool
def sales(month: str = "2024-03") -> str:
    """Sales of a month."""
    return month

@tool
async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number

written = [Call("write_file", {"path": f"{name}.txt", "content": PAGE}) for name in "bc"]
agent = Agent(ScriptedModel([written, "Done."]), tools=["write_file"], name="changed")
agent.run_sync("Write.")
if PAGE != "undo":
    agent = Agent(tools=["data"])
'''


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel whose model says "Hello." to everything."""
    with ModelServer(responses=["Hello."]) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "a-key-of-the-tests"}
        with Kernel(cwd=str(tmp_path_factory.mktemp("guides")), env=env) as kernel:
            yield kernel


@pytest.mark.parametrize("page", [name for name, cells in CELLS.items() if cells])
def test_each_cell_of_a_page_runs(kernel: Kernel, page: str) -> None:
    before = kernel.run(f"%reset -f\nPAGE = {page!r}\n{OWN}")
    assert before.status == "ok", before.text
    for cell in CELLS[page]:
        if not ELSEWHERE.search(cell):
            outcome = kernel.run(cell)
            assert outcome.status == "ok", (cell, outcome.text)
