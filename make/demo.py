"""Executes a notebook in a real kernel of this environment and shows the result."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ITEM = "application/vnd.agent-magics.item+json"


def load_exporter() -> Any:
    """Return the HTML exporter; importing it takes as long as the kernel's start."""
    from nbconvert import HTMLExporter  # noqa: PLC0415 - done while the kernel starts

    return HTMLExporter()


def execute(source: Path) -> tuple[nbformat.NotebookNode, Exception | None]:
    """Run the notebook in its own folder; return it with its outputs, and the error if any."""
    notebook = nbformat.read(source, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=120,
        extra_arguments=["--log-level=ERROR"],  # newer kernels warn about loopback TCP
        resources={"metadata": {"path": str(source.parent)}},
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return notebook, error
    return notebook, None


def items(notebook: nbformat.NotebookNode) -> list[dict]:
    """Return the agent's items in the notebook's outputs, in order, blocks and groups opened."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return _opened([o["data"][ITEM] for o in outputs if ITEM in o.get("data", {})])


def _opened(items: list[dict]) -> list[dict]:
    return [each for item in items for each in _opened(item.get("items", [])) or [item]]


def save(notebook: nbformat.NotebookNode, stem: Path, exporter: Any) -> tuple[Path, Path]:
    """Write the executed notebook and its HTML; return both paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    executed, page = stem.with_suffix(".ipynb"), stem.with_suffix(".html")
    nbformat.write(notebook, executed)
    html, _ = exporter.from_notebook_node(notebook)
    page.write_text(html, encoding="utf-8")
    return executed, page


def main(source: Path, folder: Path) -> int:
    """Execute `source`, write the results into `folder`, print their paths and the answer."""
    started = time.perf_counter()
    print(f"executing {source} in a kernel of {sys.prefix}", flush=True)
    with ThreadPoolExecutor(max_workers=1) as meanwhile:
        exporter = meanwhile.submit(load_exporter)
        notebook, error = execute(source)
    executed, page = save(notebook, folder / source.stem, exporter.result())
    print(f"executed notebook: {executed.resolve()}")
    print(f"as a page:         {page.resolve()}")
    if error is not None:
        print(f"the notebook stopped: {error}", file=sys.stderr)
        return 1
    answers = [item["text"] for item in items(notebook) if item["kind"] == "text"]
    if not answers:
        print("the notebook ran, and no answer of the agent is in it", file=sys.stderr)
        return 1
    print(f"\nthe final answer:\n\n{answers[-1].strip()}\n")
    print(f"done in {time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
