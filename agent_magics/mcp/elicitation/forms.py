"""Parses the form of an elicitation, and validates what may be asked and sent.

Source: the Model Context Protocol, revision 2025-11-25, "Elicitation": a flat object of texts,
numbers, booleans, and choices of one or of several. Servers also write that a field may be null. A
`pattern` is not among them and is not applied: a server's regular expression could block this
kernel forever.
"""

import ipaddress
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, TypeGuard
from urllib.parse import quote, urlsplit

from agent_magics.protocol.items import JsonMapping, JsonObject
from agent_magics.text.secrets import asks_for_secret, requests_secret

FORMATS = ("email", "uri", "date", "date-time")
_EXAMPLES = {
    "email": "name@example.org",
    "uri": "https://example.org/",
    "date": "2026-01-31",
    "date-time": "2026-01-31T15:30:00Z",
}
# Limits of a form that a person can still read.
MOST_FIELDS, MOST_OPTIONS, LONGEST_URL = 50, 500, 8_000
_MOST_DIGITS = len(str(MOST_OPTIONS))
_LARGEST = 1e300
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
# What browsers take for the number of an IPv4 address: `2130706433`, `0x7f.1`.
_NUMBERED = re.compile(r"(?:[^:]*\.)?(?:\d+|0x[0-9a-f]*)\.?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# What stands for null under these words of a schema.
_NULLS = {"type": "null", "enum": None, "anyOf": {"type": "null"}, "oneOf": {"type": "null"}}
_YES = frozenset({"y", "yes", "true", "on", "1"})
_NO = frozenset({"n", "no", "false", "off", "0"})


class UnusableForm(ValueError):
    """A form cannot be shown; the message says why, for the server's log and the person."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form.

    Attributes:
        kind: "text", "number", "integer", "boolean", "choice" (one) or "choices" (several).
        format: of a text: one of `FORMATS`, or "".
        options: of a choice: (value, label) of each.
        descriptions: of a choice: explanations of options, by value.
        is_open: of a choice: whether text of the person's own is valid, too.
        is_listed: of a choice: whether all options are in sight at once.
        default: the initial value; None is nothing.
        least, most: limits of a text's length, a number's value, or the number of choices.
    """

    name: str
    kind: str
    title: str
    description: str = ""
    required: bool = False
    format: str = ""
    options: tuple[tuple[str, str], ...] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    is_listed: bool = False
    default: Any = None
    least: float | None = None
    most: float | None = None

    @property
    def hint(self) -> str:
        """The valid values in few words for people; "" where the kind says it all."""
        words = [f"such as {_EXAMPLES[self.format]}"] if self.format else []
        unit = {"text": " characters", "choices": " of them"}.get(self.kind, "")
        least, most = _number(self.least), _number(self.most)
        if least and most:
            words.append(f"{least} to {most}{unit}")
        elif least:
            words.append(f"at least {least}{unit}")
        elif most:
            words.append(f"at most {most}{unit}")
        if self.kind == "integer":
            words.append("a whole number")
        return ", ".join(words)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"


# -- the form --------------------------------------------------------------------------------------


def form_fields(schema: JsonMapping, message: str = "") -> tuple[FormField, ...]:
    """Return the fields of a requested schema, in the server's order.

    Args:
        schema: what the server sent.
        message: the text above the form.

    Raises:
        UnusableForm: it is not one that the protocol allows.
    """
    properties = schema.get("properties", {})
    required = schema.get("required") or []
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise UnusableForm("what it asks for is no object with properties")
    if not isinstance(required, Sequence) or not set(map(str, required)) <= set(properties):
        raise UnusableForm("it requires fields that it does not describe")
    if len(properties) > MOST_FIELDS:
        raise UnusableForm(f"it has {len(properties)} fields; {MOST_FIELDS} are the most")
    fields = tuple(_field(name, one, name in required) for name, one in properties.items())
    if any(one.kind == "text" for one in fields) and requests_secret(message):
        raise UnusableForm("its message asks for a secret, which no form of a server may do")
    return fields


def _field(name: str, schema: object, required: bool) -> FormField:
    if not isinstance(schema, Mapping):
        raise UnusableForm(f"field {name!r} is not described")
    schema = _without_null(schema)
    kind, options = _kind_of(name, schema)
    title, description = _text(schema.get("title")) or name, _text(schema.get("description"))
    is_text, is_number = kind == "text", kind in ("number", "integer")
    asks = any(asks_for_secret(label, is_number=is_number) for label in (name, title))
    if ((is_text or is_number) and asks) or (is_text and requests_secret(description)):
        raise UnusableForm(f"field {name!r} asks for a secret, which no form of a server may do")
    lowest, highest = {
        "text": ("minLength", "maxLength"),
        "choices": ("minItems", "maxItems"),
    }.get(kind, ("minimum", "maximum"))
    format_ = schema.get("format")
    field = FormField(
        name=name,
        kind=kind,
        title=title,
        description=description,
        required=required,
        format=format_ if kind == "text" and format_ in FORMATS else "",
        options=options,
        least=_bound(schema.get(lowest)),
        most=_bound(schema.get(highest)),
    )
    default, problem = check_field(field, schema.get("default"))
    return field if problem else replace(field, default=default)


def _without_null(schema: JsonMapping) -> JsonMapping:
    """Return a field's schema without the null that it allows; what is left empty is not sent.

    Source: pydantic, by which servers on the Python SDK 1 write an optional field.
    """
    plain = dict(schema)
    for key, null in _NULLS.items():
        if isinstance(listed := plain.get(key), list | tuple):
            plain[key] = [one for one in listed if one != null]
    if isinstance(kinds := plain.get("type"), list) and len(kinds) == 1:
        plain["type"] = kinds[0]
    for key in ("anyOf", "oneOf"):
        match plain.get(key):
            case [Mapping() as only] if "const" not in only:
                del plain[key]
                plain = {**only, **plain}
    return plain


def _kind_of(name: str, schema: JsonMapping) -> tuple[str, tuple[tuple[str, str], ...]]:
    match schema.get("type"):
        case "string" | None if "enum" in schema or "oneOf" in schema:
            return "choice", _options(name, schema, "oneOf")
        case "string":
            return "text", ()
        case "number" | "integer" | "boolean" as kind:
            return str(kind), ()
        case "array" if isinstance(schema.get("items"), Mapping):
            return "choices", _options(name, schema["items"], "anyOf")
    raise UnusableForm(f"field {name!r} is of a kind that forms do not have")


def _options(name: str, schema: JsonMapping, titled: str) -> tuple[tuple[str, str], ...]:
    """Return (value, label) from `enum` (with the older `enumNames`), or from constants with
    titles.
    """
    if isinstance(listed := schema.get("enum"), Sequence):
        labels = schema.get("enumNames")
        if not isinstance(labels, Sequence) or len(labels) != len(listed):
            labels = listed
        pairs = list(zip(listed, labels, strict=True))
    elif isinstance(listed := schema.get(titled), Sequence):
        tables = [one if isinstance(one, Mapping) else {} for one in listed]
        pairs = [(one.get("const"), one.get("title", one.get("const"))) for one in tables]
    else:
        pairs = []
    if not pairs or len(pairs) > MOST_OPTIONS:
        raise UnusableForm(f"field {name!r} offers {len(pairs)} choices")
    if not all(isinstance(value, str) for value, _ in pairs):
        raise UnusableForm(f"field {name!r} offers choices that are no text")
    return tuple((value, _text(label) or value) for value, label in pairs)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _bound(value: Any) -> float | None:
    return value if _is_number(value) else None


def _is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number that JSON's readers take; a whole one may be of any size."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -_LARGEST < value < _LARGEST


# -- answers ---------------------------------------------------------------------------------------


def check_content(
    fields: Sequence[FormField], content: JsonMapping
) -> tuple[JsonObject, dict[str, str]]:
    """Return the valid values of a person's answers, and by field the errors of others.

    A field that is missing, None or an empty text is not sent, unless it is required.
    """
    fitting: JsonObject = {}
    problems = dict.fromkeys(content.keys() - {f.name for f in fields}, "there is no such field")
    for one in fields:
        value, problem = check_field(one, content.get(one.name))
        if problem:
            problems[one.name] = problem
        elif value is not None:
            fitting[one.name] = value
        elif one.required:
            problems[one.name] = "this is required"
    return fitting, problems


def check_field(field: FormField, value: object) -> tuple[Any, str]:
    """Return (value to send, error); None is no value, "" no error."""
    if value is None or (value == "" and field.kind != "choice"):
        return None, ""
    match field.kind:
        case "text":
            return value, _text_problem(field, value)
        case "number" | "integer":
            return _checked_number(field, value)
        case "boolean":
            return value, "" if isinstance(value, bool) else "this is yes or no"
        case "choice":
            known = any(value == one for one, _ in field.options)
            fits = known or (field.is_open and _is_words(value))
            return value, "" if fits else "this is not one of the choices"
    return _checked_choices(field, value)


def _text_problem(field: FormField, value: object) -> str:
    if not isinstance(value, str):
        return "this must be text"
    if field.least is not None and len(value) < field.least:
        return f"this must have at least {_number(field.least)} characters"
    if field.most is not None and len(value) > field.most:
        return f"this must have at most {_number(field.most)} characters"
    if field.format and not _has_format(field.format, value):
        return f"this must be such as {_EXAMPLES[field.format]}"
    return ""


def _has_format(format_: str, value: str) -> bool:
    try:
        match format_:
            case "email":
                return bool(_EMAIL.fullmatch(value))
            case "uri":
                parts = urlsplit(value)
                return bool(parts.scheme and (parts.netloc or parts.path)) and " " not in value
            case "date":
                return bool(_DATE.fullmatch(value) and date.fromisoformat(value))
        return "T" in value.upper() and datetime.fromisoformat(value.upper()).tzinfo is not None
    except ValueError:
        return False


def _checked_number(field: FormField, value: object) -> tuple[Any, str]:
    if not _is_number(value):
        return value, "this must be a number"
    if field.kind == "integer":
        if value != int(value):
            return value, "this must be a whole number"
        value = int(value)
    if field.least is not None and value < field.least:
        return value, f"this must be at least {_number(field.least)}"
    if field.most is not None and value > field.most:
        return value, f"this must be at most {_number(field.most)}"
    return value, ""


def _checked_choices(field: FormField, value: object) -> tuple[Any, str]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        return value, "this must be a list of choices"
    known = [one for one, _ in field.options]
    own = [each for each in value if each not in known]
    if own and not (field.is_open and all(map(_is_words, own))):
        return list(value), "one of these is not among the choices"
    chosen = [one for one in known if one in value]  # in the server's order, each once
    chosen += dict.fromkeys(own)
    if field.least is not None and len(chosen) < field.least and (chosen or field.required):
        return chosen, f"choose at least {_number(field.least)}"
    if field.most is not None and len(chosen) > field.most:
        return chosen, f"choose at most {_number(field.most)}"
    return (chosen or ([] if field.required else None)), ""


def _is_words(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def read_typed_value(field: FormField, typed: str) -> Any:
    """Convert a line typed in a console to the field's type; an invalid one stays text.

    Choices are typed by number or by name, several with commas between them.
    """
    typed = typed.strip()
    match field.kind:
        case "number" | "integer":
            try:
                return int(typed) if re.fullmatch(r"[+-]?\d{1,300}", typed) else float(typed)
            except ValueError:
                return typed
        case "boolean":
            return True if typed.lower() in _YES else False if typed.lower() in _NO else typed
        case "choice":
            return _chosen(field, typed)
        case "choices":
            return _chosen_ones(field, typed)
    return typed


def _chosen_ones(field: FormField, typed: str) -> list[str]:
    words = [_chosen(field, word.strip()) for word in typed.split(",") if word.strip()]
    if not field.is_open:
        return words
    known = [value for value, _ in field.options]
    own = ", ".join(word for word in words if word not in known)  # a sentence may hold commas
    return [*(word for word in words if word in known), *([own] if own else [])]


def _chosen(field: FormField, typed: str) -> str:
    for value, label in field.options:
        if typed in (value, label):
            return value
    is_place = typed.isdecimal() and len(typed) <= _MOST_DIGITS
    # Where an option is a number itself, a number is an answer and no place in the list.
    if any(label.strip().isdecimal() for _, label in field.options) or not is_place:
        return typed
    place = int(typed)
    return field.options[place - 1][0] if 1 <= place <= len(field.options) else typed


# -- addresses -------------------------------------------------------------------------------------


def ascii_address(url: str) -> str:
    """Return an address that browsers take for the same one, in letters that deceive nobody."""
    return quote(url, safe=string.punctuation, errors="replace")


def host_of(url: str) -> str:
    """Return the host (and port) of an address, in the form used for look-up (IDNA).

    Raises:
        UnusableForm: it is not the address of a page, or one that browsers interpret differently.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if not host.isascii():
            given, host = host, host.encode("idna").decode("ascii")
            # Letters that Python maps to others are mapped otherwise by browsers: "ß" is no "ss".
            host = host if host.encode().decode("idna") == given else ""
        if _NUMBERED.fullmatch(host):
            ipaddress.IPv4Address(host)
    except ValueError:  # includes UnicodeError
        host, port = "", None
    odd = not url.isprintable() or "\\" in url or " " in url or "@" in url.partition("?")[0]
    odd = odd or "%" in host or len(url) > LONGEST_URL
    if odd or not host or not url.lower().startswith(("https://", "http://")):
        raise UnusableForm("the address that it names is none of a page")
    return host if port is None else f"{host}:{port}"
