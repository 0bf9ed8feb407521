"""Encodes tools for Chat Completions: as functions, or as freeform tools if the server has
those.
"""

from collections.abc import Sequence

from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.wires.bodies import compact
from agent_magics.models.wires.schema_forms import fit_schema, lean_form
from agent_magics.models.wires.transforms import strict_form
from agent_magics.protocol.items import JsonMapping, JsonObject
from agent_magics.protocol.tools import (
    ConfiguredToolSpec,
    FreeformToolSpec,
    FunctionToolSpec,
    LocalShellSpec,
    ToolSpec,
)

# Parameters of the Responses API's built-in shell tool, offered as a function.
LOCAL_SHELL = {
    "type": "object",
    "properties": {
        "command": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Program and arguments.",
        },
        "workdir": {"type": "string", "description": "Folder to run it in."},
        "timeout_ms": {"type": "integer", "description": "Longest run time in milliseconds."},
    },
    "required": ["command"],
}


def encode_tools(tools: Sequence[ConfiguredToolSpec], dialect: Dialect) -> bytes:
    """Return the value of a request's ``tools``, or b"" if none can be offered."""
    written = [tool_json(tool.spec, dialect) for tool in tools]
    written = [tool for tool in written if tool is not None]
    return compact(written) if written else b""


def encode_choice(
    choice: str, tools: Sequence[ConfiguredToolSpec], dialect: Dialect
) -> str | JsonObject:
    """Return the value of ``tool_choice``: a mode for all tools, or the one that must be called."""
    named = next((tool.spec for tool in tools if tool.spec.name == choice), None)
    if named is None:
        return choice
    kind = "custom" if named.kind == "freeform" and dialect.custom_tools else "function"
    return {"type": kind, kind: {"name": named.name}}


def tool_json(spec: ToolSpec, dialect: Dialect) -> JsonObject | None:
    """Encode a tool as the API's JSON; None for the Responses API's built-in web search."""
    if isinstance(spec, FunctionToolSpec):
        return _function_json(spec, dialect)
    if isinstance(spec, FreeformToolSpec):
        return _custom_json(spec) if dialect.custom_tools else _freeform_function(spec)
    if isinstance(spec, LocalShellSpec):
        description = "Run a command and return its output."
        return _tool(spec.name, description, fit_schema(LOCAL_SHELL, dialect.schema))
    return None


def _function_json(spec: FunctionToolSpec, dialect: Dialect) -> JsonObject:
    strict = strict_form(spec.parameters) if spec.strict and dialect.strict else None
    lean = lean_form(spec.parameters)
    parameters = fit_schema(lean, dialect.schema) if strict is None else strict
    tool = _tool(spec.name, spec.description, parameters)
    if strict is not None:
        tool["function"]["strict"] = True
    return tool


def _freeform_function(spec: FreeformToolSpec) -> JsonObject:
    """Encode a freeform tool as a function with one text, its grammar in the description."""
    input_description = "The whole text, as it is described."
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": input_description}},
        "required": ["input"],
        "additionalProperties": False,
    }
    description = spec.description
    if spec.definition:
        description += f"\n\n`input` follows this {spec.syntax} grammar:\n{spec.definition}"
    return _tool(spec.name, description, parameters)


def _custom_json(spec: FreeformToolSpec) -> JsonObject:
    custom: JsonObject = {"name": spec.name, "description": spec.description}
    if spec.definition:
        grammar = {"syntax": spec.syntax, "definition": spec.definition}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": custom}


def _tool(name: str, description: str, parameters: JsonMapping) -> JsonObject:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
