"""Runs LiteLLM's proxy by its own command line until its standard input ends.

python serve.py PORT
"""

import os
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parent


def end_with_input() -> None:
    """End the process, whatever it is doing, when nobody holds the other end any more."""
    sys.stdin.read()
    os._exit(0)


def serve(port: str) -> None:
    """Start the proxy."""
    threading.Thread(target=end_with_input, daemon=True).start()
    from litellm import run_server  # noqa: PLC0415 - takes seconds, and the thread must be there

    config = str(HERE / "config.yaml")
    sys.argv = ["litellm", "--config", config, "--host", "127.0.0.1", "--port", port]
    run_server()


if __name__ == "__main__":
    serve(*sys.argv[1:])
