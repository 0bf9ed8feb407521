"""Measures how soon the prompt is back after an interrupt of a tool that streams, twice."""

import json
import sys
import time

from kernels import Notebook, notebook, running

CELL = "%%agent --model gpt-4o --approval never --sandbox danger-full-access --tools shell\ngo"
STREAMING = 1.5  # seconds that the command writes before it is interrupted
STARTING = 20.0  # seconds that it may take to start


def interrupt_once(kernel: Notebook) -> dict[str, float]:
    """Run the cell, interrupt it, run another one; milliseconds from the interrupt."""
    request = kernel.send(CELL)
    deadline = time.perf_counter() + STARTING
    while not running("yes"):
        if time.perf_counter() > deadline:
            raise SystemExit("the command has not started: " + _published(kernel))
        time.sleep(0.05)
    time.sleep(STREAMING)
    began = time.perf_counter()
    kernel.manager.interrupt_kernel()
    *_, (idle, _last) = kernel.messages(request)
    results = kernel.run("6 * 7")
    assert any("42" in str(message["content"].get("data")) for message in results), results
    prompt = time.perf_counter()
    time.sleep(1.0)
    left = running("yes")
    return {"idle_ms": (idle - began) * 1e3, "prompt_ms": (prompt - began) * 1e3, "left": left}


def _published(kernel: Notebook) -> str:
    """Return the beginning of what the kernel has published so far."""
    texts = []
    while kernel.client.iopub_channel.msg_ready():
        content = kernel.client.get_iopub_msg(timeout=1)["content"]
        texts.append(str(content.get("text") or content.get("evalue") or content.get("data") or ""))
    return " ".join(filter(None, texts))[-400:].replace("\n", " ")


def main() -> None:
    """Interrupt twice; print milliseconds."""
    with notebook(f"{sys.argv[2]}/s/yes/v1") as kernel:
        first, second = interrupt_once(kernel), interrupt_once(kernel)
    figures = {**first, "again_ms": second["idle_ms"], "left": str(first["left"] + second["left"])}
    print(json.dumps(figures))


main()
