"""Measures ``%load_ext agent_magics`` in an IPython shell that is already running.

The extension imports ``aiohttp`` on a thread of its own, so three figures matter: the wall time
until the prompt is back, the CPU time of the process until then, and all CPU time until the thread
has ended.
"""

import json
import sys
import threading
import time

from IPython.core.interactiveshell import InteractiveShell

HEAVY = ("openai", "pydantic", "mcp", "ipywidgets", "anywidget", "numpy", "pandas")
CALM_AFTER = 5.0  # seconds that the warm-up gets


def main() -> None:
    """Load the extension into a bare shell and print the figures."""
    shell = InteractiveShell.instance()
    shell.run_cell("1 + 1")
    extension = "autoreload" if sys.argv[1] == "floor" else "agent_magics"
    before = set(sys.modules)
    threads = set(threading.enumerate())
    wall, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
    shell.run_line_magic("load_ext", extension)
    figures = {
        "wall_ms": (time.perf_counter() - wall) * 1e3,
        "cpu_ms": (time.process_time() - cpu) * 1e3,
        "own_cpu_ms": (time.thread_time() - own) * 1e3,
    }
    new = set(sys.modules) - before
    figures["heavy"] = ", ".join(name for name in HEAVY if name in new) or "none"
    for thread in set(threading.enumerate()) - threads:
        thread.join(CALM_AFTER)
    figures["all_cpu_ms"] = (time.process_time() - cpu) * 1e3
    new = set(sys.modules) - before
    figures["heavy_later"] = ", ".join(name for name in HEAVY if name in new) or "none"
    print(json.dumps(figures))


main()
