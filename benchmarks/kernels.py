"""Runs a real ipykernel in a process of its own for measurements, driven as by a front end."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client import BlockingKernelClient, KernelManager

READY = 60.0  # seconds a kernel may take to come up


class Notebook:
    """A kernel, and the messages that it has published."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient):
        self.manager, self.client = manager, client

    def send(self, code: str, person: bool = False) -> str:
        """Start a cell without waiting; `person`: with a cell id, as a notebook front end sends."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": person,
            "stop_on_error": True,
        }
        # Only a front end that is a notebook names the cell; in it live text is drawn.
        metadata = {"cellId": uuid.uuid4().hex} if person else {}
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def messages(self, request: str, limit: float = 60.0) -> Iterator[tuple[float, dict]]:
        """Yield the messages published for `request`, with their time of arrival, until idle."""
        end = time.perf_counter() + limit
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.0, end - time.perf_counter()))
            if message["parent_header"].get("msg_id") != request:
                continue
            yield time.perf_counter(), message
            if message["content"].get("execution_state") == "idle":
                return

    def run(self, code: str, limit: float = 60.0) -> list[dict]:
        """Run a cell to its end, `limit` seconds at most; an error in it ends the measurement."""
        found = [message for _, message in self.messages(self.send(code), limit)]
        for message in found:
            if message["msg_type"] == "error":
                raise SystemExit(f"{code!r}: {message['content']['evalue']}")
        return found


@contextmanager
def notebook(base_url: str, extension: str = "agent_magics") -> Iterator[Notebook]:
    """Start a kernel whose agent talks to `base_url`, with `extension` loaded, if any."""
    environment = {**os.environ, "OPENAI_API_KEY": "x", "OPENAI_BASE_URL": base_url}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=READY)
        kernel = Notebook(manager, client)
        if extension:
            kernel.run(f"%load_ext {extension}")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def running(command: str) -> int:
    """Return how many processes named `command` run in the current folder (Linux)."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (process / "stat").read_text("utf-8").partition("(")[2].rpartition(")")
            here = (process / "cwd").samefile(".")
        except OSError:  # it has ended meanwhile, or belongs to another user
            continue
        found += here and name == command and not rest.startswith(" Z")
    return found
