"""Encodes the JSON schema of an answer for each wire API, and decides whether to send it.

The instructions contain the schema in any case. Sent in the request, the server enforces it
(constrained decoding):

* OpenAI and Azure accept it together with tools; it is enforced only for answers.
* For other servers that is unknown. vLLM (its issue 39929), Ollama and llama.cpp enforce the schema
  from the first token, so that the model could call no tool. So they get it only if no tools are
  offered, as in the request for a corrected answer.
* If a server refuses a request because of its schema, the request is repeated without it
  (`remote`).
"""

import re
from dataclasses import replace

from agent_magics.models.base import ModelRequest
from agent_magics.models.faults import Fault, UnknownModel, UnsupportedWire
from agent_magics.models.providers.endpoints import Dialect, dialect_of
from agent_magics.models.wires.schema_forms import fit_schema
from agent_magics.models.wires.transforms import strict_form
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.items import JsonMapping, JsonObject

# The API requires a name, which the model sees.
NAME = "answer"

# Error texts: DeepSeek ("This response_format type is unavailable now"), Gemini ("Function calling
# with a response mime type: 'application/json' is unsupported"), llama.cpp ("failed to parse
# grammar"), OpenAI ("Invalid schema for response_format 'answer'", and "text.format" on the other
# wire).
_REFUSED = re.compile(
    r"response_?format|json_?schema|text\.format|structured[ _-]outputs?|response[ _]mime"
    r"|grammar|guided",
    re.IGNORECASE,
)


def fitted(request: ModelRequest, address: str) -> ModelRequest:
    """Return the request for the server at `address`, without the schema if the server may not
    get it.
    """
    if request.output_schema is None or not request.tools:
        return request
    # Only OpenAI and Azure have strict functions; see above.
    takes_both = dialect_of(address, request.model).strict
    return request if takes_both else replace(request, output_schema=None)


def responses_format(schema: JsonMapping) -> JsonObject:
    """Return the Responses API's ``text`` parameter (its guide: "Structured model outputs")."""
    return {"format": {"type": "json_schema", **_named(schema, "plain")}}


def chat_format(schema: JsonMapping, dialect: Dialect) -> JsonObject:
    """Return Chat Completions' ``response_format`` parameter."""
    return {"type": "json_schema", "json_schema": _named(schema, dialect.schema)}


def _named(schema: JsonMapping, form: str) -> JsonObject:
    """Return the schema in OpenAI's strict form, or in the form of the model's vendor."""
    strict = strict_form(schema) if form == "plain" else None
    if strict is not None:
        return {"name": NAME, "schema": strict, "strict": True}
    return {"name": NAME, "schema": fit_schema(schema, form, restored=False), "strict": False}


def is_refusal(fault: FatalError) -> bool:
    """Tell whether a server's error means that it does not accept the schema of an answer."""
    return (
        isinstance(fault, Fault)
        and not fault.passing
        and not isinstance(fault, (UnsupportedWire, UnknownModel))
        and _REFUSED.search(short_message(fault)) is not None
    )
