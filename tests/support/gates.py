"""Pipes at which code in a kernel, a tool or a shell waits until a test lets it go on."""

import os
from pathlib import Path

# Python that waits at the gate of that name in its working folder; a shell does by `: < gate`.
GATE = "open('gate').read()"


class Gate:
    """A named pipe that one reader passes; it waits for the test, and the test for it.

    Args:
        path: where the pipe is made.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path

    def open(self) -> None:
        """Let the reader pass, as soon as it is at the gate; a gate that is open stays so."""
        if self.path.exists():
            self.path.write_text("", encoding="ascii")
            self.path.unlink()
