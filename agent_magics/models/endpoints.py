"""What is known of servers before they are asked: which wire, which key, which dialect.

All of it is data, each row with its reason. A server that no row knows is asked for the Responses
API first and for Chat Completions where it has none; see `remember_wire`.
"""

import os
import re
from dataclasses import dataclass, replace
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
    """

    developer_role: bool = False
    custom_tools: bool = False
    strict: bool = False
    cache_key: bool = False
    usage_option: bool = True
    schema: str = "plain"
    call_ids: str = "openai"
    reasoning_field: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What is known of a server.

    Attributes:
        first: the wire that is tried first.
        reason: why.
        key_names: environment variables that hold its key, before OPENAI_API_KEY.
        dialect: how it wants Chat Completions written.
        name: what to call it, "" for its address.
    """

    first: WireName
    reason: str
    key_names: tuple[str, ...] = ()
    dialect: Dialect = Dialect()
    name: str = ""


OPENAI_DIALECT = Dialect(developer_role=True, custom_tools=True, strict=True, cache_key=True)
AZURE_KEYS = ("AZURE_OPENAI_API_KEY",)

# Ends of host names -> what is known. The first that fits holds.
HOSTS: tuple[tuple[str, Endpoint], ...] = (
    (
        "api.openai.com",
        Endpoint("responses", "its own API", dialect=OPENAI_DIALECT, name="OpenAI"),
    ),
    (
        ".openai.azure.com",
        Endpoint("responses", "the v1 API has both", AZURE_KEYS, OPENAI_DIALECT),
    ),
    (
        ".services.ai.azure.com",
        Endpoint("responses", "the v1 API has both", AZURE_KEYS, OPENAI_DIALECT),
    ),
    (
        ".cognitiveservices.azure.com",
        Endpoint("responses", "the v1 API has both", AZURE_KEYS, OPENAI_DIALECT),
    ),
    (
        "openrouter.ai",
        Endpoint(
            "chat",
            "its Responses API is a beta without state; every model has Chat Completions",
            ("OPENROUTER_API_KEY",),
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

# Ports on this machine by which servers are known.
PORTS: dict[int, Endpoint] = {
    11434: Endpoint("chat", "Ollama: older versions have no Responses API"),
    1234: Endpoint("chat", "LM Studio: older versions answer 200 and an error to /responses"),
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
        return Endpoint("chat", "an address of one deployment", AZURE_KEYS, OPENAI_DIALECT)
    for ending, endpoint in HOSTS:
        if host == ending.removeprefix(".") or host.endswith("." + ending.removeprefix(".")):
            return endpoint
    if host in LOOPBACK and parts.port in PORTS:
        return PORTS[parts.port]
    return UNKNOWN


def dialect_of(address: str, model: str) -> Dialect:
    """Return how `model` at `address` wants Chat Completions written."""
    dialect = endpoint_of(address).dialect
    for pattern, forms in _FORMS:
        if pattern.search(model):
            dialect = replace(dialect, **forms)
    return dialect


def is_azure(address: str) -> bool:
    """Return whether `address` is one of Azure's, which takes its key in a header of its own."""
    return endpoint_of(address).key_names == AZURE_KEYS


def whole_address(address: str) -> str:
    """Return an address as it was given, with what people leave out: Azure's path."""
    address = address.strip().rstrip("/")
    parts = urlsplit(address)
    if is_azure(address) and not parts.path.strip("/"):
        return urlunsplit(parts._replace(path="/openai/v1"))
    return address


def split_query(address: str) -> tuple[str, dict[str, str]]:
    """Return the address without its query, and the query (Azure's ``api-version``)."""
    parts = urlsplit(address)
    bare = urlunsplit(parts._replace(query="", fragment="")).rstrip("/")
    return bare, dict(parse_qsl(parts.query))


def key_of(address: str) -> str:
    """Return the key for `address` that the environment holds, or ""."""
    names = (*endpoint_of(address).key_names, "OPENAI_API_KEY")
    return next(filter(None, map(os.environ.get, names)), "")


def environment_keys() -> tuple[str, ...]:
    """Return all keys of known servers that the environment holds: none may be written anywhere."""
    names = {name for _, endpoint in HOSTS for name in endpoint.key_names}
    found = (os.environ.get(name, "") for name in sorted((*names, "OPENAI_API_KEY")))
    return tuple(filter(None, found))


def key_name_of(address: str) -> str:
    """Return the environment variable that people should set for `address`."""
    return next(iter(endpoint_of(address).key_names), "OPENAI_API_KEY")


# -- what was found out ---------------------------------------------------------------------------

_found: dict[str, WireName] = {}


def wires_of(address: str) -> tuple[WireName, ...]:
    """Return the wires to try at `address`, in order; one alone where it has been found out."""
    if address in _found:
        return (_found[address],)
    first = endpoint_of(address).first
    return ("responses", "chat") if first == "responses" else ("chat", "responses")


def remember_wire(address: str, wire: WireName) -> None:
    """Note that the server at `address` answers on `wire`; holds as long as this process."""
    _found[address] = wire


def forget_wires() -> None:
    """Forget what was found out."""
    _found.clear()
