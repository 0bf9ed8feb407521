"""The schema that an answer has to follow, as each wire sends it, and whether it is sent at all.

The model reads the schema in its instructions in any case. Here it is handed to the server, which
then lets the model write nothing else:

* OpenAI and Azure take it beside tools; the model is held to it only where it answers.
* Of other servers that is not known. vLLM (its issue 39929), Ollama and llama.cpp hold the model to
  the schema from the first token, so that it could call no tool. So they get it only where no tools
  are offered, as in the round in which an answer is mended.
* A server that refuses a request for its schema is asked again without (`remote`).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_magics.models.base import ModelRequest
from agent_magics.models.endpoints import Dialect, dialect_of
from agent_magics.models.faults import Fault, NoSuchDoor, UnknownModel
from agent_magics.models.schema_forms import fit_schema
from agent_magics.models.transforms import strict_form
from agent_magics.protocol.errors import FatalError

# The API wants a name; the model sees it.
NAME = "answer"

# DeepSeek ("This response_format type is unavailable now"), Gemini ("Function calling with a
# response mime type: 'application/json' is unsupported"), llama.cpp ("failed to parse grammar"),
# OpenAI ("Invalid schema for response_format 'answer'", and "text.format" on the other wire).
_REFUSED = re.compile(
    r"response_?format|json_?schema|text\.format|structured[ _-]outputs?|response[ _]mime"
    r"|grammar|guided",
    re.IGNORECASE,
)


def fitted(request: ModelRequest, address: str) -> ModelRequest:
    """Return the request as the server at `address` takes it: perhaps without the schema."""
    if request.output_schema is None or not request.tools:
        return request
    # Only OpenAI and Azure are known to have strict functions; see above.
    takes_both = dialect_of(address, request.model).strict
    return request if takes_both else replace(request, output_schema=None)


def responses_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Responses API's ``text`` (its reference: "Structured model outputs")."""
    return {"format": {"type": "json_schema", **_named(schema, "plain")}}


def chat_format(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return Chat Completions' ``response_format``."""
    return {"type": "json_schema", "json_schema": _named(schema, dialect.schema)}


def _named(schema: Mapping[str, Any], form: str) -> dict[str, Any]:
    """Return the schema in OpenAI's strict form, or as the maker of the model takes it."""
    strict = strict_form(schema) if form == "plain" else None
    if strict is not None:
        return {"name": NAME, "schema": strict, "strict": True}
    return {"name": NAME, "schema": fit_schema(schema, form), "strict": False}


def is_refusal(fault: FatalError) -> bool:
    """Return whether a server's error says that it does not take the schema of an answer."""
    return (
        isinstance(fault, Fault)
        and not fault.passing
        and not isinstance(fault, (NoSuchDoor, UnknownModel))
        and _REFUSED.search(str(fault)) is not None
    )
