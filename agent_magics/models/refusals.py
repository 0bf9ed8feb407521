"""What an error of the openai package means for the person: one sentence, and whether it passes."""

import json
import re
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from agent_magics.models.faults import (
    FEW_TRIES,
    NO_DOOR_STATUSES,
    NO_DOOR_WORDS,
    SPENT_CODES,
    Fault,
    NoSuchDoor,
    UnknownModel,
    brief,
    is_overflow,
    message_of,
    overflow,
    passes,
    retry_after,
)
from agent_magics.protocol.errors import FatalError

# What llama.cpp's server says with status 500, although the request will never do.
NEVER_WORDS = re.compile(
    r"(?:image|audio) input is not supported|failed to parse (?:tools|messages)", re.IGNORECASE
)
# A wrong key with status 400: LiteLLM's proxy without a database knows only its master key and
# looks any other one up ("No connected db."); Gemini.
WRONG_KEY_CODES = frozenset(("no_db_connection",))
WRONG_KEY_WORDS = re.compile(r"api key not valid|(?:invalid|incorrect) api key", re.IGNORECASE)

# By status. {said} is the provider's own message.
SENTENCES = {
    400: "{address} rejected the request to {model!r} (400): {said}",
    401: "{address} refused the API key ({status}): {key_way}, and run the cell again.",
    402: "{address} wants to be paid first (402): {said}",
    403: "{address} does not allow this key to use {model!r} (403): {said}",
    404: "{address} does not know the model {model!r}, or has no {api} (404): {said}",
    429: (
        "{address} still refuses after several tries, for its rate limit or your quota (429): "
        "{said}"
    ),
}
ELSEWHERE = (
    "{address} sends requests elsewhere ({status}, to {place}): your key is not sent after them; "
    "if you trust that server, give its address as base_url."
)
OTHER_STATUS = "{address} answered with an error (status {status}): {said}"
NOT_CONNECTED = "Cannot connect to {address} ({cause}): check the network, or OPENAI_BASE_URL."
NO_PROXY = (
    "Cannot connect to {address} through the proxy {proxy}, which the environment names ({cause}): "
    "check it, or name the server in NO_PROXY."
)
NO_TRUST = (
    "Cannot connect safely to {address} ({cause}): its certificate is not one that this machine "
    "trusts; set SSL_CERT_FILE to the certificate of its authority."
)
NO_TLS = (
    "Cannot speak TLS with {address} ({cause}): a server without TLS has an address with http://."
)


# Status -> what the server does, where a request is made again; 529 is Anthropic's.
_IN_PASSING = {
    429: "limits how often it is asked",
    503: "is overloaded",
    529: "is overloaded",
}


def explain_status(error: Any, *, address: str, model: str, api: str, key_way: str) -> FatalError:
    """Return the error for an answer with an error status.

    Args:
        error: the openai package's ``APIStatusError``.
        address: where the request went.
        model: the model that was asked for.
        api: the wire's name ("Responses API").
        key_way: how the person gives a valid key.
    """
    status = error.status_code
    said = brief(message_of(_body_of(error)) or _text_of(error)) or "no reason given"
    code = str(getattr(error, "code", None) or "")
    codes = {code, str(getattr(error, "type", None) or "")}
    if status in (400, 413, 422, 500) and any(is_overflow(code, said) for code in codes):
        return overflow(said)
    words = {"address": address, "model": model, "api": api, "said": said, "key_way": key_way}
    refused = status == 400 and (codes & WRONG_KEY_CODES or WRONG_KEY_WORDS.search(said))
    form = SENTENCES.get(401 if refused else status, OTHER_STATUS)
    sentence = form.format(status=status, **words)
    if 300 <= status < 400:
        place = brief(error.response.headers.get("location", "")) or "nowhere"
        return Fault(ELSEWHERE.format(address=address, status=status, place=place))
    if is_about_model(status, codes, said):
        return UnknownModel(f"{address} does not know the model {model!r} ({status}): {said}")
    if status in NO_DOOR_STATUSES or (status == 400 and NO_DOOR_WORDS.search(said)):
        return NoSuchDoor(sentence)
    return Fault(
        sentence,
        passing=_is_passing(error, status, codes) and not NEVER_WORDS.search(said),
        reason=_in_passing(address, status),
        retry_after=retry_after(error.response.headers),
    )


def _in_passing(address: str, status: int) -> str:
    """Say in a few words why a request waits; what else the server says may be long."""
    otherwise = "had a fault" if status >= 500 else "gave no answer"
    return f"{address} {_IN_PASSING.get(status, otherwise)}: status {status}"


def _body_of(error: Any) -> Any:
    """The body; of a stream its first event, as LiteLLM's proxy answers what fails at its start."""
    body = error.body
    if isinstance(body, str) and body.startswith("data:"):
        with suppress(ValueError, RecursionError):
            return json.loads(body.partition("\n")[0].removeprefix("data:"))
    return body


def _text_of(error: Any) -> str:
    """The body where it is not JSON: of text as it is, of a page nothing."""
    text = getattr(error.response, "text", "")
    return "" if "<" in text[:200] else text


def _is_passing(error: Any, status: int, codes: set[str]) -> bool:
    # OpenAI says so itself where it knows better than the status does.
    told = error.response.headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return passes(status) and not codes & SPENT_CODES


# How providers say that they do not know a model, in words; OpenRouter and Mistral with status 400.
NO_MODEL_WORDS = re.compile(
    r"\b(?:models?|deployment)\b.{0,80}(?:not found|does(?: not|n't) exist|not a valid|no longer)"
    r"|(?:unknown|invalid|no such|not a valid) model"
    r"|^models?[:/]",  # Anthropic ("model: NAME") and Gemini ("models/NAME is not found")
    re.IGNORECASE,
)
NO_MODEL_CODES = frozenset(("model_not_found", "DeploymentNotFound"))


def is_about_model(status: int, codes: set[str], said: str) -> bool:
    """Return whether an error says that there is no such model (and not: no such address)."""
    if status not in (400, 404):
        return False
    return bool(codes & NO_MODEL_CODES or NO_MODEL_WORDS.search(said))


def explain_connection(error: BaseException, address: str) -> FatalError:
    """Return the error for a connection that did not come about."""
    import ssl  # noqa: PLC0415 - 10 ms; the openai package has it loaded by now

    causes = list(_causes(error))
    cause = brief(str(causes[-1])) or type(causes[-1]).__name__
    for each in causes:
        if isinstance(each, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in str(each):
            return Fault(NO_TRUST.format(address=address, cause=cause))
        if isinstance(each, ssl.SSLError):
            return Fault(NO_TLS.format(address=address, cause=cause))
    proxy = _proxy_to(address)
    sentence = NO_PROXY if proxy else NOT_CONNECTED
    return Fault(
        sentence.format(address=address, cause=cause, proxy=proxy),
        passing=True,
        reason=f"Cannot connect to {address}",
        tries=FEW_TRIES,
    )


def _proxy_to(address: str) -> str:
    """Return the proxy through which the environment sends what is for `address`, or ""."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 20 ms, rarely needed

    there, proxies = urlsplit(address), getproxies()
    proxy = proxies.get(there.scheme) or proxies.get("all", "")
    if not proxy or proxy_bypass(there.netloc.rpartition("@")[2]):
        return ""
    return urlsplit(proxy if "://" in proxy else f"//{proxy}").netloc.rpartition("@")[2]


def _causes(error: BaseException | None) -> Any:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
