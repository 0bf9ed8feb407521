"""Measures how soon after a request the question of its answer stands in the kernel's output.

The kernel's warm-up has ended. Milliseconds from the end of the request, as the server sees it, to
the message that shows the widget: in a first cell, and in a second one. A page's drawing of it is
not in it.
"""

import json
import sys
from typing import Any

from clients import log
from kernels import Notebook, notebook
from measures.beginning import WARM
from measures.remembering import OURS

CELL = "%%agent --model gpt-4o --approval untrusted --tools shell\ngo"
WIDGET = "application/vnd.jupyter.widget-view+json"


def milliseconds(kernel: Notebook, server: str) -> float:
    """Return how long it takes to the widget of one question, which is answered with Stop."""
    log(server, "yes")
    shown, questions = 0.0, {}
    for at, message in kernel.messages(kernel.send(CELL, person=True)):
        content = message["content"]
        if message["msg_type"] == "comm_open":
            questions[content["comm_id"]] = content["data"]["state"].get("question_id")
        elif WIDGET in content.get("data", {}) and not shown:
            shown, widget = at, content["data"][WIDGET]["model_id"]
            tell(kernel, widget, {"type": "drawn"})
            tell(kernel, widget, {"type": "answer", "id": questions[widget], "decision": "abort"})
    (asked,) = log(server, "yes")
    return (shown - asked[0]) * 1e3


def tell(kernel: Notebook, widget: str, content: dict[str, Any]) -> None:
    """Send a message of a widget, as its page does."""
    data = {"method": "custom", "content": content}
    message = kernel.client.session.msg("comm_msg", {"comm_id": widget, "data": data})
    kernel.client.shell_channel.send(message)


def main() -> None:
    """Ask in two cells; print what each took."""
    server = sys.argv[2]
    with notebook(f"{server}/s/yes/v1") as kernel:
        kernel.run(OURS[0] + WARM)
        first, second = milliseconds(kernel, server), milliseconds(kernel, server)
    print(json.dumps({"first_ms": first, "second_ms": second}))


main()
