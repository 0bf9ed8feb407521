"""``--output EXPRESSION``: the type of a cell's answer, from the person's namespace."""

from collections.abc import Mapping
from typing import Any

from agent_magics.protocol.errors import FatalError


def read_type(expression: str | None, namespace: Mapping[str, Any]) -> Any:
    """Return what `expression` stands for in `namespace`; None is no expression.

    Args:
        expression: such as ``list[Row]``; quotes around the whole are taken off.
        namespace: the person's variables, and what their modules brought.

    Raises:
        FatalError: it cannot be evaluated. Whether it is a type is told by `OutputType`.
    """
    if expression is None:
        return None
    source = expression.strip()
    if len(source) > 1 and source[0] == source[-1] and source[0] in "\"'":
        source = source[1:-1]
    try:
        kind = eval(compile(source, "--output", "eval"), {**namespace})
    except Exception as error:  # the person's own words may raise anything
        raise FatalError(
            f"--output {source}: {type(error).__name__}: {error}; it takes a type as you would "
            'write it in this notebook, such as "list[Row]".'
        ) from None
    if kind is None:
        raise FatalError(f"--output {source} is no type; leave it out for an answer in words.")
    return kind
