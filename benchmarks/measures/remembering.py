"""Measures the memory that a conversation of 1,000 turns in one cell adds to a kernel, in MB.

The kernel is an ipykernel of its own, driven as by a front end. The base is the same kernel when it
has started and run a cell. ``ours`` loads the extension and runs an agent cell; ``floor`` awaits
floor_content.Floor in the cell.
"""

import json
import sys

from kernels import Notebook, notebook

TURNS = 1000
LIMIT = 300.0  # seconds for the conversation
SIZE = "import psutil; print('SIZE', psutil.Process().memory_info().rss)"
TOOL = '''
calls = 0
def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: first number.
        b: second number.
    """
    global calls
    calls += 1
    return a + b
'''
OURS = (
    TOOL + "from agent_magics import tool\nadd = tool(add)",
    f"%%agent --model gpt-4o --approval never --tools add --max-turns {TURNS + 5}\ngo",
)
FLOOR = (
    TOOL + "import os; from floor_content import Floor",
    "floor = Floor(os.environ['OPENAI_BASE_URL'], [add]); text = await floor.run('go')",
)


def memory(kernel: Notebook) -> float:
    """Return the resident memory of the kernel's process in MB."""
    texts = [message["content"].get("text", "") for message in kernel.run(SIZE)]
    return int("".join(texts).split("SIZE")[1]) / 1e6


def main() -> None:
    """Run the conversation; print by how much the kernel has grown."""
    subject, server = sys.argv[1:3]
    prepare, converse = FLOOR if subject == "floor" else OURS
    with notebook(f"{server}/s/loop{TURNS}/v1", extension="") as kernel:
        kernel.run("1 + 1")
        before = memory(kernel)
        if subject != "floor":
            kernel.run("%load_ext agent_magics")
        kernel.run(prepare)
        kernel.run(converse, LIMIT)
        kernel.run(f"assert calls == {TURNS}, calls")
        after = memory(kernel)
    print(json.dumps({"grown_mb": after - before, "bare_mb": before}))


if __name__ == "__main__":
    main()
