"""Derives the configuration of a sub-agent from that of its parent's turn; it can only narrow it.

Law: a sub-agent has no tool, folder, network, policy or rule that its parent's turn does not have.
So nothing is made anew here: tools are selected from the parent's, settings get stricter values.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from agent_magics import tools as builtin
from agent_magics.delegation.budgets import least
from agent_magics.delegation.sharing import KERNEL
from agent_magics.delegation.types import AgentType
from agent_magics.dispatch.catalog.offer import ToolOffer
from agent_magics.dispatch.registry import ToolRegistry
from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest
from agent_magics.engine.results.structured import OutputType
from agent_magics.engine.turn_config import Parent, TurnConfig
from agent_magics.protocol.config import RunConfig, SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ConfiguredToolSpec
from agent_magics.tools.catalog.stubs import with_stubs

# With these a sub-agent would have sub-agents of its own (depth is 1), or talk to the person.
WITHHELD = frozenset((*builtin.AGENTS, "request_user_input"))
# Tools that stand for one another, depending on what a model was trained on.
_FORMS = {"shell": ("shell_command", "local_shell"), "apply_patch": ("edit_file", "write_file")}
_SUB_AGENT = """\
You are the sub-agent {path}. You work for another agent, which reads your last message and \
nothing else of what you say; no person reads along. {more}"""


def narrowed(
    turn_config: TurnConfig,
    kind: AgentType,
    request: SubAgentRequest,
    budget: AgentBudget,
    path: str,
    parent: Parent,
    output: OutputType | None = None,
) -> TurnConfig:
    """Return the configuration of a sub-agent's turns.

    Args:
        turn_config: the configuration of the parent's turn.
        kind: the type of the sub-agent.
        request: what was asked of it.
        budget: what it may spend.
        path: the names of its parent and itself.
        parent: its connection to the parent.
        output: the type of its answer; None is text.

    Raises:
        RespondToModel: it would have a tool that the parent has not.
    """
    names = _tool_names(turn_config, kind, request.tools)
    present = turn_config.offer.now().all
    specs = tuple(_plain(each) for each in present if each.spec.name in names)
    registry, has_kernel = _registry(turn_config.registry, names), gets_kernel(kind, request)
    if has_kernel:
        _check_kernel(turn_config, kind, names)
        specs = with_stubs(specs, registry.functions)
    uses_servers = any(name.startswith("mcp") for name in names)
    return TurnConfig(
        config=_config(
            turn_config.config, kind, request.model, budget, path, has_kernel=has_kernel
        ),
        open_model=turn_config.open_model,
        offer=ToolOffer(specs, names),
        registry=registry,
        specs=specs,
        env=turn_config.env,
        validate_path=turn_config.validate_path,
        secrets=turn_config.secrets,
        live_kernel=turn_config.live_kernel,
        hooks=turn_config.hooks,
        output=output,
        servers=turn_config.servers if uses_servers else None,
        asker=path,
        parent=parent,
        symbols=turn_config.symbols,
    )


def gets_kernel(kind: AgentType, request: SubAgentRequest) -> bool:
    """Tell whether a sub-agent is to run its Python in the live kernel."""
    return kind.gets_kernel or KERNEL in request.share


def _check_kernel(turn_config: TurnConfig, kind: AgentType, names: Collection[str]) -> None:
    if turn_config.config.python != "live" or turn_config.live_kernel is None:
        raise RespondToModel("There is no live kernel here that a sub-agent could get.")
    if "python" not in names:
        raise RespondToModel(
            f"A sub-agent of the type {kind.name} cannot get the kernel: it has no tool python."
        )


def _config(
    config: RunConfig,
    kind: AgentType,
    model: str,
    budget: AgentBudget,
    path: str,
    *,
    has_kernel: bool,
) -> RunConfig:
    own = AgentBudget(config.max_turns, config.max_tokens, config.max_cost)
    limits = least(budget, own)
    about = _SUB_AGENT.format(path=path, more=kind.instructions)
    return replace(
        config,
        model=model or kind.model or config.model,
        instructions="\n\n".join(filter(None, (config.instructions, about))),
        sandbox=SandboxPolicy.READ_ONLY if kind.reads_only else config.sandbox,
        network=config.network and not kind.reads_only,
        python=config.python if has_kernel or config.python == "off" else "scratch",
        max_turns=limits.requests or config.max_turns,
        max_tokens=limits.tokens,
        max_cost=limits.cost,
    )


def _tool_names(
    turn_config: TurnConfig, kind: AgentType, asked: Collection[str] | None
) -> frozenset[str]:
    """Return the names of the sub-agent's tools."""
    had = frozenset(each.spec.name for each in turn_config.offer.now().all) - WITHHELD
    names = had if kind.tools is None else had & _expanded(kind.tools)
    if kind.reads_only:
        names = frozenset(name for name in names if _only_reads(turn_config.registry, name))
    if asked is None:
        return names
    unknown = [name for name in asked if not names & _expanded([name])]
    if unknown:
        raise RespondToModel(
            f"tools: a sub-agent of the type {kind.name} cannot have {', '.join(unknown)}; "
            f"it can have {', '.join(sorted(names)) or 'none'}."
        )
    return names & _expanded(asked)


def _expanded(names: Iterable[str]) -> frozenset[str]:
    """Return the names of tools, with those that sets and other forms of a tool stand for."""
    found = set[str]()
    for name in names:
        for each in builtin.TOOL_SETS.get(name, (name,)):
            found.update((each, *_FORMS.get(each, ())))
    return frozenset(found)


def _only_reads(registry: ToolRegistry, name: str) -> bool:
    """Tell whether a tool changes nothing; what a server says of its own tools is only a claim."""
    handler = None if name.startswith("mcp") else registry.handler(name)
    return handler is not None and handler.options.mutating is False


def _registry(registry: ToolRegistry, names: Collection[str]) -> ToolRegistry:
    handlers = {name: registry.handler(name) for name in names}
    known = {name: handler for name, handler in handlers.items() if handler is not None}
    return ToolRegistry(known, {n: fn for n, fn in registry.functions.items() if n in names})


def _plain(spec: ConfiguredToolSpec) -> ConfiguredToolSpec:
    """Return the specification of `python` without the functions of live code: there is none."""
    return replace(spec, spec=builtin.python.spec) if spec.spec.name == "python" else spec
