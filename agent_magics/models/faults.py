"""Classifies provider errors into transient and permanent ones, with one sentence for the person.

Both wire APIs use it for error statuses, for broken connections, and for the error objects that
servers put into a stream.
"""

import re
import time
from collections.abc import Mapping

from agent_magics.models.base import ContextOverflow
from agent_magics.protocol.errors import FatalError

CUT_SHORT = (
    "The model's answer was cut off in the middle, before its end had come; what was done stands. "
    "Run the cell again."
)
GARBLED = "The model's answer holds an event that is {what}; run the cell again."

# No limit of its own: as many tries as `RetryPolicy` allows.
ALL_TRIES = 1000
# For a refused connection or a silent server, where many retries rarely help.
FEW_TRIES = 3


class Fault(FatalError):
    """A failed request; the message is the sentence for the person.

    Attributes:
        passing: whether the error is transient: the same request may succeed later.
        reason: a few words for the countdown before a retry.
        tries: maximal number of requests that are worth making.
        retry_after: seconds after which the server asks to be called again, or None.
        kind: a few words that faults of one sort share ("status 500", "timed out").
    """

    def __init__(
        self,
        sentence: str,
        *,
        passing: bool = False,
        reason: str = "",
        tries: int = ALL_TRIES,
        retry_after: float | None = None,
        kind: str = "",
    ) -> None:
        super().__init__(sentence)
        self.passing = passing
        self.reason = reason or sentence
        self.tries = tries
        self.retry_after = retry_after
        self.kind = kind


class UnsupportedWire(Fault):
    """The server does not have this wire API at all; it may have another one."""


class UnknownModel(Fault):
    """The server does not know the model."""


class Garbled(Fault):
    """An event cannot be parsed; at the end of the stream it is one that was cut off."""

    def __init__(self, what: str = "not JSON") -> None:
        sentence = GARBLED.format(what=what)
        super().__init__(
            sentence, passing=True, reason="The answer was garbled", tries=FEW_TRIES, kind="garbled"
        )


def cut_short(cause: str = "") -> Fault:
    """Return the error for an answer that broke off before its end."""
    sentence = f"{CUT_SHORT} ({cause})" if cause else CUT_SHORT
    reason = "The answer was cut off in the middle"
    return Fault(sentence, passing=True, reason=reason, kind="cut off")


def silent(address: str, timeout: float) -> Fault:
    """Return the error for an answer of which nothing arrived for `timeout` seconds."""
    return Fault(
        f"No answer from {address} in time (nothing came for {timeout:g} seconds): try again.",
        passing=True,
        reason=f"Nothing came for {timeout:g} seconds",
        tries=FEW_TRIES,
        kind="timed out",
    )


# -- a provider's error messages ------------------------------------------------------------------

# Error codes and types that mean that the conversation is too long.
OVERFLOW_CODES = frozenset(
    (
        "context_length_exceeded",  # OpenAI, and most that follow it
        "exceed_context_size_error",  # llama.cpp's server
        "context_window_exceeded",  # LiteLLM's proxy, from its ContextWindowExceededError
        "model_max_prompt_tokens_exceeded",  # GitHub's endpoint
    )
)
# Error texts of providers that have no code for it.
OVERFLOW_WORDS = re.compile(
    r"context[ _-](?:length|window|size)[^.]{0,40}exceed"  # OpenAI, llama.cpp
    r"|exceed\w*[^.]{0,40}context[ _-](?:length|window|size)"
    r"|maximum (?:context|prompt|input|model) length"  # vLLM, OpenRouter, DeepSeek, xAI, SGLang
    r"|prompt is too long"  # Anthropic
    r"|input token count[^.]{0,40}exceeds"  # Gemini
    r"|too large for model with \d+ maximum context"  # Mistral
    r"|exceeded model token limit"  # Moonshot (Kimi)
    r"|reduce the length of the messages"  # Groq, and OpenAI's older models
    r"|greater than the context length",  # LM Studio
    re.IGNORECASE,
)
# Transient error types and codes inside a stream or an error body.
PASSING_CODES = frozenset(
    (
        "server_error",
        "internal_error",
        "internal_server_error",
        "overloaded",
        "overloaded_error",
        "rate_limit_exceeded",
        "rate_limit_error",
        "service_unavailable",
        "timeout",
        "upstream_error",
        "vector_store_timeout",
    )
)
# Codes of status 429 for which waiting does not help: the account is empty.
SPENT_CODES = frozenset(("insufficient_quota", "billing_hard_limit_reached"))
# Spaces, controls (also those of terminals), what changes the direction of a text or is invisible,
# and halves of characters, which no file can hold.
_UNSHOWN = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    r"\U000e0000-\U000e007f]+"
)
_STATUS = re.compile(r"[1-5][0-9]{2}")
_SECONDS = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{0,9})?")
PASSING_STATUSES = frozenset((408, 409, 425, 429))
NEVER_STATUSES = frozenset((501, 505))

# 404, 405 and 501: the address has no such wire API. Others report it as text: OpenAI itself and
# llama.cpp ("Invalid URL", "File Not Found"), LM Studio ("Unexpected endpoint", even with 200).
NO_WIRE_STATUSES = frozenset((404, 405, 501))
NO_WIRE_WORDS = re.compile(
    r"(?:unknown|invalid|unrecogni[sz]ed) (?:request )?url|unexpected endpoint|no such endpoint"
    r"|responses api is not (?:supported|enabled|available)",
    re.IGNORECASE,
)


def passes(status: int | None, code: str = "") -> bool:
    """Tell whether a request that failed with `status` and `code` may succeed later."""
    if code in SPENT_CODES:
        return False
    if status is None:
        return code in PASSING_CODES
    return status in PASSING_STATUSES or (status >= 500 and status not in NEVER_STATUSES)


def is_overflow(code: str, message: str) -> bool:
    """Tell whether an error means that the conversation is too long for the model."""
    return code in OVERFLOW_CODES or OVERFLOW_WORDS.search(message) is not None


def overflow(message: str) -> ContextOverflow:
    """Return the error for a conversation that is too long."""
    return ContextOverflow(
        f"The conversation is too long for the model ({brief(message) or 'no reason given'}); "
        "begin a new one, or use a model with a larger context."
    )


def stated_fault(error: object) -> FatalError:
    """Return the error for an error object inside an answer that began successfully.

    Args:
        error: the error's JSON: an object with ``message`` and ``code`` or ``type``, or a text.
    """
    fields = error if isinstance(error, Mapping) else {"message": error}
    message = brief(message_of(fields)) or brief(str(fields.get("code") or "")) or "no reason given"
    codes = {str(fields.get(name) or "") for name in ("code", "type")}
    if any(is_overflow(code, message) for code in codes):
        return overflow(message)
    if NO_WIRE_WORDS.search(message):
        return UnsupportedWire(f"The server does not have this API: {message}")
    status = next((int(code) for code in codes if _STATUS.fullmatch(code)), None)
    passing = any(passes(status, code) for code in codes) and not codes & SPENT_CODES
    sentence = f"The model's answer failed at the provider: {message}"
    return Fault(sentence, passing=passing, reason=f"The provider failed ({message})")


def message_of(body: object) -> str:
    """Return the message of an error body, from whichever of the usual fields has one."""
    while isinstance(body, Mapping):
        message = (body.get(name) for name in ("message", "error", "detail", "msg"))
        body = next(filter(None, message), "")
    return str(body or "")


def brief(text: str) -> str:
    """Return a server's text, which may be an HTML page, as one line of at most 500 characters."""
    line = _UNSHOWN.sub(" ", text).strip()
    return line if len(line) <= 500 else line[:499] + "…"


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds after which the server asks to be called again, or None.

    ``retry-after-ms`` is the more precise one (OpenAI, Azure); ``retry-after`` holds seconds or an
    HTTP date (RFC 9110, section 10.2.3). Other values are ignored.

    Args:
        headers: the answer's headers, names in any case.
        now: the current time in seconds since the epoch, for dates of answers that have no date.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        if _SECONDS.fullmatch(given.get(name, "")):
            return max(0.0, float(given[name]) / unit)
    then = _http_date(given.get("retry-after", ""))
    if then is None:
        return None
    # The server's own clock counts, since ours may be wrong by a year.
    sent_at = _http_date(given.get("date", "")) or (time.time() if now is None else now)
    return max(0.0, then - sent_at)


def _http_date(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 5 ms, and rarely needed

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
