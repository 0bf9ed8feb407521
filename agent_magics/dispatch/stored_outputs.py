"""Keeps what a model cannot read whole, and tells it in a line under which name.

A result that is cut, or that is no text to begin with (a table, an array, a figure), stays in the
kernel; the model reads a summary and goes on with ``@r7`` as an argument or ``_r7`` in code.
"""

import datetime
import decimal
import enum
import fractions
import os
import types
import uuid
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.output import is_cut
from agent_magics.dispatch.values import describe_value
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput

# What the model reads whole, as JSON or words: nothing is left that a name would lead to.
_READABLE = (
    str,
    int,
    float,
    complex,
    type(None),
    decimal.Decimal,
    fractions.Fraction,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    enum.Enum,
    os.PathLike,
    uuid.UUID,
    range,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    ToolOutput,
    InputText,
    InputImage,
)
_PLAIN = frozenset((str, int, float, bool, type(None)))
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
_LEAST_SIZE = 1_000_000  # bytes of a value that the model is told
_LOOKED_AT = 20  # elements of a container, to see whether it holds what is no text


def is_by_reference(value: Any) -> bool:
    """Tell whether `value` is more than the text that stands for it: a table, an array, an object.

    Dataclasses and models that JSON shows whole are not.
    """
    kind = type(value)
    if kind in _PLAIN:
        return False
    if kind in _CONTAINERS:
        elements: Iterable[Any] = value.values() if kind is dict else value
        for each in islice(elements, _LOOKED_AT):
            if type(each) not in _PLAIN and is_by_reference(each):  # most are plain, at no cost
                return True
        return False
    if issubclass(kind, _READABLE) or hasattr(kind, "to_output"):
        return False
    return not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__pydantic_fields__"))


def refer(value: Any, context: ToolContext, *, was_cut: bool = False) -> str:
    """Keep `value` where it is worth a name, and return what the model is told of it, or "".

    Args:
        value: what a call or a last expression gave.
        context: the call, whose conversation keeps it.
        was_cut: the model has not read all of its text.
    """
    if not (was_cut or is_by_reference(value)):
        return ""
    handles = context.handles
    if isinstance(value, str):
        name, words = handles.keep(value), f"the whole text, {len(value):,} characters"
        how = "read_file and grep_files take it as a path"
    else:
        name, words = handles.keep_value(value), describe_value(value, least=_LEAST_SIZE)
        how = "it stands for this object in arguments"
    in_code = f"; _{name[1:]} in python code" if "python" in context.turn.functions else ""
    told = f"[{name}: {words}; {how}{in_code}]"
    gone = handles.take_let_go()
    if gone:
        told += (
            f"\n[To keep within memory, {', '.join(gone)} "
            f"{'is' if len(gone) == 1 else 'are'} kept no longer; what a variable holds goes on "
            "working.]"
        )
    return told


def with_reference(output: ToolOutput, context: ToolContext) -> ToolOutput:
    """Return `output` with a line that names its value, where the model has not read all of it.

    People are shown the output without that line.
    """
    if context.parent_call_id is not None or output.value is None:
        return output  # code that called the tool has the value itself
    text = output.content if type(output.content) is str else output.text
    # A cut text is long; whether a long one was cut costs more to see.
    was_cut = len(text) > context.turn.config.output_budget // 2 and is_cut(output)
    if not (was_cut or is_by_reference(output.value)):
        return output
    told = refer(output.value, context, was_cut=was_cut)
    details = {"output": output.text, **output.details}
    if isinstance(output.content, str):
        return replace(output, content=f"{output.content}\n{told}", details=details)
    return replace(output, content=(*output.content, InputText(told)), details=details)
