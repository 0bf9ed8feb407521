"""What goes out to the cell that runs now, and whether anybody sees it change."""

import uuid
from functools import partial
from typing import Any

from agent_magics.kernel.answers import stdin_allowed
from agent_magics.kernel.outputs import CellOutputs
from agent_magics.protocol.items import Json
from agent_magics.render.mime import item_bundle
from agent_magics.render.view import TurnView


class CellPublisher:
    """Publishes to the cell that is running now, also while live code has another publisher.

    Args:
        shell: the IPython shell.
        cell: the cell's id, by which a page that did not run it finds it; "" where there is none.

    Attributes:
        shown: what each output shows now, in their order.
    """

    def __init__(self, shell: Any, cell: str = "") -> None:
        self._publisher = shell.display_pub
        # ipykernel 7 tells by the task which cell an output is of; 6 takes the one that runs.
        has_trait = getattr(self._publisher, "has_trait", lambda name: False)
        self._request = self._publisher.parent_header if has_trait("parent_header") else None
        # Not saved: what is transient goes no further than the page.
        self._transient = {"agent_magics_cell": cell} if cell else {}
        self._keeps = bool(cell)
        self.shown: dict[str, dict[str, Json]] = {}

    def publish(self, bundle: dict[str, Json], display_id: str) -> None:
        """Add an output."""
        self._send(bundle, display_id, update=False)

    def update(self, bundle: dict[str, Json], display_id: str) -> None:
        """Replace an output."""
        self._send(bundle, display_id, update=True)

    def _send(self, bundle: dict[str, Json], display_id: str, *, update: bool) -> None:
        if self._keeps:
            self.shown[display_id] = bundle
        transient = {"display_id": display_id, **self._transient}
        publish = partial(self._publisher.publish, data=bundle, transient=transient, update=update)
        if self._request is None:
            publish()
            return
        running = self._publisher.parent_header
        self._publisher.parent_header = self._request
        try:
            publish()
        finally:
            self._publisher.parent_header = running


def widget_bundle(widget: Any, text: str) -> dict[str, Json]:
    """Return the MIME bundle that draws `widget`."""
    view: dict[str, Json] = {
        "version_major": 2,
        "version_minor": 0,
        "model_id": widget.model_id,
    }
    return {"application/vnd.jupyter.widget-view+json": view, "text/plain": text}


def is_watched(shell: Any) -> bool:
    """Tell whether a front end that updates outputs shows this cell to a person.

    Notebook front ends name the cell in the request's metadata; consoles do not, and ignore
    updates of what they have printed.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not stdin_allowed(shell):
        return False
    parent = kernel.get_parent("shell") or {}
    return bool((parent.get("metadata") or {}).get("cellId"))


def redraw(shell: Any, view: TurnView) -> None:
    """Show a finished turn again in the cell that runs now."""
    publisher = CellPublisher(shell)
    outputs = CellOutputs(publisher, live=False)
    for block in view.blocks:
        outputs.show(block)
    outputs.finish()


def publish_item(shell: Any, item: dict[str, Json]) -> None:
    """Show one item in the cell that runs now."""
    CellPublisher(shell).publish(item_bundle(item), uuid.uuid4().hex)
