"""Results of a type that the caller names: the schema for the model, and its answer as a value.

Python reads the answer with the same rules as a tool's arguments: generously ("5" for an int, null
for what has a default), and with all problems told at once, each as ``path: expected …, got …``.
"""

import inspect
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.arguments import ArgumentBinder
from agent_magics.dispatch.output import safe_repr
from agent_magics.dispatch.schema import HANDLE, describe
from agent_magics.engine.frames import FrameForm, is_frame_type
from agent_magics.protocol.errors import FatalError, RespondToModel

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

_FENCE = re.compile(r"```[\w-]*\s*\n(.*?)\n?\s*```", re.DOTALL)
# A name with its modules, and what stands in quotes, which is left alone.
_DOTTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?:[\w<>]+\.)+(\w+)")
_INSIDE = re.compile(rf"^{VALUE}(?=[.\[:])\.?", re.MULTILINE)
_LONGEST = 600
# Places in a text where JSON may begin; each costs up to the whole of it.
_MOST_TRIES = 10


class UnfitAnswer(FatalError):
    """The answer is not of the wanted type, also after it was mended; `text` is that answer."""

    def __init__(self, sentence: str, text: str) -> None:
        super().__init__(sentence)
        self.text = text


class OutputType:
    """The type of a run's result.

    Args:
        kind: a type that pydantic can read from JSON, or `pandas.DataFrame`.

    Attributes:
        name: what people call the type.
        schema: of the answer, always an object; None for plain text.
        instructions: what the model is told, for servers that enforce no schema.

    Raises:
        FatalError: `kind` is no such type.
    """

    def __init__(self, kind: Any) -> None:
        self.name = type_name(kind)
        self._is_text = kind is str
        self._finish: Callable[[Any], Any] = lambda value: value
        self.schema: dict[str, Any] | None = None
        self.instructions = ""
        if self._is_text:
            return
        form = kind
        if is_frame_type(kind):
            frame = FrameForm()
            form, self._finish = frame.kind, frame.build
        reader = _reader_of(form, kind)
        self._binder = ArgumentBinder(reader, "output")
        self.schema, self.wraps = _answer_schema(reader, kind)
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        self.instructions = INSTRUCTIONS.format(schema=text)

    def read(self, text: str) -> Any:
        """Return the value that `text`, the model's answer, stands for.

        Raises:
            RespondToModel: it does not fit; the message has a line for each problem.
            FatalError: a validator of the type failed itself.
        """
        if self._is_text:
            return text
        found = json_in(text)
        value = found
        if self.wraps and isinstance(found, dict) and set(found) == {VALUE}:
            value = found[VALUE]
        elif found is NOTHING:
            value = text.strip()  # a bare word, where one of a few words was wanted
            if not self._takes_text():
                raise RespondToModel("the answer: expected JSON, got text without any")
        try:
            _, named = self._binder.bind_json(json.dumps({VALUE: value}))
            return self._finish(named[VALUE])
        except RespondToModel as problem:
            raise RespondToModel(self._placed(str(problem))) from None
        except FatalError:
            raise
        except Exception as error:  # a validator of the caller's own may raise anything
            raise FatalError(
                f"A validator of {self.name} failed itself ({type(error).__name__}: {error}); "
                "mend it, or raise ValueError for what the model should correct."
            ) from error

    def failure(self, problems: str) -> str:
        """Return the sentence for an answer that still does not fit."""
        listed = "; ".join(problems.splitlines())
        listed = listed if len(listed) <= _LONGEST else listed[: _LONGEST - 1] + "…"
        return FAILED.format(kind=self.name, problems=listed)

    def _takes_text(self) -> bool:
        """Whether the value may be a string, so that a model may well leave out the quotes."""
        inner = (self.schema or {}).get("properties", {}).get(VALUE, {}) if self.wraps else {}
        members = inner.get("anyOf", [inner])
        return any(
            each.get("type") == "string" or any(isinstance(v, str) for v in each.get("enum", ()))
            for each in members
        )

    def _placed(self, problems: str) -> str:
        """Name places as the model wrote them: from the root where the value is an object."""
        if self.wraps:
            return problems
        return "\n".join(
            f"the answer{line}" if line.startswith(":") else line
            for line in _INSIDE.sub("", problems).split("\n")
        )


def type_name(kind: Any) -> str:
    """Return what people call a type: ``Row``, ``list[Row]``, ``DataFrame``."""
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return kind.__name__
    return _DOTTED.sub(lambda found: found[1] or found[0], safe_repr(kind))


def _reader_of(form: Any, kind: Any) -> Callable[..., Any]:
    """Return a function of one argument of that type; what can be bound to it, can be answered."""

    def output(**_: Any) -> None: ...

    parameter = inspect.Parameter(VALUE, inspect.Parameter.KEYWORD_ONLY, annotation=form)
    output.__annotations__ = {VALUE: form}
    output.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    if not _may_be_type(kind):
        raise FatalError(NO_TYPE.format(shown=safe_repr(kind), why=""))
    return output


def _may_be_type(kind: Any) -> bool:
    """Tell a type from a value; pydantic takes some values for types, such as strings."""
    if kind is None or isinstance(kind, str):
        return False
    return isinstance(kind, type) or hasattr(kind, "__origin__") or hasattr(kind, "__args__")


def _answer_schema(reader: Callable[..., Any], kind: Any) -> tuple[dict[str, Any], bool]:
    """Return the schema of the answer, and whether the value stands in an object of its own."""
    try:
        _, whole = describe(reader)
    except FatalError as error:
        found = re.search(r"JSON( \(.*?\));", str(error))
        why = found[1] if found else ""
        raise FatalError(NO_TYPE.format(shown=type_name(kind), why=why)) from None
    if _has_handle(whole):
        raise FatalError(NO_TYPE.format(shown=type_name(kind), why=""))
    definitions = whole.get("$defs", {})
    inner = whole["properties"][VALUE]
    root = definitions.get(inner.get("$ref", "").removeprefix("#/$defs/"), inner)
    if root.get("type") != "object":
        return whole, True
    definitions = {
        name: each
        for name, each in definitions.items()
        if f'"#/$defs/{name}"' in _text(whole, root)
    }
    return ({**root, "$defs": definitions} if definitions else dict(root)), False


def _text(whole: dict[str, Any], root: dict[str, Any]) -> str:
    """All schemas that the answer may refer to from, as text."""
    return json.dumps([root, *whole.get("$defs", {}).values()])


def _has_handle(schema: Any) -> bool:
    """Whether a part wants an object of this kernel, which no text can be."""
    if isinstance(schema, list):
        return any(map(_has_handle, schema))
    if not isinstance(schema, dict):
        return False
    return schema.get("format") == HANDLE or any(map(_has_handle, schema.values()))


class _Nothing:
    """No JSON at all; None is null."""


NOTHING = _Nothing()


def json_in(text: str) -> Any:
    """Return the JSON value that `text` is, or that stands in it with words around; or NOTHING.

    Models that nothing holds to a schema put fences around their answer, or a sentence before it.
    """
    fenced = [found.group(1) for found in _FENCE.finditer(text)]
    for candidate in (text, *reversed(fenced)):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    decoder = json.JSONDecoder()
    for found in itertools.islice(re.finditer(r"[{\[]", text), _MOST_TRIES):
        try:
            return decoder.raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
    return NOTHING
