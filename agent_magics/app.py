"""Floor 4, the composition root: puts models, tools and the engine together as an `Agent`."""

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics.backends.exec.environment import command_environment
from agent_magics.backends.mcp import McpConnectionManager
from agent_magics.backends.workspace_journal import Way
from agent_magics.dispatch.hooks import read_hooks
from agent_magics.engine.foreground import Foreground
from agent_magics.engine.host import Host, ProgramHost
from agent_magics.engine.result import RunResult, output_of, summarise
from agent_magics.engine.session import Session
from agent_magics.engine.setup import RunSetup
from agent_magics.engine.structured import OutputType
from agent_magics.engine.surroundings import SURROUNDINGS
from agent_magics.engine.thread import shared_engine
from agent_magics.engine.turn_diff import diff_event
from agent_magics.models.base import Model
from agent_magics.models.credentials import held_keys, stored_key
from agent_magics.models.endpoints import server_address
from agent_magics.models.families import tools_config
from agent_magics.models.keys import environment_keys, key_of
from agent_magics.models.provider import open_model
from agent_magics.models.recorder import RecordingModel
from agent_magics.models.recording_file import recording_beside_notebook
from agent_magics.models.replay import ReplayModel
from agent_magics.protocol.config import LoopLimits, RunConfig
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import Question, TurnFailed
from agent_magics.protocol.items import Content
from agent_magics.protocol.ops import Answer, CallTool, StartTurn
from agent_magics.protocol.tools import DynamicToolSpec, ToolOutput
from agent_magics.settings import (
    PathJudge,
    check_kinds,
    check_price,
    check_roots,
    config_for_run,
    make_config,
)
from agent_magics.tools.mcp_callables import McpNamespace
from agent_magics.tools.mcp_joining import McpTools
from agent_magics.tools.mcp_selection import split_tools
from agent_magics.tools.mcp_servers import McpServers, read_given
from agent_magics.tools.toolbox import Toolbox
from agent_magics.tools.toolset import check_names, resolve_tools

if TYPE_CHECKING:
    from agent_magics.serve.loopback import Serving


class Agent:
    """An agent with its conversation; a second `run` goes on from the first.

    Args:
        model: a model's name at the provider, or a `Model` object such as `ScriptedModel`.
        tools: names of built-in tools, the sets "read-only", "coding" and "data", and functions;
            None is "data", [] none. Tools of MCP servers by name (``mcp__time__get_current_time``),
            by pattern (``mcp__time__*``), or all ("mcp").
        name: which agent, where a program has several.
        cwd: the workspace; relative paths start here, files may be written below it.
        instructions: added to the built-in instructions for the model.
        approval: when a person is asked: "untrusted", "on-request", "on-failure" or "never".
        sandbox: "read-only", "workspace-write" or "danger-full-access".
        network: True lets sandboxed commands reach ports 80 and 443 of other machines; else each
            command that needs it asks. Where there is no sandbox (see `%agent doctor`) commands
            are not kept off the network, and ask for that reason.
        writable_roots: more folders below which files may be written; they must exist.
        base_url: an OpenAI-compatible server; else OPENAI_BASE_URL, else OpenAI.
        api_key: else the server's own variable (OPENROUTER_API_KEY, ...), else what was kept by
            ``%agent login``, else OPENAI_API_KEY, where it may go there (docs/servers.md).
        wire_api: "auto" (Responses where the server has it, else Chat Completions), "responses"
            or "chat".
        replay: a recording to play the model's side from; "auto" is ``x.agent.jsonl`` beside the
            notebook ``x.ipynb`` where that is there, else the live model.
        replay_strict: a tool output that differs from the recorded one is an error.
        record: a file to write the model's side to.
        on_question: answers questions: `fn(event)`, plain or async, returns "approve",
            "approve_for_session", "deny", "abort", or an object with `decision`, `feedback` and
            `edited_arguments`; for a form of an MCP server also a dict of its fields.
        max_turns: requests to the model in one run. At this and the next two limits a run ends
            politely: the model is asked once more, for a summary (`RunResult.budget` says which).
        max_tokens: input and output tokens of one run.
        max_cost: USD of one run; needs a model whose price is known.
        python: "live", "scratch" or "off": where the python tool runs code: in the notebook's
            kernel, in a sandboxed process only, or nowhere.
        output_budget: characters of one call's output that the model reads.
        context_window: tokens that the model can read at once; None is what is known of it.
        loops: when an agent that repeats itself is stopped: a `LoopLimits`, or some of its fields
            as a dict (``{"identical": 5}``).
        allow_dangerous: lets dangerous commands run under approval="never".
        features: what is switched on, or chosen otherwise than for the model's family:
            `web_search`, `external_web_access`, `view_image` (True, False), `shell`,
            `apply_patch`, `reasoning_summary`, `service_tier`; see
            `agent_magics.models.families`.
        hooks: objects with any of `before_model(request)`, `before_tool(invocation)`,
            `after_tool(invocation, output)` and `on_event(event)`, plain or async, asked in this
            order; see `agent_magics.dispatch.hooks`.
        mcp_servers: servers of the Model Context Protocol whose tools join the agent's: name to
            ``{"command": ..., "args": [...], "env": {...}}`` or ``{"url": ...}``, with the keys of
            the configuration files. Servers that files name join unless `tools` is a list; one
            that names tools of servers has these, and no others of any server.

    Raises:
        FatalError: an argument is not usable; the message says which and why.
    """

    def __init__(
        self,
        model: "str | Model | None" = None,
        tools: Sequence[str | Callable[..., Any]] | str | None = None,
        *,
        name: str = "default",
        cwd: str | os.PathLike[str] = ".",
        instructions: str | None = None,
        approval: str = "on-request",
        sandbox: str = "workspace-write",
        network: bool = False,
        writable_roots: Iterable[str | os.PathLike[str]] = (),
        base_url: str | None = None,
        api_key: str | None = None,
        wire_api: str = "auto",
        mcp_servers: Mapping[str, Any] | None = None,
        replay: str | os.PathLike[str] | None = None,
        replay_strict: bool = False,
        record: str | os.PathLike[str] | None = None,
        on_question: Callable[[Any], Any] | None = None,
        hooks: Sequence[Any] = (),
        max_turns: int = 100,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        python: str = "live",
        output_budget: int = 10_000,
        context_window: int | None = None,
        loops: LoopLimits | Mapping[str, int] | None = None,
        allow_dangerous: bool = False,
        features: Mapping[str, Any] | None = None,
    ) -> None:
        check_kinds(
            model=model, instructions=instructions, on_question=on_question, wire_api=wire_api
        )
        self.name = name
        self.config = make_config(
            model=model,
            cwd=cwd,
            instructions=instructions,
            approval=approval,
            sandbox=sandbox,
            network=network,
            writable_roots=writable_roots,
            max_turns=max_turns,
            max_tokens=max_tokens,
            max_cost=max_cost,
            python=python,
            output_budget=output_budget,
            context_window=context_window,
            loops=loops,
            allow_dangerous=allow_dangerous,
            features=features,
        )
        self._tools = tools
        self._mcp_names: tuple[str, ...] = ()
        self._given_model = None if model is None or isinstance(model, str) else model
        self._api_key, self._base_url = api_key, base_url
        self._wire_api = wire_api
        self._replay, self._record = replay, record
        self.replay_strict = replay_strict
        self._on_question = on_question
        check_price(self.config, server_address(base_url))
        self._doors: dict[Any, Model] = {}
        self._served: list[Serving] = []
        self._hooks = read_hooks(hooks)
        self.session = Session(shared_engine(), name, rollout_folder())
        self.toolbox = Toolbox(self.session.shelf, self.config.cwd)
        self._servers = McpServers(
            self.config.cwd,
            mcp_servers or None,
            spawn=self.session.engine.spawn,
            shelf=self.session.shelf,
            changed=self.session.tell_server,
        )
        read_given(self.config.cwd, mcp_servers)
        self._tools, self._mcp_names = split_tools(tools, self.toolbox.named_in(tools))
        check_names(self.tools)  # told here, not at the first run
        if self._mcp_names:
            self._mcp(self._mcp_names)

    # -- running -----------------------------------------------------------------------------------

    async def run(self, prompt: Content, *, output: Any = None) -> RunResult:
        """Run the tool loop on `prompt` until the model has its last word.

        Args:
            prompt: the person's words, or parts (`InputText`, `InputImage`).
            output: the type of the answer, which is then in `RunResult.value`: a pydantic model, a
                dataclass, a TypedDict, ``list[...]``, ``dict[str, ...]``, ``Literal[...]``, int,
                float, str, bool or `pandas.DataFrame`. None is text.

        Returns:
            The result; a failed run says why in `error` and does not raise. An answer that does
            not fit `output`, also after the model was told why, is a failed run; its text is kept.

        Raises:
            asyncio.CancelledError: the waiting task was cancelled; the turn has been stopped.
        """
        op = StartTurn(turn_id=new_turn_id(), content=prompt)
        try:
            setup = self.setup(output=output)
            return summarise(await self.foreground().wait(op, setup), setup.output)
        except FatalError as error:
            return summarise([TurnFailed(error=str(error))])

    def run_sync(self, prompt: Content, *, output: Any = None) -> RunResult:
        """Like `run`, blocking; also where a loop is already running on this thread."""
        if not _in_loop():
            with asyncio.Runner() as runner:
                return runner.run(self.run(prompt, output=output))
        op = StartTurn(turn_id=new_turn_id(), content=prompt)
        try:
            setup = self.setup(output=output)
            return summarise(self.foreground().wait_blocking(op, setup), setup.output)
        except FatalError as error:
            return summarise([TurnFailed(error=str(error))])

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolOutput:
        """Make one tool call exactly as if the model had made it.

        Args:
            name: the tool.
            arguments: its arguments, or a str as freeform input.

        Returns:
            What the model would have been given.

        Raises:
            FatalError: only the person can help.
        """
        op = _call_op(name, arguments)
        return output_of(await self.foreground().wait(op, self.setup()))

    def call_sync(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolOutput:
        """Like `call`, blocking."""
        if not _in_loop():
            with asyncio.Runner() as runner:
                return runner.run(self.call(name, arguments))
        return output_of(self.foreground().wait_blocking(_call_op(name, arguments), self.setup()))

    def foreground(
        self, show: Any = None, tick: Any = None, host: Host | None = None, after: Any = None
    ) -> Foreground:
        """Return what serves a run on the calling thread; for the arguments see `Foreground`."""
        host = host or self._host()
        watchers = () if self._hooks is None else self._hooks.on_events
        return Foreground(self.session, host, show, tick, after, watchers)

    def _host(self) -> Host:
        """Return who answers where nobody else was named: the front end, or the program."""
        lent = SURROUNDINGS.borrow().host if self._on_question is None else None
        return lent or ProgramHost(self._on_question)

    # -- what a run is made of ---------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Callable[..., Any], ...]:
        """The functions this agent offers, in order."""
        return self._tools_for(self.config)

    def use_servers(self, given: Mapping[str, Any] | None) -> None:
        """Have these MCP servers from the next run on, in the place of those given before.

        Raises:
            FatalError: what is given is not understood.
        """
        read_given(self.config.cwd, given)
        self._servers.give(given or None)

    @property
    def mcp(self) -> McpConnectionManager | None:
        """The connections to this agent's MCP servers; None where it has none."""
        servers = self._mcp()
        return None if servers is None else servers.manager

    def _mcp(self, names: Sequence[str] = ()) -> McpTools | None:
        """Return what the servers offer, or these of their tools alone.

        An agent with a list of tools has the servers it was given, unless the list names others'.
        """
        files = self._tools is None or bool(self._mcp_names)
        return self._servers.tools(files=files, names=names)

    @property
    def mcp_tools(self) -> McpNamespace | None:
        """Their tools as Python functions: ``agent.mcp_tools.github.search(q="...")``.

        Called so they run directly, as functions do; None where there are no servers.

        Raises:
            FatalError: the configuration is not understood; says where.
        """
        servers = self._mcp()
        if servers is None:
            return None
        servers.manager.start()
        return McpNamespace(servers, self.session.engine.spawn, ask=self._answer)

    def _answer(self, question: Question) -> Answer:
        """Answer what a server asks that is called by hand."""
        return self._host().answer_blocking(question)

    def _tools_for(self, config: RunConfig) -> tuple[Callable[..., Any], ...]:
        forms = tools_config(config.model, config.features)
        names = self.toolbox.named_in(self._tools)
        return resolve_tools(self._tools, names, live=SURROUNDINGS.has_kernel, forms=forms)

    def register(
        self,
        tool: "Callable[..., Any] | DynamicToolSpec",
        callback: Callable[[dict[str, Any]], Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Add a tool from the next turn on; also as a decorator. Safe from every thread.

        Args:
            tool: a function, with or without `@tool`; or a `DynamicToolSpec`.
            callback: answers the calls of a `DynamicToolSpec`: ``callback(arguments)``, plain or
                async. Without one an outside client answers: each call is a
                `DynamicToolCallRequest` event, its answer a `DynamicToolResponse` op.
            timeout: seconds that a call of a `DynamicToolSpec` may take.

        Returns:
            What was given as `tool`.

        Raises:
            FatalError: it cannot be a tool, or another tool has its name; says where both are.
        """
        self.toolbox.register(tool, callback, timeout)
        return tool

    def unregister(self, name: str) -> None:
        """Take a tool away from the next turn on, wherever it comes from. Safe from every thread.

        Raises:
            FatalError: there is no tool of that name.
        """
        if not self.session.shelf.remove(name):
            if name not in (tool.tool_options.name for tool in self.tools):
                raise FatalError(f"Agent {self.name!r} has no tool named {name!r} to take away.")
            self.session.shelf.hide(name)

    def serve(self, port: int = 0, tools: Sequence[str] | None = None) -> "Serving":
        """Serve this agent's tools to clients of the Model Context Protocol on this machine.

        Their calls pass approval like those of a model.

        Args:
            port: where to listen on 127.0.0.1; 0 takes a free port.
            tools: names of tools; None is all that the agent has.

        Returns:
            What is being served: `.url`, `.token`, `.client_config()`, `.stop()`. It ends with the
            agent.

        Raises:
            FatalError: the port is taken, a tool is not there, or the package `mcp` is missing.
        """
        try:
            from agent_magics.serve.loopback import serve  # noqa: PLC0415 - the mcp SDK is heavy
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("agent_magics"):
                raise
            raise FatalError(
                f"Serving needs the package {error.name}: pip install 'agent-magics[mcp]'."
            ) from None
        desk = SURROUNDINGS.borrow().desk
        serving = serve(self, port, tools, None if desk is None else desk(self))
        self._served = [*self.served, serving]
        return serving

    @property
    def served(self) -> "tuple[Serving, ...]":
        """What of this agent is being served now."""
        return tuple(serving for serving in self._served if serving.running)

    def setup(
        self,
        *,
        tools: Sequence[Callable[..., Any]] | None = None,
        more: bool = True,
        model: str | None = None,
        replay: Any = None,
        record: Any = None,
        output: Any = None,
        mcp_names: Sequence[str] | None = None,
        **settings: Any,
    ) -> RunSetup:
        """Return what one run runs with; the arguments hold for that run alone.

        Args:
            tools: in place of the agent's own.
            mcp_names: names of tools of MCP servers, in place of the agent's own.
            more: whether registered tools join them, and those found in folders and packages,
                unless the agent was given a list of its own.

        Raises:
            FatalError: a setting is not usable.
        """
        config = self.config
        if settings or model:
            config = config_for_run(config, {**settings, **({"model": model} if model else {})})
            check_roots(config)
            check_price(config, server_address(self._base_url))
        functions = self._tools_for(config) if tools is None else tuple(tools)
        discover = more and (tools is not None or self._tools is None)
        if more:
            functions = self.toolbox.joined(functions, discover=discover)
        names = self._mcp_names if mcp_names is None else mcp_names
        servers = self._mcp(names) if more or names else None
        if servers is not None:
            servers.start()
        run_tools = self.toolbox.build(
            functions, tools_config(config.model, config.features), servers
        )
        return RunSetup(
            config,
            lambda: self._door(replay or self._replay, record or self._record),
            run_tools.offer.all,
            run_tools.registry,
            env=command_environment(os.environ),
            validate_path=PathJudge(config),
            secrets=self._secrets(live=not (self._given_model or replay or self._replay)),
            live_kernel=SURROUNDINGS.borrow().live_kernel,
            hooks=self._hooks,
            offer=run_tools.offer,
            warnings=self._new_warnings if discover else tuple,
            output=None if output is None else OutputType(output),
            servers=servers,
        )

    def _new_warnings(self) -> tuple[str, ...]:
        return (*self.toolbox.new_warnings(), *self._servers.new_warnings())

    def _secrets(self, *, live: bool) -> tuple[str, ...]:
        """Return what nobody may read: all keys, used or not, and what the model object holds.

        Raises:
            FatalError: the key for the server is kept where it cannot be read.
        """
        address = server_address(self._base_url)
        if live and not (self._api_key or key_of(address)):
            stored_key(address)  # is among the held ones from now on
        held = getattr(self._given_model, "secrets", tuple)()
        served = (each.token for each in self._served)
        known = (*environment_keys(), *held_keys(), *held, *served)
        return (self._api_key or "", *known, *self._servers.secrets())

    def _door(self, replay: Any, record: Any) -> Model:
        """Return the door to the model; one per source, so that connections are kept."""
        key = (str(replay), str(record), self.replay_strict)
        door = self._doors.get(key)
        if door is None:
            door = self._doors[key] = self._open_door(replay, record)
        return door

    def _open_door(self, replay: Any, record: Any) -> Model:
        if self._given_model is not None and record is None:
            return self._given_model
        if replay is not None and record is not None:
            raise FatalError(
                "replay=... plays a file and record=... asks a live model: leave one of them out."
            )
        if str(replay) == "auto":
            replay = recording_beside_notebook()
        if replay is not None:
            return ReplayModel(Path(replay), cwd=self.config.cwd, strict=self.replay_strict)
        live = self._given_model or open_model(
            self._wire_api, api_key=self._api_key, base_url=self._base_url
        )
        if record is not None:
            return RecordingModel(live, Path(record), cwd=self.config.cwd)
        return live

    # -- what turns changed in files ---------------------------------------------------------------

    def diff(self, turn: int = 1) -> str:
        """Return what a turn changed in files, as a unified diff.

        Args:
            turn: counted back among the turns that changed files; 1 is the last.

        Raises:
            FatalError: there is no such turn.
        """
        cwd = self.config.cwd
        journal = self.session.files.journal_to_undo(cwd)
        if not 1 <= turn <= len(journal.turns):
            raise FatalError(f"{len(journal.turns)} turns changed files; there is no {turn}.")
        return diff_event(journal, [journal.turns[turn - 1]], cwd).diff

    def undo(self, turns: int = 1, *, force: bool = False, sessions: bool = False) -> Way:
        """Put the files back that the last turns changed: all of them, or none.

        Args:
            turns: how many of those that changed files.
            force: leave alone what the person has changed since, and put back the rest.
            sessions: put back also what was found while only background sessions ran: it may be
                the person's own work.

        Returns:
            What came of it. Where its `obstacles` are not empty and `force` is False, nothing was
            changed.

        Raises:
            FatalError: a turn is at work, there are not so many, or the disk refused.
        """
        return self.session.undo(self.config.cwd, turns, force=force, sessions=sessions)

    def redo(self) -> Way:
        """Make the turn again that was undone last; returns and raises as `undo`."""
        return self.session.redo(self.config.cwd)

    # -- the end -----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget the conversation and the session's approvals.

        Raises:
            FatalError: a prompt is at work.
        """
        self.session.reset()

    def close(self) -> None:
        """Stop what runs and give connections back."""
        for serving in self._served:
            serving.stop()
        self._servers.close(wait=not self.session.engine.is_current())
        self.session.close()
        for door in self._doors.values():
            with suppress(FatalError):  # in a forked child they are the parent's
                self.session.engine.spawn(door.close())

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        approval = str(self.config.approval)
        return f"Agent({self.config.model!r}, name={self.name!r}, approval={approval!r})"


def rollout_folder() -> Path:
    """Return where sessions are recorded (the platform's state folder)."""
    import platformdirs  # noqa: PLC0415 - 5 ms that `import agent_magics` need not pay

    return Path(platformdirs.user_state_dir("agent-magics", appauthor=False)) / "sessions"


def new_turn_id() -> str:
    """Return an id for a turn."""
    return uuid.uuid4().hex[:12]


def _call_op(name: str, arguments: Mapping[str, Any] | str | None) -> CallTool:
    if isinstance(arguments, str):
        return CallTool(turn_id=new_turn_id(), name=name, text=arguments)
    return CallTool(turn_id=new_turn_id(), name=name, arguments=arguments)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
