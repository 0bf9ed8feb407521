"""Recognises secrets: by the names under which they stand, and by the shapes of known keys."""

import re
from collections.abc import Iterator, Sequence

from agent_magics.text.look_alikes import as_latin

_NAMES = r"key|token|secret|pass|credential|auth|cookie|private|(?:^|_)pat(?:$|_)"
# Names of variables, headers and options whose values are secret.
SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
# The same for parameters of an address, where logins put signatures and codes too.
SECRET_PARAMETER = re.compile(f"{_NAMES}|sig|code", re.IGNORECASE)
# Labels of what a form asks for. Words of a language: "key" alone may be a key of a table.
# "Servers MUST NOT use form mode elicitation to request sensitive information": MCP, 2025-11-25.
_SECRET_FIELD = re.compile(
    r"pass[ _-]?(word|wd|phrase|code)|(api|access|private|secret|ssh)[ _-]?key|secret|credential"
    r"|(access|auth|bearer|api|refresh|personal)[ _-]?token|^\W*token\W*$",
    re.IGNORECASE,
)


class Secrets(tuple[str, ...]):
    """Texts that must not be shown; its repr, which tracebacks and debuggers show, has none."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


def asks_for_secret(label: str) -> bool:
    """Tell whether a form's field of this label asks for a secret, however the label is spelt."""
    return bool(_SECRET_FIELD.search(as_latin(label)))


# Behind an escape of JSON, whose letter or digit belongs to no word: arguments of a call are JSON
# within JSON, where a line break is a backslash and an "n".
BEHIND_ESCAPE = r"(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})"
# Keys of providers and code hosts, to find those that are not known by value.
_KEYS = "|".join(
    (
        r"[sprk]k-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter, Stripe and others
        r"gsk_[A-Za-z0-9]{30,}",
        r"xai-[A-Za-z0-9]{30,}",
        r"gh[pousr]_[A-Za-z0-9]{30,}",
        r"github_pat_\w{22,}",
        r"glpat-[\w-]{20,}",
        r"xox[abprs]-[\w-]{10,}",
        r"(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"AIza[\w-]{35}",
        r"hf_[A-Za-z0-9]{30,}",
        # A JSON web token; its first part is bounded: each "eyJ" of a long word may begin one.
        r"eyJ[\w-]{10,2000}\.eyJ[\w-]{10,}\.[\w-]{10,}",
    )
)
KEY_SHAPES = rf"(?:\b|{BEHIND_ESCAPE})(?:{_KEYS})"
# A name and password in an address, up to the last "@" before its path.
ADDRESS_LOGIN = r"(?<=://)[^\s/?#]+(?=@)"
# (user, password) of an address, up to the same "@".
ADDRESS_PASSWORD = re.compile(r"(?<=://)([^\s/?#:@]*):([^\s/?#]+)(?=@)")
# How such keys begin, for where a word too many may be hidden or refused.
KEY_LIKE = re.compile(
    r"(?:[sprk]k|gsk|xai|hf|gh[pousr]|github_pat|glpat|xox[a-z]|AIza|eyJ)[-_A-Za-z0-9]{10,}"
)
_NAMED_VALUE = re.compile(r"([^=:]*[=:]).+", re.S)  # `API_KEY=X`, `Authorization: X`
# `Password=X;`, `?api_key=X&`, and `"token": "X"` of JSON.
_PAIR = re.compile(r"""(?<![\w-])([\w-]++)(?:=|["']\s*:)\s*["']?([^\s"',;&}]+)""")


def split_arguments(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument of a program in two parts: what may be shown, and the secret behind it.

    A secret by its name: of `API_KEY=X` and `Authorization: X`, or of the option before it.
    """
    follows_name = False
    for word in args:
        named = _NAMED_VALUE.fullmatch(word)
        if named and SECRET_NAME.search(named[1]):
            shown = named[1]
        else:
            shown = "" if follows_name and not word.startswith("--") else word
        yield shown, word[len(shown) :]
        follows_name = not named and word.startswith("-") and bool(SECRET_NAME.search(word))


def secrets_in(text: str) -> list[str]:
    """Return the secrets that stand in a text: passwords of addresses, values with a secret's name,
    and known keys.
    """
    passwords = [word for user, word in ADDRESS_PASSWORD.findall(text) if word != user]
    named = [value for name, value in _PAIR.findall(text) if SECRET_NAME.search(name)]
    return [*passwords, *named, *re.findall(KEY_SHAPES, text)]
