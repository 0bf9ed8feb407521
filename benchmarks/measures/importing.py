"""Measures an import against the bare interpreter: time, memory, and the modules it loads."""

# Nothing else may be imported before the measurement: it would be missing from the figure.
import sys
import time

STATEMENTS = {
    "package": "import agent_magics",
    "names": "from agent_magics import Agent, tool",
    "floor": "import openai; openai.AsyncOpenAI",
}
HEAVY = (
    "aiohttp",
    "openai",
    "pydantic",
    "mcp",
    "ipywidgets",
    "anywidget",
    "IPython",
    "numpy",
    "pandas",
    "asyncio",
)


def resident() -> float:
    """Return the memory of this process in MB, where the system reports it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib is measured
            return int(file.read().split()[1]) * 4096 / 1e6
    except OSError:
        return 0.0


subject = sys.argv[1]
modules, memory = len(sys.modules), resident()
wall, cpu = time.perf_counter(), time.process_time()
exec(STATEMENTS[subject])
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
figures = {
    "cpu_ms": cpu * 1e3,
    "wall_ms": wall * 1e3,
    "memory_mb": resident() - memory,
    "modules": len(sys.modules) - modules,
    "heavy": ", ".join(name for name in HEAVY if name in sys.modules) or "none",
}

import json  # noqa: E402

print(json.dumps(figures))
