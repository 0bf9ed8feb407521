"""Reads and changes the open notebook for agents, and records what each has read."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from agent_magics.dispatch.results.cutting import cut_text
from agent_magics.engine.foreground.interrupt import interruptible
from agent_magics.kernel.lab.link import CellRef, LabLink, Page
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.render.markdown import make_harmless
from agent_magics.text.line_ends import with_newlines

# Seconds for a page's reply; a closed page sends none.
LIMIT = 15.0
# Seconds until a page that has just connected can be heard while the main thread is busy.
REACH_LIMIT = 5.0
# The most cells whose read text is kept; characters shown of a changed one.
_MOST_KEPT, _SHOWN = 2_000, 5_000

_NO_PAGE = (
    "There is no open notebook to work on: the notebook tools need JupyterLab with the "
    "agent-magics extension (`%agent doctor` shows whether it is connected). Do not write the "
    "notebook's file; give the person the code instead."
)
_UNSEEN = "no page of JupyterLab with the agent-magics extension can be reached"
_NO_CELL = (
    "The notebook tools work for an agent that runs in a %%agent cell of a notebook; this one "
    "runs in a console or from other code."
)
_SEVERAL = (
    "Several notebooks are open on this kernel ({paths}), and the page that ran this cell is not "
    "there any more, so it is not clear which one is meant. Tell the person to run the cell again."
)


class LabDocument:
    """The open notebook in JupyterLab; see `agent_magics.dispatch.turn.LiveDocument`."""

    def __init__(self, link: LabLink) -> None:
        self._link = link
        self._read: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._kinds: dict[str, str] = {}

    @property
    def is_open(self) -> bool:
        """Whether a page is connected."""
        return bool(self._link.pages)

    def asker(self, turn_id: str) -> str:
        """Return the id of the cell that a turn runs in; "" where there is no such cell."""
        asker = self._link.askers.get(turn_id)
        return "" if asker is None else asker.cell

    def remember(self, cell_id: str, source: str, kind: str) -> str:
        """Record a cell's text as the model reads it, and return the id of that version."""
        version = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self._read[cell_id, version] = source
        self._read.move_to_end((cell_id, version))
        self._kinds[cell_id] = kind
        if len(self._read) > _MOST_KEPT:
            self._read.popitem(last=False)
        return version

    def read_as(self, cell_id: str, version: str) -> str:
        """Return a cell's text in a version that the model has read.

        Raises:
            RespondToModel: the model has not read it.
        """
        source = self._read.get((cell_id, version))
        if source is None:
            raise RespondToModel(
                f"Version {version!r} of cell {cell_id!r} was not read in this kernel: read the "
                "cell with notebook_read first, and give the version that it shows."
            )
        return source

    def kind_of(self, cell_id: str) -> str:
        """Return the cell's type when the model read it: "code", "markdown" or "raw"."""
        return self._kinds[cell_id]

    def as_written(self, kind: str, source: str, before: str = "") -> str:
        r"""Return a model's text for a cell; Markdown without active content.

        Lines end in ``\n``: JupyterLab's editor counts ``\r\n`` as one character, the document as
        two, so what a person typed below would go elsewhere than it is shown.
        """
        source = with_newlines(source)
        if kind != "markdown":
            return source
        return make_harmless(source, before=with_newlines(before))

    async def request(self, turn_id: str, op: str, **fields: Any) -> Any:
        """Send a request to the notebook's page and return its reply.

        Args:
            turn_id: the turn whose cell asks.
            op: the operation, such as "insert" or "delete".
            fields: its arguments.

        Raises:
            RespondToModel: there is no page, it refuses, or the cell (field `cell`) does not have
                the `expected` text any more.
        """
        asker = self._link.askers.get(turn_id)
        page = self._page_of(asker)
        assert asker is not None
        answer = asyncio.wrap_future(self._link.wish(page, op, asker, fields))
        try:
            async with asyncio.timeout(LIMIT):
                reply = await answer
        except TimeoutError:
            self._link.dismiss(page)
            raise RespondToModel(
                f"The page with {page.path} did not answer within {LIMIT:.0f} s. Whether it did "
                "what was asked is not known; read the notebook again."
            ) from None
        if isinstance(reply.get("stale"), str):
            raise RespondToModel(self._stale(str(fields.get("cell")), reply["stale"]))
        if "refused" in reply:
            raise RespondToModel(f"Nothing was done: {reply['refused']}.")
        return reply.get("value")

    def restore(self, asker: CellRef, cells: Sequence[Mapping[str, object]], **how: object) -> Any:
        """Have a page restore cells, from a cell that holds the main thread.

        Args:
            asker: the cell that asks.
            cells: the cells; see ``labextension/src/notebook/rewind.ts``.
            how: further fields of the request.

        Returns:
            What the page replies: its "path", and for each of "cells" what became of it.

        Raises:
            FatalError: no page can be reached, or it refuses.
        """
        pages = self._link.pages
        if not pages or not self._link.wait_for_reach(REACH_LIMIT):
            raise FatalError(_UNSEEN)
        own = [page for page in pages if page.client == asker.client]
        answer = self._link.wish((own or pages)[-1], "restore", asker, {"cells": cells, **how})
        try:
            with interruptible():
                reply = answer.result(LIMIT)
        except TimeoutError:
            raise FatalError("the page did not answer") from None
        finally:
            answer.cancel()
        if "refused" in reply:
            raise FatalError(str(reply["refused"]))
        return reply["value"]

    def _stale(self, cell_id: str, source: str) -> str:
        """Describe the present text of a cell that was changed meanwhile."""
        version = self.remember(cell_id, source, self.kind_of(cell_id))
        shown, _ = cut_text(source, _SHOWN)
        return (
            f"Cell {cell_id} has changed since the version you gave (the person may be typing in "
            f"it); nothing was done. It is now version {version}:\n{shown}"
        )

    def _page_of(self, asker: CellRef | None) -> Page:
        if asker is None or not asker.cell:
            raise RespondToModel(_NO_CELL)
        pages = self._link.pages
        if not pages:
            raise RespondToModel(_NO_PAGE)
        own = [page for page in pages if page.client == asker.client]
        if own:
            return own[-1]
        # The page was loaded anew since; it is another connection, to the same notebook.
        paths = sorted({page.path for page in pages})
        if len(paths) > 1:
            raise RespondToModel(_SEVERAL.format(paths=", ".join(paths)))
        return pages[-1]
