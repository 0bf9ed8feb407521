"""Measures what is sent to the front end while a model writes: messages a second, and bytes."""

import json
import sys

from kernels import notebook

DELTAS = 1500  # at server.PACE seconds each
SHOWN = ("display_data", "update_display_data", "stream", "comm_open", "comm_msg", "clear_output")


def main() -> None:
    """Run one cell with a long answer; count what is published until the kernel is idle."""
    with notebook(f"{sys.argv[2]}/s/paced{DELTAS}/v1") as kernel:
        request = kernel.send(
            "%%agent --model gpt-4o --approval never --tools shell\ngo", person=True
        )
        seen = list(kernel.messages(request))
    for _, message in seen:
        if message["msg_type"] == "error":
            raise SystemExit(message["content"]["evalue"])
    shown = [message for _, message in seen if message["msg_type"] in SHOWN]
    size = sum(len(json.dumps(message["content"])) for message in shown)
    seconds = seen[-1][0] - seen[0][0]
    assert f"word{DELTAS - 1}" in json.dumps([message["content"] for message in shown])
    figures = {
        "messages": len(shown),
        "per_second": len(shown) / seconds,
        "kb": size / 1024,
        "seconds": seconds,
    }
    print(json.dumps(figures))


main()
