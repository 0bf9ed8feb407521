"""``%%agent`` and ``%agent``: their options and settings; what they do stands in ``notebook``.

Loading the extension must be quick, so everything else is imported at the first use, or by a
thread in the background before that.
"""

import functools
import importlib
import threading
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from traitlets import Bool, Dict, Enum, Float, Int, List, Unicode, Union

from agent_magics.engine.surroundings import SURROUNDINGS, Lent
from agent_magics.kernel.lab_link import LabLink
from agent_magics.kernel.transform import AwaitTopLevelCell
from agent_magics.protocol.config import DEFAULT_MODEL, ApprovalPolicy, SandboxPolicy

APPROVALS = [str(policy) for policy in ApprovalPolicy]
SANDBOXES = [str(policy) for policy in SandboxPolicy]
_COMPLETED = ("%%agent", "%agent")


@magics_class
class AgentMagics(Magics):
    """An agent in the notebook. Settings: ``%config AgentMagics.model = "..."``."""

    model = Unicode(DEFAULT_MODEL, help="The model's name at the provider.").tag(config=True)
    name = Unicode("default", help="Which agent runs where --name is not given.").tag(config=True)
    tools = Union(
        [List(Unicode()), Unicode()], default_value=["data"], help="Tools that are offered."
    ).tag(config=True)
    cwd = Unicode(".", help="The workspace.").tag(config=True)
    instructions = Unicode("", help="Added to the instructions for the model.").tag(config=True)
    approval = Enum(APPROVALS, "on-request", help="When you are asked.").tag(config=True)
    sandbox = Enum(SANDBOXES, "workspace-write", help="What commands may touch.").tag(config=True)
    network = Bool(False, help="Sandboxed commands may reach ports 80 and 443.").tag(config=True)
    writable_roots = List(Unicode(), help="More folders that may be written.").tag(config=True)
    base_url = Unicode("", help="An OpenAI-compatible server.").tag(config=True)
    replay = Unicode("auto", help="A recording; auto: x.agent.jsonl beside x.ipynb.").tag(
        config=True
    )
    replay_strict = Bool(False, help="Drift from the recording is an error.").tag(config=True)
    record = Unicode("", help="A file to record the model's side to.").tag(config=True)
    max_turns = Int(100, min=1, help="Requests to the model in one cell.").tag(config=True)
    max_tokens = Int(None, min=1, allow_none=True, help="Tokens of one cell, in and out.").tag(
        config=True
    )
    max_cost = Float(None, allow_none=True, help="USD of one cell.").tag(config=True)
    output_budget = Int(10_000, min=1, help="Characters the model reads of one output.").tag(
        config=True
    )
    context_window = Int(
        None, min=1, allow_none=True, help="Tokens the model can read; None: as known."
    ).tag(config=True)
    loops = Dict(help="When repetition is stopped, such as {'identical': 5}.").tag(config=True)
    python = Enum(["live", "scratch", "off"], "live", help="Where the model's code runs.").tag(
        config=True
    )
    features = Dict(
        help="What is switched on ({'web_search': True}) or chosen otherwise for a model."
    ).tag(config=True)
    hooks = List(help="Objects with before_tool, after_tool, before_model or on_event.").tag(
        config=True
    )
    mcp_servers = Dict(help="MCP servers: {'name': {'command': ..., 'args': [...]}}.").tag(
        config=True
    )
    tool_budget = Int(
        10_000, min=0, help="Estimated tokens of all tools, above which some are deferred."
    ).tag(config=True)
    allow_dangerous = Bool(False, help="Dangerous commands run under never.").tag(config=True)

    def __init__(self, shell: Any) -> None:
        super().__init__(shell=shell)
        # From now on pages of JupyterLab are let in.
        self.lab = LabLink(getattr(shell, "kernel", None))

    # -- the magics --------------------------------------------------------------------------------

    @functools.cached_property
    def notebook(self) -> Any:
        """The agents of this kernel (`NotebookAgents`)."""
        return importlib.import_module("agent_magics.kernel.notebook").NotebookAgents(
            self.shell, self
        )

    @property
    def agents(self) -> dict[str, Any]:
        """The agents by name."""
        return self.notebook.agents

    @no_var_expand
    @magic_arguments()
    @argument("--model", "-m", help="The model's name at the provider.")
    @argument("--name", help="Which agent; each has its own conversation.")
    @argument("--tools", nargs="+", help="Tools, sets (such as data), own functions.")
    @argument("--approval", choices=APPROVALS, help="When you are asked.")
    @argument("--sandbox", choices=SANDBOXES, help="What commands may touch.")
    @argument("--max-turns", type=int, help="Requests to the model in this cell.")
    @argument("--max-tokens", type=int, help="Tokens of this cell, in and out.")
    @argument("--max-cost", type=float, metavar="USD", help="What this cell may cost.")
    @argument("--into", metavar="VAR", help="Bind the final answer to this variable.")
    @argument("--output", metavar="TYPE", help="The answer's type, such as 'list[Row]'.")
    @argument("--replay", metavar="FILE", help="Play the model's side from this recording.")
    @argument("--record", metavar="FILE", help="Record the model's side to this file.")
    @argument("--background", action="store_true", help="Go on while other cells run.")
    @argument("--new", action="store_true", help="Begin a new conversation.")
    @cell_magic("agent")
    def agent(self, line: str, cell: str) -> None:
        """Run an agent on the cell's text.

        The model's words, its tool calls and their outputs appear below the cell. `_agent` is the
        result. `{{expression}}` in the text is replaced by its value.
        """
        self.notebook.run_blocking(parse_argstring(self.agent, line), cell)

    async def run_awaiting(self, line: str, cell: str) -> None:
        """What a top-level ``%%agent`` cell awaits; see ``transform``."""
        await self.notebook.run_awaiting(parse_argstring(self.agent, line), cell)

    @no_var_expand
    @line_magic("agent")
    def agent_line(self, line: str) -> Any:
        """Look at and steer the agent: ``%agent help`` lists the words."""
        return self.notebook.perform(line)

    def complete(self, shell: Any, event: Any) -> list[str]:
        """Complete options, tools and words at the cursor (an IPython completer hook)."""
        completion = importlib.import_module("agent_magics.kernel.completion")
        return completion.complete(event.line, self.agent.parser, shell.user_ns)

    def before_cell(self, info: Any) -> None:
        """Give a cell the names that it expects of us; nothing is loaded for any other cell."""
        if "notebook" in vars(self) or "mcp." in info.raw_cell:
            self.notebook.before_cell(info)

    def lend(self) -> Lent:
        """Return what `Agent` objects of this process may use."""
        return self.notebook.lend()

    def close(self) -> None:
        """End the agents, if there are any, and let no page in any more."""
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
    for key in _COMPLETED:
        shell.set_hook("complete_command", magics.complete, str_key=key)
    shell.events.register("pre_run_cell", magics.before_cell)
    SURROUNDINGS.lend(magics.lend)
    threading.Thread(target=_warm_up, name="agent-warm-up", daemon=True).start()


def _warm_up() -> None:
    """Import what the first cell needs, half a second that it need not wait for."""
    importlib.import_module("agent_magics.kernel.notebook")
    importlib.import_module("agent_magics.models.responses").load_openai()


def unload(shell: Any) -> None:
    """Take everything away that `load` registered, and end the agents."""
    magics = shell.magics_manager.registry.pop("AgentMagics", None)
    if magics is None:
        return
    # Else %config would go on setting these magics, not those that are loaded next.
    shell.configurables.remove(magics)
    for key in _COMPLETED:
        shell.strdispatchers["complete_command"].strs.pop(key, None)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    shell.input_transformers_post[:] = [
        each for each in shell.input_transformers_post if not isinstance(each, AwaitTopLevelCell)
    ]
    shell.events.unregister("pre_run_cell", magics.before_cell)
    SURROUNDINGS.lend(None)
    magics.close()
