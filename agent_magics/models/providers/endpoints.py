"""Looks up what is known about a server address: its wire API, key variables and dialect.

All of it is data, each row with its reason. A server without a row is asked on the Responses
API first and on Chat Completions if it lacks that; see `remember_wire`.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from agent_magics.protocol.errors import FatalError

WireName: TypeAlias = Literal["responses", "chat"]

OPENAI_ADDRESS = "https://api.openai.com/v1"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NO_ADDRESS = "is no address of a server, such as http://localhost:11434/v1."


@dataclass(frozen=True, slots=True)
class Dialect:
    """Variant of Chat Completions that a server accepts.

    Attributes:
        developer_role: whether messages may have the role "developer".
        custom_tools: whether freeform tools exist; else they are sent as functions with one text
            argument.
        strict: whether a function may be marked ``strict``.
        cache_key: whether ``prompt_cache_key`` is accepted.
        usage_option: whether ``stream_options`` is accepted, which requests the token usage.
        schema: the name in `schema_forms.RULES` of the rules for tools' schemas.
        call_ids: the name in `transforms.CALL_ID_FORMS` of the form of call ids.
        reasoning_field: the field in which reasoning is sent back, or "".
        reasoning_details: whether structured reasoning is received, and sent back unchanged.
        answered_outputs: whether an answer must stand between the output of a tool and what a
            person says; where there was none, one of "…" is sent.
        vendor: whose model it is, since such reasoning is only for models of the same vendor.
    """

    developer_role: bool = False
    custom_tools: bool = False
    strict: bool = False
    cache_key: bool = False
    usage_option: bool = True
    schema: str = "plain"
    call_ids: str = "openai"
    reasoning_field: str = ""
    reasoning_details: bool = False
    answered_outputs: bool = False
    vendor: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Properties of a server.

    Attributes:
        first: the wire API that is tried first.
        reason: the reason for that.
        key_names: environment variables that hold its key; no other variable is used.
        dialect: its variant of Chat Completions.
        name: its name for people, "" for its address.
        key_header: an additional header in which it accepts keys.
        reports_cost: whether each of its answers reports its cost.
    """

    first: WireName
    reason: str
    key_names: tuple[str, ...] = ()
    dialect: Dialect = Dialect()
    name: str = ""
    key_header: str = ""
    reports_cost: bool = False


OPENAI_DIALECT = Dialect(developer_role=True, custom_tools=True, strict=True, cache_key=True)
# Azure accepts keys in a header of its own, and only Entra's tokens in the usual one.
AZURE = Endpoint(
    "responses",
    "the v1 API has both",
    ("AZURE_OPENAI_API_KEY",),
    OPENAI_DIALECT,
    key_header="api-key",
)


def _only_chat(key_name: str) -> Endpoint:
    return Endpoint("chat", "it has only Chat Completions", (key_name,))


# Suffixes of host names -> properties. The first match applies.
HOSTS: tuple[tuple[str, Endpoint], ...] = (
    ("api.openai.com", Endpoint("responses", "its own API", dialect=OPENAI_DIALECT, name="OpenAI")),
    (".openai.azure.com", AZURE),
    (".services.ai.azure.com", AZURE),
    (".cognitiveservices.azure.com", AZURE),
    (
        "openrouter.ai",
        Endpoint(
            "chat",
            "its Responses API is a beta without state; every model has Chat Completions",
            ("OPENROUTER_API_KEY",),
            Dialect(reasoning_details=True),
            reports_cost=True,  # its "Usage Accounting": `usage.cost`, always
        ),
    ),
    (
        "generativelanguage.googleapis.com",
        Endpoint(
            "chat",
            "the OpenAI-compatible endpoint has only Chat Completions",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            Dialect(schema="gemini"),
        ),
    ),
    (
        "api.anthropic.com",
        Endpoint(
            "chat",
            "the OpenAI-compatible endpoint has only Chat Completions",
            ("ANTHROPIC_API_KEY",),
            Dialect(schema="anthropic", call_ids="anthropic"),
        ),
    ),
    ("api.deepseek.com", _only_chat("DEEPSEEK_API_KEY")),
    (".moonshot.ai", _only_chat("MOONSHOT_API_KEY")),
    (".moonshot.cn", _only_chat("MOONSHOT_API_KEY")),
    (
        "api.mistral.ai",
        Endpoint(
            "chat",
            "it has only Chat Completions; unknown fields are errors there",
            ("MISTRAL_API_KEY",),
            # Else its error: "Unexpected role 'user' after role 'tool'".
            Dialect(usage_option=False, call_ids="mistral", answered_outputs=True),
        ),
    ),
    ("api.groq.com", Endpoint("chat", "its Responses API is a beta", ("GROQ_API_KEY",))),
    ("api.x.ai", Endpoint("responses", "the API that it recommends", ("XAI_API_KEY",))),
    ("api.together.xyz", _only_chat("TOGETHER_API_KEY")),
    (
        "api.fireworks.ai",
        Endpoint("chat", "its Responses API does not have all models", ("FIREWORKS_API_KEY",)),
    ),
    ("api.cerebras.ai", _only_chat("CEREBRAS_API_KEY")),
    ("router.huggingface.co", Endpoint("chat", "its Responses API is a beta", ("HF_TOKEN",))),
    (
        ".aliyuncs.com",
        Endpoint("chat", "the compatible mode has Chat Completions", ("DASHSCOPE_API_KEY",)),
    ),
    ("api.z.ai", _only_chat("ZAI_API_KEY")),
)

# Names of providers for %agent login -> hosts.
PROVIDERS: dict[str, str] = {
    "openai": "api.openai.com",
    "openrouter": "openrouter.ai",
    "gemini": "generativelanguage.googleapis.com",
    "anthropic": "api.anthropic.com",
    "deepseek": "api.deepseek.com",
    "moonshot": "api.moonshot.ai",
    "mistral": "api.mistral.ai",
    "groq": "api.groq.com",
    "xai": "api.x.ai",
    "together": "api.together.xyz",
    "fireworks": "api.fireworks.ai",
    "cerebras": "api.cerebras.ai",
    "huggingface": "router.huggingface.co",
    "zai": "api.z.ai",
}

# Local ports by which servers are recognised.
PORTS: dict[int, Endpoint] = {
    11434: Endpoint("chat", "Ollama: older versions have no Responses API"),
    1234: Endpoint("chat", "LM Studio: older versions answer 200 and an error to /responses"),
}

# Values of the response header "Server" of programs that have both wire APIs, but only Chat
# Completions completely.
CHAT_IS_BETTER: dict[str, str] = {
    "llama.cpp": (
        "its Responses API drops freeform tools and schemas of answers without a word, and refuses "
        "a history that holds freeform calls"
    ),
}

# By model, whatever the server: proxies pass on the vendor's restrictions. All matches apply.
MODELS: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    (r"gemini", {"schema": "gemini"}, "proxies pass schemas on to Google, which refuses some"),
    (r"kimi|moonshot", {"schema": "kimi"}, "Moonshot checks schemas by rules of its own"),
    (
        r"claude",
        {"schema": "anthropic", "call_ids": "anthropic"},
        "proxies pass schemas and ids on to Anthropic, which refuses some",
    ),
    (
        r"mistral|ministral|mixtral|pixtral|devstral|codestral|magistral",
        {"call_ids": "mistral", "answered_outputs": True},
        "its chat templates take only ids of nine letters and digits, and no user after a tool",
    ),
    (
        r"deepseek|kimi-k2|glm-[4-9]",
        {"reasoning_field": "reasoning_content"},
        "in a row of tool calls it wants its reasoning back, or refuses, or thinks anew",
    ),
)

UNKNOWN = Endpoint("responses", "asked first; Chat Completions where it is not there")
_FORMS = tuple((re.compile(pattern, re.IGNORECASE), forms) for pattern, forms, _ in MODELS)


def endpoint_of(address: str) -> Endpoint:
    """Return the properties of the server at `address`."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
    # "/openai/deployments/NAME" is Azure's old form of address, for Chat Completions only.
    if "/openai/deployments/" in parts.path:
        names = AZURE.key_names if _row_of(host) is AZURE else ()
        return replace(AZURE, first="chat", reason="the address of a deployment", key_names=names)
    row = _row_of(host)
    if row is not None:
        return row
    if host in LOOPBACK and parts.port in PORTS:
        return PORTS[parts.port]
    return UNKNOWN


def is_known(address: str) -> bool:
    """Return whether a company in our table serves models at `address`."""
    return _row_of((urlsplit(address).hostname or "").lower()) is not None


@lru_cache(maxsize=64)
def _row_of(host: str) -> Endpoint | None:
    for ending, endpoint in HOSTS:
        if host == ending.removeprefix(".") or host.endswith("." + ending.removeprefix(".")):
            return endpoint
    return None


def dialect_of(address: str, model: str) -> Dialect:
    """Return the variant of Chat Completions for `model` at `address`."""
    dialect = endpoint_of(address).dialect
    for pattern, forms in _FORMS:
        if pattern.search(model):
            dialect = replace(dialect, **forms)
    return replace(dialect, vendor=_vendor_of(model)) if dialect.reasoning_details else dialect


def _vendor_of(model: str) -> str:
    """Return whose model it is, by the form of OpenRouter's names: "anthropic/claude-sonnet-4"."""
    return re.sub(r"[^a-z0-9._~@-]", "", model.lower().partition("/")[0])


@lru_cache(maxsize=64)  # called several times per request
def whole_address(address: str) -> str:
    """Return an address with the path that people leave out (Azure's).

    Raises:
        FatalError: it cannot be read as an address.
    """
    address = address.strip().rstrip("/")
    try:
        parts, endpoint = urlsplit(address), endpoint_of(address)
    except ValueError:
        raise FatalError(f"{address} {NO_ADDRESS}") from None
    if endpoint is AZURE and not parts.path.strip("/"):
        return urlunsplit(parts._replace(path="/openai/v1"))
    return address


def server_address(base_url: str | None = None) -> str:
    """Return the complete address of the server: the given one, else OPENAI_BASE_URL, else
    OpenAI's.
    """
    return whole_address(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_ADDRESS)


def check_address(address: str | None) -> str | None:
    """Return the address of a server as it was given; "" and None stand for OpenAI's.

    Raises:
        ValueError: no server can have it.
    """
    with suppress(ValueError):  # a port that is none
        parts = urlsplit((address or OPENAI_ADDRESS).strip())
        is_whole = not re.search(r"\s", parts.netloc) and parts.port != 0
        if is_whole and parts.scheme in ("http", "https") and _is_host(parts.hostname or ""):
            return address
    raise ValueError(NO_ADDRESS)


def _is_host(name: str) -> bool:
    """Return whether a name can be looked up: its labels have 1 to 63 characters (RFC 1035, 2.3.4).

    Raises:
        ValueError: a label beyond ASCII cannot be written in ASCII.
    """
    written = name if name.isascii() else name.encode("idna").decode()
    return all(0 < len(label) < 64 for label in written.removesuffix(".").split("."))


def split_query(address: str) -> tuple[str, dict[str, str]]:
    """Split an address into the part without query, and the query's parameters (Azure's
    ``api-version``).
    """
    parts = urlsplit(address)
    bare = urlunsplit(parts._replace(query="", fragment="")).rstrip("/")
    return bare, dict(parse_qsl(parts.query))


# -- detected wire APIs ----------------------------------------------------------------------------

_known_wires: dict[str, WireName] = {}


def wires_of(address: str) -> tuple[WireName, ...]:
    """Return the wire APIs to try at `address`, in order; only one if it is known."""
    if address in _known_wires:
        return (_known_wires[address],)
    first = endpoint_of(address).first
    return ("responses", "chat") if first == "responses" else ("chat", "responses")


def has_better_wire(wire: WireName, address: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a server that is asked for the first time should be asked on another wire API.

    Args:
        wire: the wire API of the request.
        address: its address.
        headers: the headers of its answer, names in any case.
    """
    is_first = wire == "responses" and address not in _known_wires
    return is_first and headers.get("server", "") in CHAT_IS_BETTER


def remember_wire(address: str, wire: WireName) -> None:
    """Record for this process that the server at `address` answers on `wire`."""
    _known_wires[address] = wire


def forget_wires() -> None:
    """Clear the recorded wire APIs."""
    _known_wires.clear()
