"""The open notebook as agents reach it: whose it is, what they have read of it, what they ask."""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Any

from agent_magics.dispatch.output import cut_text
from agent_magics.kernel.lab_link import Asker, LabLink, Page
from agent_magics.protocol.errors import RespondToModel

# Seconds in which a page does what it is asked; a page that is gone does nothing.
LIMIT = 15.0
# Cells whose text is kept as the model read it, and what it is shown of one that has changed.
_MOST_KEPT, _SHOWN = 2_000, 5_000

_NO_PAGE = (
    "There is no open notebook to work on: the notebook tools need JupyterLab with the "
    "agent-magics extension (`%agent doctor` shows whether it is connected). Do not write the "
    "notebook's file; give the person the code instead."
)
_NO_CELL = (
    "The notebook tools work for an agent that runs in a %%agent cell of a notebook; this one "
    "runs in a console or from other code."
)
_SEVERAL = (
    "Several notebooks are open on this kernel ({paths}), and the page that ran this cell is not "
    "there any more, so it is not clear which one is meant. Tell the person to run the cell again."
)


class LabDocument:
    """See `agent_magics.dispatch.context.LiveDocument`."""

    def __init__(self, link: LabLink) -> None:
        self._link = link
        self._read: OrderedDict[tuple[str, str], str] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """Whether a page could answer."""
        return bool(self._link.pages)

    def asker(self, turn_id: str) -> str:
        """Return the id of the cell that a turn runs in; "" where it is none of a notebook."""
        asker = self._link.askers.get(turn_id)
        return "" if asker is None else asker.cell

    def remember(self, cell_id: str, source: str) -> str:
        """Keep a cell as the model reads it, and return the version by which it names it."""
        version = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self._read[cell_id, version] = source
        self._read.move_to_end((cell_id, version))
        if len(self._read) > _MOST_KEPT:
            self._read.popitem(last=False)
        return version

    def read_as(self, cell_id: str, version: str) -> str:
        """Return a cell's text as it was in a version that the model has read.

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

    async def request(self, turn_id: str, op: str, **fields: Any) -> Any:
        """Have the notebook's page do something.

        Raises:
            RespondToModel: there is no page, it refuses, or the cell (field `cell`) is not the
                `expected` one any more.
        """
        asker = self._link.askers.get(turn_id)
        page = self._page_of(asker)
        assert asker is not None
        answer = asyncio.wrap_future(self._link.wish(page, op, asker, fields))
        try:
            async with asyncio.timeout(LIMIT):
                reply = await answer
        except TimeoutError:
            self._link.drop(page)
            raise RespondToModel(
                f"The page with {page.path} did not answer within {LIMIT:.0f} s. Whether it did "
                "what was asked is not known; read the notebook again."
            ) from None
        if isinstance(reply.get("stale"), str):
            raise RespondToModel(self._stale(str(fields.get("cell")), reply["stale"]))
        if "refused" in reply:
            raise RespondToModel(f"Nothing was done: {reply['refused']}.")
        return reply.get("value")

    def _stale(self, cell_id: str, source: str) -> str:
        """Say what stands in a cell that somebody has changed meanwhile."""
        version = self.remember(cell_id, source)
        shown, _ = cut_text(source, _SHOWN)
        return (
            f"Cell {cell_id} has changed since the version you gave (the person may be typing in "
            f"it); nothing was done. It is now version {version}:\n{shown}"
        )

    def _page_of(self, asker: Asker | None) -> Page:
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
