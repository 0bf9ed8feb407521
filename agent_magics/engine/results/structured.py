"""Requests and parses answers of a type that the caller names.

The answer is parsed by the rules for a tool's arguments: leniently ("5" for an int, null for what
has a default), and with all problems reported at once, each as ``path: expected …, got …``.
"""

import inspect
import itertools
import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from agent_magics.dispatch.arguments.decoding import ArgumentBinder, validator_of
from agent_magics.dispatch.results.values import safe_repr
from agent_magics.dispatch.schema.generation import HANDLE, describe
from agent_magics.engine.results.frames import FrameForm, is_frame_type
from agent_magics.protocol.errors import (
    FatalError,
    RespondToModel,
    full_message,
    short_message,
    typed_message,
)
from agent_magics.text.brief import brief

# Where the type is no object its value stands under this name: providers take only objects.
VALUE = "value"

INSTRUCTIONS = """\

Your last answer of this run, when no more tools are to be called, must be one JSON value and
nothing else: no words around it, no code fence. It follows this JSON schema:
{schema}
"""
REPAIR = (
    "Your answer does not fit the schema:\n{problems}\n"
    "Answer again with the whole JSON value, corrected, and nothing else."
)
REPAIR_SHOWN = "The answer does not fit {kind}; the model was told why and answers once more."
FAILED = "The model's answer is no {kind}, also after it was told why: {problems}"
NO_TYPE = (
    "output={shown} is no type that a model can answer with as JSON{why}; take a pydantic model, a "
    "dataclass, a TypedDict, list[...], dict[str, ...], Literal[...], int, float, str, bool or "
    "pandas.DataFrame."
)

_FENCE = re.compile(r"`{3,}")
_LANGUAGE = re.compile(r"[\w-]*+[^\S\n]*+\n")  # behind a fence that opens
# A name with its modules, and what stands in quotes, which is left alone.
_DOTTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?:[\w<>]+\.)+(\w+)")
_INSIDE = re.compile(rf"^{VALUE}(?=[.\[:])\.?", re.MULTILINE)
_LONGEST = 600
# Places in a text where JSON may begin; each costs up to the whole of it.
_MOST_TRIES = 10


class UnfitAnswer(FatalError):
    """The answer is not of the requested type, even after a correction; `text` is that answer."""

    def __init__(self, sentence: str, text: str) -> None:
        super().__init__(sentence)
        self.text = text


class OutputType:
    """The requested type of a run's answer.

    Args:
        kind: a type that pydantic can parse from JSON, or `pandas.DataFrame`.

    Attributes:
        name: the type's name for people.
        kind: the type itself.
        schema: the JSON schema of the answer, always an object; None for plain text.
        core: pydantic's core schema of the type; None for plain text.
        instructions: a description for the model, for servers that enforce no schema.

    Raises:
        FatalError: `kind` is no such type.
    """

    def __init__(self, kind: object) -> None:
        self.name, self.kind = type_name(kind), kind
        self._is_text = kind is str
        self._finish: Callable[[Any], Any] = lambda value: value
        self.schema: dict[str, Any] | None = None
        self.core: Any = None
        self.instructions = ""
        if self._is_text:
            return
        form = kind
        if is_frame_type(kind):
            frame = FrameForm()
            form, self._finish = frame.kind, frame.build
        reader = _reader_of(form, kind)
        self._binder = ArgumentBinder(reader, "output")
        self.core, self.schema, self.wraps = _answer_schema(reader, kind)
        self._validate = validator_of(self.core).validate_json
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        self.instructions = INSTRUCTIONS.format(schema=text)

    def read(self, text: str) -> Any:
        """Parse the model's answer.

        Args:
            text: the model's answer: JSON, or text around JSON.

        Returns:
            The value, of the requested type.

        Raises:
            RespondToModel: it does not fit; the message has a line for each problem.
            FatalError: a validator of the type itself failed.
        """
        if self._is_text:
            return text
        if not self.wraps:
            with suppress(BaseException):  # which the more patient way below explains
                return self._finish(self._validate(text))
        found, written = json_in(text)
        if found is NOTHING:
            # A bare word, where one of a few words was wanted.
            written = json.dumps(text.strip())
            if not self._takes_text():
                raise RespondToModel("the answer: expected JSON, got text without any")
        if not (self.wraps and isinstance(found, dict) and found.keys() == {VALUE}):
            written = f'{{"{VALUE}":{written}}}'
        try:
            _, named = self._binder.bind_json(written)
            return self._finish(named[VALUE])
        except RespondToModel as problem:
            raise RespondToModel(self._placed(full_message(problem))) from None
        except FatalError:
            raise
        except BaseException as error:  # a validator of the caller's own may raise anything
            raise FatalError(
                f"A validator of {self.name} failed itself ({typed_message(error)}); "
                "mend it, or raise ValueError for what the model should correct."
            ) from error

    def failure(self, problems: str) -> str:
        """Return the error sentence for an answer that still does not fit."""
        listed = brief("; ".join(problems.splitlines()), _LONGEST)
        return FAILED.format(kind=self.name, problems=listed)

    def _takes_text(self) -> bool:
        """Return whether the value may be a string, whose quotes models often omit."""
        inner = (self.schema or {}).get("properties", {}).get(VALUE, {}) if self.wraps else {}
        members = inner.get("anyOf", [inner])
        return any(
            each.get("type") == "string" or any(isinstance(v, str) for v in each.get("enum", ()))
            for each in members
        )

    def _placed(self, problems: str) -> str:
        """Return the problems with places as the model wrote them, relative to its own value."""
        if self.wraps:
            return problems
        return "\n".join(
            f"the answer{line}" if line.startswith(":") else line
            for line in _INSIDE.sub("", problems).split("\n")
        )


def type_name(kind: object) -> str:
    """Return a type's name for people: ``Row``, ``list[Row]``, ``DataFrame``."""
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return kind.__name__
    return _DOTTED.sub(lambda found: found[1] or found[0], safe_repr(kind))


def _reader_of(form: object, kind: object) -> Callable[..., Any]:
    """Return a function with one parameter of that type, whose arguments are then validated."""

    def output(**_: Any) -> None: ...

    parameter = inspect.Parameter(VALUE, inspect.Parameter.KEYWORD_ONLY, annotation=form)
    output.__annotations__ = {VALUE: form}
    output.__dict__["__signature__"] = inspect.Signature([parameter])
    if not _may_be_type(kind):
        raise FatalError(NO_TYPE.format(shown=safe_repr(kind), why=""))
    return output


def _may_be_type(kind: object) -> bool:
    """Return whether a value is a type; pydantic also accepts some others, such as strings."""
    if kind is None or isinstance(kind, str):
        return False
    marks = ("__origin__", "__args__", "__supertype__", "__value__")
    return isinstance(kind, type) or any(hasattr(kind, mark) for mark in marks)


def _answer_schema(reader: Callable[..., Any], kind: object) -> tuple[Any, dict[str, Any], bool]:
    """Return the type's core schema, the answer's, and whether that wraps the value."""
    try:
        core, whole = describe(reader)
    except FatalError as error:
        found = re.search(r"JSON( \(.*?\));", short_message(error))
        why = found[1] if found else ""
        raise FatalError(NO_TYPE.format(shown=type_name(kind), why=why)) from None
    if _has_handle(whole):
        raise FatalError(NO_TYPE.format(shown=type_name(kind), why=""))
    definitions = whole.get("$defs", {})
    inner = whole["properties"][VALUE]
    root = definitions.get(inner.get("$ref", "").removeprefix("#/$defs/"), inner)
    core = _core_of_value(core)
    if root.get("type") != "object":
        return core, whole, True
    referring = json.dumps([root, *definitions.values()])
    definitions = {n: each for n, each in definitions.items() if f'"#/$defs/{n}"' in referring}
    return core, ({**root, "$defs": definitions} if definitions else dict(root)), False


def _core_of_value(core: Any) -> Any:
    """Return the core schema of the one argument of a function whose core schema is given."""
    arguments = core["schema"] if core["type"] == "definitions" else core
    inner = arguments["arguments_schema"][0]["schema"]
    return inner if arguments is core else {**core, "schema": inner}


def _has_handle(schema: object) -> bool:
    """Return whether a schema requires an object of this kernel, which no text can be."""
    if isinstance(schema, list):
        return any(map(_has_handle, schema))
    if not isinstance(schema, dict):
        return False
    return schema.get("format") == HANDLE or any(map(_has_handle, schema.values()))


NOTHING: Final = object()  # the absence of JSON; None stands for null


def json_in(text: str) -> tuple[Any, str]:
    """Return the JSON value of a text, or the first one inside other text; NOTHING for none.

    Models whose server enforces no schema put fences around their answer, or a sentence before it.

    Returns:
        The value, and itself as JSON text.
    """
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        # Half of a surrogate pair cannot be read again but as an escape.
        return value, text.strip() if text.isascii() else json.dumps(value)
    for fenced in reversed(_fenced(text)):
        with suppress(ValueError, RecursionError):
            value = json.loads(fenced)
            return value, json.dumps(value)
    decoder = json.JSONDecoder()
    for found in itertools.islice(re.finditer(r"[{\[]", text), _MOST_TRIES):
        with suppress(ValueError, RecursionError):
            value = decoder.raw_decode(text, found.start())[0]
            return value, json.dumps(value)
    return NOTHING, ""


def _fenced(text: str) -> list[str]:
    """Return what stands between fences; not by a pattern, which takes cubic time for blanks."""
    found, opened = list[str](), False
    *parts, _ = _FENCE.split(text)[1:] or [""]
    for part in parts:
        language = None if opened else _LANGUAGE.match(part)
        opened = language is not None
        if language is not None:
            found.append(part[language.end() :])
    return found
