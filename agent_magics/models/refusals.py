"""Translates a server's errors into one sentence, and tells which are transient."""

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_magics.models.base import ToolsWanted
from agent_magics.models.environment import proxy_to
from agent_magics.models.faults import (
    FEW_TRIES,
    NO_WIRE_STATUSES,
    NO_WIRE_WORDS,
    SPENT_CODES,
    Fault,
    UnknownModel,
    UnsupportedWire,
    brief,
    is_overflow,
    message_of,
    overflow,
    passes,
    retry_after,
)
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import json_or

# Permanent errors that llama.cpp's server reports with status 500.
NEVER_WORDS = re.compile(
    r"(?:image|audio) input is not supported|failed to parse (?:tools|messages)", re.IGNORECASE
)
# A wrong key with status 400: LiteLLM's proxy without a database knows only its master key and
# looks any other one up ("No connected db."); Gemini.
WRONG_KEY_CODES = frozenset(("no_db_connection",))
WRONG_KEY_WORDS = re.compile(r"api key not valid|(?:invalid|incorrect) api key", re.IGNORECASE)

# A conversation with calls, sent without tools or with tools that must not be called.
TOOLS_WANTED = re.compile(
    r"toolConfig field must be defined"  # Bedrock
    r"|tool calling without `?tools"  # LiteLLM, for Bedrock and Anthropic
    r"|support tool_choice=none"  # LiteLLM, for Bedrock
    r"|blocks must define tools",  # Anthropic
    re.IGNORECASE,
)

# By status. {said} is the provider's message.
SENTENCES = {
    400: "{address} rejected the request to {model!r} (400): {said}",
    401: "{address} refused the API key ({status}): {key_way}, and run the cell again.",
    402: "{address} wants to be paid first (402): {said}",
    403: "{address} does not allow this key to use {model!r} (403): {said}",
    407: "A proxy on the way to {address} refuses its login (407): check HTTP_PROXY: {said}",
    404: "{address} does not know the model {model!r}, or has no {api} (most addresses end in /v1, "
    "and none in /responses or /chat/completions); it answered (404): {said}",
    429: "{address} refuses, for its rate limit or your quota (429): {said}",
}
# Of requests that name no model: files and batches.
WITHOUT_MODEL = {
    400: "{address} rejected a request to its {api} (400): {said}",
    403: "{address} does not allow this key to use its {api} (403): {said}",
    404: "{address} has not found what was asked of its {api} (404): {said}",
}
ELSEWHERE = (
    "{address} sends requests elsewhere ({status}, to {place}): your key is not sent after them; "
    "if you trust that server, give its address as base_url."
)
OTHER_STATUS = "{address} answered with an error (status {status}): {said}"
NOT_CONNECTED = (
    "Cannot connect to {address} ({cause}): check the network, or base_url (OPENAI_BASE_URL)."
)
NOT_SERVED = (
    "Cannot connect to {address}: no server listens there; start it, or change base_url "
    "(OPENAI_BASE_URL)."
)
NO_PROXY = (
    "Cannot connect to {address} through the proxy {proxy}, which the environment names ({cause}): "
    "check it, or name the server in NO_PROXY."
)
NOT_HTTP = (
    "What {address} answers cannot be read as HTTP ({cause}): check base_url (OPENAI_BASE_URL)."
)
NO_TRUST = (
    "Cannot connect safely to {address} ({cause}): its certificate is not one that this machine "
    "trusts; set SSL_CERT_FILE to the certificate of its authority{now}."
)
NO_TLS = (
    "Cannot speak TLS with {address} ({cause}): a server without TLS has an address with http://."
)


# Status -> short reason for a retry; 529 is Anthropic's.
_RETRY_REASONS = {429: "limits how often it is asked", 503: "is overloaded", 529: "is overloaded"}


class StatusError(Exception):
    """An HTTP answer with an error status.

    Args:
        status: the status.
        headers: the answer's headers.
        content: the beginning of its body.
    """

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(status)
        self.status_code = status
        self.headers = headers
        self.text = content.decode("utf-8", "replace")
        self.body: Any = json_or(content, self.text)
        if isinstance(self.body, list):  # Gemini's has its error in a list
            self.body = next(iter(self.body), self.text)
        if isinstance(self.body, Mapping):
            self.body = self.body.get("error", self.body)
        fields = self.body if isinstance(self.body, Mapping) else {}
        self.code, self.type = fields.get("code"), fields.get("type")


def explain_status(
    error: StatusError, *, address: str, model: str, api: str, key_way: str
) -> FatalError:
    """Return the error for an HTTP answer with an error status.

    Args:
        error: the answer.
        address: the server's address.
        model: the requested model.
        api: the name of the wire API ("Responses API").
        key_way: how the person can give a valid key.
    """
    status = error.status_code
    message = brief(message_of(_body_of(error)) or _text_of(error)) or "no reason given"
    code = str(error.code or "")
    codes = {code, str(error.type or "")}
    if status in (400, 413, 422, 500) and any(is_overflow(code, message) for code in codes):
        return overflow(message)
    is_for_tools = status in (400, 422, 500) and TOOLS_WANTED.search(message)
    words = {"address": address, "model": model, "api": api, "said": message, "key_way": key_way}
    refused = status == 400 and (codes & WRONG_KEY_CODES or WRONG_KEY_WORDS.search(message))
    sentences = SENTENCES if model else {**SENTENCES, **WITHOUT_MODEL}
    form = sentences.get(401 if refused else status, OTHER_STATUS)
    sentence = form.format(status=status, **words)
    if 300 <= status < 400:
        place = brief(error.headers.get("location", "")) or "nowhere"
        sentence = ELSEWHERE.format(address=address, status=status, place=place)
        return Fault(sentence, kind=f"status {status}")
    if is_for_tools:
        return ToolsWanted(sentence)
    if model and is_about_model(status, codes, message):
        return UnknownModel(f"{address} does not know the model {model!r} ({status}): {message}")
    if status in NO_WIRE_STATUSES or (status == 400 and NO_WIRE_WORDS.search(message)):
        return UnsupportedWire(sentence)
    return Fault(
        sentence,
        passing=_is_passing(error, status, codes) and not NEVER_WORDS.search(message),
        reason=_retry_reason(address, status),
        retry_after=retry_after(error.headers),
        kind=f"status {status}",
    )


def _retry_reason(address: str, status: int) -> str:
    """Return in a few words why a request is retried; the server's own message may be long."""
    otherwise = "had a fault" if status >= 500 else "gave no answer"
    return f"{address} {_RETRY_REASONS.get(status, otherwise)}: status {status}"


def _body_of(error: StatusError) -> Any:
    """Return the body, or the first event of an SSE body, in which LiteLLM's proxy reports
    errors.
    """
    body = error.body
    if isinstance(body, str) and body.startswith("data:"):
        return json_or(body.partition("\n")[0].removeprefix("data:"), body)
    return body


def _text_of(error: StatusError) -> str:
    """Return a body that is not JSON as text, or "" for HTML."""
    return "" if "<" in error.text[:200] else error.text


def _is_passing(error: StatusError, status: int, codes: set[str]) -> bool:
    # OpenAI sets this header where the status alone would mislead.
    advice = error.headers.get("x-should-retry")
    if advice in ("true", "false"):
        return bool(advice == "true")
    return passes(status) and not codes & SPENT_CODES


# Error texts for an unknown model; OpenRouter and Mistral send them with status 400.
NO_MODEL_WORDS = re.compile(
    r"\b(?:models?|deployment)\b.{0,80}(?:not found|does(?: not|n't) exist|not a valid|no longer)"
    r"|(?:unknown|invalid|no such|not a valid) model"
    r"|^models?[:/]",  # Anthropic ("model: NAME") and Gemini ("models/NAME is not found")
    re.IGNORECASE,
)
NO_MODEL_CODES = frozenset(("model_not_found", "DeploymentNotFound"))


def is_about_model(status: int, codes: set[str], message: str) -> bool:
    """Tell whether an error means that the model is unknown, and not the address."""
    if status not in (400, 404):
        return False
    return bool(codes & NO_MODEL_CODES or NO_MODEL_WORDS.search(message))


def explain_connection(error: BaseException, address: str, *, tries: int = FEW_TRIES) -> FatalError:
    """Return the error for a connection that could not be established, or brought no answer.

    Args:
        error: what was raised.
        address: the server's address.
        tries: number of requests that are worth making.
    """
    causes = list(_causes(error))
    cause = _words_of(causes)
    for each in causes:
        if isinstance(each, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in str(each):
            named = os.environ.get("SSL_CERT_FILE", "")
            now = f" (now it is {named})" if named else ""
            return Fault(NO_TRUST.format(address=address, cause=cause, now=now))
        if isinstance(each, ssl.SSLError):
            return Fault(NO_TLS.format(address=address, cause=cause))
    proxy = urlsplit(proxy_to(address)).netloc.rpartition("@")[2]
    refused = any(isinstance(each, ConnectionRefusedError) for each in causes)
    # That of a proxy which opens no tunnel, or 400 where an answer is no HTTP.
    status: int | None = getattr(error, "status", None)
    direct = NOT_SERVED if refused else NOT_CONNECTED if status is None else NOT_HTTP
    return Fault(
        (NO_PROXY if proxy else direct).format(address=address, cause=cause, proxy=proxy),
        passing=not proxy or status is None or passes(status),
        reason=f"Cannot connect to {address}",
        tries=tries,
        kind="no connection",
    )


def _words_of(causes: list[BaseException]) -> str:
    """Return what an error of the network says, in words without the request."""
    error = causes[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    said = getattr(error, "message", "")
    if not isinstance(said, str):  # the beginning of an answer
        return "the server disconnected"
    texts = (said, *map(str, reversed(causes)))
    return next(filter(None, map(brief, texts)), type(error).__name__)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
