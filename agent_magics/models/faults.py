"""What can go wrong at a provider, sorted: what passes by itself, and one sentence for the rest.

Both wires come here with the openai package's errors, with what breaks while an answer is read, and
with the error objects that servers put into a stream.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

from agent_magics.models.base import ContextOverflow
from agent_magics.protocol.errors import FatalError

CUT_SHORT = (
    "The model's answer was cut off in the middle, before its end had come; what was done stands. "
    "Run the cell again."
)
GARBLED = "The model's answer holds an event that is {what}; run the cell again."

# As many tries as the policy allows; see `RetryPolicy`.
ALL_TRIES = 1000
# Nobody listens, or nothing comes: it rarely helps to go on for long.
FEW_TRIES = 3


class Fault(FatalError):
    """A request failed; its text is the sentence for the person.

    Attributes:
        passing: whether the same request may go through later.
        reason: a few words for the countdown until then.
        tries: how many requests are worth making altogether.
        retry_after: seconds after which the server wants to be asked again, or None.
    """

    def __init__(
        self,
        sentence: str,
        *,
        passing: bool = False,
        reason: str = "",
        tries: int = ALL_TRIES,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(sentence)
        self.passing = passing
        self.reason = reason or sentence
        self.tries = tries
        self.retry_after = retry_after


class NoSuchDoor(Fault):
    """The server does not have this wire API at all; another one may be there."""


class UnknownModel(Fault):
    """The server does not know the model; its list of models may have one like it."""


class Garbled(Fault):
    """An event cannot be read; at the end of the bytes that is only one that was cut off."""

    def __init__(self, what: str = "not JSON") -> None:
        said = GARBLED.format(what=what)
        super().__init__(said, passing=True, reason="The answer was garbled", tries=FEW_TRIES)


def cut_short(cause: str = "") -> Fault:
    """Return the fault of an answer whose end did not come."""
    sentence = f"{CUT_SHORT} ({cause})" if cause else CUT_SHORT
    return Fault(sentence, passing=True, reason="The answer was cut off in the middle")


def silent(address: str, timeout: float) -> Fault:
    """Return the fault of an answer in which nothing came for `timeout` seconds."""
    return Fault(
        f"No answer from {address} in time (nothing came for {timeout:g} seconds): try again.",
        passing=True,
        reason=f"Nothing came for {timeout:g} seconds",
        tries=FEW_TRIES,
    )


# -- what a provider says ------------------------------------------------------------------------

# Codes and types by which providers say that the conversation is too long.
OVERFLOW_CODES = frozenset(
    (
        "context_length_exceeded",  # OpenAI, and most that follow it
        "exceed_context_size_error",  # llama.cpp's server
        "context_window_exceeded",  # LiteLLM's proxy, from its ContextWindowExceededError
        "model_max_prompt_tokens_exceeded",  # GitHub's endpoint
    )
)
# The words of those that have no code for it.
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
# Error types and codes inside a stream or an error body that pass by themselves.
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
# A 429 that no waiting helps: the account is empty.
SPENT_CODES = frozenset(("insufficient_quota", "billing_hard_limit_reached"))
PASSING_STATUSES = frozenset((408, 409, 425, 429))
NEVER_STATUSES = frozenset((501, 505))

# 404, 405 and 501 say that the address has no such door. Others say it in words: OpenAI itself and
# llama.cpp ("Invalid URL", "File Not Found"), LM Studio ("Unexpected endpoint", even with 200).
NO_DOOR_STATUSES = frozenset((404, 405, 501))
NO_DOOR_WORDS = re.compile(
    r"(?:unknown|invalid|unrecogni[sz]ed) (?:request )?url|unexpected endpoint|no such endpoint"
    r"|responses api is not (?:supported|enabled|available)",
    re.IGNORECASE,
)


def passes(status: int | None, code: str = "") -> bool:
    """Return whether a request that failed with `status` and `code` may go through later."""
    if code in SPENT_CODES:
        return False
    if status is None:
        return code in PASSING_CODES
    return status in PASSING_STATUSES or (status >= 500 and status not in NEVER_STATUSES)


def is_overflow(code: str, said: str) -> bool:
    """Return whether a provider says that the conversation is too long for the model."""
    return code in OVERFLOW_CODES or OVERFLOW_WORDS.search(said) is not None


def overflow(said: str) -> ContextOverflow:
    """Return the error of a conversation that is too long."""
    return ContextOverflow(
        f"The conversation is too long for the model ({brief(said) or 'no reason given'}); "
        "begin a new one, or use a model with a larger context."
    )


def stated_fault(error: Any) -> FatalError:
    """Return the error that a server has put into its answer, after the request had gone through.

    Args:
        error: the error's JSON: an object with ``message`` and ``code`` or ``type``, or a text.
    """
    fields = error if isinstance(error, Mapping) else {"message": error}
    said = brief(message_of(fields)) or brief(str(fields.get("code") or "")) or "no reason given"
    codes = {str(fields.get(name) or "") for name in ("code", "type")}
    if any(is_overflow(code, said) for code in codes):
        return overflow(said)
    if NO_DOOR_WORDS.search(said):
        return NoSuchDoor(f"The server does not have this API: {said}")
    status = next((int(code) for code in codes if code.isdecimal()), None)
    passing = any(passes(status, code) for code in codes) and not codes & SPENT_CODES
    sentence = f"The model's answer failed at the provider: {said}"
    return Fault(sentence, passing=passing, reason=f"The provider failed ({said})")


def message_of(body: Any) -> str:
    """Return what an error's body says, in whichever of the usual places."""
    if isinstance(body, Mapping):
        for name in ("message", "error", "detail", "msg"):
            said = body.get(name)
            if said:
                return message_of(said) if isinstance(said, Mapping) else str(said)
        return ""
    return str(body or "")


def brief(text: str) -> str:
    """One line of at most 500 characters; a server may answer with a whole page of HTML."""
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= 500 else line[:499] + "…"


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return after how many seconds the server wants to be asked again, or None.

    ``retry-after-ms`` is the finer one (OpenAI, Azure); ``retry-after`` holds seconds or an HTTP
    date (RFC 9110, section 10.2.3).

    Args:
        headers: the answer's headers, names in any case.
        now: the time of day in seconds since the epoch, for dates.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}
    try:
        return max(0.0, float(given["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        pass
    value = given.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - 5 ms, and rarely needed

    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, date.timestamp() - (time.time() if now is None else now))
