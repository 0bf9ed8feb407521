"""Runs the calls of one tool of an MCP server.

Law: what a server says of its tool (its hints, its description) is a claim. A lasting approval is
bound to all of it, so that a changed description is asked about again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.approval.rules import ProposedRule
from agent_magics.dispatch.consent.edits import readable_payload
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_parameters
from agent_magics.dispatch.handlers.dynamic import NOT_STRICT, given_arguments
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.results.json_text import whole_text
from agent_magics.dispatch.results.stored import is_handle
from agent_magics.dispatch.tool import ToolOptions
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.protocol.errors import FatalError, RespondToModel, short_message
from agent_magics.protocol.items import Json
from agent_magics.protocol.mcp import McpServerConfig, McpTool
from agent_magics.protocol.tools import (
    FunctionPayload,
    FunctionToolSpec,
    McpPayload,
    ToolCall,
    ToolOutput,
    ToolPayload,
)
from agent_magics.tools.mcp.callbacks import ContextCallbacks
from agent_magics.tools.mcp.results import output_of

# Characters of a tool's description that the model reads.
LONGEST_DESCRIPTION = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class ToolCard:
    """A server's tool as parsed; parsing takes time linear in the size of its schema.

    Attributes:
        parameters: its schema in the subset that is sent.
        digest: a hash of all that the server says of the tool.
    """

    tool: McpTool
    parameters: dict[str, Any]
    digest: str

    @property
    def description(self) -> str:
        """The description for the model, shortened where it is very long."""
        text = self.tool.description or self.tool.title or self.tool.name
        if len(text) <= LONGEST_DESCRIPTION:
            return text
        return f"{text[:LONGEST_DESCRIPTION]}… ({len(text):,} characters in all)"

    @property
    def only_reads(self) -> bool:
        """Whether the server's hints say that the tool is read-only and not destructive."""
        return self.tool.read_only is True and self.tool.destructive is not True


def card_of(tool: McpTool) -> ToolCard:
    """Parse a tool's schema and hash its definition."""
    definition = (tool.server, tool.name, tool.title, tool.description, tool.input_schema)
    hints = (tool.read_only, tool.destructive)
    digest = fingerprint_of(tool.name, *definition, *hints).rpartition(":")[2]
    return ToolCard(tool, sanitize_parameters(tool.input_schema), digest)


def family_of(server: str, cards: Sequence[ToolCard]) -> str:
    """Return a server's name with a hash of the definitions of all its tools."""
    digest = fingerprint_of(server, sorted(card.digest for card in cards)).rpartition(":")[2]
    return f"{server}@{digest}"


class McpToolHandler(ToolHandler):
    """Runs the calls of one MCP tool.

    Args:
        card: the parsed tool.
        name: the name that the model calls.
        config: the configuration of its server.
        manager: the connections to the servers.

    Attributes:
        family: its server, as "NAME@HASH" of all the tools that it describes now.
    """

    kind = "mcp"
    action: Action | None = None  # its arguments are what an approval is about

    def __init__(
        self, card: ToolCard, name: str, config: McpServerConfig, manager: McpConnectionManager
    ) -> None:
        self.card = card
        self.supports_parallel = config.supports_parallel_tool_calls
        # The time limit is the server's, and kept where the calls are made.
        self.options = ToolOptions(
            name, parallel=self.supports_parallel, mutating=not card.only_reads
        )
        self.spec = FunctionToolSpec(
            name, card.description, card.parameters, strict=False, strict_reason=NOT_STRICT
        )
        self.family = ""
        self._manager = manager
        self._kind = _KINDS.get(config.approval_mode) or (
            ActionKind.MCP_READING if card.only_reads else ActionKind.MCP_OTHER
        )

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Return whether the payload is JSON arguments."""
        return isinstance(payload, FunctionPayload | McpPayload)

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check that the arguments are a JSON object and that no required one is missing.

        No more is checked: the schema that is sent may be a subset of the server's, which checks,
        too.
        """
        arguments = given_arguments(call, self.card.parameters)
        tool, text = self.card.tool, readable_payload(call.payload)
        call = replace(call, payload=McpPayload(tool.server, tool.name, text))
        return ToolInvocation(call, context, (arguments,))

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Return the approval action, from the server's hints and the person's configuration."""
        name, digest = self.options.name, self.card.digest
        pinned = f"{name}@{digest[:16]}"
        return [
            Action(
                self._kind,
                name,
                fingerprint=f"{name}:{digest}",
                identity=fingerprint_of(name, digest, invocation.args[0]),
                subject=name,
                family="" if self.card.tool.destructive else self.family,
                pinned=pinned,
                proposed_rule=ProposedRule("mcp", pinned),
            )
        ]

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Call the tool on its server."""
        context, tool = invocation.context, self.card.tool
        callbacks = ContextCallbacks(context, tool.server)
        arguments = _with_values(invocation.args[0], context.handles.value_of)
        try:
            server = self._manager.server(tool.server)
            result = await server.call_tool(tool.name, arguments, callbacks)
        except FatalError as error:  # only the person can repair it, but the turn can go on without
            raise RespondToModel(
                f"{short_message(error)} Only the person can mend this; tell them."
            ) from error
        output = output_of(result, tool, context)
        if not callbacks.logged:
            return output
        return replace(output, details={"server": tool.server, "log": callbacks.logged})


_KINDS = {"prompt": ActionKind.MCP_ASKING, "approve": ActionKind.MCP_ALLOWED}


def _with_values(arguments: Mapping[str, Json], value_of: Callable[[str], Any]) -> dict[str, Any]:
    """Replace references such as ``@r7`` in the arguments, at any depth, by the stored values."""
    return {name: _value(each, value_of) for name, each in arguments.items()}


def _value(given: object, value_of: Callable[[str], Any]) -> Any:
    if isinstance(given, dict):
        return _with_values(given, value_of)
    if isinstance(given, list):
        return [_value(each, value_of) for each in given]
    if not (isinstance(given, str) and is_handle(given)):
        return given
    value = value_of(given)
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return whole_text(value)
    return value
