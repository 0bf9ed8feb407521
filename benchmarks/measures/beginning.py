"""Measures a person's first `%%agent` cell in a kernel whose warm-up has ended, and the second one.

The model answers with one call of a plain tool, then with a text. Wall ms until the kernel is idle.
"""

import json
import sys
import time

from kernels import Notebook, notebook
from measures.remembering import OURS

WARM = """
import threading
for thread in threading.enumerate():
    if thread.name == "agent-warm-up":
        thread.join()
"""
CELL = "%%agent --model gpt-4o --approval never --tools add\ngo"


def milliseconds(kernel: Notebook) -> float:
    """Return how long one cell takes."""
    began = time.perf_counter()
    kernel.run(CELL)
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Run two cells; print what each took."""
    with notebook(f"{sys.argv[2]}/s/loop1/v1") as kernel:
        kernel.run(OURS[0] + WARM)
        print(json.dumps({"first_ms": milliseconds(kernel), "second_ms": milliseconds(kernel)}))


if __name__ == "__main__":
    main()
