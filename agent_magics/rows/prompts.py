"""Makes a row's question to the model: text with ``{{column}}``, or a function of the row.

Of a question it makes the key by which its answer is kept.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import date, time
from enum import Enum
from functools import partial
from hashlib import blake2b
from io import BytesIO
from itertools import chain
from numbers import Number
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, Protocol, TypeAlias

from agent_magics.dispatch.results.numpy_values import python_value
from agent_magics.dispatch.results.values import made_by
from agent_magics.files.plain_files import read_plain
from agent_magics.protocol.errors import FatalError, clause, short_message, typed_message
from agent_magics.protocol.items import Content, ContentPart, InputImage, InputText
from agent_magics.rows.asking import RowPlace
from agent_magics.rows.tables.files import Broken, FileJudge, any_path, judged_path
from agent_magics.rows.tables.sources import Names, Row, is_image
from agent_magics.text.braces import split_at_braces
from agent_magics.text.brief import first_of

_IMAGES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
_MISSING_TYPES = ("NAType", "NaTType")
_NUMPY_TIMES = ("datetime64", "timedelta64")
_MOST_FILE_BYTES = 20 << 20
_MOST_NAMED = 50  # columns; a table may have thousands
# How NumPy, pandas, polars and pyarrow give all values; the last one is what a table of pandas has.
_AS_LIST = ("tolist", "to_list", "to_pylist", "to_dicts", "itertuples")
_OF_JSON = (str, int, float)
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, partial)

NO_COLUMN = "The prompt names {missing}, and the rows have no such column; there are: {there}."
NO_COLUMNS = (
    "The prompt names no column, so each row would ask the same: write {{{{column}}}} where a "
    "row's value belongs; there are: {there}."
)
TWICE = "The prompt needs {name!r}, and the rows have more than one such column: rename one."
IS_MISSING = "{name} is missing ({value})"
SURROGATE = "{name} holds a lone surrogate at character {place}, which no request can carry"
NO_TEXT = "an object of the class {kind} has no text of its own: give the class a __str__"
NOT_UTF8 = "{name} holds bytes at character {place} that are not UTF-8 text"
INSIDE = "a list or dict holds {kind}: pictures need a column of their own, and text is to be text"


class BadRow(Exception):
    """A row cannot be asked about; the message is its error, and nothing is sent."""


class Prompt(Protocol):
    """Makes the content of a row's question.

    Attributes:
        names: the columns that it reads; None for whole rows.
    """

    @property
    def names(self) -> Names:
        """The columns that it reads; None for whole rows."""
        ...

    def fill(self, row: Row) -> Content:
        """Return the content of a row's question.

        Raises:
            BadRow: there is none.
        """
        ...


Given: TypeAlias = str | Callable[[Any], Content]


def read_prompt(given: Given, columns: Sequence[str] | None, judge: FileJudge = any_path) -> Prompt:
    """Return the maker of the rows' questions.

    Args:
        given: text with ``{{column}}``, or a function of a row.
        columns: the columns that the rows have; None where there is no row to tell.
        judge: returns why a file that a value names is not read, or "".

    Raises:
        FatalError: the text names a column that is not there, or there twice, or it names none.
    """
    if callable(given):
        _check_once(columns or (), columns or ())  # a row is a dict of all
        return FunctionPrompt(given)
    template = Template(given, judge, columns or ())
    if columns is None:
        return template
    _check_once(template.names, columns)
    missing = [name for name in template.names if name not in columns]
    there = first_of([*map(repr, columns)], _MOST_NAMED) or "none"
    if missing:
        raise FatalError(NO_COLUMN.format(missing=", ".join(map(repr, missing)), there=there))
    if not template.names:
        raise FatalError(NO_COLUMNS.format(there=there))
    return template


class Template:
    r"""Text with ``{{column}}``; ``\{{`` stands for two braces.

    Args:
        text: the text.
        judge: see `read_prompt`.
        known: columns whose names may begin or end in blanks, which are left out of others.

    Attributes:
        names: the columns, in the order in which the text names them.
    """

    def __init__(self, text: str, judge: FileJudge = any_path, known: Sequence[str] = ()) -> None:
        self._judge = judge
        # The text, in which the values take the odd places.
        self._parts = split_at_braces(text)
        columns = [each if each in known else each.strip() for each in self._parts[1::2]]
        self.names = tuple(dict.fromkeys(columns))
        # Whose value belongs into each of those.
        self._gaps = [(2 * gap + 1, self.names.index(name)) for gap, name in enumerate(columns)]

    def fill(self, row: Row) -> Content:
        """See `Prompt.fill`."""
        if isinstance(row, Broken):
            raise BadRow(row.problem)
        parts: list[str | InputImage] = list(self._parts)
        has_image = False
        for gap, place in self._gaps:
            value = row[place]
            if type(value) is not str or not value.isascii():
                value = self._value(place, value)
                has_image |= isinstance(value, InputImage)
            parts[gap] = value
        if not has_image:
            return "".join(parts)  # type: ignore[arg-type] # they are all text
        return tuple(InputText(part) if isinstance(part, str) else part for part in parts if part)

    def _value(self, place: int, value: Any) -> str | InputImage:
        name = self.names[place]
        if isinstance(value, Enum):
            value = value.value
        if type(value) is not str:
            if _is_missing(value):
                raise BadRow(IS_MISSING.format(name=name, value=value))
            if isinstance(value, PurePath):
                return _of_file(name, value, self._judge)
            return _written(name, value)
        check_text(name, value)
        return value


class FunctionPrompt:
    """A function that makes the content of a row's question."""

    names: Names = None

    def __init__(self, function: Callable[[Any], Content]) -> None:
        self._function = function

    def fill(self, row: Row) -> Content:
        """See `Prompt.fill`."""
        if isinstance(row, Broken):
            raise BadRow(row.problem)
        try:
            content = self._function(row)
        except BaseException as error:  # the person's function may raise anything
            raise BadRow(f"the prompt's function raised {typed_message(error)}") from None
        if isinstance(content, str):
            check_text("the prompt", content)
        elif not (isinstance(content, tuple) and content and all(map(_is_part, content))):
            kind = type(content).__name__
            raise BadRow(f"the prompt's function returned {kind}, not text")
        return content


def identity_of(given: Given) -> bytes:
    """Return what tells a prompt from others, in each process the same.

    Of a function that is its code, and the texts and functions that are bound to it; numbers may
    count its calls.
    """
    if isinstance(given, str):
        return given.encode()
    functions, told = list[Any]([given]), list[object]()
    for function in functions:  # to which those are added that are bound to it
        bound = list(_bound(function))
        texts = [each if isinstance(each, str) else None for each in bound]
        told.append((_code(function), texts))
        found = [_inner(function), *(each for each in bound if isinstance(each, _FUNCTIONS))]
        functions += [each for each in found if each and all(each is not old for old in functions)]
    return repr(told).encode("utf-8", "backslashreplace")


def _bound(function: Any) -> Iterator[object]:
    """Yield the arguments and defaults of a function, their names, and the variables around it."""
    by_name = getattr(function, "__kwdefaults__", None) or {}
    if isinstance(function, partial):
        yield from function.args
        by_name = function.keywords
    yield from chain.from_iterable(by_name.items())
    yield getattr(function, "__self__", None)
    yield from getattr(function, "__defaults__", None) or ()
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable has no value yet
            yield None


def _inner(function: Any) -> Any:
    """Return the function that a partial one or a decorator calls; None for others."""
    if isinstance(function, partial):
        return function.func
    return getattr(function, "__dict__", {}).get("__wrapped__")


def _code(function: Any) -> object:
    """Return what tells a function's code from others: its name where it is not Python's."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    named = function if hasattr(function, "__qualname__") else type(function)
    return _constant(code) if code else (getattr(named, "__module__", ""), named.__qualname__)


def _constant(value: object) -> object:
    """Return what tells code and its constants from others: without lines, addresses and order."""
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_constant(each) for each in value.co_consts]
    if isinstance(value, tuple):
        return [_constant(each) for each in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _is_part(part: object) -> bool:
    return isinstance(part, InputText | InputImage)


def check_text(name: str, text: str) -> None:
    """Check that a text can be sent.

    Raises:
        BadRow: it holds half of a surrogate pair, or bytes that are no text (`surrogateescape`).
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        is_byte = "\udc80" <= text[error.start] <= "\udcff"
        words = NOT_UTF8 if is_byte else SURROGATE
        raise BadRow(words.format(name=name, place=error.start + 1)) from None


def _check_once(names: Sequence[str], columns: Sequence[str]) -> None:
    counts = Counter(columns)
    for name in names:
        if counts[name] > 1:
            raise FatalError(TWICE.format(name=name))


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or what pandas has for them."""
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    can_be = isinstance(value, Number) or type(value).__name__ in _NUMPY_TIMES
    return can_be and bool(value != value)


# -- values that are no text -----------------------------------------------------------------------


def _written(name: str, value: Any) -> str | InputImage:
    """Return a value as text, or as an image.

    Raises:
        BadRow: it is neither.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_bytes(name, bytes(value))
    if is_image(value):
        buffer = BytesIO()
        try:
            value.save(buffer, "PNG")
        except OSError:  # PNG has no such mode: CMYK, or floats
            buffer = BytesIO()
            value.convert("RGB").save(buffer, "PNG")
        return _of_bytes(name, buffer.getvalue())
    if isinstance(value, Mapping | list | tuple | Set) or _as_list(value):
        text = _json(value)
    else:
        text = value.isoformat() if isinstance(value, date | time) else _text(value)
    check_text(name, text)
    return text


def _text(value: Any) -> str:
    """Return the text that a value's class gives it.

    Raises:
        BadRow: it has none but its address, which is another question in each process.
    """
    kind: Any = type(value)
    text = str(value)
    if f"0x{id(value):x}" in text.lower():
        raise BadRow(NO_TEXT.format(kind=kind.__name__))
    return text


def _as_list(value: Any) -> str:
    """Return the method by which a table or array gives all its values; "" for what is none.

    The text of a long one leaves values out. A number of NumPy has such a method too.
    """
    if getattr(value, "ndim", None) == 0:
        return ""
    return next((name for name in _AS_LIST if hasattr(value, name)), "")


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except TypeError:  # a key is none of JSON's
        return json.dumps(_with_keys(value), ensure_ascii=False)


def _with_keys(value: Any) -> Any:
    """Return a value for JSON in which the keys of all dicts are text."""
    if isinstance(value, list | tuple):
        return list(map(_with_keys, value))
    if isinstance(value, dict):
        return {_key(key): _with_keys(each) for key, each in value.items()}
    return value if value is None or isinstance(value, _OF_JSON) else _with_keys(_plain(value))


def _key(key: Any) -> Any:
    if key is None or isinstance(key, _OF_JSON):
        return key
    text = _json(key)
    return json.loads(text) if text.startswith('"') else text


def _plain(value: Any) -> Any:
    """Return a value inside others for JSON: an array or a number of NumPy as Python's.

    A set is sorted: its own order is another one in each process, and would be another question.

    Raises:
        BadRow: it cannot be sent there.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Set):
        return sorted(value, key=_json)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview) or is_image(value):
        raise BadRow(INSIDE.format(kind="a picture" if is_image(value) else "bytes"))
    if hasattr(value, "tolist") and made_by(type(value))[0] == "numpy":
        return python_value(value)
    if _is_missing(value):
        return None
    if (by := _as_list(value)) == "itertuples":  # its text would round numbers
        rows = list(value.itertuples(index=False, name=None))
        return {"index": list(value.index), "columns": list(value.columns), "data": rows}
    if by:
        return getattr(value, by)()
    return value.isoformat() if isinstance(value, date | time) else _text(value)


def _of_file(name: str, path: PurePath, judge: FileJudge) -> str | InputImage:
    """Return the text of a file, or its image."""
    try:
        content = read_plain(judged_path(str(path), judge), _MOST_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise BadRow(f"{name}: {path} cannot be read ({clause(error)})") from None
    if _kind_of(content):
        return _of_bytes(name, content)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadRow(f"{name}: {path} is neither text nor an image") from None


def _of_bytes(name: str, content: bytes) -> InputImage:
    kind = _kind_of(content)
    if kind is None:
        raise BadRow(f"{name} holds bytes that are no PNG, JPEG, GIF or WebP image")
    return InputImage(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def _kind_of(content: bytes) -> str | None:
    """Return the kind of an image by its first bytes; None for what is none."""
    if content[8:12] != b"WEBP" and content.startswith(b"RIFF"):
        return None  # a sound or a film
    return next((kind for start, kind in _IMAGES.items() if content.startswith(start)), None)


# -- rows with their questions -------------------------------------------------------------------

TOO_LONG = "the prompt has {length:,} characters, more than the model can read ({most:,} at most)"


class Asked(NamedTuple):
    """One row with its question; where it is not asked, a plain tuple takes less time.

    Attributes:
        position: its place among all rows.
        key, content: of its question.
        error: why nothing can be asked about it; "" where something can.
        place: where its content is instead, if a worker has it.
    """

    position: int
    key: bytes
    content: Content
    error: str = ""
    place: RowPlace | None = None


Entry: TypeAlias = tuple[int, bytes, Content, str, RowPlace | None]
"""What `Asked` has."""


def asked_row(position: int, row: Row, prompt: Prompt, terms: blake2b, most: int) -> Entry:
    """Return a row with its question, or with the error of one that cannot be asked about.

    Args:
        position: its place.
        row: its values.
        prompt: makes its question.
        terms: a digest of all that decides the answer, but for that question.
        most: the longest prompt that is sent, in characters.
    """
    try:
        content = prompt.fill(row)
        if isinstance(content, str):
            text, length = content, len(content)
        else:
            text, length = repr(content), _length(content)
        if length > most:
            raise BadRow(TOO_LONG.format(length=length, most=most))
        digest = terms.copy()
        digest.update(text.encode())
        return position, digest.digest(), content, "", None
    except BadRow as problem:
        return position, b"", "", short_message(problem), None
    except BaseException as error:  # objects of anybody's classes, which may also call `sys.exit()`
        return position, b"", "", typed_message(error), None


def _length(parts: Sequence[ContentPart]) -> int:
    """Return how many characters the texts among some parts have.

    Raises:
        BadRow: one of the parts cannot be sent.
    """
    length = 0
    for part in parts:
        text = part.text if isinstance(part, InputText) else ""
        check_text("the prompt", part.image_url if isinstance(part, InputImage) else text)
        length += len(text)
    return length


def digest_of(terms: bytes) -> blake2b:
    """Return the digest of what all questions share; the digest of each begins with it."""
    return blake2b(digest_size=16, key=terms)
