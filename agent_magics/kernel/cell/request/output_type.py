"""Evaluates ``--output EXPRESSION``, the type of a cell's answer, in the person's namespace."""

from collections.abc import Mapping
from typing import Any

from agent_magics.kernel.cell.request.options import evaluate
from agent_magics.protocol.errors import FatalError


def read_type(expression: str | None, namespace: Mapping[str, Any]) -> Any:
    """Evaluate a type expression; None stays None.

    Args:
        expression: such as ``list[Row]``.
        namespace: the person's variables, and the names that their modules define.

    Raises:
        FatalError: it cannot be evaluated. Whether it is a type is checked by `OutputType`.
    """
    if expression is None:
        return None
    source = expression.strip()
    takes = 'a type as you would write it in this notebook, such as "list[Row]"'
    kind = evaluate("output", source, namespace, takes)
    if kind is None:
        raise FatalError(f"--output {source} is no type; leave it out for an answer in words.")
    return kind
