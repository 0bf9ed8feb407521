"""What is known of servers before they are asked: which wire, which key, which dialect.

All of it is data, each row with its reason. A server that no row knows is asked for the Responses
API first and for Chat Completions where it has none; see `remember_wire`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit, urlunsplit

WireName: TypeAlias = Literal["responses", "chat"]

OPENAI_ADDRESS = "https://api.openai.com/v1"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server wants Chat Completions written.

    Attributes:
        developer_role: whether messages of the role "developer" are known.
        custom_tools: whether freeform tools exist; else they are functions with one text.
        strict: whether a function may be marked ``strict``.
        cache_key: whether ``prompt_cache_key`` is known.
        usage_option: whether ``stream_options`` is known, which asks for the usage.
        schema: which of `schema_forms.RULES` the schemas of tools take.
        call_ids: which of `transforms.CALL_ID_FORMS` the ids of calls take.
        reasoning_field: the field in which reasoning is sent back, "" where it is not.
        reasoning_details: whether structured reasoning comes, and is sent back as it came.
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What is known of a server.

    Attributes:
        first: the wire that is tried first.
        reason: why.
        key_names: environment variables that hold its key; it gets no other one.
        dialect: how it wants Chat Completions written.
        name: what to call it, "" for its address.
        key_header: a header of its own in which it takes keys, beside the usual one.
        reports_cost: whether each of its answers says what it cost.
    """

    first: WireName
    reason: str
    key_names: tuple[str, ...] = ()
    dialect: Dialect = Dialect()
    name: str = ""
    key_header: str = ""
    reports_cost: bool = False


OPENAI_DIALECT = Dialect(developer_role=True, custom_tools=True, strict=True, cache_key=True)
# Azure takes keys in a header of its own, and only Entra's tokens in the usual one.
AZURE = Endpoint(
    "responses",
    "the v1 API has both",
    ("AZURE_OPENAI_API_KEY",),
    OPENAI_DIALECT,
    key_header="api-key",
)

# Ends of host names -> what is known. The first that fits holds.
HOSTS: tuple[tuple[str, Endpoint], ...] = (
    (
        "api.openai.com",
        Endpoint("responses", "its own API", dialect=OPENAI_DIALECT, name="OpenAI"),
    ),
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
    (
        "api.deepseek.com",
        Endpoint("chat", "it has only Chat Completions", ("DEEPSEEK_API_KEY",)),
    ),
    (
        ".moonshot.ai",
        Endpoint("chat", "it has only Chat Completions", ("MOONSHOT_API_KEY",)),
    ),
    (
        ".moonshot.cn",
        Endpoint("chat", "it has only Chat Completions", ("MOONSHOT_API_KEY",)),
    ),
    (
        "api.mistral.ai",
        Endpoint(
            "chat",
            "it has only Chat Completions; unknown fields are errors there",
            ("MISTRAL_API_KEY",),
            Dialect(usage_option=False, call_ids="mistral"),
        ),
    ),
    (
        "api.groq.com",
        Endpoint("chat", "its Responses API is a beta", ("GROQ_API_KEY",)),
    ),
    (
        "api.x.ai",
        Endpoint("responses", "the API that it recommends", ("XAI_API_KEY",)),
    ),
    (
        "api.together.xyz",
        Endpoint("chat", "it has only Chat Completions", ("TOGETHER_API_KEY",)),
    ),
    (
        "api.fireworks.ai",
        Endpoint("chat", "its Responses API does not have all models", ("FIREWORKS_API_KEY",)),
    ),
    (
        "api.cerebras.ai",
        Endpoint("chat", "it has only Chat Completions", ("CEREBRAS_API_KEY",)),
    ),
    (
        "router.huggingface.co",
        Endpoint("chat", "its Responses API is a beta", ("HF_TOKEN",)),
    ),
    (
        ".aliyuncs.com",
        Endpoint("chat", "the compatible mode has Chat Completions", ("DASHSCOPE_API_KEY",)),
    ),
    (
        "api.z.ai",
        Endpoint("chat", "it has only Chat Completions", ("ZAI_API_KEY",)),
    ),
)

# What people call the providers at which one can log in.
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

# Ports on this machine by which servers are known.
PORTS: dict[int, Endpoint] = {
    11434: Endpoint("chat", "Ollama: older versions have no Responses API"),
    1234: Endpoint("chat", "LM Studio: older versions answer 200 and an error to /responses"),
}

# Programs that name themselves in the header "Server" of each answer, and of whose two wires only
# Chat Completions is whole.
CHAT_IS_BETTER: dict[str, str] = {
    "llama.cpp": (
        "its Responses API drops freeform tools and schemas of answers without a word, and refuses "
        "a history that holds freeform calls"
    ),
}

# By model, whatever the server: proxies pass these rules of the maker on. All that fit hold.
MODELS: tuple[tuple[str, dict[str, str], str], ...] = (
    (r"gemini", {"schema": "gemini"}, "proxies pass schemas on to Google, which refuses some"),
    (r"kimi|moonshot", {"schema": "kimi"}, "Moonshot checks schemas by rules of its own"),
    (
        r"claude",
        {"schema": "anthropic", "call_ids": "anthropic"},
        "proxies pass schemas and ids on to Anthropic, which refuses some",
    ),
    (
        r"mistral|devstral|codestral|magistral",
        {"call_ids": "mistral"},
        "its chat template takes only ids of nine letters and digits",
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
    """Return what is known of the server at `address`."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
    # "/openai/deployments/NAME" is Azure's old form, which only Chat Completions has.
    if "/openai/deployments/" in parts.path:
        names = AZURE.key_names if _row_of(host) is AZURE else ()
        return replace(AZURE, first="chat", reason="the address of a deployment", key_names=names)
    row = _row_of(host)
    if row is not None:
        return row
    if host in LOOPBACK and parts.port in PORTS:
        return PORTS[parts.port]
    return UNKNOWN


@lru_cache(maxsize=64)
def _row_of(host: str) -> Endpoint | None:
    for ending, endpoint in HOSTS:
        if host == ending.removeprefix(".") or host.endswith("." + ending.removeprefix(".")):
            return endpoint
    return None


def dialect_of(address: str, model: str) -> Dialect:
    """Return how `model` at `address` wants Chat Completions written."""
    dialect = endpoint_of(address).dialect
    for pattern, forms in _FORMS:
        if pattern.search(model):
            dialect = replace(dialect, **forms)
    return dialect


@lru_cache(maxsize=64)  # asked several times for each request
def whole_address(address: str) -> str:
    """Return an address as it was given, with what people leave out: Azure's path."""
    address = address.strip().rstrip("/")
    parts = urlsplit(address)
    if endpoint_of(address) is AZURE and not parts.path.strip("/"):
        return urlunsplit(parts._replace(path="/openai/v1"))
    return address


def server_address(base_url: str | None = None) -> str:
    """Return the whole address of the server that is meant: the given one, else the usual one."""
    return whole_address(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_ADDRESS)


def split_query(address: str) -> tuple[str, dict[str, str]]:
    """Return the address without its query, and the query (Azure's ``api-version``)."""
    parts = urlsplit(address)
    bare = urlunsplit(parts._replace(query="", fragment="")).rstrip("/")
    return bare, dict(parse_qsl(parts.query))


# -- what was found out ---------------------------------------------------------------------------

_found: dict[str, WireName] = {}


def wires_of(address: str) -> tuple[WireName, ...]:
    """Return the wires to try at `address`, in order; one alone where it has been found out."""
    if address in _found:
        return (_found[address],)
    first = endpoint_of(address).first
    return ("responses", "chat") if first == "responses" else ("chat", "responses")


def has_better_wire(wire: WireName, headers: Mapping[str, str]) -> bool:
    """Return whether a server, by what its answer says of itself, is better asked on another wire.

    Args:
        wire: the wire on which it was asked.
        headers: the headers of its answer, names in any case.
    """
    return wire == "responses" and headers.get("server", "") in CHAT_IS_BETTER


def remember_wire(address: str, wire: WireName) -> None:
    """Note that the server at `address` answers on `wire`; holds as long as this process."""
    _found[address] = wire


def forget_wires() -> None:
    """Forget what was found out."""
    _found.clear()
