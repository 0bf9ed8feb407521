"""Recognises secrets: by the names under which they stand, and by the shapes of known keys."""

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import quote, quote_plus

from agent_magics.text.look_alikes import as_latin

_NAMES = r"key|token|secret|pass|credential|auth|cookie|private|(?:^|_)pat(?:$|_)"
# Names of variables, headers and options whose values are secret.
SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
# The same for parameters of an address, where logins put signatures and codes too.
SECRET_PARAMETER = re.compile(f"{_NAMES}|sig|code", re.IGNORECASE)
# Ends of the names of a program's arguments. Elsewhere in a name such words say something else:
# `--key-column`, `--max-tokens`, `--auth-mode`.
_SECRET_ARGUMENT = re.compile(
    r"(?:pass(?:word|wd|phrase|code|key)|secret|credential|cookie|authorization|bearer)s?_?\d*\W*\Z"
    r"|(?:token|(?:^|[\W_]|db|user)pass|(?:^|[\W_])pat)_?\d*\W*\Z"
    r"|(?:(?:access|auth|api|bearer|refresh|personal)[_-]?token"
    r"|(?:api|app|access|account|private|secret|auth|service|license|signing|encryption|master|ssh)"
    r"[_-]?key)s?_?\d*\W*\Z",
    re.IGNORECASE,
)
# Names of secrets and of other things, by their values: `--key customer_id`, `--auth workspace`.
_PERHAPS_SECRET = re.compile(r"(?:key|auth)_?\d*\W*\Z", re.IGNORECASE)
_KEY_OF_TABLE = re.compile(
    r"(?:primary|foreign|unique|public|sort|partition|group|join|row)[_-]?key\W*\Z", re.IGNORECASE
)
# `API_KEY_PROD=X1`, `--secret-id X1`: where the value is no word either.
_SECRET_WITHIN = re.compile(
    r"(?:^|[\W_])(?:secret|password|passwd|(?:api|private|access)[_-]?key)[_-]"
    r"|(?:pg|my|mysql|smtp|ftp)pass\W*\Z",
    re.IGNORECASE,
)
PLAIN_WORDS = re.compile(r"\W*[a-z]+(?:[_-][a-z]+|[A-Z][a-z]+)*\W*")
# What a form asks for. Words of a language: "key" alone may be a key of a table.
# "Servers MUST NOT use form mode elicitation to request sensitive information": MCP, 2025-11-25.
_SECRET_WORDS = (
    r"pass[ _-]?(?:word|wd|phrase|code)|(?:api|access|private|secret|ssh)[ _-]?key"
    r"|secret(?!ar)|credential|(?:access|auth|bearer|api|refresh|personal)[ _-]?token"
)
_SECRET_NUMBER = re.compile(_SECRET_WORDS, re.IGNORECASE)
_SECRET_LABEL = re.compile(rf"{_SECRET_WORDS}|token\W*$", re.IGNORECASE)
# Tokens of pages and of language models.
_ORDINARY_TOKEN = re.compile(
    r"(?<![^\W_])(?:(?:(?:next|prev|previous)[\W_]*)?page|next|prev|previous|continuation|sync"
    r"|resume|csrf|xsrf|start|stop|end|eos|bos|pad|unk|cls|sep|mask)[\W_]*token",
    re.IGNORECASE,
)
# Who asks: "Enter", "We need your", "Your token, please"; not "Do not enter".
_ASKING = (
    r"(?<!not )(?<!never )(?<!n['\u2019]t )\b"
    r"(?:enter|type|paste|provide|supply|give|send|share|tell"
    r"|(?:need|what(?:['\u2019]s| is| are)) your)\b|^\W*your\b"
)
_BLANK = r"[^\w.!?;\n]+"  # within a sentence
# Words before the secret, "your user name and"; not "the name of the".
_BEFORE = rf"(?:{_BLANK}(?!(?:of|for|to|about|with|without|from|where|which|whose)\b)\w+){{0,6}}?"
_ASKED_FOR = rf"{_BLANK}\w*?(?:{_SECRET_WORDS}|token(?=s?\b))s?+"
_BEHIND = r"(?!(?:['\u2019]s)?\s+(?:name|id|count|limit|type|polic))"  # not "the secret's name"
_SECRET_REQUEST = re.compile(rf"(?:{_ASKING}){_BEFORE}{_ASKED_FOR}{_BEHIND}", re.IGNORECASE)
# A text that is a label: "GitHub API key:".
_SECRET_ALONE = re.compile(
    rf"\W*(?:\w+\s+){{0,2}}\w*?(?:{_SECRET_WORDS}|token)s?\W*", re.IGNORECASE
)


SHORTEST_ENCODED = 12  # characters of a secret that is looked for in other forms too


class Secrets(tuple[str, ...]):
    """Texts that must not be shown; its repr, which tracebacks and debuggers show, has none."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


def asks_for_secret(label: str, *, is_number: bool = False) -> bool:
    """Tell whether a form's field of this label asks for a secret, however the label is spelt."""
    pattern = _SECRET_NUMBER if is_number else _SECRET_LABEL
    return bool(pattern.search(_without_ordinary_tokens(label)))


def requests_secret(text: str) -> bool:
    """Tell whether sentences beside a form's field request a secret; others may speak of some."""
    text = _without_ordinary_tokens(text)
    return bool(_SECRET_REQUEST.search(text) or _SECRET_ALONE.fullmatch(text))


def _without_ordinary_tokens(text: str) -> str:
    return _ORDINARY_TOKEN.sub("", as_latin(text))


# Behind an escape of JSON, whose letter or digit belongs to no word: arguments of a call are JSON
# within JSON, where a line break is a backslash and an "n".
BEHIND_ESCAPE = r"(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})"
# Keys of providers and code hosts, to find those that are not known by value.
_KEYS = "|".join(
    (
        r"[sprk]k-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter and others
        r"[sprk]k_(?:live|test)_[A-Za-z0-9]{10,}",  # Stripe
        r"(?:gsk_|xai-|csk-|pplx-|hf_|r8_|npm_|gh[pousr]_)[A-Za-z0-9]{30,}",
        r"(?:nvapi-|tvly-|dckr_pat_|gl(?:pat|dt|rt|ft|cbt|ptt|soat)-|ya29\.)[\w-]{20,}",
        r"github_pat_\w{22,}",
        r"(?:xox[a-z]|xapp)-[\w-]{10,}",  # Slack
        r"(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"AIza[\w-]{35}",
        r"dapi[0-9a-f]{32}",  # Databricks
        r"SG\.[\w-]{16,80}\.[\w-]{16,}",  # SendGrid
        r"pypi-AgE[IN][\w-]{50,}",
        # What stands between the lines that begin and end it, in JSON too.
        r"PRIVATE KEY-----[\s\\nr]{1,8}[\w+/]{40,}[\w+/=\s\\]*",
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
_NAMED_VALUE = re.compile(r"([^=:]*[=:])(.+)", re.S)  # `API_KEY=X`, `Authorization: X`
# `Password=X;`, `?api_key=X&`, and `"token": "X"` of JSON.
_PAIR = re.compile(r"""(?<![\w-])([\w-]++)(?:=|["']\s*:)\s*["']?([^\s"',;&}]+)""")


@lru_cache(maxsize=256)
def encodings(secret: str) -> tuple[str, ...]:
    """Return a secret as it is, and encoded; a short one only as it is, since that may be a word.

    In base64 its letters depend on where among the encoded bytes it begins, and the first and the
    last one also on its neighbours, which are left out.
    """
    if len(secret) < SHORTEST_ENCODED:
        return (secret,)
    data = secret.encode("utf-8", "surrogatepass")
    coded = [
        encode(bytes(before) + data)[-(-8 * before // 6) : 8 * (before + len(data)) // 6].decode()
        for before in range(3)
        for encode in (b64encode, urlsafe_b64encode)
    ]
    hexadecimal, cases = data.hex(), (secret.upper(), secret.lower())
    quoted = (quote(data, safe=""), quote(data), quote_plus(data))
    others = (hexadecimal, hexadecimal.upper(), secret[::-1], *quoted, *cases)
    return tuple(dict.fromkeys((secret, *coded, *others)))


def split_arguments(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument of a program in two parts: what may be shown, and the secret behind it.

    A secret by its name: of `API_KEY=X` and `Authorization: X`, or of the option before it.
    """
    option = ""
    for word in args:
        named = _NAMED_VALUE.fullmatch(word)
        if named and is_secret(named[1], named[2]):
            shown = named[1]
        else:
            is_value = bool(option) and not word.startswith("--")
            shown = "" if is_value and is_secret(option, word) else word
        yield shown, word[len(shown) :]
        option = word if word.startswith("-") and not named else ""


def is_secret(name: str, value: str) -> bool:
    """Tell whether the value of an argument or header of this name is a secret."""
    if _SECRET_ARGUMENT.search(name):
        return True
    if _SECRET_WITHIN.search(name) and re.search(r"\d", value) and re.search(r"[^\W\d_]", value):
        return True
    is_plain = _KEY_OF_TABLE.search(name) or PLAIN_WORDS.fullmatch(value)
    return bool(_PERHAPS_SECRET.search(name)) and not is_plain


def secrets_in(text: str) -> list[str]:
    """Return the secrets that stand in a text: passwords of addresses, values with a secret's name,
    and known keys.
    """
    passwords = [word for user, word in ADDRESS_PASSWORD.findall(text) if word != user]
    named = [value for name, value in _PAIR.findall(text) if is_secret(name, value)]
    return [*passwords, *named, *re.findall(KEY_SHAPES, text)]
