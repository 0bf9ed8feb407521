"""``inspect_variables``: lists a namespace's variables, their types and shapes, running no code."""

import fnmatch
import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import PAGE, OutputGuard, require
from agent_magics.dispatch.results.values import (
    COLUMNS,
    bases_of,
    describe_value,
    estimate_size,
    kind_of,
    library_class,
    members_of,
    own_attributes,
    short_value,
    type_name,
)
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import first_of

# Cells of a table whose missing values are counted; in larger ones those of the first rows.
MOST_COUNTED = 5_000_000
# Seconds after which variables are only named, so that no call hangs on a large namespace.
TIME_LIMIT = 2.0
_MOST_PARAMETERS = 30
# IPython's own, which nobody has assigned.
_HIDDEN = frozenset(("In", "Out", "exit", "quit", "get_ipython", "open"))
_GROUPED = ("function", "class", "module")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable.

    Attributes:
        kind: frame, series, array, picture, model, lazy, data, function, class or module.
        words: type, shape, types of its parts, and size, as text.
        size: estimated size in bytes of memory.
        lines: details, where they were requested.
    """

    name: str
    kind: str
    words: str
    size: int
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.words}", *(f"    {line}" for line in self.lines)])


@dataclass(frozen=True, repr=False)
class Variables:
    """Variables of a namespace, by name.

    Attributes:
        shown: the variables of this page.
        total: the number of variables, without functions and modules.
        others: names of functions, classes and modules, by kind.
        guard: the requested page size and offset.
    """

    shown: tuple[Variable, ...]
    total: int
    others: Mapping[str, tuple[str, ...]]
    guard: OutputGuard = field(default_factory=OutputGuard)

    def __iter__(self) -> Iterator[Variable]:
        return iter(self.shown)

    def __len__(self) -> int:
        return len(self.shown)

    def __repr__(self) -> str:
        return self._text(self.shown)

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many variables as fit into `budget` characters, and how to request the rest."""
        shown = list(self.shown)
        text = self._text(shown)
        while len(text) > budget and len(shown) > 1:
            keep = min(len(shown) - 1, max(1, len(shown) * budget // len(text)))
            del shown[keep:]
            text = self._text(shown)
        return ToolOutput(text, value=self)

    def _text(self, shown: "tuple[Variable, ...] | list[Variable]") -> str:
        lines = [str(variable) for variable in shown]
        if not lines:
            lines = ["There are no variables of that name." if self.others else "No variables."]
        for kind, names in self.others.items():
            plural = {"class": "classes"}.get(kind, f"{kind}s")
            lines.append(f"[{plural}: {first_of(names, COLUMNS)}]")
        rest = self.guard.overflow(len(shown), self.total, "a narrower pattern")
        if rest is not None:
            how = rest.hint if rest.next_offset is None else f"offset={rest.next_offset}"
            lines.append(f"[{len(shown)} of {self.total:,} variables shown; the rest with {how}.]")
        return "\n".join(lines)


@tool(parallel=True, mutating=False)
def inspect_variables(
    pattern: str = "*",
    detail_level: Literal["full"] | None = None,
    offset: int = 0,
    limit: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> Variables:
    """List the notebook's variables: type, shape, column types, size; nothing is computed.

    Args:
        pattern: names with * and ?, several with commas; names with _ only if the pattern has it.
        detail_level: "full", of a few: columns with types and missing values, what lists and dicts
            hold, parameters of models, in pages.

    Returns:
        The variables, by name; functions, classes and modules are only named.

    Raises:
        RespondToModel: there is no notebook, or a number does not fit.
    """
    guard = OutputGuard(detail_level, offset, limit)
    if guard.focused and limit is not None:
        guard = replace(guard, limit=min(limit, PAGE))  # inspecting each takes time
    require(str, pattern=pattern)
    values = _matching(_namespace(ctx), pattern)
    kinds = {name: kind_of(value) for name, value in values.items()}
    named = [name for name in values if kinds[name] not in _GROUPED]
    others = {
        kind: names
        for kind in _GROUPED
        if (names := tuple(name for name in values if kinds[name] == kind))
    }
    page, _ = guard.cap_items(named)
    clock = _Deadline(monotonic() + TIME_LIMIT, ctx)
    shown = tuple(
        _look(name, kinds[name], values[name], guard.should_include_body(), clock) for name in page
    )
    return Variables(shown, len(named), others, guard)


def _namespace(ctx: ToolContext | None) -> Mapping[str, Any]:
    if ctx is None:
        return vars(sys.modules["__main__"])
    if ctx.turn.live_kernel is None:
        raise RespondToModel(
            "inspect_variables needs a notebook kernel, and this agent runs outside one."
        )
    return ctx.turn.live_kernel.namespace


def _matching(namespace: Mapping[str, Any], pattern: str) -> dict[str, Any]:
    patterns = [each.strip() for each in pattern.split(",") if each.strip()] or ["*"]
    found = {}
    values = dict(namespace)  # at once: other threads may assign
    for name, value in sorted(values.items(), key=lambda pair: str(pair[0])):
        if type(name) is not str or name in _HIDDEN:
            continue
        fitting = [p for p in patterns if fnmatch.fnmatchcase(name, p)]
        if fitting and (name[0] != "_" or any(p[0] == "_" for p in fitting)):
            found[name] = value
    return found


@dataclass(slots=True)
class _Deadline:
    """A deadline for describing variables."""

    end: float
    ctx: ToolContext | None

    @property
    def is_over(self) -> bool:
        return monotonic() > self.end or (self.ctx is not None and self.ctx.cancelled.is_set())


def _look(name: str, kind: str, value: object, detailed: bool, clock: _Deadline) -> Variable:
    """Describe one variable; an error of its own code is reported for it alone."""
    if clock.is_over:
        return Variable(name, kind, f"{type_name(value)}, not looked at: it took too long", 0)
    try:
        found = Variable(name, kind, describe_value(value), estimate_size(value))
        short = short_value(value)
        if short:
            found = replace(found, words=f"{found.words} = {short}")
        if kind == "model":
            found = replace(found, words=f"{found.words}({', '.join(_parameters(value))})")
        if detailed:
            found = replace(found, lines=tuple(_details(kind, value, clock)))
        return found
    except Exception as error:  # the class may be of any library, half built or closed
        return Variable(name, kind, f"a value that cannot be looked at ({type(error).__name__})", 0)


def _details(kind: str, value: Any, clock: _Deadline) -> list[str]:
    if kind == "frame":
        return _frame_lines(value, clock)
    if kind == "series":
        return _series_lines(value, clock)
    if kind == "model":
        fitted = sorted(n for n in own_attributes(value) if n.endswith("_") and n[0] != "_")
        return [f"fitted: {', '.join(fitted[:COLUMNS])}" if fitted else "not fitted"]
    if type(value) is dict:
        return [f"{_element(key)}: {_element(each)}" for key, each in _first(value.items())]
    if type(value) in (list, tuple):
        kinds = Counter(type_name(each) for each in value[:1_000])
        return [f"holds {', '.join(f'{count} {name}' for name, count in kinds.most_common(8))}"]
    attributes = own_attributes(value)
    return [f".{name}: {_element(each)}" for name, each in _first(attributes.items())]


def _first(pairs: Any) -> list[Any]:
    return [pair for pair, _ in zip(pairs, range(COLUMNS), strict=False)]


def _element(value: object) -> str:
    return short_value(value) or describe_value(value)


def _parameters(model: object) -> list[str]:
    """Return a model's stored parameters without calling any code of the model."""
    held = own_attributes(model)
    start = next(
        members_of(base)["__init__"]
        for base in bases_of(type(model))
        if "__init__" in members_of(base)
    )
    names = list(inspect.signature(start).parameters)[1:]
    found = [name for name in names if name in held][:_MOST_PARAMETERS]
    return [f"{name}={_element(held[name])}" for name in found]


# -- tables ----------------------------------------------------------------------------------------


def _frame_lines(frame: Any, clock: _Deadline) -> list[str]:
    columns = list(frame.columns[: 5 * COLUMNS])
    known = library_class(frame)
    if known == ("polars", "DataFrame"):
        missing, rows = frame.null_count().row(0), frame.height
        pairs = zip(columns, frame.dtypes, missing, strict=False)
    elif known == ("pandas", "DataFrame"):
        rows = _counted_rows(frame.shape[0], frame.shape[1])
        missing = [] if clock.is_over else list(frame.iloc[:rows, : len(columns)].isna().sum())
        dtypes = frame.dtypes.iloc[: len(columns)]
        missing = missing or ["?"] * len(columns)
        pairs = zip(columns, dtypes, missing, strict=True)
    else:
        return []
    lines = [f"{name}: {dtype}{_missing_words(count)}" for name, dtype, count in pairs]
    if len(frame.columns) > len(columns):
        lines.append(f"… {len(frame.columns) - len(columns)} more columns")
    if rows < frame.shape[0]:
        lines.append(f"(missing values counted in the first {rows:,} rows)")
    if known[0] == "pandas":
        lines.insert(0, f"index: {describe_value(frame.index)}")
    return lines


def _series_lines(series: Any, clock: _Deadline) -> list[str]:
    if library_class(series) != ("pandas", "Series") or clock.is_over:
        return []
    rows = _counted_rows(len(series), 1)
    part = "" if rows == len(series) else f" in the first {rows:,} values"
    return [f"missing: {int(series.iloc[:rows].isna().sum()):,}{part}"]


def _counted_rows(rows: int, columns: int) -> int:
    return min(rows, MOST_COUNTED // max(columns, 1))


def _missing_words(count: Any) -> str:
    if count == "?":
        return ", missing not counted"
    return f", {int(count):,} missing" if count else ""
