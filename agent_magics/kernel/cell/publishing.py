"""Publishes outputs to the running cell, and detects whether a page shows them live."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from agent_magics.dispatch.results.cutting import encodable_json
from agent_magics.kernel.lab.link import Page
from agent_magics.kernel.questions.ways import stdin_allowed
from agent_magics.protocol.items import Json
from agent_magics.render.blocks.display import VERSION, notice_item
from agent_magics.render.mime import item_bundle, picture_metadata
from agent_magics.render.visible import show_hidden


class CellPublisher:
    """Publishes to the cell that was running when it was made, bypassing live code's capture.

    Args:
        shell: the IPython shell.
        cell: the cell's id, by which a page that did not run it finds it; "" where there is none.

    Attributes:
        conversation: what the first output's metadata names, for when the kernel has ended.
        shown: the present content of each output, in order.
        drawn_at: the pages that have them.
    """

    def __init__(self, shell: Any, cell: str = "") -> None:
        self._publisher = shell.display_pub
        # ipykernel 7 finds an output's cell by the task; 6 takes the running one.
        has_trait = getattr(self._publisher, "has_trait", lambda name: False)
        self._request = self._publisher.parent_header if has_trait("parent_header") else None
        # Not saved: transient data are not written into the notebook.
        self._transient = {"agent_magics_cell": cell} if cell else {}
        self._cell = cell
        self.conversation = ""
        self._first = ""
        self.shown: dict[str, dict[str, Json]] = {}
        self.drawn_at: set[str] = set()

    def publish(self, bundle: dict[str, Json], display_id: str) -> None:
        """Add an output."""
        self._send(bundle, display_id, update=False)

    def update(self, bundle: dict[str, Json], display_id: str) -> None:
        """Replace an output."""
        self._send(bundle, display_id, update=True)

    def draw_on(self, pages: Iterable[Page], client: str) -> None:
        """Send the outputs to pages that did not run the cell: reloaded ones, or a second one.

        Args:
            pages: all pages.
            client: the one that ran it.
        """
        for page in pages:
            if page.inbox not in self.drawn_at:
                self.drawn_at.add(page.inbox)
                if page.client != client:
                    page.redraw(self._cell, self.shown)

    def _send(self, bundle: dict[str, Json], display_id: str, *, update: bool) -> None:
        bundle = encodable_json(bundle)  # a model may write half a character
        if self._cell:
            self.shown[display_id] = bundle
        transient = {"display_id": display_id, **self._transient}
        publish = partial(
            self._publisher.publish,
            data=bundle,
            metadata={**self._metadata_of(display_id), **picture_metadata(bundle)},
            transient=transient,
            update=update,
        )
        if self._request is None:
            publish()
            return
        running = self._publisher.parent_header
        self._publisher.parent_header = self._request
        try:
            publish()
        finally:
            self._publisher.parent_header = running

    def _metadata_of(self, display_id: str) -> dict[str, Json]:
        """Return the metadata of an output, which must be repeated with each update."""
        self._first = self._first or display_id
        if not self.conversation or display_id != self._first:
            return {}
        return {"agent_magics": {"conversation": self.conversation}}


def widget_bundle(widget: Any, item: dict[str, Json]) -> dict[str, Json]:
    """Return the MIME bundle that draws `widget`.

    It contains `item`, too, for readers that cannot draw the widget, and for the page's extension,
    which shows it in place of the widget when the kernel has ended.
    """
    view: dict[str, Json] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"application/vnd.jupyter.widget-view+json": view, **item_bundle(item)}


def question_item(text: str) -> dict[str, Json]:
    """Return an open question as a notice item."""
    return notice_item(f"Question: {text}")


def is_watched(shell: object) -> bool:
    """Return whether a front end that updates outputs shows this cell to a person.

    Notebook front ends name the cell in the request's metadata; consoles do not, and ignore updates
    of outputs that they have printed.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not stdin_allowed(shell):
        return False
    parent = kernel.get_parent("shell") or {}
    return bool((parent.get("metadata") or {}).get("cellId"))


def text_bundle(text: str) -> dict[str, Json]:
    """Return the MIME bundle of a Markdown text of ours; of what it quotes nothing stays hidden."""
    return item_bundle({"version": VERSION, "kind": "text", "text": show_hidden(text)})
