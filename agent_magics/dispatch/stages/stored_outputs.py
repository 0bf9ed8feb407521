"""Stores outputs that a model cannot read whole, and returns a line that names them.

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
from agent_magics.dispatch.results.cutting import cut_text
from agent_magics.dispatch.results.output import is_cut
from agent_magics.dispatch.results.values import Types, defines, describe_value
from agent_magics.protocol.items import InputImage, InputText, map_text
from agent_magics.protocol.tools import ToolOutput

# Types that the model reads whole, as JSON or text, so that a name would add nothing.
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
_PLAIN = Types(str, int, float, bool, type(None))
_CONTAINERS = Types(list, tuple, dict, set, frozenset)
_LEAST_SIZE = 1_000_000  # bytes above which a value's size is reported to the model
_LOOKED_AT = 20  # elements of a container that are searched for values that are no text


def is_by_reference(value: Any, levels: int = 10) -> bool:
    """Return whether `value` is more than its text: a table, an array, an object.

    Dataclasses and models that JSON shows whole are not. Containers are searched `levels` deep,
    since one may contain itself.
    """
    kind = type(value)
    if kind in _PLAIN:
        return False
    if kind in _CONTAINERS and not levels:
        return True
    if kind in _CONTAINERS:
        elements: Iterable[Any] = value.values() if kind is dict else value
        for each in islice(elements, _LOOKED_AT):
            if type(each) not in _PLAIN and is_by_reference(
                each, levels - 1
            ):  # fast path: most are plain
                return True
        return False
    if issubclass(kind, _READABLE) or defines(kind, "to_output"):
        return False
    return not (defines(kind, "__dataclass_fields__") or defines(kind, "__pydantic_fields__"))


def refer(value: Any, context: ToolContext, *, was_cut: bool = False) -> str:
    """Store `value` if it is worth a name; return the line that names it for the model, or "".

    Args:
        value: the result of a call or of a last expression.
        context: the call, in whose conversation it is stored.
        was_cut: whether the model has not read all of its text.
    """
    if not (was_cut or is_by_reference(value)):
        return ""
    handles = context.handles
    if issubclass(type(value), str):
        name, description = handles.keep(value), f"the whole text, {len(value):,} characters"
        how = "read_file and grep_files take it as a path"
    else:
        name = handles.keep_value(value)
        description = describe_value(value, least=_LEAST_SIZE)
        how = "it stands for this object in arguments"
    in_code = f"; _{name[1:]} in python code" if "python" in context.turn.functions else ""
    line = f"[{name}: {description}; {how}{in_code}]"
    released = context.turn.handles.take_let_go()
    if released:
        line += (
            f"\n[To keep within memory, {', '.join(released)} "
            f"{'is' if len(released) == 1 else 'are'} kept no longer; what a variable holds goes "
            "on working.]"
        )
    return line


def with_reference(output: ToolOutput, context: ToolContext) -> ToolOutput:
    """Add a line that names the stored value to an output that the model cannot read whole.

    People are shown the output without that line.
    """
    if context.parent_call_id is not None or output.value is None:
        return output  # the calling code gets the value itself
    was_cut = is_cut(output)
    if not (was_cut or is_by_reference(output.value)):
        return output
    return _with_line(output, refer(output.value, context, was_cut=was_cut), output)


def within_share(
    output: ToolOutput, context: ToolContext, share: int, *, is_named: bool
) -> ToolOutput:
    """Cut the output of a call that a batch makes; as `with_reference`, where the model reads it.

    Args:
        output: the output as it would be without the batch.
        context: the call.
        share: the most characters of it, without the line that names what is stored.
        is_named: whether there is such a line; code gets the value itself.
    """
    cut = replace(output, content=map_text(output.content, lambda text: cut_text(text, share)[0]))
    was_cut = cut.content != output.content or is_cut(output)
    if not is_named or not (was_cut or is_by_reference(output.value)):
        return cut
    # What converts itself is read as its text, where there is all of that.
    says_all = defines(type(output.value), "to_output") and not is_cut(output)
    is_text = output.value is None or says_all
    stored = output.text if is_text else output.value
    return _with_line(cut, refer(stored, context, was_cut=was_cut), output)


def _with_line(output: ToolOutput, line: str, shown: ToolOutput) -> ToolOutput:
    """Add a line for the model to an output; people are shown another one."""
    details = {"output": shown.text, **output.details}
    if isinstance(output.content, str):
        return replace(output, content=f"{output.content}\n{line}", details=details)
    return replace(output, content=(*output.content, InputText(line)), details=details)
