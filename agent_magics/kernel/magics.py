"""Defines ``%%agent`` and ``%agent`` with their options and settings; ``notebook`` implements them.

Loading the extension must be quick, so everything else is imported at the first use, or by a thread
in the background before that.
"""

import functools
import gc
import importlib
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from agent_magics.engine.front_end import FRONT_ENDS, FrontEnd
from agent_magics.kernel.cell.request.options import parse_options, usage_errors
from agent_magics.kernel.lab.link import Data, LabLink, asker_of
from agent_magics.kernel.setting_traits import SettingTraits, add_options, given_in

if TYPE_CHECKING:
    from agent_magics.app import Agent
    from agent_magics.kernel.cells import AgentCells
    from agent_magics.kernel.lab.pasted_files import PastedFiles
    from agent_magics.kernel.notebook import NotebookAgents
    from agent_magics.kernel.overview import Overview


MAGIC_CALL = "get_ipython().run_cell_magic('agent', "
AWAITED_CALL = "await get_ipython().magics_manager.registry['AgentMagics'].run_awaiting("


class AwaitTopLevelCell:
    """An entry of ``shell.input_transformers_post`` that rewrites top-level ``%%agent`` cells.

    While a cell awaits, clicks reach the kernel (ipykernel >= 7.4) and an interrupt arrives. A
    magic cannot await, so the one line that IPython makes of the cell is rewritten to a different
    call. Inside another cell (``%%time``, ``ip.run_cell``, ``%run``) an await would be a syntax
    error or meet a loop that is already running; there the blocking magic stays.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Rewrite the line of a top-level ``%%agent`` cell."""
        if len(lines) != 1 or not lines[0].startswith(MAGIC_CALL):
            return lines
        if not self._shell.autoawait or self._shell.display_trap._nested_level:
            return lines
        return [AWAITED_CALL + lines[0][len(MAGIC_CALL) :]]


# Blocks of memory (CPython's) in use; a kernel with what is imported here has half a million.
_FEW_BLOCKS = 2_000_000


@magics_class
class AgentMagics(Magics, SettingTraits):  # type: ignore[misc] # a class made from the table
    """An agent in the notebook. Settings: ``%config AgentMagics.model = "..."``."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell=shell)
        # From now on pages of JupyterLab are let in.
        self.lab = LabLink(getattr(shell, "kernel", None))
        self.lab.on_watch = lambda: self._overview.watch()
        self.lab.answers["complete"] = self._complete_for_page
        self.lab.answers["paste"] = self._save_pasted

    # -- the magics --------------------------------------------------------------------------------

    @functools.cached_property
    def notebook(self) -> "NotebookAgents":
        """The agents of this kernel."""
        module = importlib.import_module("agent_magics.kernel.notebook")
        agents: NotebookAgents = module.NotebookAgents(self.shell, self)
        return agents

    @functools.cached_property
    def _cells(self) -> "AgentCells":
        module = importlib.import_module("agent_magics.kernel.cells")
        cells: AgentCells = module.AgentCells(self.notebook)
        return cells

    @functools.cached_property
    def _overview(self) -> "Overview":
        """What the agents do, for pages that watch."""
        module = importlib.import_module("agent_magics.kernel.overview")
        overview: Overview = module.Overview(self.lab, lambda: vars(self).get("notebook"))
        return overview

    @property
    def agents(self) -> "dict[str, Agent]":
        """The agents by name."""
        return self.notebook.agents

    @no_var_expand
    @magic_arguments()
    @add_options
    @argument("--prompt", nargs="+", metavar="NAME", help="A prompt's name, then field=value.")
    @argument("--plan", action="store_true", help="Only read, and end with a plan to run.")
    @argument("--into", metavar="VAR", help="Bind the final answer to this variable.")
    @argument("--output", metavar="TYPE", help="The answer's type, such as 'list[Row]'.")
    @argument("--map", metavar="ROWS", help="Ask this of each row: a variable, or a path.")
    @argument("--ask-above", type=float, metavar="USD", help="With --map: ask me above this cost.")
    @argument("--parts", metavar="FOLDER", help="With --map: write Parquet files there.")
    @argument("--batch", action="store_true", help="With --map: by the batch API, in hours.")
    @argument("--engine", metavar="VAR", help="With --map: the Dask client whose workers ask.")
    @argument("--background", action="store_true", help="Go on while other cells run.")
    @argument("--new", action="store_true", help="Begin a new conversation.")
    @cell_magic("agent")
    def agent(self, line: str, cell: str) -> None:
        """Run an agent on the cell's text.

        The model's words, its tool calls and their outputs appear below the cell. `_agent` is the
        result. `{{expression}}` in the text is replaced by its value.
        """
        with usage_errors():
            self._cells.run_blocking(parse_options(self.agent.parser, line), cell)

    async def run_awaiting(self, line: str, cell: str) -> None:
        """Run a top-level ``%%agent`` cell, which awaits this; see `AwaitTopLevelCell`."""
        with usage_errors():
            await self._cells.run_awaiting(parse_options(self.agent.parser, line), cell)

    @no_var_expand
    @line_magic("agent")
    def agent_line(self, line: str) -> Any:
        """Look at and steer the agent: ``%agent help`` lists the words."""
        control = importlib.import_module("agent_magics.kernel.commands.control")
        with usage_errors():
            return control.perform(self.notebook, line)

    @context_matcher(priority=10)
    def complete(self, context: CompletionContext) -> dict[str, Any]:
        """Complete options, words and mentions at the cursor, instead of Python's (for IPython)."""
        lines = context.full_text.split("\n")[: context.cursor_line]
        offset = sum(len(line) + 1 for line in lines) + context.cursor_position
        start, found = self._completions(context.full_text, offset)
        return {
            "completions": [SimpleCompletion(text, type=kind or None) for text, kind in found],
            "matched_fragment": context.full_text[start:offset],
            "suppress": True,
        }

    def _complete_for_page(self, question: Data) -> Data:
        """Answer a page that asks for completions, also while the main thread is busy."""
        offset = int(question["offset"])
        start, found = self._completions(str(question["code"]), offset)
        return {"start": start, "end": offset, "found": found}

    def _save_pasted(self, part: Data) -> Data:
        """Save a file that was pasted or dropped into a cell; see `PastedFiles`."""
        return self._pasted.receive(part, self._workspace())

    def _workspace(self) -> Path:
        """Return the folder of the notebook's own agent, or of the one that will be made."""
        agent = self.agents.get(self.name) if "notebook" in vars(self) else None
        if agent is not None:
            return agent.config.cwd
        paths = importlib.import_module("agent_magics.files.paths")
        folder: Path = paths.typed_path(self.cwd or ".").resolve()
        return folder

    @functools.cached_property
    def _pasted(self) -> "PastedFiles":
        module = importlib.import_module("agent_magics.kernel.lab.pasted_files")
        files: PastedFiles = module.PastedFiles()
        return files

    def _completions(self, code: str, offset: int) -> tuple[int, Sequence[tuple[str, str]]]:
        """Return where the begun word starts, and what it may become: texts with their kinds."""
        if "%agent" not in code:  # Python, for which nothing is imported
            return offset, ()
        cells = importlib.import_module("agent_magics.kernel.completion.cells")
        shell = self.shell
        found: tuple[int, Sequence[tuple[str, str]]] = cells.complete_cell(
            code,
            offset,
            self.agent.parser,
            shell.user_ns,
            shell.user_ns_hidden,
            self._workspace(),
            tuple(self.agents) if "notebook" in vars(self) else (),
            given_in(self),
        )
        return found

    def before_cell(self, info: Any) -> None:
        """Bind the names that a cell may use, such as ``mcp``; other cells import nothing."""
        self.lab.forget(asker_of(self.shell).cell)
        if "notebook" in vars(self) or "mcp." in info.raw_cell:
            self.notebook.before_cell(info)

    def front_end(self) -> FrontEnd:
        """Return the front end for `Agent` objects of this process."""
        serving = importlib.import_module("agent_magics.kernel.commands.serving")
        serve_host = functools.partial(serving.NotebookServeHost, self.notebook)
        notebook = self.notebook
        return FrontEnd(notebook.host, notebook.live_kernel, serve_host, notebook.map_watcher)

    def close(self) -> None:
        """Close the agents, if there are any, and the connections to pages."""
        self.lab.close()
        if "notebook" in vars(self):
            self.notebook.close()


# -- loading ---------------------------------------------------------------------------------------


def load(shell: Any) -> None:
    """Register the magics; a second time changes nothing."""
    if "AgentMagics" in shell.magics_manager.registry:
        return
    magics = AgentMagics(shell=shell)
    shell.register_magics(magics)
    shell.input_transformers_post.append(AwaitTopLevelCell(shell))
    shell.Completer.custom_matchers.append(magics.complete)
    shell.events.register("pre_run_cell", magics.before_cell)
    FRONT_ENDS.register(magics.front_end)
    threading.Thread(target=_warm_up, name="agent-warm-up", daemon=True).start()


@functools.cache  # where the magics are loaded again, all is there
def _warm_up() -> None:
    """Import the modules that the first cell needs, which takes half a second."""
    importlib.import_module("agent_magics.kernel.cells")
    sources = importlib.import_module("agent_magics.tools.catalog.sources")
    for tool in sources.resolve_tools(None, {}, live=True):
        tool.spec.description  # noqa: B018 - derived when it is looked at, some by pydantic
    importlib.import_module("agent_magics.tools.catalog.discovery").installed_tools()
    with suppress(OSError):  # imports may fail in a deleted folder; the first cell reports it
        importlib.import_module("agent_magics.models.wires.responses.model")
        importlib.import_module("agent_magics.models.transport").load_aiohttp()
    # Else it comes in the first cell, and takes 0.1 s. With many objects of the person's it takes
    # longer, and comes so seldom that it need not be now.
    if sys.getallocatedblocks() < _FEW_BLOCKS:
        gc.collect()


def unload(shell: Any) -> None:
    """Unregister everything that `load` registered, and close the agents."""
    magics = shell.magics_manager.registry.pop("AgentMagics", None)
    if magics is None:
        return
    # Else %config would go on setting these magics, not those that are loaded next.
    shell.configurables.remove(magics)
    shell.Completer.custom_matchers.remove(magics.complete)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    shell.input_transformers_post[:] = [
        each for each in shell.input_transformers_post if not isinstance(each, AwaitTopLevelCell)
    ]
    shell.events.unregister("pre_run_cell", magics.before_cell)
    FRONT_ENDS.register(None)
    magics.close()
