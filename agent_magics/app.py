"""Defines `Agent`, as programs use it; how it is made of its parts stands in `ComposedAgent`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from agent_magics.composition.agent import ComposedAgent
from agent_magics.delegation.handle import SubAgentHandle
from agent_magics.dispatch.handlers.handed import Given
from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest
from agent_magics.engine.file_changes.review import TurnReview
from agent_magics.engine.foreground.host import ProgramHost
from agent_magics.engine.front_end import FRONT_ENDS
from agent_magics.engine.past.rewind import Rewind
from agent_magics.engine.results.run import RunResult, output_of, summarise
from agent_magics.file_history.journal import UndoResult
from agent_magics.files.trusted_imports import is_trusted
from agent_magics.models.base import Model
from agent_magics.protocol.checked import check, checked
from agent_magics.protocol.errors import FatalError, RespondToModel, full_message, short_message
from agent_magics.protocol.events import QueuedPrompt, TurnFailed
from agent_magics.protocol.items import Content, ContentPart, text_of
from agent_magics.protocol.ops import CallTool, StartTurn, new_turn_id
from agent_magics.protocol.tools import ToolOutput
from agent_magics.records.index import RecordedConversation, list_conversations
from agent_magics.records.places import rollout_folder
from agent_magics.settings.keywords import AgentKeywords
from agent_magics.tools.catalog.sources import ToolList

if TYPE_CHECKING:
    from agent_magics.rows.planning import MapOptions
    from agent_magics.rows.prompts import Given as RowPrompt
    from agent_magics.rows.result import MapResult
    from agent_magics.serve.loopback import Serving

Prompt: TypeAlias = str | Sequence[ContentPart]
Arguments: TypeAlias = Mapping[str, Any] | str | None


class Agent(ComposedAgent):
    """An agent with its conversation; each `run` continues the conversation.

    Args:
        model: a model's name at the provider, or a `Model` object such as `ScriptedModel`.
        tools: names of built-in tools, the sets "read-only", "coding" and "data", and functions;
            None means "data" in a notebook, else "coding"; [] none. Tools of MCP servers by name
            (``mcp__time__get_current_time``), by pattern (``mcp__time__*``), or all ("mcp").
        name: the agent's name, where a program has several.
        cwd: the workspace; relative paths start here, files may be written below it.
        instructions: text added to the built-in instructions for the model.
        approval: when a person is asked: "untrusted", "on-request", "on-failure" or "never".
        sandbox: "read-only", "workspace-write" or "danger-full-access".
        network: whether sandboxed commands may reach ports 80 and 443 of other machines; else each
            command that needs it asks. Where there is no sandbox (see `%agent doctor`) commands are
            not kept off the network, and ask for that reason.
        writable_roots: more folders below which files may be written; they must exist.
        base_url: the address of an OpenAI-compatible server; else OPENAI_BASE_URL, else OpenAI.
        api_key: the key; else the server's own variable (OPENROUTER_API_KEY, ...), else the one
            stored by ``%agent login``, else OPENAI_API_KEY, where it may go there
            (docs/servers.md).
        wire_api: "auto" (Responses where the server has it, else Chat Completions), "responses" or
            "chat".
        replay: a recording whose answers replace the model's; "auto" is ``x.agent.jsonl`` beside
            the notebook ``x.ipynb`` where that exists, else the live model.
        replay_strict: whether a tool output that differs from the recorded one is an error.
        record: a file to which the model's answers are recorded.
        on_question: answers questions: `fn(event)`, plain or async, returns "approve",
            "approve_for_session", "deny", "abort", or an object with `decision`, `feedback` and
            `edited_arguments`; for a form of an MCP server also a dict of its fields.
        max_turns: most requests to the model in one run. At this and the next two limits a run ends
            with one more request, for a summary (`RunResult.budget` names the limit).
        max_tokens: most input and output tokens of one run.
        max_cost: most USD of one run; needs a model whose price is known.
        python: where the python tool runs code: "live" in the notebook's kernel, "scratch" in a
            sandboxed process only, or "off".
        output_budget: most characters of one call's output for the model.
        context_window: the model's context window in tokens; None means the catalogue's value.
        loops: when an agent that repeats itself is stopped: a `LoopLimits`, or some of its fields
            as a dict (``{"identical": 5}``).
        check_edits: whether an edit's answer names the errors that it has brought, where a language
            server runs.
        allow_dangerous: whether dangerous commands run under approval="never".
        features: switches that differ from the defaults of the model's family: `web_search`,
            `external_web_access`, `view_image` (True, False), `shell`, `apply_patch`,
            `reasoning_summary`, `service_tier`; see `agent_magics.models.providers.families`.
        hooks: objects with any of `before_model(request)`, `before_tool(invocation)`,
            `after_tool(invocation, output)` and `on_event(event)`, plain or async, called in this
            order; see `agent_magics.dispatch.hooks`.
        mcp_servers: servers of the Model Context Protocol whose tools are added to the agent's:
            name to ``{"command": ..., "args": [...], "env": {...}}`` or ``{"url": ...}``, with the
            keys of the configuration files. Servers of those files are added unless `tools` is a
            list; a list that names tools of servers uses these, and no others of any server.
        language_servers: language to ``{"command": ..., "args": [...]}``, or False for none
            (docs/symbols.md).
        tool_budget: estimated tokens of all tools, above which some are offered by search alone.
        rollout_days: for how many days with work recorded conversations are kept.

    Raises:
        FatalError: an argument is invalid; the message says which and why.
    """

    def __init__(
        self,
        model: "str | Model | None" = None,
        tools: ToolList = None,
        **given: Unpack[AgentKeywords],
    ) -> None:
        chosen = None if isinstance(model, str) else model
        super().__init__({**given, **_named(model, tools)}, chosen)
        self._served: list[Serving] = []

    # -- its conversation --------------------------------------------------------------------------

    @classmethod
    @checked
    def resume(
        cls,
        conversation_id: str,
        model: "str | Model | None" = None,
        tools: ToolList = None,
        **given: Unpack[AgentKeywords],
    ) -> "Agent":
        """Return an agent that continues a recorded conversation.

        Its next request equals the one that the uninterrupted conversation would have made. A call
        that was running when its kernel ended gets an output that says so. Approvals for a session
        are asked again; commands have ended. Settings of a record that a command may have written
        are not taken: the folder of records lies in the workspace then.

        Args:
            conversation_id: `Agent.conversation_id` of the agent that began it, or at least its
                first four characters.
            model, tools, given: as for `Agent`; they override the recorded ones. Functions, models
                that are objects, keys and servers are not recorded and must be given again.

        Raises:
            FatalError: there is no such conversation, another kernel uses it, its record cannot be
                used, or an argument is invalid.
        """
        from agent_magics.records.reading import read_first  # noqa: PLC0415 - few agents resume

        begun = read_first(rollout_folder(), conversation_id)
        is_sound = is_trusted(str(rollout_folder()))
        recorded = begun.settings if is_sound else {}
        settings: dict[str, Any] = {**recorded, **given, **_named(model, tools)}
        if model is not None:
            settings["model"] = model
        agent = cls(**settings)
        agent._continue(begun.conversation)
        if not is_sound:
            agent.session.conversation.notes.append(
                "Its recorded settings are not used: commands may write the folder of records, "
                "which lies in the workspace."
            )
        lost = [name for name in begun.lost if name not in {*given, *_named(model, tools)}]
        if lost:
            agent.session.conversation.notes.append(
                f"Not recorded, so not as they were unless you give them again: {', '.join(lost)}."
            )
        return agent

    @checked
    def fork(self, turn: int | None = None, *, name: str = "") -> "Agent":
        """Return an agent with a new conversation that shares this one's past.

        Both are continued independently, with the same settings; approvals for the session are
        asked again in the new one. The past is shared on disk.

        Args:
            turn: the last shared turn, counted from 1; 0 means none, None the last that ended.
            name: the new agent's name; "" means this one's.

        Raises:
            FatalError: there is no such turn, or the record cannot be written.
        """
        child = self.session.fork(turn, name)
        given: dict[str, Any] = {**self._held.given.values, "name": name or self.name}
        if self._models.given is not None:
            given["model"] = self._models.given
        agent = Agent(**given)
        agent._continue(child)
        return agent

    def _continue(self, conversation: str) -> None:
        """Continue a recorded conversation; where that fails, close this agent, which is new."""
        try:
            self.session.resume(conversation, FRONT_ENDS.current().namespace)
            self.session.conversation.files.journal_in(self.config.cwd)  # no other kernel's now
        except BaseException:
            self.close()
            raise

    @property
    def conversation_id(self) -> str:
        """The id by which `Agent.resume` continues this conversation, in this process or another.

        Reading it creates the record, so that the conversation can be resumed whatever happens to
        this process.

        Raises:
            FatalError: its record cannot be written.
        """
        self.session.begin_record()
        return self.session.conversation.id

    # -- settings ----------------------------------------------------------------------------------

    def configure(self, **changes: Any) -> None:
        """Change settings; they hold from the next run on.

        Args:
            changes: keywords of the constructor.

        Raises:
            FatalError: one of them is invalid, or names another workspace; nothing is changed.
        """
        self._change(changes)

    # -- running -----------------------------------------------------------------------------------

    async def run(self, prompt: Prompt, *, output: Any = None) -> RunResult:
        """Run the tool loop on `prompt` until the model's final answer.

        Args:
            prompt: the person's text, or parts (`InputText`, `InputImage`).
            output: the type of the answer, which is then in `RunResult.value`: a pydantic model, a
                dataclass, a TypedDict, ``list[...]``, ``dict[str, ...]``, ``Literal[...]``, int,
                float, str, bool or `pandas.DataFrame`. None is text.

        Returns:
            The result; a failed run says why in `error` and does not raise. An answer that does not
            fit `output`, even after one correction, is a failed run; its text is kept.

        Raises:
            asyncio.CancelledError: the waiting task was cancelled; the turn has been stopped.
        """
        try:
            op = StartTurn(turn_id=new_turn_id(), content=_content(prompt))
            turn_config = self.turn_config(output=output)
            return summarise(await self.foreground().wait(op, turn_config), turn_config.output)
        except FatalError as error:
            return summarise([TurnFailed(error=short_message(error))])

    def run_sync(self, prompt: Prompt, *, output: Any = None) -> RunResult:
        """Do the same as `run`, blocking; also where a loop is already running on this thread.

        Args:
            prompt: see `run`.
            output: see `run`.

        Returns:
            The result; see `run`.

        Raises:
            KeyboardInterrupt: the person interrupted; the turn has been stopped.
        """
        try:
            op = StartTurn(turn_id=new_turn_id(), content=_content(prompt))
            turn_config = self.turn_config(output=output)
            return summarise(self.foreground().wait_sync(op, turn_config), turn_config.output)
        except FatalError as error:
            return summarise([TurnFailed(error=short_message(error))])

    async def map(
        self, prompt: "RowPrompt", rows: Any, *, output: Any = None, **options: "Unpack[MapOptions]"
    ) -> "MapResult":
        """Ask the model the same about each of many rows, apart from the conversation.

        Args:
            prompt: text with ``{{column}}`` where a row's value belongs, or a function of a row
                that returns text.
            rows: a pandas, polars or pyarrow table, a list or generator of dicts, objects or
                strings (their column is ``text``), or the path of Parquet, CSV or JSONL files.
            output: the type of each answer, as for `run`; its fields become columns.
            options: into (a folder for Parquet files, instead of memory); concurrency (the most
                requests side by side); max_cost (USD), max_tokens, max_errors (a number, or below
                1 a share) and deadline (seconds), which end it with what there is; ask_above (USD
                from which you are asked first; None never asks); cache (False asks all anew, a
                path is another file for the answers); engine (a `distributed.Client` or an
                executor of processes, whose workers send the requests); batch (by the provider's
                batch API: cheaper, within a day, taken up again by the same call); name (what the
                run is called in `%agent map`, which lists what did not end whole); tools (True:
                all of this agent's that only read, or a list; each row is then a small agent run)
                and requests (the most of such a run).

        Returns:
            The result: `frame` has the answers, and for rows without one the error.

        Raises:
            FatalError: an argument is invalid, or no row can be asked about.
        """
        return await self.mapping(prompt, rows, output=output, options=options).wait()

    def map_sync(
        self, prompt: "RowPrompt", rows: Any, *, output: Any = None, **options: "Unpack[MapOptions]"
    ) -> "MapResult":
        """Do the same as `map`, blocking; also where a loop is already running on this thread.

        Args:
            prompt, rows, output, options: see `map`.

        Returns:
            The result; see `map`.

        Raises:
            FatalError: see `map`.
            KeyboardInterrupt: the person interrupted; answers that came are kept.
        """
        return self.mapping(prompt, rows, output=output, options=options).wait_sync()

    @checked
    def spawn(
        self,
        task: str,
        agent_type: str = "explore",
        *,
        name: str = "",
        tools: Sequence[str] | None = None,
        model: str = "",
        budget: AgentBudget | None = None,
        share: Sequence[str] = (),
        output: Any = None,
        engine: Any = None,
    ) -> SubAgentHandle:
        """Start a sub-agent: an agent with a conversation of its own that works beside this one.

        It has at most this agent's rights; its costs are charged to this agent, too
        (docs/delegation.md).

        Args:
            task: its prompt.
            agent_type: "explore" reads, "worker" also changes things, or a type of a file.
            name: its name; "" makes one.
            tools: names of this agent's tools that it may use; None means all of its type's.
            model: its model; "" means its type's.
            budget: what it may spend; open limits are those of its type.
            share: "conversation" for what was said so far, and names of kept results ("@r1").
                The live kernel ("kernel") only a turn's `spawn_agent` can give.
            output: the type of its answer; see `run`.
            engine: a `distributed.Client` or an executor of processes, in one of whose workers it
                works, with the files and commands of that machine (docs/delegation.md).

        Returns:
            A handle; ``await`` it for the `RunResult`.

        Raises:
            FatalError: it cannot be started.
        """
        request = SubAgentRequest(
            task=task,
            agent_type=agent_type,
            name=name,
            tools=None if tools is None else tuple(tools),
            model=model,
            budget=budget or AgentBudget(),
            share=tuple(share),
        )
        turn_config, loop = self.turn_config(output=output), self.session.engine
        answer = ProgramHost(self.settings.on_question).answer_blocking
        place = None
        if engine is not None:
            # Late: with what sends rows to workers, which most programs never use.
            from agent_magics.elsewhere.session import Elsewhere  # noqa: PLC0415

            place = Elsewhere(engine, self.settings, self._models)
        try:
            starting = loop.spawn(
                self.sub_agents.start_for_program(request, turn_config, answer, place)
            )
            return SubAgentHandle(starting.result(), self.sub_agents, loop)
        except RespondToModel as refusal:
            raise FatalError(full_message(refusal)) from None

    def steer(self, text: Prompt) -> None:
        """Send a message to the model while it works on a prompt; thread-safe.

        Running calls end first; those of the same response that have not begun are answered with
        "Not run: the person added a message"; then the message goes to the model.

        Args:
            text: the message, or parts (`InputText`, `InputImage`).

        Raises:
            FatalError: no prompt is running.
        """
        self.session.additions.steer(_content(text))

    def queue(self, text: Prompt) -> str:
        """Add a prompt that the present run continues with after the model's final answer.

        Prompts that are still queued when the run fails or is stopped are reported in a warning.

        Args:
            text: the prompt, or parts (`InputText`, `InputImage`).

        Returns:
            An id for `unqueue`; `queued` lists the waiting ones.

        Raises:
            FatalError: no prompt is running.
        """
        prompt_id = new_turn_id()
        self.session.additions.queue(prompt_id, _content(text))
        return prompt_id

    @checked
    def unqueue(self, prompt_id: str) -> bool:
        """Remove a queued prompt.

        Args:
            prompt_id: what `queue` returned.

        Returns:
            Whether it was still queued.
        """
        return self.session.additions.drop(prompt_id)

    @property
    def queued(self) -> tuple[QueuedPrompt, ...]:
        """The queued prompts, each with `id` and `text`, the next one first."""
        return self.session.additions.prompts

    async def call(self, name: str, arguments: Arguments = None) -> ToolOutput:
        """Make one tool call exactly as if the model had made it.

        Args:
            name: the tool.
            arguments: its arguments, or a str as freeform input.

        Returns:
            The output that the model would get.

        Raises:
            FatalError: only the person can help.
        """
        op = _call_op(name, arguments)
        return output_of(await self.foreground().wait(op, self.turn_config()))

    def call_sync(self, name: str, arguments: Arguments = None) -> ToolOutput:
        """Do the same as `call`, blocking.

        Args:
            name: see `call`.
            arguments: see `call`.

        Returns:
            The output that the model would get.

        Raises:
            FatalError: only the person can help.
        """
        return output_of(self.foreground().wait_sync(_call_op(name, arguments), self.turn_config()))

    # -- what a run is made of ---------------------------------------------------------------------

    def register(
        self,
        tool: Given,
        callback: Callable[[dict[str, Any]], Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Add a tool from the next turn on; also usable as a decorator; thread-safe.

        Args:
            tool: a function, with or without `@tool`; a `ToolHandler` with its `spec`, or the pair
                (spec, handler); or a `DynamicToolSpec`.
            callback: runs the calls of a `DynamicToolSpec`: ``callback(arguments)``, plain or
                async. Without one an outside client does: each call is a `DynamicToolCallRequest`
                event, its answer a `DynamicToolResponse` op.
            timeout: seconds that a call of a `DynamicToolSpec` may take.

        Returns:
            `tool` itself.

        Raises:
            FatalError: it is not usable as a tool, or another tool has its name; the sentence names
                the origin of both.
        """
        self.catalog.register(tool, callback, timeout)
        return tool

    @checked
    def unregister(self, name: str) -> None:
        """Remove a tool from the next turn on, wherever it comes from; thread-safe.

        Args:
            name: a registered tool, one of the agent's list, a discovered one, or
                "mcp__SERVER__TOOL", also where the server is still starting.

        Raises:
            FatalError: there is no tool of that name.
        """
        if not self.session.registrations.remove(name):
            if not self.catalog.has(name, self._forms(self.settings)):
                raise FatalError(f"Agent {self.name!r} has no tool named {name!r} to take away.")
            self.session.registrations.hide(name)

    @checked
    def serve(self, port: int = 0, tools: Sequence[str] | None = None) -> "Serving":
        """Serve this agent's tools to clients of the Model Context Protocol on this machine.

        Their calls pass approval like those of a model.

        Args:
            port: the TCP port on 127.0.0.1; 0 means any free one.
            tools: names of tools; None means all that the agent has.

        Returns:
            The running server: `.url`, `.token`, `.client_config()`, `.stop()`. It stops with the
                agent.

        Raises:
            FatalError: the port is taken, a tool is missing, or the package `mcp` is not installed.
        """
        try:
            from agent_magics.serve.loopback import serve  # noqa: PLC0415 - the mcp SDK is heavy
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("agent_magics"):
                raise
            raise FatalError(
                f"Serving needs the package {error.name}: pip install 'agent-magics[mcp]'."
            ) from None
        serve_host = FRONT_ENDS.current().serve_host
        serving = serve(self, port, tools, None if serve_host is None else serve_host(self))
        self._served = [*self.served, serving]
        self._tokens.append(serving.token)
        return serving

    @property
    def served(self) -> "tuple[Serving, ...]":
        """The servers of this agent's tools that are running."""
        return tuple(serving for serving in self._served if serving.running)

    def close(self) -> None:
        """Stop running turns, sub-agents, servers and commands, and close connections.

        The conversation stays: a later run or call goes on with it, and opens anew what it needs.
        """
        for serving in self._served:
            serving.stop()
        super().close()

    # -- what turns changed in files ---------------------------------------------------------------

    @checked
    def diff(self, turn: int = 1) -> str:
        """Return a turn's changes in files as a unified diff.

        Args:
            turn: counted back among the turns that changed files; 1 is the last.

        Raises:
            FatalError: there is no such turn.
        """
        return self.session.conversation.files.diff(turn, self.config.cwd)

    @checked
    def undo(
        self, turns: int = 1, *, force: bool = False, sessions: bool = False, sub_agent: str = ""
    ) -> UndoResult:
        """Restore the files that the last turns changed: all of them, or none.

        Args:
            turns: the number of turns that changed files.
            force: whether to leave alone what the person has changed since, and restore the rest.
            sessions: whether to restore also changes found while only background sessions ran,
                which may be the person's own.
            sub_agent: the name of a sub-agent whose changes alone are undone, in all turns.

        Returns:
            The outcome. Where its `obstacles` are not empty and `force` is False, nothing was
            changed.

        Raises:
            FatalError: a turn or the sub-agent is at work, there are fewer turns, or the disk
                refused.
        """
        conversation = self.session.at_rest()
        if any(each.sub_agent == sub_agent and not each.is_over for each in self.sub_agents.states):
            raise FatalError(
                f"{sub_agent} is at work; stop it first: %agent agents stop {sub_agent}."
            )
        return conversation.undo(
            self.config.cwd, turns, force=force, sessions=sessions, sub_agent=sub_agent
        )

    def review(self) -> TurnReview:
        """Return the changes of the last turn that changed files, to keep or revert one by one.

        Raises:
            FatalError: no turn has changed files.
        """
        review = self.session.conversation.review(self.config.cwd)
        if review is None:
            raise FatalError("No turn of this conversation changed files.")
        return review

    @checked
    def way_back(self, turn: int | None = None) -> Rewind:
        """Return the undo of a turn and all later ones, to preview it before it is done.

        Args:
            turn: counted from 1; None means the last.

        Raises:
            FatalError: a turn is running, or there is no such turn.
        """
        return Rewind(self.session.at_rest(), self.config.cwd, turn)

    @checked
    def rewind(
        self, turn: int | None = None, *, conversation: bool = True, files: bool = True
    ) -> Rewind:
        """Undo a turn and all later ones; files that the person has changed since stay.

        Args:
            turn: counted from 1; None means the last.
            conversation: whether the turns are removed from the conversation.
            files: whether the files that they changed are restored.

        Returns:
            The undo that was done; its `redo()` reverts it until the conversation goes on.

        Raises:
            FatalError: a turn is running, there is no such turn, or the disk refused.
        """
        way = self.way_back(turn)
        way.go_back(conversation=conversation, files=files)
        return way

    def redo(self) -> UndoResult:
        """Apply the changes of the turn undone last again; returns and raises as `undo`."""
        return self.session.at_rest().redo(self.config.cwd)

    # -- the end -----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Begin a new conversation, without the session's approvals.

        Raises:
            FatalError: a prompt is running.
        """
        self.session.reset()

    def __repr__(self) -> str:
        approval = str(self.config.approval)
        return f"Agent({self.config.model!r}, name={self.name!r}, approval={approval!r})"


def conversations() -> list[RecordedConversation]:
    """Return the conversations that are recorded on this machine, the newest first.

    Returns:
        Descriptions with an `id` for `Agent.resume`, the subject, the workspace, and the outcome.
    """
    return list_conversations(rollout_folder())


def _content(prompt: Prompt) -> Content:
    """Return a prompt as the content of a message.

    Raises:
        FatalError: it is of another type, or empty.
    """
    check("prompt", prompt, Prompt)
    content = prompt if isinstance(prompt, str) else tuple(prompt)
    if not text_of(content).strip():
        raise FatalError("The prompt is empty: write what the agent should do.")
    return content


def _call_op(name: str, arguments: Arguments) -> CallTool:
    check("call: name", name, str)
    check("call: arguments", arguments, Arguments)
    text = arguments if isinstance(arguments, str) else None
    fields = None if isinstance(arguments, str) else arguments
    return CallTool(turn_id=new_turn_id(), name=name, arguments=fields, text=text)


def _named(model: Any, tools: Any) -> dict[str, Any]:
    """Return the two settings that may be given by position, where they are given.

    Raises:
        FatalError: the given model is neither a name nor a `Model`.
    """
    given: dict[str, Any] = {} if tools is None else {"tools": tools}
    if model is None:
        return given
    if not (isinstance(model, str) or hasattr(model, "stream")):
        raise FatalError(
            f"model={model!r} is neither a model's name nor a model (no stream method)."
        )
    name = model if isinstance(model, str) else getattr(model, "name", None)
    return {**given, "model": name} if name or isinstance(model, str) else given
